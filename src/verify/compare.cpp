// SPDX-License-Identifier: Apache-2.0
// Measures the errors of O and LSE, and applies the pass rule to them.
#include "verify/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "verify/numeric.h"

namespace attnjit::verify {
namespace {

double tolerance_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp16:
      return 2e-3;
    case Dtype::kE4m3:
      return 5e-2;
    case Dtype::kF32:
      return 0;  // adds nothing to what the inputs' dtype costs
    default:
      return 1e-2;
  }
}

// Below it a dtype's numbers keep no relative precision.
double smallest_precise(Dtype dtype) {
  if (dtype == Dtype::kE4m3) return std::ldexp(1.0, -6);
  return dtype == Dtype::kFp16 ? std::ldexp(1.0, -14) : std::ldexp(1.0, -126);
}

// The largest share of a row's softmax that a right kernel may lose. A kernel's factors are powers
// of two in f32, and ex2.approx.ftz gives 0 below 2^-126: the factor that makes weights relative to
// a sink far above every score. What it multiplies are weights relative to a running maximum that
// FlashAttention-4 renews only where the scores exceed it by 8 powers of two, so they are up to
// 2^8. An element of o is then off by up to 2^(8 - 126) times the sum over the keys of |v|.
// NOTE: no wider: a row whose shares are 2^-116 is seen where it is lost (a row may be off by 4
// times the tolerance).
constexpr int kLostShareExponent = 8 - 126;

// An LSE is f32, and a kernel makes it from a maximum and a sum in powers of two: far from 0 it may
// be off by a few units in its last place.
constexpr int kLseExponent = -21;

// What a row of o may be off by because weights vanished, by sequence and key-value head: a norm.
std::vector<double> lost_norms(const Problem& problem) {
  const int kv_heads = problem.spec.num_kv_heads();
  const int depth = problem.spec.ov_depth;
  // A merge has no keys; the weights of its pairs are within what f32 holds.
  if (problem.spec.merge) {
    return std::vector<double>(static_cast<std::size_t>(problem.batch) * kv_heads);
  }
  const Tensor& v = problem.at("v");
  std::vector<double> norms(static_cast<std::size_t>(problem.batch) * kv_heads);
  std::vector<double> row(static_cast<std::size_t>(depth));
  for (std::size_t i = 0; i < norms.size(); ++i) {
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): without heads there are no norms.
    const int b = static_cast<int>(i) / kv_heads, head = static_cast<int>(i) % kv_heads;
    std::vector<double> sums(static_cast<std::size_t>(depth), 0.0);
    for (int key = 0; key < problem.kv_lens[b]; ++key) {
      const double scale = problem.scale_of("v_scale", b, head, key);
      load_doubles(v, (problem.kv_row(b, key) * kv_heads + head) * depth, depth, row.data());
      for (int d = 0; d < depth; ++d) sums[d] += scale * std::fabs(row[d]);
    }
    double squares = 0;
    for (const double sum : sums) squares += sum * sum;
    norms[i] = std::ldexp(std::sqrt(squares) / problem.output_scale(), kLostShareExponent);
  }
  return norms;
}

// "sequence 1, row 7, head 3" of a flattened (row, head) index of o.
std::string position(const Problem& problem, std::int64_t row_head) {
  const std::int64_t row = row_head / problem.spec.num_q_heads;
  int b = 0;
  while (b + 1 < problem.batch && problem.first_q_row(b + 1) <= row) ++b;
  return fmt::format("sequence {}, row {}, head {}", b, row - problem.first_q_row(b),
                     row_head % problem.spec.num_q_heads);
}

class Judge {
 public:
  Judge(const Problem& problem, Comparison& result) : problem_(problem), result_(result) {}

  void fail(const std::string& what, std::int64_t row_head) {
    if (result_.reason.empty()) {
      result_.reason = fmt::format("{} at {}", what, position(problem_, row_head));
    }
  }

  void outputs(const Reference& reference, const Tensor& o) {
    const int depth = problem_.spec.ov_depth;
    const auto rows = static_cast<std::int64_t>(reference.lse.size());
    // NOTE: an fp16 row of subnormals (a sink that outweighs every key) is off by the rounding of o
    // itself, 10 % and more of its norm, however exact the kernel.
    const double rounding_norm = std::sqrt(static_cast<double>(depth)) * smallest_precise(o.dtype);
    const std::vector<double> lost = lost_norms(problem_);
    const int heads = problem_.spec.num_q_heads;
    double error_sum = 0, reference_sum = 0, least_sum = 0;
    std::int64_t worst = 0;
    int b = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      while (b + 1 < problem_.batch && problem_.first_q_row(b + 1) <= row / heads) ++b;
      if (problem_.is_stray(b)) continue;
      const int kv_head = static_cast<int>(row % heads) / problem_.spec.group;
      const double least_norm =
          std::max(rounding_norm,
                   lost[static_cast<std::size_t>(b) * problem_.spec.num_kv_heads() + kv_head] /
                       result_.tolerance);
      least_sum += least_norm * least_norm;
      double row_error = 0, row_reference = 0;
      for (int d = 0; d < depth; ++d) {
        const double want = reference.o[static_cast<std::size_t>(row * depth + d)];
        const double got = load_float(o, row * depth + d);
        if (!std::isfinite(got)) {
          fail(fmt::format("o is {} in element {}", got, d), row);
          result_.max_abs_err = result_.rel_err = result_.max_row_err =
              std::numeric_limits<double>::infinity();
          return;
        }
        const double difference = got - want;
        result_.max_abs_err = std::max(result_.max_abs_err, std::fabs(difference));
        row_error += difference * difference;
        row_reference += want * want;
      }
      error_sum += row_error;
      reference_sum += row_reference;
      if (row_reference == 0) {
        if (row_error != 0) {
          fail("o is not zero where the reference is", row);
          result_.max_row_err = std::numeric_limits<double>::infinity();
        }
        continue;
      }
      const double relative = std::sqrt(row_error) / std::max(std::sqrt(row_reference), least_norm);
      if (relative > result_.max_row_err) {
        result_.max_row_err = relative;
        worst = row;
      }
    }
    if (error_sum > 0) {
      result_.rel_err = reference_sum > 0
                            ? std::sqrt(error_sum / std::max(reference_sum, least_sum))
                            : std::numeric_limits<double>::infinity();
    }
    if (result_.rel_err > result_.tolerance) {
      fail(fmt::format("rel_err {:.3e} is above {:.0e}; the worst row is", result_.rel_err,
                       result_.tolerance),
           worst);
    }
    if (result_.max_row_err > 4 * result_.tolerance) {
      fail(fmt::format("max_row_err {:.3e} is above {:.0e}", result_.max_row_err,
                       4 * result_.tolerance),
           worst);
    }
  }

  void logarithms(const Reference& reference, const Tensor& lse) {
    double worst = 0;
    for (int b = 0; b < problem_.batch; ++b) {
      if (problem_.is_stray(b)) continue;
      for (int h = 0; h < problem_.spec.num_q_heads; ++h) {
        for (int row = 0; row < problem_.q_lens[b]; ++row) {
          const std::int64_t index = problem_.lse_index(b, h, row);
          const double want = reference.lse[static_cast<std::size_t>(index)];
          const double got = lse.as<float>()[index];
          double difference = std::fabs(got - want);
          if (want == got) difference = 0;  // -inf too
          const double moved = reference.lse_moved.empty()
                                   ? 0
                                   : reference.lse_moved[static_cast<std::size_t>(index)];
          const double rounding =
              std::isfinite(want) ? std::ldexp(std::fabs(want), kLseExponent) : 0;
          if (!(difference <= result_.tolerance + moved + rounding)) {
            fail(fmt::format("lse is {}, the reference {}", got, want),
                 (problem_.first_q_row(b) + row) * problem_.spec.num_q_heads + h);
          }
          if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
          worst = std::max(worst, difference);
        }
      }
    }
    result_.lse_max_abs_err = worst;
  }

 private:
  const Problem& problem_;
  Comparison& result_;
};

}  // namespace

double tolerance_of(const AttentionSpec& spec) {
  return std::max(tolerance_of(spec.qkv_dtype),
                  tolerance_of(spec.output_dtype.value_or(spec.qkv_dtype)));
}

Comparison compare(const Problem& problem, const Reference& reference, const Tensor& o,
                   const Tensor* lse, double tolerance) {
  Comparison result;
  result.tolerance = tolerance;
  Judge judge(problem, result);
  judge.outputs(reference, o);
  if (lse != nullptr) judge.logarithms(reference, *lse);
  result.passed = result.reason.empty();
  return result;
}

}  // namespace attnjit::verify

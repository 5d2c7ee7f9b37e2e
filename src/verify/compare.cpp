// SPDX-License-Identifier: Apache-2.0
// Measures the errors of O and LSE, and applies the pass rule to them.
#include "verify/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

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
// NOTE: 2^-120 and not 2^-126 for the types with f32's exponents: an output is a sum of products of
// weights that themselves vanish below 2^-126.
double smallest_precise(Dtype dtype) {
  return dtype == Dtype::kFp16 ? std::ldexp(1.0, -14) : std::ldexp(1.0, -120);
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
    const double least_norm = std::sqrt(static_cast<double>(depth)) * smallest_precise(o.dtype);
    double error_sum = 0, reference_sum = 0;
    std::int64_t worst = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
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
      const double least_sum = static_cast<double>(rows) * least_norm * least_norm;
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
      for (int h = 0; h < problem_.spec.num_q_heads; ++h) {
        for (int row = 0; row < problem_.q_lens[b]; ++row) {
          const std::int64_t index = problem_.lse_index(b, h, row);
          const double want = reference.lse[static_cast<std::size_t>(index)];
          const double got = lse.as<float>()[index];
          double difference = std::fabs(got - want);
          if (want == got) difference = 0;  // -inf too
          if (!(difference <= result_.tolerance)) {
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

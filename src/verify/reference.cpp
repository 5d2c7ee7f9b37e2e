// SPDX-License-Identifier: Apache-2.0
// Computes attention in double precision, block by block on all cores.
#include "verify/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "emulator/model/tensor_product.h"
#include "spec/spec_facts.h"
#include "verify/dsv32.h"
#include "verify/gemm.h"
#include "verify/mask_and_score_mod.h"
#include "verify/numeric.h"
#include "verify/parallel.h"

namespace attnjit::verify {
namespace {

constexpr int kRowBlock = 64;
constexpr int kKeyBlock = 64;
// Scores of custom modifications and added masks from here on hide, as -inf does (docs/spec.md).
constexpr double kHides = -1e30;
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

/// The tensor cores of 8-bit operands on sm_90a: so many elements of a row at a time.
constexpr int kCoarseStep = 32;

/// Whether scores are sums that keep 13 bits, and what that does is asked for.
bool has_coarse_scores(const Problem& problem) {
  const AttentionSpec& spec = problem.spec;
  return spec.arch == Arch::kSm90a && spec.qkv_dtype == Dtype::kE4m3 && spec.return_lse &&
         !spec.merge && problem.at("q").dtype == Dtype::kE4m3 &&
         problem.at("k").dtype == Dtype::kE4m3;
}

/// The sum of a row's exponentials, relative to the largest.
struct LogSum {
  double maximum = kMinusInfinity, sum = 0;

  void add(double score) {
    if (score == kMinusInfinity) return;
    if (score > maximum) {
      sum *= std::exp(maximum - score);
      maximum = score;
    }
    sum += std::exp(score - maximum);
  }
  double log() const { return sum > 0 ? maximum + std::log(sum) : kMinusInfinity; }
};

// Query rows of one sequence that share a key-value head: row r is query r / group of head
// kv_head * group + r % group.
struct Task {
  int b = 0, kv_head = 0;
  std::int64_t first = 0, count = 0;
};

class BlockWorker {
 public:
  BlockWorker(const Problem& problem, const MaskAndScoreMod& rules, const Task& task,
              Reference& out)
      : problem_(problem),
        spec_(problem.spec),
        rules_(rules),
        task_(task),
        out_(out),
        first_(problem.first_q_row(task.b)) {}

  void run() {
    load_queries();
    const int kv_len = keys();
    KeyRange range{kv_len, 0};
    for (int r = 0; r < rows(); ++r) {
      const KeyRange row = rules_.visible_range(coordinate(r, 0).q_idx, kv_len);
      range.begin = std::min(range.begin, std::max<std::int64_t>(row.begin, 0));
      range.end = std::max(range.end, std::min<std::int64_t>(row.end, kv_len));
    }
    for (std::int64_t key = range.begin; key < range.end; key += kKeyBlock) {
      key_block(static_cast<int>(key),
                static_cast<int>(std::min<std::int64_t>(kKeyBlock, range.end - key)));
    }
    finish();
  }

 private:
  int rows() const { return static_cast<int>(task_.count); }
  int head(int r) const {
    return task_.kv_head * spec_.group + static_cast<int>((task_.first + r) % spec_.group);
  }
  /// Keys of the rows: those of the sequence, or the places of a list, which all rows of a task
  /// share.
  int keys() const { return spec_.topk > 0 ? spec_.topk : problem_.kv_lens[task_.b]; }
  /// The rows of a block's keys in k and v; -1 where a list hides one.
  void find_key_rows(int key, int count) {
    key_rows_.clear();
    for (int j = 0; j < count; ++j) {
      key_rows_.push_back(spec_.topk > 0 ? problem_.listed_row(task_.b, query(0), key + j)
                                         : problem_.kv_row(task_.b, key + j));
    }
  }
  int query(int r) const { return static_cast<int>((task_.first + r) / spec_.group); }

  spec::Coordinates coordinate(int r, int kv_idx) const {
    const int q_len = problem_.q_lens[task_.b];
    const int kv_len = keys();
    return {task_.b, head(r), task_.kv_head, query(r) + kv_len - q_len,
            kv_idx,  q_len,   kv_len,        static_cast<std::int32_t>(first_)};
  }

  void load_queries() {
    const int depth = spec_.qk_depth;
    q_.resize(static_cast<std::size_t>(rows()) * depth);
    acc_.assign(static_cast<std::size_t>(rows()) * spec_.ov_depth, 0);
    max_.assign(static_cast<std::size_t>(rows()), kMinusInfinity);
    sum_.assign(static_cast<std::size_t>(rows()), 0);
    for (int r = 0; r < rows(); ++r) {
      double* row = &q_[static_cast<std::size_t>(r) * depth];
      load_row("q", "q_rope", (first_ + query(r)) * spec_.num_q_heads + head(r),
               (first_ + query(r)) * spec_.num_q_heads + head(r), row);
      const double scale =
          double{problem_.scale} * problem_.scale_of("q_scale", task_.b, head(r), query(r));
      for (int d = 0; d < depth; ++d) row[d] *= scale;
      if (coarse_) row_scales_.push_back(scale);
    }
    if (coarse_) load_coarse_queries();
  }

  // ---- Scores as the tensor cores sum them

  int steps() const { return (spec_.qk_depth + kCoarseStep - 1) / kCoarseStep; }

  /// One of `step`'s operands: `row` of it is the row of a tensor at `at`, or zeros
  /// where that is negative.
  void set_coarse(emulator::ProductOperand& operand, int row, const Tensor& tensor, std::int64_t at,
                  int step) const {
    for (int i = 0; i < kCoarseStep; ++i) {
      const int d = step * kCoarseStep + i;
      const std::uint32_t code =
          at >= 0 && d < spec_.qk_depth ? tensor.as<std::uint8_t>()[at * spec_.qk_depth + d] : 0;
      operand.set(emulator::kFormatE4m3, row, i, code);
    }
  }
  void load_coarse_queries() {
    coarse_sums_.assign(static_cast<std::size_t>(rows()), {});
    coarse_q_.resize(static_cast<std::size_t>(steps()));
    for (int step = 0; step < steps(); ++step) {
      coarse_q_[static_cast<std::size_t>(step)].reset(rows(), kCoarseStep);
      for (int r = 0; r < rows(); ++r) {
        set_coarse(coarse_q_[static_cast<std::size_t>(step)], r, problem_.at("q"),
                   (first_ + query(r)) * spec_.num_q_heads + head(r), step);
      }
    }
  }
  void coarse_block(int key, int count) {
    std::vector<float> dots(static_cast<std::size_t>(rows()) * count, 0.0F);
    for (int step = 0; step < steps(); ++step) {
      coarse_k_.reset(count, kCoarseStep);
      for (int j = 0; j < count; ++j) {
        const std::int64_t row = key_rows_[static_cast<std::size_t>(j)];
        set_coarse(coarse_k_, j, problem_.at("k"),
                   row < 0 ? -1 : row * spec_.num_kv_heads() + task_.kv_head, step);
      }
      emulator::tensor_product(emulator::kWgmmaFp8, coarse_q_[static_cast<std::size_t>(step)],
                               coarse_k_, dots.data(), dots.data());
    }
    for (int r = 0; r < rows(); ++r) {
      for (int j = 0; j < count; ++j) {
        if (visible_[static_cast<std::size_t>(r) * kKeyBlock + j] == 0) continue;
        const double scale = row_scales_[static_cast<std::size_t>(r)] *
                             problem_.scale_of("k_scale", task_.b, task_.kv_head, key + j);
        coarse_sums_[static_cast<std::size_t>(r)].add(rules_.modify(
            scale * dots[static_cast<std::size_t>(r) * count + j], coordinate(r, key + j)));
      }
    }
  }

  void key_block(int key, int count) {
    // Visibility first: products that nobody sees are not computed.
    find_key_rows(key, count);
    visible_.assign(static_cast<std::size_t>(rows()) * kKeyBlock, 0);
    bool any = false;
    for (int r = 0; r < rows(); ++r) {
      for (int j = 0; j < count; ++j) {
        const bool sees =
            key_rows_[static_cast<std::size_t>(j)] >= 0 && rules_.visible(coordinate(r, key + j));
        visible_[static_cast<std::size_t>(r) * kKeyBlock + j] = sees ? 1 : 0;
        any = any || sees;
      }
    }
    if (!any) return;
    if (coarse_) coarse_block(key, count);

    const int depth = spec_.qk_depth;
    const int kv_heads = spec_.num_kv_heads();
    k_.assign(static_cast<std::size_t>(depth) * kKeyBlock, 0);
    v_.resize(static_cast<std::size_t>(kKeyBlock) * spec_.ov_depth);
    row_.resize(static_cast<std::size_t>(depth));
    std::fill(v_.begin(), v_.end(), 0.0);
    for (int j = 0; j < count; ++j) {
      const std::int64_t key_row = key_rows_[static_cast<std::size_t>(j)];
      if (key_row < 0) continue;
      const std::int64_t row = key_row * kv_heads + task_.kv_head;
      load_key(row, key_row);
      const double k_scale = problem_.scale_of("k_scale", task_.b, task_.kv_head, key + j);
      const double v_scale = problem_.scale_of("v_scale", task_.b, task_.kv_head, key + j);
      for (int d = 0; d < depth; ++d) {
        k_[static_cast<std::size_t>(d) * kKeyBlock + j] = k_scale * row_[d];
      }
      double* const v = &v_[static_cast<std::size_t>(j) * spec_.ov_depth];
      load_doubles(problem_.at("v"), row * spec_.ov_depth, spec_.ov_depth, v);
      for (int d = 0; d < spec_.ov_depth; ++d) v[d] *= v_scale;
    }
    scores_.assign(static_cast<std::size_t>(rows()) * kKeyBlock, 0);
    gemm_add(rows(), kKeyBlock, depth, q_.data(), depth, k_.data(), kKeyBlock, scores_.data(),
             kKeyBlock);
    for (int r = 0; r < rows(); ++r) softmax_row(r, key, count);
    gemm_add(rows(), spec_.ov_depth, count, scores_.data(), kKeyBlock, v_.data(), spec_.ov_depth,
             acc_.data(), spec_.ov_depth);
  }

  /// A row of Q or K: of one tensor, or of two, the second of which has the rope part.
  void load_row(const char* name, const char* rope_name, std::int64_t row, std::int64_t rope_row,
                double* values) const {
    const int rope = has_separate_rope(spec_) ? spec_.qk_depth - spec_.ov_depth : 0;
    const int depth = spec_.qk_depth - rope;
    load_doubles(problem_.at(name), row * depth, depth, values);
    if (rope > 0) load_doubles(problem_.at(rope_name), rope_row * rope, rope, values + depth);
  }

  /// `row`: of a head; `key_row`: of the key, whose rope part is every head's where it is apart.
  void load_key(std::int64_t row, std::int64_t key_row) {
    if (spec_.cache_format == CacheFormat::kDsv32) {
      return load_dsv32(problem_.at("k"), row, row_.data());
    }
    load_row("k", "k_rope", row, key_row, row_.data());
  }

  // Turns a row of scores into weights relative to the row's new maximum.
  void softmax_row(int r, int key, int count) {
    double* score = &scores_[static_cast<std::size_t>(r) * kKeyBlock];
    const std::uint8_t* visible = &visible_[static_cast<std::size_t>(r) * kKeyBlock];
    double maximum = max_[r];
    for (int j = 0; j < count; ++j) {
      if (visible[j] == 0) {
        score[j] = kMinusInfinity;
        continue;
      }
      score[j] = rules_.modify(score[j], coordinate(r, key + j));
      if (score[j] <= kHides) score[j] = kMinusInfinity;
      maximum = std::max(maximum, score[j]);
    }
    if (maximum == kMinusInfinity) {
      std::fill_n(score, count, 0.0);
      return;
    }
    const double rescale = max_[r] == kMinusInfinity ? 0 : std::exp(max_[r] - maximum);
    if (rescale != 1) {
      sum_[r] *= rescale;
      double* acc = &acc_[static_cast<std::size_t>(r) * spec_.ov_depth];
      for (int d = 0; d < spec_.ov_depth; ++d) acc[d] *= rescale;
    }
    max_[r] = maximum;
    for (int j = 0; j < count; ++j) {
      score[j] = score[j] == kMinusInfinity ? 0 : std::exp(score[j] - maximum);
      sum_[r] += score[j];
    }
  }

  void finish() {
    for (int r = 0; r < rows(); ++r) {
      double* o = &out_.o[static_cast<std::size_t>(
          ((first_ + query(r)) * spec_.num_q_heads + head(r)) * spec_.ov_depth)];
      const double sink =
          problem_.has("sink") ? double{problem_.at("sink").as<float>()[head(r)]} : kMinusInfinity;
      // With the sink among the logits; the weights so far are relative to max_.
      const double maximum = std::max(max_[r], sink);
      double denominator = 0, keys = 0;
      if (max_[r] != kMinusInfinity) {
        keys = sum_[r] * std::exp(max_[r] - maximum);
        denominator += keys;
      }
      if (sink != kMinusInfinity) denominator += std::exp(sink - maximum);
      const bool empty = max_[r] == kMinusInfinity;
      const double factor =
          empty ? 0 : std::exp(max_[r] - maximum) / denominator / problem_.output_scale();
      const double* acc = &acc_[static_cast<std::size_t>(r) * spec_.ov_depth];
      for (int d = 0; d < spec_.ov_depth; ++d) o[d] = empty ? 0 : saturated(acc[d] * factor);
      double lse = kMinusInfinity;
      if (spec_.lse_includes_sink) {
        if (denominator > 0) lse = maximum + std::log(denominator);
      } else if (!empty) {
        lse = max_[r] + std::log(sum_[r]);
      }
      const auto index = static_cast<std::size_t>(problem_.lse_index(task_.b, head(r), query(r)));
      out_.lse[index] = lse;
      if (coarse_) {
        LogSum moved = coarse_sums_[static_cast<std::size_t>(r)];
        if (spec_.lse_includes_sink) moved.add(sink);
        out_.lse_moved[index] = moved.log() == lse ? 0 : std::fabs(moved.log() - lse);
      }
    }
  }

  // What o's dtype makes of a number that is too large for it.
  double saturated(double value) const {
    return problem_.o_dtype() == Dtype::kE4m3 ? std::clamp(value, -448.0, 448.0) : value;
  }

  const Problem& problem_;
  const AttentionSpec& spec_;
  const MaskAndScoreMod& rules_;
  const Task task_;
  Reference& out_;
  // NOTE: found once: they are asked of for each pair of a row and a key, and lie in named tensors.
  const std::int64_t first_;  ///< row of q of the sequence
  std::vector<std::int64_t> key_rows_;
  std::vector<double> q_, k_, v_, row_, scores_, acc_, max_, sum_;
  std::vector<std::uint8_t> visible_;
  // Where scores are coarse.
  const bool coarse_ = has_coarse_scores(problem_);
  std::vector<double> row_scales_;  ///< of the products of a row with keys as they are stored
  std::vector<emulator::ProductOperand> coarse_q_;  ///< by step
  emulator::ProductOperand coarse_k_;
  std::vector<LogSum> coarse_sums_;
};

std::vector<Task> split(const Problem& problem) {
  std::vector<Task> tasks;
  for (int b = 0; b < problem.batch; ++b) {
    const std::int64_t rows = std::int64_t{problem.q_lens[b]} * problem.spec.group;
    for (int kv_head = 0; kv_head < problem.spec.num_kv_heads(); ++kv_head) {
      // Rows that have lists share a task with those of their position alone.
      const std::int64_t run = problem.spec.topk > 0 ? problem.spec.group : rows;
      for (std::int64_t begin = 0; begin < rows; begin += run) {
        for (std::int64_t first = 0; first < run; first += kRowBlock) {
          const std::int64_t count = std::min<std::int64_t>(kRowBlock, run - first);
          tasks.push_back({b, kv_head, begin + first, count});
        }
      }
    }
  }
  return tasks;
}

// A row of a merge: the sum of what its pairs hold, by the shares that their LSEs give them.
void merge_row(const Problem& problem, int b, int h, int row, Reference& out) {
  const std::int64_t index = problem.lse_index(b, h, row);
  const Tensor& pairs_lse = problem.at("pairs_lse");
  const std::int64_t step = pairs_lse.elements() / problem.num_pairs;
  const int depth = problem.spec.ov_depth;
  double maximum = kMinusInfinity, sum = 0;
  for (int pair = 0; pair < problem.num_pairs; ++pair) {
    maximum = std::max(maximum, double{pairs_lse.as<float>()[pair * step + index]});
  }
  double* o = &out.o[static_cast<std::size_t>(problem.pair_row(0, b, h, row) * depth)];
  std::vector<double> part(static_cast<std::size_t>(depth));
  for (int pair = 0; pair < problem.num_pairs; ++pair) {
    const double lse = pairs_lse.as<float>()[pair * step + index];
    const double share = lse == kMinusInfinity ? 0 : std::exp(lse - maximum);
    if (share == 0) continue;
    load_doubles(problem.at("pairs_o"), problem.pair_row(pair, b, h, row) * depth, depth,
                 part.data());
    for (int d = 0; d < depth; ++d) o[d] += share * part[static_cast<std::size_t>(d)];
    sum += share;
  }
  for (int d = 0; d < depth && sum > 0; ++d) o[d] /= sum;
  out.lse[static_cast<std::size_t>(index)] = sum > 0 ? maximum + std::log(sum) : kMinusInfinity;
}

}  // namespace

Result<Reference> compute_reference(const Problem& problem, int threads) {
  if (Result<MaskAndScoreMod> rules = MaskAndScoreMod::of(problem); !rules)
    return std::move(rules).error();
  Reference reference;
  const std::int64_t rows =
      problem.spec.ragged ? problem.total_q : std::int64_t{problem.batch} * problem.max_q_len;
  reference.o.resize(static_cast<std::size_t>(rows * problem.spec.num_q_heads) *
                     problem.spec.ov_depth);
  reference.lse.resize(static_cast<std::size_t>(rows * problem.spec.num_q_heads));
  if (has_coarse_scores(problem)) reference.lse_moved.resize(reference.lse.size());
  if (problem.spec.merge) {
    for (int b = 0; b < problem.batch; ++b) {
      for (int h = 0; h < problem.spec.num_q_heads; ++h) {
        for (int row = 0; row < problem.q_lens[static_cast<std::size_t>(b)]; ++row) {
          merge_row(problem, b, h, row, reference);
        }
      }
    }
    return reference;
  }
  const std::vector<Task> tasks = split(problem);
  parallel_for(static_cast<std::int64_t>(tasks.size()), threads, [&](std::int64_t i) {
    const Result<MaskAndScoreMod> rules = MaskAndScoreMod::of(problem);  // one a thread, see there
    BlockWorker(problem, *rules, tasks[static_cast<std::size_t>(i)], reference).run();
  });
  return reference;
}

}  // namespace attnjit::verify

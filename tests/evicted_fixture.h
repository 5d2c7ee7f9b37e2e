// SPDX-License-Identifier: Apache-2.0
// Pages that no row of a launch sees, as behind a window: a server has given them away. Whatever
// they hold, and whatever the page table says of them, a launch's result is right.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernel_fixture.h"
#include "verify/mask_and_score_mod.h"

namespace attnjit::kernel_test {

class EvictedTest : public KernelTest {
 protected:
  explicit EvictedTest(Arch arch) : arch_(arch) {}

  /// Windows, chunks and trees that have them, over pages of every way to be loaded.
  std::vector<Trial> trials() const {
    const MaskSpec chunks = [] {
      MaskSpec mask = mask_of(Kind::kChunked);
      mask.chunk = 96;
      return mask;
    }();
    const MaskSpec both_sides = [] {
      MaskSpec mask = window_of(70);
      mask.window_right = 9;
      return mask;
    }();
    const MaskSpec listed =
        tree(Kind::kAnd, {window_of(80), expression_of("kv_idx % 3 != 1 || kv_idx + 5 > q_idx")});
    const MaskSpec expression = expression_of("kv_idx <= q_idx && q_idx - kv_idx < 64");
    const MaskSpec block_mask = tree(Kind::kAnd, {window_of(100), verify::custom_mask()});
    const auto with = [&](int depth, int page_size, bool ragged, const MaskSpec& mask) {
      return of_sequences(base_spec(arch_, 4, 4, depth, mask), page_size, ragged);
    };
    const Lengths decodes{{1}, {300, 129, 64, 0, 65}};
    const Lengths drafts{{3}, {260, 3, 130}};
    const Lengths mixed{{20, 1, 0, 150}, {300, 200, 64, 333}};

    const auto eight_bit = [&](Dtype q, Scales scales, int page_size, bool decodes_alone) {
      AttentionSpec spec = with(64, page_size, !decodes_alone, window_of(64));
      spec.qkv_dtype = q;
      if (q != Dtype::kE4m3) spec.kv_dtype = Dtype::kE4m3;
      spec.scales = scales;
      spec.max_q_len = decodes_alone ? 1 : 0;
      spec.num_partitions = decodes_alone ? 0 : 1;
      return spec;
    };
    const auto absorbed = [&](int page_size, bool narrow) {
      AttentionSpec spec = absorbed_spec(arch_, 16, 192, page_size);
      spec.num_partitions = 2;
      spec.mask = window_of(90);
      if (narrow) spec.kv_dtype = Dtype::kE4m3;
      if (narrow) spec.scales = Scales::kHead;
      return spec;
    };
    const auto parts = [&](int page_size, int partitions, int max_q_len, const MaskSpec& mask) {
      AttentionSpec spec = with(64, page_size, false, mask);
      spec.num_partitions = partitions;
      spec.max_q_len = max_q_len;
      return spec;
    };
    AttentionSpec fixed_keys = with(64, 32, true, window_of(90));
    fixed_keys.partition_keys = 128;
    AttentionSpec sinks = with(128, 1, false, chunks);
    sinks.sink = true;
    // NOTE: the usual run takes the first ones on sm_90a, and the last ones on sm_100a.
    const std::vector<Trial> trials = {
        {with(64, 16, true, window_of(64)), {mixed}},
        {eight_bit(Dtype::kE4m3, Scales::kToken, 16, false), {mixed}},
        {eight_bit(Dtype::kBf16, Scales::kHead, 16, true), {decodes}},
        {parts(16, 0, 1, window_of(50)), {decodes}},
        {with(64, 5, true, block_mask), {mixed}},
        {with(64, 16, true, expression), {mixed}},
        {absorbed(16, false), {drafts}},
        {sinks, {drafts}},
        {with(64, 24, false, both_sides), {drafts}},
        {eight_bit(Dtype::kBf16, Scales::kToken, 16, false), {mixed}},
        {eight_bit(Dtype::kBf16, Scales::kToken, 3, false), {mixed}},
        {eight_bit(Dtype::kE4m3, Scales::kHead, 3, true), {decodes}},
        {with(64, 64, true, tree(Kind::kOr, {window_of(30), both_sides})), {mixed}},
        {with(320, 16, true, window_of(64)), {mixed}},
        {absorbed(3, false), {decodes}},
        {with(64, 16, true, listed), {mixed}},
        {with(64, 3, true, listed), {mixed}},
        {with(320, 3, true, chunks), {mixed}},
        {absorbed(3, true), {decodes}},
        {fixed_keys, {mixed}},
        {with(128, 1, true, chunks), {mixed}},
        {with(64, 1, true, expression), {mixed}},
        {with(64, 16, true, block_mask), {mixed}},
        {parts(3, 3, 4, window_of(50)), {drafts}},
        {eight_bit(Dtype::kBf16, Scales::kHead, 16, false), {mixed}},
        {eight_bit(Dtype::kE4m3, Scales::kToken, 3, false), {mixed}},
        {absorbed(16, true), {drafts}},
        {with(64, 16, true, window_of(64)), {mixed}},
    };
    return some_of(arch_, trials, 9);
  }

  /// What is in K and V of pages that nobody has.
  enum class Holds { kNan, kInfinity };

  /// The first key that a row of a sequence sees: by the ranges of masks, or of one that is code
  /// alone by what it says of each key.
  static std::int64_t first_seen(const verify::MaskAndScoreMod& rules, const Problem& problem,
                                 int b) {
    spec::Coordinates at{.b = b, .q_len = problem.q_lens[b], .kv_len = problem.kv_lens[b]};
    std::int64_t first = at.kv_len;
    for (at.q_idx = at.kv_len - at.q_len; at.q_idx < at.kv_len; ++at.q_idx) {
      at.kv_idx = 0;
      if (problem.spec.mask.kind == Kind::kCustom) {
        while (at.kv_idx < first && !rules.visible(at)) ++at.kv_idx;
        first = std::min<std::int64_t>(first, at.kv_idx);
      } else {
        first = std::min(first, rules.visible_range(at.q_idx, at.kv_len).begin);
      }
    }
    return first;
  }

  /// Fills a key's row of K or V. NOTE: e4m3 has no infinity.
  static void fill_row(verify::Tensor& tensor, std::int64_t row, Holds holds) {
    const bool nan = holds == Holds::kNan || tensor.dtype == Dtype::kE4m3;
    const std::int64_t elements = tensor.shape[2] * tensor.shape[3];
    for (std::int64_t i = row * elements; i < (row + 1) * elements; ++i) {
      verify::store_float(
          tensor, i,
          nan ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity());
    }
  }

  /// Gives the pages away that lie before all that a sequence's rows see: they hold something, and
  /// the table has `entries` for them by turns, if any. How many there are; negative where it
  /// failed, which is told.
  static int evict(Problem& problem, Holds holds, const std::vector<std::int32_t>& entries) {
    const auto rules = verify::MaskAndScoreMod::of(problem);
    EXPECT_TRUE(rules.ok());
    if (!rules) return -1;
    int evicted = 0;
    auto* const table = problem.tensors.at("page_table").as<std::int32_t>();
    for (int b = 0; b < problem.batch; ++b) {
      const int page_size = problem.spec.page_size;
      const auto pages = static_cast<int>(first_seen(*rules, problem, b) / page_size);
      for (int key = 0; key < pages * page_size; ++key) {
        for (const char* name : {"k", "v"}) {
          fill_row(problem.tensors.at(name), problem.kv_row(b, key), holds);
        }
      }
      for (int page = 0; page < pages; ++page, ++evicted) {
        if (entries.empty()) continue;
        table[b * problem.max_pages + page] =
            entries[static_cast<std::size_t>(evicted) % entries.size()];
      }
    }
    return evicted;
  }

  static void expect_untouched(const Trial& trial) {
    SCOPED_TRACE(spec_to_json(trial.spec));
    const auto kernel = compiled(trial.spec);
    ASSERT_TRUE(kernel);
    int turn = 0;
    for (const Lengths& lengths : trial.batches) {
      for (const auto& [holds, listed] :
           {std::pair{Holds::kNan, true}, {Holds::kInfinity, true}, {Holds::kNan, false}}) {
        const auto problem = problem_of(trial.spec, lengths, InputKind::kNormal, 3);
        ASSERT_TRUE(problem);
        Problem evicted = *problem;
        std::vector<std::int32_t> entries;
        if (!listed) entries = {-1, problem->num_pages + 7, -5, 1 << 30};
        ASSERT_GT(evict(evicted, holds, entries), 0);
        const LaunchSequence sequence =
            launches_of(*kernel, *problem, problem->launch_shapes(), turn++ % 2 == 0 ? 2 : 132);
        const auto done = run(*kernel, evicted, sequence);
        ASSERT_TRUE(done);
        expect_right(*problem, *done);
      }
    }
  }

 private:
  Arch arch_;
};

}  // namespace attnjit::kernel_test

// SPDX-License-Identifier: Apache-2.0
// Kernels that cut the long work tiles of ragged batches (common/cut_list.cuh). Both families have
// the same cases.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernel_fixture.h"
#include "plan/sm100/sm100_plan.h"
#include "plan/sm90/sm90_plan.h"
#include "verify/compare.h"

namespace attnjit::kernel_test {

class CutsTest : public KernelTest {
 protected:
  struct Case {
    AttentionSpec spec;
    Lengths lengths;
    std::vector<int> sm_counts;
  };

  explicit CutsTest(Arch arch) : arch_(arch) {}

  AttentionSpec cut_spec(int heads, int group, int depth, int page_size) const {
    AttentionSpec spec = of_sequences(base_spec(arch_, heads, group, depth), page_size, true);
    spec.num_partitions = 0;
    return spec;
  }

  static bool cuts(const KernelPlan& plan) {
    return plan.sm90 ? plan.sm90->cuts : plan.sm100->cuts;
  }

  void expect_all(const std::vector<Case>& cases, std::size_t usually) const {
    for (const auto& [spec, lengths, sm_counts] : some_of(cases, usually)) {
      SCOPED_TRACE(spec_to_json(spec));
      const auto kernel = compiled(spec);
      ASSERT_TRUE(kernel);
      EXPECT_TRUE(cuts(kernel->generated.plan));
      const auto problem = problem_of(spec, lengths);
      ASSERT_TRUE(problem);
      for (const int sm_count : some_of(sm_counts)) {
        SCOPED_TRACE(sm_count);
        const auto sequence = launches_of(*kernel, *problem, problem->launch_shapes(), sm_count);
        EXPECT_EQ(sequence.launches.size(), 2U);
        const auto done = run(*kernel, *problem, sequence, static_cast<std::uint64_t>(sm_count));
        ASSERT_TRUE(done);
        expect_right(*problem, *done);
      }
    }
  }

  // One tile in many parts, several tiles of one run, parts without a key, rows that are nobody's.
  std::vector<Case> chunks() const {
    AttentionSpec sinks = cut_spec(4, 4, 128, 16);
    sinks.sink = true;
    AttentionSpec outside = sinks;
    outside.lse_includes_sink = false;
    // And of whole tiles whose rows TMA stores.
    return {{cut_spec(4, 2, 104, 16), {{20, 1, 3, 1}, {70, keys(5000), 300, 100}}, {5, 9}},
            {cut_spec(2, 1, 128, 16), {{300, 1, 2}, {310, keys(4000), 70}}, {7}},
            {sinks, {{70, 1}, {keys(2100), keys(3000)}}, {7, 12}},
            {outside, {{1, 0, 100}, {keys(1500), 5, keys(1900)}}, {5}},
            {cut_spec(3, 3, 104, 64), {{1, 200}, {keys(2500), keys(2600)}}, {9}}};
  }

  std::vector<Case> layouts_of_keys() const {
    AttentionSpec rows = cut_spec(4, 2, 104, 0);
    rows.ragged_kv = true;
    AttentionSpec excluded = cut_spec(4, 4, 104, 128);
    excluded.kv_lens_exclude_new = true;
    return {{rows, {{30, 1, 2}, {keys(2500), keys(3000), 5}}, {6, 11}},
            {excluded, {{9, 1, 40}, {keys(2000), 70, keys(1800)}}, {7}}};
  }

  std::vector<Case> types_and_masks() const {
    AttentionSpec eight = cut_spec(4, 4, 128, 16);
    eight.qkv_dtype = Dtype::kE4m3;
    AttentionSpec window = cut_spec(4, 2, 104, 16);
    window.mask =
        tree(MaskSpec::Kind::kAnd, {mask_of(MaskSpec::Kind::kCausal), window_of(keys(1600))});
    const AttentionSpec deep = cut_spec(4, 2, 256, 16);
    AttentionSpec floats = cut_spec(2, 1, 104, 16);
    floats.output_dtype = Dtype::kF32;
    floats.return_lse = false;
    const Lengths lengths{{40, 1, 1}, {keys(2100), 70, keys(2500)}};
    return {{deep, lengths, {9}},
            {window, {{40, 1}, {keys(2600), keys(3000)}}, {9}},
            {eight, lengths, {7}},
            {floats, lengths, {5}}};
  }

  // Heads of 64, as gpt-oss has them.
  std::vector<Case> shallow_heads() const {
    AttentionSpec sinks = cut_spec(8, 8, 64, 64);
    sinks.sink = true;
    AttentionSpec window = cut_spec(8, 8, 64, 16);
    window.mask = window_of(keys(3000));
    window.sink = true;
    return {{cut_spec(4, 2, 64, 16), {{70, 1, 3, 1}, {3500, 5000, 300, 100}}, {5, 9}},
            {sinks, {{4, 1, 2}, {6000, 700, 3000}}, {7}},
            {window, {{3, 1}, {keys(5000), 3300}}, {5}},
            {cut_spec(4, 4, 80, 16), {{30, 1}, {keys(2500), keys(3000)}}, {6}}};
  }

  // Where pages do not hold whole boxes.
  std::vector<Case> rows_of_pages() const {
    AttentionSpec sinks = cut_spec(8, 8, 64, 1);
    sinks.sink = true;
    AttentionSpec window = cut_spec(2, 1, 128, 1);
    window.mask = window_of(keys(1700));
    AttentionSpec eight = cut_spec(4, 4, 128, 4);
    eight.qkv_dtype = Dtype::kE4m3;
    AttentionSpec upcast = cut_spec(4, 4, 64, 1);
    upcast.kv_dtype = Dtype::kE4m3;
    return {{sinks, {{4, 1, 2, 1}, {keys(3500), 70, keys(2100), 1}}, {9, 5}},
            {upcast, {{4, 1}, {keys(2000), keys(2900)}}, {5}},
            {window, {{3, 40}, {keys(2000), keys(2300)}}, {5}},
            {cut_spec(4, 2, 104, 3), {{70, 0, 1}, {keys(1900), 30, keys(2600)}}, {6}},
            {eight, {{40, 1, 1}, {keys(2100), 70, keys(2500)}}, {7}}};
  }

  // Groups behind whose positions some rows of a tile are nobody's.
  std::vector<Case> odd_groups() const {
    AttentionSpec sinks = cut_spec(7, 7, 128, 64);
    sinks.sink = true;
    return {{cut_spec(10, 5, 104, 16), {{40, 1, 90}, {keys(2200), 40, keys(1700)}}, {9}},
            {sinks, {{1, 1, 3}, {keys(3000), 30, 900}}, {5}},
            {cut_spec(12, 12, 64, 1), {{30, 2}, {keys(2500), keys(3000)}}, {6}}};
  }

  // Without the merge some rows of the result are nobody's.
  void expect_merge_needed() const {
    expect_merge_needed(cut_spec(2, 2, 128, 16), {{70, 1}, {keys(1700), keys(2500)}});
  }
  void expect_merge_needed(const AttentionSpec& spec, const Lengths& lengths) const {
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    const auto problem = problem_of(spec, lengths);
    ASSERT_TRUE(problem);
    auto sequence = launches_of(*kernel, *problem, problem->launch_shapes(), 6);
    ASSERT_EQ(sequence.launches.size(), 2U);
    sequence.launches.pop_back();
    const auto done = run(*kernel, *problem, sequence);
    const auto reference = reference_of(*problem);
    ASSERT_TRUE(done && reference);
    EXPECT_FALSE(verify::compare(*problem, *reference, done->o, &*done->lse,
                                 verify::tolerance_of(problem->spec))
                     .passed);
  }

  // A launch of short keys has no merge; nor has one of one SM.
  void expect_short_keys_whole() const {
    const AttentionSpec spec = cut_spec(4, 2, 104, 16);
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    for (const auto& [lengths, sm_count] :
         {std::pair<Lengths, int>{{{5, 1}, {700, 300}}, 8}, {{{5, 1}, {3000, 300}}, 1}}) {
      const auto problem = problem_of(spec, lengths);
      ASSERT_TRUE(problem);
      auto sequence = launches_of(*kernel, *problem, problem->launch_shapes(), sm_count);
      EXPECT_EQ(sequence.launches.size(), 1U);
      for (const bool dynamic : {true, false}) {
        SCOPED_TRACE(dynamic);
        const auto done = run(*kernel, *problem, sequence);
        ASSERT_TRUE(done);
        expect_right(*problem, *done);
        // Then the same without a workspace, as who calls may give none: tiles are dealt.
        for (KernelArgument& argument : sequence.launches.at(0).args) {
          auto* pointer = std::get_if<KernelArgument::Pointer>(&argument.value);
          if (pointer != nullptr && pointer->buffer == "tile_counters") *pointer = {};
        }
      }
    }
  }

 private:
  /// A length, for tiles of twice as many keys where these are longer.
  int keys(int count) const { return arch_ == Arch::kSm90a ? count : 2 * count; }

  Arch arch_;
};

}  // namespace attnjit::kernel_test

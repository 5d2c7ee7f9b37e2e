// SPDX-License-Identifier: Apache-2.0
// Groups of query heads that do not divide the rows of a tile: packed by whole positions, behind
// which some rows are nobody's. Both families have the same cases.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kernel_fixture.h"
#include "plan/sm100/sm100_plan.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit::kernel_test {

class GroupsTest : public KernelTest {
 protected:
  explicit GroupsTest(Arch arch) : arch_(arch) {}

  /// Two groups of heads, of sequences of pages; page_size 0: of ragged keys.
  AttentionSpec groups_spec(int group, int depth, int page_size,
                            const MaskSpec& mask = mask_of(Kind::kCausal)) const {
    AttentionSpec spec =
        of_sequences(base_spec(arch_, 2 * group, group, depth, mask), page_size, true);
    spec.ragged_kv = page_size == 0;
    return spec;
  }

  static bool packs(const AttentionSpec& spec) {
    const auto planned = plan(*ResolvedSpec::make(spec));
    if (!planned.ok()) return false;
    return planned->sm90 ? planned->sm90->pack_gqa : planned->sm100->variants.front().fuse_gqa;
  }

  static void expect_packed(const AttentionSpec& spec, const std::vector<Lengths>& batches) {
    SCOPED_TRACE(spec.group);
    EXPECT_TRUE(packs(spec));
    expect_passes(spec, batches);
  }
  static void expect_packed(const std::vector<Trial>& trials) {
    for (const auto& [spec, batches] : trials) expect_packed(spec, batches);
  }

  // Of prompts, chunks, drafts and decodes: of fewer positions than a tile's `rows` have, as many,
  // one more, and more than several tiles'; and of no rows. The last key is a tile's first.
  void expect_every_size(int rows) const {
    for (const int group : some_of<int>({5, 7, 3, 6, 10, 11, 12, 33, 63}, 2)) {
      const std::int64_t unit = rows / group;
      const std::int64_t more = 3 * unit + 1;
      expect_packed(
          groups_spec(group, 64, 16),
          {{{unit, 1, more, 0, unit + 1}, {129, 200, more, 7, 130}}, {{1, 2, 1}, {129, 64, 1}}});
    }
    const AttentionSpec one = with_group(groups_spec(5, 128, 0), 5, 5);
    expect_packed(one, {{{70, 1, 13}, {70, 300, 60}}});
  }

  // Each way in which keys come, and O leaves.
  std::vector<Trial> every_layout() const {
    std::vector<Trial> trials;
    const std::vector<Lengths> batches{{{27, 1, 4, 0}, {150, 200, 4, 9}}};
    trials.push_back({groups_spec(7, 128, 3), batches});  // rows of pages are copied one by one
    AttentionSpec spec = groups_spec(5, 128, 64);
    spec.ragged = false;  // O of rows past q_len is not stored: rows are as many in each sequence
    trials.push_back({spec, {{{27}, {150, 40, 0}}, {{13}, {13, 200}}}});
    spec = groups_spec(6, 64, 0);
    spec.output_dtype = Dtype::kF32;
    trials.push_back({spec, batches});
    spec = groups_spec(5, 192, 16);
    spec.ov_depth = 128;
    spec.num_partitions = 3;
    spec.sink = true;
    trials.push_back({spec, batches});
    spec = groups_spec(12, 64, 16);
    spec.partition_keys = 64;
    trials.push_back({spec, batches});
    spec = groups_spec(5, 128, 16);
    spec.kv_dtype = Dtype::kE4m3;
    spec.scales = Scales::kHead;
    trials.push_back({spec, batches});
    spec = groups_spec(3, 256, 16);
    trials.push_back({spec, batches});
    return trials;
  }

  // Each row of a position has its own sink, slope, scale and mask.
  std::vector<Trial> what_hangs_on_the_head() const {
    std::vector<Trial> trials;
    const std::vector<Lengths> batches{{{40, 1, 5}, {140, 200, 66}}};
    AttentionSpec spec = groups_spec(5, 64, 16);
    spec.sink = true;
    spec.score_mod.kind = ScoreModSpec::Kind::kAlibi;
    trials.push_back({spec, batches});
    // Of each head a window of its own, and of each row another one.
    trials.push_back(
        {groups_spec(6, 64, 16, expression_of("q_idx - kv_idx <= 3 + 11 * h + q_idx % 3")),
         batches});
    spec = groups_spec(7, 128, 0, window_of(50));
    spec.score_mod = verify::score_mods()[3].second;
    spec.sink = true;
    trials.push_back({spec, batches});
    for (const Scales scales : {Scales::kHead, Scales::kToken}) {
      spec = groups_spec(5, 64, 16);
      spec.qkv_dtype = Dtype::kE4m3;
      spec.scales = scales;
      trials.push_back({spec, batches});
    }
    return trials;
  }

  // What waits for no memory, or has a tile of a map's blocks, or more heads than half of a tile.
  void expect_others_not_packed() const {
    EXPECT_FALSE(packs(base_spec(arch_, 10, 5, 128)));
    EXPECT_FALSE(packs(groups_spec(65, 128, 16)));
    EXPECT_FALSE(packs(groups_spec(3, 64, 0, mask_of(Kind::kMaterialized))));
  }

  // A group's keys are loaded once for all its heads.
  void expect_keys_loaded_once() const {
    const Lengths decodes{{1, 1}, {1000, 700}};
    const auto bytes = [&](int group) {
      const auto kernel = compiled(groups_spec(group, 64, 16));
      return kernel ? loaded_bytes_of(*kernel, decodes, 132) : 0;
    };
    const std::uint64_t of_one = bytes(1), of_five = bytes(5);
    EXPECT_GT(of_one, 0U);
    EXPECT_LT(of_five, of_one + of_one / 4);
  }

  void expect_no_harm_of_lengths() const {
    constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
    constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();
    expect_no_harm(groups_spec(5, 64, 16), {{"q_offsets", {0, 139, 20, 139}},
                                            {"q_offsets", {kMin, 70, kMax, -5}},
                                            {"q_offsets", {0, 0, 0, kMax}},
                                            {"kv_lens", {-7, 500, kMin}}});
  }

 private:
  Arch arch_;
};

}  // namespace attnjit::kernel_test

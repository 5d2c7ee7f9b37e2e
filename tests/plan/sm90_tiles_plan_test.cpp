// SPDX-License-Identifier: Apache-2.0
// Sm90Plan: how long tiles of keys are, and in which order CTAs take work tiles, by the mask.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "attnjit/tuning.h"
#include "plan/sm90/sm90_plan.h"
#include "planned.h"

namespace attnjit {
namespace {

using namespace plan_test;

// CTAs take a long tile with a short one where later rows see more keys, also where only the
// expression says so.
TEST(Sm90Plan, TilesOfGrowingRowsArePaired) {
  AttentionSpec spec = sm90_spec(128);
  EXPECT_FALSE(plan_of(spec).sm90->pair_tiles);
  spec.mask = mask_of(MaskSpec::Kind::kCausal);
  EXPECT_TRUE(plan_of(spec).sm90->pair_tiles);
  spec.mask = mask_of(MaskSpec::Kind::kCustom);
  spec.mask.custom.name = "m";
  for (const auto& [code, paired] :
       {std::pair{"kv_idx <= q_idx", true}, std::pair{"q_idx >> 0 >= kv_idx", true},
        std::pair{"kv_idx <= q_idx && (q_idx < 100 || kv_idx > 3)", true},
        std::pair{"kv_idx <= q_idx + 512 && kv_idx >= q_idx - 512", false},
        std::pair{"kv_idx >= q_idx", false}, std::pair{"q_idx / 1024 == kv_idx / 1024", false},
        std::pair{"kv_idx >= 0", false}, std::pair{"kv_idx < 0", false}}) {
    spec.mask.custom.code = code;
    EXPECT_EQ(plan_of(spec).sm90->pair_tiles, paired) << code;
  }
  spec.mask.custom.code = "kv_idx <= q_idx + p.n";
  spec.mask.custom.params = {{"n", ParamSpec::Type::kI32}};
  EXPECT_FALSE(plan_of(spec).sm90->pair_tiles);
}

// CTAs take the tiles of block-sparse masks, but of those that are like causal: their
// tiles are paired. Windows and chunks bring their lengths with the launch.
TEST(Sm90Plan, TilesOfListedMasksAreDynamic) {
  const auto custom = [](const char* code, std::vector<ParamSpec> params = {}) {
    MaskSpec mask = mask_of(MaskSpec::Kind::kCustom);
    mask.custom.name = "m";
    mask.custom.code = code;
    mask.custom.params = std::move(params);
    return mask;
  };
  const auto tree = [](MaskSpec::Kind kind, std::vector<MaskSpec> of) {
    MaskSpec mask = mask_of(kind);
    mask.of = std::move(of);
    return mask;
  };
  const auto expect = [](const MaskSpec& mask, bool dynamic, bool paired) {
    AttentionSpec spec = sm90_spec(128);
    spec.mask = mask;
    const KernelPlan plan = plan_of(spec);
    EXPECT_EQ(plan.sm90->dynamic_schedule, dynamic) << spec_to_json(spec);
    EXPECT_EQ(plan.sm90->pair_tiles, paired) << spec_to_json(spec);
    const auto& parameters = plan.main().parameters;
    EXPECT_EQ(std::any_of(parameters.begin(), parameters.end(),
                          [](const auto& one) { return one.name == "tile_counters"; }),
              dynamic);
  };
  const MaskSpec causal = mask_of(MaskSpec::Kind::kCausal);
  const std::vector<ParamSpec> doc{{"doc", ParamSpec::Type::kI32Array}};
  MaskSpec window = mask_of(MaskSpec::Kind::kSlidingWindow);
  window.window = 1024;
  expect(causal, false, true);
  expect(custom("kv_idx < q_idx"), false, true);
  expect(custom("kv_idx <= q_idx && q_idx / 4096 == kv_idx / 4096"), true, false);
  expect(custom("kv_idx <= q_idx && q_idx - kv_idx < 512"), true, false);
  expect(tree(MaskSpec::Kind::kAnd, {causal, custom("kv_idx % 64 > 2")}), false, true);
  expect(tree(MaskSpec::Kind::kAnd, {causal, custom("kv_idx > p.doc[b]", doc)}), false, true);
  expect(tree(MaskSpec::Kind::kOr,
              {window, tree(MaskSpec::Kind::kAnd, {causal, custom("kv_idx < 4")})}),
         true, false);
  // Maps are of any shape.
  expect(custom("p.doc[q_idx] == p.doc[kv_idx]", doc), true, false);
  expect(tree(MaskSpec::Kind::kAnd, {causal, custom("p.doc[q_idx] == p.doc[kv_idx]", doc)}), true,
         false);
  // Parts of the keys are dealt, and sequences that differ in length have a list of their own.
  AttentionSpec spec = sm90_spec(128);
  spec.mask = custom("kv_idx <= q_idx && q_idx - kv_idx < 512");
  spec.num_partitions = 0;
  EXPECT_FALSE(plan_of(spec).sm90->dynamic_schedule);
  spec.num_partitions = 1;
  spec.page_size = 64;
  EXPECT_FALSE(plan_of(spec).sm90->dynamic_schedule);
}

// Listed masks that show a good part of all tiles whole take them as a kernel without a mask does,
// 80 keys at a time: also where parameters say how much. Windows and documents do not.
TEST(Sm90Plan, TilesOfListedMasksAreAsLongAsWholeOnesAllow) {
  AttentionSpec spec = sm90_spec(128);
  const auto keys = [&](const char* code) {
    spec.mask.custom.code = code;
    return plan_of(spec).sm90->BN;
  };
  const int none = plan_of(spec).sm90->BN;
  spec.mask = mask_of(MaskSpec::Kind::kCausal);
  const int causal = plan_of(spec).sm90->BN;
  ASSERT_GT(none, causal);
  spec.mask = mask_of(MaskSpec::Kind::kCustom);
  spec.mask.custom.name = "m";
  spec.mask.custom.params = {{"n", ParamSpec::Type::kI32}, {"prefix", ParamSpec::Type::kI32Array}};
  EXPECT_EQ(keys("kv_idx < q_idx"), none);
  EXPECT_EQ(keys("kv_idx <= q_idx || kv_idx < p.prefix[b]"), none);
  EXPECT_EQ(keys("kv_idx < q_idx || kv_idx >= q_idx"), none);
  EXPECT_EQ(keys("kv_idx <= q_idx && kv_idx < p.n"), causal);
  EXPECT_EQ(keys("q_idx - kv_idx < p.n"), causal);
  EXPECT_EQ(keys("kv_idx <= q_idx && q_idx - kv_idx < 512"), causal);
  EXPECT_EQ(keys("kv_idx <= q_idx && (kv_idx < 4 || q_idx - kv_idx < 1024)"), causal);
  EXPECT_EQ(keys("q_idx / 1024 == kv_idx / 1024"), causal);
  EXPECT_EQ(keys("kv_idx <= q_idx && q_idx / 4096 == kv_idx / 4096"), causal);
  // A window beside it brings its length with the launch; sequences that differ were not measured.
  spec.mask.custom.code = "kv_idx < q_idx";
  spec.mask.custom.params.clear();
  AttentionSpec tree = spec;
  tree.mask = mask_of(MaskSpec::Kind::kAnd);
  tree.mask.of = {mask_of(MaskSpec::Kind::kSlidingWindow), spec.mask};
  EXPECT_EQ(plan_of(tree).sm90->BN, causal);
  spec.ragged = true;
  EXPECT_EQ(plan_of(spec).sm90->BN, causal);
}

// Rows of a block that see keys of their own share no CTA with those of another, unless blocks are
// so long that few do. Tiles are then no longer than a block of keys.
TEST(Sm90Plan, BlocksThatAreLookedUpHaveTilesOfTheirOwn) {
  AttentionSpec spec = sm90_spec(128);
  spec.mask = mask_of(MaskSpec::Kind::kCustom);
  spec.mask.custom.name = "m";
  spec.mask.custom.params = {{"t", ParamSpec::Type::kI32Matrix}};
  spec.group = 1;
  const auto rows = [&](const char* code) {
    spec.mask.custom.code = code;
    return plan_of(spec).sm90->num_consumers * 64;
  };
  EXPECT_EQ(rows("p.t[q_idx / 128][kv_idx / 128] != 0"), 128);
  EXPECT_EQ(plan_of(spec).sm90->BN, 128);
  EXPECT_EQ(rows("p.t[q_row >> 8][kv_idx >> 7] != 0"), 128);
  EXPECT_EQ(rows("p.t[q_idx / 192][kv_idx / 128] != 0"), 192);
  EXPECT_EQ(rows("p.t[q_idx / 384][kv_idx / 128] != 0"), 192);
  EXPECT_EQ(rows("p.t[q_idx / 1024][kv_idx / 128] != 0"), 192);
  EXPECT_EQ(rows("p.t[q_idx / 128][kv_idx / 64] != 0"), 192);
  EXPECT_EQ(rows("p.t[q_idx / 64][kv_idx / 128] != 0"), 192);
  EXPECT_EQ(rows("kv_idx <= q_idx && q_idx / 128 == kv_idx / 128"), 192);
  // Eight heads of a group: 16 positions a tile of 128 rows.
  spec.num_q_heads = 8;
  spec.group = 8;
  EXPECT_EQ(rows("p.t[q_idx / 128][kv_idx / 128] != 0"), 192);
  EXPECT_EQ(rows("p.t[q_idx >> 30][kv_idx / 128] != 0"), 192);
  spec.group = 4;
  EXPECT_EQ(rows("p.t[q_idx / 128][kv_idx / 128] != 0"), 128);
}

// A mask whose expression decides tiles has a word for each stage of K, between what else the CTA
// says of its work and the barriers. Other masks keep what they have.
TEST(Sm90Plan, TilesOfExpressionsAreListed) {
  AttentionSpec spec = sm90_spec(128);
  spec.mask = mask_of(MaskSpec::Kind::kCausal);
  const KernelPlan causal = plan_of(spec);
  EXPECT_FALSE(causal.sm90->block_sparse);
  spec.mask = mask_of(MaskSpec::Kind::kCustom);
  spec.mask.custom.name = "m";
  spec.mask.custom.code = "q_idx > kv_idx";
  for (const int page : {0, 64, 1}) {
    spec.page_size = page;
    const KernelPlan plan = plan_of(spec);
    ASSERT_TRUE(plan.supported);
    const Sm90Plan& sm90 = *plan.sm90;
    EXPECT_TRUE(sm90.block_sparse);
    EXPECT_EQ(sm90.num_consumers, causal.sm90->num_consumers);
    const auto constants = constants_of(plan);
    EXPECT_EQ(constants.at("kBlockSparse"), "true");
    EXPECT_GE(
        std::stoi(constants.at("kBarrierOffset")) - std::stoi(constants.at("kDescriptorsOffset")),
        4 * sm90.num_stages);
    EXPECT_EQ(std::stoi(constants.at("kBarrierOffset")) % 8, 0);
    // Who copies rows says of the tile by itself.
    for (const BarrierPlan& barrier : sm90.barriers.all()) {
      if (barrier.name == "K 0 full") {
        EXPECT_EQ(barrier.arrivals, page == 1 ? 129 : 1);
      }
    }
  }
}

// Beside a part that hides nothing an `or` hides nothing, so that no expression is asked.
TEST(Sm90Plan, AnOrThatHidesNothingListsNoTiles) {
  AttentionSpec spec = sm90_spec(256);  // at which no map is walked beside a tensor
  MaskSpec first_keys = mask_of(MaskSpec::Kind::kCustom);
  first_keys.custom.name = "m";
  first_keys.custom.code = "kv_idx < 4";
  const auto lists = [&](MaskSpec::Kind kind, const MaskSpec& beside) {
    spec.mask = mask_of(kind);
    spec.mask.of = {beside, first_keys};
    return plan_of(spec).sm90->block_sparse;
  };
  MaskSpec added = mask_of(MaskSpec::Kind::kMaterialized);
  added.dtype = Dtype::kBf16;
  MaskSpec bools = added;
  bools.dtype = Dtype::kBits;
  using enum MaskSpec::Kind;
  EXPECT_FALSE(lists(kOr, added));
  EXPECT_FALSE(lists(kOr, mask_of(kNull)));
  EXPECT_TRUE(lists(kOr, bools));
  EXPECT_TRUE(lists(kOr, mask_of(kCausal)));
  EXPECT_TRUE(lists(kAnd, added));
  EXPECT_TRUE(lists(kAnd, mask_of(kNull)));
  // The code that such an `or` holds is passed over, and what is behind it is asked.
  MaskSpec either = mask_of(kOr);
  either.of = {added, first_keys};
  EXPECT_TRUE(lists(kAnd, either));
  EXPECT_FALSE(lists(kOr, either));
}

// A warp deals the tiles of sequences that differ, and then it wants to know the same of the mask.
TEST(Sm90Plan, TilesOfSequencesThatDifferComeByLength) {
  AttentionSpec spec = sm90_spec(128);
  spec.ragged = true;
  EXPECT_EQ(constants_of(plan_of(spec)).at("kPairTiles"), "false");
  spec.mask = mask_of(MaskSpec::Kind::kCausal);
  EXPECT_EQ(constants_of(plan_of(spec)).at("kPairTiles"), "true");
  Tuning tuning;
  tuning.rows.push_back({{}, {{"pair_tiles", 0}}});
  const Result<KernelPlan> by_head = plan(spec, {}, &tuning);
  ASSERT_TRUE(by_head.ok());
  EXPECT_EQ(constants_of(*by_head).at("kPairTiles"), "false");
  spec.max_q_len = 1;
  EXPECT_EQ(constants_of(plan_of(spec)).at("kPairTiles"), "false");  // a tile each
}

// A window of the key that few tiles span has short ones; one of the launch may be any.
TEST(Sm90Plan, SmallConstantWindowsHaveShortTiles) {
  struct Tile {
    int keys, stages;
    bool operator==(const Tile&) const = default;
  };
  const Tile small{64, 4}, usual{128, 3};
  const auto tile_of = [](const AttentionSpec& spec, const PlanOptions& options = {},
                          const Tuning* tuning = nullptr) {
    const KernelPlan plan = plan_of(spec, options, tuning);
    EXPECT_TRUE(plan.supported) << plan.reason;
    EXPECT_LE(plan.main().smem_bytes, 232448);
    return Tile{plan.sm90->BN, plan.sm90->num_stages};
  };
  AttentionSpec window = sm90_spec(64);
  window.mask = mask_of(MaskSpec::Kind::kSlidingWindow);
  window.mask.window = 128;
  window.mask.constant = true;
  EXPECT_EQ(tile_of(window), small);
  EXPECT_EQ(plan_of(window).sm90->num_consumers, 3);
  EXPECT_EQ(plan_of(window).sm90->num_v_stages, 4);
  using Change = void (*)(AttentionSpec&);
  const auto changed = [&](Change change) {
    AttentionSpec spec = window;
    change(spec);
    return spec;
  };
  const std::vector<Change> alike{
      [](AttentionSpec& s) { s.sink = true; },
      [](AttentionSpec& s) { s.group = 8; },
      [](AttentionSpec& s) { s.return_lse = s.ragged = true; },
      [](AttentionSpec& s) { s.ragged = s.ragged_kv = true; },
      [](AttentionSpec& s) { s.page_size = 16; },
      [](AttentionSpec& s) { s.page_size = 64, s.ragged = true; },
      [](AttentionSpec& s) { s.page_size = 1; },
      [](AttentionSpec& s) { s.num_partitions = 0; },
      [](AttentionSpec& s) { s.partition_keys = 256; },
      [](AttentionSpec& s) { s.mask.window = 1; },
      [](AttentionSpec& s) { s.mask.window = 256; },
      [](AttentionSpec& s) { s.mask.window_right = 128; },
      [](AttentionSpec& s) { s.score_mod.kind = ScoreModSpec::Kind::kAlibi; }};
  for (std::size_t i = 0; i < alike.size(); ++i) {
    EXPECT_EQ(tile_of(changed(alike[i])), small) << "change " << i;
  }
  const std::vector<Change> unlike{
      [](AttentionSpec& s) { s.mask.constant = false; },
      [](AttentionSpec& s) { s.mask.window = 257; },
      [](AttentionSpec& s) { s.mask.window_right = 129; },
      [](AttentionSpec& s) { s.mask.window = -1, s.mask.window_right = 10; },
      [](AttentionSpec& s) { s.mask.window_right = -1; },
      [](AttentionSpec& s) { s.ov_depth = 32; },
      [](AttentionSpec& s) { s.qk_depth = s.ov_depth = 56; }};
  for (std::size_t i = 0; i < unlike.size(); ++i) {
    EXPECT_EQ(tile_of(changed(unlike[i])), usual) << "change " << i;
  }
  // Decodes, e4m3, maps, softcaps, and trees of masks have the tiles of any window.
  const std::vector<Change> apart{
      [](AttentionSpec& s) { s.page_size = 16, s.max_q_len = 1, s.num_partitions = 0; },
      [](AttentionSpec& s) { s.qkv_dtype = Dtype::kE4m3; },
      [](AttentionSpec& s) { s.kv_dtype = Dtype::kE4m3; },
      [](AttentionSpec& s) { s.score_mod.kind = ScoreModSpec::Kind::kSoftcap; },
      [](AttentionSpec& s) {
        MaskSpec tree = mask_of(MaskSpec::Kind::kAnd);
        tree.of = {s.mask, mask_of(MaskSpec::Kind::kCausal)};
        s.mask = tree;
      }};
  for (std::size_t i = 0; i < apart.size(); ++i) {
    const AttentionSpec spec = changed(apart[i]);
    AttentionSpec any = spec;
    any.mask.constant = false;
    for (MaskSpec& of : any.mask.of) of.constant = false;
    EXPECT_EQ(tile_of(spec), tile_of(any)) << "change " << i;
  }
  PlanOptions map;
  map.mask_map = true;
  EXPECT_EQ(tile_of(window, map), tile_of(changed(unlike[0]), map));
  // A tuning row decides.
  Tuning tuning;
  tuning.rows.push_back({{}, {{"BN", 128}, {"num_stages", 2}}});
  EXPECT_EQ(tile_of(window, {}, &tuning), (Tile{128, 2}));
  // What serves until the kernel is there takes any window: it is planned as if it were not known.
  const auto fallback = fallback_spec(ResolvedSpec::make(window, {}).value());
  ASSERT_TRUE(fallback.has_value());
  EXPECT_EQ(constants_of(plan_of(fallback->spec, fallback->options)),
            constants_of(plan_of(changed(unlike[0]))));
}

// Where long tiles are cut as much of K and V is on its way to shallow heads as to deeper ones;
// rows that are copied have longer tiles there.
TEST(Sm90Plan, CutTilesOfShallowHeads) {
  const auto tile_of = [](int depth, int page_size, int window = 0) {
    AttentionSpec spec = sm90_spec(depth);
    spec.page_size = page_size;
    spec.ragged = true;
    spec.mask = mask_of(MaskSpec::Kind::kCausal);
    if (window > 0) {
      spec.mask = mask_of(MaskSpec::Kind::kSlidingWindow);
      spec.mask.window = window;
      spec.mask.constant = true;
    }
    const KernelPlan plan = plan_of(spec);
    const Sm90Plan& sm90 = *plan.sm90;
    EXPECT_TRUE(sm90.cuts && sm90.dynamic_schedule);
    return std::vector{sm90.BN, sm90.num_stages, sm90.num_q_stages};
  };
  EXPECT_EQ(tile_of(64, 16), (std::vector{128, 4, 1}));
  EXPECT_EQ(tile_of(64, 16, 128), (std::vector{64, 4, 1}));
  EXPECT_EQ(tile_of(64, 1), (std::vector{112, 4, 2}));
  EXPECT_EQ(tile_of(64, 1, 128), (std::vector{64, 6, 2}));
  EXPECT_EQ(tile_of(96, 16), (std::vector{96, 2, 1}));
  EXPECT_EQ(tile_of(96, 1).front(), 64);
  EXPECT_EQ(tile_of(128, 1).front(), 64);
}

}  // namespace
}  // namespace attnjit

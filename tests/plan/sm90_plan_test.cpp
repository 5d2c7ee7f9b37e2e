// SPDX-License-Identifier: Apache-2.0
// Sm90Plan: what the template serves, and that every plan fits the SM.
#include "plan/sm90/sm90_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "attnjit/tuning.h"
#include "plan/sm90/sm90_layout.h"
#include "planned.h"

namespace attnjit {
namespace {

using namespace plan_test;

MaskSpec mask_of(MaskSpec::Kind kind) {
  MaskSpec mask;
  mask.kind = kind;
  return mask;
}

// Every depth, mask and modification: shared memory and registers as the hardware has them.
TEST(Sm90Plan, FitsTheSmForEveryDepth) {
  for (int qk = 8; qk <= 256; qk += 8) {
    for (int ov = 8; ov <= qk; ov += 8) {
      for (const MaskSpec::Kind mask : {MaskSpec::Kind::kNull, MaskSpec::Kind::kCausal}) {
        AttentionSpec spec = sm90_spec(qk, ov);
        spec.mask = mask_of(mask);
        const KernelPlan plan = plan_of(spec);
        if (!plan.supported) {
          // rope parts of an own type are all that keeps such a pair away
          ADD_FAILURE() << qk << "/" << ov << ": " << plan.reason;
          continue;
        }
        const Sm90Plan& sm90 = *plan.sm90;
        EXPECT_LE(plan.main().smem_bytes, 232448) << qk << "/" << ov;
        EXPECT_EQ(plan.main().threads, 128 * (sm90.num_consumers + 1));
        EXPECT_EQ(sm90.BM, 64 * sm90.num_consumers);
        // setmaxnreg only moves what the CTA was launched with; more of it never comes.
        EXPECT_LE(sm90.producer_registers + sm90.num_consumers * sm90.consumer_registers,
                  (sm90.num_consumers + 1) * plan.main().launch_registers);
        EXPECT_LE(plan.main().threads * plan.main().launch_registers, 65536);
        // S, P and O of a thread, and a few more, without spilling.
        EXPECT_LE(sm90.BN / 2 + sm90.BN / 4 + (ov + 31) / 32 * 32 / 2 + 24, sm90.consumer_registers)
            << qk << "/" << ov;
        EXPECT_EQ(sm90.BN % 16, 0);
      }
    }
  }
}

TEST(Sm90Plan, SharedMemoryHoldsEachRangeOnce) {
  for (const int depth : {64, 128, 192, 256}) {
    const KernelPlan plan = plan_of(sm90_spec(depth));
    std::int64_t at = 0;
    for (const MemoryRange& range : plan.main().smem_map) {
      EXPECT_EQ(range.begin, at) << range.name;
      if (range.name != "barriers") {
        EXPECT_EQ(range.begin % 1024, 0) << range.name;
      }
      at += range.size;
    }
    EXPECT_EQ(at, plan.main().smem_bytes);
    const auto constants = constants_of(plan);
    EXPECT_EQ(constants.at("kSmemBytes"), std::to_string(plan.main().smem_bytes));
    EXPECT_EQ(plan.main().smem_map.back().size,
              8 * static_cast<std::int64_t>(plan.main().barriers.size()));
  }
}

TEST(Sm90Plan, ConstantsOfDepth128) {
  AttentionSpec spec = sm90_spec(128);
  spec.mask = mask_of(MaskSpec::Kind::kCausal);
  spec.sink = true;
  spec.return_lse = true;
  const auto constants = constants_of(plan_of(spec));
  const std::map<std::string, std::string> expected = {
      {"kBf16", "true"},
      {"kOutputBf16", "true"},
      {"kOutputBytes", "2"},
      {"kQkDepth", "128"},
      {"kOvDepth", "128"},
      {"kGroup", "4"},
      {"kHeldQSteps", "0"},
      {"kGqaShift", "2"},
      {"kSink", "true"},
      {"kReturnLse", "true"},
      {"kLseIncludesSink", "true"},
      {"kConsumers", "3"},
      {"kCtasPerSm", "1"},
      {"kCluster", "1"},
      {"kOverlaps", "false"},
      {"kWorkBytes", "32"},
      {"kThreads", "512"},
      {"kTileM", "192"},
      {"kTileN", "64"},
      {"kPageSize", "0"},
      {"kBoxKeys", "64"},
      {"kRowCopies", "false"},
      {"kRagged", "false"},
      {"kRaggedKv", "false"},
      {"kKvLensExcludeNew", "false"},
      {"kListed", "false"},
      {"kMapped", "false"},
      {"kMapBits", "false"},
      {"kSplit", "false"},
      {"kPartitionTiles", "0"},
      {"kMergeOnePart", "false"},
      {"kRescaleByRow", "false"},
      {"kE4m3", "false"},
      {"kWidensKv", "false"},
      {"kKvRowBytes", "128"},
      {"kScales", "0"},
      {"kStages", "3"},
      {"kVStages", "3"},
      {"kRowStages", "0"},
      {"kQStages", "1"},
      {"kPingPong", "true"},
      {"kPairTiles", "true"},
      {"kDebugWaits", "false"},
      {"kRescaleThreshold", "0x1p+3f"},
      {"kPBias", "0x0p+0f"},
      {"kExp2FmaPairs", "0"},
      {"kProducerRegisters", "32"},
      {"kConsumerRegisters", "160"},
      {"kBody", "0"},
      {"kQOffset", "0"},
      {"kKOffset", "49152"},
      {"kVOffset", "98304"},
      {"kRowsOffset", "0"},
      {"kRowWordsOffset", "0"},
      {"kWorkOffset", "196608"},
      {"kNotesOffset", "0"},
      {"kNoteBytes", "4"},
      {"kBarrierOffset", "196704"},
      {"kBarQFull", "0"},
      {"kBarQEmpty", "3"},
      {"kBarKFull", "6"},
      {"kBarKEmpty", "9"},
      {"kBarVFull", "12"},
      {"kBarVEmpty", "15"},
      {"kBarriers", "18"},
      {"kArrivals[18]", "{1, 1, 1, 4, 4, 4, 1, 1, 1, 12, 12, 12, 1, 1, 1, 12, 12, 12}"},
      {"kOBlocks", "2"},
      {"kOOffset", "147456"},
      {"kSmemBytes", "196848"}};
  EXPECT_EQ(constants, expected);
}

TEST(Sm90Plan, BarriersCountEachConsumerWarp) {
  const KernelPlan plan = plan_of(sm90_spec(128));
  const auto arrivals = [&](const std::string& name) {
    const auto at = std::find_if(plan.main().barriers.begin(), plan.main().barriers.end(),
                                 [&](const BarrierPlan& barrier) { return barrier.name == name; });
    return at == plan.main().barriers.end() ? -1 : at->arrivals;
  };
  EXPECT_EQ(plan.main().barriers.size(), 24u);
  EXPECT_EQ(arrivals("Q 1 of 0 full"), 1);
  EXPECT_EQ(arrivals("Q 0 of 1 empty"), 4);
  EXPECT_EQ(arrivals("K 1 full"), 1);
  EXPECT_EQ(arrivals("K 0 empty"), 12);
  EXPECT_EQ(arrivals("V 1 empty"), 12);
}

// A TMA box is of one page, and whole boxes make a tile.
TEST(Sm90Plan, BoxesAreOfOnePage) {
  for (const int depth : {40, 64, 96, 128, 192, 256}) {
    for (const bool ragged : {false, true}) {
      for (int page = 0; page <= 1024; page += 8) {
        AttentionSpec spec = sm90_spec(depth);
        spec.page_size = page;
        spec.ragged = ragged;
        const KernelPlan plan = plan_of(spec);
        ASSERT_TRUE(plan.supported) << page << ": " << plan.reason;
        const Sm90Plan& sm90 = *plan.sm90;
        EXPECT_EQ(sm90.BN % sm90.box_keys, 0) << page;
        EXPECT_EQ(page % sm90.box_keys, 0) << page;
        EXPECT_EQ(sm90.box_keys % 8, 0) << page;
        EXPECT_EQ(sm90.box_keys == sm90.BN, page % sm90.BN == 0) << page;
        EXPECT_EQ(sm90.kv_lens, page > 0 || ragged);
        const auto constants = constants_of(plan);
        EXPECT_EQ(constants.at("kBoxKeys"), std::to_string(sm90.box_keys));
        EXPECT_EQ(constants.contains("kBarVTail"), sm90.kv_lens);
      }
    }
  }
}

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

// CTAs claim the tiles of masks that are listed, but of those that are like causal: their tiles are
// paired. Windows and chunks bring their lengths with the launch.
TEST(Sm90Plan, TilesOfListedMasksAreClaimed) {
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
  const auto expect = [](const MaskSpec& mask, bool claimed, bool paired) {
    AttentionSpec spec = sm90_spec(128);
    spec.mask = mask;
    const KernelPlan plan = plan_of(spec);
    EXPECT_EQ(plan.sm90->claims_work, claimed) << spec_to_json(spec);
    EXPECT_EQ(plan.sm90->pair_tiles, paired) << spec_to_json(spec);
    const auto& parameters = plan.main().parameters;
    EXPECT_EQ(std::any_of(parameters.begin(), parameters.end(),
                          [](const auto& one) { return one.name == "claims"; }),
              claimed);
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
  EXPECT_FALSE(plan_of(spec).sm90->claims_work);
  spec.num_partitions = 1;
  spec.page_size = 64;
  EXPECT_FALSE(plan_of(spec).sm90->claims_work);
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

// A mask whose expression decides tiles has a word for each stage of K, between what else the CTA
// says of its work and the barriers. Other masks keep what they have.
TEST(Sm90Plan, TilesOfExpressionsAreListed) {
  AttentionSpec spec = sm90_spec(128);
  spec.mask = mask_of(MaskSpec::Kind::kCausal);
  const KernelPlan causal = plan_of(spec);
  EXPECT_FALSE(causal.sm90->listed);
  spec.mask = mask_of(MaskSpec::Kind::kCustom);
  spec.mask.custom.name = "m";
  spec.mask.custom.code = "q_idx > kv_idx";
  for (const int page : {0, 64, 1}) {
    spec.page_size = page;
    const KernelPlan plan = plan_of(spec);
    ASSERT_TRUE(plan.supported);
    const Sm90Plan& sm90 = *plan.sm90;
    EXPECT_TRUE(sm90.listed);
    EXPECT_EQ(sm90.num_consumers, causal.sm90->num_consumers);
    const auto constants = constants_of(plan);
    EXPECT_EQ(constants.at("kListed"), "true");
    EXPECT_GE(std::stoi(constants.at("kBarrierOffset")) - std::stoi(constants.at("kNotesOffset")),
              4 * sm90.num_stages);
    EXPECT_EQ(std::stoi(constants.at("kBarrierOffset")) % 8, 0);
    // Who copies rows says of the tile by itself.
    for (const BarrierPlan& barrier : sm90.barriers) {
      if (barrier.name == "K 0 full") {
        EXPECT_EQ(barrier.arrivals, page == 1 ? 129 : 1);
      }
    }
  }
}

// Pages that hold no whole boxes are copied row by row, by registers that the consumers do without.
TEST(Sm90Plan, RowsOfOtherPagesAreCopied) {
  for (const int depth : {40, 64, 96, 128, 192, 256}) {
    for (const MaskSpec::Kind mask : {MaskSpec::Kind::kNull, MaskSpec::Kind::kCustom}) {
      for (const int page : {1, 2, 3, 4, 7, 12, 20, 100, 1023}) {
        AttentionSpec spec = sm90_spec(depth);
        spec.page_size = page;
        spec.mask = mask_of(mask);
        if (mask == MaskSpec::Kind::kCustom) {
          spec.mask.custom.name = "m";
          spec.mask.custom.code = "q_idx > kv_idx";
        }
        const KernelPlan plan = plan_of(spec);
        ASSERT_TRUE(plan.supported) << page << ": " << plan.reason;
        const Sm90Plan& sm90 = *plan.sm90;
        EXPECT_TRUE(sm90.row_copies);
        EXPECT_LE(sm90.BN, 128);
        EXPECT_LE(sm90.producer_registers + sm90.num_consumers * sm90.consumer_registers,
                  (sm90.num_consumers + 1) * plan.main().launch_registers);
        EXPECT_LE(sm90.BN / 2 + sm90.BN / 4 + depth / 2 + 24, sm90.consumer_registers);
        for (const KernelParameter& parameter : plan.main().parameters) {
          EXPECT_NE(parameter.name, "k_map");
          EXPECT_NE(parameter.name, "v_map");
        }
        for (const TuningKnob& knob : tuning_knobs(plan)) {
          if (knob.name != "BN") continue;
          EXPECT_EQ(*std::max_element(knob.values.begin(), knob.values.end()), 128);
        }
      }
    }
  }
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

// Few rows: one consumer, and two CTAs per SM where their memory fits.
TEST(Sm90Plan, DecodesHaveABodyOfTheirOwn) {
  for (const int depth : {32, 64, 96, 128, 192, 256}) {
    for (const int page : {0, 1, 16, 48, 64}) {
      AttentionSpec spec = sm90_spec(depth);
      spec.page_size = page;
      spec.max_q_len = 16;  // x 4 heads
      const KernelPlan plan = plan_of(spec);
      ASSERT_TRUE(plan.supported) << plan.reason;
      const Sm90Plan& sm90 = *plan.sm90;
      EXPECT_EQ(sm90.ctas_per_sm, depth <= 128 ? 2 : 1) << depth;
      EXPECT_EQ(sm90.num_consumers, depth <= 128 ? 1 : 2) << depth;
      EXPECT_LE(sm90.ctas_per_sm * (plan.main().smem_bytes + 1024), 233472);
      EXPECT_LE(plan.main().threads * plan.main().launch_registers * sm90.ctas_per_sm, 65536);
      EXPECT_LE(sm90.producer_registers + sm90.num_consumers * sm90.consumer_registers,
                (sm90.num_consumers + 1) * plan.main().launch_registers);
      EXPECT_TRUE(plan.main().overlaps);
      for (const TuningKnob& knob : tuning_knobs(plan)) {
        EXPECT_EQ(std::count(knob.values.begin(), knob.values.end(), knob.chosen), 1) << knob.name;
      }
      spec.max_q_len = 17;
      EXPECT_EQ(plan_of(spec).sm90->ctas_per_sm, 1);
    }
  }
}

// A second body compiles as long as the first: those have one that gain by it.
TEST(Sm90Plan, DenseKernelsThatGainByItHaveALowBody) {
  AttentionSpec spec = sm90_spec(128);
  const KernelPlan plan = plan_of(spec);
  ASSERT_NE(plan.sm90->low, nullptr);
  const Sm90Plan& low = *plan.sm90->low;
  EXPECT_EQ(low.threads(), plan.sm90->threads());
  EXPECT_LE(low.smem_bytes, plan.main().smem_bytes);
  EXPECT_LE((1 + low.idle_warpgroups) * low.producer_registers +
                low.num_consumers * low.consumer_registers,
            low.threads() / 128 * plan.main().launch_registers);
  EXPECT_EQ(plan_of(sm90_spec(64)).sm90->low, nullptr);
  EXPECT_EQ(plan_of(sm90_spec(192)).sm90->low, nullptr);
  for (const auto change : {+[](AttentionSpec& one) { one.page_size = 64; },
                            +[](AttentionSpec& one) { one.ragged = true; },
                            +[](AttentionSpec& one) { one.num_partitions = 2; },
                            +[](AttentionSpec& one) { one.mask.kind = MaskSpec::Kind::kCausal; }}) {
    AttentionSpec other = spec;
    change(other);
    EXPECT_EQ(plan_of(other).sm90->low, nullptr);
  }
  // Of a launch that chooses not to split.
  spec.num_partitions = 0;
  const KernelPlan chooses = plan_of(spec);
  ASSERT_NE(chooses.sm90->low, nullptr);
  EXPECT_FALSE(chooses.sm90->low->split);
  spec.mask.kind = MaskSpec::Kind::kCausal;
  ASSERT_NE(plan_of(spec).sm90->low, nullptr);
  spec.mask = mask_of(MaskSpec::Kind::kSlidingWindow);
  EXPECT_EQ(plan_of(spec).sm90->low, nullptr);
}

// V of e4m3 comes in rows and is transposed to columns; O of bf16 is longer than its Q.
TEST(Sm90Plan, E4m3HasMemoryForVAsItComes) {
  for (const int depth : {16, 64, 96, 128, 192, 256}) {
    for (const MaskSpec::Kind mask : {MaskSpec::Kind::kNull, MaskSpec::Kind::kCausal}) {
      AttentionSpec spec = sm90_spec(depth);
      spec.qkv_dtype = Dtype::kE4m3;
      spec.mask.kind = mask;
      const KernelPlan plan = plan_of(spec);
      ASSERT_TRUE(plan.supported) << plan.reason;
      const Sm90Plan& sm90 = *plan.sm90;
      const int columns = (depth + 31) / 32 * 32;
      EXPECT_EQ(sm90.v_bytes, std::int64_t{sm90.BN} * columns);
      EXPECT_EQ(sm90.v_row_stage_bytes, std::int64_t{sm90.BN} * (depth > 128 ? 256 : 128));
      EXPECT_EQ(sm90.k_row_stage_bytes, 0);
      EXPECT_EQ(sm90.BN % 32, 0);
      EXPECT_GE(sm90.num_row_stages, 1);
      EXPECT_LE(sm90.smem_bytes, 232448);
      // Staged O does not fit Q's memory where it has more blocks of 128 bytes in a row.
      const bool fits_q = 2 * depth <= (depth + 127) / 128 * 128;
      EXPECT_TRUE(fits_q || sm90.o_blocks >= 1) << depth;
      int rows = 0, keys = 0;
      for (const Sm90SmemRange& range : sm90.smem) {
        rows += range.region == Sm90Region::kVRows;
        keys += range.region == Sm90Region::kRowWords;
        EXPECT_TRUE(range.region != Sm90Region::kVRows || range.begin % 1024 == 0);
      }
      EXPECT_EQ(rows, sm90.num_row_stages);
      EXPECT_EQ(keys, 1);
      EXPECT_EQ(sm90.p_bias, 8);
      // What P may come to: less than e4m3's greatest number.
      EXPECT_LT(std::exp2(sm90.p_bias + sm90.rescale_threshold), 448);
    }
  }
  EXPECT_EQ(plan_of(sm90_spec(128)).sm90->num_row_stages, 0);
}

// The tensor cores sum the rows of P where nothing but O is divided by the sums: not between depths
// 128 and 192. Above 96 three consumers have the registers for that which the producer has less of.
TEST(Sm90Plan, E4m3SumsRowsByProduct) {
  for (const int depth : {16, 64, 96, 128, 160, 192, 208, 256}) {
    AttentionSpec spec = sm90_spec(depth);
    spec.qkv_dtype = Dtype::kE4m3;
    const KernelPlan plan = plan_of(spec);
    const Sm90Plan& sm90 = *plan.sm90;
    EXPECT_EQ(sm90.sums_by_product, depth <= 128 || depth > 192) << depth;
    if (depth < 256) {
      EXPECT_EQ(sm90.consumer_registers, depth <= 96 ? 152 : depth <= 128 ? 160 : 224) << depth;
      EXPECT_EQ(sm90.producer_registers, depth > 96 && depth <= 128 ? 32 : 56) << depth;
    }
    EXPECT_EQ(sm90_begin_of(Sm90Region::kOnes, sm90) > 0, depth <= 128 || depth > 192) << depth;

    spec.return_lse = true;
    const KernelPlan with_lse = plan_of(spec);
    EXPECT_FALSE(with_lse.sm90->sums_by_product) << depth;
    EXPECT_EQ(with_lse.sm90->consumer_registers, depth <= 128 ? 152 : 224) << depth;
  }
}

// Consumers of e4m3 at depth 256 hold three steps of Q in registers, which the producer has less
// of, where the mask and the modification leave them: not of other depths and types.
TEST(Sm90Plan, ConsumersOfE4m3HoldQ) {
  AttentionSpec e4m3 = sm90_spec(256);
  e4m3.qkv_dtype = Dtype::kE4m3;
  const auto steps_of = [&](void (*change)(AttentionSpec&)) {
    AttentionSpec spec = e4m3;
    change(spec);
    const KernelPlan plan = plan_of(spec);
    const Sm90Plan& sm90 = *plan.sm90;
    EXPECT_EQ(constants_of(plan).at("kHeldQSteps"), std::to_string(sm90.held_q_steps));
    if (spec.qkv_dtype == Dtype::kE4m3 && sm90.num_consumers == 2) {
      EXPECT_EQ(sm90.consumer_registers, sm90.held_q_steps > 0 ? 232 : 224);
      EXPECT_EQ(sm90.producer_registers, sm90.held_q_steps > 0 ? 40 : 56);
    }
    return sm90.held_q_steps;
  };
  const auto softcap = [](AttentionSpec& s) { s.score_mod.kind = ScoreModSpec::Kind::kSoftcap; };
  const auto alibi = [](AttentionSpec& s) { s.score_mod.kind = ScoreModSpec::Kind::kAlibi; };
  EXPECT_EQ(steps_of([](AttentionSpec&) {}), 3);
  EXPECT_EQ(steps_of([](AttentionSpec& s) { s.mask.kind = MaskSpec::Kind::kCausal; }), 3);
  EXPECT_EQ(steps_of([](AttentionSpec& s) { s.page_size = 64; }), 3);
  EXPECT_EQ(steps_of(softcap), 3);
  EXPECT_EQ(steps_of(alibi), 0);
  EXPECT_EQ(steps_of([](AttentionSpec& s) { s.mask.kind = MaskSpec::Kind::kSlidingWindow; }), 0);
  EXPECT_EQ(steps_of([](AttentionSpec& s) { s.return_lse = true; }), 0);
  EXPECT_EQ(steps_of([](AttentionSpec& s) { s.qk_depth = s.ov_depth = 240; }), 0);
  EXPECT_EQ(steps_of([](AttentionSpec& s) { s.qk_depth = s.ov_depth = 128; }), 0);
  EXPECT_EQ(steps_of([](AttentionSpec& s) { s.qkv_dtype = Dtype::kBf16; }), 0);
}

// Scores with a softcap leave three consumers room for tiles of 64 keys at depth 128.
// It leaves from registers: no memory is its own or Q's, and the tiles are those of 16 bits.
TEST(Sm90Plan, OOfF32NeedsNoSharedMemory) {
  for (const int depth : {64, 128, 192, 256}) {
    AttentionSpec spec = sm90_spec(depth);
    const KernelPlan of_bits = plan_of(spec);
    spec.output_dtype = Dtype::kF32;
    const KernelPlan plan = plan_of(spec);
    ASSERT_TRUE(plan.supported) << plan.reason;
    EXPECT_EQ(plan.sm90->o_blocks, 0);
    EXPECT_EQ(plan.sm90->BN, of_bits.sm90->BN);
    EXPECT_EQ(plan.sm90->num_stages, of_bits.sm90->num_stages);
    EXPECT_EQ(plan.main().smem_map.front().name, "Q 0");
    std::vector<std::string> of_o;
    for (const KernelParameter& parameter : plan.main().parameters) {
      if (parameter.name.starts_with("o")) of_o.push_back(parameter.name);
    }
    EXPECT_EQ(of_o,
              (std::vector<std::string>{"o_batch_bytes", "o_row_bytes", "o_head_bytes", "o"}));
  }
}

TEST(Sm90Plan, KeysWithScalesHaveBuffersForThem) {
  for (const int depth : {16, 64, 128, 192, 256}) {
    for (const int max_q_len : {0, 1}) {
      AttentionSpec spec = sm90_spec(depth);
      spec.qkv_dtype = Dtype::kE4m3;
      spec.page_size = 16;
      spec.max_q_len = max_q_len;
      spec.scales = Scales::kHead;
      EXPECT_FALSE(constants_of(plan_of(spec)).contains("kKeyScalesOffset"));
      spec.scales = Scales::kToken;
      const KernelPlan plan = plan_of(spec);
      ASSERT_TRUE(plan.supported) << plan.reason;
      const Sm90Plan& sm90 = *plan.sm90;
      EXPECT_LE(sm90.smem_bytes, sm90.ctas_per_sm == 2 ? 115712 : 232448) << depth;
      EXPECT_FALSE(sm90.sums_by_product);
      EXPECT_LE(sm90.num_consumers, 2);
      const auto range =
          std::find_if(plan.main().smem_map.begin(), plan.main().smem_map.end(),
                       [](const MemoryRange& one) { return one.name == "scales of keys"; });
      ASSERT_NE(range, plan.main().smem_map.end());
      EXPECT_EQ(range->size, sm90.num_consumers * 2 * 3 * 4 * sm90.BN);
      EXPECT_EQ(constants_of(plan).at("kKeyScalesOffset"), std::to_string(range->begin));
      // A table names pages, of which the launch has so many.
      EXPECT_TRUE(std::any_of(plan.main().parameters.begin(), plan.main().parameters.end(),
                              [](const KernelParameter& one) { return one.name == "num_pages"; }));
    }
  }
}

TEST(Sm90Plan, SoftcapsHaveThreeConsumersOfShortTiles) {
  AttentionSpec spec = sm90_spec(128);
  spec.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
  for (const MaskSpec::Kind kind :
       {MaskSpec::Kind::kNull, MaskSpec::Kind::kCausal, MaskSpec::Kind::kSlidingWindow}) {
    spec.mask = mask_of(kind);
    const KernelPlan plan = plan_of(spec);
    EXPECT_EQ(plan.sm90->num_consumers, 3);
    EXPECT_EQ(plan.sm90->BN, 64);
    EXPECT_FALSE(plan.sm90->ping_pong);
    EXPECT_EQ(plan.sm90->low, nullptr);
  }
  // Other depths and types, and what takes registers, have two of longer ones.
  const auto consumers_of = [&](void (*change)(AttentionSpec&)) {
    AttentionSpec other = spec;
    change(other);
    return plan_of(other).sm90->num_consumers;
  };
  EXPECT_EQ(consumers_of([](AttentionSpec& s) { s.qk_depth = s.ov_depth = 96; }), 2);
  EXPECT_EQ(consumers_of([](AttentionSpec& s) { s.qk_depth = s.ov_depth = 192; }), 2);
  EXPECT_EQ(consumers_of([](AttentionSpec& s) { s.num_partitions = 3; }), 2);
  EXPECT_EQ(consumers_of([](AttentionSpec& s) { s.partition_keys = 256; }), 2);
  EXPECT_EQ(consumers_of([](AttentionSpec& s) { s.qkv_dtype = Dtype::kE4m3; }), 2);
  EXPECT_EQ(consumers_of([](AttentionSpec& s) { s.kv_dtype = Dtype::kE4m3; }), 2);
  EXPECT_EQ(consumers_of([](AttentionSpec& s) { s.mask = mask_of(MaskSpec::Kind::kMaterialized); }),
            2);
}

// Tiles of K and V come as e4m3 and are widened to 16 bits: every choice has room for both.
TEST(Sm90Plan, WidenedKvHasMemoryForBothForms) {
  for (const int depth : {16, 64, 80, 128, 192, 256}) {
    for (const int max_q_len : {0, 1}) {
      AttentionSpec spec = sm90_spec(depth);
      spec.kv_dtype = Dtype::kE4m3;
      spec.max_q_len = max_q_len;
      const KernelPlan plan = plan_of(spec);
      ASSERT_TRUE(plan.supported) << plan.reason;
      const Sm90Plan& sm90 = *plan.sm90;
      EXPECT_TRUE(sm90.widens_kv);
      EXPECT_EQ(sm90.kv_row_bytes, depth % 128 == 0 ? 128 : 64);
      EXPECT_EQ(sm90.k_bytes, std::int64_t{sm90.BN} * ((depth + 63) / 64 * 128));
      EXPECT_EQ(sm90.k_row_stage_bytes, sm90.k_bytes / 2);
      EXPECT_EQ(sm90.v_row_stage_bytes, sm90.v_bytes / 2);
      EXPECT_EQ(sm90.BN % 32, 0);
      EXPECT_GE(sm90.num_row_stages, 1);
      // What P may come to: less than fp16's greatest number.
      EXPECT_LT(std::exp2(sm90.p_bias + sm90.rescale_threshold), 65504);
      EXPECT_LE(sm90.smem_bytes, sm90.ctas_per_sm == 2 ? 115712 : 232448) << depth;
      EXPECT_EQ(sm90.ctas_per_sm, max_q_len == 1 && depth <= 128 ? 2 : 1);
    }
  }
  EXPECT_FALSE(plan_of(sm90_spec(128)).sm90->widens_kv);
}

// NOTE: warps that no role names are missing from a report of the clock. The kernel is told of as
// many.
TEST(Sm90Plan, EachWarpThatRewritesTilesHasARole) {
  const auto roles = [](auto change) {
    AttentionSpec spec = sm90_spec(128);
    change(spec);
    const KernelPlan plan = plan_of(spec);
    std::vector<std::string> lines;
    for (const PlannedKernel::Role& role : plan.kernels.front().roles) {
      lines.push_back(role.name + " " + std::to_string(role.first_warp) + " " +
                      std::to_string(role.num_warps));
    }
    lines.resize(4);
    const auto constants = constants_of(plan);
    for (const char* const name : {"kFirstVRewriter", "kVRewriters", "kKRewriters"}) {
      lines.push_back(constants.contains(name) ? constants.at(name) : "-");
    }
    return lines;
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(roles([](AttentionSpec& s) { s.kv_dtype = Dtype::kE4m3; }),
            (Lines{"load 0 1", "widen V 1 3", "widen K 4 4", "consumer 0 8 4", "1", "3", "4"}));
  EXPECT_EQ(
      roles([](AttentionSpec& s) { s.qkv_dtype = Dtype::kE4m3; }),
      (Lines{"load 0 1", "transpose 1 3", "consumer 0 4 4", "consumer 1 8 4", "1", "3", "-"}));
  // Of pages that hold no box one warp copies rows where others rewrite them.
  const auto of_rows = [](Dtype dtype) {
    return [dtype](AttentionSpec& s) {
      s.qkv_dtype = dtype;
      s.page_size = 3;
    };
  };
  EXPECT_EQ(roles(of_rows(Dtype::kE4m3)).front(), "load 0 1");
  EXPECT_EQ(roles(of_rows(Dtype::kBf16)).front(), "load 0 4");
  EXPECT_EQ(roles([](AttentionSpec&) {}), (Lines{"load 0 1", "consumer 0 4 4", "consumer 1 8 4",
                                                 "consumer 2 12 4", "-", "-", "-"}));
}

TEST(Sm90Plan, UnsupportedComesWithAReasonThatNamesTheFeature) {
  const auto reason = [](auto change) {
    AttentionSpec spec = sm90_spec(128);
    change(spec);
    const KernelPlan plan = plan_of(spec);
    EXPECT_FALSE(plan.supported);
    EXPECT_TRUE(plan.main().parameters.empty());
    return plan.reason;
  };
  EXPECT_NE(reason([](AttentionSpec& s) {
              s.qkv_dtype = Dtype::kE4m3;
              s.qk_depth = 192;
              s.ov_depth = 128;
              s.mla = Mla::kPrefill;
              s.rope_dtype = Dtype::kBf16;
            }).find("rope_dtype"),
            std::string::npos);
  EXPECT_NE(reason([](AttentionSpec& s) {
              s.num_partitions = 4;
              s.accumulate = true;
              s.return_lse = true;
            }).find("num_partitions"),
            std::string::npos);
  EXPECT_NE(reason([](AttentionSpec& s) {
              s.partition_keys = 64;
              s.accumulate = true;
              s.return_lse = true;
            }).find("partition_keys"),
            std::string::npos);
  EXPECT_NE(reason([](AttentionSpec& s) { s.partition_keys = 100; }).find("multiples of 64"),
            std::string::npos);
}

TEST(Sm90Plan, MlaPrefillIsServedInOneType) {
  AttentionSpec spec = sm90_spec(192, 128);
  spec.mla = Mla::kPrefill;
  EXPECT_TRUE(plan_of(spec).supported);
}

// What was asked for is done or refused; a deviation is the planner's own choice.
TEST(Sm90Plan, OptionsThatCannotBeHadAreUnsupported) {
  const auto with = [](auto set) {
    PlanOptions options;
    set(options);
    return plan_of(sm90_spec(128), options);
  };
  const KernelPlan pair = with([](PlanOptions& o) { o.pair_cta = true; });
  EXPECT_FALSE(pair.supported);
  EXPECT_NE(pair.reason.find("pair_cta"), std::string::npos) << pair.reason;
  const KernelPlan swizzle = with([](PlanOptions& o) { o.swizzle_bytes = 64; });
  EXPECT_FALSE(swizzle.supported);
  EXPECT_NE(swizzle.reason.find("swizzle_bytes"), std::string::npos) << swizzle.reason;
  // Three consumer warpgroups; with a mask that needs more registers, two.
  const KernelPlan three = with([](PlanOptions& o) { o.num_qo = 2; });
  EXPECT_FALSE(three.supported);
  EXPECT_NE(three.reason.find("num_qo"), std::string::npos) << three.reason;
  PlanOptions two;
  two.num_qo = 2;
  EXPECT_TRUE(plan_of(sm90_spec(192, 128), two).supported);

  const KernelPlan had = with([](PlanOptions& o) {
    o.pair_cta = false;
    o.swizzle_bytes = 128;
  });
  EXPECT_TRUE(had.supported) << had.reason;
  EXPECT_TRUE(had.deviations.empty());
  AttentionSpec chosen = sm90_spec(128);
  chosen.num_partitions = 0;
  EXPECT_TRUE(plan_of(chosen).deviations.empty());
  chosen.accumulate = true;
  chosen.return_lse = true;
  const KernelPlan whole = plan_of(chosen);
  EXPECT_TRUE(whole.supported) << whole.reason;
  ASSERT_EQ(whole.deviations.size(), 1U);
  EXPECT_EQ(whole.deviations[0].name, "num_partitions");
}

TEST(Sm90Plan, TuningIsAppliedAndChecked) {
  const auto tuned = [](TuningValues values) {
    Tuning tuning;
    tuning.rows.push_back({{}, std::move(values)});
    return plan(sm90_spec(128), {}, &tuning);
  };
  Result<KernelPlan> narrow = tuned({{"BN", 64}, {"num_stages", 4}});
  ASSERT_TRUE(narrow.ok());
  EXPECT_EQ(narrow->sm90->BN, 64);
  EXPECT_EQ(narrow->sm90->num_stages, 4);
  EXPECT_FALSE(tuned({{"BN", 100}}).ok());
  EXPECT_FALSE(tuned({{"num_stages", 1}}).ok());
  EXPECT_FALSE(tuned({{"BK", 64}}).ok());
  AttentionSpec parts = sm90_spec(128);
  parts.partition_keys = 512;
  Tuning wide;
  wide.rows.push_back({{}, {{"BN", 80}}});
  const Result<KernelPlan> uneven = plan(parts, {}, &wide);
  ASSERT_FALSE(uneven.ok());
  EXPECT_EQ(uneven.error().field, "BN");
  const Result<KernelPlan> large = tuned({{"BN", 192}, {"num_stages", 4}});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, ErrorCode::kInvalid);
}

// Each value of each knob is taken or refused with its name, and a plan's own choice can be pinned.
TEST(Sm90Plan, EveryKnobIsAppliedAndReadBack) {
  for (const int depth : {64, 128, 256}) {
    const KernelPlan untuned = plan_of(sm90_spec(depth));
    TuningValues pinned;
    for (const TuningKnob& knob : tuning_knobs(untuned)) {
      pinned[knob.name] = knob.chosen;
      EXPECT_NE(std::find(knob.values.begin(), knob.values.end(), knob.chosen), knob.values.end());
      int taken = 0;
      for (const std::int64_t value : knob.values) {
        Tuning tuning;
        tuning.rows.push_back({{}, {{knob.name, value}}});
        const Result<KernelPlan> tuned = plan(sm90_spec(depth), {}, &tuning);
        if (!tuned) {
          EXPECT_EQ(tuned.error().code, ErrorCode::kInvalid);
          continue;
        }
        ++taken;
        // NOTE: a plan may fall back from what does not fit (Q's second buffer), never silently
        // take another knob's value.
        for (const TuningKnob& now : tuning_knobs(*tuned)) {
          if (now.name == knob.name && knob.name != "num_q_stages") {
            EXPECT_EQ(now.chosen, value) << knob.name << " at depth " << depth;
          }
        }
      }
      EXPECT_GT(taken, 0) << knob.name;
    }
    Tuning tuning;
    tuning.rows.push_back({{}, pinned});
    const Result<KernelPlan> again = plan(sm90_spec(depth), {}, &tuning);
    ASSERT_TRUE(again.ok()) << again.error().to_string();
    EXPECT_EQ(constants_of(*again), constants_of(untuned));
  }
}

TEST(Sm90Plan, ARowIsMadeForASpecAndItsLikes) {
  AttentionSpec spec = sm90_spec(128);
  const KernelPlan planned = plan_of(spec);
  Tuning tuning;
  tuning.rows.push_back({tuning_match(planned.spec), {{"BN", 112}}});
  const auto keys = [&](const AttentionSpec& asked) {
    return plan(asked, {}, &tuning).value().sm90->BN;
  };
  EXPECT_EQ(keys(spec), 112);
  spec.num_q_heads = 64;
  EXPECT_EQ(keys(spec), 112);
  spec.max_seq_len = 4096;
  EXPECT_EQ(keys(spec), 112);
  for (const auto change : {+[](AttentionSpec& s) { s.group = 2; },
                            +[](AttentionSpec& s) { s.qkv_dtype = Dtype::kFp16; },
                            +[](AttentionSpec& s) { s.return_lse = true; },
                            +[](AttentionSpec& s) { s.mask.kind = MaskSpec::Kind::kCausal; },
                            +[](AttentionSpec& s) { s.ov_depth = 64; }}) {
    AttentionSpec other = spec;
    change(other);
    EXPECT_NE(keys(other), 112);
  }
  // A spec with a bound has rows of its own.
  const std::map<std::string, std::string> bounded = tuning_match(plan_of(spec).spec);
  EXPECT_EQ(bounded.at("max_seq_len"), "4096");
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

// Heads and the launch's window are no part of the kernel: specs that differ in them share one.
TEST(Sm90Plan, LaunchValuesStayOutOfTheConstants) {
  AttentionSpec a = sm90_spec(128);
  a.mask = mask_of(MaskSpec::Kind::kSlidingWindow);
  a.mask.window = 100;
  AttentionSpec b = a;
  b.mask.window = 200;
  b.num_q_heads = 16;
  EXPECT_EQ(constants_of(plan_of(a)), constants_of(plan_of(b)));
  b.mask.constant = true;
  EXPECT_EQ(constants_of(plan_of(b)).at("kWindow"), "200");
}
}  // namespace
}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Sm90Plan: what the template serves, and that every plan fits the SM.
#include "plan/sm90/sm90_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "attnjit/tuning.h"
#include "plan/sm90/sm90_layout.h"
#include "planned.h"

namespace attnjit {
namespace {

using namespace plan_test;

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
      {"kQRegisterSteps", "0"},
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
      {"kBlockSparse", "false"},
      {"kBlockMask", "false"},
      {"kBlockMaskBits", "false"},
      {"kSplit", "false"},
      {"kPartitionTiles", "0"},
      {"kMergeOnePart", "false"},
      {"kRescaleByRow", "false"},
      {"kE4m3", "false"},
      {"kUpcastsKv", "false"},
      {"kKvRowBytes", "128"},
      {"kScales", "0"},
      {"kStages", "3"},
      {"kVStages", "3"},
      {"kRawStages", "0"},
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
      {"kRawOffset", "0"},
      {"kRawWordsOffset", "0"},
      {"kWorkOffset", "196608"},
      {"kDescriptorsOffset", "0"},
      {"kDescriptorBytes", "4"},
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
      {"kSmemBytes", "196848"},
      // What it does without.
      {"kStreamK", "false"},
      {"kHeadStreamK", "false"},
      {"kCuts", "false"},
      {"kClusterReduces", "false"},
      {"kSkipsHiddenTiles", "false"},
      {"kRematerializes", "false"},
      {"kRematerializesRows", "false"},
      {"kStashesWork", "false"},
      {"kStashOffset", "0"},
      {"kStashBytes", "48"},
      {"kSumsByProduct", "false"},
      {"kOnesOffset", "0"},
      {"kCursorsOffset", "0"},
      {"kKeyScalesOffset", "0"},
      {"kUnitPositions", "0"},
      {"kFirstVRewriter", "1"},
      {"kVRewriters", "0"},
      {"kKRewriters", "0"}};
  EXPECT_EQ(constants, expected);
}

// What consumers stash is of each of their warps; where nothing is stashed nothing is said of it.
TEST(Sm90Plan, StashedWorkTilesHaveRoom) {
  const auto stashes = [](int depth, auto change) {
    AttentionSpec spec = sm90_spec(depth);
    change(spec);
    const KernelPlan plan = plan_of(spec);
    const Sm90Plan& sm90 = *plan.sm90;
    EXPECT_EQ(constants_of(plan).at("kStashOffset") != "0", sm90.stashes_work);
    EXPECT_EQ(constants_of(plan).at("kStashesWork"), sm90.stashes_work ? "true" : "false");
    EXPECT_EQ(constants_of(plan).at("kRematerializes"), sm90.rematerializes ? "true" : "false");
    for (const PlacedRegion& range : sm90.smem) {
      if (range.region != Region::kStash) continue;
      EXPECT_EQ(range.size, 48 * 4 * sm90.num_consumers);
    }
    EXPECT_EQ(sm90.smem.begin_of(Region::kStash) > 0, sm90.stashes_work);
    EXPECT_EQ(sm90.smem.begin_of(Region::kStash) % 16, 0);
    return sm90.stashes_work;
  };
  const auto windowed = [](AttentionSpec& s) { s.mask = mask_of(MaskSpec::Kind::kSlidingWindow); };
  const auto causal = [](AttentionSpec& s) { s.mask = mask_of(MaskSpec::Kind::kCausal); };
  EXPECT_FALSE(stashes(128, causal));
  EXPECT_FALSE(stashes(128, windowed));
  EXPECT_FALSE(stashes(256, causal));
  EXPECT_FALSE(stashes(192, [&](AttentionSpec& s) { causal(s), s.ov_depth = 128; }));
  EXPECT_TRUE(stashes(192, [&](AttentionSpec& s) { windowed(s), s.ov_depth = 128; }));
  EXPECT_TRUE(stashes(128, [&](AttentionSpec& s) { windowed(s), s.return_lse = true; }));
  EXPECT_FALSE(stashes(256, windowed));
  EXPECT_TRUE(stashes(256, [&](AttentionSpec& s) { windowed(s), s.kv_dtype = Dtype::kE4m3; }));
  const auto given = [](Dtype dtype) {
    return [dtype](AttentionSpec& s) {
      s.mask = mask_of(MaskSpec::Kind::kMaterialized);
      s.mask.dtype = dtype;
    };
  };
  EXPECT_TRUE(stashes(256, given(Dtype::kBits)));
  const auto eight = [&](Dtype dtype) {
    return [=](AttentionSpec& s) { given(dtype)(s), s.qkv_dtype = Dtype::kE4m3; };
  };
  EXPECT_TRUE(stashes(256, eight(Dtype::kBf16)));
  EXPECT_FALSE(stashes(256, eight(Dtype::kBits)));
  const auto parts = [&](Dtype dtype, int partitions, auto change) {
    return [=](AttentionSpec& s) { given(dtype)(s), s.num_partitions = partitions, change(s); };
  };
  const auto upcasts = [](AttentionSpec& s) { s.kv_dtype = Dtype::kE4m3; };
  const auto is_eight = [](AttentionSpec& s) { s.qkv_dtype = Dtype::kE4m3; };
  EXPECT_TRUE(stashes(128, parts(Dtype::kBits, 0, [](AttentionSpec&) {})));
  EXPECT_TRUE(stashes(128, parts(Dtype::kBf16, 0, upcasts)));
  EXPECT_FALSE(stashes(128, parts(Dtype::kBf16, 1, upcasts)));
  EXPECT_FALSE(stashes(128, parts(Dtype::kBits, 0, upcasts)));
  EXPECT_TRUE(stashes(64, parts(Dtype::kBf16, 0, is_eight)));
  EXPECT_FALSE(stashes(256, parts(Dtype::kBits, 0, is_eight)));
  const auto of_rows = [](AttentionSpec& s) {
    s.mask = mask_of(MaskSpec::Kind::kSlidingWindow), s.scales = Scales::kToken;
  };
  EXPECT_TRUE(stashes(64, [&](AttentionSpec& s) { of_rows(s), s.qkv_dtype = Dtype::kE4m3; }));
  EXPECT_FALSE(stashes(128, [&](AttentionSpec& s) { of_rows(s), s.kv_dtype = Dtype::kE4m3; }));
}

// Beside scales of rows consumers keep little where that costs no time, and do not stash then.
TEST(Sm90Plan, RowsArePlacedAgainWhereThatCostsNothing) {
  const auto places = [](int depth, Dtype dtype, bool bits, Scales scales = Scales::kToken) {
    AttentionSpec spec = sm90_spec(depth);
    spec.scales = scales;
    spec.qkv_dtype = dtype;
    if (dtype != Dtype::kE4m3) spec.kv_dtype = Dtype::kE4m3;
    spec.mask = mask_of(bits ? MaskSpec::Kind::kMaterialized : MaskSpec::Kind::kSlidingWindow);
    spec.mask.dtype = Dtype::kBits;
    const KernelPlan plan = plan_of(spec);
    const bool again = plan.sm90->rematerializes_rows;
    EXPECT_EQ(constants_of(plan).at("kRematerializesRows"), again ? "true" : "false");
    EXPECT_FALSE(again && plan.sm90->stashes_work);
    return again;
  };
  EXPECT_TRUE(places(80, Dtype::kE4m3, false));
  EXPECT_TRUE(places(128, Dtype::kBf16, false));
  EXPECT_TRUE(places(192, Dtype::kE4m3, false));
  for (const int depth : {64, 256}) {
    EXPECT_FALSE(places(depth, Dtype::kE4m3, false));
    EXPECT_TRUE(places(depth, Dtype::kE4m3, true));
  }
  EXPECT_FALSE(places(128, Dtype::kE4m3, false, Scales::kHead));
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
        EXPECT_EQ(sm90.spec->lengths_differ, page > 0 || ragged);
        const auto constants = constants_of(plan);
        EXPECT_EQ(constants.at("kBoxKeys"), std::to_string(sm90.box_keys));
        EXPECT_EQ(constants.contains("kBarVTail"), sm90.spec->lengths_differ);
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
        EXPECT_TRUE(sm90.spec->copies_rows);
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

// A small-tile variant compiles as long as the first: those have one that gain by it.
TEST(Sm90Plan, DenseKernelsThatGainByItHaveASmallTileVariant) {
  AttentionSpec spec = sm90_spec(128);
  const KernelPlan plan = plan_of(spec);
  ASSERT_NE(plan.sm90->small_tile, nullptr);
  const Sm90Plan& low = *plan.sm90->small_tile;
  EXPECT_EQ(low.threads(), plan.sm90->threads());
  EXPECT_LE(low.smem_bytes, plan.main().smem_bytes);
  EXPECT_LE((1 + low.idle_warpgroups) * low.producer_registers +
                low.num_consumers * low.consumer_registers,
            low.threads() / 128 * plan.main().launch_registers);
  EXPECT_EQ(plan_of(sm90_spec(64)).sm90->small_tile, nullptr);
  EXPECT_EQ(plan_of(sm90_spec(192)).sm90->small_tile, nullptr);
  for (const auto change : {+[](AttentionSpec& one) { one.page_size = 64; },
                            +[](AttentionSpec& one) { one.ragged = true; },
                            +[](AttentionSpec& one) { one.num_partitions = 2; },
                            +[](AttentionSpec& one) { one.mask.kind = MaskSpec::Kind::kCausal; }}) {
    AttentionSpec other = spec;
    change(other);
    EXPECT_EQ(plan_of(other).sm90->small_tile, nullptr);
  }
  // Of a launch that chooses not to split.
  spec.num_partitions = 0;
  const KernelPlan chooses = plan_of(spec);
  ASSERT_NE(chooses.sm90->small_tile, nullptr);
  EXPECT_FALSE(chooses.sm90->small_tile->split);
  spec.mask.kind = MaskSpec::Kind::kCausal;
  ASSERT_NE(plan_of(spec).sm90->small_tile, nullptr);
  spec.mask = mask_of(MaskSpec::Kind::kSlidingWindow);
  EXPECT_EQ(plan_of(spec).sm90->small_tile, nullptr);
}

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

// Scores with a softcap leave three consumers room for tiles of 64 keys at depth 128.
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
    EXPECT_EQ(plan.sm90->small_tile, nullptr);
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

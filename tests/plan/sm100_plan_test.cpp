// SPDX-License-Identifier: Apache-2.0
// Sm100Plan: invariants over random specs, and each known deviation.
#include "plan/sm100/sm100_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "../one_launch.h"
#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "attnjit/tuning.h"
#include "plan/signature.h"

namespace attnjit {
namespace {

using I = std::int64_t;

AttentionSpec dense(int depth, Dtype dtype = Dtype::kBf16) {
  AttentionSpec spec;
  spec.num_q_heads = 32;
  spec.qk_depth = depth;
  spec.qkv_dtype = dtype;
  return spec;
}

KernelPlan plan_of(const AttentionSpec& spec, const PlanOptions& options = {},
                   const Tuning* tuning = nullptr) {
  Result<KernelPlan> result = plan(spec, options, tuning);
  if (!result) {
    ADD_FAILURE() << result.error().to_string();
    return {};
  }
  return *result;
}

std::map<std::string, std::string> constants_of(const KernelPlan& plan) {
  std::map<std::string, std::string> constants;
  for (const ConfigConstant& constant : plan.main().constants)
    constants[constant.name] = constant.value;
  return constants;
}

std::int32_t int_argument(const KernelPlan& plan, const LaunchRecipe& recipe,
                          const std::string& name) {
  for (std::size_t i = 0; i < plan.main().parameters.size(); ++i) {
    if (plan.main().parameters[i].name == name)
      return std::get<std::int32_t>(recipe.args.at(i).value);
  }
  ADD_FAILURE() << name;
  return -1;
}

LaunchRecipe launch_of(const KernelPlan& plan, std::int32_t batch, std::int32_t q_len,
                       std::int32_t kv_len, int sm_count = 148) {
  LaunchShapes shapes;
  shapes.batch = batch;
  shapes.q_len = q_len;
  shapes.kv_len = kv_len;
  DeviceShape device;
  device.sm_count = sm_count;
  Result<LaunchRecipe> recipe = one_launch(plan, shapes, {}, {}, device);
  if (!recipe) {
    ADD_FAILURE() << recipe.error().to_string();
    return {};
  }
  return *recipe;
}

const Deviation* deviation(const KernelPlan& plan, const std::string& name) {
  for (const Deviation& entry : plan.deviations) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

void check_variant(const Sm100Variant& v, const std::string& what) {
  SCOPED_TRACE(what);
  I end = 0;
  for (const Sm100SmemRegion& region : v.smem) {
    EXPECT_GE(region.begin, end) << to_string(region.region);
    EXPECT_GT(region.size, 0) << to_string(region.region);
    EXPECT_EQ(region.begin % region.alignment, 0) << to_string(region.region);
    if (to_string(region.region) == "Q" ||
        to_string(region.region).find("ring") != std::string::npos ||
        to_string(region.region).find("rope") != std::string::npos) {
      EXPECT_GE(region.alignment, 256) << to_string(region.region);
    }
    end = region.begin + region.size;
  }
  EXPECT_EQ(v.smem_bytes, end);
  EXPECT_LE(v.smem_bytes, kSm100SmemBytes);
  // O lies in the tiles' memory and nowhere near the barriers.
  ASSERT_FALSE(v.smem_overlays.empty());
  for (const Sm100SmemRegion& region : v.smem) {
    if (to_string(region.region) != "correction") continue;
    for (const Sm100Overlay& overlay : v.smem_overlays) {
      EXPECT_LE(overlay.begin + overlay.size, region.begin);
    }
  }
  I columns = 0;
  for (const Sm100TmemRange& range : v.tmem) {
    EXPECT_EQ(range.begin, columns) << to_string(range.region);
    columns = range.begin + range.size;
  }
  EXPECT_EQ(v.tmem_used, columns);
  EXPECT_LE(columns, 512);
  EXPECT_LE(columns, v.tmem_allocated);
  EXPECT_TRUE(std::has_single_bit(static_cast<std::uint64_t>(v.tmem_allocated)));
  for (const Sm100Overlay& overlay : v.tmem_overlays) {
    const auto under = std::find_if(v.tmem.begin(), v.tmem.end(), [&](const Sm100TmemRange& range) {
      return overlay.begin >= range.begin &&
             overlay.begin + overlay.size <= range.begin + range.size;
    });
    ASSERT_NE(under, v.tmem.end()) << overlay.name;
    EXPECT_EQ(to_string(under->region)[0], 'S') << overlay.name;
  }
  EXPECT_LE(static_cast<I>(v.barriers.size()), kSm100MaxBarriers);
  std::map<std::string, int> names;
  for (const Sm100BarrierPlan& barrier : v.barriers) {
    EXPECT_EQ(names[barrier.name]++, 0) << barrier.name;
    EXPECT_GE(barrier.arrivals, 1);
  }
  EXPECT_GE(v.num_kv_stages, 2);
  EXPECT_EQ(v.BK0 * v.num_qk_stages, v.padded_qk_depth);
  I keys = 0;
  for (const I part : v.pv_keys) {
    EXPECT_GT(part, 0);
    EXPECT_EQ(part % v.MMA_K, 0);
    keys += part;
  }
  EXPECT_EQ(keys, v.BN);
  EXPECT_GE(v.qk_mma_depth, v.qk_depth);
  EXPECT_LE(v.qk_mma_depth, v.padded_qk_depth);
  for (const Sm100SmemRegion& region : v.smem) {
    if (to_string(region.region) == "K ring") {
      EXPECT_EQ(region.size, v.num_kv_stages * v.k_stage_bytes);
    }
    if (to_string(region.region) == "V ring") {
      EXPECT_EQ(region.size, v.num_kv_stages * v.v_stage_bytes);
    }
    if (to_string(region.region) == "KV ring") {
      EXPECT_EQ(region.size, v.num_kv_stages * std::max(v.k_stage_bytes, v.v_stage_bytes));
    }
  }
}

void check_plan(const KernelPlan& plan, const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_NE(plan.sm100, nullptr);
  const Sm100Plan& p = *plan.sm100;
  ASSERT_FALSE(p.variants.empty());
  I most = 0;
  for (const Sm100Variant& variant : p.variants) {
    check_variant(variant, what);
    most = std::max(most, variant.smem_bytes);
  }
  EXPECT_EQ(p.smem_bytes, most);
  EXPECT_EQ(plan.main().smem_bytes, most);
  EXPECT_EQ(p.variants.size(), p.can_switch_to_1q ? 2U : 1U);
  if (p.can_switch_to_1q) {
    // The two bodies share their tensor maps.
    const Sm100Variant& two = p.variants[0];
    const Sm100Variant& one = p.variants[1];
    EXPECT_EQ(two.num_qo, 2);
    EXPECT_EQ(one.num_qo, 1);
    EXPECT_EQ(two.BN, one.BN);
    EXPECT_EQ(two.BK0, one.BK0);
    EXPECT_EQ(two.q_tile_rows, one.q_tile_rows);
    EXPECT_EQ(two.fuse_gqa, one.fuse_gqa);
    // And what the softmax warps use, whose code they share.
    for (const char* name : {"correction", "tmem address", "barriers"}) {
      const auto region = [&](const Sm100Variant& v) {
        return std::find_if(v.smem.begin(), v.smem.end(),
                            [&](const Sm100SmemRegion& r) { return to_string(r.region) == name; });
      };
      EXPECT_EQ(region(two)->begin, region(one)->begin) << name;
    }
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(two.barriers[i].name, one.barriers[i].name);
  }
  // Every warp has one role, every warpgroup one budget, and the budgets fit the register file.
  std::vector<int> registers(static_cast<std::size_t>(p.threads) / 32, 0);
  for (const Sm100Role& role : p.roles) {
    EXPECT_EQ(role.registers % 8, 0);
    EXPECT_GE(role.registers, 24);
    EXPECT_LE(role.registers, 256);
    for (int warp = role.first_warp; warp < role.first_warp + role.num_warps; ++warp) {
      int& taken = registers.at(static_cast<std::size_t>(warp));
      EXPECT_EQ(taken, 0) << warp;
      taken = role.registers;
    }
  }
  I total = 0;
  for (std::size_t warp = 0; warp < registers.size(); ++warp) {
    EXPECT_GT(registers[warp], 0) << warp;
    EXPECT_EQ(registers[warp], registers[warp / 4 * 4]) << warp;
    total += I{32} * registers[warp];
  }
  EXPECT_LE(total, 65536);
  EXPECT_LE(p.launch_registers * p.threads, 65536);
  for (const Sm100TensorMap& map : p.tensor_maps) {
    ASSERT_EQ(map.axes.size(), map.box.size()) << name_of(map.id);
    EXPECT_LE(map.box.size(), 5U) << name_of(map.id);
    for (const I extent : map.box) {
      EXPECT_GE(extent, 1) << name_of(map.id);
      EXPECT_LE(extent, 256) << name_of(map.id);
    }
    EXPECT_GE(map.copies, 1) << name_of(map.id);
    EXPECT_LE(map.box[0] * size_of(map.dtype), map.swizzle) << name_of(map.id);
    if (std::find(map.axes.begin(), map.axes.end(), MapAxis::kPage) == map.axes.end()) continue;
    // A box is of one page, and whole periods of the swizzle.
    EXPECT_EQ(plan.spec->page_size % map.box[2], 0) << name_of(map.id);
    EXPECT_EQ(map.box[2] % 8, 0) << name_of(map.id);
    if (p.reference != ConfigKind::kDepth512) {
      EXPECT_EQ(p.variants.front().BN % map.box[2], 0) << name_of(map.id);
    }
  }
  std::map<std::string, int> names;
  for (const Deviation& entry : plan.deviations) {
    EXPECT_EQ(names[entry.name]++, 0) << entry.name;
    EXPECT_NE(entry.reference, entry.actual) << entry.name;
    EXPECT_FALSE(entry.reason.empty()) << entry.name;
  }
  names.clear();
  for (const ConfigConstant& constant : plan.main().constants) {
    EXPECT_EQ(names[constant.name]++, 0) << constant.name;
  }
  EXPECT_GE(p.exp2_fma_pairs, 0);
  EXPECT_LE(p.exp2_fma_pairs, p.exp2_pairs);
  if (plan.spec->arch == Arch::kSm103a) {
    EXPECT_EQ(p.exp2_fma_pairs, 0);
  }
}

template <class T>
T pick(std::mt19937& rng, std::initializer_list<T> values) {
  return values.begin()[rng() % values.size()];
}

TEST(Sm100Plan, InvariantsHoldForRandomSpecs) {
  std::mt19937 rng(5);
  int planned = 0;
  int unsupported = 0;
  int supported = 0;
  std::map<std::string, int> references;
  for (int i = 0; i < 3000; ++i) {
    AttentionSpec spec;
    spec.arch = pick(rng, {Arch::kSm100a, Arch::kSm103a});
    spec.group = pick(rng, {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 128});
    spec.num_q_heads = spec.group * static_cast<int>(1 + rng() % 8);
    spec.qkv_dtype = pick(rng, {Dtype::kBf16, Dtype::kFp16, Dtype::kE4m3});
    spec.qk_depth = rng() % 3 == 0 ? static_cast<int>(1 + rng() % 600)
                                   : pick(rng, {64, 72, 80, 96, 112, 128, 128, 160, 192, 256, 512});
    if (rng() % 6 == 0) spec.ov_depth = std::max(8, spec.qk_depth - 64);
    if (rng() % 6 == 0) {
      spec.mla = Mla::kPrefill;
      spec.qk_depth = 192;
      spec.ov_depth = 128;
      if (rng() % 2) spec.rope_dtype = Dtype::kBf16;
      if (spec.qkv_dtype == Dtype::kE4m3 && rng() % 2) spec.scale_dtype = Dtype::kF32;
    }
    if (rng() % 5 == 0) spec.output_dtype = pick(rng, {Dtype::kF32, Dtype::kBf16, Dtype::kE4m3});
    spec.page_size = pick(rng, {0, 0, 0, 1, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 1000});
    spec.ragged = rng() % 2;
    if (spec.page_size == 0) spec.ragged_kv = rng() % 4 == 0;
    if (rng() % 4 == 0) spec.max_q_len = static_cast<int>(1 + rng() % 8);
    if (rng() % 2) spec.num_partitions = pick(rng, {0, 2, 7});
    if (spec.num_partitions == 1 && rng() % 2)
      spec.partition_keys = pick(rng, {64, 192, 320, 4096});
    PlanOptions options;
    if (rng() % 3 == 0) options.num_qo = pick(rng, {1, 2});
    if (rng() % 6 == 0) options.pair_cta = true;
    if (rng() % 6 == 0) options.swizzle_bytes = pick(rng, {32, 64, 128});
    if (!validate(spec, options).empty()) continue;
    const KernelPlan result = plan_of(spec, options);
    EXPECT_EQ(result.supported, result.reason.empty());
    if (result.supported) {
      ++supported;
      EXPECT_FALSE(result.main().constants.empty());
      EXPECT_FALSE(result.main().parameters.empty());
    }
    if (!result.sm100) {
      ++unsupported;
      continue;
    }
    ++planned;
    ++references[std::string(to_string(result.sm100->reference))];
    check_plan(result, spec_to_json(spec, options));
    if (HasFailure()) return;
  }
  EXPECT_GT(planned, 800);
  EXPECT_GT(unsupported, 100);
  EXPECT_GT(supported, 50);
  EXPECT_GT(references["fa4"], 100);
  EXPECT_GT(references["mla"], 100);
  EXPECT_GT(references["depth512"], 50);
}

TEST(Sm100Plan, IsTheReferenceWhereNothingDeviates) {
  const KernelPlan result = plan_of(dense(128));
  const Sm100Variant& v = result.sm100->variants.front();
  EXPECT_EQ(v.BN, 128);
  EXPECT_EQ(v.num_kv_stages, 5);
  EXPECT_TRUE(v.use_fused_kv);
  EXPECT_EQ(v.num_qk_stages, 1);
  EXPECT_EQ(v.tmem_used, 512);
  // 256 x 128 x 2 of Q, 5 slots of 128 x 128 x 2, 512 floats, one address, 30 barriers
  // (of a ring of 6 slots: the body with one query tile has so many).
  EXPECT_EQ(v.smem_bytes, 65536 + 5 * 32768 + 2048 + 8 + 30 * 8);
  EXPECT_EQ(deviation(result, "BN"), nullptr);
  EXPECT_EQ(deviation(result, "num_kv_stages"), nullptr);
  EXPECT_TRUE(result.sm100->can_switch_to_1q);
  EXPECT_EQ(result.main().threads, 512);
  EXPECT_EQ(result.main().launch_registers, 128);
}

TEST(Sm100Plan, BarriersHaveTheReferencesOrderAndOneArrivalAWarp) {
  const KernelPlan result = plan_of(dense(128));
  std::vector<std::pair<std::string, int>> expected{
      {"S0_cons[0]", 8}, {"S0_cons[1]", 4}, {"S1_cons[0]", 8}, {"S1_cons[1]", 4}, {"C0_prod", 4},
      {"C0_cons", 4},    {"C1_prod", 4},    {"C1_cons", 4},    {"S0_prod", 1},    {"S1_prod", 1},
      {"Q0_prod", 1},    {"Q1_prod", 1},    {"Q0_cons", 1},    {"Q1_cons", 1}};
  for (const char* side : {"prod", "cons"}) {
    // The body with one query tile has a sixth slot.
    for (int i = 0; i < 6; ++i) {
      expected.emplace_back("KV_" + std::string(side) + "[" + std::to_string(i) + "]", 1);
    }
  }
  expected.emplace_back("O0_prod", 1);
  expected.emplace_back("O1_prod", 1);
  expected.emplace_back("O0_staged", 4);
  expected.emplace_back("O1_staged", 4);
  ASSERT_EQ(result.main().barriers.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(result.main().barriers[i].name, expected[i].first);
    EXPECT_EQ(result.main().barriers[i].arrivals, expected[i].second) << expected[i].first;
  }
}

// The table of docs/sm100.md: more where the MUFU is the bound, fewer where the tensor cores are.
TEST(Sm100Plan, PolynomialsByWhatBoundsTheLoop) {
  const auto pairs = [](int qk_depth, int ov_depth, Arch arch = Arch::kSm100a) {
    AttentionSpec spec = dense(qk_depth);
    spec.ov_depth = ov_depth;
    spec.arch = arch;
    return plan_of(spec).sm100->exp2_fma_pairs;
  };
  EXPECT_EQ(pairs(64, 64), 12);
  EXPECT_EQ(pairs(96, 96), 12);
  EXPECT_EQ(pairs(112, 112), 8);
  EXPECT_EQ(pairs(128, 128), 8);
  EXPECT_EQ(pairs(192, 128), 4);
  EXPECT_EQ(pairs(192, 192), 2);  // of 32: a tile has 64 keys
  EXPECT_EQ(pairs(64, 64, Arch::kSm103a), 0);
}

TEST(Sm100Plan, Depth64IsLoweredFrom192Keys) {
  const KernelPlan result = plan_of(dense(64));
  const Deviation* bn = deviation(result, "BN");
  ASSERT_NE(bn, nullptr);
  EXPECT_EQ(bn->reference, "192");
  EXPECT_EQ(bn->actual, "128");
  EXPECT_NE(bn->reason.find("spill"), std::string::npos);
  EXPECT_EQ(result.sm100->variants.front().pv_keys, (std::vector<I>{96, 32}));
}

TEST(Sm100Plan, CountsTheRopePartWithoutRopeDtype) {
  AttentionSpec spec = dense(192);
  spec.ov_depth = 128;
  const KernelPlan unset = plan_of(spec);
  const Deviation* stages = deviation(unset, "num_kv_stages");
  ASSERT_NE(stages, nullptr);
  EXPECT_NE(stages->reason.find("rope"), std::string::npos);
  // Q, ring and rope buffers: what is loaded.
  const Sm100Variant& v = unset.sm100->variants.front();
  I k_bytes = 0;
  for (const Sm100SmemRegion& region : v.smem) {
    if (to_string(region.region) == "KV ring" || to_string(region.region) == "K rope")
      k_bytes += region.size;
    if (to_string(region.region) == "K ring" || to_string(region.region) == "V ring")
      k_bytes += region.size;
  }
  const I k_tile = 128 * 192 * 2;
  const I v_tile = 128 * 128 * 2;
  const I k_tiles = v.use_fused_kv ? (v.num_kv_stages + 1) / 2 : v.num_kv_stages;
  const I v_tiles = v.use_fused_kv ? v.num_kv_stages - k_tiles : v.num_kv_stages;
  EXPECT_EQ(k_bytes, k_tiles * k_tile + v_tiles * v_tile);
  // With the default written out it is the same kernel.
  spec.rope_dtype = Dtype::kBf16;
  const KernelPlan set = plan_of(spec);
  EXPECT_EQ(set.main().smem_bytes, unset.main().smem_bytes);
  ASSERT_EQ(set.main().constants.size(), unset.main().constants.size());
  for (std::size_t i = 0; i < set.main().constants.size(); ++i) {
    EXPECT_EQ(set.main().constants[i].value, unset.main().constants[i].value)
        << set.main().constants[i].name;
  }
}

TEST(Sm100Plan, CapsTheStagesAtSixtyFourBarriers) {
  AttentionSpec spec = dense(64, Dtype::kE4m3);
  spec.group = 8;
  spec.page_size = 128;
  const KernelPlan two = plan_of(spec);
  const Deviation* stages = deviation(two, "num_kv_stages");
  ASSERT_NE(stages, nullptr);
  EXPECT_EQ(stages->reference, "13");
  EXPECT_EQ(stages->actual, "11");
  EXPECT_NE(stages->reason.find("barriers"), std::string::npos);
  PlanOptions options;
  options.num_qo = 1;
  const KernelPlan one = plan_of(spec, options);
  ASSERT_NE(deviation(one, "num_kv_stages"), nullptr);
  EXPECT_EQ(deviation(one, "num_kv_stages")->actual, "24");
  EXPECT_LE(one.main().barriers.size(), 64U);
  options.num_qo = 2;
  options.pair_cta = true;
  spec = dense(128, Dtype::kE4m3);
  const KernelPlan pair = plan_of(spec, options);
  EXPECT_LE(pair.main().barriers.size(), 64U);
  EXPECT_EQ(pair.sm100->variants.front().num_qk_stages, 2);
}

TEST(Sm100Plan, OLiesOverQAndWhereItIsWiderOverTheRing) {
  const KernelPlan half = plan_of(dense(128));
  EXPECT_EQ(half.sm100->variants.front().smem_overlays[1].begin, 32768);
  EXPECT_EQ(half.sm100->variants.front().smem_overlays[1].size, 32768);
  EXPECT_EQ(half.main().smem_map[0].size, 65536);
  const KernelPlan fp8 = plan_of(dense(128, Dtype::kE4m3));
  const Sm100Variant& v = fp8.sm100->variants.front();
  EXPECT_EQ(v.smem[0].size, 32768);
  EXPECT_EQ(v.smem_overlays[0].size, 65536);
  EXPECT_TRUE(v.smem[1].region == Sm100Region::kKRing);
  // The first half of O is written while the ring is still read: it must fit Q's memory.
  AttentionSpec wide = dense(128, Dtype::kE4m3);
  wide.output_dtype = Dtype::kF32;
  const KernelPlan beside = plan_of(wide);
  const Sm100Variant& w = beside.sm100->variants.front();
  EXPECT_TRUE(w.smem[1].region == Sm100Region::kOBesideQ);
  EXPECT_EQ(w.smem[0].size + w.smem[1].size, 128 * 128 * 4);
}

TEST(Sm100Plan, PairDoublesTheSoftmaxArrivals) {
  PlanOptions options;
  options.pair_cta = true;
  const KernelPlan result = plan_of(dense(128), options);
  EXPECT_EQ(result.main().cluster, 2);
  EXPECT_EQ(result.main().barriers[0].arrivals, 16);
  EXPECT_EQ(result.main().barriers[1].arrivals, 8);
  EXPECT_FALSE(result.sm100->can_switch_to_1q);
}

TEST(Sm100Plan, OneBudgetAWarpgroup) {
  const KernelPlan result = plan_of(dense(128));
  const Deviation* spare = deviation(result, "registers of the spare warps");
  ASSERT_NE(spare, nullptr);
  EXPECT_EQ(spare->reference, "24");
  EXPECT_EQ(spare->actual, "48");
  AttentionSpec mla = dense(192);
  mla.ov_depth = 128;
  mla.mla = Mla::kPrefill;
  EXPECT_EQ(plan_of(mla).sm100->roles.front().registers, 192);
}

TEST(Sm100Plan, Sm103NeedsNoExp2Emulation) {
  AttentionSpec spec = dense(128);
  EXPECT_EQ(plan_of(spec).sm100->exp2_fma_pairs, 8);
  spec.arch = Arch::kSm103a;
  const KernelPlan result = plan_of(spec);
  EXPECT_EQ(result.sm100->exp2_fma_pairs, 0);
  EXPECT_TRUE(result.supported) << result.reason;
}

TEST(Sm100Plan, ColumnsComeInBatchesOf32) {
  AttentionSpec spec = dense(144);
  PlanOptions options;
  options.swizzle_bytes = 32;  // padded to 144: the reference has 112 keys
  const KernelPlan result = plan_of(spec, options);
  ASSERT_NE(deviation(result, "BN"), nullptr);
  EXPECT_EQ(deviation(result, "BN")->reference, "112");
  EXPECT_EQ(deviation(result, "BN")->actual, "96");
}

TEST(Sm100Plan, ALoweredTileFitsThePages) {
  for (const auto& [page, keys] :
       {std::pair{192, 96}, {96, 96}, {48, 96}, {64, 128}, {256, 128}, {32, 128}, {384, 128}}) {
    AttentionSpec spec = dense(64);
    spec.page_size = page;
    const KernelPlan result = plan_of(spec);
    ASSERT_NE(result.sm100, nullptr) << page << ": " << result.reason;
    EXPECT_EQ(result.sm100->variants.front().BN, keys) << page;
  }
}

// The largest box of one page where a tile is no whole pages; none where that is not whole periods
// of the swizzle.
TEST(Sm100Plan, PagesOfAnyNumberOfRows) {
  for (const auto& [page, keys, box] : {std::tuple{8, 128, 8},
                                        {24, 96, 24},
                                        {40, 128, 8},
                                        {80, 128, 16},
                                        {1, 128, 0},
                                        {20, 128, 0}}) {
    AttentionSpec spec = dense(64);
    spec.page_size = page;
    const KernelPlan result = plan_of(spec);
    ASSERT_TRUE(result.supported) << page << ": " << result.reason;
    EXPECT_EQ(result.sm100->variants.front().BN, keys) << page;
    EXPECT_EQ(constants_of(result).at("kBoxRows"), std::to_string(box)) << page;
    EXPECT_EQ(result.sm100->row_copies, box == 0) << page;
    for (const BarrierPlan& barrier : result.main().barriers) {
      // "K_prod[0]", "V_prod[0]" or, in one ring, "KV_prod[0]".
      if ((barrier.name[0] == 'K' || barrier.name[0] == 'V') &&
          barrier.name.find("_prod") != std::string::npos) {
        EXPECT_EQ(barrier.arrivals, box == 0 ? 32 : 1);
      }
      EXPECT_TRUE(barrier.name != "tail_prod" || box > 0) << page;
    }
  }
}

TEST(Sm100Plan, FewRowsOfAnyGroupShareATile) {
  for (const auto& [group, max_q_len, positions] :
       {std::tuple{6, 4, 21}, {12, 10, 10}, {71, 1, 1}, {10, 8, 12}, {8, 16, 16}}) {
    AttentionSpec spec = dense(128);
    spec.num_q_heads = 2 * group;
    spec.group = group;
    spec.max_q_len = max_q_len;
    const KernelPlan result = plan_of(spec);
    ASSERT_TRUE(result.supported) << result.reason;
    for (const Sm100Variant& body : result.sm100->variants) {
      EXPECT_TRUE(body.fuse_gqa) << group;
      EXPECT_EQ(body.BM_eff, body.num_qo * positions) << group;
    }
    const Sm100TensorMap& q = result.sm100->tensor_maps.at(0);
    EXPECT_EQ(q.box, (std::vector<I>{64, group, 1, positions, 1}));
    EXPECT_EQ(launch_of(result, 3, max_q_len, 1000).grid[0], 3U * 2);
    check_plan(result, spec_to_json(spec));
  }
  // One row more is no decode.
  AttentionSpec spec = dense(128);
  spec.num_q_heads = spec.group = 6;
  spec.max_q_len = 22;
  EXPECT_FALSE(plan_of(spec).sm100->variants.front().fuse_gqa);
}

TEST(Sm100Plan, PagesThatTheReferenceSplitsGetWholeTiles) {
  AttentionSpec spec = dense(128);
  spec.page_size = 48;  // the reference takes 128 keys: two pages and two thirds
  const KernelPlan result = plan_of(spec);
  const Deviation* bn = deviation(result, "BN");
  ASSERT_NE(bn, nullptr);
  EXPECT_EQ(bn->actual, "96");
  EXPECT_EQ(bn->reason, "96 keys fit pages of 48, 128 do not");
}

TEST(Sm100Plan, SaysWhyItServesASpecNot) {
  struct Case {
    AttentionSpec spec;
    std::string part;
  };
  std::vector<Case> cases;
  cases.push_back({dense(32), "qk_depth is 32"});
  cases.push_back({dense(65), "16 bytes"});
  cases.push_back({dense(72, Dtype::kE4m3), "16 bytes"});
  cases.push_back({dense(240), "tensor memory"});
  cases.push_back({dense(1024), "tensor memory"});
  AttentionSpec decode = dense(576);
  decode.ov_depth = 512;
  decode.mla = Mla::kDecode;
  cases.push_back({decode, "decode"});
  AttentionSpec inverse = dense(64);
  inverse.ov_depth = 128;
  cases.push_back({inverse, "ov_depth 128"});
  for (const Case& c : cases) {
    const KernelPlan result = plan_of(c.spec);
    EXPECT_FALSE(result.supported);
    EXPECT_EQ(result.sm100, nullptr) << c.part;
    EXPECT_NE(result.reason.find(c.part), std::string::npos) << result.reason;
  }
}

TEST(Sm100Plan, Depth512) {
  for (const int depth : {256, 512}) {
    const KernelPlan result = plan_of(dense(depth));
    ASSERT_NE(result.sm100, nullptr);
    EXPECT_EQ(result.sm100->reference, ConfigKind::kDepth512);
    EXPECT_EQ(result.main().threads, 384);
    EXPECT_EQ(result.main().cluster, 2);
    check_plan(result, std::to_string(depth));
  }
}

// Parts of the keys are work for SMs that have none; few parts, because each costs a merge.
TEST(Sm100Launch, PartitionsFillTheSms) {
  AttentionSpec spec = dense(128);
  spec.group = 4;
  spec.page_size = 64;
  spec.num_partitions = 0;
  const auto partitions = [&](int batch, int kv_len, int q_len = 1) {
    LaunchShapes shapes;
    shapes.batch = batch;
    shapes.q_len = q_len;
    shapes.kv_len = kv_len;
    return sm100_partitions(plan_of(spec), shapes, {.sm_count = 148});
  };
  // 8 tiles a sequence.
  EXPECT_EQ(partitions(1, 128), 1);
  EXPECT_EQ(partitions(1, 0), 1);
  EXPECT_EQ(partitions(256, 8192), 1);
  EXPECT_GE(partitions(1, 32768), 12);
  EXPECT_LE(partitions(1, 32768), 18);
  EXPECT_EQ(partitions(1 << 30, 1 << 30, 1 << 20), 1);
  spec.num_partitions = 7;
  EXPECT_EQ(partitions(256, 8192), 7);
  spec.num_partitions = 1;
  EXPECT_EQ(partitions(1, 32768), 1);
}

// A CTA per SM finds its parts itself.
TEST(Sm100Launch, PartitionsAreWorkTilesAndWorkspace) {
  AttentionSpec spec = dense(128);
  spec.num_partitions = 3;
  spec.sink = true;
  const KernelPlan plan = plan_of(spec);
  ASSERT_EQ(plan.kernels.size(), 2U);
  EXPECT_TRUE(plan.main().overlaps);
  LaunchShapes shapes;
  shapes.batch = 2;
  shapes.q_len = 5;
  shapes.kv_len = 100;
  for (const int sm_count : {148, 1000}) {
    const Result<LaunchSequence> sequence =
        plan_launch(plan, shapes, {}, {}, {.sm_count = sm_count});
    ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
    ASSERT_EQ(sequence->launches.size(), 2U);
    EXPECT_EQ(sequence->launches[0].grid[0],
              std::min(2U * 32 * 3, static_cast<unsigned>(sm_count)));
    EXPECT_EQ(int_argument(plan, sequence->launches[0], "partitions"), 3);
    ASSERT_EQ(sequence->workspaces.size(), 2U);
    EXPECT_EQ(sequence->workspaces[0].bytes, 3 * (2 * 5 * 32) * 128 * 4);
    EXPECT_EQ(sequence->workspaces[1].bytes, 3 * (2 * 5 * 32) * 4);
  }
  // 2^17 x 32 x 128 tiles fit, and three times as many do not.
  shapes.batch = 1 << 17;
  shapes.q_len = 1 << 15;
  const Result<LaunchSequence> many = plan_launch(plan, shapes, {}, {});
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().field, "batch");
}

// A row's bits are its own: every work tile has two query tiles, a warpgroup each.
TEST(Sm100Launch, PartitionsOfFixedKeysAreWholeTiles) {
  for (const auto& [depth, keys, tile] :
       {std::tuple{128, 512, 128}, {128, 192, 96}, {64, 64, 64}, {192, 320, 64}, {64, 320, 64}}) {
    SCOPED_TRACE(keys);
    AttentionSpec spec = dense(depth);
    spec.partition_keys = keys;
    const KernelPlan plan = plan_of(spec);
    ASSERT_TRUE(plan.supported) << plan.reason;
    EXPECT_EQ(plan.sm100->variants.front().BN, tile);
    EXPECT_EQ(plan.sm100->variants.front().num_qo, 2);
    EXPECT_FALSE(plan.sm100->can_switch_to_1q);
    EXPECT_EQ(constants_of(plan).at("kPartitionTiles"), std::to_string(keys / tile));
    LaunchShapes shapes;
    shapes.q_len = 1;
    shapes.kv_len = 2 * keys + 1;
    EXPECT_EQ(sm100_partitions(plan, shapes, {.sm_count = 1}), 3);
    shapes.kv_len = 0;
    EXPECT_EQ(sm100_partitions(plan, shapes, {}), 1);
  }
  AttentionSpec spec = dense(128);
  spec.partition_keys = 100;
  EXPECT_NE(plan_of(spec).reason.find("multiples of 64"), std::string::npos);
  spec.partition_keys = 128;
  PlanOptions one;
  one.num_qo = 1;
  EXPECT_NE(plan_of(spec, one).reason.find("num_qo is 1"), std::string::npos);
}

TEST(Sm100Launch, ShortOrFewPromptsTakeOneQueryTile) {
  const KernelPlan plan = plan_of(dense(128));  // 32 heads
  struct {
    std::int32_t batch, q_len, one_query, m_tiles;
  } const cases[] = {{8, 128, 1, 1},   // a tile's rows
                     {8, 129, 0, 1},   // 256 tiles of 256 rows
                     {1, 512, 1, 4},   // 64 tiles of 256 rows: less than half of 148 SMs
                     {1, 513, 0, 3},   // 96
                     {2, 512, 0, 2}};  // 128
  for (const auto& c : cases) {
    const LaunchRecipe recipe = launch_of(plan, c.batch, c.q_len, 1000);
    EXPECT_EQ(int_argument(plan, recipe, "one_query"), c.one_query) << c.batch << " " << c.q_len;
    EXPECT_EQ(int_argument(plan, recipe, "m_tiles"), c.m_tiles) << c.batch << " " << c.q_len;
    EXPECT_EQ(int_argument(plan, recipe, "total_tiles"), c.m_tiles * 32 * c.batch);
  }
  PlanOptions one;
  one.num_qo = 1;
  const KernelPlan one_tile = plan_of(dense(128), one);
  for (const KernelParameter& parameter : one_tile.main().parameters) {
    EXPECT_NE(parameter.name, "one_query");
  }
}

TEST(Sm100Launch, FusedHeadsShareATile) {
  AttentionSpec spec = dense(128);
  spec.group = 8;
  const KernelPlan plan = plan_of(spec);
  const LaunchRecipe recipe = launch_of(plan, 3, 100, 1000);
  EXPECT_EQ(int_argument(plan, recipe, "total_heads"), 3 * 4);
  EXPECT_EQ(int_argument(plan, recipe, "m_tiles"), 7);  // of 16 positions: 12 tiles of 32 are few
  const TensorMapDescription& q = recipe.tensor_maps.at(0);
  EXPECT_EQ(q.dims, (std::vector<std::uint64_t>{128, 8, 4, 100, 3}));
  EXPECT_EQ(q.strides, (std::vector<std::uint64_t>{256, 2048, 8192, 819200}));
  EXPECT_EQ(q.box, (std::vector<std::uint32_t>{64, 8, 1, 16, 1}));
}

TEST(Sm100Launch, CausalTilesComeOneACtaAndHeadsInSections) {
  AttentionSpec spec = dense(128);
  const KernelPlan null_plan = plan_of(spec);
  EXPECT_EQ(launch_of(null_plan, 1, 8192, 8192).grid[0], 148U);
  spec.mask.kind = MaskSpec::Kind::kCausal;
  const KernelPlan plan = plan_of(spec);
  const LaunchRecipe recipe = launch_of(plan, 1, 8192, 8192);
  EXPECT_EQ(recipe.grid[0], 32U * 32U);
  // 8192 keys are 4 MiB a head: twelve heads, eight as a power of two.
  EXPECT_EQ(int_argument(plan, recipe, "section_heads"), 8);
  EXPECT_EQ(int_argument(plan, launch_of(plan, 1, 300, 0), "section_heads"), 32);
}

TEST(Sm100Launch, PagesAreATensorOfTheirOwn) {
  AttentionSpec spec = dense(128);
  spec.group = 4;
  spec.page_size = 16;
  const KernelPlan plan = plan_of(spec);
  LaunchShapes shapes;
  shapes.batch = 3;
  shapes.q_len = 1;
  shapes.kv_len = 1000;
  shapes.num_pages = 77;
  shapes.max_pages = 63;
  const auto recipe = one_launch(plan, shapes, {}, {}, {});
  ASSERT_TRUE(recipe) << recipe.error().to_string();
  const TensorMapDescription& k = recipe->tensor_maps.at(1);
  EXPECT_EQ(k.dims, (std::vector<std::uint64_t>{128, 8, 16, 77}));
  EXPECT_EQ(k.strides, (std::vector<std::uint64_t>{256, 2048, 32768}));
  EXPECT_EQ(k.box, (std::vector<std::uint32_t>{64, 1, 16, 1}));
  EXPECT_EQ(int_argument(plan, *recipe, "max_pages"), 63);
  EXPECT_EQ(int_argument(plan, *recipe, "one_query"), 1);
  // Sequences differ in length: no CTA has a second tile.
  EXPECT_EQ(recipe->grid[0], 3U * 8U);
  shapes.max_pages = 62;
  const auto few = one_launch(plan, shapes, {}, {}, {});
  ASSERT_FALSE(few);
  EXPECT_EQ(few.error().field, "max_pages");
}

TEST(Sm100Launch, ARaggedBatchHasNoMoreTilesThanItsRowsFill) {
  AttentionSpec spec = dense(128);
  spec.ragged = true;
  const KernelPlan plan = plan_of(spec);
  LaunchShapes shapes;
  shapes.batch = 100;
  shapes.q_len = 4096;
  shapes.kv_len = 4096;
  shapes.total_q = 4096 + 99;  // a prompt among decodes
  const auto recipe = one_launch(plan, shapes, {}, {}, {});
  ASSERT_TRUE(recipe) << recipe.error().to_string();
  // 16 tiles of 256 rows and 99 of one: a sequence wastes 255 rows at most.
  const std::int64_t bound = (shapes.total_q + 100 * 255) / 256;
  EXPECT_EQ(bound, 115);
  EXPECT_EQ(recipe->grid[0], 32U * bound);
  EXPECT_EQ(recipe->tensor_maps.at(0).dims, (std::vector<std::uint64_t>{128, 32, 4195}));
  EXPECT_EQ(recipe->tensor_maps.at(1).dims, (std::vector<std::uint64_t>{128, 32, 4096, 100}));
  for (const std::int32_t wrong : {0, 4095, 409601}) {
    shapes.total_q = wrong;
    const auto bad = one_launch(plan, shapes, {}, {}, {});
    ASSERT_FALSE(bad) << wrong;
    EXPECT_EQ(bad.error().field, "total_q");
  }
  shapes.q_len = shapes.total_q = 0;
  const auto none = one_launch(plan, shapes, {}, {}, {});
  ASSERT_TRUE(none);
  EXPECT_EQ(none->grid[0], 0U);
}

TEST(Sm100Launch, NothingToDoIsAnEmptyGrid) {
  const KernelPlan plan = plan_of(dense(64));
  EXPECT_EQ(launch_of(plan, 0, 5, 5).grid[0], 0U);
  EXPECT_EQ(launch_of(plan, 1, 0, 5).grid[0], 0U);
}

// --- tuning ----------------------------------------------------------------------------------

Tuning tuning_of(const std::string& choose, const std::string& match = R"({"qk_depth": 64})") {
  const auto result =
      tuning_from_json(R"({"rows": [{"match": )" + match + R"(, "choose": )" + choose + "}]}");
  if (!result) {
    ADD_FAILURE() << result.error().to_string();
    return {};
  }
  return *result;
}

TEST(Tuning, AMatchingRowIsTaken) {
  const Tuning tuning = tuning_of(R"({"BN": 160, "exp2_fma_pairs": 8, "softmax_registers": 184})");
  const KernelPlan result = plan_of(dense(64), {}, &tuning);
  EXPECT_EQ(result.sm100->variants.front().BN, 160);
  EXPECT_EQ(result.sm100->variants.front().pv_keys, (std::vector<I>{80, 80}));
  EXPECT_EQ(result.sm100->exp2_fma_pairs, 8);
  EXPECT_EQ(result.sm100->roles.front().registers, 184);
  ASSERT_NE(deviation(result, "BN"), nullptr);
  EXPECT_EQ(deviation(result, "BN")->reason, "tuned");
  check_plan(result, "tuned");
  EXPECT_EQ(plan_of(dense(128), {}, &tuning).sm100->variants.front().num_kv_stages, 5);
}

TEST(Tuning, StagesAndRings) {
  const Tuning tuning = tuning_of(R"({"num_kv_stages": 4, "use_fused_kv": true})", "{}");
  const KernelPlan result = plan_of(dense(128), {}, &tuning);
  EXPECT_EQ(result.sm100->variants.front().num_kv_stages, 4);
  EXPECT_TRUE(result.sm100->variants.front().use_fused_kv);
  check_plan(result, "tuned");
}

TEST(Tuning, TheMostSpecificRowWins) {
  const auto tuning = tuning_from_json(R"({"name": "t", "rows": [
      {"choose": {"exp2_fma_pairs": 1}},
      {"match": {"qk_depth": 128, "qkv_dtype": "bf16"}, "choose": {"exp2_fma_pairs": 2}},
      {"match": {"qk_depth": 128}, "choose": {"exp2_fma_pairs": 3}},
      {"match": {"arch": "sm_103a", "mask": "causal", "sink": true},
       "choose": {"exp2_fma_pairs": 4}}]})");
  ASSERT_TRUE(tuning) << tuning.error().to_string();
  EXPECT_EQ(plan_of(dense(64), {}, &*tuning).sm100->exp2_fma_pairs, 1);
  EXPECT_EQ(plan_of(dense(128), {}, &*tuning).sm100->exp2_fma_pairs, 2);
  EXPECT_EQ(plan_of(dense(128, Dtype::kFp16), {}, &*tuning).sm100->exp2_fma_pairs, 3);
  AttentionSpec spec = dense(128);
  spec.arch = Arch::kSm103a;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  spec.sink = true;
  EXPECT_EQ(plan_of(spec, {}, &*tuning).sm100->exp2_fma_pairs, 4);
}

TEST(Tuning, IllegalChoicesAreErrors) {
  for (const char* choose :
       {R"({"BN": 192})", R"({"BN": 100})", R"({"BN": 0})", R"({"num_kv_stages": 40})",
        R"({"num_kv_stages": 1})", R"({"use_fused_kv": 2})", R"({"num_qk_stages": 7})",
        R"({"softmax_registers": 200})", R"({"softmax_registers": 190})",
        R"({"other_registers": 16})", R"({"exp2_fma_pairs": 65})", R"({"exp2_fma_pairs": -1})",
        R"({"bn": 128})", R"({"num_stages": 2})"}) {
    const Tuning tuning = tuning_of(choose);
    const Result<KernelPlan> result = plan(dense(64), {}, &tuning);
    ASSERT_FALSE(result) << choose;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalid) << choose;
    EXPECT_EQ(result.error().field.rfind("tuning.", 0), 0U) << result.error().to_string();
    // A spec that the row does not match is not concerned.
    EXPECT_TRUE(plan(dense(128), {}, &tuning)) << choose;
  }
  AttentionSpec split = dense(64);
  split.partition_keys = 128;
  const Tuning tuning = tuning_of(R"({"BN": 96})");
  EXPECT_FALSE(plan(split, {}, &tuning));
  split.partition_keys = 192;
  EXPECT_TRUE(plan(split, {}, &tuning));
}

TEST(Tuning, MalformedTablesAreErrors) {
  for (const char* text : {"",
                           "{",
                           "[]",
                           "{}",
                           R"({"rows": 1})",
                           R"({"rows": [1]})",
                           R"({"rows": [{}]})",
                           R"({"rows": [{"choose": {}}]})",
                           R"({"rows": [{"choose": {"BN": "x"}}]})",
                           R"({"rows": [{"choose": {"BN": 1.5}}]})",
                           R"({"rows": [{"choose": {"BN": 18446744073709551615}}]})",
                           R"({"rows": [{"match": {"depth": 64}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": {"qk_depth": "64"}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": {"qk_depth": 0}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": {"qk_depth": 1e3}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": {"arch": "sm_80"}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": {"mask": "diagonal"}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": {"qkv_dtype": "f32"}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": {"num_qo": 2}, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"match": 3, "choose": {"BN": 128}}]})",
                           R"({"rows": [{"choice": {"BN": 128}}]})",
                           R"({"rows": [], "other": 1})",
                           R"({"rows": [[[[[[[[[[[[]]]]]]]]]]]]})"}) {
    const Result<Tuning> result = tuning_from_json(text);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalid) << text;
  }
  const Result<Tuning> two =
      tuning_from_json(R"({"rows": [{"match": {"depth": 1}, "choose": {"BN": "x"}}]})");
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().others.size(), 1U);
}

}  // namespace
}  // namespace attnjit

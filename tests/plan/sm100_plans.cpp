// SPDX-License-Identifier: Apache-2.0
// What holds of every plan for sm_100a and sm_103a.
#include "sm100_plans.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "../one_launch.h"
#include "plan/kernel/signature.h"

namespace attnjit::plan_test {
namespace {

using I = std::int64_t;

void check_variant(const Sm100Variant& v, const std::string& what) {
  SCOPED_TRACE(what);
  I end = 0;
  for (const PlacedRegion& region : v.smem) {
    EXPECT_GE(region.begin, end) << region.name;
    EXPECT_GT(region.size, 0) << region.name;
    EXPECT_EQ(region.begin % region.alignment, 0) << region.name;
    if (region.name == "Q" || region.name.find("ring") != std::string::npos ||
        region.name.find("rope") != std::string::npos) {
      EXPECT_GE(region.alignment, 256) << region.name;
    }
    end = region.begin + region.size;
  }
  EXPECT_EQ(v.smem_bytes(), end);
  EXPECT_LE(v.smem_bytes(), kSm100SmemBytes);
  // O has buffers, or lies in the tiles' memory and nowhere near the barriers.
  EXPECT_EQ(v.smem_overlays.empty(), v.num_o_buffers > 0);
  for (const PlacedRegion& region : v.smem) {
    if (region.name != "correction") continue;
    for (const Sm100Overlay& overlay : v.smem_overlays) {
      EXPECT_LE(overlay.begin + overlay.size, region.begin);
    }
  }
  I columns = 0;
  for (const PlacedRegion& range : v.tmem) {
    EXPECT_EQ(range.begin, columns) << range.name;
    columns = range.begin + range.size;
  }
  EXPECT_EQ(v.tmem_used(), columns);
  EXPECT_LE(columns, 512);
  EXPECT_LE(columns, v.tmem_allocated());
  EXPECT_TRUE(std::has_single_bit(static_cast<std::uint64_t>(v.tmem_allocated())));
  for (const Sm100Overlay& overlay : v.tmem_overlays) {
    const auto under = std::find_if(v.tmem.begin(), v.tmem.end(), [&](const PlacedRegion& range) {
      return overlay.begin >= range.begin &&
             overlay.begin + overlay.size <= range.begin + range.size;
    });
    ASSERT_NE(under, v.tmem.end()) << overlay.name;
    EXPECT_EQ(under->name[0], 'S') << overlay.name;
  }
  EXPECT_LE(v.barriers.size(), kSm100MaxBarriers);
  std::map<std::string, int> names;
  for (const BarrierPlan& barrier : v.barriers.all()) {
    EXPECT_EQ(names[barrier.name]++, 0) << barrier.name;
    EXPECT_GE(barrier.arrivals, 1);
  }
  EXPECT_GE(v.num_kv_stages, 2);
  EXPECT_EQ(v.BK0() * v.num_qk_stages, v.padded_qk_depth);
  I keys = 0;
  for (const I part : v.pv_keys) {
    EXPECT_GT(part, 0);
    EXPECT_EQ(part % v.MMA_K, 0);
    keys += part;
  }
  EXPECT_EQ(keys, v.BN);
  EXPECT_GE(v.qk_mma_depth, v.qk_depth);
  EXPECT_LE(v.qk_mma_depth, v.padded_qk_depth);
  for (const PlacedRegion& region : v.smem) {
    if (region.name == "K ring") {
      EXPECT_EQ(region.size, v.num_kv_stages * v.k_stage_bytes);
    }
    if (region.name == "V ring") {
      EXPECT_EQ(region.size, v.num_kv_stages * v.v_stage_bytes);
    }
    if (region.name == "KV ring") {
      EXPECT_EQ(region.size, v.num_kv_stages * std::max(v.k_stage_bytes, v.v_stage_bytes));
    }
  }
}

}  // namespace

LaunchRecipe launch_of(const KernelPlan& plan, std::int32_t batch, std::int32_t q_len,
                       std::int32_t kv_len, int sm_count) {
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

void check_plan(const KernelPlan& plan, const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_NE(plan.sm100, nullptr);
  const Sm100Plan& p = *plan.sm100;
  ASSERT_FALSE(p.variants.empty());
  I most = 0;
  for (const Sm100Variant& variant : p.variants) {
    check_variant(variant, what);
    most = std::max(most, variant.smem_bytes());
  }
  EXPECT_EQ(p.smem_bytes(), most);
  EXPECT_EQ(plan.main().smem_bytes, most);
  EXPECT_EQ(p.variants.size(), p.can_switch_to_1q ? 2U : 1U);
  if (p.can_switch_to_1q) {
    // The two bodies share their tensor maps.
    const Sm100Variant& two = p.variants[0];
    const Sm100Variant& one = p.variants[1];
    EXPECT_EQ(two.num_qo, 2);
    EXPECT_EQ(one.num_qo, 1);
    EXPECT_EQ(two.BN, one.BN);
    EXPECT_EQ(two.BK0(), one.BK0());
    EXPECT_EQ(two.q_tile_rows(), one.q_tile_rows());
    EXPECT_EQ(two.fuse_gqa, one.fuse_gqa);
    // And what the softmax warps use, whose code they share.
    for (const char* name : {"correction", "tmem address", "barriers"}) {
      const auto region = [&](const Sm100Variant& v) {
        return std::find_if(v.smem.begin(), v.smem.end(),
                            [&](const PlacedRegion& r) { return r.name == name; });
      };
      EXPECT_EQ(region(two)->begin, region(one)->begin) << name;
    }
    for (std::size_t i = 0; i < 10; ++i)
      EXPECT_EQ(two.barriers.all()[i].name, one.barriers.all()[i].name);
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
  EXPECT_LE(launch_registers(p.threads) * p.threads, 65536);
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
    EXPECT_EQ(p.variants.front().BN % map.box[2], 0) << name_of(map.id);
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

}  // namespace attnjit::plan_test

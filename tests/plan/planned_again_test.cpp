// SPDX-License-Identifier: Apache-2.0
// Launches that are planned into the memory of others of the same plan are those of plan_launch.
#include <random>
#include <string>
#include <vector>

#include "plan/plan_launch.h"
#include "planned.h"

namespace attnjit {
namespace {

using plan_test::plan_of;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  /// Small numbers as often as large ones.
  std::int32_t up_to(std::int32_t most) {
    const std::int32_t limit =
        std::uniform_int_distribution<std::int32_t>(0, 3)(engine_) == 0 ? most : std::min(most, 40);
    return std::uniform_int_distribution<std::int32_t>(0, limit)(engine_);
  }
  bool coin() { return up_to(1) == 1; }

 private:
  std::mt19937 engine_;
};

struct Case {
  const char* name;
  void (*change)(AttentionSpec&);
};
constexpr Case kCases[] = {
    {"dense", [](AttentionSpec&) {}},
    {"causal", [](AttentionSpec& spec) { spec.mask.kind = MaskSpec::Kind::kCausal; }},
    {"window", [](AttentionSpec& spec) { spec.mask.kind = MaskSpec::Kind::kSlidingWindow; }},
    {"split as the launch chooses", [](AttentionSpec& spec) { spec.num_partitions = 0; }},
    {"split in fixed parts",
     [](AttentionSpec& spec) {
       spec.partition_keys = 128;
       spec.sink = spec.return_lse = true;
     }},
    {"accumulates", [](AttentionSpec& spec) { spec.accumulate = spec.return_lse = true; }},
    {"pages",
     [](AttentionSpec& spec) {
       spec.page_size = 16;
       spec.ragged = true;
       spec.num_partitions = 0;
     }},
    {"pages row by row",
     [](AttentionSpec& spec) {
       spec.page_size = 1;
       spec.max_q_len = 4;
       spec.num_partitions = 0;
     }},
    {"ragged keys",
     [](AttentionSpec& spec) {
       spec.ragged = spec.ragged_kv = true;
       spec.return_lse = true;
     }},
    {"arrays",
     [](AttentionSpec& spec) {
       spec.mask.kind = MaskSpec::Kind::kCustom;
       spec.mask.custom.name = "documents";
       spec.mask.custom.code = "p.first[q_idx] <= kv_idx + p.shift";
       spec.mask.custom.params = {{"first", ParamSpec::Type::kI32Array},
                                  {"shift", ParamSpec::Type::kI32}};
       spec.num_partitions = 0;
     }},
    {"a materialized mask",
     [](AttentionSpec& spec) {
       spec.mask.kind = MaskSpec::Kind::kMaterialized;
       spec.mask.dtype = Dtype::kU8;
     }},
    {"absorbed MLA",
     [](AttentionSpec& spec) {
       spec.mla = Mla::kDecode;
       spec.group = spec.num_q_heads = 16;
       spec.qk_depth = 576;
       spec.ov_depth = 512;
       spec.page_size = 64;
       spec.num_partitions = 0;
     }},
    {"merge", [](AttentionSpec& spec) { spec.merge = true; }},
};

LaunchShapes random_shapes(const AttentionSpec& spec, Random& random) {
  LaunchShapes shapes;
  shapes.batch = random.up_to(5);
  shapes.q_len = random.up_to(spec.max_q_len > 0 ? spec.max_q_len + 1 : 3000);
  shapes.kv_len = random.up_to(20000);
  shapes.total_q = shapes.batch * shapes.q_len - (random.coin() ? 1 : 0);
  shapes.total_kv = shapes.batch * shapes.kv_len;
  shapes.num_pages = 4000;
  shapes.max_pages = spec.page_size > 0 ? shapes.kv_len / spec.page_size + 1 : 0;
  shapes.num_pairs = random.up_to(4);
  if (random.coin()) {
    shapes.k = {.batch = 1 << 20, .row = 1 << 10, .head = 8 * (17 + random.up_to(3))};
    if (random.coin()) shapes.k.head = kStrideZero;
  }
  if (random.coin()) shapes.mask_batch = shapes.mask_heads = 1;
  if (spec.mask.kind == MaskSpec::Kind::kMaterialized && random.coin()) {
    shapes.mask_map.use = random.coin() ? MaskMapUse::kRead : MaskMapUse::kWrite;
    shapes.mask_map.no_full = random.coin();
  }
  return shapes;
}

TEST(PlannedAgain, IsAsPlannedAgain) {
  constexpr int kRounds = 200;
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    for (const Case& one : kCases) {
      SCOPED_TRACE(std::string(one.name) + " " + std::string(to_string(arch)));
      AttentionSpec spec;
      spec.arch = arch;
      spec.num_q_heads = 8;
      spec.group = 2;
      spec.qk_depth = 128;
      one.change(spec);
      const KernelPlan plan = plan_of(spec);
      ASSERT_TRUE(plan.supported) << plan.reason;
      Random random(7);
      LaunchSequence used;
      int planned = 0;
      for (int round = 0; round < kRounds; ++round) {
        const LaunchShapes shapes = random_shapes(spec, random);
        LaunchScalars scalars;
        scalars.scale = random.coin() ? 0.125F : 0;
        if (spec.mask.kind == MaskSpec::Kind::kSlidingWindow)
          scalars.values = {1.0 + random.up_to(9)};
        std::vector<UserParamShape> params(2);
        params[0].name = "first";
        params[0].extent = {random.up_to(2), 0, 0};
        params[1].name = "shift";
        params[1].scalar = random.up_to(9);
        const DeviceShape device{.sm_count = 1 + random.up_to(200)};
        const auto fresh = plan_launch(plan, shapes, scalars, params, device);
        const Status again = plan_launch_into(plan, shapes, scalars, params, device, used);
        ASSERT_EQ(again.ok(), fresh.ok()) << round;
        if (!again) {
          EXPECT_EQ(again.error().to_string(), fresh.error().to_string());
          continue;
        }
        ++planned;
        ASSERT_TRUE(used == *fresh) << round;
      }
      EXPECT_GE(planned, kRounds / 4);
    }
  }
}

}  // namespace
}  // namespace attnjit

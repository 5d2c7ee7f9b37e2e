// SPDX-License-Identifier: Apache-2.0
// The kernels and workspaces of plans: each has its own meaning, and is found by it.
#include "plan/kernel/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "planned.h"

namespace attnjit {
namespace {

using plan_test::plan_of;

/// A plan of as many kernels and workspaces as there are: a map of its mask, and partitions.
KernelPlan plan_of_everything(Arch arch) {
  AttentionSpec spec;
  spec.arch = arch;
  spec.num_q_heads = 8;
  spec.group = 4;
  spec.qk_depth = 128;
  spec.num_partitions = 2;
  spec.mask.kind = MaskSpec::Kind::kCustom;
  spec.mask.custom.name = "m";
  spec.mask.custom.code = "p.doc[q_idx] == p.doc[kv_idx]";
  spec.mask.custom.params = {{"doc", ParamSpec::Type::kI32Array}};
  return plan_of(spec);
}

// The names are those of LAUNCH.json and of a plan's JSON, which others read.
TEST(Sequence, WorkspacesHaveTheirNames) {
  std::vector<std::string> names;
  for (int i = 0; i < static_cast<int>(WorkspaceId::kCount); ++i) {
    const auto id = static_cast<WorkspaceId>(i);
    names.emplace_back(name_of(id));
    EXPECT_EQ(is_zeroed(id), id == WorkspaceId::kTileCounters || id == WorkspaceId::kWaitRecords)
        << names.back();
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "tile_counters", "partial_o", "partial_lse", "map_kv_num_blocks", "map_kv_indices",
                "map_full_kv_num_blocks", "map_full_kv_indices", "map_kv_bits", "map_block_bits",
                "list_counts", "list", "list_descriptors", "wait_records"}));
}

TEST(Sequence, EveryKernelAndWorkspaceIsFoundByItsMeaning) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    const KernelPlan plan = plan_of_everything(arch);
    ASSERT_EQ(plan.kernels.size(), arch == Arch::kSm90a ? 3U : 4U);
    std::set<KernelId> kernels;
    for (std::uint32_t i = 0; i < plan.kernels.size(); ++i) {
      EXPECT_TRUE(kernels.insert(plan.kernels[i].id).second) << plan.kernels[i].entry;
      EXPECT_EQ(rank_of(plan, plan.kernels[i].id), i);
    }
    EXPECT_EQ(plan.main().id, KernelId::kAttention);
    ASSERT_EQ(plan.workspaces.size(), arch == Arch::kSm90a ? 9U : 12U);
    for (std::uint32_t i = 0; i < plan.workspaces.size(); ++i) {
      EXPECT_EQ(workspace_buffer(plan, plan.workspaces[i]),
                (BufferId{BufferId::Kind::kWorkspace, i}));
    }
  }
}

// A launch says which of the plan's kernels it is of, and has a size for each of its workspaces.
TEST(Sequence, LaunchesFollowThePlan) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    const KernelPlan plan = plan_of_everything(arch);
    LaunchShapes shapes;
    shapes.batch = 2;
    shapes.q_len = 300;
    shapes.kv_len = 1000;
    UserParamShape doc;
    doc.name = "doc";
    doc.extent[0] = 4096;
    const auto sequence = plan_launch(plan, shapes, {}, {doc});
    ASSERT_TRUE(sequence) << sequence.error().to_string();
    std::vector<KernelId> order;
    for (const LaunchRecipe& recipe : sequence->launches) {
      ASSERT_LT(recipe.kernel, plan.kernels.size());
      EXPECT_EQ(recipe.entry, plan.kernels[recipe.kernel].entry);
      order.push_back(plan.kernels[recipe.kernel].id);
    }
    std::vector<KernelId> expected{KernelId::kMap, KernelId::kAttention, KernelId::kMerge};
    if (arch == Arch::kSm100a) expected.insert(expected.begin() + 1, KernelId::kMapLists);
    EXPECT_EQ(order, expected);
    ASSERT_EQ(sequence->workspaces.size(), plan.workspaces.size());
    for (std::size_t i = 0; i < plan.workspaces.size(); ++i) {
      EXPECT_EQ(sequence->workspaces[i].name, name_of(plan.workspaces[i]));
      EXPECT_GT(sequence->workspaces[i].bytes, 0) << sequence->workspaces[i].name;
    }
  }
}

/// Specs whose launches choose their parts: by stream-K, by cut tiles, or uniform splits.
std::vector<AttentionSpec> split_specs(Arch arch) {
  AttentionSpec dense;
  dense.arch = arch;
  dense.num_q_heads = 32;
  dense.group = 4;
  dense.qk_depth = 128;
  dense.num_partitions = 0;
  AttentionSpec custom = dense, deep = dense, absorbed = dense;
  custom.qk_depth = 64;
  custom.mask.kind = MaskSpec::Kind::kCustom;
  custom.mask.custom.name = "m";
  custom.mask.custom.code = "q_idx >= kv_idx";
  deep.qk_depth = 512;
  absorbed.mla = Mla::kDecode;
  absorbed.num_q_heads = absorbed.group = 128;
  absorbed.qk_depth = 576;
  absorbed.ov_depth = 512;
  absorbed.page_size = 64;
  AttentionSpec ragged = absorbed, few_heads = absorbed;
  ragged.ragged = true;
  few_heads.num_q_heads = few_heads.group = 16;
  few_heads.ragged = true;
  return {dense, custom, deep, absorbed, ragged, few_heads};
}

// docs/limits.md says so. An LSE is a number of a row of O, which has 64 at least.
TEST(Sequence, PartsOfAChosenSplitTake256MiBAtMost) {
  constexpr std::int64_t kMost = (std::int64_t{256} << 20) / 64 * 65 + 4096;
  std::mt19937 random(1);
  const auto log_uniform = [&](int most_bits) {
    return static_cast<std::int32_t>(
        std::exp2(std::uniform_real_distribution<double>(0, most_bits)(random)));
  };
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    for (const AttentionSpec& spec : split_specs(arch)) {
      SCOPED_TRACE(spec_to_json(spec));
      const KernelPlan plan = plan_of(spec);
      int split = 0;
      for (int i = 0; i < 2000; ++i) {
        LaunchShapes shapes = plan_test::paged_shapes_of(
            log_uniform(8), log_uniform(spec.mla == Mla::kNone ? 15 : 11), log_uniform(20));
        if (spec.ragged) shapes.total_q = shapes.batch * shapes.q_len;
        const auto sequence = plan_launch(plan, shapes, {}, {});
        ASSERT_TRUE(sequence) << sequence.error().to_string();
        std::int64_t bytes = 0;
        for (const Workspace& workspace : sequence->workspaces) {
          if (workspace.name.starts_with("partial")) bytes += workspace.bytes;
        }
        split += bytes > 0 ? 1 : 0;
        ASSERT_LE(bytes, kMost) << shapes.batch << " x " << shapes.q_len << " rows of "
                                << shapes.kv_len << " keys";
      }
      EXPECT_GT(split, 20);
    }
  }
}

}  // namespace
}  // namespace attnjit

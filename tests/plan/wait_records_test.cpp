// SPDX-License-Identifier: Apache-2.0
// The plan's option debug_waits: what it adds to a plan and a launch, and how its records read.
#include "plan/launch/wait_records.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "attnjit/launch.h"

namespace attnjit {
namespace {

KernelPlan recording_plan(Arch arch, std::optional<bool> debug_waits) {
  AttentionSpec spec;
  spec.arch = arch;
  spec.num_q_heads = 4;
  spec.qk_depth = 128;
  spec.mask.kind = MaskSpec::Kind::kCausal;  // without one there is a small-tile variant
  PlanOptions options;
  options.debug_waits = debug_waits;
  Result<KernelPlan> made = plan(spec, options);
  EXPECT_TRUE(made.ok()) << made.error().to_string();
  return *std::move(made);
}

LaunchSequence launch_of(const KernelPlan& plan) {
  LaunchShapes shapes;
  shapes.q_len = shapes.kv_len = 300;
  Result<LaunchSequence> sequence = plan_launch(plan, shapes, {}, {});
  EXPECT_TRUE(sequence.ok()) << sequence.error().to_string();
  return *std::move(sequence);
}

TEST(WaitRecords, TheOptionAddsABufferAndNothingElse) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    const KernelPlan without = recording_plan(arch, {});
    EXPECT_EQ(recording_plan(arch, false).main().parameters.size(),
              without.main().parameters.size());
    EXPECT_TRUE(launch_of(without).workspaces.empty());
    const KernelPlan with = recording_plan(arch, true);
    EXPECT_EQ(with.main().parameters.size(), without.main().parameters.size() + 1);
    const LaunchSequence launch = launch_of(with);
    ASSERT_EQ(launch.workspaces.size(), 2U);
    EXPECT_EQ(launch.workspaces.back(), (Workspace{"wait_records", kWaitRecordsBytes, true}));
    // What must be zero is the begin of the buffer, whatever comes behind it.
    AttentionSpec split = with.spec.given();
    split.num_partitions = 3;
    const auto more = plan(split, with.spec.options());
    ASSERT_TRUE(more.ok());
    const LaunchSequence parts = launch_of(*more);
    ASSERT_GT(parts.workspaces.size(), 2U);
    EXPECT_EQ(parts.workspaces[1].name, "wait_records");
    for (std::size_t i = 2; i < parts.workspaces.size(); ++i) {
      EXPECT_FALSE(parts.workspaces[i].zeroed) << parts.workspaces[i].name;
    }
    const auto& args = launch.launches.at(0).args;
    const auto is_buffer = [](const KernelArgument& argument) {
      const auto* pointer = std::get_if<KernelArgument::Pointer>(&argument.value);
      return pointer != nullptr && pointer->buffer == "wait_records";
    };
    EXPECT_EQ(std::count_if(args.begin(), args.end(), is_buffer), 1);
  }
}

TEST(WaitRecords, EachIsToldByItsBarriersName) {
  const KernelPlan plan = recording_plan(Arch::kSm90a, true);
  std::vector<std::uint32_t> words(kWaitRecordsWords);
  EXPECT_TRUE(wait_records(words).empty());
  EXPECT_EQ(describe_waits(plan, words), "");
  words[0] = 2;
  const std::uint32_t first[] = {3, 12, 0, 0, 1, 5};
  const std::uint32_t second[] = {0, 0, 0xffffffff, 9999, 0, 0};
  std::copy(std::begin(first), std::end(first), words.begin() + 8);
  std::copy(std::begin(second), std::end(second), words.begin() + 16);
  ASSERT_EQ(wait_records(words).size(), 2U);
  EXPECT_EQ(wait_records(words)[0], (WaitRecord{3, 12, 0, 0, 1, 5}));
  EXPECT_EQ(wait_records(words)[1].work_tile, -1);
  EXPECT_EQ(describe_waits(plan, words),
            "CTA 3, warp 12, work tile 0: waits for parity 1 of barrier 0 (Q 0 of 0 full)\n"
            "CTA 0, warp 0, work tile -1: waits for parity 0 of barrier 9999 (which the plan "
            "lacks)\n");
}

TEST(WaitRecords, MoreThanTheBufferHoldsAreCounted) {
  const KernelPlan plan = recording_plan(Arch::kSm100a, true);
  std::vector<std::uint32_t> words(kWaitRecordsWords);
  words[0] = 130;
  EXPECT_EQ(wait_records(words).size(), 127U);
  EXPECT_NE(describe_waits(plan, words).find("and 3 more\n"), std::string::npos);
  EXPECT_TRUE(wait_records(std::vector<std::uint32_t>(3)).empty());
}

}  // namespace
}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// A spec's plan and a launch of it, for tests that take them to be there.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "attnjit/tuning.h"
#include "plan/family.h"
#include "plan/sm90/sm90_plan.h"
#include "plan/sm90_mla/sm90_mla_plan.h"

namespace attnjit::plan_test {

/// 8 heads in groups of 4, without a mask.
inline AttentionSpec sm90_spec(int qk_depth, int ov_depth = 0) {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.num_q_heads = 8;
  spec.group = 4;
  spec.qk_depth = qk_depth;
  spec.ov_depth = ov_depth;
  return spec;
}

/// A mask of that kind, with what it has by default.
inline MaskSpec mask_of(MaskSpec::Kind kind) {
  MaskSpec mask;
  mask.kind = kind;
  return mask;
}

/// An empty plan where there is none, which is told.
inline KernelPlan plan_of(const AttentionSpec& spec, const PlanOptions& options = {},
                          const Tuning* tuning = nullptr) {
  Result<KernelPlan> result = plan(spec, options, tuning);
  if (result) return *result;
  ADD_FAILURE() << result.error().to_string();
  return {};
}

/// The parts that a launch of a plan splits the keys into.
inline PartitionChoice partitions_of(const KernelPlan& plan, const LaunchShapes& shapes,
                                     const DeviceShape& device) {
  return family_of(plan.spec).partitions(plan, shapes, device);
}

inline std::map<std::string, std::string> constants_of(const KernelPlan& plan) {
  std::map<std::string, std::string> constants;
  for (const ConfigConstant& constant : plan.main().constants)
    constants[constant.name] = constant.value;
  return constants;
}

inline LaunchShapes shapes_of(std::int32_t batch, std::int32_t q_len, std::int32_t kv_len) {
  LaunchShapes shapes;
  shapes.batch = batch;
  shapes.q_len = q_len;
  shapes.kv_len = kv_len;
  return shapes;
}

/// Pages of 64 keys.
inline LaunchShapes paged_shapes_of(std::int32_t batch, std::int32_t q_len, std::int32_t kv_len) {
  LaunchShapes shapes = shapes_of(batch, q_len, kv_len);
  shapes.max_pages = (kv_len + 63) / 64;
  shapes.num_pages = batch * shapes.max_pages;
  return shapes;
}

inline void expect_without_gaps(const std::vector<MemoryRange>& ranges, std::int64_t end) {
  std::int64_t at = 0;
  for (const MemoryRange& range : ranges) {
    EXPECT_EQ(range.begin, at) << range.name;
    at += range.size;
  }
  EXPECT_EQ(at, end);
}

/// The kernel's memory has no gaps and fits a CTA of sm_90a, and so do the registers of a producer
/// and two consumers.
inline void expect_fits_sm90(const KernelPlan& plan) {
  EXPECT_LE(plan.main().smem_bytes, 232448);
  EXPECT_LE(plan.sm90_mla->producer_registers + 2 * plan.sm90_mla->consumer_registers,
            3 * plan.main().launch_registers);
  expect_without_gaps(plan.main().smem_map, plan.main().smem_bytes);
}

/// The launches of a plan of three partitions, of 2 sequences of 5 rows: the kernel, and the merge
/// of what it writes to the workspaces.
inline LaunchSequence launch_of_three_parts(const KernelPlan& plan, int sm_count) {
  LaunchShapes shapes;
  shapes.batch = 2;
  shapes.q_len = 5;
  shapes.kv_len = 100;
  const Result<LaunchSequence> sequence = plan_launch(plan, shapes, {}, {}, {.sm_count = sm_count});
  if (!sequence) {
    ADD_FAILURE() << sequence.error().to_string();
    return {};
  }
  EXPECT_EQ(sequence->launches.size(), 2U);
  EXPECT_EQ(sequence->workspaces.size(), 3U);
  if (sequence->launches.size() != 2 || sequence->workspaces.size() != 3) return {};
  const std::int64_t floats = std::int64_t{3} * (2 * 5 * plan.spec->num_q_heads);
  EXPECT_EQ(sequence->workspaces[1].bytes, floats * plan.spec->ov_depth * 4);
  EXPECT_EQ(sequence->workspaces[2].bytes, floats * 4);
  return *sequence;
}

/// So many tiles are no launch.
inline void expect_too_many(const KernelPlan& plan, int batch, int q_len) {
  LaunchShapes shapes;
  shapes.batch = batch;
  shapes.q_len = q_len;
  shapes.kv_len = 100;
  const Result<LaunchSequence> many = plan_launch(plan, shapes, {}, {});
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().field, "batch");
}

}  // namespace attnjit::plan_test

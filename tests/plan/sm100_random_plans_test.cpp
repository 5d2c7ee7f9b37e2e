// SPDX-License-Identifier: Apache-2.0
// Sm100Plan: what holds of every plan, over random specs.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "sm100_plans.h"

namespace attnjit {
namespace {

using namespace plan_test;

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
    if (spec.qkv_dtype != Dtype::kE4m3 && rng() % 4 == 0) spec.kv_dtype = Dtype::kE4m3;
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

}  // namespace
}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Rows of q and o behind the last offset of a ragged batch, as a captured launch has them: no
// kernel writes them, on every family.
#include <cmath>
#include <vector>

#include "../kernel_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

class SpareRows : public KernelTest {
 protected:
  /// Of the last sequence's five rows two are nobody's.
  static void expect_left(const AttentionSpec& spec) {
    SCOPED_TRACE(spec_to_json(spec));
    constexpr int kSpare = 2;
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    for (const int sm_count : {2, 132}) {
      SCOPED_TRACE(sm_count);
      std::optional<Problem> problem = problem_of(spec, {{1, 4, 0, 5}, {300, 70, 9, 600}});
      ASSERT_TRUE(problem);
      problem->q_lens.back() -= kSpare;
      auto* offsets = problem->tensors.at("q_offsets").as<std::int32_t>();
      offsets[problem->batch] -= kSpare;
      const LaunchSequence sequence =
          launches_of(*kernel, *problem, problem->launch_shapes(), sm_count);
      const auto done = run(*kernel, *problem, sequence);
      ASSERT_TRUE(done);
      const std::int64_t used = problem->total_q - kSpare;
      const std::int64_t row = std::int64_t{spec.num_q_heads} * spec.ov_depth;
      int wrong = 0;
      for (std::int64_t i = 0; i < problem->total_q * row; ++i)
        wrong += std::isnan(verify::load_float(done->o, i)) != (i >= used * row);
      EXPECT_EQ(wrong, 0) << "elements of o";
      wrong = 0;
      for (std::int64_t i = 0; i < problem->total_q * spec.num_q_heads; ++i)
        wrong += std::isnan(verify::load_float(*done->lse, i)) != (i % problem->total_q >= used);
      EXPECT_EQ(wrong, 0) << "elements of the LSE";
    }
  }
};

TEST_F(SpareRows, OfPrompts) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    for (const int partitions : {0, 3}) {
      AttentionSpec spec = of_sequences(base_spec(arch, 4, 2, 64), 16, true);
      spec.num_partitions = partitions;
      expect_left(spec);
    }
  }
}

TEST_F(SpareRows, OfAbsorbedMla) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    for (const int partitions : {0, 3}) {
      AttentionSpec spec = absorbed_spec(arch, 16, 192, 64);
      spec.ragged = true;
      spec.mask = mask_of(Kind::kCausal);
      spec.num_partitions = partitions;
      expect_left(spec);
    }
  }
}

}  // namespace
}  // namespace attnjit::sm90

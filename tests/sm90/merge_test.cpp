// SPDX-License-Identifier: Apache-2.0
// Merges of pairs of O and LSE that the caller has, on every family.
#include <algorithm>
#include <limits>
#include <vector>

#include "../kernel_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

AttentionSpec merge_spec(Arch arch, int depth, bool ragged) {
  AttentionSpec spec;
  spec.arch = arch;
  spec.num_q_heads = 3;
  spec.qk_depth = depth;
  spec.ragged = ragged;
  spec.return_lse = true;
  spec.merge = true;
  return spec;
}

class MergeOfPairs : public KernelTest {
 protected:
  static void expect_merged(const AttentionSpec& spec, const std::vector<std::int64_t>& q_lens) {
    SCOPED_TRACE(spec_to_json(spec));
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    ASSERT_EQ(kernel->generated.plan.kernels.size(), 1U);
    EXPECT_EQ(kernel->module.entries(), std::vector<std::string>{"attnjit_merge"});
    for (const int pairs : {1, 2, 9, 70}) {
      SCOPED_TRACE(pairs);
      for (const InputKind input : {InputKind::kNormal, InputKind::kLarge}) {
        verify::ProblemRequest request;
        request.q_lens = q_lens;
        request.pairs = pairs;
        request.input = input;
        request.seed = static_cast<std::uint64_t>(pairs);
        const Result<Problem> problem = verify::make_problem(spec, request);
        ASSERT_TRUE(problem.ok()) << problem.error().to_string();
        const LaunchSequence sequence =
            launches_of(*kernel, *problem, problem->launch_shapes(), pairs == 2 ? 1 : 132);
        EXPECT_TRUE(sequence.workspaces.empty());
        const auto done = run(*kernel, *problem, sequence);
        ASSERT_TRUE(done);
        expect_right(*problem, *done);
      }
    }
  }
};

TEST_F(MergeOfPairs, Dense) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a})
    expect_merged(merge_spec(arch, 64, false), {7});
}

TEST_F(MergeOfPairs, Ragged) {
  AttentionSpec spec = merge_spec(Arch::kSm90a, 136, true);
  spec.qkv_dtype = Dtype::kFp16;
  expect_merged(spec, {5, 0, 1});
  spec.return_lse = false;
  spec.ov_depth = 512;
  spec.qk_depth = 576;
  expect_merged(spec, {5, 0, 1});
}

// What o and lse hold is one more pair.
TEST_F(MergeOfPairs, IntoWhatTheCallerHas) {
  AttentionSpec spec = merge_spec(Arch::kSm90a, 64, false);
  spec.accumulate = true;
  expect_merged(spec, {9});

  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  // Three pairs, of which one lies in o and lse.
  verify::ProblemRequest request;
  request.q_lens = {4};
  request.pairs = 3;
  AttentionSpec whole = spec;
  whole.accumulate = false;
  const Result<Problem> three = verify::make_problem(whole, request);
  ASSERT_TRUE(three.ok()) << three.error().to_string();
  request.pairs = 2;
  Result<Problem> two = verify::make_problem(spec, request);
  ASSERT_TRUE(two.ok()) << two.error().to_string();
  Outputs before{verify::make_tensor(Dtype::kBf16, two->o_shape()),
                 verify::make_tensor(Dtype::kF32, two->lse_shape())};
  const auto deal = [&](const char* name, verify::Tensor& last) {
    const std::vector<std::uint8_t>& all = three->at(name).bytes;
    verify::Tensor& first = two->tensors[name];
    std::copy_n(all.begin(), first.bytes.size(), first.bytes.begin());
    std::copy(all.begin() + static_cast<std::ptrdiff_t>(first.bytes.size()), all.end(),
              last.bytes.begin());
  };
  deal("pairs_o", before.o);
  deal("pairs_lse", *before.lse);
  const auto done =
      run(*kernel, *two, launches_of(*kernel, *two, two->launch_shapes(), 132), 0, {}, &before);
  ASSERT_TRUE(done);
  expect_right(*three, *done);
}

// A pair whose sink was infinite: its o is 0, and beside it all others vanish.
TEST_F(MergeOfPairs, OfAnInfiniteLse) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const AttentionSpec spec = merge_spec(Arch::kSm90a, 64, false);
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  verify::ProblemRequest request;
  request.q_lens = {7};
  request.pairs = 3;
  Result<Problem> problem = verify::make_problem(spec, request);
  ASSERT_TRUE(problem.ok()) << problem.error().to_string();
  verify::Tensor& o = problem->tensors.at("pairs_o");
  for (std::int64_t i = 0; i < o.elements() / 3; ++i) verify::store_float(o, i, 0);
  verify::Tensor& lse = problem->tensors.at("pairs_lse");
  std::fill_n(lse.as<float>(), lse.elements() / 3, kInfinity);
  const auto done =
      run(*kernel, *problem, launches_of(*kernel, *problem, problem->launch_shapes(), 132));
  ASSERT_TRUE(done);
  for (std::int64_t i = 0; i < done->o.elements(); ++i) {
    ASSERT_EQ(verify::load_float(done->o, i), 0) << i;
  }
  for (std::int64_t i = 0; i < done->lse->elements(); ++i) {
    EXPECT_EQ(done->lse->as<float>()[i], kInfinity);
  }
}

TEST_F(MergeOfPairs, RefusesWhatItCannotTake) {
  AttentionSpec spec = merge_spec(Arch::kSm90a, 64, false);
  const Result<KernelPlan> good = plan(spec);
  ASSERT_TRUE(good.ok() && good->supported);
  LaunchShapes shapes;
  shapes.q_len = 1;
  for (const int pairs : {-1, 0, 65536}) {
    shapes.num_pairs = pairs;
    const Result<LaunchSequence> launch = plan_launch(*good, shapes, {}, {});
    ASSERT_FALSE(launch.ok()) << pairs;
    EXPECT_EQ(launch.error().field, "num_pairs");
  }
  shapes.q_len = 1 << 30;
  shapes.num_pairs = 65535;
  const Result<LaunchSequence> large = plan_launch(*good, shapes, {}, {});
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().field, "num_pairs");

  spec.output_dtype = Dtype::kF32;
  EXPECT_NE(plan(spec)->reason.find("output_dtype"), std::string::npos);
  spec = merge_spec(Arch::kSm90a, 520, false);
  EXPECT_NE(plan(spec)->reason.find("ov_depth"), std::string::npos);
  PlanOptions options;
  options.debug_waits = true;
  EXPECT_NE(plan(merge_spec(Arch::kSm90a, 64, false), options)->reason.find("plan options"),
            std::string::npos);
}

}  // namespace
}  // namespace attnjit::sm90

// SPDX-License-Identifier: Apache-2.0
// Plans of two kernels: an attention that accumulates, whose second kernel merges the first one's
// result into the caller's o and lse. Skipped without NVRTC.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "generated_kernel.h"
#include "verify/emulator_backend.h"
#include "verify/numeric.h"
#include "verify/reference.h"

namespace attnjit::emulator {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  const char* name;
  AttentionSpec spec;
  std::vector<std::int64_t> q_lens, kv_lens;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

AttentionSpec spec_of(Arch arch) {
  AttentionSpec spec;
  spec.arch = arch;
  spec.num_q_heads = 2;
  spec.qk_depth = 64;
  spec.return_lse = true;
  spec.accumulate = true;
  spec.mask.kind = MaskSpec::Kind::kCausal;  // rows before the first key see nothing
  return spec;
}

std::vector<Case> cases() {
  AttentionSpec half = spec_of(Arch::kSm90a);
  half.qkv_dtype = Dtype::kFp16;
  AttentionSpec pages = spec_of(Arch::kSm100a);
  pages.ragged = true;
  pages.page_size = 64;
  return {{"dense_sm_90a", spec_of(Arch::kSm90a), {70}, {50}},
          {"fp16_sm_90a", half, {20}, {90}},
          {"dense_sm_100a", spec_of(Arch::kSm100a), {70}, {50}},
          {"paged_sm_100a", pages, {30, 9}, {80, 4}}};
}

// What the caller has before the launch, row by row (a row is a head's at one position): a pair
// over other keys, or one that saw no key and holds garbage.
struct State {
  verify::Tensor o, lse;
};

State state_of(const verify::Problem& problem, Dtype dtype) {
  State state{verify::make_tensor(dtype, problem.o_shape()),
              verify::make_tensor(Dtype::kF32, problem.lse_shape())};
  for (std::int64_t i = 0; i < state.o.elements(); ++i) {
    verify::store_float(state.o, i, std::sin(static_cast<float>(i)));
  }
  for (std::int64_t i = 0; i < state.lse.elements(); ++i) {
    const bool nothing = i % 5 == 2;
    verify::store_float(
        state.lse, i,
        nothing ? -std::numeric_limits<float>::infinity() : 4 * std::cos(static_cast<float>(i)));
  }
  return state;
}

// The index in o of element 0 of the row that lse has at `row`: lse is [batch, head, position], o
// [batch, position, head, depth]; ragged ones have no batch.
std::int64_t o_row(const verify::Problem& problem, std::int64_t row) {
  const std::vector<std::int64_t>& shape = problem.o_shape();
  const std::int64_t heads = shape[shape.size() - 2], depth = shape.back();
  const std::int64_t rows = shape[shape.size() - 3];
  const std::int64_t position = row % rows, head = row / rows % heads, batch = row / rows / heads;
  return ((batch * rows + position) * heads + head) * depth;
}

class Merge : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const auto id = make_in_process_compiler()->build_id(); !id.ok()) {
      GTEST_SKIP() << id.error().to_string();
    }
  }
};

TEST_P(Merge, CombinesWithWhatTheCallerHas) {
  const auto kernel = generate_kernel(GetParam().spec);
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  ASSERT_EQ(kernel->plan.kernels.size(), 2U);
  const auto module = PtxModule::load(kernel->ptx);
  ASSERT_TRUE(module.ok()) << module.error().to_string();
  EXPECT_EQ(module->entries().size(), 2U);

  verify::ProblemRequest request;
  request.q_lens = GetParam().q_lens;
  request.kv_lens = GetParam().kv_lens;
  request.seed = 5;
  const auto problem = verify::make_problem(kernel->plan.spec, request);
  ASSERT_TRUE(problem.ok()) << problem.error().to_string();
  const auto reference = verify::compute_reference(*problem);
  ASSERT_TRUE(reference.ok()) << reference.error().to_string();
  const std::int64_t depth = kernel->plan.spec->ov_depth;

  State state = state_of(*problem, *kernel->plan.spec->output_dtype);
  const State before = state;
  for (std::int64_t row = 0; row < state.lse.elements(); ++row) {
    if (std::isfinite(verify::load_float(state.lse, row))) continue;
    for (std::int64_t i = 0; i < depth; ++i) {
      verify::store_float(state.o, o_row(*problem, row) + i,
                          std::numeric_limits<float>::quiet_NaN());
    }
  }
  const auto sequence = plan_launch(kernel->plan, problem->launch_shapes(),
                                    problem->launch_scalars(), problem->param_values());
  ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
  ASSERT_EQ(sequence->launches.size(), 2U);
  std::vector<EmulatorBuffer> buffers;
  for (const auto& [name, tensor] : problem->tensors)
    buffers.push_back(verify::emulator_buffer(name, tensor));
  buffers.push_back(verify::emulator_buffer("o", state.o));
  buffers.push_back(verify::emulator_buffer("lse", state.lse));
  EmulatorOptions options;
  options.in_order_issue = true;
  options.seeds = 2;
  const auto report = emulate(*module, *sequence, buffers, options);
  ASSERT_TRUE(report.ok()) << report.error().to_string();
  EXPECT_TRUE(report->passed) << (report->findings.empty() ? "" : report->findings.front().text);
  state.lse.bytes = buffers.back().data;
  state.o.bytes = buffers[buffers.size() - 2].data;

  int nothing = 0, one_sided = 0;
  for (std::int64_t row = 0; row < state.lse.elements(); ++row) {
    const double old_lse = verify::load_float(before.lse, row);
    const double new_lse = reference->lse[static_cast<std::size_t>(row)];
    const double top = std::max(old_lse, new_lse);
    const double merged = verify::load_float(state.lse, row);
    const std::int64_t first = o_row(*problem, row);
    if (top == -kInfinity) {
      ++nothing;
      EXPECT_EQ(merged, -kInfinity) << row;
      for (std::int64_t i = 0; i < depth; ++i) {
        ASSERT_EQ(verify::load_float(state.o, first + i), 0) << row;
      }
      continue;
    }
    one_sided += std::isinf(old_lse) || std::isinf(new_lse) ? 1 : 0;
    const double old_weight = std::exp(old_lse - top), new_weight = std::exp(new_lse - top);
    const double sum = old_weight + new_weight;
    ASSERT_NEAR(merged, top + std::log(sum), 1e-2) << row;
    for (std::int64_t i = 0; i < depth; ++i) {
      const double old_o = old_weight == 0 ? 0 : verify::load_float(before.o, first + i);
      const double new_o = new_weight == 0 ? 0 : reference->o[static_cast<std::size_t>(first + i)];
      ASSERT_NEAR(verify::load_float(state.o, first + i),
                  (old_weight * old_o + new_weight * new_o) / sum, 2e-2)
          << row << ", " << i;
    }
  }
  EXPECT_GT(one_sided, 0);
  EXPECT_EQ(nothing > 0,
            GetParam().q_lens[0] > GetParam().kv_lens[0] || GetParam().q_lens.size() > 1);
}

// Both kernels are counted.
TEST_P(Merge, ThreadStepsAreOfAllLaunches) {
  const auto kernel = generate_kernel(GetParam().spec);
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  const auto module = PtxModule::load(kernel->ptx);
  ASSERT_TRUE(module.ok());
  verify::ProblemRequest request;
  request.q_lens = GetParam().q_lens;
  request.kv_lens = GetParam().kv_lens;
  const auto problem = verify::make_problem(kernel->plan.spec, request);
  ASSERT_TRUE(problem.ok());
  auto sequence = plan_launch(kernel->plan, problem->launch_shapes(), problem->launch_scalars(),
                              problem->param_values());
  ASSERT_TRUE(sequence.ok());
  const auto steps_of = [&](const LaunchSequence& launches) {
    const State state = state_of(*problem, *kernel->plan.spec->output_dtype);
    std::vector<EmulatorBuffer> buffers;
    for (const auto& [name, tensor] : problem->tensors)
      buffers.push_back(verify::emulator_buffer(name, tensor));
    buffers.push_back(verify::emulator_buffer("o", state.o));
    buffers.push_back(verify::emulator_buffer("lse", state.lse));
    EmulatorOptions options;
    options.in_order_issue = true;
    const auto report = emulate(*module, launches, buffers, options);
    EXPECT_TRUE(report.ok());
    return report->thread_steps;
  };
  const std::uint64_t both = steps_of(*sequence);
  LaunchSequence first = *sequence;
  first.launches.pop_back();
  const std::uint64_t forward = steps_of(first);
  EXPECT_GT(forward, 0U);
  EXPECT_GT(both, forward);
}

INSTANTIATE_TEST_SUITE_P(All, Merge, testing::ValuesIn(cases()),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace attnjit::emulator

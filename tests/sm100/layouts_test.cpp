// SPDX-License-Identifier: Apache-2.0
// Paged and ragged batches, and the work that a work tile leaves out, in the emulator under the isa
// model. Skipped without NVRTC.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "../kernel_fixture.h"
#include "../one_launch.h"
#include "run_case.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

class Sm100Layouts : public KernelTest {
 protected:
  static AttentionSpec spec_of(int qk_depth, int page_size, bool ragged,
                               const MaskSpec& mask = mask_of(Kind::kCausal)) {
    return of_sequences(base_spec(Arch::kSm100a, 2, 1, qk_depth, mask), page_size, ragged);
  }

  // Null where it failed, which is told.
  static std::unique_ptr<ProofKernel> compiled(const AttentionSpec& spec,
                                               const PlanOptions& options = {}) {
    ProofCase one;
    one.spec = spec;
    one.options = options;
    Result<ProofKernel> kernel = make_kernel(one);
    if (kernel) return std::make_unique<ProofKernel>(std::move(*kernel));
    ADD_FAILURE() << kernel.error().to_string();
    return nullptr;
  }

  static std::uint64_t orders() { return in_proof() ? 2 : 1; }

  // Every second batch is for the proof.
  static void expect_passes(const AttentionSpec& spec, const std::vector<Lengths>& batches,
                            const PlanOptions& options = {}) {
    const auto kernel = compiled(spec, options);
    ASSERT_TRUE(kernel);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (i % 2 == 1 && !in_proof()) continue;
      verify::ProblemRequest request;
      request.batch = static_cast<int>(batches[i].kv.size());
      request.q_lens = batches[i].q;
      request.kv_lens = batches[i].kv;
      request.input = static_cast<InputKind>(i % 4);
      request.seed = i;
      request.threads = 1;
      const Result<Problem> problem = verify::make_problem(spec, request);
      ASSERT_TRUE(problem) << problem.error().to_string();
      ProofShape shape;
      shape.sm_count = i % 2 == 0 ? 2 : 148;
      const Judged judged = judge(shape, *kernel, *problem, orders());
      EXPECT_TRUE(judged.passed) << spec_to_json(spec, options) << " batch " << i << ": "
                                 << judged.reason;
    }
  }

  // Products of 128 rows and 128 keys that a launch issues.
  static std::uint64_t products(const AttentionSpec& spec, const ProofKernel& kernel, int q_len,
                                int kv_len) {
    ProofCase one;
    one.spec = spec;
    one.shape = {1, q_len, kv_len, 1};
    const Result<Problem> problem = sm100::problem_of(one, InputKind::kNormal, 0);
    if (!problem) return 0;
    DeviceShape device;
    device.sm_count = 1;
    const Result<LaunchRecipe> recipe =
        one_launch(kernel.generated.plan, problem->launch_shapes(), problem->launch_scalars(),
                   problem->param_values(), device);
    if (!recipe) return 0;
    EmulatorOptions options = proof_options(kernel.generated.plan, 0);
    options.stats = true;
    const auto run = emulator::run_kernel(kernel.module, *recipe, *problem, options);
    if (!run || !run->report.passed) return 0;
    const std::uint64_t one_product = 128ULL * 128 * spec.qk_depth;
    EXPECT_EQ(run->report.stats.mma_operations % one_product, 0U);
    return run->report.stats.mma_operations / one_product;
  }
};

TEST_F(Sm100Layouts, PagesShorterThanATileAndLonger) {
  for (const int page_size : some_of<int>({16, 256, 64})) {
    expect_passes(spec_of(128, page_size, false),
                  {{{200}, {500, 129, 64}}, {{1}, {1, 0, 300, 17}}, {{257}, {384, 130}}});
  }
}

TEST_F(Sm100Layouts, PagesOfTheRopePart) {
  AttentionSpec spec = spec_of(192, 32, true);
  spec.ov_depth = 128;
  expect_passes(spec, {{{300, 1}, {400, 333}}});
}

TEST_F(Sm100Layouts, RaggedPromptsAndDecodes) {
  AttentionSpec spec = spec_of(64, 0, true);
  spec.group = 2;
  // A whole tile is stored by TMA, the others by the correction warps: neither may touch a
  // neighbour's rows.
  expect_passes(
      spec,
      {{{256, 1, 130, 0, 128}, {256, 70, 300, 5, 500}}, {{1, 1, 1}, {129, 1, 0}}, {{5}, {9}}});
}

TEST_F(Sm100Layouts, ARaggedBatchOfMoreSequencesThanAWarpHasLanes) {
  Lengths many;
  for (int i = 0; i < 70; ++i) {
    many.q.push_back(i % 7 == 0 ? 0 : i % 5 == 0 ? 140 : 1);
    many.kv.push_back(3 * i);
  }
  expect_passes(spec_of(72, 16, true, mask_of(Kind::kNull)), {many});
}

TEST_F(Sm100Layouts, PagesAndRaggedRowsUnderMasksThatSkipTiles) {
  MaskSpec window = mask_of(Kind::kSlidingWindow);
  window.window = 100;
  AttentionSpec spec =
      spec_of(128, 64, true, tree(Kind::kAnd, {mask_of(Kind::kCausal), std::move(window)}));
  spec.sink = true;
  expect_passes(spec, {{{400, 1, 129}, {700, 600, 129}}, {{200, 300}, {64, 300}}});
}

TEST_F(Sm100Layouts, RowsOfBatches) {
  expect_passes(by_total_row(spec_of(64, 0, false)), {{{130, 130}, {150, 150}}});
  expect_passes(by_total_row(spec_of(64, 16, true)), {{{70, 1, 0, 5}, {200, 1, 64, 5}}});
}

// What nobody wrote: rows past the end of a sequence may hold anything, in K and in V.
TEST_F(Sm100Layouts, RowsPastTheEndMayBeNaN) {
  for (const bool ragged : {false, true}) {
    const AttentionSpec spec = spec_of(64, ragged ? 0 : 64, ragged);
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    for (const int query_tiles : {1, 2}) {
      verify::ProblemRequest request;
      request.batch = 4;
      request.q_lens = {200};
      request.kv_lens = {130, 300, 1, 256};
      request.threads = 1;
      Result<Problem> problem = verify::make_problem(spec, request);
      ASSERT_TRUE(problem) << problem.error().to_string();
      for (const char* name : {"k", "v"}) {
        verify::Tensor& tensor = problem->tensors[name];
        const std::int64_t row_elements = std::int64_t{spec.num_kv_heads()} * spec.qk_depth;
        std::vector<bool> owned(static_cast<std::size_t>(tensor.elements() / row_elements));
        for (int b = 0; b < request.batch; ++b) {
          for (int key = 0; key < problem->kv_lens[static_cast<std::size_t>(b)]; ++key) {
            owned[static_cast<std::size_t>(problem->kv_row(b, key))] = true;
          }
        }
        for (std::size_t row = 0; row < owned.size(); ++row) {
          if (owned[row]) continue;
          std::fill_n(tensor.as<std::uint16_t>() + static_cast<std::int64_t>(row) * row_elements,
                      row_elements, std::uint16_t{0x7fc0});
        }
      }
      ProofShape shape;
      shape.sm_count = query_tiles == 1 ? 1000 : 1;
      const Judged judged = judge(shape, *kernel, *problem, orders());
      EXPECT_TRUE(judged.passed) << judged.reason;
      EXPECT_EQ(judged.query_tiles, query_tiles);
    }
  }
}

// A half of a work tile whose rows see nothing of a KV tile multiplies nothing, and a second query
// tile past q_len is none.
TEST_F(Sm100Layouts, ProductsAreTheVisibleTilesAlone) {
  PlanOptions two;
  two.num_qo = 2;
  AttentionSpec spec = spec_of(128, 0, false, mask_of(Kind::kNull));
  spec.num_q_heads = 4;
  const auto null_kernel = compiled(spec, two);
  ASSERT_TRUE(null_kernel);
  EXPECT_EQ(products(spec, *null_kernel, 256, 300), 4U * 2 * (2 * 3));
  EXPECT_EQ(products(spec, *null_kernel, 384, 300), 4U * 2 * (3 * 3));
  spec.num_q_heads = 4;
  spec.mask = mask_of(Kind::kCausal);
  const auto causal = compiled(spec, two);
  ASSERT_TRUE(causal);
  EXPECT_EQ(products(spec, *causal, 512, 512), 4U * 2 * (1 + 2 + 3 + 4));
  EXPECT_EQ(products(spec, *causal, 300, 300), 4U * 2 * (1 + 2 + 3));
}

}  // namespace
}  // namespace attnjit::sm100

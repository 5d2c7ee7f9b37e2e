// SPDX-License-Identifier: Apache-2.0
// Batches of sequences that differ in length, in pages and ragged, on sm_90a: in the emulator under
// the isa model. Skipped without NVRTC.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "../emulator/attention/generated_kernel.h"
#include "../gpu/verify_cases.h"
#include "../one_launch.h"
#include "verify/compare.h"

namespace attnjit {
namespace {

using verify::InputKind;
using verify::mask_of;
using verify::Problem;
using verify::tree;
using Kind = MaskSpec::Kind;

struct Lengths {
  std::vector<std::int64_t> q, kv;
};

struct Kernel {
  emulator::GeneratedKernel generated;
  PtxModule module;
};

AttentionSpec spec_of(int qk_depth, int page_size, bool ragged,
                      const MaskSpec& mask = mask_of(Kind::kCausal)) {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.num_q_heads = 2;
  spec.qk_depth = qk_depth;
  spec.page_size = page_size;
  spec.ragged = ragged;
  spec.return_lse = true;
  spec.mask = mask;
  return spec;
}

AttentionSpec with_group(AttentionSpec spec, int heads, int group) {
  spec.num_q_heads = heads;
  spec.group = group;
  return spec;
}

class Sm90Sequences : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto id = make_in_process_compiler()->build_id(); !id.ok()) {
      GTEST_SKIP() << id.error().to_string();
    }
  }

  // Null where it failed, which is told.
  static std::unique_ptr<Kernel> compiled(const AttentionSpec& spec) {
    Result<emulator::GeneratedKernel> kernel = emulator::generate_kernel(spec);
    if (!kernel) {
      ADD_FAILURE() << kernel.error().to_string();
      return nullptr;
    }
    Result<PtxModule> module = PtxModule::load(kernel->ptx);
    if (!module) {
      ADD_FAILURE() << module.error().to_string();
      return nullptr;
    }
    return std::make_unique<Kernel>(Kernel{std::move(*kernel), std::move(*module)});
  }

  // NOTE: with normal inputs all memory that belongs to no sequence is NaN: rows of the last page,
  // spare pages, keys past kv_len.
  static std::optional<Problem> problem_of(const AttentionSpec& spec, const Lengths& lengths,
                                           InputKind input = InputKind::kNormal,
                                           std::uint64_t seed = 0) {
    verify::ProblemRequest request;
    request.batch = static_cast<int>(lengths.kv.size());
    request.q_lens = lengths.q;
    request.kv_lens = lengths.kv;
    request.input = input;
    request.seed = seed;
    request.threads = 1;
    Result<Problem> problem = verify::make_problem(spec, request);
    if (problem) return std::move(*problem);
    ADD_FAILURE() << problem.error().to_string();
    return std::nullopt;
  }

  static LaunchRecipe launch_of(const Kernel& kernel, const Problem& problem,
                                const LaunchShapes& shapes, int sm_count) {
    DeviceShape device;
    device.sm_count = sm_count;
    Result<LaunchRecipe> recipe = one_launch(
        kernel.generated.plan, shapes, problem.launch_scalars(), problem.param_values(), device);
    EXPECT_TRUE(recipe.ok()) << (recipe.ok() ? "" : recipe.error().to_string());
    return recipe.ok() ? *recipe : LaunchRecipe{};
  }

  // What the kernel did; findings are failures, but for those of the kinds that are allowed.
  static std::optional<emulator::KernelRun> run(const Kernel& kernel, const Problem& problem,
                                                const LaunchRecipe& recipe, std::uint64_t seed = 0,
                                                const std::set<FindingKind>& allowed = {}) {
    EmulatorOptions options;
    options.model = EmulatorModel::kIsa;
    options.seed = seed;
    options.threads = 1;
    Result<emulator::KernelRun> result =
        emulator::run_kernel(kernel.module, recipe, problem, options);
    if (!result) {
      ADD_FAILURE() << result.error().to_string();
      return std::nullopt;
    }
    for (const Finding& finding : result->report.findings) {
      if (allowed.contains(finding.kind)) continue;
      ADD_FAILURE() << to_string(finding.kind) << " at PTX line " << finding.ptx_line << ": "
                    << finding.text;
    }
    return std::move(*result);
  }

  static void expect_right(const Problem& problem, const emulator::KernelRun& run) {
    const Result<verify::Reference> reference = verify::compute_reference(problem, 1);
    ASSERT_TRUE(reference.ok()) << reference.error().to_string();
    const verify::Comparison comparison =
        verify::compare(problem, *reference, run.o, run.lse ? &*run.lse : nullptr,
                        verify::tolerance_of(problem.spec));
    EXPECT_TRUE(comparison.passed) << spec_to_json(problem.spec) << ": " << comparison.reason;
  }

  static void expect_layouts(int rows);
  static void expect_no_harm(int page_size);

  static void expect_passes(const AttentionSpec& spec, const std::vector<Lengths>& batches) {
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const auto problem = problem_of(spec, batches[i], static_cast<InputKind>(i % 4), i);
      ASSERT_TRUE(problem);
      const LaunchRecipe recipe =
          launch_of(*kernel, *problem, problem->launch_shapes(), i % 2 == 0 ? 2 : 132);
      for (const std::uint64_t seed : {0, 1}) {
        const auto done = run(*kernel, *problem, recipe, seed);
        ASSERT_TRUE(done) << "batch " << i;
        expect_right(*problem, *done);
      }
    }
  }
};

TEST_F(Sm90Sequences, PagesShorterThanATileAndLonger) {
  for (const int page_size : {8, 16, 32, 40, 64, 128, 256}) {
    SCOPED_TRACE(page_size);
    expect_passes(spec_of(64, page_size, false),
                  {{{70}, {200, 129, 64}}, {{1}, {1, 0, 150, 17}}, {{193}, {128, 130}}});
  }
}

TEST_F(Sm90Sequences, PagesThatHoldNoWholeBoxes) {
  for (const int page_size : {1, 2, 5, 12, 100}) {
    SCOPED_TRACE(page_size);
    expect_passes(spec_of(64, page_size, false),
                  {{{70}, {200, 129, 64}}, {{1}, {1, 0, 150, 17}}, {{193}, {128, 130}}});
  }
  for (const auto& [qk_depth, ov_depth] :
       {std::pair{40, 24}, {96, 96}, {128, 128}, {192, 128}, {256, 200}}) {
    SCOPED_TRACE(qk_depth);
    AttentionSpec spec = with_group(spec_of(qk_depth, 1, true), 4, 4);
    spec.ov_depth = ov_depth;
    expect_passes(spec, {{{80, 1, 0}, {150, 133, 7}}});
  }
}

TEST_F(Sm90Sequences, PagesOfEveryDepth) {
  for (const auto& [qk_depth, ov_depth] :
       {std::pair{40, 24}, {96, 96}, {128, 128}, {192, 128}, {256, 200}}) {
    SCOPED_TRACE(qk_depth);
    AttentionSpec spec = spec_of(qk_depth, 16, true);
    spec.ov_depth = ov_depth;
    expect_passes(spec, {{{130, 1}, {150, 133}}});
  }
}

TEST_F(Sm90Sequences, RaggedPromptsAndDecodes) {
  // Whole boxes of rows are stored by TMA, the others by threads: neither may touch a neighbour's.
  for (const auto& [heads, group] : {std::pair{2, 1}, {2, 2}, {3, 3}, {6, 6}}) {
    SCOPED_TRACE(group);
    expect_passes(with_group(spec_of(64, 0, true), heads, group),
                  {{{192, 1, 70, 0, 64}, {192, 70, 300, 5, 200}}, {{1, 1, 1}, {129, 1, 0}}});
  }
}

TEST_F(Sm90Sequences, RowsOfASequenceWithMoreRowsThanKeysSeeNothing) {
  expect_passes(with_group(spec_of(128, 64, true), 4, 4), {{{70, 3, 50}, {9, 0, 51}}});
}

TEST_F(Sm90Sequences, ABatchOfMoreSequencesThanAWarpHasLanes) {
  Lengths many;
  for (int i = 0; i < 70; ++i) {
    many.q.push_back(i % 7 == 0 ? 0 : i % 5 == 0 ? 70 : 1);
    many.kv.push_back(3 * i);
  }
  // The first 32 have no rows, and no other 32 are without.
  for (int i = 0; i < 32; ++i) many.q[static_cast<std::size_t>(i)] = 0;
  AttentionSpec spec = spec_of(72, 16, true, mask_of(Kind::kNull));
  spec.num_q_heads = 1;
  expect_passes(spec, {many});
}

TEST_F(Sm90Sequences, MasksThatSkipTilesAndModifications) {
  MaskSpec window = mask_of(Kind::kSlidingWindow);
  window.window = 40;
  AttentionSpec spec = spec_of(128, 64, true, tree(Kind::kAnd, {mask_of(Kind::kCausal), window}));
  spec.sink = true;
  expect_passes(spec, {{{300, 1, 70}, {400, 200, 129}}, {{200, 100}, {64, 300}}});
  spec = with_group(spec_of(64, 32, true, verify::custom_mask()), 4, 2);
  spec.score_mod = verify::score_mods()[3].second;
  expect_passes(spec, {{{65, 2}, {130, 77}}});
  spec = with_group(spec_of(128, 128, false, mask_of(Kind::kChunked)), 4, 4);
  spec.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  spec.lse_includes_sink = false;
  spec.sink = true;
  expect_passes(spec, {{{40}, {130, 40, 0}}});
}

struct View {
  const char* name;
  TensorStrides strides;  // from page to page, row to row, head to head
};

// The layouts that serving runtimes keep: a page's rows or its heads first, K and V apart, by turns
// of pages or in one row.
void Sm90Sequences::expect_layouts(int rows) {
  SCOPED_TRACE(rows);
  constexpr int kHeads = 2, kDepth = 64;
  const AttentionSpec spec = with_group(spec_of(kDepth, rows, true), 4, 2);
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  const std::int64_t page_elements = std::int64_t{rows} * kHeads * kDepth;
  const View views[] = {
      {"NHD", {page_elements, kHeads * kDepth, kDepth}},
      {"HND", {page_elements, kDepth, rows * kDepth}},
      {"NHD, K and V by pages", {2 * page_elements, kHeads * kDepth, kDepth}},
      {"HND, K and V by pages", {2 * page_elements, kDepth, rows * kDepth}},
      {"NHD, K and V by rows", {2 * page_elements, 2 * kHeads * kDepth, 2 * kDepth}},
      {"HND, K and V by rows", {2 * page_elements, 2 * kDepth, 2 * rows * kDepth}},
  };
  for (const View& view : views) {
    SCOPED_TRACE(view.name);
    const auto packed = problem_of(spec, {{20, 1}, {50, 35}});
    ASSERT_TRUE(packed);
    Problem problem = *packed;
    for (const char* name : {"k", "v"}) {
      const verify::Tensor& from = packed->tensors.at(name);
      verify::Tensor to = verify::make_tensor(from.dtype, {from.shape[0] * view.strides.batch});
      std::fill_n(to.as<std::uint16_t>(), to.elements(), std::uint16_t{0x7fc0});  // NaN
      for (std::int64_t i = 0; i < from.elements(); ++i) {
        const std::int64_t depth = i % kDepth, head = i / kDepth % kHeads,
                           row = i / kDepth / kHeads % rows, page = i / page_elements;
        to.as<std::uint16_t>()[page * view.strides.batch + row * view.strides.row +
                               head * view.strides.head + depth] = from.as<std::uint16_t>()[i];
      }
      problem.tensors.at(name) = std::move(to);
    }
    LaunchShapes shapes = problem.launch_shapes();
    shapes.k = view.strides;
    shapes.v = view.strides;
    const auto done = run(*kernel, problem, launch_of(*kernel, problem, shapes, 132));
    ASSERT_TRUE(done);
    expect_right(*packed, *done);
  }
}

TEST_F(Sm90Sequences, PagesInTheLayoutsOfRuntimes) {
  for (const int rows : {16, 1, 6}) expect_layouts(rows);
}

// What a launch's tensors hold is not known on the host. Whatever they hold: no wait without an
// end, no access outside of a tensor. Sequences that share rows write them both, in no order.
void Sm90Sequences::expect_no_harm(int page_size) {
  SCOPED_TRACE(page_size);
  const AttentionSpec spec = spec_of(64, page_size, true);
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  const Lengths lengths{{70, 5, 64}, {100, 30, 64}};
  const auto change = [&](const char* tensor, const std::vector<std::int32_t>& values) {
    auto problem = problem_of(spec, lengths);
    ASSERT_TRUE(problem);
    auto* at = problem->tensors.at(tensor).as<std::int32_t>();
    ASSERT_LE(static_cast<std::int64_t>(values.size()), problem->tensors.at(tensor).elements());
    std::copy(values.begin(), values.end(), at);
    for (const int sm_count : {1, 132}) {
      run(*kernel, *problem, launch_of(*kernel, *problem, problem->launch_shapes(), sm_count), 0,
          {FindingKind::kRace, FindingKind::kProxy});
    }
  };
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();
  change("page_table", {kMax, kMin, -1, 1 << 20});
  change("kv_lens", {-7, 500, kMin});
  change("q_offsets", {0, 139, 20, 139});
  change("q_offsets", {kMin, 70, kMax, -5});
  change("q_offsets", {kMax, kMin, kMax, kMin});
  change("q_offsets", {0, 0, 0, kMax});
}

TEST_F(Sm90Sequences, WrongTablesAndLengthsDoNoHarm) {
  for (const int page_size : {16, 3}) expect_no_harm(page_size);
}

// A wait that is bounded in time does what one that is not does.
TEST_F(Sm90Sequences, BoundedWaits) {
  PlanOptions options;
  options.debug_waits = true;
  const Result<emulator::GeneratedKernel> kernel =
      emulator::generate_kernel(spec_of(128, 16, true), options);
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  EXPECT_EQ(kernel->log.find("serialized"), std::string::npos) << kernel->log;
}

}  // namespace
}  // namespace attnjit

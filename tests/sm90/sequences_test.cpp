// SPDX-License-Identifier: Apache-2.0
// Batches of sequences that differ in length, in pages and ragged, on sm_90a.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "../kernel_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

AttentionSpec sequences_spec(int qk_depth, int page_size, bool ragged,
                             const MaskSpec& mask = mask_of(Kind::kCausal)) {
  return of_sequences(base_spec(Arch::kSm90a, 2, 1, qk_depth, mask), page_size, ragged);
}

class Sm90Sequences : public KernelTest {
 protected:
  static void expect_layouts(int rows);
};

TEST_F(Sm90Sequences, PagesShorterThanATileAndLonger) {
  for (const int page_size : some_of<int>({8, 128, 16, 32, 40, 64, 256})) {
    SCOPED_TRACE(page_size);
    expect_passes(sequences_spec(64, page_size, false),
                  {{{70}, {200, 129, 64}}, {{1}, {1, 0, 150, 17}}, {{193}, {128, 130}}});
  }
}

TEST_F(Sm90Sequences, PagesThatHoldNoWholeBoxes) {
  for (const int page_size : some_of<int>({1, 12, 2, 5, 100})) {
    SCOPED_TRACE(page_size);
    expect_passes(sequences_spec(64, page_size, false),
                  {{{70}, {200, 129, 64}}, {{1}, {1, 0, 150, 17}}, {{193}, {128, 130}}});
  }
  for (const auto& [qk_depth, ov_depth] :
       some_of<std::pair<int, int>>({{40, 24}, {192, 128}, {96, 96}, {128, 128}, {256, 200}})) {
    SCOPED_TRACE(qk_depth);
    AttentionSpec spec = with_group(sequences_spec(qk_depth, 1, true), 4, 4);
    spec.ov_depth = ov_depth;
    expect_passes(spec, {{{80, 1, 0}, {150, 133, 7}}});
  }
}

TEST_F(Sm90Sequences, PagesOfEveryDepth) {
  for (const auto& [qk_depth, ov_depth] :
       some_of<std::pair<int, int>>({{40, 24}, {192, 128}, {96, 96}, {128, 128}, {256, 200}})) {
    SCOPED_TRACE(qk_depth);
    AttentionSpec spec = sequences_spec(qk_depth, 16, true);
    spec.ov_depth = ov_depth;
    expect_passes(spec, {{{130, 1}, {150, 133}}});
  }
}

// Boxes of a tile whose number is no power of two, and odd.
TEST_F(Sm90Sequences, TilesOfThreePagesAndOfFive) {
  for (const int keys : some_of<int>({80, 96})) {
    SCOPED_TRACE(keys);
    const Result<Tuning> tuning =
        tuning_from_json(R"({"rows": [{"match": {"qk_depth": 64}, "choose": {"BN": )" +
                         std::to_string(keys) + "}}]}");
    ASSERT_TRUE(tuning.ok()) << tuning.error().to_string();
    const int page_size = keys == 96 ? 32 : 16;
    expect_passes(sequences_spec(64, page_size, true), {{{70, 1, 0}, {300, 81, 5}}}, &*tuning);
  }
}

// A tile's boxes are registers of the producer.
TEST_F(Sm90Sequences, PagesSpillNothing) {
  for (const auto& [qk_depth, page_size] :
       some_of<std::pair<int, int>>({{128, 16}, {256, 16}, {96, 8}, {192, 24}})) {
    for (const int max_q_len : some_of<int>({0, 1})) {
      SCOPED_TRACE(qk_depth);
      AttentionSpec spec = with_group(sequences_spec(qk_depth, page_size, max_q_len == 0), 8, 4);
      spec.max_q_len = max_q_len;
      const auto kernel = compiled(spec, nullptr, CompileTo::kImage);
      ASSERT_TRUE(kernel);
      EXPECT_EQ(kernel->generated.usage.spill_bytes, 0);
    }
  }
}

TEST_F(Sm90Sequences, RaggedPromptsAndDecodes) {
  // Whole boxes of rows are stored by TMA, the others by threads: neither may touch a neighbour's.
  for (const auto& [heads, group] :
       some_of<std::pair<int, int>>({{2, 1}, {3, 3}, {2, 2}, {6, 6}}, 2)) {
    SCOPED_TRACE(group);
    expect_passes(with_group(sequences_spec(64, 0, true), heads, group),
                  {{{192, 1, 70, 0, 64}, {192, 70, 300, 5, 200}}, {{1, 1, 1}, {129, 1, 0}}});
  }
}

TEST_F(Sm90Sequences, RowsOfASequenceWithMoreRowsThanKeysSeeNothing) {
  expect_passes(with_group(sequences_spec(128, 64, true), 4, 4), {{{70, 3, 50}, {9, 0, 51}}});
}

TEST_F(Sm90Sequences, ABatchOfMoreSequencesThanAWarpHasLanes) {
  Lengths many;
  for (int i = 0; i < 70; ++i) {
    many.q.push_back(i % 7 == 0 ? 0 : i % 5 == 0 ? 70 : 1);
    many.kv.push_back(3 * i);
  }
  // The first 32 have no rows, and no other 32 are without.
  for (int i = 0; i < 32; ++i) many.q[static_cast<std::size_t>(i)] = 0;
  AttentionSpec spec = sequences_spec(72, 16, true, mask_of(Kind::kNull));
  spec.num_q_heads = 1;
  expect_passes(spec, {many});
}

// Few CTAs, so that each takes several tiles: prompts at one end and decodes at the other, which
// CTAs begin at from both ends; prompts alone, whose longer end is the first or the last; and
// sequences without rows at the ends.
TEST_F(Sm90Sequences, TilesAreTakenFromBothEnds) {
  const std::vector<Lengths> batches = {
      {{150, 70, 1, 1, 2, 1}, {150, 70, 130, 300, 64, 1}},
      {{1, 1, 0, 150}, {400, 5, 9, 150}},
      {{70, 100, 130}, {300, 200, 130}},
      {{0, 70, 130, 0}, {40, 80, 290, 40}},
      {{0, 0}, {10, 20}},
      {{1}, {0}},
  };
  const AttentionSpec spec = with_group(sequences_spec(64, 16, true), 4, 2);
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    auto problem = problem_of(spec, batches[i]);
    ASSERT_TRUE(problem);
    problem->tensors["tile_counters"] = verify::make_tensor(Dtype::kI32, {4});
    for (const int sm_count :
         i % 2 == 0 ? some_of<int>({2, 7, 1, 5}, 2) : some_of<int>({1, 5, 2, 7}, 2)) {
      SCOPED_TRACE(sm_count);
      const auto sequence = launches_of(*kernel, *problem, problem->launch_shapes(), sm_count);
      const auto done = run(*kernel, *problem, sequence, i);
      ASSERT_TRUE(done);
      expect_right(*problem, *done);
      // The next launch begins with the same words.
      EXPECT_EQ(done->others.at("tile_counters"), problem->tensors.at("tile_counters").bytes);
    }
  }
}

TEST_F(Sm90Sequences, MasksThatSkipTilesAndModifications) {
  std::vector<Trial> trials;
  MaskSpec window = mask_of(Kind::kSlidingWindow);
  window.window = 40;
  AttentionSpec spec =
      sequences_spec(128, 64, true, tree(Kind::kAnd, {mask_of(Kind::kCausal), window}));
  spec.sink = true;
  trials.push_back({spec, {{{300, 1, 70}, {400, 200, 129}}, {{200, 100}, {64, 300}}}});
  spec = with_group(sequences_spec(64, 32, true, verify::custom_mask()), 4, 2);
  spec.score_mod = verify::score_mods()[3].second;
  trials.push_back({spec, {{{65, 2}, {130, 77}}}});
  spec = with_group(sequences_spec(128, 128, false, mask_of(Kind::kChunked)), 4, 4);
  spec.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  spec.lse_includes_sink = false;
  spec.sink = true;
  trials.push_back({spec, {{{40}, {130, 40, 0}}}});
  expect_passes(some_of(trials, 2));
}

TEST_F(Sm90Sequences, RaggedKeys) {
  std::vector<Trial> trials;
  AttentionSpec spec = with_group(sequences_spec(64, 0, false), 4, 2);
  spec.ragged_kv = true;
  trials.push_back({spec, {{{70}, {200, 129, 0, 64}}, {{1}, {1, 300}}}});
  spec = with_group(sequences_spec(192, 0, true), 4, 2);
  spec.ov_depth = 128;
  spec.ragged_kv = true;
  trials.push_back({spec, {{{130, 1, 70, 0, 64}, {130, 70, 200, 5, 150}}, {{1, 5}, {0, 0}}}});
  spec = with_group(sequences_spec(96, 0, true, mask_of(Kind::kSlidingWindow)), 3, 3);
  spec.ragged_kv = true;
  spec.sink = true;
  spec.partition_keys = 192;
  trials.push_back({spec, {{{20, 3, 1}, {500, 33, 90}}}});
  expect_passes(some_of(trials, 2));
}

// Rows past a sequence's end are the next one's keys. What they hold does not matter, NaN or not.
TEST_F(Sm90Sequences, ANeighboursKeysAreNotSeen) {
  AttentionSpec spec = sequences_spec(64, 0, true);
  spec.ragged_kv = true;
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  const auto problem = problem_of(spec, {{7, 3}, {70, 50}});
  ASSERT_TRUE(problem);
  Problem poisoned = *problem;
  for (const char* name : {"k", "v"}) {
    verify::Tensor& tensor = poisoned.tensors.at(name);
    const std::int64_t first = problem->kv_row(1, 0) * spec.num_q_heads * spec.qk_depth;
    std::fill(tensor.as<std::uint16_t>() + first, tensor.as<std::uint16_t>() + tensor.elements(),
              std::uint16_t{0x7fc0});
  }
  const auto done =
      run(*kernel, *problem, launches_of(*kernel, *problem, problem->launch_shapes(), 2));
  const auto same =
      run(*kernel, poisoned, launches_of(*kernel, poisoned, poisoned.launch_shapes(), 2));
  ASSERT_TRUE(done && same);
  const auto bytes = static_cast<std::size_t>(7 * spec.num_q_heads * spec.qk_depth * 2);
  EXPECT_EQ(std::memcmp(done->o.bytes.data(), same->o.bytes.data(), bytes), 0);
}

TEST_F(Sm90Sequences, RowsOfBatches) {
  expect_passes(by_total_row(sequences_spec(64, 0, false)), {{{130, 130}, {150, 150}}});
  expect_passes(by_total_row(sequences_spec(64, 16, true)), {{{70, 1, 0, 5}, {200, 1, 64, 5}}});
}

// Lengths that leave out the rows of the call, whose keys the cache holds already.
TEST_F(Sm90Sequences, LengthsWithoutTheNewRows) {
  for (const auto& [page_size, ragged] :
       some_of<std::pair<int, bool>>({{0, true}, {16, false}, {3, true}})) {
    SCOPED_TRACE(page_size);
    AttentionSpec spec = sequences_spec(64, page_size, ragged);
    spec.kv_lens_exclude_new = true;
    std::vector<Lengths> batches{{{70}, {200, 70, 134}}, {{1}, {1, 300}}};
    if (ragged) batches = {{{70, 1, 0, 5}, {200, 1, 64, 5}}};
    expect_passes(spec, batches);
  }
}

struct View {
  const char* name;
  TensorStrides strides;  // from page to page, row to row, head to head
};

// The layouts that serving runtimes keep: a page's rows or its heads first; K and V apart, by turns
// of pages, or each row of K before its row of V, of several layers or of one (vLLM's
// KVCacheLayout: layers, blocks, heads, rows of a block, content); and pools of slots (SGLang).
std::vector<View> views_of(std::int64_t rows, std::int64_t pages, std::int64_t heads,
                           std::int64_t depth) {
  constexpr std::int64_t kLayers = 3;
  const std::int64_t content = 2 * depth;
  const std::int64_t page = rows * heads * depth, block = rows * heads * content;
  std::vector<View> views{
      {"NHD", {page, heads * depth, depth}},
      {"HND", {page, depth, rows * depth}},
      {"NHD, K and V by pages", {2 * page, heads * depth, depth}},
      {"HND, K and V by pages", {2 * page, depth, rows * depth}},
      {"LBHNC", {block, content, rows * content}},
      {"LBNHC", {block, heads * content, content}},
      {"LHBNC", {rows * content, content, pages * rows * content}},
      {"BLHNC", {kLayers * block, content, rows * content}},
      {"BLNHC", {kLayers * block, heads * content, content}},
      {"BHLNC", {kLayers * block, content, kLayers * rows * content}},
  };
  // Nothing is reached through the stride of a page's only row.
  if (rows == 1) views.push_back({"[slots, heads, depth]", {page, 1, depth}});
  return views;
}

void Sm90Sequences::expect_layouts(int rows) {
  SCOPED_TRACE(rows);
  constexpr int kHeads = 2, kDepth = 64;
  const AttentionSpec spec = with_group(sequences_spec(kDepth, rows, true), 4, 2);
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  const auto packed = problem_of(spec, {{20, 1}, {50, 35}});
  ASSERT_TRUE(packed);
  const std::int64_t pages = packed->num_pages;
  for (const View& view : views_of(rows, pages, kHeads, kDepth)) {
    SCOPED_TRACE(view.name);
    const auto& [of_page, of_row, of_head] = view.strides;
    Problem problem = *packed;
    for (const char* name : {"k", "v"}) {
      const verify::Tensor& from = packed->tensors.at(name);
      // Up to the last element and no further.
      verify::Tensor to = verify::make_tensor(
          from.dtype,
          {(pages - 1) * of_page + (rows - 1) * of_row + (kHeads - 1) * of_head + kDepth});
      std::fill_n(to.as<std::uint16_t>(), to.elements(), std::uint16_t{0x7fc0});  // NaN
      for (std::int64_t i = 0; i < from.elements(); ++i) {
        const std::int64_t depth = i % kDepth, head = i / kDepth % kHeads,
                           row = i / kDepth / kHeads % rows, page = i / kDepth / kHeads / rows;
        to.as<std::uint16_t>()[page * of_page + row * of_row + head * of_head + depth] =
            from.as<std::uint16_t>()[i];
      }
      problem.tensors.at(name) = std::move(to);
    }
    LaunchShapes shapes = problem.launch_shapes();
    shapes.k = view.strides;
    shapes.v = view.strides;
    const auto done = run(*kernel, problem, launches_of(*kernel, problem, shapes, 132));
    ASSERT_TRUE(done);
    expect_right(*packed, *done);
  }
}

TEST_F(Sm90Sequences, PagesInTheLayoutsOfRuntimes) {
  for (const int rows : some_of<int>({16, 6, 1})) expect_layouts(rows);
}

TEST_F(Sm90Sequences, WrongTablesAndLengthsDoNoHarm) {
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();
  const std::vector<Changed> wrong{
      {"page_table", {kMax, kMin, -1, 1 << 20}}, {"kv_lens", {-7, 500, kMin}},
      {"q_offsets", {0, 139, 20, 139}},          {"q_offsets", {kMin, 70, kMax, -5}},
      {"q_offsets", {kMax, kMin, kMax, kMin}},   {"q_offsets", {0, 0, 0, kMax}}};
  for (const int page_size : some_of<int>({16, 3})) {
    expect_no_harm(sequences_spec(64, page_size, true), wrong);
  }
  AttentionSpec spec = sequences_spec(64, 16, true);
  spec.kv_lens_exclude_new = true;
  spec.partition_keys = 64;
  expect_no_harm(spec, {{"kv_lens", {kMax, kMax, kMax}}, {"kv_lens", {kMin, 99, -1}}});
  spec = sequences_spec(64, 0, true);
  spec.ragged_kv = true;
  expect_no_harm(spec, {{"kv_offsets", {0, 190, 20, 194}},
                        {"kv_offsets", {kMin, 70, kMax, -5}},
                        {"kv_offsets", {kMax, kMin, kMax, kMin}},
                        {"kv_offsets", {0, 0, 0, kMax}},
                        {"kv_offsets", {194, 193, 194, kMax}}});
}

// A wait that is bounded in time does what one that is not does.
TEST_F(Sm90Sequences, BoundedWaits) {
  PlanOptions options;
  options.debug_waits = true;
  const Result<emulator::GeneratedKernel> kernel = emulator::generate_kernel(
      sequences_spec(128, 16, true), options, TemplateSet::embedded(), nullptr, CompileTo::kImage);
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  EXPECT_EQ(kernel->log.find("serialized"), std::string::npos) << kernel->log;
}

// Where registers lack for it, ptxas waits between products, which kernels of bounded waits may do.
TEST_F(Sm90Sequences, BoundedWaitsOfDeepTiles) {
  PlanOptions options;
  options.debug_waits = true;
  AttentionSpec spec = sequences_spec(256, 16, true);
  const Result<emulator::GeneratedKernel> kernel =
      emulator::generate_kernel(spec, options, TemplateSet::embedded(), nullptr, CompileTo::kImage);
  ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
  EXPECT_NE(kernel->log.find("serialized"), std::string::npos) << kernel->log;
  options.debug_waits = false;
  const Result<emulator::GeneratedKernel> fast =
      emulator::generate_kernel(spec, options, TemplateSet::embedded(), nullptr, CompileTo::kImage);
  ASSERT_TRUE(fast.ok()) << fast.error().to_string();
  EXPECT_EQ(fast->log.find("serialized"), std::string::npos) << fast->log;
}

}  // namespace
}  // namespace attnjit::sm90

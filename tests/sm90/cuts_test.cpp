// SPDX-License-Identifier: Apache-2.0
// Launches that cut long work tiles on sm_90a (common/cut_list.cuh): what CTAs are dealt, and the
// kernels' results. Skipped without NVRTC.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../cuts_fixture.h"
#include "../list_kernel.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

// Causal tiles of 128 rows, of packed groups of 4 heads, against 64 keys. A CTA writes how many it
// has, and of each the sequence, the group, the first row, the KV tiles and the slot.
constexpr int kTileM = 128, kTileN = 64, kGroup = 4;
constexpr const char* kKernel = R"(
#include "common/mask.cuh"
#include "common/sequence_tiles.cuh"
using namespace attnjit;
struct Config {
  static constexpr bool kRagged = true, kRaggedKv = false, kKvLensExcludeNew = false;
  static constexpr bool kSplit = true, kCuts = true, kBlockMask = false, kPairTiles = true;
  static constexpr bool kStreamK = false, kHeadStreamK = false, kClusterReduces = false, kSkipsHiddenTiles = false;
  static constexpr bool kE4m3 = false, kUpcastsKv = false;
  static constexpr int kCluster = 1, kGqaShift = 2, kGroup = 4, kTileM = 128, kTileN = 64;
  static constexpr int kUnitPositions = 0, kPageSize = 64, kPartitionTiles = 0;
  static constexpr int kQkDepth = 128, kOvDepth = 128;
};
struct Arguments {
  const int *kv_lens, *q_offsets;
  float* partial_lse;
  TileCounters* tile_counters;
  int batch, q_len, kv_len, num_q_heads, partitions, total_q;
};
struct NoParams {};

extern "C" __global__ void deal(const int* kv_lens, const int* q_offsets, int* out,
                                float* partial_lse, TileCounters* tile_counters, int batch,
                                int q_len, int heads, int partitions, int total_q, int most) {
  __shared__ alignas(16) unsigned char memory[kCutBytes];
  const Arguments arguments{kv_lens, q_offsets, partial_lse, tile_counters, batch,
                            q_len,   1 << 24,   heads,       partitions,    total_q};
  const NoParams params;
  const int lane = static_cast<int>(threadIdx.x);
  const CutWords words{shared_address(memory)};
  CutFinder<Config, CausalMask, SequenceTiling<Config>, Arguments, NoParams>{
      {{arguments}, params, lane}}.find(words);
  __syncwarp();
  SequenceSchedulerOf<Config, CausalMask, Arguments, NoParams> list(arguments, params, lane, words);
  int* const own = out + blockIdx.x * (1 + 6 * most);
  int count = 0;
  for (; list.next() && count < most; ++count) {
    const WorkTile work = list.tile();
    if (lane == 0) {
      int* const to = own + 1 + 6 * count;
      to[0] = work.batch;
      to[1] = work.head / Config::kGroup;
      to[2] = work.first_row;
      to[3] = work.tile_begin;
      to[4] = work.tile_end;
      to[5] = work.partition;
    }
  }
  list.end();
  if (lane == 0) own[0] = count;
}
)";

struct Batch {
  std::vector<std::pair<int, int>> sequences;  // rows and keys
  int groups = 1, ctas = 1;
};

struct Piece {
  int cta, begin, end, partition;
};
struct Dealt {
  std::map<std::tuple<int, int, int>, std::vector<Piece>> tiles;  // sequence, group, first row
  std::vector<int> units;  // KV tiles of each CTA that are of cut tiles
  std::vector<std::int32_t> tile_counters;
  // CTAs that have such.
  std::ptrdiff_t runs() const {
    return std::ranges::count_if(units, [](int own) { return own > 0; });
  }
};

class Sm90Cuts : public KernelTest {
 protected:
  static Dealt deal(const Batch& batch) {
    constexpr int kMost = 3000;
    constexpr auto kStride = static_cast<std::size_t>(1 + 6 * kMost);
    Dealt dealt;
    static const std::string text = ptx_of(kKernel, {"deal"});
    const Result<PtxModule> module = PtxModule::load(text);
    EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().to_string());
    if (!module) return dealt;
    std::vector<std::int32_t> q_offsets{0}, kv_lens;
    int longest = 0;
    for (const auto& [rows, keys] : batch.sequences) {
      q_offsets.push_back(q_offsets.back() + rows);
      kv_lens.push_back(keys);
      longest = std::max(longest, rows);
    }
    const auto ctas = static_cast<std::size_t>(batch.ctas);
    // Behind the LSEs: rows and parts of each run. All poisoned.
    const std::size_t table = 3 * ctas * kTileM;
    std::vector<EmulatorBuffer> buffers{
        buffer_of("kv_lens", kv_lens), buffer_of("q_offsets", q_offsets),
        buffer_of("out", std::vector<std::int32_t>(ctas * kStride, -2)),
        buffer_of("partial_lse", std::vector<std::int32_t>(table + ctas, 0x7fc00bad)),
        buffer_of("tile_counters", std::vector<std::int32_t>(4))};
    LaunchRecipe recipe;
    recipe.entry = "deal";
    recipe.grid = {static_cast<std::uint32_t>(batch.ctas), 1, 1};
    recipe.block = {32, 1, 1};
    for (const EmulatorBuffer& buffer : buffers) {
      recipe.args.push_back({KernelArgument::Pointer{buffer.name, 0, {}}});
    }
    for (const int number : {static_cast<int>(kv_lens.size()), longest, kGroup * batch.groups,
                             batch.ctas, q_offsets.back(), kMost}) {
      recipe.args.push_back({std::int32_t{number}});
    }
    const Result<EmulatorReport> report = emulate(*module, recipe, buffers);
    EXPECT_TRUE(report.ok() && report->passed);
    const auto word = [&](std::size_t buffer, std::size_t at) {
      std::int32_t value = 0;
      std::memcpy(&value, buffers[buffer].data.data() + 4 * at, 4);
      return value;
    };
    // Consumers write it; at first nothing is cut.
    for (std::size_t at = 2 * ctas * kTileM; at < table; ++at) EXPECT_EQ(word(3, at), -1);
    for (std::size_t at = table; at < table + ctas; ++at) EXPECT_EQ(word(3, at), 0);
    dealt.tile_counters = {word(4, 0), word(4, 1), word(4, 2)};
    for (int cta = 0; cta < batch.ctas; ++cta) {
      const std::size_t own = static_cast<std::size_t>(cta) * kStride;
      const std::int32_t count = word(2, own);
      EXPECT_GE(count, 0) << "CTA " << cta;
      int units = 0;
      for (std::int32_t i = 0; i < count; ++i) {
        const std::size_t at = own + 1 + 6 * static_cast<std::size_t>(i);
        const Piece piece{cta, word(2, at + 3), word(2, at + 4), word(2, at + 5)};
        dealt.tiles[{word(2, at), word(2, at + 1), word(2, at + 2)}].push_back(piece);
        if (piece.partition != -1) units += std::max(piece.end - piece.begin, 0);
      }
      dealt.units.push_back(units);
    }
    return dealt;
  }

  // Each KV tile that a row reaches once, whole or in parts that the merge finds; returns how many
  // tiles are cut.
  static int expect_each_once(const Batch& batch, const Dealt& dealt) {
    EXPECT_EQ(dealt.tile_counters, (std::vector<std::int32_t>{0, 0, 0}));
    std::size_t tiles = 0;
    for (const auto& [rows, keys] : batch.sequences) {
      tiles += static_cast<std::size_t>((rows * kGroup + kTileM - 1) / kTileM * batch.groups);
    }
    EXPECT_EQ(dealt.tiles.size(), tiles);
    int cut = 0;
    std::set<int> begun;  // by which CTAs
    for (const auto& [place, pieces] : dealt.tiles) {
      const auto& [sequence, group, first_row] = place;
      SCOPED_TRACE(testing::Message()
                   << "sequence " << sequence << ", group " << group << ", row " << first_row);
      const auto [rows, keys] = batch.sequences.at(static_cast<std::size_t>(sequence));
      const int last_row = std::min(first_row + kTileM, rows * kGroup) - 1;
      const int reached = std::max(keys - rows + last_row / kGroup + 1, 0);
      const int end = (reached + kTileN - 1) / kTileN;
      if (pieces.front().partition == -1) {
        EXPECT_EQ(pieces.size(), 1U);
        EXPECT_EQ(pieces.front().begin, 0);
        EXPECT_EQ(pieces.front().end, end);
        continue;
      }
      ++cut;
      // In the order of CTAs, from the last keys to the first.
      int left = end;
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const Piece& piece = pieces[i];
        EXPECT_EQ(piece.cta, pieces.front().cta + static_cast<int>(i));
        EXPECT_EQ(piece.partition, i == 0 ? -static_cast<int>(pieces.size()) : 0);
        EXPECT_EQ(piece.end, left);
        EXPECT_LE(piece.begin, piece.end);
        left = piece.begin;
      }
      EXPECT_EQ(left, 0);
      EXPECT_TRUE(begun.insert(pieces.front().cta).second) << "a run begins two cut tiles";
    }
    return cut;
  }
};

TEST_F(Sm90Cuts, DealsEachTileOnce) {
  std::mt19937 random(20261129);
  const auto draw = [&](int begin, int end) {
    return begin + static_cast<int>(random() % static_cast<unsigned>(end - begin));
  };
  int batches_cut = 0, batches_whole = 0;
  for (int i = 0; i < (in_proof() ? 400 : 60); ++i) {
    Batch batch;
    batch.groups = draw(1, 5);
    batch.ctas = draw(1, 5) == 1 ? draw(2, 4) : draw(2, 40);
    const int longest = 1 << draw(4, 17);
    for (int sequences = draw(1, i % 9 == 0 ? 120 : 20); sequences > 0; --sequences) {
      const int kind = draw(0, 8);
      const int keys = kind == 0 ? draw(0, longest) : 1 << draw(0, 1 + draw(1, 16) % 14);
      const int rows = kind < 4 ? 1 : kind == 4 ? 0 : kind == 5 ? draw(1, 90) : draw(1, 9);
      batch.sequences.emplace_back(rows, keys);
    }
    SCOPED_TRACE(testing::Message() << i << ": " << batch.sequences.size() << " sequences, "
                                    << batch.groups << " groups, " << batch.ctas << " CTAs");
    const int cut = expect_each_once(batch, deal(batch));
    (cut > 0 ? batches_cut : batches_whole) += 1;
    if (HasFailure()) return;
  }
  EXPECT_GT(batches_cut, 10);
  EXPECT_GT(batches_whole, 10);
}

// One long sequence among short ones: no CTA has more of it than its share of all.
TEST_F(Sm90Cuts, NoCtaWaitsForALongSequence) {
  Batch batch{{{8, 30}, {1, 64 * 1000}}, 2, 20};
  for (int i = 0; i < 10; ++i) batch.sequences.emplace_back(1, 64 * 5);
  const Dealt dealt = deal(batch);
  EXPECT_GT(expect_each_once(batch, dealt), 0);
  const int all = 2 * (1000 + 10 * 5 + 1);
  EXPECT_LE(*std::ranges::max_element(dealt.units), all / 20 + 3);
  EXPECT_EQ(dealt.runs(), 19);
}

// Tiles that CTAs do in whole rounds, and prompts, whose tiles come from the longest to the
// shortest, stay whole.
TEST_F(Sm90Cuts, WhatIsEvenStaysWhole) {
  Batch even{{}, 4, 16};
  for (int i = 0; i < 8; ++i) even.sequences.emplace_back(1, 64 * 100);
  EXPECT_EQ(expect_each_once(even, deal(even)), 0);
  const Batch prompts{{{2000, 2000}, {1000, 1000}}, 2, 16};
  EXPECT_EQ(expect_each_once(prompts, deal(prompts)), 0);
  // Uneven ones that other tiles even out.
  Batch many{{{1, 64 * 60}}, 4, 8};
  for (int i = 0; i < 60; ++i) many.sequences.emplace_back(1, 64 * 20);
  EXPECT_EQ(expect_each_once(many, deal(many)), 0);
  // Long ones of which the shorter come last.
  Batch uneven{{}, 1, 16};
  for (int i = 0; i < 8; ++i) uneven.sequences.emplace_back(1, 64 * 500);
  for (int i = 0; i < 30; ++i) uneven.sequences.emplace_back(1, 64 * 130);
  EXPECT_EQ(expect_each_once(uneven, deal(uneven)), 0);
}

// Of a long chunk the last round would leave most CTAs idle. That a decode is longer than its tiles
// does not matter, where nobody waits for that.
TEST_F(Sm90Cuts, ALastRoundOfFewTilesIsCut) {
  Batch batch{{{1152, 64 * 1000}, {1, 64 * 2000}}, 1, 16};
  const Dealt dealt = deal(batch);
  EXPECT_GE(expect_each_once(batch, dealt), 10);
  EXPECT_GE(dealt.runs(), 15);
}

class Sm90CutKernels : public CutsTest {
 protected:
  Sm90CutKernels() : CutsTest(Arch::kSm90a) {}
};

TEST_F(Sm90CutKernels, Chunks) { expect_all(chunks(), 2); }
TEST_F(Sm90CutKernels, LayoutsOfKeys) { expect_all(layouts_of_keys(), 1); }
TEST_F(Sm90CutKernels, TypesAndMasks) { expect_all(types_and_masks(), 3); }
TEST_F(Sm90CutKernels, ShallowHeads) { expect_all(shallow_heads(), 3); }
TEST_F(Sm90CutKernels, RowsOfPages) { expect_all(rows_of_pages(), 3); }
TEST_F(Sm90CutKernels, OddGroups) { expect_all(odd_groups(), 1); }
TEST_F(Sm90CutKernels, TheMergeIsNeeded) { expect_merge_needed(); }
TEST_F(Sm90CutKernels, ShortKeysAreWrittenWhole) { expect_short_keys_whole(); }

}  // namespace
}  // namespace attnjit::sm90

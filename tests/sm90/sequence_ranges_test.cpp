// SPDX-License-Identifier: Apache-2.0
// What CTAs are dealt where sequences differ in kv_len (common/sequence_ranges.cuh): each KV tile
// once, in parts that the merge can tell apart, and as much to one CTA as to another. Skipped
// without NVRTC.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../list_kernel.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

// Of common/sequence_ranges.cuh, and of common/cut_table.cuh.
constexpr int kWorkTileUnits = 4, kHeadTileUnits = 2, kClusterReduced = 1 << 16;

// Tiles of 64 rows against 64 keys: of 128 heads and one position or more; or, with HEADS, of a
// group's 4 heads and up to 16 positions, in a ragged batch. A CTA writes how many it has, and of
// each the sequence, the first row or the group, the KV tiles and the partition.
constexpr const char* kKernel = R"(
#include "common/mask.cuh"
#include "common/sequence_ranges.cuh"
using namespace attnjit;
struct Config {
  static constexpr bool kRagged = HEADS, kRaggedKv = false, kKvLensExcludeNew = false;
  static constexpr bool kSplit = true, kStreamK = true, kBlockMask = false, kPairTiles = false;
  static constexpr bool kHeadStreamK = HEADS, kClusterReduces = !HEADS, kCuts = false;
  static constexpr bool kSkipsHiddenTiles = false;
  static constexpr int kCluster = 1, kTileM = 64, kTileN = 64;
#if HEADS
  static constexpr int kGqaShift = 2, kGroup = 4, kCtasPerSm = CTAS_PER_SM;
#else
  static constexpr int kGqaShift = 7, kGroup = 128;
#endif
  static constexpr int kPageSize = 64, kPartitionTiles = 0, kUnitPositions = 0;
};
struct Arguments {
  const int *kv_lens, *q_offsets;
  int batch, q_len, kv_len, num_q_heads, partitions, uniform_splits, cluster_reduced, total_q;
};
struct NoParams {};
using Finder = RangeFinder<Config, CausalMask, Arguments, NoParams>;
using List = SequenceRangeList<Config, CausalMask, Arguments, NoParams>;

extern "C" __global__ void deal(const int* kv_lens, const int* q_offsets, int* out, int batch,
                                int q_len, int heads, int partitions, int uniform_splits, int cluster_reduced,
                                int total_q, int most) {
  const Arguments arguments{kv_lens, q_offsets,  batch,      q_len,  1 << 20,
                            heads,   partitions, uniform_splits, cluster_reduced, total_q};
  const NoParams params;
  const int lane = static_cast<int>(threadIdx.x);
  const SchedulerCursor place = Finder{{{arguments}, params}, lane}.find();
  int* const own = out + blockIdx.x * (1 + 5 * most);
  List list(arguments, params, place);
  int count = 0;
  for (; !list.done() && count < most; list.advance(), ++count) {
    const WorkTile work = list.tile();
    if (lane == 0) {
      int* const to = own + 1 + 5 * count;
      to[0] = work.batch;
      to[1] = HEADS ? work.head / Config::kGroup : work.first_row;
      to[2] = work.tile_begin;
      to[3] = work.tile_end;
      to[4] = work.partition;
    }
  }
  if (lane == 0) own[0] = list.done() ? count : -1;
}
)";

struct Launch {
  std::vector<std::int32_t> kv_lens;
  int q_len = 1, ctas = 1;
  int splits = 0;                // uniform ones; 0: the device is asked
  bool cluster_reduced = false;  // two CTAs have half of each split
  // Of heads: groups of them, and which sequences have no rows; the others have q_len.
  int groups = 0;
  std::set<int> empty = {};
  int ctas_per_sm = 2;  // of heads

  int tiles() const { return groups > 0 ? groups : 2 * q_len; }  // of a sequence
  int between() const { return groups > 0 ? kHeadTileUnits : kWorkTileUnits; }
  std::vector<std::int32_t> q_offsets() const {
    std::vector<std::int32_t> offsets{0};
    for (int i = 0; i < static_cast<int>(kv_lens.size()); ++i) {
      offsets.push_back(offsets.back() + (empty.count(i) > 0 ? 0 : q_len));
    }
    return offsets;
  }
  static int kv_tiles(int keys) { return (std::max(keys, 0) + 63) / 64; }
};

// A piece of a query tile's keys, as KV tiles.
struct Piece {
  int begin = 0, end = 0, partition = 0, cta = 0;
};
struct Dealt {
  std::map<std::pair<int, int>, std::vector<Piece>> pieces;  // of a sequence's query tile
  int most = 0;                                              // KV tiles of a CTA
  int most_units = 0;  // of a CTA: its KV tiles, of a piece without any one, and those that are
                       // nobody's between two pieces
  bool whole = true;   // no tile is cut
};

class Sm90SequenceRanges : public KernelTest {
 protected:
  static Dealt deal(const Launch& launch) {
    constexpr int kMost = 6000;  // work tiles of a CTA
    Dealt dealt;
    const Result<PtxModule> module = PtxModule::load(ptx(launch));
    EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().to_string());
    if (!module) return dealt;
    const auto stride = static_cast<std::size_t>(1 + 5 * kMost);
    std::vector<std::int32_t> out(static_cast<std::size_t>(launch.ctas) * stride, -2);
    const std::vector<std::int32_t> q_offsets = launch.q_offsets();
    std::vector<EmulatorBuffer> buffers{buffer_of("kv_lens", launch.kv_lens),
                                        buffer_of("q_offsets", q_offsets), buffer_of("out", out)};
    LaunchRecipe recipe;
    recipe.entry = "deal";
    recipe.grid = {static_cast<std::uint32_t>(launch.ctas), 1, 1};
    recipe.block = {32, 1, 1};
    for (const EmulatorBuffer& buffer : buffers) {
      recipe.args.push_back({KernelArgument::Pointer{buffer.name, 0, {}}});
    }
    const int heads = launch.groups > 0 ? 4 * launch.groups : 128;
    for (const int number :
         {static_cast<int>(launch.kv_lens.size()), launch.q_len, heads,
          launch.splits > 0 ? launch.splits : launch.ctas + 1, std::max(launch.splits, 1),
          launch.cluster_reduced ? 1 : 0, q_offsets.back(), kMost}) {
      recipe.args.push_back({std::int32_t{number}});
    }
    const Result<EmulatorReport> report = emulate(*module, recipe, buffers);
    EXPECT_TRUE(report.ok() && report->passed);
    std::memcpy(out.data(), buffers[2].data.data(), buffers[2].data.size());
    for (int cta = 0; cta < launch.ctas; ++cta) {
      const std::int32_t* const own = out.data() + static_cast<std::size_t>(cta) * stride;
      EXPECT_GE(own[0], 0) << "CTA " << cta;
      int tiles = 0, units = 0;
      for (int i = 0; i < own[0]; ++i) {
        const std::int32_t* const work = own + 1 + 5 * i;
        add({work[2], work[3], work[4], cta}, dealt.pieces[{work[0], work[1]}]);
        const int own_tiles = std::max(work[3] - work[2], 0);
        tiles += own_tiles;
        units += std::max(own_tiles, 1) + (i > 0 ? launch.between() : 0);
        dealt.whole = dealt.whole && work[4] == -1;
      }
      dealt.most = std::max(dealt.most, tiles);
      dealt.most_units = std::max(dealt.most_units, units);
    }
    return dealt;
  }

  // Adds a piece. Both halves of a part that two CTAs reduce are one: of rows that see less than
  // others, one may have a tile more or less.
  static void add(Piece piece, std::vector<Piece>& pieces) {
    const bool cluster_reduced = piece.partition >= kClusterReduced / 2;
    if (cluster_reduced) piece.partition -= kClusterReduced;
    const auto other = std::ranges::find(pieces, piece.partition, &Piece::partition);
    if (!cluster_reduced || other == pieces.end()) {
      pieces.push_back(piece);
      return;
    }
    const int own = std::max(piece.end - piece.begin, 0);
    const int before = std::max(other->end - other->begin, 0);
    EXPECT_LE(std::abs(before - own), 1);
    if (own == 0) return;
    EXPECT_EQ(piece.end, other->begin);
    other->begin = piece.begin;
  }

  // Each KV tile once, and partitions as the merge wants them: of a cut tile the first part says
  // how many there are, and the others are with the teams that follow.
  static void expect_each_tile_once(const Launch& launch, const Dealt& dealt) {
    EXPECT_EQ(dealt.pieces.size(), (launch.kv_lens.size() - launch.empty.size()) *
                                       static_cast<std::size_t>(launch.tiles()));
    for (const auto& [place, pieces] : dealt.pieces) {
      SCOPED_TRACE(testing::Message() << "sequence " << place.first << ", row " << place.second);
      EXPECT_EQ(launch.empty.count(place.first), 0U);
      // Of heads a tile has all the rows.
      const int position = launch.groups > 0 ? launch.q_len - 1 : place.second / 128;
      const int keys =
          launch.kv_lens[static_cast<std::size_t>(place.first)] - launch.q_len + position + 1;
      std::vector<int> seen(static_cast<std::size_t>(Launch::kv_tiles(keys)));
      std::set<int> partitions;
      for (const Piece& piece : pieces) {
        for (int tile = piece.begin; tile < piece.end; ++tile) {
          ASSERT_LT(static_cast<std::size_t>(tile), seen.size());
          ++seen[static_cast<std::size_t>(tile)];
        }
        partitions.insert(piece.partition);
      }
      for (const int times : seen) EXPECT_EQ(times, 1);
      const int parts = static_cast<int>(pieces.size());
      std::set<int> expected{-parts};
      if (launch.splits > 1) {
        EXPECT_EQ(parts, launch.splits);
        expected.clear();
        for (int part = 0; part < parts; ++part) expected.insert(part);
      } else if (parts > 1) {
        expected.insert(0);
        for (int part = 0; part < parts; ++part) {
          const Piece& piece = pieces[static_cast<std::size_t>(part)];
          EXPECT_EQ(piece.partition, part == 0 ? -parts : 0);
          EXPECT_EQ(piece.cta, pieces[0].cta + part * launch.tiles());
        }
      }
      EXPECT_EQ(partitions, expected);
    }
  }

 private:
  static const std::string& ptx(const Launch& launch) {
    static std::map<std::string, std::string> made;
    const std::string defines = "#define HEADS " + std::to_string(launch.groups > 0 ? 1 : 0) +
                                "\n#define CTAS_PER_SM " + std::to_string(launch.ctas_per_sm) +
                                "\n";
    std::string& text = made[defines];
    if (text.empty()) text = ptx_of(defines + kKernel, {"deal"});
    return text;
  }
};

TEST_F(Sm90SequenceRanges, DealsEachTileOnce) {
  std::mt19937 random(20261126);
  const auto draw = [&](int begin, int end) {
    return begin + static_cast<int>(random() % static_cast<unsigned>(end - begin));
  };
  for (int i = 0; i < 60; ++i) {
    Launch launch;
    launch.q_len = draw(1, 4);
    launch.ctas = draw(1, 60);
    launch.splits = std::max(draw(-12, 12), 0);
    launch.cluster_reduced = draw(0, 2) == 1;
    if (launch.cluster_reduced) launch.ctas += launch.ctas % 2;
    const int longest = 1 << draw(2, 14);
    for (int sequences = draw(1, 80); sequences > 0; --sequences) {
      launch.kv_lens.push_back(draw(0, longest));
    }
    SCOPED_TRACE(testing::Message() << i << ": " << launch.kv_lens.size() << " sequences of up to "
                                    << longest << " keys and " << launch.q_len << " rows, "
                                    << launch.ctas << " CTAs, " << launch.splits << " splits");
    expect_each_tile_once(launch, deal(launch));
  }
}

// The same of heads, where some sequences have no rows: at either end of the batch, too, and more
// than a warp looks at together; more than 1024 sequences, and fewer CTAs than heads.
TEST_F(Sm90SequenceRanges, DealsEachTileOfEachHeadOnce) {
  std::mt19937 random(20261127);
  const auto draw = [&](int begin, int end) {
    return begin + static_cast<int>(random() % static_cast<unsigned>(end - begin));
  };
  int cut = 0;
  for (int i = 0; i < 60; ++i) {
    Launch launch;
    launch.q_len = draw(1, 17);
    launch.groups = draw(1, 9);
    launch.ctas = draw(1, 60);
    launch.splits = std::max(draw(-12, 12), 0);
    const int longest = 1 << draw(2, 14);
    const int sequences = i == 0 ? 1100 : draw(1, 80);
    const int emptied = draw(0, 3);  // of each three
    for (int sequence = 0; sequence < sequences; ++sequence) {
      launch.kv_lens.push_back(draw(0, longest));
      const bool far = i % 4 == 0 && (sequence < 40 || sequence > 50);
      if (draw(0, 3) < emptied || far) launch.empty.insert(sequence);
    }
    SCOPED_TRACE(testing::Message()
                 << i << ": " << sequences << " sequences of up to " << longest << " keys, "
                 << launch.empty.size() << " of no row, " << launch.groups << " groups, "
                 << launch.ctas << " CTAs, " << launch.splits << " splits");
    const Dealt dealt = deal(launch);
    expect_each_tile_once(launch, dealt);
    cut += dealt.whole ? 0 : 1;
  }
  EXPECT_GT(cut, 20);
}

// 33 teams of 8 CTAs. With whole sequences a CTA would have 512 KV tiles.
TEST_F(Sm90SequenceRanges, DealsAsMuchToEachOfHeads) {
  Launch launch{{}, 1, 264, 0, false, 8};
  for (int i = 0; i < 36; ++i) launch.kv_lens.push_back(64 * (i < 4 ? 512 : 32));
  for (const int i : {5, 6, 35, 0}) launch.empty.insert(i);
  const Dealt dealt = deal(launch);
  expect_each_tile_once(launch, dealt);
  EXPECT_EQ(dealt.most_units, (3 * 512 + 29 * 32 + 31 * kHeadTileUnits + 32) / 33);
}

// Decodes share memory: where all have work to the end, or nearly, nothing is gained by ranges. 64
// sequences that rise evenly to 2k keys stay whole, which ranges had made 10 % longer on an H200;
// 32 that rise to 8k and a few long ones do not.
TEST_F(Sm90SequenceRanges, LeavesDecodesWholeThatFillMemory) {
  const auto rising = [](int sequences, int longest) {
    Launch launch{{}, 1, 264, 0, false, 8};
    for (int i = 0; i < sequences; ++i) {
      launch.kv_lens.push_back(longest / 8 + longest / 8 * 7 * i / (sequences - 1));
    }
    return launch;
  };
  EXPECT_TRUE(deal(rising(64, 2048)).whole);
  EXPECT_FALSE(deal(rising(32, 8192)).whole);
  // A CTA that has its SM alone leaves nobody its share.
  Launch alone = rising(64, 2048);
  alone.ctas_per_sm = 1;
  EXPECT_FALSE(deal(alone).whole);
  Launch few{{}, 1, 264, 0, false, 8};
  for (int i = 0; i < 32; ++i) few.kv_lens.push_back(i < 4 ? 8192 : 512);
  EXPECT_FALSE(deal(few).whole);
}

// 64 teams of two CTAs. With whole sequences a CTA would have 241 KV tiles.
TEST_F(Sm90SequenceRanges, DealsAsMuchToEach) {
  Launch launch{{}, 1, 128};
  for (int i = 0; i < 32; ++i) launch.kv_lens.push_back(64 * (i % 2 == 0 ? 240 : 0) + 1);
  const Dealt dealt = deal(launch);
  expect_each_tile_once(launch, dealt);
  EXPECT_EQ(dealt.most_units, (16 * 241 + 16 + 31 * kWorkTileUnits + 63) / 64);
}

// A work tile takes time beside its keys: who has many short sequences has fewer keys. Dealt out
// by KV tiles alone, a CTA would have 45 of them, and 15 sequences.
TEST_F(Sm90SequenceRanges, DealsFewerKeysOfShortSequences) {
  Launch launch{{}, 1, 64};
  for (int i = 0; i < 160; ++i) launch.kv_lens.push_back(64 * 3);
  for (int i = 0; i < 4; ++i) launch.kv_lens.push_back(64 * 240);
  const Dealt dealt = deal(launch);
  expect_each_tile_once(launch, dealt);
  EXPECT_EQ(dealt.most_units, (160 * 3 + 4 * 240 + 163 * kWorkTileUnits + 31) / 32);
}

// Whole sequences where they are as long as one another: ranges that would be a few tiles shorter
// are not worth their merges.
TEST_F(Sm90SequenceRanges, LeavesEvenSequencesWhole) {
  const Launch launch{std::vector<std::int32_t>(64, 64 * 128), 1, 132};
  const Dealt dealt = deal(launch);
  expect_each_tile_once(launch, dealt);
  EXPECT_TRUE(dealt.whole);
  EXPECT_EQ(dealt.most, 128);
}

}  // namespace
}  // namespace attnjit::sm90

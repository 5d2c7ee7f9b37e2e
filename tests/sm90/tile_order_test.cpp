// SPDX-License-Identifier: Apache-2.0
// The order of a ragged batch's tiles, which no result of an attention shows: how many CTAs begin
// at each end of their list, and which heads come together. Skipped without NVRTC.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../list_kernel.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

// Causal tiles of 128 rows, of 8 heads of depth 128.
constexpr const char* kKernels = R"(
#include "common/mask.cuh"
#include "common/sequence_tiles.cuh"
using namespace attnjit;
template <bool kBytes>
struct Config {
  static constexpr bool kRagged = true, kRaggedKv = false, kKvLensExcludeNew = false;
  static constexpr bool kSplit = false, kBlockMask = false, kPairTiles = true;
  static constexpr bool kCuts = false, kSkipsHiddenTiles = false;
  static constexpr bool kE4m3 = kBytes, kUpcastsKv = false;
  static constexpr int kCluster = 1, kGqaShift = 0, kGroup = 1, kTileM = 128;
  static constexpr int kUnitPositions = 0;
  static constexpr int kQkDepth = 128, kOvDepth = 128;
};
struct Arguments {
  const int *q_offsets, *kv_lens;
  int batch, total_q, q_len, kv_len, num_q_heads;
  TileCounters* tile_counters;
};
struct NoParams {};
template <bool kBytes>
using List = SequenceList<Config<kBytes>, CausalMask, SequenceTiling<Config<kBytes>>, Arguments,
                          NoParams>;

// Each CTA says how many begin at the front.
extern "C" __global__ void fronts(const int* q_offsets, const int* kv_lens, int* out,
                                  TileCounters* tile_counters, int batch) {
  const Arguments arguments{q_offsets, kv_lens, batch, 1 << 20, 1 << 20, 1 << 20, 8, tile_counters};
  const List<false> list(arguments, {}, static_cast<int>(threadIdx.x));
  const int found = list.dynamic.front();
  if (threadIdx.x == 0) out[blockIdx.x] = found;
}

// One CTA says the heads of its first tiles.
template <bool kBytes>
__device__ void write_heads(const Arguments& arguments, int* out, int count) {
  List<kBytes> list(arguments, {}, static_cast<int>(threadIdx.x));
  for (int i = 0; i < count; ++i, list.advance()) {
    const SequenceTile tile = list.tile();
    if (threadIdx.x == 0) out[i] = tile.head;
  }
}
extern "C" __global__ void heads(const int* q_offsets, const int* kv_lens, int* out, int count,
                                 int bytes, int batch) {
  const Arguments arguments{q_offsets, kv_lens, batch, 1 << 20, 1 << 20, 1 << 20, 8, nullptr};
  bytes != 0 ? write_heads<true>(arguments, out, count)
             : write_heads<false>(arguments, out, count);
}
)";

struct Sequence {
  int rows, keys;
};

class Sm90TileOrder : public KernelTest {
 protected:
  // The CTAs of `ctas` that begin at the front of the list.
  static int front_of(const std::vector<Sequence>& sequences, int ctas) {
    const std::vector<std::int32_t> fronts = written(
        "fronts", sequences, ctas, ctas, {{KernelArgument::Pointer{"tile_counters", 0, {}}}});
    for (const std::int32_t front : fronts) EXPECT_EQ(front, fronts[0]) << "CTAs disagree";
    return fronts[0];
  }
  // The heads of the first six tiles of a CTA that has all of them.
  static std::vector<std::int32_t> heads_of(const Sequence& sequence, bool eight_bits) {
    return written("heads", {sequence}, 1, 6, {{6}, {eight_bits ? 1 : 0}});
  }

 private:
  static std::vector<std::int32_t> written(const std::string& entry,
                                           const std::vector<Sequence>& sequences, int ctas,
                                           int count, const std::vector<KernelArgument>& more) {
    std::vector<std::int32_t> out(static_cast<std::size_t>(count), -1);
    const Result<PtxModule> module = PtxModule::load(ptx());
    EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().to_string());
    if (!module) return out;
    std::vector<std::int32_t> q_offsets{0}, kv_lens;
    for (const auto& [rows, keys] : sequences) {
      q_offsets.push_back(q_offsets.back() + rows);
      kv_lens.push_back(keys);
    }
    std::vector<EmulatorBuffer> buffers{buffer_of("q_offsets", q_offsets),
                                        buffer_of("kv_lens", kv_lens), buffer_of("out", out)};
    LaunchRecipe recipe;
    recipe.entry = entry;
    recipe.grid = {static_cast<std::uint32_t>(ctas), 1, 1};
    recipe.block = {32, 1, 1};
    for (const EmulatorBuffer& buffer : buffers) {
      recipe.args.push_back({KernelArgument::Pointer{buffer.name, 0, {}}});
    }
    buffers.push_back(buffer_of("tile_counters", std::vector<std::int32_t>(4)));
    recipe.args.insert(recipe.args.end(), more.begin(), more.end());
    recipe.args.push_back({static_cast<std::int32_t>(sequences.size())});
    const Result<EmulatorReport> report = emulate(*module, recipe, buffers);
    EXPECT_TRUE(report.ok() && report->passed);
    std::memcpy(out.data(), buffers[2].data.data(), buffers[2].data.size());
    return out;
  }

  static const std::string& ptx() {
    static const std::string compiled = ptx_of(kKernels, {"fronts", "heads"});
    return compiled;
  }
};

// What a head's tiles take, in keys: the prompt's 32 tiles see 2049 in the middle, at 1.5 times the
// time: 98352. The 64 decodes take 524288, 0.842 of both, which is 111.1 of 132 CTAs. Their 512
// tiles are 4.6 rounds of those: 103 CTAs do them in five.
TEST_F(Sm90TileOrder, LongDecodesGetAsManyCtasAsEndTogether) {
  std::vector<Sequence> batch(64, {1, 8192});
  batch.insert(batch.begin(), {4096, 4096});
  EXPECT_EQ(front_of(batch, 132), 132 - 103);
  std::rotate(batch.begin(), batch.begin() + 1, batch.end());  // the prompt is the last
  EXPECT_EQ(front_of(batch, 132), 103);
}

// The prompt's tiles take 98352 as above, the decodes' 64 tiles 64 * 1000: so its share is 80 of
// 132 CTAs, and its 256 tiles are 3.2 rounds of these: 86 CTAs do them in three.
TEST_F(Sm90TileOrder, LongPromptsGetAsManyCtasAsEndTogether) {
  std::vector<Sequence> batch(64, {1, 1000});
  batch.insert(batch.begin(), {4096, 4096});
  EXPECT_EQ(front_of(batch, 132), 86);
  std::rotate(batch.begin(), batch.begin() + 1, batch.end());
  EXPECT_EQ(front_of(batch, 132), 132 - 86);
}

// Where both ends are of a kind, all CTAs begin at the one whose tiles are longer.
TEST_F(Sm90TileOrder, AllBeginAtTheLongerEnd) {
  EXPECT_EQ(front_of({{300, 300}, {1, 9000}, {200, 4000}}, 132), 0);
  EXPECT_EQ(front_of({{300, 4000}, {1, 9000}, {200, 300}}, 132), 132);
  EXPECT_EQ(front_of({{1, 300}, {500, 900}, {1, 4000}}, 132), 0);
}

// Sequences without rows have no tiles, and are no end of the list. Either end has a CTA at least.
TEST_F(Sm90TileOrder, EitherEndHasACta) {
  EXPECT_EQ(front_of({{0, 5}, {1, 100000}, {128, 128}, {0, 7}}, 4), 3);
  EXPECT_EQ(front_of({{0, 5}, {128, 128}, {1, 100000}, {0, 7}}, 4), 1);
}

// Of 20,000 keys a head's K and V have 10.24 MB, or half of that; 25 MB of them share L2. One CTA
// alone begins with the last tile.
TEST_F(Sm90TileOrder, AsManyHeadsComeTogetherAsShareL2) {
  EXPECT_EQ(heads_of({8192, 20000}, false), (std::vector<std::int32_t>{7, 6, 7, 6, 7, 6}));
  EXPECT_EQ(heads_of({8192, 20000}, true), (std::vector<std::int32_t>{7, 6, 5, 4, 7, 6}));
  // Few rows beside the keys: a head's tiles follow one another.
  EXPECT_EQ(heads_of({384, 20000}, false), (std::vector<std::int32_t>{7, 7, 7, 6, 6, 6}));
}

}  // namespace
}  // namespace attnjit::sm90

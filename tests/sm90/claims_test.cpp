// SPDX-License-Identifier: Apache-2.0
// How many CTAs of a ragged batch begin at each end of its list of tiles: the numbers of
// templates/common/sequences.cuh, which no result of an attention shows. Skipped without NVRTC.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../kernel_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

// Causal tiles of 128 rows, of 8 heads.
constexpr const char* kKernel = R"(
#include "common/mask.cuh"
#include "common/sequence_tiles.cuh"
using namespace attnjit;
struct Config {
  static constexpr bool kRagged = true, kRaggedKv = false, kKvLensExcludeNew = false;
  static constexpr bool kSplit = false, kMapped = false, kPairTiles = false;
  static constexpr int kCluster = 1, kGqaShift = 0, kGroup = 1, kTileM = 128;
  static constexpr int kQkDepth = 128, kOvDepth = 128;
};
struct Arguments {
  const int *q_offsets, *kv_lens;
  int batch, total_q, q_len, kv_len, num_q_heads;
  ClaimWords* claims;
};
struct NoParams {};
extern "C" __global__ void fronts(const int* q_offsets, const int* kv_lens, ClaimWords* claims,
                                  int* front, int batch) {
  const Arguments arguments{q_offsets, kv_lens, batch, 1 << 20, 1 << 20, 1 << 20, 8, claims};
  const SequenceList<Config, CausalMask, SequenceTiling<Config>, Arguments, NoParams> list(
      arguments, {}, static_cast<int>(threadIdx.x));
  const int found = list.claims.front();
  if (threadIdx.x == 0) front[blockIdx.x] = found;
}
)";

struct Sequence {
  int rows, keys;
};

class Sm90Claims : public KernelTest {
 protected:
  // The CTAs of `ctas` that begin at the front of the list.
  static int front_of(const std::vector<Sequence>& sequences, int ctas) {
    const Result<PtxModule> module = PtxModule::load(ptx());
    EXPECT_TRUE(module.ok()) << (module.ok() ? "" : module.error().to_string());
    if (!module) return -1;
    std::vector<std::int32_t> q_offsets{0}, kv_lens;
    for (const auto& [rows, keys] : sequences) {
      q_offsets.push_back(q_offsets.back() + rows);
      kv_lens.push_back(keys);
    }
    std::vector<EmulatorBuffer> buffers{
        buffer_of("q_offsets", q_offsets), buffer_of("kv_lens", kv_lens),
        buffer_of("claims", std::vector<std::int32_t>(4)),
        buffer_of("front", std::vector<std::int32_t>(static_cast<std::size_t>(ctas)))};
    LaunchRecipe recipe;
    recipe.entry = "fronts";
    recipe.grid = {static_cast<std::uint32_t>(ctas), 1, 1};
    recipe.block = {32, 1, 1};
    for (const EmulatorBuffer& buffer : buffers) {
      recipe.args.push_back({KernelArgument::Pointer{buffer.name, 0, {}}});
    }
    recipe.args.push_back({static_cast<std::int32_t>(sequences.size())});
    const Result<EmulatorReport> report = emulate(*module, recipe, buffers);
    EXPECT_TRUE(report.ok() && report->passed);
    std::vector<std::int32_t> front(static_cast<std::size_t>(ctas));
    std::memcpy(front.data(), buffers[3].data.data(), buffers[3].data.size());
    for (const std::int32_t of_cta : front) EXPECT_EQ(of_cta, front[0]) << "CTAs disagree";
    return front[0];
  }

 private:
  static const std::string& ptx() {
    static const std::string compiled = [] {
      CompileRequest request;
      request.source = generate(*plan(base_spec(Arch::kSm90a, 1, 1, 64))).value();
      request.source.headers = TemplateSet::embedded().files();
      request.source.entries = {"fronts"};
      request.source.text = kKernel;
      request.want_ptx = request.ptx_only = true;
      const Result<KernelImage> image = make_in_process_compiler()->compile(
          request, std::chrono::steady_clock::now() + std::chrono::minutes(5));
      EXPECT_TRUE(image.ok()) << image.error().to_string();
      return image.ok() ? image->ptx : std::string();
    }();
    return compiled;
  }
  static EmulatorBuffer buffer_of(const std::string& name,
                                  const std::vector<std::int32_t>& values) {
    EmulatorBuffer buffer{name, Dtype::kI32, {values.size()}, {}, false};
    buffer.data.resize(4 * values.size());
    std::memcpy(buffer.data.data(), values.data(), buffer.data.size());
    return buffer;
  }
};

// What a head's tiles take, in keys: the prompt's 32 tiles see 2049 in the middle, at 1.5 times the
// time: 98352. The 64 decodes take 524288, 0.842 of both, which is 111.1 of 132 CTAs. Their 512
// tiles are 4.6 rounds of those: 103 CTAs do them in five.
TEST_F(Sm90Claims, LongDecodesGetAsManyCtasAsEndTogether) {
  std::vector<Sequence> batch(64, {1, 8192});
  batch.insert(batch.begin(), {4096, 4096});
  EXPECT_EQ(front_of(batch, 132), 132 - 103);
  std::rotate(batch.begin(), batch.begin() + 1, batch.end());  // the prompt is the last
  EXPECT_EQ(front_of(batch, 132), 103);
}

// The prompt's tiles take 98352 as above, the decodes' 64 tiles 64 * 1000: so its share is 80 of
// 132 CTAs, and its 256 tiles are 3.2 rounds of these: 86 CTAs do them in three.
TEST_F(Sm90Claims, LongPromptsGetAsManyCtasAsEndTogether) {
  std::vector<Sequence> batch(64, {1, 1000});
  batch.insert(batch.begin(), {4096, 4096});
  EXPECT_EQ(front_of(batch, 132), 86);
  std::rotate(batch.begin(), batch.begin() + 1, batch.end());
  EXPECT_EQ(front_of(batch, 132), 132 - 86);
}

// Where both ends are of a kind, all CTAs begin at the one whose tiles are longer.
TEST_F(Sm90Claims, AllBeginAtTheLongerEnd) {
  EXPECT_EQ(front_of({{300, 300}, {1, 9000}, {200, 4000}}, 132), 0);
  EXPECT_EQ(front_of({{300, 4000}, {1, 9000}, {200, 300}}, 132), 132);
  EXPECT_EQ(front_of({{1, 300}, {500, 900}, {1, 4000}}, 132), 0);
}

// Sequences without rows have no tiles, and are no end of the list. Either end has a CTA at least.
TEST_F(Sm90Claims, EitherEndHasACta) {
  EXPECT_EQ(front_of({{0, 5}, {1, 100000}, {128, 128}, {0, 7}}, 4), 3);
  EXPECT_EQ(front_of({{0, 5}, {128, 128}, {1, 100000}, {0, 7}}, 4), 1);
}

}  // namespace
}  // namespace attnjit::sm90

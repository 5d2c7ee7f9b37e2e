// SPDX-License-Identifier: Apache-2.0
// Whole tcgen05 kernels under the ISA's order: a GEMM of one CTA and of a pair, and an attention
// tile. ATTNJIT_TEST_SEEDS seeds each: 4 where it is not set, 50 in the proof.
#include <cmath>
#include <cstdlib>
#include <random>

#include "../temporary_folder.h"
#include "emulator/model/numeric.h"
#include "emulator_fixture.h"

namespace attnjit::emulator {
namespace {

std::vector<std::uint64_t> seeds() {
  const char* wanted = std::getenv("ATTNJIT_TEST_SEEDS");
  const std::uint64_t count = wanted == nullptr ? 4 : std::strtoull(wanted, nullptr, 10);
  std::vector<std::uint64_t> list;
  for (std::uint64_t s = 0; s < count; ++s) list.push_back(s);
  return list;
}

EmulatorOptions isa(std::uint64_t seed) {
  EmulatorOptions options;
  options.model = EmulatorModel::kIsa;
  options.seed = seed;
  return options;
}

/// Numbers in a small format, with their values.
struct Numbers {
  EmulatorBuffer buffer;
  std::vector<double> value;
};

Numbers draw(const std::string& name, Dtype dtype, std::vector<std::uint64_t> shape,
             std::uint64_t seed, double size = 1) {
  const FloatFormat& format = dtype == Dtype::kE4m3 ? kFormatE4m3 : kFormatBf16;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Numbers n;
  std::size_t count = 1;
  for (const std::uint64_t extent : shape) count *= extent;
  const auto bytes = static_cast<std::size_t>(size_of(dtype));
  n.buffer.name = name;
  n.buffer.dtype = dtype;
  n.buffer.shape = std::move(shape);
  n.buffer.data.resize(count * bytes);
  n.value.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t code = encode(format, static_cast<float>(size * normal(random)));
    n.value[i] = decode(format, code);
    std::memcpy(n.buffer.data.data() + i * bytes, &code, bytes);
  }
  return n;
}

TensorMapDescription map_of(const EmulatorBuffer& b, std::vector<std::uint32_t> box) {
  TensorMapDescription m;
  m.name = b.name;
  m.buffer = b.name;
  m.dtype = b.dtype;
  m.dims.assign(b.shape.rbegin(), b.shape.rend());
  std::uint64_t bytes = static_cast<std::uint64_t>(size_of(b.dtype));
  for (std::size_t i = 0; i + 1 < m.dims.size(); ++i) m.strides.push_back(bytes *= m.dims[i]);
  m.box = std::move(box);
  m.element_strides.assign(m.dims.size(), 1);
  m.swizzle = 128;
  return m;
}

EmulatorBuffer output(const std::string& name, std::size_t count) {
  EmulatorBuffer b = f32_buffer(name, std::vector<float>(count));
  b.uninitialised = true;
  return b;
}

// --------------------------------------------------------------------------------------- GEMM

struct GemmCase {
  std::string entry;
  Dtype dtype;
  int group;
  std::uint32_t k;
};

TEST(TensorMapErrors, NameTheFieldOnce) {
  const Numbers a = draw("a", Dtype::kBf16, {128, 64}, 1);
  const PtxModule module = load_module(test_file("kernels/gemm.sm_100a.ptx"));
  const auto error_of = [&](const auto& change) {
    std::vector<EmulatorBuffer> buffers{a.buffer, output("c", 128 * 128)};
    LaunchRecipe recipe =
        recipe_of("gemm_bf16", {1, 1, 1}, {192, 1, 1},
                  {map_argument("a"), map_argument("a"), pointer("c"), scalar(128), scalar(64)});
    recipe.tensor_maps = {map_of(a.buffer, {64, 128})};
    change(recipe.tensor_maps[0]);
    const auto report = emulate(module, recipe, buffers, isa(1));
    return report ? std::string() : report.error().to_string();
  };
  EXPECT_EQ(error_of([](auto& map) { map.dims[0] = 0; }),
            "tensor_maps.a: dims[0] is 0; allowed: 1 to 2^32");
  EXPECT_EQ(error_of([](auto& map) { map.swizzle = 16; }),
            "tensor_maps.a: swizzle is 16; allowed: 0, 32, 64, 128");
  EXPECT_EQ(error_of([](auto& map) { map.buffer = "b"; }), "tensor_maps.a: there is no buffer b");
}

// A tile of 128 by 128 by 64: two copies and four products whose sizes are known.
TEST(GemmCounts, OfUnitsAndOfTheTrace) {
  const Numbers a = draw("a", Dtype::kBf16, {128, 64}, 1),
                b = draw("b", Dtype::kBf16, {128, 64}, 2);
  std::vector<EmulatorBuffer> buffers{a.buffer, b.buffer, output("c", 128 * 128)};
  LaunchRecipe recipe =
      recipe_of("gemm_bf16", {1, 1, 1}, {192, 1, 1},
                {map_argument("a"), map_argument("b"), pointer("c"), scalar(128), scalar(64)});
  recipe.tensor_maps = {map_of(a.buffer, {64, 128}), map_of(b.buffer, {64, 128})};
  recipe.dynamic_smem = 3 * 32768;
  EmulatorOptions options = isa(1);
  options.stats = true;
  const test::TemporaryFolder folder;
  options.trace_file = folder / "trace.json";
  const EmulatorReport report =
      run(load_module(test_file("kernels/gemm.sm_100a.ptx")), recipe, buffers, options);
  ASSERT_TRUE(report.passed) << words(report);
  EXPECT_EQ(report.stats.unit_bytes.at("TMA load"), 2 * 128 * 64 * 2U);
  EXPECT_EQ(report.stats.unit_bytes.at("tensor memory"), 128 * 128 * 4U);
  EXPECT_EQ(report.stats.unit_bytes.at("st.global"), 128 * 128 * 4U);
  EXPECT_EQ(report.stats.mma_operations, 128 * 128 * 64U);
  EXPECT_EQ(report.stats.warp_instructions.at("tcgen05.mma"), 4U);
  EXPECT_EQ(report.stats.warp_instructions.at("tcgen05.ld"), 4 * 4U);

  std::ifstream in(options.trace_file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto count = [&](const std::string& what) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  // A row of each unit, named once, and one event an operation; the warps' rows beside them.
  EXPECT_EQ(count("{\"name\": \"TMA load\"}"), 1U);
  EXPECT_EQ(count("{\"name\": \"tensor core (tcgen05.mma)\"}"), 1U);
  EXPECT_EQ(count("{\"name\": \"warp "), 6U);
  const auto row_of = [&](const std::string& name) {
    const std::size_t end = text.find("\"args\": {\"name\": \"" + name + "\"}");
    const std::size_t begin = text.rfind("\"tid\": ", end);
    return text.substr(begin, text.find(',', begin) - begin);
  };
  // Complete events only: arrivals are marked in the same rows.
  const auto operations = [&](const std::string& opcode, const std::string& unit) {
    return count("{\"ph\": \"X\", \"name\": \"" + opcode + "\", \"pid\": 0, " + row_of(unit) + ",");
  };
  EXPECT_EQ(
      operations("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes",
                 "TMA load"),
      2U);
  EXPECT_EQ(operations("tcgen05.mma.cta_group::1.kind::f16", "tensor core (tcgen05.mma)"), 4U);
}

// Without any one of its fences that order something a kernel fails under isa and is warned of
// under silicon. Which do not: tests/emulator/mutations, rules.cpp.
TEST(GemmFences, EachIsMissed) {
  const std::string text = test_file("kernels/gemm.sm_100a.ptx");
  const std::size_t begin = text.find(".entry gemm_bf16("), end = text.find(".entry gemm_e4m3(");
  const Numbers a = draw("a", Dtype::kBf16, {128, 824}, 1),
                b = draw("b", Dtype::kBf16, {128, 824}, 2);
  LaunchRecipe recipe =
      recipe_of("gemm_bf16", {1, 1, 1}, {192, 1, 1},
                {map_argument("a"), map_argument("b"), pointer("c"), scalar(128), scalar(824)});
  recipe.tensor_maps = {map_of(a.buffer, {64, 128}), map_of(b.buffer, {64, 128})};
  recipe.dynamic_smem = 3 * 32768;
  std::vector<std::size_t> fences;
  for (std::size_t at = begin; (at = text.find("tcgen05.fence::after", at)) < end; ++at) {
    fences.push_back(at);
  }
  ASSERT_GT(fences.size(), 3U);
  // Not the first, after the allocation, nor the last, before the deallocation.
  for (std::size_t i = 1; i + 1 < fences.size(); ++i) {
    std::string damaged = text;
    damaged.erase(fences[i], damaged.find(';', fences[i]) - fences[i]);
    const PtxModule module = load_module(damaged);
    bool found = false, warned = false;
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      std::vector<EmulatorBuffer> buffers{a.buffer, b.buffer, output("c", 128 * 128)};
      found = found || has_finding(run(module, recipe, buffers, isa(seed)), FindingKind::kRace);
      EmulatorOptions silicon;
      silicon.seed = seed;
      const EmulatorReport report = run(module, recipe, buffers, silicon);
      EXPECT_TRUE(report.passed) << words(report);
      warned = warned || !report.findings.empty();
    }
    EXPECT_TRUE(found) << i;
    EXPECT_TRUE(warned) << i;
  }
}

class Gemm : public ::testing::TestWithParam<std::tuple<GemmCase, std::uint64_t>> {};
INSTANTIATE_TEST_SUITE_P(
    Kernels, Gemm,
    ::testing::Combine(::testing::Values(GemmCase{"gemm_bf16", Dtype::kBf16, 1, 280},
                                         GemmCase{"gemm_e4m3", Dtype::kE4m3, 1, 560},
                                         GemmCase{"gemm_bf16_pair", Dtype::kBf16, 2, 280},
                                         GemmCase{"gemm_e4m3_pair", Dtype::kE4m3, 2, 560}),
                       ::testing::ValuesIn(seeds())),
    [](const auto& i) {
      return std::get<0>(i.param).entry + "_" + std::to_string(std::get<1>(i.param));
    });

TEST_P(Gemm, EqualsTheProductInDouble) {
  const auto& [c, seed] = GetParam();
  static const PtxModule module = load_module(test_file("kernels/gemm.sm_100a.ptx"));
  const std::uint32_t m = 256, n = 128, k = c.k;
  const Numbers a = draw("a", c.dtype, {m, k}, 1), b = draw("b", c.dtype, {n, k}, 2);
  std::vector<EmulatorBuffer> buffers{a.buffer, b.buffer, output("c", m * n)};
  LaunchRecipe recipe =
      recipe_of(c.entry, {m / 128, n / 128, 1}, {192, 1, 1},
                {map_argument("a"), map_argument("b"), pointer("c"),
                 scalar(static_cast<std::int32_t>(n)), scalar(static_cast<std::int32_t>(k))});
  const auto columns = static_cast<std::uint32_t>(128 / size_of(c.dtype));
  recipe.tensor_maps = {map_of(a.buffer, {columns, 128}),
                        map_of(b.buffer, {columns, 128u / static_cast<std::uint32_t>(c.group)})};
  recipe.cluster = {static_cast<std::uint32_t>(c.group), 1, 1};
  recipe.dynamic_smem = 3 * (16384 + 16384 / static_cast<std::uint32_t>(c.group));
  const EmulatorReport report = run(module, recipe, buffers, isa(seed));
  ASSERT_TRUE(report.passed) << words(report);
  EXPECT_TRUE(report.findings.empty()) << words(report);
  const std::vector<float> result = values_of<float>(buffers[2]);
  for (std::uint32_t row = 0; row < m; ++row) {
    for (std::uint32_t column = 0; column < n; ++column) {
      double sum = 0, size = 0;
      for (std::uint32_t i = 0; i < k; ++i) {
        const double p = a.value[row * k + i] * b.value[column * k + i];
        sum += p;
        size += std::abs(p);
      }
      ASSERT_NEAR(result[row * n + column], sum, 1e-6 * size) << row << " " << column;
    }
  }
}

// ---------------------------------------------------------------------------------- attention

struct TileCase {
  std::string name;
  std::uint32_t q_rows, keys;
  double size;
};

class Tile : public ::testing::TestWithParam<std::tuple<TileCase, std::uint64_t>> {};
INSTANTIATE_TEST_SUITE_P(Kernels, Tile,
                         ::testing::Combine(::testing::Values(TileCase{"long", 100, 456, 1},
                                                              TileCase{"sharp", 128, 300, 4},
                                                              TileCase{"one_block", 128, 77, 1}),
                                            ::testing::ValuesIn(seeds())),
                         [](const auto& i) {
                           return std::get<0>(i.param).name + "_" +
                                  std::to_string(std::get<1>(i.param));
                         });

TEST_P(Tile, EqualsAttentionInDouble) {
  const auto& [c, seed] = GetParam();
  static const PtxModule module = load_module(test_file("kernels/attention_tile.sm_100a.ptx"));
  constexpr std::uint32_t kHeads = 1, kDepth = 128;
  const Numbers q = draw("q", Dtype::kBf16, {kHeads, c.q_rows, kDepth}, 3, c.size),
                k = draw("k", Dtype::kBf16, {kHeads, c.keys, kDepth}, 4),
                v = draw("v", Dtype::kBf16, {kHeads, c.keys, kDepth}, 5);
  std::vector<EmulatorBuffer> buffers{q.buffer, k.buffer, v.buffer,
                                      output("o", std::size_t{c.q_rows} * kDepth),
                                      output("lse", c.q_rows)};
  const double scale = 1 / std::sqrt(128.0);
  LaunchRecipe recipe = recipe_of(
      "attention_tile", {1, kHeads, 1}, {384, 1, 1},
      {map_argument("q"), map_argument("k"), map_argument("v"), pointer("o"), pointer("lse"),
       scalar(static_cast<std::int32_t>(c.q_rows)), scalar(static_cast<std::int32_t>(c.keys)),
       scalar(static_cast<float>(scale * 1.4426950408889634))});
  recipe.tensor_maps = {map_of(q.buffer, {64, 128, 1}), map_of(k.buffer, {64, 128, 1}),
                        map_of(v.buffer, {64, 128, 1})};
  recipe.dynamic_smem = 5 * 32768;
  const EmulatorReport report = run(module, recipe, buffers, isa(seed));
  ASSERT_TRUE(report.passed) << words(report);
  EXPECT_TRUE(report.findings.empty()) << words(report);
  const std::vector<float> o = values_of<float>(buffers[3]), lse = values_of<float>(buffers[4]);
  for (std::uint32_t row = 0; row < c.q_rows; ++row) {
    std::vector<double> p(c.keys);
    double largest = -1e300, sum = 0;
    for (std::uint32_t j = 0; j < c.keys; ++j) {
      for (std::uint32_t d = 0; d < kDepth; ++d)
        p[j] += q.value[row * kDepth + d] * k.value[j * kDepth + d] * scale;
      largest = std::max(largest, p[j]);
    }
    for (double& x : p) sum += x = std::exp(x - largest);
    ASSERT_NEAR(lse[row], largest + std::log(sum), 1e-4) << row;
    double error = 0, norm = 0;
    for (std::uint32_t d = 0; d < kDepth; ++d) {
      double expected = 0;
      for (std::uint32_t j = 0; j < c.keys; ++j) expected += p[j] / sum * v.value[j * kDepth + d];
      const double difference = static_cast<double>(o[row * kDepth + d]) - expected;
      error += difference * difference;
      norm += expected * expected;
    }
    ASSERT_LT(std::sqrt(error / norm), 4e-3) << row;
  }
}

}  // namespace
}  // namespace attnjit::emulator

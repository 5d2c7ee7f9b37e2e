// SPDX-License-Identifier: Apache-2.0
// tcgen05 kernels of the emulator's own (kernels/tcgen05.cu): GEMMs and an attention tile, right
// under the isa model for many seeds, and damaged ones that must be found.
#include <cmath>
#include <random>

#include "emulator/model/numeric.h"
#include "emulator_fixture.h"

namespace attnjit::emulator {
namespace {

const std::string& source() {
  static const std::string text = test_file("kernels/tcgen05.sm_100a.ptx");
  return text;
}
const PtxModule& kernels() {
  static const PtxModule module = load_module(source());
  return module;
}

struct Matrix {
  std::vector<std::uint8_t> bytes;
  std::vector<float> values;
};

Matrix random_matrix(std::size_t elements, bool fp8, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Matrix m;
  for (std::size_t i = 0; i < elements; ++i) {
    const double v = static_cast<double>(normal(random));
    if (fp8) {
      const std::uint32_t code = encode(kFormatE4m3, v, {Rounding::kNearestEven, true, false});
      m.bytes.push_back(static_cast<std::uint8_t>(code));
      m.values.push_back(static_cast<float>(decode(kFormatE4m3, code)));
    } else {
      const std::uint16_t code = float_to_bf16_rn(static_cast<float>(v));
      m.bytes.push_back(static_cast<std::uint8_t>(code));
      m.bytes.push_back(static_cast<std::uint8_t>(code >> 8));
      m.values.push_back(bf16_to_float(code));
    }
  }
  return m;
}

EmulatorBuffer bytes_buffer(const std::string& name, const Matrix& m) {
  return buffer_of(name, Dtype::kU8, m.bytes);
}

TensorMapDescription map_of(const std::string& name, Dtype dtype, std::uint64_t columns,
                            std::uint64_t rows, std::uint32_t box_columns, std::uint32_t box_rows) {
  TensorMapDescription m;
  m.name = name;
  m.buffer = name;
  m.dtype = dtype;
  m.dims = {columns, rows};
  m.strides = {columns * static_cast<std::uint64_t>(size_of(dtype))};
  m.box = {box_columns, box_rows};
  m.element_strides = {1, 1};
  m.swizzle = 128;
  return m;
}

struct GemmRun {
  EmulatorReport report;
  double error = 0;
};

GemmRun run_gemm(const PtxModule& module, const std::string& entry, bool pair, bool fp8,
                 std::uint64_t seed, EmulatorModel model = EmulatorModel::kIsa) {
  const std::uint64_t m = 256, n = 128, k = fp8 ? 512 : 256;
  const Matrix a = random_matrix(m * k, fp8, 1), b = random_matrix(n * k, fp8, 2);
  std::vector<EmulatorBuffer> buffers{bytes_buffer("a", a), bytes_buffer("b", b),
                                      f32_buffer("c", std::vector<float>(m * n))};
  buffers[2].uninitialised = true;
  LaunchRecipe recipe = recipe_of(entry, {2, 1, 1}, {256, 1, 1},
                                  {map_argument("a"), map_argument("b"), pointer("c"),
                                   scalar(static_cast<int>(n)), scalar(static_cast<int>(k))});
  if (pair) recipe.cluster = {2, 1, 1};
  recipe.dynamic_smem = 2 * (128 * 128 + 128 * 128) + 1024;
  const Dtype dtype = fp8 ? Dtype::kE4m3 : Dtype::kBf16;
  const std::uint32_t box = fp8 ? 128 : 64;
  recipe.tensor_maps = {map_of("a", dtype, k, m, box, 128),
                        map_of("b", dtype, k, n, box, pair ? 64 : 128)};
  EmulatorOptions options;
  options.seed = seed;
  options.model = model;
  GemmRun r;
  r.report = run(module, recipe, buffers, options);
  const auto c = values_of<float>(buffers[2]);
  for (std::uint64_t i = 0; i < m; i += 7) {
    for (std::uint64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::uint64_t x = 0; x < k; ++x)
        sum += static_cast<double>(a.values[i * k + x]) * static_cast<double>(b.values[j * k + x]);
      const double difference = std::fabs(sum - static_cast<double>(c[i * n + j]));
      r.error = std::max(r.error, std::isnan(difference) ? 1e30 : difference);
    }
  }
  return r;
}

struct AttentionRun {
  EmulatorReport report;
  double error = 0, lse_error = 0;
};

AttentionRun run_attention(const PtxModule& module, std::uint64_t seed,
                           EmulatorModel model = EmulatorModel::kIsa) {
  const std::uint64_t q_len = 128, kv = 384, d = 64;
  const Matrix q = random_matrix(q_len * d, false, 3), k = random_matrix(kv * d, false, 4),
               v = random_matrix(kv * d, false, 5);
  std::vector<EmulatorBuffer> buffers{
      bytes_buffer("q", q), bytes_buffer("k", k), bytes_buffer("v", v),
      f32_buffer("o", std::vector<float>(q_len * d)), f32_buffer("lse", std::vector<float>(q_len))};
  buffers[3].uninitialised = buffers[4].uninitialised = true;
  const float scale = 0.125f;
  LaunchRecipe recipe =
      recipe_of("attention", {1, 1, 1}, {256, 1, 1},
                {map_argument("q"), map_argument("k"), map_argument("v"), pointer("o"),
                 pointer("lse"), scalar(static_cast<int>(kv)), scalar(scale)});
  recipe.dynamic_smem = 3 * 128 * 128 + 1024;
  recipe.tensor_maps = {map_of("q", Dtype::kBf16, d, q_len, 64, 128),
                        map_of("k", Dtype::kBf16, d, kv, 64, 128),
                        map_of("v", Dtype::kBf16, d, kv, 64, 128)};
  EmulatorOptions options;
  options.seed = seed;
  options.model = model;
  AttentionRun r;
  r.report = run(module, recipe, buffers, options);
  const auto o = values_of<float>(buffers[3]), lse = values_of<float>(buffers[4]);
  for (std::uint64_t i = 0; i < q_len; i += 5) {
    std::vector<double> s(kv);
    double top = -1e300, sum = 0;
    for (std::uint64_t j = 0; j < kv; ++j) {
      for (std::uint64_t x = 0; x < d; ++x)
        s[j] += static_cast<double>(q.values[i * d + x]) * static_cast<double>(k.values[j * d + x]);
      s[j] *= static_cast<double>(scale);
      top = std::max(top, s[j]);
    }
    for (double& x : s) {
      x = std::exp(x - top);
      sum += x;
    }
    for (std::uint64_t x = 0; x < d; ++x) {
      double out = 0;
      for (std::uint64_t j = 0; j < kv; ++j)
        out += s[j] / sum * static_cast<double>(v.values[j * d + x]);
      const double difference = std::fabs(out - static_cast<double>(o[i * d + x]));
      r.error = std::max(r.error, std::isnan(difference) ? 1e30 : difference);
    }
    const double difference = std::fabs(top + std::log(sum) - static_cast<double>(lse[i]));
    r.lse_error = std::max(r.lse_error, std::isnan(difference) ? 1e30 : difference);
  }
  return r;
}

class Tcgen05 : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Tcgen05, ::testing::Range(0, 4));

TEST_P(Tcgen05, GemmOfOneCta) {
  const GemmRun bf16 =
      run_gemm(kernels(), "gemm1_bf16", false, false, static_cast<std::uint64_t>(GetParam()));
  EXPECT_TRUE(bf16.report.passed) << words(bf16.report);
  EXPECT_LT(bf16.error, 1e-3);
  const GemmRun e4m3 =
      run_gemm(kernels(), "gemm1_e4m3", false, true, static_cast<std::uint64_t>(GetParam()));
  EXPECT_TRUE(e4m3.report.passed) << words(e4m3.report);
  EXPECT_LT(e4m3.error, 1e-3);
}

TEST_P(Tcgen05, GemmOfAPair) {
  const GemmRun bf16 =
      run_gemm(kernels(), "gemm2_bf16", true, false, static_cast<std::uint64_t>(GetParam()));
  EXPECT_TRUE(bf16.report.passed) << words(bf16.report);
  EXPECT_LT(bf16.error, 1e-3);
  const GemmRun e4m3 =
      run_gemm(kernels(), "gemm2_e4m3", true, true, static_cast<std::uint64_t>(GetParam()));
  EXPECT_TRUE(e4m3.report.passed) << words(e4m3.report);
  EXPECT_LT(e4m3.error, 1e-3);
}

TEST_P(Tcgen05, AttentionTile) {
  const AttentionRun r = run_attention(kernels(), static_cast<std::uint64_t>(GetParam()));
  EXPECT_TRUE(r.report.passed) << words(r.report);
  EXPECT_LT(r.error, 1e-2);
  EXPECT_LT(r.lse_error, 1e-4);
}

// --------------------------------------------------------------------------------- mutations

std::string attention_with(std::string text, const std::string& from, const std::string& to,
                           int which = 0) {
  std::size_t at = text.find(".entry attention");
  for (int i = 0; i <= which; ++i) {
    at = text.find(from, at + 1);
    if (at == std::string::npos) {
      ADD_FAILURE() << "not found: " << from;
      return text;
    }
  }
  return text.replace(at, from.size(), to);
}

bool caught(const std::string& text, EmulatorModel model = EmulatorModel::kIsa) {
  auto module = PtxModule::load(text);
  if (!module) {
    ADD_FAILURE() << module.error().to_string();
    return false;
  }
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const AttentionRun r = run_attention(*module, seed, model);
    if (!r.report.passed || r.error > 1e-2 || r.lse_error > 1e-4) return true;
  }
  return false;
}

TEST(Tcgen05Mutations, MissingWaitsAndFencesAreFound) {
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(caught(attention_with(source(), "tcgen05.wait::ld.sync.aligned;", "", i)))
        << "wait::ld " << i;
  EXPECT_TRUE(caught(attention_with(source(), "tcgen05.wait::st.sync.aligned;", "")));
  EXPECT_TRUE(caught(attention_with(source(), "fence.mbarrier_init.release.cluster;", "")));
}

// Without fence::after_thread_sync: a finding under isa, a warning under silicon.
TEST(Tcgen05Mutations, MissingTensorFencesDependOnTheModel) {
  const std::string fence = "tcgen05.fence::after_thread_sync;";
  std::string text = source();
  for (std::size_t at = text.find(fence); at != std::string::npos; at = text.find(fence)) {
    text.erase(at, fence.size());
  }
  const PtxModule module = load_module(text);
  const AttentionRun isa = run_attention(module, 0, EmulatorModel::kIsa);
  EXPECT_FALSE(isa.report.passed);
  const AttentionRun silicon = run_attention(module, 0, EmulatorModel::kSilicon);
  EXPECT_TRUE(silicon.report.passed) << words(silicon.report);
  EXPECT_FALSE(silicon.report.findings.empty());
  EXPECT_LT(silicon.error, 1e-2);
}

TEST(Tcgen05Mutations, WrongCountsAndCommitsAreFound) {
  EXPECT_TRUE(caught(attention_with(
      source(), "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64",
      "// tcgen05.commit")));
  EXPECT_TRUE(caught(
      attention_with(source(), "tcgen05.dealloc.cta_group::1.sync.aligned.b32", "// dealloc")));
}

}  // namespace
}  // namespace attnjit::emulator

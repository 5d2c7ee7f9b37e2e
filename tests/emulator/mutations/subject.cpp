// SPDX-License-Identifier: Apache-2.0
// The hand-written kernels that are damaged: matrix products of one CTA and of two, an attention
// tile, and an exchange between two CTAs.
#include "subject.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "attention_subject.h"
#include "emulator/model/numeric.h"
#include "source_dir.h"
#include "verify/compare.h"

namespace attnjit::emulator {
namespace {

std::string file_contents(const std::string& name) {
  std::ifstream in(std::string(ATTNJIT_SOURCE_DIR) + "/tests/emulator/kernels/" + name,
                   std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Result<verify::Problem> problem_of(const AttentionSpec& spec, std::int64_t q, std::int64_t kv) {
  verify::ProblemRequest request;
  request.q_lens = {q};
  request.kv_lens = {kv};
  request.seed = 11;
  request.input = verify::InputKind::kNormal;
  return verify::make_problem(spec, request);
}

TensorMapDescription map_of(const std::string& name, Dtype dtype, std::vector<std::uint64_t> dims,
                            std::vector<std::uint32_t> box) {
  TensorMapDescription map;
  map.name = name;
  map.buffer = name;
  map.dtype = dtype;
  auto bytes = static_cast<std::uint64_t>(size_of(dtype));
  for (std::size_t i = 0; i + 1 < dims.size(); ++i) map.strides.push_back(bytes *= dims[i]);
  map.element_strides.assign(dims.size(), 1);
  map.dims = std::move(dims);
  map.box = std::move(box);
  map.swizzle = 128;
  return map;
}

KernelArgument map_argument(const std::string& name) { return {KernelArgument::TensorMap{name}}; }
KernelArgument pointer(const std::string& name) { return {KernelArgument::Pointer{name, 0}}; }

Result<std::unique_ptr<Subject>> attention_tile() {
  AttentionSpec spec;
  spec.arch = Arch::kSm100a;
  spec.num_q_heads = 1;
  spec.qk_depth = 128;
  spec.return_lse = true;
  spec.output_dtype = Dtype::kF32;
  constexpr std::uint64_t kRows = 100, kKeys = 1100, kDepth = 128;
  Result<verify::Problem> problem = problem_of(spec, kRows, kKeys);
  if (!problem) return std::move(problem).error();
  Result<verify::Reference> reference = verify::compute_reference(*problem);
  if (!reference) return std::move(reference).error();
  LaunchRecipe recipe;
  recipe.entry = "attention_tile";
  recipe.block = {384, 1, 1};
  recipe.dynamic_smem = 5 * 32768;
  recipe.args = {map_argument("q"),
                 map_argument("k"),
                 map_argument("v"),
                 pointer("o"),
                 pointer("lse"),
                 {static_cast<std::int32_t>(kRows)},
                 {static_cast<std::int32_t>(kKeys)},
                 {problem->scale * 1.44269504f}};
  recipe.tensor_maps = {map_of("q", Dtype::kBf16, {kDepth, kRows, 1}, {64, 128, 1}),
                        map_of("k", Dtype::kBf16, {kDepth, kKeys, 1}, {64, 128, 1}),
                        map_of("v", Dtype::kBf16, {kDepth, kKeys, 1}, {64, 128, 1})};
  std::vector<Call> calls;
  LaunchSequence sequence;
  sequence.launches.push_back(std::move(recipe));
  calls.push_back({std::move(*problem), std::move(*reference), std::move(sequence)});
  // The tolerance of 16-bit inputs: O is f32.
  spec.output_dtype = spec.qkv_dtype;
  return std::unique_ptr<Subject>(std::make_unique<AttentionSubject>(
      "sm100 attention", file_contents("attention_tile.sm_100a.ptx"), std::move(calls), false,
      verify::tolerance_of(spec)));
}

/// C = A B^T, f32 from bf16.
class GemmSubject final : public Subject {
 public:
  GemmSubject(std::string name, std::string entry, std::uint32_t group) {
    name_ = std::move(name);
    ptx_ = file_contents("gemm.sm_100a.ptx");
    a_ = draw("a", kM, 1);
    b_ = draw("b", kN, 2);
    recipe_.entry = std::move(entry);
    recipe_.grid = {kM / 128, kN / 128, 1};
    recipe_.block = {192, 1, 1};
    recipe_.cluster = {group, 1, 1};
    recipe_.dynamic_smem = 3 * (16384 + 16384 / group);
    recipe_.args = {map_argument("a"),
                    map_argument("b"),
                    pointer("c"),
                    {static_cast<std::int32_t>(kN)},
                    {static_cast<std::int32_t>(kK)}};
    recipe_.tensor_maps = {map_of("a", Dtype::kBf16, {kK, kM}, {64, 128}),
                           map_of("b", Dtype::kBf16, {kK, kN}, {64, 128 / group})};
    for (std::uint32_t row = 0; row < kM; ++row) {
      for (std::uint32_t column = 0; column < kN; ++column) {
        double sum = 0, size = 0;
        for (std::uint32_t i = 0; i < kK; ++i) {
          const double product = value(a_, row * kK + i) * value(b_, column * kK + i);
          sum += product;
          size += std::fabs(product);
        }
        expected_.push_back(sum);
        size_.push_back(size);
      }
    }
  }

  Outcome run(const PtxModule& module, const LaunchRecipe& recipe, std::uint64_t seed,
              std::uint64_t max_steps) const override {
    EmulatorBuffer c;
    c.name = "c";
    c.shape = {kM, kN};
    c.data.assign(std::size_t{kM} * kN * 4, 0xFF);  // NaN
    c.uninitialised = true;
    std::vector<EmulatorBuffer> buffers{a_, b_, std::move(c)};
    Result<EmulatorReport> report = emulate(module, recipe, buffers, isa_options(seed, max_steps));
    if (!report) return {true, "refused", report.error().to_string(), 0};
    Outcome outcome = outcome_of(*report);
    if (outcome.caught) return outcome;
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      float got = 0;
      std::memcpy(&got, buffers[2].data.data() + i * 4, 4);
      // NOTE: negated, so that a NaN is wrong.
      if (!(std::fabs(static_cast<double>(got) - expected_[i]) <= 1e-6 * size_[i])) {
        outcome.caught = true;
        outcome.by = "numbers";
        outcome.evidence =
            fmt::format("c[{}, {}] is {}, not {}", i / kN, i % kN, got, expected_[i]);
        break;
      }
    }
    return outcome;
  }

 private:
  // 21 steps of K: the loop, which the compiler unrolled by four, several times through its three
  // stages, and one more in its remainder, with the last stage. Every product of that step, which
  // is not full, has its share.
  static constexpr std::uint32_t kM = 256, kN = 128, kK = 1336;

  static EmulatorBuffer draw(const std::string& name, std::uint32_t rows, std::uint32_t seed) {
    std::mt19937 random(seed);
    EmulatorBuffer buffer;
    buffer.name = name;
    buffer.dtype = Dtype::kBf16;
    buffer.shape = {rows, kK};
    for (std::size_t i = 0; i < std::size_t{rows} * kK; ++i) {
      const auto number = static_cast<float>(static_cast<std::int32_t>(random())) / 1e9f;
      const std::uint16_t code = float_to_bf16_rn(number);
      buffer.data.push_back(static_cast<std::uint8_t>(code));
      buffer.data.push_back(static_cast<std::uint8_t>(code >> 8));
    }
    return buffer;
  }
  static double value(const EmulatorBuffer& buffer, std::size_t i) {
    std::uint16_t code = 0;
    std::memcpy(&code, buffer.data.data() + 2 * i, 2);
    return static_cast<double>(bf16_to_float(code));
  }

  EmulatorBuffer a_, b_;
  std::vector<double> expected_, size_;
};

/// Two CTAs that hand numbers to one another: what the cluster's scope orders.
class ExchangeSubject final : public Subject {
 public:
  ExchangeSubject() {
    name_ = "sm90 exchange";
    ptx_ = file_contents("exchange.sm_90a.ptx");
    recipe_.entry = "exchange";
    recipe_.grid = {2, 1, 1};
    recipe_.block = {kThreads, 1, 1};
    recipe_.cluster = {2, 1, 1};
    recipe_.dynamic_smem = 544;
    recipe_.args = {pointer("out"), {static_cast<std::int32_t>(kRounds)}};
  }

  Outcome run(const PtxModule& module, const LaunchRecipe& recipe, std::uint64_t seed,
              std::uint64_t max_steps) const override {
    EmulatorBuffer out;
    out.name = "out";
    out.dtype = Dtype::kI32;
    out.shape = {2, kThreads};
    out.data.assign(std::size_t{2} * kThreads * 4, 0xFF);
    out.uninitialised = true;
    std::vector<EmulatorBuffer> buffers{std::move(out)};
    Result<EmulatorReport> report = emulate(module, recipe, buffers, isa_options(seed, max_steps));
    if (!report) return {true, "refused", report.error().to_string(), 0};
    Outcome outcome = outcome_of(*report);
    for (std::uint32_t i = 0; i < 2 * kThreads && !outcome.caught; ++i) {
      std::uint32_t got = 0;
      std::memcpy(&got, buffers[0].data.data() + std::size_t{i} * 4, 4);
      if (got == expected(i / kThreads, i % kThreads)) continue;
      outcome.caught = true;
      outcome.by = "numbers";
      outcome.evidence = fmt::format("out[{}] is {}", i, got);
    }
    return outcome;
  }

 private:
  static constexpr std::uint32_t kThreads = 64, kRounds = 80;

  static std::uint32_t expected(std::uint32_t rank, std::uint32_t thread) {
    std::uint32_t sum = 0;
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      sum = 3 * sum + ((rank ^ 1) + 1) * 1000003 + (thread ^ 33) * 31 + round * 7919;
    }
    return sum;
  }
};

}  // namespace

EmulatorOptions isa_options(std::uint64_t seed, std::uint64_t max_steps) {
  EmulatorOptions options;
  options.model = EmulatorModel::kIsa;
  options.seed = seed;
  options.max_steps = max_steps;
  options.threads = 1;
  options.max_findings = 1;  // the first is enough
  return options;
}

Outcome outcome_of(const EmulatorReport& report) {
  Outcome outcome;
  outcome.steps = report.steps;
  for (const Finding& finding : report.findings) {
    if (finding.warning) continue;
    outcome.caught = true;
    outcome.by = to_string(finding.kind);
    outcome.evidence = fmt::format("line {}: {}", finding.ptx_line, finding.text);
    break;
  }
  return outcome;
}

Result<std::vector<std::unique_ptr<Subject>>> make_written_subjects(const Wanted& wanted) {
  std::vector<std::unique_ptr<Subject>> subjects;
  if (wanted("sm100 gemm"))
    subjects.push_back(std::make_unique<GemmSubject>("sm100 gemm", "gemm_bf16", 1));
  if (wanted("sm100 pair"))
    subjects.push_back(std::make_unique<GemmSubject>("sm100 pair", "gemm_bf16_pair", 2));
  if (wanted("sm100 attention")) {
    Result<std::unique_ptr<Subject>> tile = attention_tile();
    if (!tile) return std::move(tile).error();
    subjects.push_back(std::move(*tile));
  }
  if (wanted("sm90 exchange")) subjects.push_back(std::make_unique<ExchangeSubject>());
  return subjects;
}

}  // namespace attnjit::emulator

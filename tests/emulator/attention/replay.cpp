// SPDX-License-Identifier: Apache-2.0
// Replays attention that was recorded on an H200: the emulator runs the PTX that ran there with the
// same launch on the same inputs under the isa model, and its O and LSE must agree with the GPU's
// to rounding.
//
//     attnjit_attention_replay [--data FOLDER] [--seeds N] [--only NAME]
//     attnjit_attention_replay [--data FOLDER] --record DUMPS MACHINE DATE
//
// FOLDER holds cases.json and the recordings: recorded.json, recorded.bin (O and LSE), NAME.ptx and
// NAME.launch.json. --record, on the machine with the GPU, compiles each case, and takes what
// `attnjit verify --backend gpu --dump DUMPS/NAME` of the same build wrote; the script `record`
// beside this file does both. The recordings hold the kernel of their date: later kernels round
// otherwise, and are held against the reference by other tests.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "generated_kernel.h"
#include "plan/launch/launch_json.h"
#include "source_dir.h"
#include "verify/npy.h"
#include "verify/numeric.h"

namespace attnjit::emulator {
namespace {

using Json = nlohmann::ordered_json;
using verify::Tensor;

// The bound of the agreement. Only ex2, lg2 and rcp differ between the two, by an ulp or two of
// f32; rounded to 16 bits, few elements of O show it.
constexpr double kMaxDiffering = 0.01;       // of O's elements
constexpr double kMaxRelativeNorm = 1e-4;    // norm of O's difference over O's norm
constexpr std::int64_t kMaxLseUlp = 4;       // of f32
constexpr double kLseFloor = 1.0 / 1048576;  // an LSE near 0 is measured against this as well

struct Folder {
  std::string path;

  std::string operator/(const std::string& name) const { return path + "/" + name; }
};

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Case {
  std::string name;
  verify::Problem problem;
};

Result<Case> read_case(const Json& json) {
  Case one;
  one.name = json.at("name").get<std::string>();
  Result<SpecDocument> document = spec_from_json(json.at("spec").dump());
  if (!document) return std::move(document).error();
  verify::ProblemRequest request;
  request.batch = json.at("batch").get<std::int64_t>();
  request.q_lens = {json.at("q_len").get<std::int64_t>()};
  request.kv_lens = {json.at("kv_len").get<std::int64_t>()};
  request.seed = json.at("seed").get<std::uint64_t>();
  request.input = *verify::input_kind_from_string(json.at("input").get<std::string>());
  Result<verify::Problem> problem = verify::make_problem(document->spec, request);
  if (!problem) return std::move(problem).error();
  one.problem = std::move(*problem);
  return one;
}

// Inputs are drawn again for a replay: this says that they are those of the recording.
std::string digest_of(const verify::Problem& problem) {
  std::string all;
  for (const auto& [name, tensor] : problem.tensors) {
    all += name;
    all.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  return to_hex(sha256(all));
}

int fail(const std::string& what) {
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  return 1;
}

// The kernel of a case and its launch, as files that `attnjit emulate` takes as well.
Status record_kernel(const Folder& data, const Case& one) {
  Result<GeneratedKernel> kernel = generate_kernel(one.problem.spec);
  if (!kernel) return std::move(kernel).error();
  Result<LaunchSequence> sequence = launch_of(kernel->plan, one.problem);
  if (!sequence) return std::move(sequence).error();
  LaunchDocument launch;
  launch.sequence = std::move(*sequence);
  const auto add = [&](const std::string& name, const Tensor& tensor) {
    LaunchBuffer buffer;
    buffer.name = name;
    buffer.dtype = tensor.dtype;
    buffer.shape.assign(tensor.shape.begin(), tensor.shape.end());
    launch.buffers.push_back(std::move(buffer));
  };
  for (const auto& [name, tensor] : one.problem.tensors) add(name, tensor);
  add("o", verify::make_tensor(one.problem.spec.qkv_dtype, one.problem.o_shape()));
  add("lse", verify::make_tensor(Dtype::kF32, one.problem.lse_shape()));
  std::ofstream(data / (one.name + ".ptx"), std::ios::binary) << kernel->ptx;
  std::ofstream(data / (one.name + ".launch.json"), std::ios::binary) << launch_to_json(launch);
  return {};
}

int record(const Folder& data, const Json& cases, const std::string& folder, const char* machine,
           const char* date) {
  Json json;
  json["machine"] = machine;
  json["date"] = date;
  std::string bytes;
  for (const Json& entry : cases.at("cases")) {
    Result<Case> one = read_case(entry);
    if (!one) return fail(one.error().to_string());
    Tensor o = verify::make_tensor(one->problem.spec.qkv_dtype, one->problem.o_shape());
    Result<Tensor> dumped = verify::read_npy(folder + "/" + one->name + "/o.npy");
    if (!dumped) return fail(dumped.error().to_string());
    Result<Tensor> lse = verify::read_npy(folder + "/" + one->name + "/lse.npy");
    if (!lse) return fail(lse.error().to_string());
    if (dumped->shape != o.shape || lse->shape != one->problem.lse_shape()) return fail(one->name);
    for (std::int64_t i = 0; i < o.elements(); ++i) {
      verify::store_float(o, i, verify::load_float(*dumped, i));
    }
    for (const auto& [name, tensor] : one->problem.tensors) {
      Result<Tensor> input = verify::read_npy(folder + "/" + one->name + "/" + name + ".npy");
      if (!input) return fail(input.error().to_string());
      if (input->bytes != verify::widened(tensor).bytes) return fail(one->name + ": " + name);
    }
    if (Status status = record_kernel(data, *one); !status) {
      return fail(one->name + ": " + status.error().to_string());
    }
    json["cases"][one->name] = {{"inputs", digest_of(one->problem)},
                                {"o", {bytes.size(), o.bytes.size()}},
                                {"lse", {bytes.size() + o.bytes.size(), lse->bytes.size()}}};
    for (const Tensor* tensor : {&o, &*lse}) {
      bytes.append(reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size());
    }
  }
  std::ofstream(data / "recorded.json") << json.dump(1) << '\n';
  std::ofstream(data / "recorded.bin", std::ios::binary) << bytes;
  return 0;
}

Tensor recorded_tensor(const std::string& bytes, const Json& at, const Tensor& like) {
  Tensor tensor = like;
  const std::string part = bytes.substr(at[0].get<std::size_t>(), at[1].get<std::size_t>());
  tensor.bytes.assign(part.begin(), part.end());
  return tensor;
}

struct Agreement {
  std::int64_t differing = 0, elements = 0, lse_differing = 0, lse_ulp = 0;
  double relative_norm = 0;
  bool good = false;
};

Agreement compare(const Tensor& o, const Tensor& o_gpu, const Tensor& lse, const Tensor& lse_gpu) {
  Agreement agreement;
  agreement.elements = o.elements();
  double difference = 0, norm = 0;
  for (std::int64_t i = 0; i < o.elements(); ++i) {
    const double a = static_cast<double>(verify::load_float(o, i));
    const double b = static_cast<double>(verify::load_float(o_gpu, i));
    if (!(a == b)) ++agreement.differing;
    difference += (a - b) * (a - b);
    norm += b * b;
  }
  agreement.relative_norm = std::sqrt(difference / norm);
  bool lse_good = true;
  for (std::int64_t i = 0; i < lse.elements(); ++i) {
    const float a = lse.as<float>()[i], b = lse_gpu.as<float>()[i];
    if (a == b) continue;
    ++agreement.lse_differing;
    const float one_ulp = std::nextafter(std::fabs(b), INFINITY) - std::fabs(b);
    const double distance = std::fabs(static_cast<double>(a) - static_cast<double>(b));
    const double ulps = distance / std::max(static_cast<double>(one_ulp), kLseFloor / 8388608);
    if (!(ulps <= kMaxLseUlp)) lse_good = false;
    if (ulps < 1e9) {
      agreement.lse_ulp = std::max(agreement.lse_ulp, static_cast<std::int64_t>(std::ceil(ulps)));
    }
  }
  // NOTE: a NaN norm fails.
  agreement.good = lse_good && agreement.relative_norm <= kMaxRelativeNorm &&
                   static_cast<double>(agreement.differing) <=
                       kMaxDiffering * static_cast<double>(agreement.elements);
  return agreement;
}

int replay(const Folder& data, const Json& cases, std::uint64_t seeds, const std::string& only) {
  const Json recorded = Json::parse(contents(data / "recorded.json"));
  const std::string bytes = contents(data / "recorded.bin");
  int failures = 0, ran = 0;
  for (const Json& entry : cases.at("cases")) {
    Result<Case> one = read_case(entry);
    if (!one) return fail(one.error().to_string());
    if (!only.empty() && one->name != only) continue;
    const Json& answer = recorded.at("cases").at(one->name);
    if (digest_of(one->problem) != answer.at("inputs").get<std::string>()) {
      return fail(one->name + ": the inputs are not those of the recording");
    }
    Result<PtxModule> module = PtxModule::load(contents(data / (one->name + ".ptx")));
    if (!module) return fail(one->name + ": " + module.error().to_string());
    Result<LaunchDocument> launch = launch_from_json(contents(data / (one->name + ".launch.json")));
    if (!launch) return fail(one->name + ": " + launch.error().to_string());
    std::optional<KernelRun> first;
    Agreement agreement;
    std::string problem;
    for (std::uint64_t seed = 0; seed < seeds && problem.empty(); ++seed) {
      EmulatorOptions options;
      options.model = EmulatorModel::kIsa;
      options.seed = seed;
      Result<KernelRun> run = run_kernel(*module, launch->sequence, one->problem, options);
      if (!run) return fail(one->name + ": " + run.error().to_string());
      if (!run->report.findings.empty()) {
        problem = fmt::format("seed {}: {}", seed, run->report.findings.front().text);
      } else if (!first) {
        first = std::move(*run);
        agreement = compare(first->o, recorded_tensor(bytes, answer.at("o"), first->o), *first->lse,
                            recorded_tensor(bytes, answer.at("lse"), *first->lse));
        if (!agreement.good) problem = "O or LSE differs from the GPU's by more than rounding";
      } else if (run->o.bytes != first->o.bytes || run->lse->bytes != first->lse->bytes) {
        // The order of time decides no sum in this kernel.
        problem = fmt::format("seed {} gave other bits than seed 0", seed);
      }
    }
    std::printf(
        "%-28s O: %lld of %lld elements differ, relative norm %.1e; LSE: %lld differ, "
        "at most %lld ulp; %s\n",
        one->name.c_str(), static_cast<long long>(agreement.differing),
        static_cast<long long>(agreement.elements), agreement.relative_norm,
        static_cast<long long>(agreement.lse_differing), static_cast<long long>(agreement.lse_ulp),
        problem.empty() ? "good" : problem.c_str());
    std::fflush(stdout);
    if (!problem.empty()) ++failures;
    ++ran;
  }
  std::printf("%d cases, %d failed, %llu seeds each\n", ran, failures,
              static_cast<unsigned long long>(seeds));
  return failures == 0 && ran > 0 ? 0 : 1;
}

}  // namespace
}  // namespace attnjit::emulator

int main(int argc, char** argv) {
  using namespace attnjit::emulator;
  Folder data{std::string(ATTNJIT_SOURCE_DIR) + "/tests/emulator/attention"};
  std::uint64_t seeds = 20;
  std::string only;
  const char* const* recording = nullptr;  // folder, machine, date
  for (int i = 1; i < argc;) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (flag == "--data") {
      data.path = value;
    } else if (flag == "--seeds") {
      seeds = std::strtoull(value, nullptr, 10);
    } else if (flag == "--only") {
      only = value;
    } else if (flag == "--record" && i + 3 < argc) {
      recording = argv + i + 1;
    } else {
      std::fprintf(stderr, "unknown flag, or too few words after it: %s\n", flag.c_str());
      return 2;
    }
    i += flag == "--record" ? 4 : 2;
  }
  const Json cases = Json::parse(contents(data / "cases.json"));
  if (recording != nullptr) {
    return record(data, cases, recording[0], recording[1], recording[2]);
  }
  return replay(data, cases, seeds, only);
}

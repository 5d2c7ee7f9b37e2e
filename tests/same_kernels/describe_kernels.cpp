// SPDX-License-Identifier: Apache-2.0
// Says what this tree makes of specs: for scripts/same-kernels, which compares it with another
// tree.
//
//     attnjit_describe_kernels digests|whole|code < SPECS
//
// SPECS has one JSON object a line, {"name", "spec"}. One line of JSON comes back for each.
// digests: {"text", "headers", "plan", "launch"} with a digest each, or {"refused": reason}.
//
// whole: the same with the texts themselves; `headers` maps a file's name to its digest.
//
// code: {"code"}, a digest of the machine code and the registers of all kernels, as NVRTC makes
// them: without names, addresses and symbols, which lie elsewhere in a cubin; "spills" in bytes;
// "nvrtc", its version. A line may have "set": {NAME: TEXT}, other values of constants of Config.
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/compile.h"
#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "attnjit/source.h"
#include "attnjit/spec.h"
#include "base/sha256.h"
#include "plan/launch/launch_json.h"
#include "plan/print/plan_document.h"
#include "spec/names.h"

namespace attnjit {
namespace {

using Json = nlohmann::ordered_json;

std::string digest(std::string_view text) { return to_hex(sha256(text)).substr(0, 16); }

/// Launches as servers make them: a prompt, decodes, a chunk before many keys.
struct Lengths {
  std::int32_t batch, q_len, kv_len;
};
constexpr Lengths kLengths[] = {{1, 1000, 1000}, {37, 1, 8000}, {2, 300, 70000}};

LaunchShapes shapes_of(const AttentionSpec& spec, const Lengths& lengths) {
  LaunchShapes shapes;
  shapes.batch = lengths.batch;
  shapes.q_len = spec.max_q_len > 0 ? std::min(lengths.q_len, spec.max_q_len) : lengths.q_len;
  shapes.kv_len = spec.max_seq_len > 0 ? std::min<std::int32_t>(lengths.kv_len, spec.max_seq_len)
                                       : lengths.kv_len;
  // Of several sequences the last is shorter.
  const std::int32_t shorter = shapes.batch > 1 ? 3 : 0;
  if (spec.ragged) shapes.total_q = shapes.batch * shapes.q_len - shorter * (shapes.q_len / 4);
  if (spec.ragged_kv)
    shapes.total_kv = shapes.batch * shapes.kv_len - shorter * (shapes.kv_len / 4);
  if (spec.page_size > 0) {
    shapes.max_pages = (shapes.kv_len + spec.page_size - 1) / spec.page_size;
    shapes.num_pages = shapes.batch * shapes.max_pages;
  }
  if (spec.merge) shapes.num_pairs = 3;
  return shapes;
}

std::string launches_of(const KernelPlan& plan) {
  LaunchScalars scalars = launch_scalars(*plan.spec);
  scalars.values.assign(launch_scalar_names(*plan.spec).size(), 50);
  std::string text;
  for (const Lengths& lengths : kLengths) {
    const LaunchShapes shapes = shapes_of(*plan.spec, lengths);
    std::vector<UserParamShape> params;
    for (const ParamSpec& param : spec::declared_params(*plan.spec)) {
      UserParamShape shape;
      shape.name = param.name;
      shape.extent = {shapes.kv_len, shapes.kv_len, shapes.kv_len};
      params.push_back(std::move(shape));
    }
    const Result<LaunchSequence> sequence = plan_launch(plan, shapes, scalars, params);
    if (!sequence) {
      text += sequence.error().to_string() + "\n";
      continue;
    }
    LaunchDocument document;
    document.sequence = *sequence;
    text += launch_to_json(document) + "\n";
  }
  return text;
}

/// The sections of code, by the order of their names: entries, whatever they are called.
std::string code_of(std::span<const std::uint8_t> cubin) {
  Elf64_Ehdr header;
  std::memcpy(&header, cubin.data(), sizeof(header));
  const auto section = [&](std::uint64_t i) {
    Elf64_Shdr result;
    std::memcpy(&result, cubin.data() + header.e_shoff + i * sizeof(result), sizeof(result));
    return result;
  };
  const Elf64_Shdr names = section(header.e_shstrndx);
  std::map<std::string, std::string> code;
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr one = section(i);
    const std::string name =
        reinterpret_cast<const char*>(cubin.data() + names.sh_offset + one.sh_name);
    if (name.rfind(".text.", 0) != 0) continue;
    code[name] =
        std::string(reinterpret_cast<const char*>(cubin.data() + one.sh_offset), one.sh_size);
  }
  std::string all;
  for (const auto& [name, bytes] : code) all += fmt::format("{}:", bytes.size()) + bytes;
  return all;
}

class Describer {
 public:
  explicit Describer(std::string mode) : mode_(std::move(mode)) {
    if (mode_ == "code") compiler_ = make_in_process_compiler();
  }

  Json describe(const Json& given) {
    const Result<SpecDocument> spec = spec_from_json(given.at("spec").dump());
    if (!spec) return {{"refused", spec.error().to_string()}};
    const Result<ResolvedSpec> resolved = ResolvedSpec::make(spec->spec, spec->options);
    if (!resolved) return {{"refused", resolved.error().to_string()}};
    const Result<KernelPlan> planned = plan(*resolved);
    if (!planned) return {{"refused", planned.error().to_string()}};
    if (!planned->supported) return {{"refused", planned->reason}};
    Result<KernelSource> source = generate(*planned);
    if (!source) return {{"refused", source.error().to_string()}};
    const Json set = given.value("set", Json::object());
    for (const auto& [constant, value] : set.items()) {
      const std::regex line(" " + constant + " = [^;]*;");
      if (!std::regex_search(source->text, line)) return {{"refused", "no " + constant}};
      source->text = std::regex_replace(source->text, line,
                                        " " + constant + " = " + value.get<std::string>() + ";");
    }
    if (mode_ == "code") return code(*source);
    const bool whole = mode_ == "whole";
    const auto shown = [&](const std::string& text) { return whole ? text : digest(text); };
    Json result;
    std::string options;
    for (const std::string& option : source->options) options += option + "\n";
    result["text"] = shown(options + source->text);
    if (whole) {
      for (const SourceFile& header : source->headers) {
        result["headers"][header.name] = digest(header.text);
      }
    } else {
      result["headers"] = source->headers.digest().substr(0, 16);
    }
    const Result<PlanDocument> document = plan_document(*resolved);
    result["plan"] = shown(document ? plan_to_json(*document) : document.error().to_string());
    result["launch"] = shown(launches_of(*planned));
    return result;
  }

 private:
  Json code(const KernelSource& source) {
    CompileRequest request;
    request.source = source;
    const Result<KernelImage> image =
        compiler_->compile(request, std::chrono::steady_clock::now() + std::chrono::minutes(5));
    if (!image) return {{"refused", image.error().to_string()}};
    std::string what = code_of(image->cubin);
    for (const ResourceUsage& usage : image->entry_usage) {
      what += fmt::format("{} registers ", usage.registers);
    }
    return {{"code", digest(what)},
            {"spills", image->usage.spill_bytes},
            {"nvrtc", image->nvrtc_version}};
  }

  std::string mode_;
  std::shared_ptr<Compiler> compiler_;
};

int run(const std::string& mode) {
  Describer describer(mode);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << describer.describe(Json::parse(line)).dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace attnjit

int main(int argc, char** argv) {
  const std::string mode = argc == 2 ? argv[1] : "";
  if (mode != "digests" && mode != "whole" && mode != "code") {
    std::cerr << "usage: attnjit_describe_kernels digests|whole|code < SPECS\n";
    return 2;
  }
  return attnjit::run(mode);
}

// SPDX-License-Identifier: Apache-2.0
// Checks a compile request, and checks NVRTC's output before it becomes a KernelImage.
#include "compile/check_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "attnjit/launch.h"
#include "base/architectures.h"
#include "compile/compile_log.h"
#include "compile/cubin.h"

namespace attnjit {
namespace {

constexpr std::size_t kMaxOthers = 20;
constexpr std::size_t kMaxLogInMessage = 4096;

bool in_user_code(std::string_view file) { return file.substr(0, 5) == "user:"; }

Error failed(std::string message, std::string hint = {}) {
  return make_error(ErrorCode::kCompileFailed, std::move(message), {}, std::move(hint));
}

Error kernel_defect(const CompileRequest& request, const ParsedLog& log, std::string what) {
  if (request.source.trusted) {
    // Trusted code may break the program in ways that show elsewhere.
    return failed(std::move(what) + "\n" + log.text.substr(0, kMaxLogInMessage),
                  "the spec's trusted code is the likely cause");
  }
  return make_error(ErrorCode::kInternal,
                    std::move(what) + "\n" + log.text.substr(0, kMaxLogInMessage), {},
                    "this is a defect of attnjit or of the templates that replace its own");
}

/// The errors that lie in user code, or were reached from it.
std::vector<Error> user_errors(const ParsedLog& log) {
  std::vector<Error> errors;
  const auto add = [&errors](const std::string& file, int line, int column, std::string text) {
    Error error = failed(std::move(text));
    error.field = file.substr(5);
    error.line = line;
    error.column = column > 0 ? column : 1;
    errors.push_back(std::move(error));
  };
  for (const CompilerMessage& message : log.messages) {
    if (message.error && in_user_code(message.file)) {
      add(message.file, message.line, message.column, message.text);
    }
  }
  if (!errors.empty()) return errors;
  for (const CompilerMessage& message : log.messages) {
    if (message.error && !message.origin_file.empty()) {
      add(message.origin_file, message.origin_line, 1, message.text);
    }
  }
  return errors;
}

/// Why NVRTC refused.
Error refusal(const CompileRequest& request, const CompileOutput& output, const ParsedLog& log) {
  if (std::optional<Error> fault = fault_of_environment(output)) return *std::move(fault);
  std::vector<Error> errors = user_errors(log);
  if (!errors.empty()) {
    Error first = std::move(errors.front());
    errors.erase(errors.begin());
    if (errors.size() > kMaxOthers) errors.resize(kMaxOthers);
    first.others = std::move(errors);
    return first;
  }
  for (const CompilerMessage& message : log.messages) {
    if (message.error) {
      return kernel_defect(request, log,
                           fmt::format("the kernel's source does not compile: {}({}): {}",
                                       message.file, message.line, message.text));
    }
  }
  if (!log.ptxas_errors.empty()) {
    return kernel_defect(request, log, "ptxas rejects the kernel: " + log.ptxas_errors.front());
  }
  return kernel_defect(request, log,
                       fmt::format("NVRTC failed with {} ({})", output.result_name, output.result));
}

/// "release 13.0, V13.0.88" in the head of the PTX.
std::string version_of(std::string_view ptx) {
  const std::string_view head = ptx.substr(0, 1024);
  std::size_t at = head.find(", V");
  if (at == std::string_view::npos) return {};
  at += 3;
  std::size_t end = at;
  while (end < head.size() && ((head[end] >= '0' && head[end] <= '9') || head[end] == '.')) ++end;
  return std::string(head.substr(at, end - at));
}

}  // namespace

Status check_request(const CompileRequest& request) {
  const KernelSource& source = request.source;
  const auto has_nul = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  bool nul = has_nul(source.text) || has_nul(source.name);
  for (const SourceFile& header : source.headers) {
    nul = nul || has_nul(header.name) || has_nul(header.text);
  }
  for (const std::string& option : source.options) nul = nul || has_nul(option);
  if (nul) return make_error(ErrorCode::kInvalid, "a NUL byte in the source", "source");
  if (source.entries.empty()) {
    return make_error(ErrorCode::kInvalid, "the source names no entry", "source");
  }
  return {};
}

namespace {

/// The first advisory that a source does not allow.
const std::string* refused_advisory(const KernelSource& source, const ParsedLog& log) {
  const auto refused = [&](const std::string& advisory) {
    return !source.may_serialise ||
           advisory.find("serialized due to insufficient register") == std::string::npos;
  };
  const auto found = std::find_if(log.advisories.begin(), log.advisories.end(), refused);
  return found == log.advisories.end() ? nullptr : &*found;
}

/// The usage of an image. Functions that were not inlined count too.
ResourceUsage sum_of(const std::vector<ResourceUsage>& entries,
                     const std::vector<FunctionUsage>& functions) {
  ResourceUsage sum = entries.front();
  sum.spill_bytes = 0;
  sum.stack_bytes = 0;
  for (const ResourceUsage& entry : entries) sum.stack_bytes += entry.stack_bytes;
  for (const FunctionUsage& function : functions) {
    sum.spill_bytes += function.spill_bytes;
    sum.stack_bytes = std::max(sum.stack_bytes, function.stack_bytes);
  }
  return sum;
}

// What a CTA and a thread can have, of every architecture that kernels are made for (CUDA C++
// Programming Guide, "Compute Capabilities").
constexpr std::int64_t kMaxSmemBytes = DeviceShape{}.max_smem_bytes;
constexpr std::int64_t kMaxThreads = 1024;
constexpr std::int64_t kRegistersOfCta = 64 << 10;
constexpr std::int64_t kMaxRegisters = 255;
constexpr std::int64_t kMaxStackBytes = 512 << 10;
constexpr std::int64_t kWarp = 32, kRegisterUnit = 8;  // registers are given to warps, 8 a thread

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Why no GPU can launch an entry; empty: one can.
std::string unlaunchable(const EntryLaunch& launch, const ResourceUsage& usage) {
  const std::int64_t smem = usage.static_smem_bytes + launch.smem_bytes;
  if (smem > kMaxSmemBytes) {
    return fmt::format(
        "needs {} bytes of static and {} of dynamic shared memory, {} in all; a CTA has at most {}",
        usage.static_smem_bytes, launch.smem_bytes, smem, kMaxSmemBytes);
  }
  if (launch.threads > kMaxThreads) {
    return fmt::format("has {} threads a CTA; at most {} are allowed", launch.threads, kMaxThreads);
  }
  const std::int64_t registers = rounded_up(usage.registers, kRegisterUnit);
  const std::int64_t cta_registers = registers * rounded_up(launch.threads, kWarp);
  if (usage.registers > kMaxRegisters || cta_registers > kRegistersOfCta) {
    return fmt::format("needs {} registers a thread, {} for the {} threads of a CTA, which has {}",
                       usage.registers, cta_registers, launch.threads, kRegistersOfCta);
  }
  if (usage.stack_bytes > kMaxStackBytes) {
    return fmt::format("needs {} bytes of local memory a thread; at most {} are there",
                       usage.stack_bytes, kMaxStackBytes);
  }
  return {};
}

/// Of every entry of an image.
Status check_launches(const KernelSource& source, const KernelImage& image) {
  for (std::size_t i = 0; i < image.entry_usage.size(); ++i) {
    const EntryLaunch launch = i < source.launches.size() ? source.launches[i] : EntryLaunch{};
    ResourceUsage usage = image.entry_usage[i];
    // Of functions that were not inlined, which the entry may call.
    usage.stack_bytes = std::max(usage.stack_bytes, image.usage.stack_bytes);
    const std::string why = unlaunchable(launch, usage);
    if (why.empty()) continue;
    return failed(fmt::format("no GPU can launch {}: it {}", source.entries[i], why),
                  source.trusted ? "make the variables of the spec's trusted code smaller"
                                 : "make the variables of the templates smaller");
  }
  return {};
}

}  // namespace

Result<KernelImage> check_output(const CompileRequest& request, CompileOutput output) {
  const KernelSource& source = request.source;
  std::vector<std::string_view> files{source.name};
  for (const SourceFile& header : source.headers) files.push_back(header.name);
  ParsedLog log = parse_log(output.log, files);
  if (output.result != kNvrtcSuccess) return refusal(request, output, log);

  if (!log.ptxas_errors.empty()) {
    return kernel_defect(request, log, "ptxas rejects the kernel: " + log.ptxas_errors.front());
  }
  if (const std::string* advisory = refused_advisory(source, log)) {
    return kernel_defect(request, log,
                         "ptxas did not keep to the kernel as it was written: " + *advisory);
  }
  if (!request.ptx_only) {
    if (output.cubin.empty()) return failed("NVRTC reports success but gave no image");
    if (const Status sound = check_cubin(output.cubin, source.arch, source.entries); !sound) {
      return failed(sound.error().message, sound.error().hint);
    }
  } else if (output.ptx.empty()) {
    return failed("NVRTC reports success but gave no PTX");
  }
  if (!output.ptx.empty() &&
      output.ptx.find(fmt::format("\n.target {}", to_string(source.arch))) == std::string::npos) {
    return failed(fmt::format("the PTX is not for {}", to_string(source.arch)));
  }

  KernelImage image;
  if (!request.ptx_only) {
    for (const std::string& entry : source.entries) {
      const auto usage = std::find_if(
          log.functions.begin(), log.functions.end(),
          [&](const FunctionUsage& one) { return one.name == entry && one.registers > 0; });
      if (usage == log.functions.end()) {
        return kernel_defect(request, log, fmt::format("ptxas did not report on {}", entry));
      }
      image.entry_usage.push_back({usage->registers, usage->spill_bytes, usage->stack_bytes,
                                   usage->static_smem_bytes, usage->barriers});
    }
    image.usage = sum_of(image.entry_usage, log.functions);
    if (Status launchable = check_launches(source, image); !launchable) {
      return std::move(launchable).error();
    }
    image.cubin = std::move(output.cubin);
  }
  image.entries = source.entries;
  image.times = log.times;
  image.nvrtc_version = version_of(output.ptx);
  image.log = std::move(log.text);
  if (request.want_ptx || request.ptx_only) image.ptx = std::move(output.ptx);
  return image;
}

}  // namespace attnjit

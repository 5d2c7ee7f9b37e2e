// SPDX-License-Identifier: Apache-2.0
// attnjit emulate: runs the launch of a LAUNCH.json in the emulator and reports what it found.
#include <fmt/format.h>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "attnjit/emulator.h"
#include "base/machine_limits.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/report.h"
#include "cli/timing.h"
#include "plan/launch/launch_json.h"
#include "verify/emulator_settings.h"
#include "verify/finding_text.h"
#include "verify/npy.h"
#include "verify/numeric.h"

namespace attnjit::cli {
namespace {

using verify::Tensor;

constexpr std::int64_t kMaxPtxBytes = 64 << 20;
constexpr std::int64_t kMaxLaunchBytes = 16 << 20;

Result<std::optional<SchedulePolicy>> read_policy(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, SchedulePolicy>, 4> kPolicies{
      {{"random", SchedulePolicy::kRandom},
       {"eager", SchedulePolicy::kEager},
       {"lazy", SchedulePolicy::kLazy},
       {"starve", SchedulePolicy::kStarve}}};
  if (name.empty()) return std::optional<SchedulePolicy>{};
  for (const auto& [known, policy] : kPolicies) {
    if (name == known) return std::optional{policy};
  }
  return invalid("policy",
                 fmt::format("is '{}'; allowed: random, eager, lazy, starve", name.substr(0, 64)));
}

// An error of a file's contents names the file too.
Error in_file(Error error, const std::string& path) {
  const auto name = [&](Error& problem) {
    if (problem.field.empty() || problem.field == "ptx") {
      problem.field = path;
    } else {
      problem.message = fmt::format("in {}: {}", path, problem.message);
    }
  };
  name(error);
  for (Error& other : error.others) name(other);
  return error;
}

// bf16 and the 8-bit floats travel in .npy as integers of their size.
bool travels_as(Dtype declared, Dtype stored) {
  if (declared == stored) return true;
  switch (declared) {
    case Dtype::kBf16:
    case Dtype::kFp16:
      return stored == Dtype::kU16;
    case Dtype::kE4m3:
    case Dtype::kE5m2:
    case Dtype::kBits:
      return stored == Dtype::kU8;
    default:
      return false;
  }
}

Dtype travel_dtype(Dtype dtype) {
  if (dtype == Dtype::kBf16) return Dtype::kU16;
  if (dtype == Dtype::kE4m3 || dtype == Dtype::kE5m2 || dtype == Dtype::kBits) return Dtype::kU8;
  return dtype;
}

std::string field_of(const LaunchBuffer& buffer, const char* what) {
  return "buffers." + buffer.name + "." + what;
}

template <class T>
Status fill_with(Tensor& tensor, double value, const std::string& field) {
  if (!(value >= static_cast<double>(std::numeric_limits<T>::lowest()) &&
        value <= static_cast<double>(std::numeric_limits<T>::max())) ||
      (std::numeric_limits<T>::is_integer && value != std::trunc(value))) {
    return invalid(field, fmt::format("{} is no value of {}", value, to_string(tensor.dtype)));
  }
  std::fill_n(tensor.as<T>(), tensor.elements(), static_cast<T>(value));
  return {};
}

Status fill(Tensor& tensor, double value, const std::string& field) {
  switch (tensor.dtype) {
    case Dtype::kI8:
      return fill_with<std::int8_t>(tensor, value, field);
    case Dtype::kU8:
    case Dtype::kBits:
      return fill_with<std::uint8_t>(tensor, value, field);
    case Dtype::kI16:
      return fill_with<std::int16_t>(tensor, value, field);
    case Dtype::kU16:
      return fill_with<std::uint16_t>(tensor, value, field);
    case Dtype::kI32:
      return fill_with<std::int32_t>(tensor, value, field);
    case Dtype::kU32:
      return fill_with<std::uint32_t>(tensor, value, field);
    case Dtype::kI64:
      return fill_with<std::int64_t>(tensor, value, field);
    case Dtype::kU64:
      return fill_with<std::uint64_t>(tensor, value, field);
    case Dtype::kF64:
      return fill_with<double>(tensor, value, field);
    case Dtype::kE5m2:
      if (value != 0) return invalid(field, "a buffer of e5m2 can be filled with 0 only");
      return {};
    default:
      break;
  }
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    verify::store_float(tensor, i, static_cast<float>(value));
  }
  return {};
}

Result<EmulatorBuffer> make_buffer(const LaunchBuffer& from, const std::string& folder,
                                   std::int64_t& bytes_left) {
  Tensor tensor;
  if (!from.file.empty()) {
    const std::filesystem::path path = std::filesystem::path(folder) / from.file;
    Result<Tensor> read = verify::read_npy(path.string(), bytes_left);
    if (!read) return std::move(read).error();
    if (!travels_as(from.dtype, read->dtype)) {
      return invalid(
          field_of(from, "dtype"),
          fmt::format("is {}; the file holds {}", to_string(from.dtype), to_string(read->dtype)));
    }
    tensor = std::move(*read);
    tensor.dtype = from.dtype;
  } else {
    std::int64_t bytes = size_of(from.dtype);
    for (const std::int64_t extent : from.shape) {
      if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > bytes_left) {
        return invalid(field_of(from, "shape"),
                       fmt::format("the buffers need more than {} bytes of memory",
                                   machine_limits().memory_bytes / 2));
      }
    }
    tensor = verify::make_tensor(from.dtype, from.shape);
    if (from.fill) {
      if (Status s = fill(tensor, *from.fill, field_of(from, "fill")); !s) {
        return std::move(s).error();
      }
    } else {
      verify::poison(tensor);
    }
  }
  bytes_left -= static_cast<std::int64_t>(tensor.bytes.size());
  EmulatorBuffer buffer;
  buffer.name = from.name;
  buffer.dtype = tensor.dtype;
  buffer.shape.assign(tensor.shape.begin(), tensor.shape.end());
  buffer.data = std::move(tensor.bytes);
  buffer.uninitialised = from.file.empty() && !from.fill;
  buffer.left_zero = from.left_zero;
  return buffer;
}

Status write_outputs(const LaunchDocument& launch, const std::vector<EmulatorBuffer>& buffers,
                     const std::string& folder) {
  for (const auto& [name, file] : launch.out) {
    for (const EmulatorBuffer& buffer : buffers) {
      if (buffer.name != name) continue;
      Tensor tensor;
      tensor.dtype = travel_dtype(buffer.dtype);
      tensor.shape.assign(buffer.shape.begin(), buffer.shape.end());
      tensor.bytes = buffer.data;
      const std::filesystem::path path = std::filesystem::path(folder) / file;
      if (Status s = verify::write_npy(path.string(), tensor); !s) return s;
    }
  }
  return {};
}

Json finding_json(const Finding& finding) {
  Json json;
  json["kind"] = std::string(to_string(finding.kind));
  json["ptx_line"] = finding.ptx_line;
  json["source_line"] = finding.source_line;
  json["source_file"] = finding.source_file;
  json["cta"] = finding.cta;
  json["warp"] = finding.warp;
  json["lane"] = finding.lane;
  json["text"] = finding.text;
  json["seed"] = finding.seed;
  json["count"] = finding.count;
  return json;
}

Json stats_json(const EmulatorStats& stats) {
  Json json;
  json["warp_instructions"] = stats.warp_instructions;
  json["thread_instructions"] = stats.thread_instructions;
  json["unit_bytes"] = stats.unit_bytes;
  json["barrier_wait_steps"] = stats.barrier_wait_steps;
  json["warp_steps"] = stats.warp_steps;
  json["mma_operations"] = stats.mma_operations;
  json["bank_conflicts"] = stats.bank_conflicts;
  return json;
}

std::string stats_text(const EmulatorStats& stats) {
  std::string text;
  const auto table = [&](const char* title, const std::map<std::string, std::uint64_t>& rows) {
    text += fmt::format("{}\n", title);
    for (const auto& [name, count] : rows) text += fmt::format("  {:<40} {:>16}\n", name, count);
  };
  table("warp instructions", stats.warp_instructions);
  table("bytes through each unit", stats.unit_bytes);
  table("steps waited at each barrier", stats.barrier_wait_steps);
  text += "instructions of each warp of a CTA\n";
  for (std::size_t warp = 0; warp < stats.warp_steps.size(); ++warp) {
    text += fmt::format("  warp {:<35} {:>16}\n", warp, stats.warp_steps[warp]);
  }
  text += fmt::format("multiply-adds of matrix units {}, shared-memory bank conflicts {}\n",
                      stats.mma_operations, stats.bank_conflicts);
  return text;
}

Report describe(const EmulatorReport& emulated, bool with_stats) {
  Json json;
  json["passed"] = emulated.passed;
  json["findings"] = Json::array();
  json["warnings"] = Json::array();
  Report report;
  std::size_t warnings = 0;
  for (const Finding& finding : emulated.findings) {
    json[finding.warning ? "warnings" : "findings"].push_back(finding_json(finding));
    warnings += finding.warning ? 1 : 0;
    report.text += (finding.warning ? "warning: " : "") + verify::finding_text(finding) + "\n";
  }
  json["steps"] = emulated.steps;
  json["thread_steps"] = emulated.thread_steps;
  json["seconds"] = emulated.seconds;
  if (with_stats) {
    json["stats"] = stats_json(emulated.stats);
    report.text += stats_text(emulated.stats);
  }
  const std::size_t findings = emulated.findings.size() - warnings;
  report.text += fmt::format("{}: {} findings, {} warnings, {} warp instructions in {:.2f} s\n",
                             emulated.passed ? "passed" : "FAILED", findings, warnings,
                             emulated.steps, emulated.seconds);
  report.json = to_text(json);
  if (!emulated.passed) {
    report.exit_code = 1;
    report.note = fmt::format("{} findings", findings);
  }
  return report;
}

}  // namespace

Result<Report> run_emulate(const EmulateArguments& arguments) {
  Result<EmulatorOptions> settings =
      verify::read_emulator_settings(arguments.model, arguments.waivers, arguments.seeds);
  if (!settings) return std::move(settings).error();
  EmulatorOptions options = *settings;
  if (arguments.seed && *arguments.seed < 0) {
    return invalid("seed", fmt::format("is {}; allowed: 0 and more", *arguments.seed));
  }
  Result<std::optional<SchedulePolicy>> policy = read_policy(arguments.policy);
  if (!policy) return std::move(policy).error();
  options.policy = *policy;
  options.stats = arguments.stats;
  options.trace_file = arguments.timing.trace;

  if (Status s = check_timing(arguments.timing, true); !s) return std::move(s).error();
  if (!arguments.timing.arch.empty() &&
      (arguments.seed || arguments.seeds != 1 || !arguments.policy.empty() || arguments.stats ||
       arguments.model != "silicon" || !arguments.waivers.empty())) {
    return invalid("timing",
                   "goes with none of --model isa, --waive, --seed, --seeds, --policy and --stats");
  }

  Result<std::string> text = read_file(arguments.launch, kMaxLaunchBytes);
  if (!text) return std::move(text).error();
  Result<LaunchDocument> launch = launch_from_json(*text);
  if (!launch) return in_file(std::move(launch).error(), arguments.launch);
  options.seed = arguments.seed ? static_cast<std::uint64_t>(*arguments.seed) : launch->seed;
  if (launch->max_steps > 0) options.max_steps = static_cast<std::uint64_t>(launch->max_steps);

  Result<std::string> ptx = read_file(arguments.ptx, kMaxPtxBytes);
  if (!ptx) return std::move(ptx).error();
  Result<PtxModule> module = PtxModule::load(std::move(*ptx));
  if (!module) return in_file(std::move(module).error(), arguments.ptx);

  const std::string folder = std::filesystem::path(arguments.launch).parent_path().string();
  std::vector<EmulatorBuffer> buffers;
  std::int64_t bytes_left = machine_limits().memory_bytes / 2;
  for (const LaunchBuffer& from : launch->buffers) {
    Result<EmulatorBuffer> buffer = make_buffer(from, folder, bytes_left);
    if (!buffer) return std::move(buffer).error();
    buffers.push_back(std::move(*buffer));
  }
  if (!arguments.timing.arch.empty()) {
    Result<Report> timed =
        time_for_report(*module, launch->sequence, buffers, arguments.timing, {});
    if (!timed && timed.error().code == ErrorCode::kInvalid && timed.error().field != "timing")
      return in_file(std::move(timed).error(), arguments.launch);
    if (!timed) return timed;
    if (Status s = write_outputs(*launch, buffers, folder); !s) return std::move(s).error();
    return timed;
  }
  Result<EmulatorReport> emulated = emulate(*module, launch->sequence, buffers, options);
  if (!emulated) {
    Error error = std::move(emulated).error();
    if (error.code == ErrorCode::kInvalid) return in_file(std::move(error), arguments.launch);
    return error;
  }
  if (Status s = write_outputs(*launch, buffers, folder); !s) return std::move(s).error();
  return describe(*emulated, arguments.stats);
}

}  // namespace attnjit::cli

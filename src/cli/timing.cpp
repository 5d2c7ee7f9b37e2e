// SPDX-License-Identifier: Apache-2.0
// Prints what the clock says of a launch.
#include "cli/timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

#include "cli/json.h"
#include "clock/parameters.h"
#include "emulator/decode/program.h"

namespace attnjit::cli {
namespace {

using clock::LaunchTime;
using clock::WarpTimes;

constexpr std::int64_t kMostSms = 1 << 10;
constexpr int kWarpsOfGroup = 4;
constexpr std::uint32_t kMbarrierBytes = 8;

struct RoleTimes {
  std::string name;
  WarpTimes times;
};

/// Of a launch, by role.
std::vector<RoleTimes> by_role(const LaunchTime& launch, std::vector<PlannedKernel::Role> roles) {
  const std::vector<WarpTimes>& warps = launch.slowest.warps;
  const int count = static_cast<int>(warps.size());
  if (roles.empty()) {
    for (int i = 0; i < count; i += kWarpsOfGroup)
      roles.push_back({fmt::format("warpgroup {}", i / kWarpsOfGroup), i, kWarpsOfGroup});
  }
  std::vector<RoleTimes> all;
  for (const PlannedKernel::Role& role : roles) {
    RoleTimes one{role.name, {}};
    for (int i = role.first_warp; i < std::min(count, role.first_warp + role.num_warps); ++i)
      one.times += warps[static_cast<std::size_t>(i)];
    all.push_back(std::move(one));
  }
  return all;
}

clock::LaunchNames names_of(const TimedKernel& kernel) {
  clock::LaunchNames names;
  for (const PlannedKernel::Role& role : kernel.roles) {
    const auto end = static_cast<std::size_t>(role.first_warp + role.num_warps);
    if (names.roles.size() < end) names.roles.resize(end);
    for (int i = 0; i < role.num_warps; ++i)
      names.roles[static_cast<std::size_t>(role.first_warp + i)] = role.name;
  }
  auto address = static_cast<std::uint32_t>(emulator::kSharedBegin + kernel.barriers_begin);
  for (const BarrierPlan& barrier : kernel.barriers) {
    names.mbarriers.emplace(address, barrier.name);
    address += kMbarrierBytes;
  }
  return names;
}

/// Cycles by "warpgroup N: BARRIER".
std::map<std::string, double> waits_by_name(const LaunchTime& launch,
                                            const clock::LaunchNames& names) {
  std::map<std::string, double> waits;
  for (const auto& [wait, cycles] : launch.slowest.barrier_waits) {
    const auto known = names.mbarriers.find(wait.barrier);
    const std::string name =
        wait.cause != clock::Cause::kMbarrier ? fmt::format("barrier {}", wait.barrier)
        : known != names.mbarriers.end()      ? known->second
                                              : fmt::format("mbarrier 0x{:x}", wait.barrier);
    waits[fmt::format("warpgroup {}: {}", wait.warpgroup, name)] += cycles;
  }
  return waits;
}

Json cycles_json(const WarpTimes& times) {
  Json json;
  json["issued"] = times.issued;
  for (std::size_t i = 0; i < clock::kCauses; ++i)
    json[std::string(to_string(static_cast<clock::Cause>(i)))] = times.stalls[i];
  for (std::size_t i = 1; i < clock::kPipes; ++i)
    json["by_pipe"][std::string(to_string(static_cast<clock::Pipe>(i)))] = times.pipe_stalls[i];
  return json;
}

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

/// Of all sub-partitions.
double all_slots(const clock::SmTimes& sm) {
  return std::accumulate(sm.issue_slots.begin(), sm.issue_slots.end(), 0.0);
}

Json launch_json(const LaunchTime& launch, const std::vector<RoleTimes>& roles,
                 const std::map<std::string, double>& waits, double sms) {
  Json json;
  json["entry"] = launch.entry;
  json["us"] = launch.us;
  json["cycles"] = launch.cycles;
  json["mhz"] = launch.mhz;
  json["ctas"] = launch.ctas;
  json["ctas_per_sm"] = launch.ctas_per_sm;
  json["timed_sms"] = launch.timed_sms;
  json["timed_ctas"] = launch.timed_ctas;
  json["extrapolated_ctas"] = launch.left_ctas;
  json["loaded_bytes"] = launch.loaded_bytes;
  json["l2_hit_fraction"] = launch.hit_fraction;
  json["hbm_gb_per_s"] = share(launch.loaded_bytes * (1 - launch.hit_fraction), launch.us * 1000);
  const clock::SmTimes& sm = launch.slowest;
  const double all_cycles = sm.cycles * sm.sms;
  Json units;
  units["tensor"] = share(sm.tensor_busy, all_cycles);
  units["copies"] = share(sm.copy_busy, all_cycles);
  units["issue"] = share(all_slots(sm), 4 * all_cycles);
  units["shared_memory"] = launch.shared_share;
  units["tensor_memory"] = share(sm.tensor_memory_busy, 4 * all_cycles);
  units["l2"] = launch.l2_share;
  units["hbm"] = launch.hbm_share;
  for (std::size_t pipe = 1; pipe < clock::kPipes; ++pipe) {
    const bool shared = pipe == static_cast<std::size_t>(clock::Pipe::kLsu);
    units[std::string(to_string(static_cast<clock::Pipe>(pipe)))] =
        share(sm.pipe_busy[pipe], (shared ? 1 : 4) * all_cycles);
  }
  json["busy"] = std::move(units);
  json["issue_slots"] = sm.issue_slots;
  json["roles"] = Json::object();
  for (const RoleTimes& role : roles) json["roles"][role.name] = cycles_json(role.times);
  json["barrier_waits"] = waits;
  json["sms"] = sms;
  return json;
}

std::string launch_text(const LaunchTime& launch, const std::vector<RoleTimes>& roles,
                        const std::map<std::string, double>& waits, bool report) {
  const clock::SmTimes& sm = launch.slowest;
  const double all_cycles = sm.cycles * sm.sms;
  std::string text = fmt::format(
      "{}: {:.2f} us, {:.0f} cycles at {:.0f} MHz; {} CTAs, {} per SM; SMs run: {} ({} CTAs, {} "
      "extrapolated)\n",
      launch.entry, launch.us, launch.cycles, launch.mhz, launch.ctas, launch.ctas_per_sm,
      fmt::join(launch.timed_sms, ","), launch.timed_ctas, launch.left_ctas);
  if (!report) return text;
  text += fmt::format(
      "  of the cycles busy: tensor cores {:.1f} %, copies {:.1f} %, issue ports {:.1f} %",
      100 * share(sm.tensor_busy, all_cycles), 100 * share(sm.copy_busy, all_cycles),
      100 * share(all_slots(sm), 4 * all_cycles));
  for (std::size_t pipe = 1; pipe < clock::kPipes; ++pipe) {
    const bool shared = pipe == static_cast<std::size_t>(clock::Pipe::kLsu);
    text += fmt::format(", {} {:.1f} %", to_string(static_cast<clock::Pipe>(pipe)),
                        100 * share(sm.pipe_busy[pipe], (shared ? 1 : 4) * all_cycles));
  }
  text += fmt::format(
      "\n  of their rates in use: shared memory {:.1f} %, tensor memory {:.1f} %, L2 {:.1f} %, HBM "
      "{:.1f} %; issue slots by sub-partition {:.0f}",
      100 * launch.shared_share, 100 * share(sm.tensor_memory_busy, 4 * all_cycles),
      100 * launch.l2_share, 100 * launch.hbm_share, fmt::join(sm.issue_slots, ", "));
  text += fmt::format("\n  loaded by all SMs {:.1f} MB, {:.1f} % of it from L2\n",
                      launch.loaded_bytes / 1e6, 100 * launch.hit_fraction);
  text += fmt::format("  share of the warps' cycles, by role\n  {:<16}", "");
  for (const RoleTimes& role : roles) text += fmt::format("{:>13}", role.name);
  text += fmt::format("\n  {:<16}", "issued");
  for (const RoleTimes& role : roles)
    text += fmt::format("{:>11.1f} %", 100 * share(role.times.issued, role.times.lived));
  const auto line = [&](const std::string& name, const auto& cycles) {
    text += fmt::format("\n  {:<16}", name);
    for (const RoleTimes& role : roles)
      text += fmt::format("{:>11.1f} %", 100 * share(cycles(role.times), role.times.lived));
  };
  for (std::size_t i = 0; i < clock::kCauses; ++i) {
    const auto cause = static_cast<clock::Cause>(i);
    line(std::string(to_string(cause)), [i](const WarpTimes& times) { return times.stalls[i]; });
    if (cause != clock::Cause::kPipe) continue;
    for (std::size_t pipe = 1; pipe < clock::kPipes; ++pipe) {
      line(fmt::format("  {}", to_string(static_cast<clock::Pipe>(pipe))),
           [pipe](const WarpTimes& times) { return times.pipe_stalls[pipe]; });
    }
  }
  text += "\n  cycles of warps at each barrier\n";
  for (const auto& [name, cycles] : waits)
    text += fmt::format("  {:<36} {:>12.0f}\n", name, cycles);
  return text;
}

}  // namespace

Status check_timing(const TimingArguments& timing, bool trace_alone) {
  if (timing.arch.empty()) {
    const char* lone = timing.sms      ? "timed-sms"
                       : timing.report ? "report"
                       : timing.values ? "values"
                                       : nullptr;
    if (!trace_alone && !timing.trace.empty()) lone = "trace";
    if (lone == nullptr) return {};
    return make_error(ErrorCode::kInvalid, "needs --timing", lone);
  }
  if (Result<Arch> arch = clock::timing_arch(timing.arch); !arch) return std::move(arch).error();
  if (timing.sms && (*timing.sms < 1 || *timing.sms > kMostSms)) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("is {}; allowed: 1 to {}", *timing.sms, kMostSms), "timed-sms");
  }
  return {};
}

Result<Report> time_for_report(const PtxModule& module, const LaunchSequence& sequence,
                               std::vector<EmulatorBuffer>& buffers, const TimingArguments& timing,
                               std::vector<TimedKernel> kernels) {
  clock::ClockOptions options;
  options.arch = *clock::timing_arch(timing.arch);
  if (timing.sms) options.sms = static_cast<unsigned>(*timing.sms);
  options.values = timing.values;
  kernels.resize(sequence.launches.size());
  for (const TimedKernel& kernel : kernels) {
    options.registers.push_back(kernel.registers);
    options.names.push_back(names_of(kernel));
  }
  options.trace_file = timing.trace;
  Result<clock::ClockReport> timed = clock::time_launches(module, sequence, buffers, options);
  if (!timed) return std::move(timed).error();
  Json json;
  json["timing"] = std::string(to_string(options.arch));
  json["model_version"] = clock::kModelVersion;
  json["model_error"] = clock::error_of(options.arch);
  json["us"] = timed->us;
  json["launches"] = Json::array();
  Report report;
  double cycles = 0, most = -1;
  for (std::size_t i = 0; i < timed->launches.size(); ++i) {
    const LaunchTime& launch = timed->launches[i];
    const std::vector<RoleTimes> roles = by_role(launch, kernels[i].roles);
    const std::map<std::string, double> waits = waits_by_name(launch, options.names[i]);
    json["launches"].push_back(launch_json(launch, roles, waits, clock::sms_of(options.arch)));
    report.text += launch_text(launch, roles, waits, timing.report);
    cycles += launch.cycles;
    if (launch.cycles > most) json["roles"] = json["launches"].back()["roles"];
    most = std::max(most, launch.cycles);
  }
  json["cycles"] = cycles;
  report.text +=
      fmt::format("{:.2f} us on {}, by model {} ({})\n", timed->us, to_string(options.arch),
                  clock::kModelVersion, clock::error_of(options.arch));
  report.json = to_text(json);
  return report;
}

}  // namespace attnjit::cli

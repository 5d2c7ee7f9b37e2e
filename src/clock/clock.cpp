// SPDX-License-Identifier: Apache-2.0
// Times launches: which SMs are run, what the others mean for them, and what that makes in time.
#include "clock/clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <queue>

#include "base/architectures.h"
#include "clock/survey.h"
#include "clock/trace.h"
#include "emulator/machine/module_state.h"
#include "emulator/machine/run.h"

namespace attnjit::clock {
namespace {

using emulator::Machine;

constexpr double kSharedBytesOfSm = 228 * 1024;
constexpr double kSharedBytesOfSystem = 1024;  ///< that each CTA takes beside its own
constexpr unsigned kThreadsOfSm = 2048, kCtasOfSm = 32;
constexpr double kRegistersOfSm = 65536;
/// Clusters of an SM that are run before the others are extrapolated, beside those that it holds at
/// first: its times repeat by then.
constexpr std::uint64_t kRounds = 6;
/// Runs behind the first end when the clock changes by no more than this share of it.
constexpr double kClockSettled = 0.01;
/// And this many are the most. NOTE: one of sm_100a and sm_103a, with which their power was fitted.
int most_runs(Arch arch) { return arch == Arch::kSm90a ? 3 : 1; }

unsigned ctas_per_sm(const Machine& machine, unsigned registers) {
  const double threads = machine.warps_per_cta * 32;
  const double shared = machine.program.static_smem_end - emulator::kSharedBegin +
                        machine.recipe.dynamic_smem + kSharedBytesOfSystem;
  double most = std::min<double>(kCtasOfSm, kThreadsOfSm / threads);
  most = std::min(most, kSharedBytesOfSm / shared);
  const unsigned known = registers != 0 ? registers : machine.program.maxnreg;
  const unsigned allotted = (known + 7) / 8 * 8;  // a warp has them by 8
  if (known != 0) most = std::min(most, kRegistersOfSm / (threads * allotted));
  return std::max(1u, static_cast<unsigned>(most));
}

/// Whether of CTAs that walk their tiles those in the middle are run, rather than the first and the
/// last: tiles that are dealt in snake order, or by turns, give the ends what no other has. NOTE:
/// not of sm_100a and sm_103a, whose numbers were fitted with the ends.
bool has_middles(Arch arch) { return arch == Arch::kSm90a; }

/// Evenly spaced: the first and the last among them, or each the middle one of its part.
std::vector<std::uint64_t> choose_sms(std::uint64_t count, unsigned wanted, bool middles) {
  std::vector<std::uint64_t> chosen;
  const std::uint64_t n = std::min<std::uint64_t>(std::max(1u, wanted), count);
  if (middles) {
    for (std::uint64_t i = 0; i < n; ++i) chosen.push_back((2 * i + 1) * count / (2 * n));
    return chosen;
  }
  for (std::uint64_t i = 0; i < n; ++i) chosen.push_back(n == 1 ? 0 : i * (count - 1) / (n - 1));
  return chosen;
}

/// Of SMs that load so much: one of those that load most, since the last to end decides the time,
/// and the middle one of each part of the others, in the order of what they load.
std::vector<std::uint64_t> choose_by_load(const std::vector<double>& loads, unsigned wanted) {
  std::vector<std::uint64_t> order(loads.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint64_t a, std::uint64_t b) { return loads[a] > loads[b]; });
  std::uint64_t most = 1;
  while (most < order.size() && loads[order[most]] == loads[order[0]]) ++most;
  std::vector<std::uint64_t> chosen = choose_sms(order.size(), wanted, true);
  chosen[0] = std::min(chosen[0], most / 2);
  for (std::uint64_t& sm : chosen) sm = order[sm];
  return chosen;
}

/// Power grows with activity and with the clock's third power, since the voltage goes with the
/// clock; above the limit the clock falls until it is met.
double clock_of(const Parameters& p, double tensor_share, double hbm_share) {
  const double activity = tensor_share * (1 + p.hbm_activity * hbm_share);
  return p.boost_mhz * std::min(1.0, std::cbrt(p.free_activity / std::max(1e-9, activity)));
}

/// When the launch ends, where SMs are given clusters in their order as places become free.
/// @param known clusters whose time is known, of any order; others have a time between those of
///        their neighbours
double end_of_launch(std::vector<ClusterTime> known, std::uint64_t clusters, std::uint64_t places) {
  std::sort(known.begin(), known.end(),
            [](const ClusterTime& a, const ClusterTime& b) { return a.index < b.index; });
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  double end = 0, sum = 0;
  std::size_t next = 0;  // known, at or behind the cluster
  for (std::uint64_t i = 0; i < clusters; ++i) {
    while (next < known.size() && known[next].index < i) ++next;
    const auto time_of = [&](std::size_t k) { return known[k].ended - known[k].given; };
    double time = 0;
    if (next == known.size()) {  // behind the last one that was run: the mean up to there
      time = sum / static_cast<double>(known.back().index + 1);
    } else if (next == 0) {
      time = time_of(0);
    } else {
      const auto from = static_cast<double>(known[next - 1].index);
      const double share =
          (static_cast<double>(i) - from) / (static_cast<double>(known[next].index) - from);
      time = time_of(next - 1) + share * (time_of(next) - time_of(next - 1));
    }
    if (next != known.size()) sum += time;
    if (free.size() == places) {
      time += free.top();
      free.pop();
    }
    free.push(time);
    end = std::max(end, time);
  }
  return end;
}

class LaunchClock {
 public:
  LaunchClock(Machine& machine, const Parameters& p, const ClockOptions& options,
              unsigned registers)
      : machine_(machine), p_(p), options_(options), registers_(registers) {}

  Result<LaunchTime> time() {
    LaunchTime launch;
    launch.entry = machine_.recipe.entry;
    const auto& shape = machine_.cluster_shape;
    const unsigned size = shape[0] * shape[1] * shape[2];
    launch.ctas = machine_.clusters() * size;
    if (machine_.clusters() == 0) return launch;
    const auto places = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(p_.sms) / size);
    launch.ctas_per_sm = ctas_per_sm(machine_, registers_);
    const std::uint64_t used = std::min(places, machine_.clusters());
    const bool middles =
        has_middles(options_.arch) && machine_.clusters() <= places * launch.ctas_per_sm;
    launch.timed_sms = choose_sms(used, options_.sms, middles);
    if (middles) loads_ = loads_of_sms(used);
    if (!loads_.empty()) launch.timed_sms = choose_by_load(loads_, options_.sms);

    OtherSms around;
    around.clock_mhz = p_.boost_mhz;
    around.active_sms = static_cast<double>(used * size);
    around.ctas_per_sm = launch.ctas_per_sm;
    // What is loaded, and how busy the tensor cores are, is known after a run; both change the
    // next one a little.
    const std::vector<std::uint64_t> first{loads_.empty() ? launch.timed_sms.back()
                                                          : launch.timed_sms.front()};
    if (Status s = run(first, places, size, around, false, &launch); !s) return s.error();
    // NOTE: where L2 or HBM is what a launch waits for, the tensor cores are busier at a lower
    // clock, and that lowers the clock further.
    for (int i = 0; i < most_runs(options_.arch); ++i) {
      if (i > 0 && std::abs(launch.mhz / around.clock_mhz - 1) <= kClockSettled) break;
      around.hit_fraction = launch.hit_fraction;
      around.clock_mhz = launch.mhz;
      if (Status s =
              run(launch.timed_sms, places, size, around, !options_.trace_file.empty(), &launch);
          !s)
        return s.error();
    }
    // NOTE: by the clock that its rates in seconds were divided by, not by what it would be next.
    launch.mhz = around.clock_mhz;
    launch.us = launch.cycles / launch.mhz;
    return launch;
  }

 private:
  /// What the SMs load, where CTAs walk their tiles; empty where that is not known.
  std::vector<double> loads_of_sms(std::uint64_t sms) {
    std::vector<double> loads(sms, 0);
    const std::vector<double> cluster_loads = loads_of_clusters(machine_);
    for (std::size_t i = 0; i < cluster_loads.size(); ++i) loads[i % sms] += cluster_loads[i];
    return cluster_loads.empty() ? std::vector<double>() : loads;
  }

  Status run(const std::vector<std::uint64_t>& sms, std::uint64_t places, unsigned size,
             const OtherSms& around, bool trace, LaunchTime* launch) {
    EngineOptions options;
    options.trace = trace;
    options.most_clusters = launch->ctas_per_sm * (1 + kRounds);
    double busy = 0, bytes = 0;
    std::map<unsigned, double> by_buffer;
    launch->cycles = 0;
    launch->timed_ctas = launch->left_ctas = 0;
    std::vector<ClusterTime> known;
    std::uint64_t taken = 0;
    Result<std::vector<SmTimes>> all =
        time_sms(machine_, p_, around, sms, places,
                 static_cast<std::uint64_t>(around.active_sms / size), options);
    // The next run takes tiles from the launch's begin, too.
    for (const auto& [word, counter] : machine_.counters)
      std::memcpy(word, &counter.before, counter.bytes);
    machine_.counters.clear();
    if (!all) return std::move(all).error();
    for (SmTimes& times : *all) {
      // What was left takes its share of all.
      const double more = static_cast<double>(times.clusters + times.clusters_left) /
                          static_cast<double>(std::max<std::uint64_t>(1, times.clusters));
      busy += times.tensor_busy / size * more;
      bytes += times.loaded_bytes * more;
      for (const auto& [buffer, n] : times.loaded_by_buffer) by_buffer[buffer] += n * more;
      launch->timed_ctas += times.clusters * size;
      launch->left_ctas += times.clusters_left * size;
      taken += times.clusters_stolen;
      known.insert(known.end(), times.cluster_times.begin(), times.cluster_times.end());
      if (times.cycles >= launch->cycles) {
        launch->cycles = times.cycles;
        launch->slowest = std::move(times);
      }
    }
    // More clusters than places, that no kernel shares out itself: who is free takes the next.
    const std::uint64_t held = places * launch->ctas_per_sm;
    if (machine_.clusters() > held && taken == 0)
      launch->cycles = end_of_launch(std::move(known), machine_.clusters(), held);
    const double count = static_cast<double>(sms.size());
    // Of all, for each that was run: by what they load, where that is known.
    double others = around.active_sms / size / count;
    if (!loads_.empty()) {
      double their_loads = 0;
      for (const std::uint64_t sm : sms) their_loads += loads_[sm];
      others = std::accumulate(loads_.begin(), loads_.end(), 0.0) / their_loads;
    }
    launch->loaded_bytes = bytes * others;
    launch->tensor_share = busy * others / (around.active_sms / size) / launch->cycles;
    double missed = 0;
    for (const auto& [buffer, n] : by_buffer)
      missed += std::min(n * others, size_of_buffer(buffer));
    launch->hit_fraction = bytes > 0 ? 1 - missed / (bytes * others) : 1;
    const double ns = launch->cycles / around.clock_mhz * 1000;
    const double hbm_gb_per_s = missed / ns;
    launch->l2_share = launch->loaded_bytes / ns / p_.l2_gb_per_s;
    launch->hbm_share = hbm_gb_per_s / p_.hbm_gb_per_s;
    const SmTimes& slowest = launch->slowest;
    launch->shared_share =
        slowest.shared_bytes / p_.operand_bytes_per_cycle / (slowest.cycles * slowest.sms);
    launch->mhz = clock_of(p_, launch->tensor_share * around.active_sms / p_.sms,
                           std::min(1.0, hbm_gb_per_s / p_.hbm_gb_per_s));
    return {};
  }

  /// Each of its bytes is fetched once.
  double size_of_buffer(unsigned slot) const {
    return slot >= 1 && slot <= machine_.buffers.size()
               ? static_cast<double>(machine_.buffers[slot - 1].bytes)
               : 0;
  }

  Machine& machine_;
  const Parameters& p_;
  const ClockOptions& options_;
  unsigned registers_;
  std::vector<double> loads_;  ///< of the SMs, where they are chosen by them
};

/// PTX for features of an architecture runs on no other one; other PTX on later ones, too.
Status check_target(const PtxModule& module, Arch arch) {
  const std::string& target = module.state().module->target;
  const ArchTraits& traits = traits_of(arch);
  const bool apart = !target.empty() && std::isalpha(static_cast<unsigned char>(target.back()));
  int sm = 0;
  const char* const digits = target.data() + std::min<std::size_t>(target.size(), 3);
  std::from_chars(digits, target.data() + target.size(), sm);
  if (target == traits.name || (!apart && sm > 0 && sm <= traits.sm)) return {};
  return make_error(ErrorCode::kInvalid,
                    fmt::format("is {}; the kernel's .target is '{}'", traits.name, target),
                    "timing");
}

}  // namespace

Result<ClockReport> time_launches(const PtxModule& module, const LaunchSequence& sequence,
                                  std::vector<EmulatorBuffer>& buffers,
                                  const ClockOptions& options) {
  if (Status s = check_target(module, options.arch); !s) return s.error();
  const Parameters p = parameters_of(options.arch);
  EmulatorOptions emulator;
  emulator.policy = SchedulePolicy::kEager;
  emulator.checks = false;
  ClockReport report;
  std::vector<bool> launches_dependents;
  std::vector<const emulator::Program*> programs;  // the module's
  const auto run = [&](Machine& machine) -> Status {
    machine.timed = true;
    machine.zero_products = !options.values;
    const std::size_t index = report.launches.size();
    Result<LaunchTime> launch =
        LaunchClock(machine, p, options,
                    index < options.registers.size() ? options.registers[index] : 0)
            .time();
    if (!launch) return std::move(launch).error();
    // What a launch without products writes, such as the lists of a mask's map, says what the next
    // one does: all of its CTAs have to run, not those alone that were timed.
    if (launch->tensor_share == 0 && index + 1 < sequence.launches.size()) {
      machine.timed = machine.zero_products = false;
      machine.run();
    }
    launches_dependents.push_back(machine.launches_dependents);
    programs.push_back(&machine.program);
    report.launches.push_back(std::move(*launch));
    return {};
  };
  Result<EmulatorReport> emulated = emulator::emulate_by(module, sequence, buffers, emulator, run);
  if (!emulated) return std::move(emulated).error();
  // The sequence comes again and again: before its first launch comes its last.
  bool dependent = !launches_dependents.empty() && launches_dependents.back();
  std::vector<TracedLaunch> traced;
  for (std::size_t i = 0; i < report.launches.size(); ++i) {
    LaunchTime& launch = report.launches[i];
    const double gap = (dependent ? p.dependent_launch_ns : p.launch_ns) / 1000;
    traced.push_back({&launch, programs[i], report.us + gap,
                      i < options.names.size() ? options.names[i] : LaunchNames()});
    launch.us += gap;
    dependent = launches_dependents[i];
    report.us += launch.us;
  }
  if (!options.trace_file.empty()) {
    if (Status s = write_trace(options.trace_file, traced); !s) return s.error();
  }
  return report;
}

Result<Arch> timing_arch(const std::string& name) {
  if (const std::optional<Arch> arch = arch_from_string(name)) return *arch;
  return make_error(ErrorCode::kInvalid,
                    fmt::format("is '{}'; the clock has the numbers of: {}", name.substr(0, 64),
                                architecture_names()),
                    "timing", architecture_hint(name));
}

int sms_of(Arch arch) { return static_cast<int>(parameters_of(arch).sms); }

}  // namespace attnjit::clock

// SPDX-License-Identifier: Apache-2.0
// Runs the loading warps of each cluster, without their consumers.
#include "clock/survey.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "emulator/lanes/fp_control.h"
#include "emulator/machine/stepper.h"

namespace attnjit::clock {
namespace {

using emulator::AsyncOp;
using emulator::Cluster;
using emulator::Group;
using emulator::Machine;
using emulator::Stepper;
using emulator::UnitWork;
using emulator::Wait;
using emulator::Warp;

/// Operations of a cluster; a warp that needs more waits for what does not come.
constexpr std::uint64_t kMostOperations = 4'000'000;

class Survey {
 public:
  Survey(Machine& machine, std::array<std::uint32_t, 3> origin)
      : cluster_(machine, origin, 0), stepper_(cluster_) {}

  /// The bytes; negative where a warp does not end.
  double run() {
    do {
      while (walk()) {
        if (operations_ > kMostOperations) return -1;
      }
    } while (grant());
    return bytes_;
  }

 private:
  /// Runs each warp as far as it can go; whether one could.
  bool walk() {
    bool moved = false;
    for (auto& cta : cluster_.ctas) {
      for (Warp& warp : cta->warps) {
        while (stopped_.count(&warp) == 0) {
          Group* const group = stepper_.ready_group(warp);
          if (group == nullptr) break;
          moved = true;
          if (++operations_ > kMostOperations) return true;
          stepper_.execute(warp, *group);
          if (cluster_.pending.size() != left_) finish_units();
        }
      }
    }
    return moved;
  }

  /// A bulk copy is counted, and its bytes are taken to have come: which they are decides nothing.
  /// A product stops its warp. Other operations of units are done at once.
  void finish_units() {
    auto& pending = cluster_.pending;
    for (std::size_t i = 0; i < pending.size();) {
      AsyncOp& op = *pending[i];
      const UnitWork work = op.work();
      if (work.kind == UnitWork::Kind::kLoad || work.kind == UnitWork::Kind::kThreadCopy) {
        bytes_ += static_cast<double>(work.bytes);
        loaders_.insert(op.issuer);
      }
      if (work.kind == UnitWork::Kind::kLoad) {
        cluster_.agents.give_back(op.lease);
        pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(i));
        end_transactions();
      } else if (work.kind == UnitWork::Kind::kWgmma ||
                 work.kind == UnitWork::Kind::kTensorProduct) {
        stopped_.insert(op.issuer);
        ++i;
      } else if (stopped_.count(op.issuer) == 0 && op.ready(cluster_)) {
        stepper_.complete(op);
        i = 0;  // others may be ready now
      } else {
        ++i;
      }
    }
    left_ = pending.size();
  }

  void end_transactions() {
    for (auto& cta : cluster_.ctas) {
      for (auto& [offset, barrier] : cta->mbarriers) {
        if (barrier.tx == 0) continue;
        barrier.tx = 0;
        cluster_.check_phase(barrier);
      }
    }
  }

  /// Completes the phase that a loading warp waits for; false: none waits for one.
  bool grant() {
    for (auto& cta : cluster_.ctas) {
      for (Warp& warp : cta->warps) {
        if (warp.live == 0 || loaders_.count(&warp) == 0 || stopped_.count(&warp) != 0) continue;
        for (const Group& group : warp.groups) {
          if (group.mask == 0 || group.state != Group::State::kBlocked ||
              group.wait.kind != Wait::Kind::kMbarrier)
            continue;
          const auto it = group.wait.cta->mbarriers.find(group.wait.address);
          if (it == group.wait.cta->mbarriers.end()) continue;
          it->second.pending = 0;
          it->second.tx = 0;
          cluster_.check_phase(it->second);
          return true;
        }
      }
    }
    return false;
  }

  Cluster cluster_;
  Stepper stepper_;
  std::set<const Warp*> stopped_, loaders_;
  std::uint64_t operations_ = 0;
  std::size_t left_ = 0;  ///< operations of units that are not done
  double bytes_ = 0;
};

}  // namespace

std::vector<double> loads_of_clusters(Machine& machine) {
  emulator::set_fp_mode(emulator::kDefaultFpMode);
  std::vector<double> loads;
  double all = 0;
  for (std::uint64_t i = 0; i < machine.clusters(); ++i) {
    loads.push_back(Survey(machine, machine.cluster_origin(i)).run());
    all += loads.back();
    // What counters give goes to whoever is free: no CTA has more than others.
    const bool dynamic = !machine.counters.empty();
    for (const auto& [word, counter] : machine.counters)
      std::memcpy(word, &counter.before, counter.bytes);
    machine.counters.clear();
    // NOTE: a phase that was granted may break a rule that the kernel keeps.
    const bool found = machine.failure() != nullptr;
    machine.findings.clear();
    if (dynamic || found || loads.back() < 0) return {};
  }
  return all > 0 ? loads : std::vector<double>();
}

}  // namespace attnjit::clock

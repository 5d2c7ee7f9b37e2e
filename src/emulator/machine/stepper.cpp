// SPDX-License-Identifier: Apache-2.0
// Executes single operations of a cluster and completes those of its units.
#include "emulator/machine/stepper.h"

#include <algorithm>

namespace attnjit::emulator {

Group* Stepper::ready_group(Warp& warp) {
  if (warp.live == 0) return nullptr;
  if (warp.groups.size() != 1 || warp.groups[0].state != Group::State::kReady)
    cluster_.settle_warp(warp);
  for (Group& group : warp.groups) {
    if (cluster_.group_ready(warp, group)) return &group;
  }
  return nullptr;
}

Stepper::Outcome Stepper::execute(Warp& warp, Group& group) {
  const u32 pc = group.pc;
  const FunctionCode* function = group.function;
  const std::size_t groups = warp.groups.size();
  const u32 mask = group.mask;
  const u64 steps = cluster_.steps;
  cluster_.run_group(warp, static_cast<std::size_t>(&group - warp.groups.data()), 1);
  if (cluster_.steps == steps) return Outcome::kParked;
  if (warp.groups.size() != groups || group.mask != mask) return Outcome::kSwitched;
  if (group.state != Group::State::kReady) return Outcome::kWaits;
  if (group.function == function && group.pc == pc + 1) return Outcome::kNext;
  return Outcome::kJump;
}

void Stepper::complete(const AsyncOp& op) {
  auto& pending = cluster_.pending;
  const auto it = std::find_if(pending.begin(), pending.end(),
                               [&](const auto& other) { return other.get() == &op; });
  cluster_.running = it->get();
  while (!(*it)->step(cluster_)) {
  }
  cluster_.running = nullptr;
  cluster_.note_progress();
  cluster_.agents.give_back((*it)->lease);
  pending.erase(it);
}

}  // namespace attnjit::emulator

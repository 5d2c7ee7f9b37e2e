// SPDX-License-Identifier: Apache-2.0
// Schedules a cluster: it chooses which lane group or asynchronous operation goes next.
//
// Every choice comes from the seed. Four policies: at random; asynchronous operations as soon as
// possible; as late as possible; and one in which some warps only run when no other can.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/lanes/fp_control.h"
#include "emulator/machine/machine.h"
#include "emulator/memory/tensor_memory.h"

namespace attnjit::emulator {
namespace {

constexpr u64 kPollLimit = 200'000;  ///< fruitless looks before a spin loop counts as a deadlock

}  // namespace

u32 Cluster::live_threads() const {
  u32 n = 0;
  for (const auto& cta : ctas) n += cta->live_threads;
  return n;
}

void Cluster::start(std::unique_ptr<AsyncOp> op, Warp& issuer, const Op& from, u32 lanes) {
  op->issuer = &issuer;
  op->site = from.site;
  op->issued_at = steps;
  issuer.publish(op->view, lanes);
  op->lease = agents.borrow(issuer.clocks.view.generic, issuer.clocks.tensor_known);
  // What the operation itself does is known to whoever learns of its completion, in both proxies.
  // NOTE: the issuer's later accesses are not ordered before the operation.
  ++issuer.clocks.epoch;
  if (machine.options.model == EmulatorModel::kSilicon) {
    op->warp_steps.reserve(warps_.size());
    for (const Warp* warp : warps_) op->warp_steps.push_back(warp->steps);
  }
  pending.push_back(std::move(op));
  note_progress();
}

bool Cluster::overtakes_a_warp(const AsyncOp& op) {
  // NOTE: the warp is the next to run, or one that spins could keep both waiting.
  for (std::size_t i = 0; i < op.warp_steps.size(); ++i) {
    Warp& warp = *warps_[i];
    if (warp.live == 0 || warp.steps >= op.warp_steps[i] + kOvertaken) continue;
    for (Group& g : warp.groups) {
      if (!group_ready(warp, g)) continue;
      owed_ = static_cast<u32>(i);
      return true;
    }
  }
  return false;
}

bool Cluster::step_async(bool must, bool fair) {
  if (pending.empty()) return false;
  if (!must) {
    if (policy_ == Policy::kLazy && !random.one_in(4096)) return false;
    if (policy_ != Policy::kEager && policy_ != Policy::kLazy && !random.one_in(3)) return false;
  }
  const std::size_t n = pending.size();
  const std::size_t begin = policy_ == Policy::kEager ? 0 : random.below(static_cast<u32>(n));
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t index = (begin + i) % n;
    AsyncOp& op = *pending[index];
    if (!op.ready(*this) || (fair && overtakes_a_warp(op))) continue;
    note_progress();
    running = &op;
    const bool finished = op.step(*this);
    running = nullptr;
    if (finished) {
      if (trace.on)
        trace.add({op.issued_at, steps - op.issued_at + 1, linear_index(*op.issuer->cta), -1,
                   op.unit(), op.site});
      agents.give_back(pending[index]->lease);
      pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(index));
    }
    return true;
  }
  return false;
}

bool Cluster::group_ready(Warp& warp, Group& group) {
  if (group.mask == 0) return false;
  if (group.state == Group::State::kReady) return true;
  if (group.state != Group::State::kBlocked) return false;
  const Wait& w = group.wait;
  bool ready = false;
  switch (w.kind) {
    case Wait::Kind::kNone:
      ready = true;
      break;
    case Wait::Kind::kMbarrier: {
      const auto it = w.cta->mbarriers.find(w.address);
      if (it == w.cta->mbarriers.end() || !it->second.valid) {
        ready = true;
        break;
      }
      const u64 phase = it->second.phase;
      ready = w.by_parity ? (phase & 1) != (w.value & 1) : phase != w.value;
      if (phase > w.value2 && machine.options.model == EmulatorModel::kSilicon) ready = true;
      if (!ready && group.give_up) ready = true;
      // A try_wait may return false at any time.
      if (!ready && policy_ == Policy::kRandom && random.one_in(512)) ready = group.give_up = true;
      break;
    }
    case Wait::Kind::kNamedBarrier:
      ready = warp.cta->barriers[w.address].generation != w.value;
      break;
    case Wait::Kind::kClusterBarrier:
      ready = cluster_generation != w.value;
      break;
    case Wait::Kind::kAsyncGroup:
    case Wait::Kind::kBulkGroup:
    case Wait::Kind::kWgmma: {
      auto& groups = w.kind == Wait::Kind::kAsyncGroup  ? warp.copies.async
                     : w.kind == Wait::Kind::kBulkGroup ? warp.copies.bulk
                                                        : warp.wgmma.groups;
      u64 pending_groups = 0;
      ready = true;
      for (std::size_t i = groups.size(); i-- > 0;) {
        const PendingCopies& g = *groups[i];
        if (!g.committed && w.value2 == 0) continue;  // the open group
        if ((g.mask & group.mask) == 0) continue;
        if (g.committed) ++pending_groups;
        const u32 left = w.by_parity ? g.unread : g.unwritten;
        if (pending_groups > w.value && left != 0) ready = false;
        if (!g.committed && left != 0) ready = false;
      }
      break;
    }
    case Wait::Kind::kTmemLoad:
      ready = warp.tensor.loads == nullptr || warp.tensor.loads->unwritten == 0;
      break;
    case Wait::Kind::kTmemStore:
      ready = warp.tensor.stores == nullptr || warp.tensor.stores->unwritten == 0;
      break;
    case Wait::Kind::kTmemAlloc:
    case Wait::Kind::kRegisters:
      ready = progress != w.value;
      break;
    case Wait::Kind::kOthers:
      ready = random.one_in(64);
      break;
    case Wait::Kind::kForever:
      ready = false;
      break;
  }
  if (ready) group.state = Group::State::kReady;
  return ready;
}

/// Joins groups that meet, removes empty ones, and resolves a warp that waits for itself. Returns
/// whether some group became ready.
bool Cluster::settle_warp(Warp& warp) {
  std::erase_if(warp.groups, [](const Group& g) { return g.mask == 0; });
  bool any = false;
  // A .sync operation whose missing lanes have exited.
  for (Group& g : warp.groups) {
    if (g.state != Group::State::kSyncing) continue;
    u32 here = g.mask;
    for (const Group& o : warp.groups) {
      if (o.state == Group::State::kSyncing && o.pc == g.pc && o.function == g.function &&
          o.frames.size() == g.frames.size())
        here |= o.mask;
    }
    if ((g.sync_mask & warp.live & ~here) != 0) continue;
    g.state = Group::State::kReady;
    any = true;
    break;
  }
  // Reconvergence: entries whose lanes have all arrived (or exited), innermost first.
  for (std::size_t i = warp.convergences.size(); i-- > 0;) {
    Convergence& c = warp.convergences[i];
    if (c.participants == 0) {
      warp.convergences.erase(warp.convergences.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    if (c.arrived != c.participants) continue;
    Group* first = nullptr;
    for (Group& g : warp.groups) {
      if (g.state != Group::State::kConverging || (g.mask & c.arrived) == 0 || g.pc != c.pc ||
          g.frames.size() != c.depth)
        continue;
      if (first == nullptr) {
        first = &g;
      } else {
        first->mask |= g.mask;
        g.mask = 0;
      }
    }
    if (first != nullptr) {
      first->state = Group::State::kReady;
      any = true;
    }
    warp.convergences.erase(warp.convergences.begin() + static_cast<std::ptrdiff_t>(i));
  }
  std::erase_if(warp.groups, [](const Group& g) { return g.mask == 0; });
  return any;
}

void Cluster::run_group(Warp& warp, std::size_t index, u32 budget) {
  Group* group = &warp.groups[index];
  warp.group = group;
  const u64 begin = steps;
  const u32 first_site =
      group->pc < group->function->ops.size() ? group->function->ops[group->pc].site : 0;
  const bool checks = machine.checks;
  const bool counting = machine.options.stats;
  u32 count = 0;
  u64 threads = 0;
  while (count < budget) {
    if (group->pc >= group->function->ops.size()) {
      report(FindingKind::kBounds, &warp, -1, 0, "control ran past the end of a function");
      warp.live &= ~group->mask;
      group->mask = 0;
      break;
    }
    const Op& op = group->function->ops[group->pc];
    if ((op.flags & kOpReconverges) != 0 && !group->converged && !warp.convergences.empty()) {
      // Wait at the meeting point until the others come.
      bool parked = false;
      for (std::size_t i = warp.convergences.size(); i-- > 0;) {
        Convergence& c = warp.convergences[i];
        if (c.pc != group->pc || c.depth != group->frames.size() ||
            (c.participants & group->mask) == 0)
          continue;
        c.arrived |= group->mask & c.participants;
        if (c.arrived == c.participants && c.participants == group->mask) {
          warp.convergences.erase(warp.convergences.begin() + static_cast<std::ptrdiff_t>(i));
          continue;
        }
        group->state = Group::State::kConverging;
        parked = true;
        break;
      }
      if (parked) break;
      group->converged = true;
    }
    u32 mask = group->mask;
    if (op.guard != kNoRef) {
      if (checks && warp.poison_of(op.guard) != 0 && (op.flags & (kOpBranches | kOpEnds)) != 0)
        warp.require_defined(op.guard, mask, op, "the branch");
      mask &= warp.predicate(op.guard);
      if (mask == 0) {
        ++group->pc;
        group->converged = false;
        ++count;
        continue;
      }
    }
    if (warp.registers.in_flight_rows != 0 && checks) check_in_flight(warp, op);
    ++count;
    const auto active = count_lanes(mask);
    threads += active;
    const u32 pc = group->pc;
    const FunctionCode* function = group->function;
    const Step step = op.execute(warp, op, mask);
    // NOTE: only what has gone on: an operation that waits is executed again.
    if (counting && (op.flags & kOpFirst) != 0 &&
        (step == Step::kNext || group->pc != pc || group->function != function ||
         group->mask == 0)) {
      const u16 info = machine.program.sites[op.site].info;
      ++op_counts[info];
      op_threads[info] += active;
    }
    if (step == Step::kNext) {
      ++group->pc;
      group->converged = false;
      if ((op.flags & kOpPolls) != 0 && polls > 64) break;  // let others go
      continue;
    }
    if (step == Step::kJump) continue;
    break;
  }
  steps += count;
  if (trace.on)
    trace.add({begin, std::max(count, 1u), linear_index(*warp.cta), static_cast<s32>(warp.index),
               nullptr, first_site});
  warp.steps += count;
  thread_steps += threads;
}

bool Cluster::run(u64 quantum) {
  set_fp_mode(kDefaultFpMode);
  const u64 end = steps + quantum;
  while (!failed) {
    if (live_threads() == 0) {
      // Operations in flight complete after their issuers have exited.
      while (step_async(true)) {
      }
      return true;
    }
    if (machine.stop.load(std::memory_order_relaxed)) return true;
    while (steps >= step_limit_) {
      const u64 more = machine.take_steps(machine.step_share);
      if (more == 0) break;
      step_limit_ += more;
    }
    if (steps >= step_limit_) {
      report(
          FindingKind::kSteps, nullptr, -1, 0,
          fmt::format("the limit of {} warp instructions is reached", machine.options.max_steps));
      failed = true;
      return true;
    }
    if (steps >= end) return false;
    if (polls > kPollLimit) {
      if (!step_async(true) && !unstick()) {
        report_deadlock();
        failed = true;
        return true;
      }
      polls = 0;
      continue;
    }
    step_async(policy_ == Policy::kEager, machine.options.model == EmulatorModel::kSilicon);
    // A warp with a ready group: from a random one on; the starved ones last.
    Warp* chosen = nullptr;
    std::size_t group = 0;
    const auto n = static_cast<u32>(warps_.size());
    u32 begin = policy_ == Policy::kStarve && !random.one_in(64) ? favourite_ : random.below(n);
    if (owed_ < n) begin = owed_;
    owed_ = kNobody;
    for (u32 i = 0; i < n && chosen == nullptr; ++i) {
      Warp& warp = *warps_[(begin + i) % n];
      if (warp.live == 0) continue;
      if (warp.groups.size() > 1 || warp.groups.empty() ||
          warp.groups[0].state != Group::State::kReady)
        settle_warp(warp);
      const auto groups = static_cast<u32>(warp.groups.size());
      if (groups == 0) continue;
      const u32 g0 = groups == 1 ? 0 : random.below(groups);
      for (u32 g = 0; g < groups; ++g) {
        if (group_ready(warp, warp.groups[(g0 + g) % groups])) {
          chosen = &warp;
          group = (g0 + g) % groups;
          break;
        }
      }
    }
    if (chosen == nullptr) {
      if (release_delayed()) continue;
      if (step_async(true)) continue;
      if (unstick()) continue;
      report_deadlock();
      failed = true;
      return true;
    }
    const u32 budget = policy_ == Policy::kEager ? quantum_ : 1 + random.below(quantum_);
    run_group(*chosen, group, budget);
  }
  return true;
}

/// Nothing else can run: one of the arrivals that were held back.
bool Cluster::release_delayed() {
  const auto n = static_cast<u32>(warps_.size());
  const u32 begin = random.below(n);
  for (u32 i = 0; i < n; ++i) {
    Warp& warp = *warps_[(begin + i) % n];
    if (warp.live == 0) continue;
    for (Group& g : warp.groups) {
      if (g.mask == 0 || g.state != Group::State::kBlocked || g.wait.kind != Wait::Kind::kOthers)
        continue;
      g.state = Group::State::kReady;
      return true;
    }
  }
  return false;
}

/// Nothing can run: first the waits that need not last, then the ones that are errors of the warp.
bool Cluster::unstick() {
  bool any = false;
  // Lanes that wait at a meeting point for lanes that wait elsewhere: hardware promises progress,
  // not reconvergence.
  for (Warp* warp : warps_) {
    if (warp->live == 0) continue;
    settle_warp(*warp);
    for (Group& s : warp->groups) {
      // Lanes at a meeting point are past the operation that others wait to execute with them.
      if (s.state != Group::State::kSyncing) continue;
      u32 past = 0;
      for (const Group& g : warp->groups) {
        if (g.state == Group::State::kConverging) past |= g.mask & s.sync_mask & warp->live;
      }
      if (past == 0) continue;
      const Op& op = s.function->ops[s.pc];
      warp->group = &s;
      report(FindingKind::kAligned, warp, __builtin_ctz(past), op.site,
             fmt::format(
                 "{} is executed by lanes 0x{:08x}; lanes 0x{:08x}, which must execute it with "
                 "them, took another path",
                 (op.flags & kOpAligned) != 0 ? "an .aligned instruction" : "a .sync instruction",
                 s.mask, past));
      s.state = Group::State::kReady;
      s.forced = true;
      any = true;
    }
    if (any) continue;
    for (Group& g : warp->groups) {
      if (g.state != Group::State::kConverging) continue;
      g.state = Group::State::kReady;
      g.converged = true;
      for (Convergence& c : warp->convergences) {
        c.participants &= ~g.mask;
        c.arrived &= ~g.mask;
      }
      any = true;
    }
  }
  if (any) return true;
  // Lanes that wait for lanes of their own warp that will not come.
  for (Warp* warp : warps_) {
    for (Group& g : warp->groups) {
      if (warp->live == 0 || g.mask == 0 || g.state != Group::State::kSyncing) continue;
      const Op& op = g.function->ops[g.pc];
      const bool aligned = (op.flags & kOpAligned) != 0;
      std::string others;
      for (const Group& o : warp->groups) {
        if (&o == &g || o.mask == 0) continue;
        const u32 site = o.pc < o.function->ops.size() ? o.function->ops[o.pc].site : 0;
        others += fmt::format("; lanes 0x{:08x} are at {}", o.mask, describe_site(site));
      }
      warp->group = &g;
      report(FindingKind::kAligned, warp, __builtin_ctz(g.mask), op.site,
             fmt::format(
                 "{} is executed by lanes 0x{:08x} where lanes 0x{:08x} must execute it together{}",
                 aligned ? "an .aligned instruction" : "a .sync instruction", g.mask, g.sync_mask,
                 others));
      g.state = Group::State::kReady;
      g.forced = true;
      any = true;
      if (failed) return false;
    }
  }
  if (any) return true;
  // A try_wait may return false: once without progress in between is fair.
  if (unstuck_at_ != progress) {
    unstuck_at_ = progress;
    for (Warp* warp : warps_) {
      for (Group& g : warp->groups) {
        if (warp->live == 0 || g.mask == 0 || g.state != Group::State::kBlocked ||
            g.wait.kind != Wait::Kind::kMbarrier)
          continue;
        g.give_up = true;
        any = true;
      }
    }
  }
  return any;
}

void Cluster::check_in_flight(Warp& warp, const Op& op) {
  const u32 base = warp.group->row_base;
  bool copies = false;
  const auto check = [&](Ref r, bool writes) {
    if (r == kNoRef || !is_row(r)) return;
    InFlight& state = warp.registers.in_flight[base + index_of(r)];
    if (state == InFlight::kNo || (state == InFlight::kRead && !writes)) return;
    if (state == InFlight::kCopiesTensor && writes) {
      state = InFlight::kNo;
      --warp.registers.in_flight_rows;
      return;
    }
    if (awaits_tensor_load(state)) {
      complete_tensor_loads(warp);
      // Compilers move a loaded register before the wait; the copy is no more usable than it.
      if (!writes && machine.program.sites[op.site].text.starts_with("mov")) {
        copies = true;
        return;
      }
      report_unwaited_load(warp, op.site, writes ? "writes" : "reads");
      if (state != InFlight::kNo) --warp.registers.in_flight_rows;
      state = InFlight::kNo;
      return;
    }
    report(FindingKind::kRace, &warp, -1, op.site,
           fmt::format("{} a register that an asynchronous operation in flight {}",
                       writes ? "writes" : "reads",
                       state == InFlight::kWritten ? "will write" : "may still read"));
    state = InFlight::kNo;  // told once
  };
  if (op.execute == nullptr) return;
  check(op.d, true);
  check(op.d2, true);
  for (const Ref r : op.s) check(r, false);
  // Vector stores have their values in a list; what else has one checks for itself.
  if (op.list_count != 0 && machine.program.sites[op.site].text.starts_with("st")) {
    for (u32 i = 0; i < op.list_count; ++i) check(machine.program.lists[op.list + i], false);
  }
  for (const Ref r : {op.d, op.d2}) {
    if (!copies || r == kNoRef || !is_row(r)) continue;
    InFlight& state = warp.registers.in_flight[base + index_of(r)];
    if (!awaits_tensor_load(state)) {
      warp.tensor.rows.push_back(base + index_of(r));
      ++warp.registers.in_flight_rows;
    }
    state = InFlight::kCopiesTensor;
  }
}

Cluster::~Cluster() = default;

}  // namespace attnjit::emulator

// SPDX-License-Identifier: Apache-2.0
// CTA-wide named barriers, the cluster's barrier, setmaxnreg and griddepcontrol.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/executors.h"
#include "emulator/machine/machine.h"
#include "emulator/memory/tensor_memory.h"

namespace attnjit::emulator {
namespace {

enum class BarrierKind : u8 { kSync, kArrive, kPopulation, kAnd, kOr };
struct Barrier {
  BarrierKind kind = BarrierKind::kSync;
  bool reduces() const { return kind >= BarrierKind::kPopulation; }
};

void complete_barrier(Warp& warp, NamedBarrier& b) {
  ++b.generation;
  b.completed = b.arriving;
  b.arriving = {};
  b.result_population = b.population;
  b.result_all = b.all;
  b.result_any = b.any;
  b.population = 0;
  b.all = true;
  b.any = false;
  b.arrived = 0;
  b.expected = 0;
  warp.cluster->note_progress();
}

// s = {id, count, predicate}
Step execute_barrier(Warp& warp, const Op& op, const Barrier& barrier, u32 mask) {
  Group& group = *warp.group;
  if (!group.arrived && op.has(kOpAligned)) {
    const Step step = gather_warp(warp, op, mask);
    if (step != Step::kNext) return step;
  }
  const u32 first = lowest_lane(mask);
  const u32 id = warp.lane32(op.s[0], first);
  if (id >= 16) {
    warp.cluster->report(FindingKind::kBarrier, &warp, static_cast<int>(first), op.site,
                         fmt::format("barrier {}: ids are 0 to 15", id));
    return Step::kNext;
  }
  NamedBarrier& b = warp.cta->barriers[id];
  if (!group.arrived) {
    const bool counted = op.s[1] != kNoRef;
    const u32 count = counted ? warp.lane32(op.s[1], first) : warp.cta->live_threads;
    if (warp.machine->checks) {
      warp.require_defined(op.s[0], mask, op, "the barrier's id");
      warp.require_defined(op.s[1], mask, op, "the barrier's count");
    }
    if (counted && (count == 0 || count % 32 != 0)) {
      warp.cluster->report(
          FindingKind::kBarrier, &warp, static_cast<int>(first), op.site,
          fmt::format("barrier {}: a count of {} threads is no multiple of 32", id, count));
      return Step::kNext;
    }
    if (b.arrived != 0 && counted && b.counted && b.expected != count) {
      warp.cluster->report(
          FindingKind::kBarrier, &warp, static_cast<int>(first), op.site,
          fmt::format("barrier {}: this warp counts {} threads, others {}", id, count, b.expected));
    }
    b.expected = count;
    b.counted = counted;
    // A warp counts whole where the count is given, its missing threads included.
    const u32 threads = counted && mask == warp.live ? 32 : count_lanes(mask);
    if (b.arrived + threads > b.expected && counted) {
      warp.cluster->report(FindingKind::kBarrier, &warp, static_cast<int>(first), op.site,
                           fmt::format("barrier {}: {} threads arrive where {} are expected", id,
                                       b.arrived + threads, b.expected));
    }
    b.arrived += threads;
    warp.release_into(b.arriving, mask);
    if (barrier.reduces()) {
      const u32 p = warp.predicate(op.s[2]) & mask;
      if (warp.machine->checks && (warp.poison_of(op.s[2]) & mask) != 0)
        warp.require_defined(op.s[2], mask, op, "the barrier's predicate");
      b.population += count_lanes(p);
      b.all = b.all && p == mask;
      b.any = b.any || p != 0;
    }
    const u64 generation = b.generation;
    const bool complete = b.arrived >= b.expected;
    if (complete) complete_barrier(warp, b);
    warp.cluster->note_progress();
    if (barrier.kind == BarrierKind::kArrive) return Step::kNext;
    if (!complete) {
      group.arrived = true;
      group.state = Group::State::kBlocked;
      group.wait = {};
      group.wait.kind = Wait::Kind::kNamedBarrier;
      group.wait.address = id;
      group.wait.value = generation;
      group.wait.since = warp.cluster->steps;
      return Step::kWait;
    }
  } else if (b.generation == group.wait.value) {
    group.state = Group::State::kBlocked;
    return Step::kWait;
  }
  if (group.arrived && warp.machine->options.stats) {
    warp.cluster->stats.barrier_wait_steps[fmt::format("bar {}", id)] +=
        warp.cluster->steps - group.wait.since;
  }
  group.arrived = false;
  warp.clocks.view.acquire(b.completed);
  if (barrier.reduces()) {
    if (barrier.kind == BarrierKind::kPopulation) {
      u32 result[32];
      std::fill_n(result, 32, b.result_population);
      if (op.d != kNoRef) warp.blend(op.d, result, 1, mask);
    } else if (op.d != kNoRef) {
      warp.set_predicate(
          op.d, (barrier.kind == BarrierKind::kAnd ? b.result_all : b.result_any) ? ~u32{0} : 0,
          mask);
    }
    if (warp.machine->checks) warp.set_poison(op.d, 0, mask, 0);
  }
  return Step::kNext;
}

bool decode_barrier(Decoding& d) {
  const bool is_bar = d.in.root == "bar";
  d.take("cta");
  const int what = d.take_any({"sync", "arrive", "red"});
  if (what < 0) return d.unsupported("this form of the barrier is not modelled");
  const bool aligned = d.take("aligned") || is_bar;
  BarrierKind kind = what == 1 ? BarrierKind::kArrive : BarrierKind::kSync;
  std::size_t at = 0;
  Ref to = kNoRef;
  if (what == 2) {
    const int op = d.take_any({"popc", "and", "or"});
    constexpr std::array kReductions = {BarrierKind::kPopulation, BarrierKind::kAnd,
                                        BarrierKind::kOr};
    d.take_type();
    if (op < 0) return d.invalid("an operation is needed");
    kind = kReductions[static_cast<std::size_t>(op)];
    at = 1;
    if (!d.expect(3, 4)) return false;
    to = d.destination(0, op == 0 ? 32 : 1);
  } else if (!d.expect(what == 1 ? 2 : 1, 2)) {
    return false;
  }
  if (!d.done()) return false;
  const Ref id = d.source(at, 32);
  Ref count = kNoRef, p = kNoRef;
  if (what == 2) {
    p = d.source(d.count() - 1, 1);
    if (d.count() == 4) count = d.source(2, 32);
  } else if (d.count() == 2) {
    count = d.source(1, 32);
  }
  if (d.failed()) return false;
  Op& op = d.emit<execute_barrier>({kind});
  op.d = to;
  op.d_rows = kind == BarrierKind::kPopulation ? 1 : 0;
  op.s = {id, count, p, kNoRef};
  if (aligned) op.set(kOpAligned);
  return true;
}

// What a relaxed arrival publishes: all before the last fence, and the mbarriers' inits before a
// fence.mbarrier_init (9.7.13.4; CUTLASS begins its clusters so).
void publish_fenced(Warp& warp) {
  Cluster& cluster = *warp.cluster;
  if (!warp.clocks.fence_view.generic.empty())
    cluster.cluster_arriving.acquire(warp.clocks.fence_view);
  for (auto& cta : cluster.ctas) {
    for (auto& [address, b] : cta->mbarriers) {
      if (b.fence_epoch == 0 || b.published || b.init_agent != warp.agent) continue;
      b.published = true;
      cluster.published_inits.emplace_back(cta.get(), address);
    }
  }
}

struct ClusterBarrier {
  bool waits = false;  ///< or arrives
  bool relaxed = false;
};

Step execute_cluster_barrier(Warp& warp, const Op& op, const ClusterBarrier& barrier, u32 mask) {
  Cluster& cluster = *warp.cluster;
  Group& group = *warp.group;
  if (op.has(kOpAligned) && !group.arrived) {
    const Step step = gather_warp(warp, op, mask);
    if (step != Step::kNext) return step;
  }
  if (!barrier.waits) {
    for (const u32 lane : lanes_of(mask)) {
      if ((warp.cluster_barrier.arrived >> lane & 1) != 0) {
        cluster.report(FindingKind::kBarrier, &warp, static_cast<int>(lane), op.site,
                       "barrier.cluster.arrive twice without a wait in between");
        break;
      }
    }
    warp.cluster_barrier.arrived |= mask;
    warp.cluster_barrier.generation = cluster.cluster_generation;
    if (!barrier.relaxed) {
      warp.release_into(cluster.cluster_arriving, mask);
    } else {
      publish_fenced(warp);
    }
    cluster.cluster_arrived += count_lanes(mask);
    cluster.settle_cluster_barrier();
    cluster.note_progress();
    return Step::kNext;
  }
  if ((mask & ~warp.cluster_barrier.arrived) != 0 && !group.arrived) {
    cluster.report(FindingKind::kBarrier, &warp,
                   __builtin_ctz(mask & ~warp.cluster_barrier.arrived), op.site,
                   "barrier.cluster.wait without an arrive before");
    return Step::kNext;
  }
  if (cluster.cluster_generation == warp.cluster_barrier.generation) {
    group.arrived = true;
    group.state = Group::State::kBlocked;
    group.wait = {};
    group.wait.kind = Wait::Kind::kClusterBarrier;
    group.wait.value = warp.cluster_barrier.generation;
    group.wait.since = cluster.steps;
    return Step::kWait;
  }
  if (group.arrived && warp.machine->options.stats)
    cluster.stats.barrier_wait_steps["barrier.cluster"] += cluster.steps - group.wait.since;
  group.arrived = false;
  warp.cluster_barrier.arrived &= ~mask;
  warp.clocks.view.acquire(cluster.cluster_completed);
  return Step::kNext;
}

bool decode_cluster_barrier(Decoding& d) {
  d.take("cluster");
  const int what = d.take_any({"arrive", "wait"});
  if (what < 0) return d.invalid(".arrive or .wait is needed");
  const bool relaxed = d.take("relaxed");
  d.take("release");
  d.take("acquire");
  const bool aligned = d.take("aligned");
  if (!d.expect(0, 0) || !d.done()) return false;
  Op& op = d.emit<execute_cluster_barrier>({what == 1, relaxed});
  if (aligned) op.set(kOpAligned);
  return true;
}

struct RegisterLimit {
  bool increases = false;
  u32 registers = 0;
};

Step execute_setmaxnreg(Warp& warp, const Op& op, const RegisterLimit& limit, u32 mask) {
  Group& lanes = *warp.group;
  Cluster& cluster = *warp.cluster;
  const u32 n = limit.registers;
  const bool inc = limit.increases;
  const u32 have = warp.allotment.registers;
  if (!lanes.arrived) {
    const Step step = gather_warp(warp, op, mask);
    if (step != Step::kNext) return step;
    if (have != 0 && (inc ? n < have : n > have)) {
      cluster.report(
          FindingKind::kSetmaxnreg, &warp, -1, op.site,
          fmt::format("setmaxnreg.{} to {} registers from {}", inc ? "inc" : "dec", n, have));
    }
    // All warps of a warpgroup must execute the same one.
    const u32 group = warp.index / 4;
    for (Warp& other : warp.cta->warps) {
      if (other.index / 4 != group || &other == &warp || other.live == 0) continue;
      if (other.allotment.changes > warp.allotment.changes &&
          other.allotment.asked.size() > warp.allotment.changes &&
          other.allotment.asked[warp.allotment.changes] != n) {
        cluster.report(
            FindingKind::kSetmaxnreg, &warp, -1, op.site,
            fmt::format(
                "warp {} of the same warpgroup asked for {} registers, this one asks for {}",
                other.index, other.allotment.asked[warp.allotment.changes], n));
      }
    }
    if (warp.allotment.asked.size() < 64) warp.allotment.asked.push_back(n);
    ++warp.allotment.changes;
  }
  // An increase waits until the CTA's other warps have given registers back, of those that it was
  // launched with: the register file's others are not its own.
  if (inc && n > have) {
    u32 sum = n * 32;
    for (const Warp& other : warp.cta->warps) {
      if (&other != &warp) sum += other.allotment.registers * 32;
    }
    if (sum > warp.cta->registers) {
      lanes.arrived = true;
      lanes.state = Group::State::kBlocked;
      lanes.wait = {};
      lanes.wait.kind = Wait::Kind::kRegisters;
      lanes.wait.value = cluster.progress;
      lanes.wait.value2 = sum;
      lanes.wait.since = cluster.steps;
      return Step::kWait;
    }
  }
  lanes.arrived = false;
  warp.allotment.registers = n;
  cluster.note_progress();
  return Step::kNext;
}

bool decode_setmaxnreg(Decoding& d) {
  const int mode = d.take_any({"inc", "dec"});
  if (mode < 0 || !d.take("sync") || !d.take("aligned"))
    return d.invalid(".inc or .dec, and .sync.aligned, are needed");
  d.take_type();
  u64 n = 0;
  if (!d.expect(1, 1) || !d.done() || !d.immediate(0, &n)) return false;
  if (n < 24 || n > 256 || n % 8 != 0) return d.invalid("the count is 24 to 256 in steps of 8");
  Op& op = d.emit<execute_setmaxnreg>({mode == 0, static_cast<u32>(n)});
  op.set(kOpAligned);
  return true;
}

struct GridDependency {
  bool wait = false;  ///< for the launch before; or the next one may begin
};

// One launch runs at a time. What may overlap is judged by who has waited.
Step execute_grid_dependency(Warp& warp, const Op&, const GridDependency& dependency, u32) {
  if (dependency.wait) {
    warp.clocks.view.set(warp.cluster->grid_before, 1);
  } else {
    warp.machine->launches_dependents = true;
  }
  return Step::kNext;
}

bool decode_griddepcontrol(Decoding& d) {
  const int which = d.take_any({"wait", "launch_dependents"});
  if (!d.expect(0, 0) || !d.done()) return false;
  d.emit<execute_grid_dependency>({.wait = which == 0});
  return true;
}

}  // namespace

void Cluster::settle_cluster_barrier() {
  if (cluster_arrived == 0 || cluster_arrived < live_threads()) return;
  ++cluster_generation;
  cluster_arrived = 0;
  cluster_completed = cluster_arriving;
  cluster_arriving = {};
  // NOTE: an init has no clock of its own; once the barrier is complete it is ordered before all.
  for (const auto& [cta, address] : published_inits) {
    histories.forget(cta->shadow, address, 8);
    cta->mbarriers[address].ordered = true;
  }
  published_inits.clear();
  note_progress();
}

void Cluster::check_exit(Cta& cta) {
  if (!machine.checks) return;
  const bool isa = machine.options.model == EmulatorModel::kIsa;
  for (u32 agent = 0; agent < cta.visits.size(); ++agent) {
    const Cta::Visit& v = cta.visits[agent];
    if (v.epoch == 0 || cta.exit_view.knows(agent, v.epoch, v.lanes)) continue;
    // NOTE: silicon keeps what a CTA's own operations need (CUTLASS's kernels of one CTA do not
    // drain their pipelines).
    report(
        FindingKind::kBounds, &cta.warps[0], -1, v.site,
        fmt::format("CTA {} exits, and no thread of it knows that the access to its shared memory "
                    "by {} is over",
                    cta.rank, describe_agent(agent, v.site)),
        !isa && !v.foreign);
  }
}

void Cluster::settle_after_exit(Warp& warp) {
  // Threads that have exited are no longer waited for.
  for (NamedBarrier& b : warp.cta->barriers) {
    if (b.arrived != 0 && !b.counted && b.arrived >= warp.cta->live_threads &&
        warp.cta->live_threads != 0)
      complete_barrier(warp, b);
  }
  settle_cluster_barrier();
  if (warp.cta->live_threads == 0) {
    check_tensor_leak(*warp.cta);
    check_exit(*warp.cta);
  }
}

void add_barriers(InstructionTable& t) {
  t.add({"bar", "", "barrier", ".sync .arrive .red.popc/and/or", "9.7.13.1", decode_barrier});
  t.add({"barrier", "", "barrier", "{.cta} .sync .arrive .red, .aligned or not", "9.7.13.1",
         decode_barrier});
  t.add({"barrier", ".cluster", "barrier", ".arrive .wait .relaxed .aligned", "9.7.13.3",
         decode_cluster_barrier});
  t.add({"setmaxnreg", "", "barrier",
         "inc waits until the CTA's other warps have given registers back", "9.7.20.5",
         decode_setmaxnreg});
  t.add({"griddepcontrol", "", "barrier",
         ".wait .launch_dependents: grids run in turn, what may overlap is judged", "9.7.13.13",
         decode_griddepcontrol});
}

}  // namespace attnjit::emulator

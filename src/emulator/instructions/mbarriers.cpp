// SPDX-License-Identifier: Apache-2.0
// Decodes and executes the mbarrier instructions.
#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/executors.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {
namespace {

enum class Kind : u8 {
  kInit,
  kInval,
  kArrive,
  kArriveDrop,
  kExpectTx,
  kCompleteTx,
  kTestWait,
  kTryWait
};

/// Op::s[1]: the count, the bytes, or what is waited for; Op::d: the state or the predicate.
struct BarrierOperation {
  Address address;
  Kind kind = Kind::kInit;
  bool expects = false;  ///< an arrival with .expect_tx
  bool no_complete = false;
  bool parity = false;  ///< a wait names the phase's parity, else its state
  bool relaxed = false;
  bool remote = false;  ///< reaches other CTAs' shared memory
  bool cluster_scope = false;

  bool waits() const { return kind == Kind::kTestWait || kind == Kind::kTryWait; }
  bool arrives() const { return kind == Kind::kArrive || kind == Kind::kArriveDrop; }
};

/// The shared address that a lane names, from a shared or generic address; false after a finding.
bool shared_address(Warp& warp, const Op& op, const BarrierOperation& operation, u32 lane,
                    SharedAddress* out) {
  u64 a = lane_address(warp, op, operation.address, lane);
  if (operation.address.space == Space::kGeneric) {
    if ((a & kWindowMask) != kSharedWindow) {
      warp.cluster->report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                           fmt::format("0x{:x} is not a generic address of shared memory", a));
      return false;
    }
    a &= ~kWindowMask;
  }
  if (a >> 32 != 0) {
    warp.cluster->report(FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
                         fmt::format("0x{:x} is not a shared address", a));
    return false;
  }
  *out = SharedAddress(static_cast<u32>(a));
  const u32 rank = out->rank();
  if (rank != warp.cta->rank && !operation.remote) {
    warp.cluster->report(
        FindingKind::kSpace, &warp, static_cast<int>(lane), op.site,
        fmt::format("address 0x{:x} is of CTA {}, this operation reaches its own CTA ({}) only",
                    out->bits(), rank, warp.cta->rank));
    return false;
  }
  return true;
}

void touch(Warp& warp, const Op& op, u32 lane, SharedAddress address, bool plain) {
  Cta* cta = warp.cluster->cta_of(address);
  if (!warp.machine->checks || cta == nullptr) return;
  Place place;
  place.offset = address.offset();
  place.shadow = &cta->shadow;
  place.cta = cta;
  Conflict conflict;
  if (warp.cluster->histories.access(cta->shadow, place.offset, 8, true,
                                     warp.accessor(op, {u32{1} << lane}, !plain), &conflict)) {
    warp.cluster->report_conflict(conflict, &warp, static_cast<int>(lane), op.site, true, place);
  }
}

/// A try_wait may return false at any time: at each place at once when it is first reached, and one
/// time in eight later, so that a missing loop shows.
bool impatient(Warp& warp, const Op& op) {
  if (warp.group->arrived || warp.machine->timed) return false;
  return warp.first_time(op.site) || warp.cluster->random.one_in(8);
}

/// Holds an arrival back, mostly, when its place is first reached, until the others have gone as
/// far as they can: so that they wait for it.
bool delayed(Warp& warp, const Op& op) {
  Group& group = *warp.group;
  if (group.arrived) {
    group.arrived = false;
    return false;
  }
  if (warp.machine->timed || !warp.first_time(op.site) || warp.cluster->random.one_in(4))
    return false;
  group.arrived = true;
  group.state = Group::State::kBlocked;
  group.wait = {};
  group.wait.kind = Wait::Kind::kOthers;
  group.wait.since = warp.cluster->steps;
  return true;
}

/// An arrival that crosses the cluster, where a clock says how long that takes.
class PeerArrival : public AsyncOp {
 public:
  SharedAddress address;
  u32 count = 1;
  s64 expected = 0;  ///< bytes
  View knowledge;
  bool apart = false;  ///< what it releases is for waits of cluster scope
  PeerArrival() { proxy = Proxy::kGeneric; }
  const char* unit() const override { return "arrivals of other CTAs"; }
  UnitWork work() const override {
    UnitWork w;
    w.kind = UnitWork::Kind::kPeerStore;
    return w;
  }
  bool step(Cluster& cluster) override {
    Mbarrier* const b = cluster.mbarrier(issuer, site, address, "an arrival");
    if (b == nullptr) return true;
    if (expected != 0) cluster.mbarrier_expect(*b, expected, site);
    cluster.mbarrier_arrive(*b, count, knowledge, site, issuer, address, apart);
    return true;
  }
};

/// Whether an earlier lane of this very instruction initialises the lane's mbarrier, and all that
/// do give it one count.
bool begun_together(Warp& warp, const Op& op, const BarrierOperation& operation, u32 mask,
                    u32 lane) {
  SharedAddress own, other;
  if (!shared_address(warp, op, operation, lane, &own)) return false;
  bool together = false;
  for (const u32 earlier : lanes_of(mask & ((u32{1} << lane) - 1))) {
    if (!shared_address(warp, op, operation, earlier, &other) || other != own) continue;
    if (warp.lane32(op.s[1], earlier) != warp.lane32(op.s[1], lane)) return false;
    together = true;
  }
  return together;
}

Step execute_mbarrier(Warp& warp, const Op& op, const BarrierOperation& operation, u32 mask) {
  Cluster& cluster = *warp.cluster;
  const bool checks = warp.machine->checks;
  const bool isa = warp.machine->options.model == EmulatorModel::kIsa;
  if (checks) {
    if (op.s[0] != kNoRef) warp.require_defined(op.s[0], mask, op, "the address");
    warp.require_defined(op.s[1], mask, op, "the operand");
  }
  if (operation.arrives() && delayed(warp, op)) return Step::kWait;
  View knowledge;
  const u32 epoch = warp.clocks.epoch;
  if (operation.arrives()) {
    if (!operation.relaxed) {
      warp.release_into(knowledge, mask);
    } else {
      knowledge = warp.clocks.fence_view;
      // tcgen05.fence::before_thread_sync suffices.
      warp.clocks.publish_tensor(knowledge.tensor, mask);
    }
  }
  u64 states[32] = {};
  for (const u32 lane : lanes_of(mask)) {
    SharedAddress address;
    if (!shared_address(warp, op, operation, lane, &address)) continue;
    const u32 value = op.s[1] == kNoRef ? 1 : warp.lane32(op.s[1], lane);
    switch (operation.kind) {
      case Kind::kInit: {
        Cta* cta = warp.cta;
        const u32 offset = address.offset();
        Place place;
        if (offset % 8 != 0) {
          cluster.report(FindingKind::kAlign, &warp, static_cast<int>(lane), op.site,
                         fmt::format("an mbarrier at 0x{:x}: it is aligned to 8 bytes", offset));
          break;
        }
        if (!cluster.resolve_shared(op, warp, lane, address, 8, true, &place)) break;
        if (value == 0 || value >= (1u << 20)) {
          cluster.report(FindingKind::kBarrier, &warp, static_cast<int>(lane), op.site,
                         fmt::format("a count of {}: it is 1 to 1048575", value));
          break;
        }
        touch(warp, op, lane, address, true);
        Mbarrier& b = cta->mbarriers[offset];
        if (b.valid) {
          const bool together = begun_together(warp, op, operation, mask, lane);
          cluster.report(FindingKind::kBarrier, &warp, static_cast<int>(lane), op.site,
                         fmt::format("the mbarrier at 0x{:x} is initialised {}", offset,
                                     together ? "by several lanes of one instruction"
                                              : "again without mbarrier.inval"),
                         together && !isa);
        }
        b = {};
        b.valid = true;
        b.expected = b.pending = value;
        b.init_agent = warp.agent;
        b.init_epoch = warp.clocks.epoch;
        b.init_lanes = u32{1} << lane;
        std::memset(cta->shared.data() + offset, 0x5A, 8);  // opaque
        if (!cta->shared_poison.empty()) std::memset(cta->shared_poison.data() + offset, 0, 8);
        cluster.note_progress();
        break;
      }
      case Kind::kInval: {
        Mbarrier* b = cluster.mbarrier(&warp, op.site, address, "mbarrier.inval");
        if (b == nullptr) break;
        touch(warp, op, lane, address, true);
        b->valid = false;
        if (!warp.cta->shared_poison.empty())
          std::memset(warp.cta->shared_poison.data() + address.offset(), 1, 8);
        cluster.note_progress();
        break;
      }
      case Kind::kArrive:
      case Kind::kArriveDrop: {
        Mbarrier* b = cluster.mbarrier(&warp, op.site, address, "an arrival");
        if (b == nullptr) break;
        touch(warp, op, lane, address, false);
        states[lane] = (b->phase << 32) | b->pending;
        const bool expects = operation.expects;
        const u32 count = expects ? 1 : value;
        const bool remote = cluster.cta_of(address) != warp.cta;
        if (remote && warp.machine->timed && operation.kind == Kind::kArrive) {
          auto arrival = std::make_unique<PeerArrival>();
          arrival->address = address;
          arrival->count = count;
          arrival->expected = expects ? static_cast<s64>(value) : 0;
          arrival->knowledge = knowledge;
          arrival->apart = isa;
          cluster.start(std::move(arrival), warp, op, u32{1} << lane);
          break;
        }
        if (expects) cluster.mbarrier_expect(*b, static_cast<s64>(value), op.site);
        if (!expects && (value == 0 || value >= (1u << 20))) {
          cluster.report(FindingKind::kBarrier, &warp, static_cast<int>(lane), op.site,
                         fmt::format("a count of {}: it is 1 to 1048575", value));
          break;
        }
        if (operation.no_complete && count >= b->pending && b->tx == 0) {
          cluster.report(FindingKind::kBarrier, &warp, static_cast<int>(lane), op.site,
                         "arrive.noComplete completes the phase");
        }
        if (operation.kind == Kind::kArriveDrop) b->expected -= std::min(b->expected, count);
        Cta* cta = cluster.cta_of(address);
        if (remote && !operation.relaxed)
          cta->visit(warp.agent, epoch, u32{1} << lane, op.site, true);
        // A release at CTA scope says nothing to the threads of another CTA (8.8).
        const bool heard = !remote || !isa || operation.cluster_scope;
        cluster.mbarrier_arrive(*b, count, heard ? knowledge : View{}, op.site, &warp, address,
                                remote && isa);
        break;
      }
      case Kind::kExpectTx: {
        Mbarrier* b = cluster.mbarrier(&warp, op.site, address, "expect_tx");
        if (b == nullptr) break;
        touch(warp, op, lane, address, false);
        cluster.mbarrier_expect(*b, static_cast<s64>(value), op.site);
        break;
      }
      case Kind::kCompleteTx: {
        Mbarrier* b = cluster.mbarrier(&warp, op.site, address, "complete_tx");
        if (b == nullptr) break;
        touch(warp, op, lane, address, false);
        // The thread itself simulates a completion: no fence.mbarrier_init is owed for that.
        cluster.mbarrier_complete(address, static_cast<s64>(value), {}, op.site, &warp);
        break;
      }
      case Kind::kTestWait:
      case Kind::kTryWait:
        break;  // execute_wait
    }
  }
  if (op.d != kNoRef) {
    warp.blend(op.d, states, 2, mask);
    if (checks) warp.set_poison(op.d, 0, mask, 0);
  }
  return Step::kNext;
}

Step execute_wait(Warp& warp, const Op& op, const BarrierOperation& operation, u32 mask) {
  Cluster& cluster = *warp.cluster;
  Group& group = *warp.group;
  const bool checks = warp.machine->checks;
  if (checks && group.state == Group::State::kReady) {
    if (op.s[0] != kNoRef) warp.require_defined(op.s[0], mask, op, "the address");
    warp.require_defined(op.s[1], mask, op, "the phase");
  }
  const bool parity = operation.parity;
  u32 done = 0;
  SharedAddress first_address;
  u64 first_value = 0;
  bool uniform = true, seen = false;
  Cta* cta = nullptr;
  for (const u32 lane : lanes_of(mask)) {
    SharedAddress address;
    if (!shared_address(warp, op, operation, lane, &address)) {
      done |= u32{1} << lane;  // told; go on
      continue;
    }
    const u64 value =
        parity ? (warp.lane32(op.s[1], lane) & 1) : (warp.lane64(op.s[1], lane) >> 32);
    if (seen && (address != first_address || value != first_value)) uniform = false;
    const bool repeated = seen && address == first_address && value == first_value;
    if (!seen) {
      first_address = address;
      first_value = value;
      cta = cluster.cta_of(address);
    }
    if (repeated) {
      if ((done & (u32{1} << lowest_lane(mask))) != 0) done |= u32{1} << lane;
      continue;
    }
    seen = true;
    Mbarrier* b = cluster.mbarrier(&warp, op.site, address, "a wait");
    if (b == nullptr) {
      done |= u32{1} << lane;
      continue;
    }
    touch(warp, op, lane, address, false);
    // NOTE: hardware wakes a suspended thread when its phase completes, though the next may
    // complete before it runs; the ISA promises no more than a test.
    const bool woken = group.arrived && group.wait.kind == Wait::Kind::kMbarrier &&
                       group.wait.cta == cta && group.wait.address == address.offset() &&
                       b->phase > group.wait.value2 &&
                       warp.machine->options.model == EmulatorModel::kSilicon;
    const bool complete =
        woken || (parity ? (b->phase & 1) != value : (b->phase & 0xFFFFFFFF) != value);
    if (!complete) continue;
    done |= u32{1} << lane;
    const bool cluster_scope =
        operation.cluster_scope || warp.machine->options.model == EmulatorModel::kSilicon;
    cluster.mbarrier_acquire(*b, operation.relaxed ? warp.clocks.pending_acquire : warp.clocks.view,
                             cluster_scope);
  }
  const bool try_wait = operation.kind == Kind::kTryWait;
  if (done == 0 && try_wait && uniform && cta != nullptr && !group.give_up &&
      !impatient(warp, op)) {
    const bool again = group.arrived;
    group.arrived = true;
    group.state = Group::State::kBlocked;
    if (!again) {
      group.wait = {};
      group.wait.kind = Wait::Kind::kMbarrier;
      group.wait.cta = cta;
      group.wait.address = first_address.offset();
      group.wait.value = first_value;
      const auto it = cta->mbarriers.find(first_address.offset());
      group.wait.value2 = it == cta->mbarriers.end() ? 0 : it->second.phase;
      group.wait.by_parity = parity;
      group.wait.since = cluster.steps;
    }
    return Step::kWait;
  }
  if (done != 0 && uniform && cta != nullptr && cluster.trace.on) {
    TraceEvent event;
    event.kind = TraceEvent::Kind::kWait;
    event.begin = group.arrived ? group.wait.since : cluster.steps;
    event.length = cluster.steps - event.begin;
    event.cta = cluster.linear_index(*warp.cta);
    event.warp = static_cast<s32>(warp.index);
    event.site = op.site;
    event.barrier = first_address.offset();
    event.phase = static_cast<s64>(cta->mbarriers.find(first_address.offset())->second.phase) - 1;
    cluster.trace.add(event);
  }
  if (group.arrived && warp.machine->options.stats) {
    cluster.stats.barrier_wait_steps[fmt::format("mbarrier 0x{:x}", first_address.offset())] +=
        cluster.steps - group.wait.since;
  }
  group.arrived = false;
  group.give_up = false;
  if (done == 0) ++cluster.polls;
  if (op.d != kNoRef) {
    warp.set_predicate(op.d, done, mask);
    if (checks) warp.set_poison(op.d, 0, mask, 0);
  }
  return Step::kNext;
}

Step execute_pending_count(Warp& warp, const Op& op, u32 mask) {
  u32 result[32] = {};
  for (const u32 lane : lanes_of(mask)) result[lane] = static_cast<u32>(warp.lane64(op.s[0], lane));
  warp.blend(op.d, result, 1, mask);
  if (warp.machine->checks) warp.set_poison(op.d, warp.poison_of(op.s[0]), mask, op.site);
  return Step::kNext;
}

bool decode_mbarrier(Decoding& d) {
  const int kind = d.take_any({"init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx",
                               "test_wait", "try_wait"});
  if (kind < 0) {
    if (!d.take("pending_count")) return d.unsupported("this mbarrier operation is not modelled");
    d.take_type();
    if (!d.expect(2, 2) || !d.done()) return false;
    const Ref s = d.source(1, 64), to = d.destination(0, 32);
    if (d.failed()) return false;
    Op& op = d.emit<execute_pending_count>();
    op.d = to == kNoRef ? d.f.scratch(1) : to;
    op.s[0] = s;
    return true;
  }
  BarrierOperation operation;
  operation.kind = static_cast<Kind>(kind);
  const bool waits = operation.waits(), arrives = operation.arrives();
  operation.expects = arrives && d.take("expect_tx");
  operation.no_complete = arrives && d.take("noComplete");
  operation.parity = waits && d.take("parity");
  operation.relaxed = d.has("relaxed");
  operation.cluster_scope = d.take_semantics().scope == 2;
  const Space space = d.take_space(Space::kGeneric);
  if (space != Space::kGeneric && space != Space::kShared && space != Space::kSharedCluster)
    return d.invalid("an mbarrier lies in shared memory");
  const bool own = waits || operation.kind == Kind::kInit || operation.kind == Kind::kInval;
  operation.remote = space == Space::kSharedCluster || (space == Space::kGeneric && !own);
  if (d.take_type() != Type::kB64) return d.invalid(".b64 is needed");
  const bool has_result = arrives || waits;
  const std::size_t at = has_result ? 1 : 0;
  std::size_t least = at + 1, most = at + 1;
  if (operation.kind == Kind::kInit || operation.kind == Kind::kExpectTx ||
      operation.kind == Kind::kCompleteTx || operation.expects)
    least = most = at + 2;
  if (arrives && !operation.expects) most = at + 2;
  if (waits) {
    least = at + 2;
    most = at + 3;
  }
  // arrive without a result operand is written by some compilers.
  if (arrives && d.count() >= 1 && d.is(0, Operand::Kind::kAddress))
    return d.invalid("a result or '_' is needed");
  if (!d.expect(least, most) || !d.done()) return false;
  Ref to = kNoRef;
  if (arrives) to = d.destination(0, 64);
  if (waits) to = d.destination(0, 1);
  Ref base = kNoRef;
  if (!d.address(d.in.operands[at], space, &operation.address, &base)) return false;
  Ref value = kNoRef;
  if (d.count() > at + 1) value = d.source(at + 1, waits && !operation.parity ? 64 : 32);
  if (waits && d.count() > at + 2) d.source(at + 2, 32);
  if (d.failed()) return false;
  if (to != kNoRef && space == Space::kSharedCluster)
    return d.invalid("a remote arrival has no result: '_' is needed");
  Op& op = waits ? d.emit<execute_wait>(operation) : d.emit<execute_mbarrier>(operation);
  op.s[0] = base;
  op.s[1] = value;
  op.d = to;
  op.d_rows = waits ? 0 : 2;
  if (waits) op.set(kOpPolls);
  return true;
}

}  // namespace

void add_mbarriers(InstructionTable& t) {
  t.add(
      {"mbarrier", "", "mbarrier",
       "init inval arrive arrive_drop (.expect_tx .noComplete) expect_tx complete_tx test_wait "
       "try_wait (.parity) pending_count; .shared::cta .shared::cluster generic; .relaxed .release "
       ".acquire",
       "9.7.13.15", decode_mbarrier});
}

}  // namespace attnjit::emulator

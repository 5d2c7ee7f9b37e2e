// SPDX-License-Identifier: Apache-2.0
// A warp: its lane groups and where they wait, its registers, and what it has under way.
//
// Thread rules: confined to the thread that runs the warp's cluster.
#pragma once

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <vector>

#include "emulator/decode/program.h"
#include "emulator/lanes/lane_mask.h"
#include "emulator/machine/clock.h"
#include "emulator/memory/races.h"

namespace attnjit::emulator {

class Machine;
class Cluster;
class Cta;

struct Frame {
  const FunctionCode* function = nullptr;
  u32 return_pc = 0;
  u32 row_base = 0;
  u32 predicate_base = 0;
  u32 local_base = 0;
  const Op* call = nullptr;
};

struct Group;

/// Instructions that a runnable warp executes, on silicon, before an operation of a unit is
/// complete.
inline constexpr u64 kOvertaken = 64;

/// What a group waits for: tested by the scheduler before the operation is run again.
struct Wait {
  enum class Kind : u8 {
    kNone,
    kMbarrier,
    kNamedBarrier,
    kClusterBarrier,
    kAsyncGroup,
    kBulkGroup,
    kWgmma,
    kTmemLoad,
    kTmemStore,
    kTmemAlloc,
    kRegisters,
    kOthers,  ///< until no other group can run
    kForever
  };
  Kind kind = Kind::kNone;
  Cta* cta = nullptr;
  u32 address = 0;  ///< mbarrier: shared address; named barrier: id
  u64 value = 0;    ///< mbarrier: parity or phase; group waits: how many may be pending
  u64 value2 = 0;
  bool by_parity = false;
  u64 since = 0;
};

/// Lanes of a warp that run together.
struct Group {
  enum class State : u8 { kReady, kConverging, kSyncing, kBlocked };
  State state = State::kReady;
  u32 pc = 0;
  u32 mask = 0;
  const FunctionCode* function = nullptr;
  u32 row_base = 0;
  u32 predicate_base = 0;
  u32 local_base = 0;
  std::vector<Frame> frames;
  Wait wait;
  bool arrived = false;    ///< the arrival half of the operation at pc has been done
  bool give_up = false;    ///< a try_wait is to return false now
  bool converged = false;  ///< the reconvergence at pc has been settled
  bool forced = false;     ///< runs an .aligned or .sync operation without the missing lanes
  u32 sync_mask = 0;       ///< kSyncing: the lanes it needs
  u32 polls = 0;
};

/// A point where the paths of a divergent branch meet.
struct Convergence {
  u32 pc = 0;
  u32 depth = 0;
  u32 participants = 0;
  u32 arrived = 0;
};

/// An asynchronous group count, by lane's mask: cp.async and bulk groups are per thread; the lanes
/// of a group act together, so they are kept by warp with the mask of the committing lanes.
struct PendingCopies {
  u32 mask = 0;
  u32 issued = 0;  ///< operations of the group not yet read / written
  u32 unread = 0;
  u32 unwritten = 0;
  bool committed = false;
  std::vector<u32> rows_written, rows_read;  ///< wgmma: registers in flight
  View read_done;
  View write_done;
};

/// What an asynchronous operation in flight does to a register.
enum class InFlight : u8 {
  kNo,
  kWritten,
  kRead,
  kLoadsTensor,   ///< a tcgen05.ld writes it: usable after tcgen05.wait::ld
  kCopiesTensor,  ///< a copy of such a register
};
inline bool awaits_tensor_load(InFlight use) { return use >= InFlight::kLoadsTensor; }

/// A warp's registers, those of all its frames, and what is known of their values.
struct RegisterFile {
  std::vector<Row> rows;
  std::vector<u32> predicates;
  u32 carry = 0;  ///< the condition code's carry

  std::vector<u32> poison;  ///< by first row of a register: lanes never defined
  std::vector<u32> predicate_poison;
  std::vector<u32> poison_site;  ///< by first row: where the poison came from
  struct Halves {
    u64 written = 0;  ///< written_at, when they were true
    u32 low = 0, high = 0;
  };
  std::unordered_map<u32, Halves> half_poison;  ///< by first row, where the halves differ

  std::vector<u64> written_at;  ///< by row: `writes` when it was last written
  u64 writes = 0;
  std::vector<InFlight> in_flight;  ///< by row
  u32 in_flight_rows = 0;
};

/// The local memory of a warp's lanes, one lane's after the other's.
struct LocalMemory {
  std::vector<u8> bytes;
  std::vector<u8> poison;
  u32 lane_bytes = 0;
  /// By site of a load that was never written: where in the lane's memory.
  std::unordered_map<u32, u32> fresh;
  u32 offset_of(const u8* at) const {
    return static_cast<u32>(static_cast<std::size_t>(at - bytes.data()) % lane_bytes);
  }
};

/// What a warp knows to have happened.
struct WarpClocks {
  View view;
  u32 epoch = 1;          ///< of what it does now
  u32 unsynced = 0;       ///< lanes that accessed memory since all lanes last synchronised
  u32 last_access = 0;    ///< the epoch of the last access, or of a fence of inits
  View fence_view;        ///< what strong stores after a fence publish
  View pending_acquire;   ///< what strong loads saw, acquired by a fence
  Clock tensor_known;     ///< tensor operations that the next ones are ordered after
  Clock tensor_before;    ///< those that a tcgen05.fence::before_thread_sync of some lanes covered
  u32 before_lanes = 0;   ///< these lanes
  Clock tensor_fenced;    ///< view.generic at the last tcgen05.fence::after_thread_sync
  View copied;            ///< cp.async of groups that were waited for
  View drained;           ///< bulk copies of groups that only some lanes waited for
  u32 drained_lanes = 0;  ///< these lanes
  u32 maps_released = 0;  ///< tensor maps written up to this epoch were released to their proxy
  std::unordered_map<u64, Clock> maps_acquired;  ///< by address, at the tensormap proxy's acquire

  u32 unsynced_lanes(u32 agent) const {
    return at(view.generic, agent) >= last_access ? 0 : unsynced;
  }
  /// These lanes do, in this epoch, what the others learn of when all synchronise.
  void touch(u32 lanes, u32 agent) {
    unsynced = unsynced_lanes(agent) | lanes;
    last_access = epoch;
  }
  /// tcgen05.fence::before_thread_sync by some lanes. What all lanes know by now is no longer these
  /// lanes' own.
  void fence_tensor_before(u32 lanes) {
    if (covers(view.tensor, tensor_before)) before_lanes = 0;
    join(tensor_before, tensor_known);
    before_lanes |= lanes;
  }
  /// Some lanes have waited for bulk copies, of `all` that live. What all wait for, all know.
  void drain(const View& done, u32 lanes, u32 all) {
    if ((all & ~lanes) == 0) {
      view.acquire(done);
    } else {
      drained.acquire(done);
      drained_lanes |= lanes;
    }
  }
  /// These lanes, by themselves or together, know what they have waited for.
  void share_drained(u32 lanes) {
    if (drained_lanes == 0 || (drained_lanes & ~lanes) != 0) return;
    view.acquire(drained);
    drained = {};
    drained_lanes = 0;
  }
  /// What these lanes hand on of the tensor operations that the fence covered.
  void publish_tensor(Clock& into, u32 lanes) const {
    join(into, view.tensor);
    if ((before_lanes & ~lanes) == 0) join(into, tensor_before);
  }
};

/// The copies that a warp has issued; the last group is open.
struct WarpCopies {
  std::vector<std::shared_ptr<PendingCopies>> async;  ///< cp.async
  std::vector<std::shared_ptr<PendingCopies>> bulk;   ///< cp.async.bulk
};

/// A warp's part of its warpgroup's products.
struct WarpProducts {
  std::vector<std::shared_ptr<PendingCopies>> groups;
  u64 fence_at = 0;     ///< RegisterFile::writes at the last wgmma.fence
  bool fenced = false;  ///< there was one
  u64 issued = 0, done = 0;
  u64 executed = 0;  ///< wgmma instructions, fences and waits among them
};

/// tcgen05.ld and st of a warp that no wait has covered.
struct TensorMoves {
  std::shared_ptr<PendingCopies> loads, stores;
  std::vector<u32> rows;  ///< registers that a ld writes
};

/// setmaxnreg.
struct RegisterAllotment {
  u32 registers = 0;
  u32 changes = 0;
  std::vector<u32> asked;  ///< its values, in order
};

struct WarpClusterBarrier {
  u32 arrived = 0;  ///< lanes between barrier.cluster.arrive and .wait
  u64 generation = 0;
};

class Warp {
 public:
  Cta* cta = nullptr;
  Cluster* cluster = nullptr;
  Machine* machine = nullptr;
  u32 index = 0;  ///< in the CTA
  u32 agent = 0;  ///< in the cluster's clocks

  // Control flow.
  u32 live = 0;  ///< lanes that exist and have not exited
  std::vector<Group> groups;
  std::vector<Convergence> convergences;
  Group* group = nullptr;    ///< the one that runs
  std::vector<u32> reached;  ///< sites of the mbarrier operations that were delayed once; sorted
  u64 steps = 0;

  RegisterFile registers;
  LocalMemory local;
  WarpClocks clocks;

  // What it has under way.
  WarpCopies copies;
  WarpProducts wgmma;
  TensorMoves tensor;
  RegisterAllotment allotment;
  WarpClusterBarrier cluster_barrier;

  // Operand access, in the frame of the running group.
  Row* row(Ref r) { return registers.rows.data() + group->row_base + index_of(r); }
  const void* source(Ref r) const;
  u32 lane32(Ref r, u32 lane) const;
  u64 lane64(Ref r, u32 lane) const;
  u64 value(Ref r, u32 lane, bool wide) const { return wide ? lane64(r, lane) : lane32(r, lane); }
  u32 predicate(Ref r) const {
    const u32 v = registers.predicates[group->predicate_base + index_of(r)];
    return (r & kConstant) != 0 ? ~v : v;
  }
  void set_predicate(Ref r, u32 value, u32 mask) {
    u32& p = registers.predicates[group->predicate_base + index_of(r)];
    p = (p & ~mask) | (value & mask);
  }
  /// Copies lanes in `mask` of a result to a register of n rows.
  void blend(Ref d, const void* result, u32 n, u32 mask);

  // Poison, where checks are on.
  u32 poison_of(Ref r) const {
    if (r == kNoRef || is_constant(r)) return 0;
    if (is_predicate(r)) return registers.predicate_poison[group->predicate_base + index_of(r)];
    return registers.poison[group->row_base + index_of(r)];
  }
  void set_poison(Ref d, u32 value, u32 mask, u32 site);
  /// The same for the low and the high half of a register: mov packs a value with an undefined one
  /// and takes it out again.
  u32 poison_of_half(Ref r, bool high) const;
  void set_poison_of_halves(Ref d, u32 low, u32 high, u32 mask, u32 site);
  u32 site_of(Ref r) const {
    return is_row(r) ? registers.poison_site[group->row_base + index_of(r)] : 0;
  }
  /// Reports a poisoned operand that decides something (an address, a branch, a barrier).
  /// Returns whether it was defined.
  bool require_defined(Ref r, u32 mask, const Op& op, const char* role);

  /// Makes room for a function's registers at these bases and sets its special registers; its
  /// registers are undefined in the lanes of `mask`.
  void enter_frame(const FunctionCode& code, u32 row_base, u32 predicate_base, u32 mask);

  /// What lanes know to have happened: what the warp does, and what they did themselves. The warp's
  /// accesses as a whole only where no other lane made one since the lanes last synchronised, and
  /// its tensor operations where no other lane executed the fence before.
  void publish(View& into, u32 lanes) const {
    into.acquire(clocks.view);
    if ((clocks.drained_lanes & ~lanes) == 0) into.acquire(clocks.drained);
    clocks.publish_tensor(into.tensor, lanes);
    if ((clocks.unsynced_lanes(agent) & ~lanes) == 0) {
      into.set(agent, clocks.epoch);
    } else {
      into.set_lanes(agent, lanes & clocks.unsynced, clocks.epoch);
    }
  }
  /// A release by some lanes. Starts a new epoch of this agent: what was done so far is published.
  void release_into(View& into, u32 lanes) {
    publish(into, lanes);
    ++clocks.epoch;
  }
  /// These lanes wait for each other (bar.warp.sync).
  void synchronise_lanes(u32 lanes) {
    clocks.publish_tensor(clocks.view.tensor, lanes);
    clocks.share_drained(lanes);
    if ((live & ~lanes) == 0) {
      clocks.view.set(agent, clocks.epoch);
    } else {
      clocks.view.set_lanes(agent, lanes & clocks.unsynced, clocks.epoch);
    }
    ++clocks.epoch;
  }
  /// fence.proxy.async by some lanes. What comes after it is not covered by it.
  void fence_proxy(u8 spaces, u32 lanes) {
    View& view = clocks.view;
    view.fence_proxy(spaces);
    if ((clocks.unsynced_lanes(agent) & ~lanes) == 0) {
      if ((spaces & kSharedSpace) != 0) View::raise(view.async, agent, clocks.epoch);
      if ((spaces & kGlobalSpace) != 0) View::raise(view.async_global, agent, clocks.epoch);
    } else {
      View::raise_lanes(view.lanes_async, agent, lanes & clocks.unsynced, clocks.epoch);
    }
    ++clocks.epoch;
  }
  Accessor accessor(const Op& op, const AccessLanes& lanes, bool atomic = false) {
    if ((lanes.mask & ~clocks.drained_lanes) == 0) clocks.share_drained(~u32{0});
    clocks.touch(lanes.mask, agent);
    return {agent, clocks.epoch, op.site, Proxy::kGeneric, atomic, &clocks.view, nullptr, 0, lanes};
  }
  /// Whether this is the first time that the warp is delayed at this place.
  bool first_time(u32 site) {
    const auto it = std::lower_bound(reached.begin(), reached.end(), site);
    if (it != reached.end() && *it == site) return false;
    reached.insert(it, site);
    return true;
  }
};

/// Brings the lanes together that a .sync operation names. kNext: they are here. kJump: they have
/// just joined the group, run the operation again for all. kWait: the group is parked.
Step gather_lanes(Warp& warp, u32 needed);

/// gather_lanes for an .aligned operation: every thread of the warp, none predicated off.
Step gather_warp(Warp& warp, const Op& op, u32 mask);

}  // namespace attnjit::emulator

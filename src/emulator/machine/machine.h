// SPDX-License-Identifier: Apache-2.0
// The machine that executes a Program: clusters of CTAs, their warps and lane groups, memories,
// barriers and asynchronous operations.
//
// Thread rules: a Machine is shared by the threads that run its clusters (its global memory is the
// kernel's own business, its findings are locked); everything from Cluster down is confined to the
// thread that runs the cluster.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "attnjit/emulator.h"
#include "emulator/decode/program.h"
#include "emulator/lanes/lane_mask.h"
#include "emulator/machine/clock.h"
#include "emulator/machine/trace.h"
#include "emulator/memory/races.h"
#include "emulator/memory/shared_address.h"

namespace attnjit::emulator {

class Machine;
class Cluster;
class Cta;
class TensorMemory;
class TensorOrder;

/// splitmix64: small, and the same everywhere, so that a seed means the same run on every host.
class Random {
 public:
  explicit Random(u64 seed) : state_(seed) {}
  u64 next() {
    u64 z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  u32 below(u32 n) { return n <= 1 ? 0 : static_cast<u32>((next() >> 32) * n >> 32); }
  bool one_in(u32 n) { return below(n) == 0; }

 private:
  u64 state_;
};

// ---------------------------------------------------------------------------------------------
// Memory

struct GlobalBuffer {
  std::string name;
  u8* data = nullptr;
  u64 bytes = 0;
  std::vector<u8> poison;  ///< a byte each, 1: uninitialised; empty: all initialised, or no checks
};

/// Memory found at an address.
struct Place {
  u8* data = nullptr;
  u8* poison = nullptr;  ///< null: not tracked, initialised
  AccessShadow* shadow = nullptr;
  u64 offset = 0;      ///< in the shadow
  Cta* cta = nullptr;  ///< whose shared memory; null otherwise
  Space space = Space::kGlobal;
};

// ---------------------------------------------------------------------------------------------
// Barriers

struct Mbarrier {
  u32 expected = 0;
  u32 pending = 0;
  s64 tx = 0;
  u64 phase = 0;
  bool valid = false;
  bool fenced = false;  ///< the init was made visible to asynchronous operations
  bool published =
      false;  ///< and by a relaxed arrival at the cluster's barrier to its other threads
  u32 init_agent = 0;
  u32 init_epoch = 0;
  View arriving;              ///< knowledge of the arrivals of the current phase
  View completed;             ///< of all completed phases
  u64 last_change = 0;        ///< step, for the deadlock report
  std::vector<u32> arrivers;  ///< sites of recent arrivals, for the report
};

struct NamedBarrier {
  u32 expected = 0;  ///< threads; 0: no one has come
  u32 arrived = 0;
  bool counted = false;  ///< the count was given by the instructions
  u64 generation = 0;
  View arriving;
  View completed;
  u32 population = 0;  ///< bar.red
  bool all = true, any = false;
  u32 result_population = 0;
  bool result_all = false, result_any = false;
};

// ---------------------------------------------------------------------------------------------
// Warps

struct Frame {
  const FunctionCode* function = nullptr;
  u32 return_pc = 0;
  u32 row_base = 0;
  u32 predicate_base = 0;
  u32 local_base = 0;
  const Op* call = nullptr;
};

struct Group;

/// Warp::in_flight of a register that a tcgen05.ld writes, and of a copy of one: usable after
/// tcgen05.wait::ld.
inline constexpr u8 kLoadsTensor = 3;
inline constexpr u8 kCopiesTensor = 4;

/// Instructions that a runnable warp executes, on silicon, before an operation of a unit is
/// complete.
inline constexpr u64 kOvertaken = 64;

/// Registers that setmaxnreg moves between the warps of a CTA.
inline constexpr u32 kRegistersOfCta = 65536;

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

class Warp {
 public:
  Cta* cta = nullptr;
  Cluster* cluster = nullptr;
  Machine* machine = nullptr;
  u32 index = 0;  ///< in the CTA
  u32 agent = 0;  ///< in the cluster's clocks
  u32 live = 0;   ///< lanes that exist and have not exited
  u32 initial = 0;

  View view;
  u32 epoch = 1;
  View fence_view;       ///< what strong stores after a fence publish
  View pending_acquire;  ///< what strong loads saw, acquired by a fence

  std::vector<Row> rows;
  std::vector<u32> predicates;
  std::vector<u32> poison;  ///< by first row of a register: lanes never defined
  std::vector<u32> predicate_poison;
  std::vector<u32> poison_site;  ///< by first row: where the poison came from
  struct Halves {
    u64 written = 0;  ///< written_at, when they were true
    u32 low = 0, high = 0;
  };
  std::unordered_map<u32, Halves> half_poison;  ///< by first row, where the halves differ
  std::vector<u8>
      in_flight;  ///< by row: 1 written, 2 read by an asynchronous operation, or the below
  u32 in_flight_rows = 0;
  u32 carry = 0;  ///< the condition code's carry

  std::vector<u8> local;
  std::vector<u8> local_poison;
  u32 local_bytes = 0;  ///< a lane
  /// By site of a load from local memory that was never written: where in the lane's memory.
  std::unordered_map<u32, u32> fresh_local;
  u32 local_offset(const u8* at) const {
    return static_cast<u32>(static_cast<std::size_t>(at - local.data()) % local_bytes);
  }

  std::vector<Group> groups;
  std::vector<Convergence> convergences;
  Group* group = nullptr;  ///< the one that runs

  std::vector<std::shared_ptr<PendingCopies>> cp_groups;    ///< cp.async; the last is open
  std::vector<std::shared_ptr<PendingCopies>> bulk_groups;  ///< cp.async.bulk; the last is open
  std::vector<std::shared_ptr<PendingCopies>> wgmma_groups;
  std::shared_ptr<PendingCopies> tmem_loads, tmem_stores;
  std::vector<u64> written_at;  ///< by row: the count of register writes when it was last written
  u64 writes = 0;
  u64 wgmma_fence_at = 0;     ///< the count at the last wgmma.fence
  bool wgmma_fenced = false;  ///< there was one
  u64 wgmma_issued = 0, wgmma_done = 0;
  std::vector<u32> tmem_rows;  ///< registers that a tcgen05.ld writes, until the wait::ld
  Clock tensor_known;          ///< tensor operations that the next ones are ordered after
  Clock tensor_fenced;         ///< View::generic at the last tcgen05.fence::after_thread_sync
  u32 registers_allotted = 0;  ///< setmaxnreg
  u32 setmaxnreg_count = 0;
  std::vector<u32> setmaxnreg_last;  ///< its values, in order
  u32 cluster_arrived = 0;           ///< lanes between barrier.cluster.arrive and .wait
  u64 cluster_generation = 0;
  u64 steps = 0;
  u64 wait_steps = 0;
  u64 last_group = 0;

  // Operand access, in the frame of the running group.
  Row* row(Ref r) { return rows.data() + group->row_base + index_of(r); }
  const void* source(Ref r) const;
  u32 lane32(Ref r, u32 lane) const;
  u64 lane64(Ref r, u32 lane) const;
  u64 value(Ref r, u32 lane, bool wide) const { return wide ? lane64(r, lane) : lane32(r, lane); }
  u32 predicate(Ref r) const {
    const u32 v = predicates[group->predicate_base + index_of(r)];
    return (r & kConstant) != 0 ? ~v : v;
  }
  void set_predicate(Ref r, u32 value, u32 mask) {
    u32& p = predicates[group->predicate_base + index_of(r)];
    p = (p & ~mask) | (value & mask);
  }
  /// Copies lanes in `mask` of a result to a register of n rows.
  void blend(Ref d, const void* result, u32 n, u32 mask);

  // Poison, where checks are on.
  u32 poison_of(Ref r) const {
    if (r == kNoRef || is_constant(r)) return 0;
    if (is_predicate(r)) return predicate_poison[group->predicate_base + index_of(r)];
    return poison[group->row_base + index_of(r)];
  }
  void set_poison(Ref d, u32 value, u32 mask, u32 site);
  /// The same for the low and the high half of a register: mov packs a value with an undefined one
  /// and takes it out again.
  u32 poison_of_half(Ref r, bool high) const;
  void set_poison_of_halves(Ref d, u32 low, u32 high, u32 mask, u32 site);
  u32 site_of(Ref r) const { return is_row(r) ? poison_site[group->row_base + index_of(r)] : 0; }
  /// Reports a poisoned operand that decides something (an address, a branch, a barrier).
  /// Returns whether it was defined.
  bool require_defined(Ref r, u32 mask, const Op& op, const char* role);

  /// Makes room for a function's registers at these bases and sets its special registers; its
  /// registers are undefined in the lanes of `mask`.
  void enter_frame(const FunctionCode& code, u32 row_base, u32 predicate_base, u32 mask);

  u32 any_lane() const { return static_cast<u32>(__builtin_ctz(group->mask)); }
  /// Starts a new epoch of this agent: what it did so far is what a release publishes.
  void release_into(View& into) {
    view.set(agent, epoch);
    view.set_async(agent, std::max(at(view.async, agent), 0u));
    into.acquire(view);
    ++epoch;
  }
  Accessor accessor(const Op& op, bool atomic = false) {
    view.set(agent, epoch);
    return {agent, epoch, op.site, Proxy::kGeneric, atomic, &view};
  }
};

// ---------------------------------------------------------------------------------------------
// Asynchronous operations

/// One operation of a unit (copy engine, tensor core) in flight. step() does its next part; the
/// scheduler decides when.
class AsyncOp {
 public:
  virtual ~AsyncOp() = default;
  /// Whether its predecessors let it proceed.
  virtual bool ready(Cluster&) { return true; }
  /// Does the next part; true when it is complete.
  virtual bool step(Cluster& cluster) = 0;
  virtual const char* unit() const = 0;

  Warp* issuer = nullptr;
  u32 site = 0;
  u64 issued_at = 0;
  std::vector<u64> warp_steps;  ///< silicon: every warp's when it was issued
  View view;                    ///< the issuer's knowledge at issue
  AsyncAgents::Lease lease;
  Proxy proxy = Proxy::kAsync;
  /// What is known to whoever learns that the operation's reads, or all of it, are done.
  View reads_done() const {
    View v = view;
    v.set(lease.agent, lease.read_epoch);
    return v;
  }
  View all_done() const {
    View v = view;
    v.set(lease.agent, lease.write_epoch);
    if (proxy == Proxy::kAsync) v.set_async(lease.agent, lease.write_epoch);
    return v;
  }
  Accessor reader() const {
    return {
        lease.agent,  lease.read_epoch, site, proxy, false, &view, needs_fence ? &fenced : nullptr,
        issuer->agent};
  }
  Accessor writer() const { return {lease.agent, lease.write_epoch, site, proxy, false, &view}; }
  bool needs_fence = false;  ///< reads shared memory as a tcgen05 operation does
  Clock fenced;              ///< the issuer's Warp::tensor_fenced
};

// ---------------------------------------------------------------------------------------------
// CTAs and clusters

class Cta {
 public:
  Cluster* cluster = nullptr;
  std::array<u32, 3> id{};
  u32 rank = 0;
  std::vector<u8> shared;
  std::vector<u8> shared_poison;
  AccessShadow shadow;
  u32 shared_end = 0;
  std::unordered_map<u32, Mbarrier> mbarriers;
  std::array<NamedBarrier, 16> barriers;
  std::vector<Warp> warps;
  u32 live_threads = 0;
  std::vector<std::vector<u32>> wgmma_sites;  ///< by warpgroup: its instructions in order
  std::shared_ptr<TensorMemory> tmem;         ///< null until it is used

  /// The place at an offset of its shared memory.
  SharedAddress at(u32 offset) const { return {rank, offset}; }
};

class Cluster {
 public:
  Cluster(Machine& machine, std::array<u32, 3> first_cta, u64 seed);
  ~Cluster();

  /// Runs until every thread has exited, a deadlock, or `quantum` further steps. True: finished.
  bool run(u64 quantum);

  Machine& machine;
  std::vector<std::unique_ptr<Cta>> ctas;
  Random random;
  Histories histories;
  AsyncAgents agents;
  std::vector<std::unique_ptr<AsyncOp>> pending;
  std::unordered_map<u64, View> strong;  ///< by address: what release stores published
  std::unordered_map<u32, std::unique_ptr<AccessShadow>> global_shadows;  ///< by buffer
  std::shared_ptr<TensorOrder> tensor_order;                              ///< null until it is used

  // barrier.cluster
  u32 cluster_arrived = 0;
  u64 cluster_generation = 0;
  std::vector<std::pair<Cta*, u32>> published_inits;  ///< mbarriers, in this generation
  View cluster_arriving;
  View cluster_completed;

  u64 steps = 0;
  u64 thread_steps = 0;
  u64 progress = 0;  ///< changes of state that another agent could see
  u64 polls = 0;     ///< fruitless looks since the last progress
  bool failed = false;
  bool launch_control_failed = false;
  TraceRecorder trace;
  const AsyncOp* running = nullptr;  ///< whose step is being taken; null: a warp's
  u32 linear_index(const Cta& cta) const;
  EmulatorStats stats;
  std::vector<u64> op_counts, op_threads;  ///< by row of the instruction table, with stats

  void settle_cluster_barrier();
  /// Completes barriers that waited for threads which have exited.
  void settle_after_exit(Warp& warp);
  void note_progress() {
    ++progress;
    polls = 0;
  }
  u32 live_threads() const;
  void start(std::unique_ptr<AsyncOp> op, Warp& issuer, const Op& from);
  Cta* cta_of(SharedAddress address) {
    return address.rank() < ctas.size() ? ctas[address.rank()].get() : nullptr;
  }

  // Addresses. All report a finding and return false where there is nothing of that kind.
  bool resolve(Warp& warp, const Op& op, u32 lane, Space space, u64 address, u32 bytes,
               Place* place);
  bool resolve_shared(const Op& op, Warp& warp, u32 lane, SharedAddress address, u32 bytes,
                      bool own_only, Place* place);
  bool resolve_global(u64 address, u64 bytes, Place* place);
  /// Memory of an asynchronous operation: shared, or at a global address.
  bool resolve_async(const AsyncOp& op, SharedAddress address, u64 bytes, Place* place);
  bool resolve_async(const AsyncOp& op, u64 address, u64 bytes, Place* place);

  /// Records an access for race detection; reports a conflict. `same`: a write of the bytes that
  /// were there.
  void record(Warp& warp, const Op& op, u32 lane, const Place& place, u32 bytes, bool write,
              bool atomic, bool same = false);
  /// The same for an asynchronous operation.
  void record(const AsyncOp& op, const Place& place, u32 bytes, bool write, bool same = false);
  /// Knowledge that a strong load acquires and a strong store publishes, by generic address.
  void strong_load(Warp& warp, u64 address, bool acquire);
  void strong_store(Warp& warp, u64 address, bool release);

  // memory/mbarrier.cpp
  Mbarrier* mbarrier(Warp* warp, u32 site, SharedAddress address, const char* what);
  void mbarrier_expect(Mbarrier& b, s64 bytes, u32 site);
  void mbarrier_arrive(Mbarrier& b, u32 count, const View& knowledge, u32 site, Warp* warp,
                       SharedAddress address);
  void mbarrier_complete(SharedAddress address, s64 bytes, const View& knowledge, u32 site,
                         Warp* warp);
  void check_phase(Mbarrier& b);
  /// Notes an arrival, or bytes, of a warp or of the running asynchronous operation.
  void trace_arrival(const Mbarrier& b, SharedAddress address, const Warp* warp, u32 site);

  // Findings.
  void report(FindingKind kind, const Warp* warp, int lane, u32 site, std::string text,
              bool warning = false);
  void report_conflict(const Conflict& conflict, const Warp* warp, int lane, u32 site, bool write,
                       const Place& place, bool same = false);
  std::string describe_agent(u32 agent, u32 site) const;
  std::string describe_site(u32 site) const;
  std::string describe_address(const Cta* cta, u64 offset) const;

 private:
  friend class Machine;
  void run_group(Warp& warp, std::size_t group, u32 budget);
  bool group_ready(Warp& warp, Group& group);
  bool settle_warp(Warp& warp);
  void check_in_flight(Warp& warp, const Op& op);
  bool unstick();
  void report_deadlock();
  bool step_async(bool must, bool fair = false);
  /// Whether some warp that could run all along has hardly run since the operation began: on
  /// silicon a copy or a product takes far longer than a warp waits for its turn.
  bool overtakes_a_warp(const AsyncOp& op);

  enum class Mood : u8 { kRandom, kEager, kLazy, kStarve };
  Mood mood_ = Mood::kRandom;
  u32 quantum_ = 32;
  static constexpr u32 kNobody = ~0u;
  u32 owed_ = kNobody;  ///< the warp that overtakes_a_warp found
  std::vector<Warp*> warps_;
  u32 favourite_ = 0;
  u64 unstuck_at_ = ~u64{0};
  u64 step_limit_ = 0;
  u64 seen_progress_ = 0;
};

class Machine {
 public:
  Machine(const Program& program, const LaunchRecipe& recipe, const EmulatorOptions& options,
          u64 seed);

  const Program& program;
  const LaunchRecipe& recipe;
  const EmulatorOptions& options;
  bool checks;
  u64 seed;
  std::vector<u8> parameters;
  std::vector<GlobalBuffer> buffers;  ///< [0] is the module's variables
  std::vector<u8> const_data;
  u32 threads_per_cta = 0;
  u32 warps_per_cta = 0;
  std::array<u32, 3> cluster_shape{1, 1, 1};

  std::atomic<u64> total_steps{0};
  std::atomic<u64> total_thread_steps{0};
  std::atomic<bool> stop{false};

  /// Runs the whole grid.
  void run();

  /// Cluster launch control: takes a cluster that has not started; false where none is left.
  bool take_cluster(std::array<u32, 3>* first_cta);

  void add_finding(Finding finding);
  std::vector<Finding> findings;
  EmulatorStats stats;
  std::vector<TraceEvent> trace;

 private:
  void merge(Cluster& cluster);
  std::mutex mutex_;
  u32 findings_told_ = 0;
  u32 warnings_told_ = 0;
  u64 grid_clusters_ = 0;
  u64 next_cluster_ = 0;  ///< run_together
  std::array<u32, 3> cluster_grid_{};
  std::array<u32, 3> cluster_origin(u64 index) const;
  void run_parallel();
  void out_of_memory();
  void run_together();
};

/// Brings the lanes together that a .sync operation names. kNext: they are here. kJump: they have
/// just joined the group, run the operation again for all. kWait: the group is parked.
Step gather_lanes(Warp& warp, u32 needed);

/// gather_lanes for an .aligned operation: every thread of the warp, none predicated off.
Step gather_warp(Warp& warp, const Op& op, u32 mask);

}  // namespace attnjit::emulator

// SPDX-License-Identifier: Apache-2.0
// The machine that executes a Program: clusters of CTAs, their warps and lane groups, memories,
// barriers and asynchronous operations.
//
// Thread rules: a Machine is shared by the threads that run its clusters (its global memory is the
// kernel's own business, its findings are locked); everything from Cluster down is confined to the
// thread that runs the cluster.
#pragma once

#include <algorithm>
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
#include "emulator/machine/trace.h"
#include "emulator/machine/warp.h"
#include "emulator/memory/cluster_races.h"
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

/// What a launch did with a buffer.
struct BufferUses {
  bool read = false, written = false;
};

struct GlobalBuffer {
  std::string name;
  u8* data = nullptr;
  u64 bytes = 0;
  std::vector<u8> poison;  ///< a byte each, 1: uninitialised; empty: all initialised, or no checks
  BufferUses uses;         ///< by this launch
  BufferUses before;       ///< by launches before that may still run
  bool workspace = false;  ///< nobody's but the sequence's own
  bool left_zero = false;  ///< the launches must leave it zero
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
  u32 init_agent = 0;
  u32 init_epoch = 0;
  u32 init_lanes = 0;
  u32 fence_epoch = 0;     ///< of the fence.mbarrier_init after it; 0: none
  bool published = false;  ///< by a relaxed arrival at the cluster's barrier to its other threads
  bool ordered = false;    ///< which is complete: the init comes before all that follows
  bool told = false;       ///< that a use is not ordered after the init
  View arriving;           ///< knowledge of the arrivals of the current phase
  View completed;          ///< of all completed phases
  /// The same of other CTAs' threads under the isa model: acquired at cluster scope only.
  View arriving_remote, completed_remote;
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
// Asynchronous operations

/// What an operation of a unit has to do, for a clock to say how long that takes.
struct UnitWork {
  enum class Kind : u8 {
    kOther,
    kWgmma,          ///< a warp's part: 16 rows
    kTensorProduct,  ///< tcgen05.mma
    kTensorCommit,
    kTensorCopy,   ///< tcgen05.cp
    kTensorRead,   ///< tcgen05.ld
    kTensorWrite,  ///< tcgen05.st
    kLoad,         ///< TMA or a bulk copy, to shared memory
    kStore,        ///< the same, from shared memory
    kThreadCopy,   ///< cp.async
    kPeerStore,    ///< st.async, or an arrival at a barrier of another CTA
  };
  Kind kind = Kind::kOther;
  u32 m = 0, n = 0, k_bits = 0;  ///< a product's shape; k in bits of its operands
  u32 ctas = 1;                  ///< that a product spans
  bool a_in_registers = false;   ///< or in tensor memory: A does not come from shared memory
  u64 bytes = 0;                 ///< moved
  std::size_t targets = 1;       ///< CTAs that get those bytes
  u64 address = 0;               ///< in global memory, of the first byte
  bool done_when_asked = false;  ///< takes no time of its own once it is ready
};

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
  virtual UnitWork work() const { return {}; }

  Warp* issuer = nullptr;
  u32 site = 0;
  u64 issued_at = 0;
  std::vector<u64> warp_steps;  ///< silicon: every warp's when it was issued
  View view;                    ///< the issuer's knowledge at issue
  AsyncAgents::Lease lease;
  Proxy proxy = Proxy::kAsync;
  /// What is known to whoever learns that the operation's reads, or all of it, are done. Of its
  /// issuer's earlier instructions nothing: PTX ISA 8.9.1.1.
  View reads_done() const {
    View v;
    v.set(lease.agent, lease.read_epoch);
    return v;
  }
  View all_done() const {
    View v;
    v.set(lease.agent, lease.write_epoch);
    return v;
  }
  Accessor reader() const {
    return {
        lease.agent,  lease.read_epoch, site, proxy, false, &view, needs_fence ? &fenced : nullptr,
        issuer->agent};
  }
  Accessor writer() const { return {lease.agent, lease.write_epoch, site, proxy, false, &view}; }
  bool needs_fence = false;  ///< reads shared memory as a tcgen05 operation does
  Clock fenced;              ///< the issuer's WarpClocks::tensor_fenced
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
  u32 registers = 0;  ///< that it was launched with: setmaxnreg moves them between its warps
  std::vector<std::vector<u32>> wgmma_sites;  ///< by warpgroup: its instructions in order
  std::shared_ptr<TensorMemory> tmem;         ///< null until it is used

  /// The last access to the CTA's shared memory by an asynchronous operation, or by a warp of
  /// another CTA: it must come before the CTA's exit.
  struct Visit {
    u32 epoch = 0;
    u32 lanes = 0;
    u32 site = 0;
    bool foreign = false;  ///< from another CTA
  };
  std::vector<Visit> visits;  ///< by agent
  View exit_view;             ///< what the threads that have exited knew

  void visit(u32 agent, u32 epoch, u32 lanes, u32 site, bool foreign) {
    if (visits.size() <= agent) visits.resize(agent + 1);
    Visit& v = visits[agent];
    if (v.epoch <= epoch) v = {epoch, lanes, site, foreign};
  }

  /// The place at an offset of its shared memory.
  SharedAddress at(u32 offset) const { return {rank, offset}; }
};

class Cluster {
 public:
  Cluster(Machine& machine, std::array<u32, 3> first_cta, u64 seed);
  ~Cluster();

  /// Runs until every thread has exited, a deadlock, or `quantum` further steps. True: finished.
  bool run(u64 quantum);

  u64 steps_taken() const { return step_limit_; }  ///< of the machine's

  Machine& machine;
  std::vector<std::unique_ptr<Cta>> ctas;
  Random random;
  Histories histories;
  /// The agent that stands for the launch before: its epoch 1 is known behind griddepcontrol.wait.
  const u32 grid_before;
  AsyncAgents agents;
  std::vector<std::unique_ptr<AsyncOp>> pending;
  std::unordered_map<u64, View> strong;       ///< by address: what release stores published
  std::vector<AccessShadow> global_shadows;   ///< by buffer
  std::vector<BufferUses> uses;               ///< by buffer
  std::shared_ptr<TensorOrder> tensor_order;  ///< null until it is used

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
  /// `lanes`: of the issuer, that the operation comes after.
  void start(std::unique_ptr<AsyncOp> op, Warp& issuer, const Op& from, u32 lanes);
  Cta* cta_of(SharedAddress address) {
    return address.rank() < ctas.size() ? ctas[address.rank()].get() : nullptr;
  }

  // Addresses. All but resolve_global report a finding where there is nothing of that kind, and
  // return false.
  bool resolve(Warp& warp, const Op& op, u32 lane, Space space, u64 address, u32 bytes,
               Place* place) {
    // Most accesses are right, and to global memory.
    const bool global =
        space == Space::kGlobal || (space == Space::kGeneric && (address & kWindowMask) == 0);
    if (global && (address & (bytes - 1)) == 0 && resolve_global(address, bytes, place))
      return true;
    return resolve_any(warp, op, lane, space, address, bytes, place);
  }
  bool resolve_shared(const Op& op, Warp& warp, u32 lane, SharedAddress address, u32 bytes,
                      bool same_cta, Place* place);
  bool resolve_global(u64 address, u64 bytes, Place* place);
  /// Memory of an asynchronous operation: shared, or at a global address.
  bool resolve_async(const AsyncOp& op, SharedAddress address, u64 bytes, Place* place);
  bool resolve_async(const AsyncOp& op, u64 address, u64 bytes, Place* place);

  /// Records an access for race detection; reports a conflict. `same`: a write of the bytes that
  /// were there.
  void record(Warp& warp, const Op& op, const AccessLanes& lanes, const Place& place, u32 bytes,
              bool write, bool atomic, bool same = false);
  /// The same for an asynchronous operation.
  void record(const AsyncOp& op, const Place& place, u32 bytes, bool write, bool same = false);
  /// Reports a tensor map that the kernel wrote and a copy uses without the proxy's fences.
  void check_map(Warp& warp, const Op& op, u32 lane, u64 address, const Place& place);
  /// Knowledge that a strong load acquires and a strong store publishes, by generic address.
  void strong_load(Warp& warp, u64 address, bool acquire);
  void strong_store(Warp& warp, u32 lane, u64 address, bool release);

  /// Reports accesses to a CTA's shared memory that do not come before its exit.
  void check_exit(Cta& cta);

  // memory/mbarrier.cpp
  Mbarrier* mbarrier(Warp* warp, u32 site, SharedAddress address, const char* what);
  void mbarrier_expect(Mbarrier& b, s64 bytes, u32 site);
  /// `remote`: released by a thread of another CTA.
  void mbarrier_arrive(Mbarrier& b, u32 count, const View& knowledge, u32 site, Warp* warp,
                       SharedAddress address, bool remote = false);
  /// What a wait that saw a phase complete acquires.
  void mbarrier_acquire(const Mbarrier& b, View& into, bool cluster_scope) const;
  void check_init(Mbarrier& b, Cta& cta, u32 offset, const Warp* warp, u32 site);
  void mbarrier_complete(SharedAddress address, s64 bytes, const View& knowledge, u32 site,
                         Warp* warp);
  void check_phase(Mbarrier& b);
  /// Notes an arrival, or bytes, of a warp or of the running asynchronous operation.
  void trace_arrival(const Mbarrier& b, SharedAddress address, const Warp* warp, u32 site);

  // Findings.
  void report(FindingKind kind, const Warp* warp, int lane, u32 site, std::string text,
              bool warning = false);
  /// Global memory: what the launch before uses too, where it may still run, is to be waited for.
  void note_use(const View& view, const Warp* warp, int lane, u32 site, const Place& place,
                bool write);
  void report_conflict(const Conflict& conflict, const Warp* warp, int lane, u32 site, bool write,
                       const Place& place, bool same = false);
  std::string describe_agent(u32 agent, u32 site) const;
  std::string describe_site(u32 site) const;
  std::string describe_address(const Cta* cta, u64 offset) const;

 private:
  friend class Machine;
  friend class Stepper;
  bool resolve_any(Warp& warp, const Op& op, u32 lane, Space space, u64 address, u32 bytes,
                   Place* place);
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

  using Policy = SchedulePolicy;
  Policy policy_ = Policy::kRandom;
  u32 quantum_ = 32;
  static constexpr u32 kNobody = ~0u;
  u32 owed_ = kNobody;  ///< the warp that overtakes_a_warp found
  std::vector<Warp*> warps_;
  u32 favourite_ = 0;
  bool release_delayed();
  u64 unstuck_at_ = ~u64{0};
  u64 step_limit_ = 0;  ///< as many as were taken of the machine's
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
  /// A clock runs the clusters (Stepper): a wait returns when its phase completes, not before, and
  /// an arrival is not held back.
  bool timed = false;
  u64 cycles = 0;  ///< of a clock, when the operation that is executed now was issued
  /// SMs of which a clock runs one: the others take from counters right behind it, each time.
  u64 takers = 1;
  struct Counter {
    u64 before = 0;  ///< before the first was taken
    u32 bytes = 0;
  };
  std::map<u8*, Counter> counters;  ///< of a clock: what was taken from
  /// Global memory that a warp's load or store touches.
  struct Traffic {
    u32 sectors = 0;  ///< of 32 bytes
    u32 buffer = 0;   ///< of the first lane
    bool store = false;
  };
  Traffic traffic;  ///< of a clock: of the operation that was executed last
  /// wgmma's products are zeros: for times that do not depend on the data.
  bool zero_products = false;
  u64 seed;
  u64 step_share;  ///< that a cluster takes at once: what unfinished ones hold must not matter
  std::vector<u8> parameters;
  std::vector<GlobalBuffer> buffers;  ///< [0] is the module's variables
  std::vector<u8> const_data;
  u32 threads_per_cta = 0;
  u32 warps_per_cta = 0;
  std::array<u32, 3> cluster_shape{1, 1, 1};

  std::atomic<u64> total_steps{0};
  std::atomic<u64> total_thread_steps{0};
  std::atomic<bool> launches_dependents{false};  ///< the next launch may begin before this one ends
  std::atomic<bool> stop{false};

  /// Runs the whole grid.
  void run();

  u64 clusters() const { return grid_clusters_; }
  std::array<u32, 3> cluster_origin(u64 index) const;
  /// The cluster that launch control takes next is `next`, and every `stride`-th behind it.
  void deal_clusters(u64 next, u64 stride) {
    next_cluster_ = next;
    cluster_stride_ = stride;
  }
  u64 next_cluster() const { return next_cluster_; }

  /// Warp instructions for a cluster to execute, of those that the run has left: at most `wanted`;
  /// 0: none.
  u64 take_steps(u64 wanted);

  /// Cluster launch control: takes a cluster that has not started; false where none is left.
  bool take_cluster(std::array<u32, 3>* first_cta);

  void add_finding(Finding finding);
  /// A finding at a place of the program, of no thread.
  Finding finding_at(FindingKind kind, u32 site, std::string text) const;
  std::vector<Finding> findings;
  /// The first finding that is more than a warning, or null.
  const Finding* failure() const;
  EmulatorStats stats;
  std::vector<TraceEvent> trace;

 private:
  void merge(Cluster& cluster, u64 index);
  void check_clusters();
  ClusterRaces cluster_races_;
  std::atomic<u64> steps_left_;
  std::mutex mutex_;
  u32 findings_told_ = 0;
  u32 warnings_told_ = 0;
  u64 grid_clusters_ = 0;
  u64 next_cluster_ = 0;  ///< run_together, Stepper
  u64 cluster_stride_ = 1;
  std::array<u32, 3> cluster_grid_{};
  void run_parallel();
  void out_of_memory();
  void run_together();
};

inline bool Cluster::resolve_global(u64 address, u64 bytes, Place* place) {
  const u64 slot = (address >> kBufferShift) - 1;
  if (address < buffer_base(0) || slot >= machine.buffers.size()) return false;
  GlobalBuffer& buffer = machine.buffers[slot];
  const u64 base = buffer_base(slot);
  if (address < base || bytes > buffer.bytes || address - base > buffer.bytes - bytes) return false;
  const u64 offset = address - base;
  AccessShadow* shadow = nullptr;
  if (machine.checks) {
    shadow = &global_shadows[slot];
    if (shadow->empty()) shadow->resize(buffer.bytes, true);
  }
  u8* poison = buffer.poison.empty() ? nullptr : buffer.poison.data() + offset;
  *place = {buffer.data + offset, poison, shadow, offset, nullptr, Space::kGlobal};
  return true;
}

}  // namespace attnjit::emulator

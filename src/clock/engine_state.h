// SPDX-License-Identifier: Apache-2.0
// What the clock keeps of an SM while it runs: its warps, its clusters, its products, and events.
// Of one thread.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "clock/engine.h"
#include "clock/segments.h"
#include "emulator/decode/decoding.h"
#include "emulator/machine/stepper.h"

namespace attnjit::clock {

using emulator::AsyncOp;
using emulator::Cluster;
using emulator::Machine;
using emulator::Ref;
using emulator::Stepper;
using emulator::u32;
using emulator::u64;
using emulator::u8;
using emulator::Warp;

/// Sub-partitions of an SM.
inline constexpr u32 kPartitions = 4;

struct Resident;

/// A warp: what it issues next, and when its operands are there.
struct WarpClock {
  Warp* warp = nullptr;
  Resident* resident = nullptr;
  u32 sm = 0, partition = 0;
  enum class State : u8 { kIssues, kWaits, kExited } state = State::kIssues;

  const Segment* segment = nullptr;
  std::vector<u32> queue;  ///< nodes of the segment, as issued
  std::size_t at = 0;
  double begin = 0;
  double last = 0;      ///< when it issued last: what lies behind is a stall
  double earliest = 0;  ///< of the next instruction, whatever its operands
  Cause earliest_cause = Cause::kOther;
  double operands = 0;
  Cause operand_cause = Cause::kOperand;
  u32 wait_barrier = 0;
  Cause wait_cause = Cause::kOther;
  u32 wait_site = 0;

  struct Ready {
    double time = 0;
    bool load = false;
  };
  std::vector<Ready> rows, predicates;
  std::vector<Machine::Traffic> traffic;  ///< by node of the segment; empty: none has any
  /// Executed, but behind the wait of products that is next; its operation.
  const Segment* held = nullptr;
  std::vector<u32> held_queue;
  u32 held_until = 0;
  const Segment* wait = nullptr;  ///< for products, ahead of which nodes of `later` were issued
  const Segment* later = nullptr;
  WarpTimes times;
  u32 row_base = 0, predicate_base = 0;  ///< of the group that runs

  Ready& ready(Ref r) {
    auto& of = emulator::is_predicate(r) ? predicates : rows;
    const u32 i = emulator::index_of(r) + (emulator::is_predicate(r) ? predicate_base : row_base);
    if (of.size() <= i) of.resize(i + 1);
    return of[i];
  }
};

/// A cluster that is on the SMs.
struct Resident {
  std::unique_ptr<Cluster> cluster;
  std::unique_ptr<Stepper> stepper;
  std::vector<WarpClock> warps;
  u64 number = 0;  ///< from 1, in the order in which they began
  u64 seen_progress = 0;
  u64 index = 0;  ///< in the launch
  double given = 0, begin = 0;
  unsigned slot = 0;
  bool done = false;
};

/// Products that a warpgroup's warps, or a thread, have issued.
struct Product {
  Resident* resident = nullptr;
  std::vector<const AsyncOp*> ops;  ///< of the warps; all four have come: it can begin
  std::size_t needed = 1;
  double issued = 0;
  double cycles = 0;
  double port_slots = 0;  ///< of each sub-partition, that it needs and others have first
  double begin = 0;
  std::array<double, kPartitions> port_used{};  ///< when it began
  u32 shared_bytes = 0;
  u32 sms = 1;  ///< that it keeps
  u32 site = 0;
};

/// The products of one warpgroup, in order.
struct ProductQueue {
  std::deque<Product> products;
  std::vector<u64> issued_by;  ///< by warp of the group
  u64 begun = 0;
  double last_begin = 0;
};

/// When each unit of an SM is free.
struct Sm {
  std::array<double, kPartitions> port_free{};
  std::array<double, kPartitions> port_used{};       ///< slots, from the begin
  std::array<double, kPartitions> port_owed{};       ///< slots that products before did not get
  std::array<double, kPartitions> port_used_then{};  ///< when the last product ended
  double product_end = 0;
  std::array<std::array<double, kPipes>, kPartitions> pipe_free{};
  double lsu_free = 0;
  double copy_free = 0;
  double thread_free = 0;          ///< the same of threads' loads and stores of global memory
  std::optional<Product> running;  ///< on the tensor cores
  /// By warpgroup; of products that are no warpgroup's: {0, 0}. NOTE: by numbers, since turns go in
  /// the order of the keys: that of addresses differs from run to run.
  using GroupId = std::pair<u64, u32>;
  std::map<GroupId, ProductQueue> products;
  std::array<double, kPartitions> tensor_memory_free{};
};

/// Something that ends at a time, in the order of `sequence` where several do.
struct Event {
  double time = 0;
  u64 sequence = 0;
  enum class Kind : u8 { kComplete, kTensor, kProduct, kEnd } kind = Kind::kComplete;
  Resident* resident = nullptr;
  std::vector<const AsyncOp*> ops;
  u32 sm = 0;
};
/// The event that is first comes out of a queue first.
struct Later {
  bool operator()(const Event& a, const Event& b) const {
    return a.time != b.time ? a.time > b.time : a.sequence > b.sequence;
  }
};

}  // namespace attnjit::clock

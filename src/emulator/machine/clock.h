// SPDX-License-Identifier: Apache-2.0
// Vector clocks: what each agent of a cluster knows to have happened.
//
// Agents are the warps of a cluster and, beyond them, slots that asynchronous operations borrow.
// Thread rules: confined to a cluster's thread.
#pragma once

#include <algorithm>
#include <vector>

#include "emulator/integers.h"

namespace attnjit::emulator {

using Clock = std::vector<u32>;

inline u32 at(const Clock& clock, u32 agent) { return agent < clock.size() ? clock[agent] : 0; }

inline void join(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

inline bool covers(const Clock& clock, const Clock& other) {
  for (u32 agent = 0; agent < other.size(); ++agent) {
    if (at(clock, agent) < other[agent]) return false;
  }
  return true;
}

/// Lanes of one agent are told apart where only some of them are known: a clock by agent and lane.
inline constexpr u32 kLanesOfAgent = 32;

/// State spaces that a proxy fence covers.
enum FenceSpaces : u8 { kSharedSpace = 1, kGlobalSpace = 2, kAllSpaces = 3 };

/// Knowledge in four senses: what happened before; which generic-proxy writes to shared and to
/// global memory the async proxy is guaranteed to see (everything that happened before a
/// fence.proxy.async); and which tensor operations a tcgen05.fence::after_thread_sync orders before
/// those that follow it.
struct View {
  Clock generic;
  Clock async;
  Clock async_global;
  Clock tensor;
  Clock lanes;        ///< as generic, of single lanes of warps that are not known as a whole
  Clock lanes_async;  ///< as async and async_global

  void acquire(const View& from) {
    join(generic, from.generic);
    join(async, from.async);
    join(async_global, from.async_global);
    join(tensor, from.tensor);
    join(lanes, from.lanes);
    join(lanes_async, from.lanes_async);
  }
  /// Whether what these lanes of an agent did up to an epoch happened before.
  bool knows(u32 agent, u32 epoch, u32 lane_mask) const {
    return at(generic, agent) >= epoch || knows_lanes(lanes, agent, epoch, lane_mask);
  }
  /// Whether the async proxy sees what they wrote.
  bool fenced(u32 agent, u32 epoch, u32 lane_mask, bool global) const {
    return at(global ? async_global : async, agent) >= epoch ||
           knows_lanes(lanes_async, agent, epoch, lane_mask);
  }
  void fence_proxy(u8 spaces) {
    if ((spaces & kSharedSpace) != 0) join(async, generic);
    if ((spaces & kGlobalSpace) != 0) join(async_global, generic);
    join(lanes_async, lanes);
  }
  void set(u32 agent, u32 epoch) { raise(generic, agent, epoch); }
  void set_tensor(u32 agent, u32 epoch) { raise(tensor, agent, epoch); }
  void set_lanes(u32 agent, u32 mask, u32 epoch) { raise_lanes(lanes, agent, mask, epoch); }

  /// Leaves what is known of asynchronous operations: of agents from `first` on.
  void keep_operations(u32 first) {
    std::fill_n(generic.begin(), std::min<std::size_t>(generic.size(), first), 0u);
    async.clear();
    async_global.clear();
    lanes.clear();
    lanes_async.clear();
  }

  static void raise(Clock& clock, u32 agent, u32 epoch) {
    if (clock.size() <= agent) clock.resize(agent + 1);
    clock[agent] = std::max(clock[agent], epoch);
  }
  static void raise_lanes(Clock& clock, u32 agent, u32 mask, u32 epoch) {
    for (u32 lane = 0; lane < kLanesOfAgent; ++lane) {
      if ((mask >> lane & 1) != 0) raise(clock, agent * kLanesOfAgent + lane, epoch);
    }
  }

 private:
  static bool knows_lanes(const Clock& clock, u32 agent, u32 epoch, u32 lane_mask) {
    if (clock.size() <= agent * kLanesOfAgent || lane_mask == 0) return false;
    for (u32 lane = 0; lane < kLanesOfAgent; ++lane) {
      if ((lane_mask >> lane & 1) != 0 && at(clock, agent * kLanesOfAgent + lane) < epoch)
        return false;
    }
    return true;
  }
};

/// The epochs of asynchronous operations. A slot is borrowed by one operation at a time, and by
/// another only when its issuer knows that everything under the slot's name has completed, and a
/// tensor operation's only when a tcgen05.fence said so; so a clock entry never claims an order
/// that was not established.
class AsyncAgents {
 public:
  explicit AsyncAgents(u32 first) : first_(first) {}

  struct Lease {
    u32 agent = 0;
    u32 read_epoch = 0;   ///< of the operation's reads
    u32 write_epoch = 0;  ///< of its writes
    u32 issue_epoch = 0;  ///< of its issue: known, it says nothing about either
  };
  /// For an issuer who knows this, and of tensor operations that.
  Lease borrow(const Clock& known, const Clock& tensor_known) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const Slot& slot = slots_[i];
      const Clock& issuer = slot.tensor ? tensor_known : known;
      if (!slot.busy && at(issuer, first_ + static_cast<u32>(i)) >= slot.epoch) return lease(i);
    }
    if (slots_.size() >= kMaxSlots) {
      // Losing precision (an order too many), not soundness of what is reported.
      for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (!slots_[i].busy) return lease(i);
      }
    }
    slots_.emplace_back();
    return lease(slots_.size() - 1);
  }
  /// The lease is a tensor operation's.
  void mark_tensor(const Lease& lease) { slots_[lease.agent - first_].tensor = true; }
  void give_back(const Lease& lease) { slots_[lease.agent - first_].busy = false; }
  u32 first() const { return first_; }

 private:
  static constexpr std::size_t kMaxSlots = 1024;
  struct Slot {
    u32 epoch = 0;
    bool busy = false;
    bool tensor = false;  ///< the last borrower was a tensor operation
  };
  Lease lease(std::size_t i) {
    Slot& slot = slots_[i];
    slot.busy = true;
    slot.tensor = false;
    slot.epoch += 3;
    return {first_ + static_cast<u32>(i), slot.epoch - 1, slot.epoch, slot.epoch - 2};
  }
  u32 first_;
  std::vector<Slot> slots_;
};

}  // namespace attnjit::emulator

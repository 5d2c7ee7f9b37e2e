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

/// Knowledge in three senses: what happened before; which generic-proxy writes the async proxy is
/// guaranteed to see (everything that happened before a fence.proxy.async); and which tensor
/// operations a tcgen05.fence::after_thread_sync orders before those that follow it.
struct View {
  Clock generic;
  Clock async;
  Clock tensor;

  void acquire(const View& from) {
    join(generic, from.generic);
    join(async, from.async);
    join(tensor, from.tensor);
  }
  /// The agent's own async-proxy events, or its fence, reach the async proxy.
  void fence_proxy() { join(async, generic); }
  void set(u32 agent, u32 epoch) {
    if (generic.size() <= agent) generic.resize(agent + 1);
    generic[agent] = std::max(generic[agent], epoch);
  }
  void set_async(u32 agent, u32 epoch) {
    if (async.size() <= agent) async.resize(agent + 1);
    async[agent] = std::max(async[agent], epoch);
  }
  void set_tensor(u32 agent, u32 epoch) {
    if (tensor.size() <= agent) tensor.resize(agent + 1);
    tensor[agent] = std::max(tensor[agent], epoch);
  }
};

/// The epochs of asynchronous operations. A slot is borrowed by one operation at a time, and by
/// another only when its issuer knows that everything under the slot's name has completed; so a
/// clock entry never claims an order that was not established.
class AsyncAgents {
 public:
  explicit AsyncAgents(u32 first) : first_(first) {}

  struct Lease {
    u32 agent = 0;
    u32 read_epoch = 0;   ///< of the operation's reads
    u32 write_epoch = 0;  ///< of its writes
    u32 issue_epoch = 0;  ///< of its issue: known, it says nothing about either
  };
  Lease borrow(const Clock& issuer) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      Slot& slot = slots_[i];
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
  void give_back(const Lease& lease) { slots_[lease.agent - first_].busy = false; }
  u32 first() const { return first_; }

 private:
  static constexpr std::size_t kMaxSlots = 1024;
  struct Slot {
    u32 epoch = 0;
    bool busy = false;
  };
  Lease lease(std::size_t i) {
    Slot& slot = slots_[i];
    slot.busy = true;
    slot.epoch += 3;
    return {first_ + static_cast<u32>(i), slot.epoch - 1, slot.epoch, slot.epoch - 2};
  }
  u32 first_;
  std::vector<Slot> slots_;
};

}  // namespace attnjit::emulator

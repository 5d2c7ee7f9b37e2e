// SPDX-License-Identifier: Apache-2.0
// Tensor memory: a CTA's 128 lanes by 512 columns with their shadow state, and the order that the
// asynchronous tcgen05 operations of a cluster have among themselves.
//
// Two orders are kept side by side. View::generic holds what any order established; View::tensor
// holds only what the PTX ISA grants to tensor operations, through tcgen05.wait, commit and
// tcgen05.fence. An access that the first orders and the second does not lacks a fence.
// Source: PTX ISA 9.1, sections 9.7.16.1 to 9.7.16.7. Thread rules: confined to a cluster's thread.
#pragma once

#include <array>
#include <compare>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "emulator/machine/machine.h"
#include "emulator/model/instruction_descriptor.h"
#include "emulator/model/tmem_layout.h"

namespace attnjit::emulator {

/// A rectangle of cells.
struct TensorRange {
  u32 lane = 0;
  u32 lanes = 0;
  u32 column = 0;
  u32 columns = 0;
};

class TensorMemory {
 public:
  TensorMemory(Cluster& cluster, Cta& cta);

  u32& cell(u32 lane, u32 column) { return data_[column * kTmemLanes + lane]; }
  u8& poison(u32 lane, u32 column) { return poison_[column * kTmemLanes + lane]; }

  struct Allocation {
    u32 column = 0;
    u32 columns = 0;
    const Warp* warp = nullptr;
    u32 site = 0;
  };
  std::vector<Allocation> allocations;
  bool relinquished = false;
  u32 smallest = kTmemColumns;  ///< columns of the last allocation: the next takes no more
  int cta_group = 0;            ///< the one that every instruction of the kernel must have; 0: none

  /// A collective alloc or dealloc of a CTA pair, of which this CTA's half has come.
  struct Request {
    enum class State : u8 { kNone, kWaiting, kServed };
    State state = State::kNone;
    bool frees = false;
    Warp* warp = nullptr;
    u32 columns = 0;
    u32 column = 0;
    u32 site = 0;
  };
  Request request;

  bool is_free(u32 column, u32 columns) const;
  /// First columns of the free blocks, aligned to their size.
  std::vector<u32> candidates(u32 columns) const;
  void allocate(u32 column, u32 columns, const Warp& warp, u32 site);
  /// @pre the allocation exists
  void free(u32 column);

  /// Records an access and reports what is wrong with it: cells that are not allocated, and cells
  /// that another operation is not ordered with. False if there are no such cells.
  bool access(Cluster& cluster, const TensorRange& range, bool write, const Accessor& accessor,
              const Warp* warp, u32 site);

 private:
  Cta* cta_;
  std::vector<u32> data_;
  std::vector<u8> poison_;
  AccessShadow shadow_;
  std::array<bool, kTmemColumns / 32> taken_{};
};

/// The CTA's tensor memory, made when it is first needed.
TensorMemory& tensor_memory(Cta& cta);

/// The other CTA of the pair; nullptr where the cluster has none.
Cta* tensor_peer(const Cta& cta);

/// Reports a kernel that mixes cta_group::1 and cta_group::2, and a pair that has one CTA. False:
/// the operation cannot be executed.
bool check_cta_group(Warp& warp, const Op& op, int cta_group);

/// At a CTA's exit: everything must have been freed.
void check_tensor_leak(Cta& cta);

/// What an mma accumulates in: products of one of these are ordered among themselves.
struct TensorAccumulator {
  u32 address = 0;
  int m = 0, n = 0;
  MmaKind kind = MmaKind::kF16;
  bool ws = false;
  auto operator<=>(const TensorAccumulator&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// An mma, cp or shift, as long as others may be ordered after it.
struct TensorEvent {
  enum class Kind : u8 { kMma, kCopy, kCopy4x256b, kShift };
  Kind kind = Kind::kMma;
  u32 thread = 0;  ///< agent * 32 + lane
  int cta_group = 1;
  Cta* cta = nullptr;             ///< the issuer's
  Cta* peer = nullptr;            ///< cta_group::2: the other one
  TensorAccumulator accumulator;  ///< of an mma
  AsyncAgents::Lease lease;
  bool done = false;
  View done_view;
};

/// The base of mma, cp, shift, ld and st.
class TensorOp : public AsyncOp {
 public:
  bool ready(Cluster& cluster) override;

  std::vector<std::shared_ptr<TensorEvent>> after;  ///< must execute first
  std::shared_ptr<TensorEvent> event;               ///< null: ld, st

 protected:
  /// Before the first access: takes over what the predecessors know.
  void begin();
  /// After the last access.
  void finish();
  Accessor tensor_reader() const;
  Accessor tensor_writer() const;
};

/// What a cluster's tensor operations know of each other.
class TensorOrder {
 public:
  /// Fills event, after and the view of an operation that a lane of `warp` issues, and starts it.
  void issue(std::unique_ptr<TensorOp> op, Warp& warp, u32 lane, const Op& from,
             std::shared_ptr<TensorEvent> event);

  /// The operations of one thread and cta_group so far: those in flight, and what the completed
  /// ones know.
  struct Tracked {
    std::vector<std::shared_ptr<TensorEvent>> pending;
    View done;
  };
  Tracked tracked(const Warp& warp, u32 lane, int cta_group);

 private:
  struct Thread {
    std::vector<std::shared_ptr<TensorEvent>> pending;
    View done;
    View copies;  ///< of the completed cp and shift
    std::shared_ptr<TensorEvent> last;
    std::map<TensorAccumulator, std::shared_ptr<TensorEvent>> accumulators;
  };
  void settle(Thread& thread);
  std::map<u64, Thread> threads_;
  std::vector<std::shared_ptr<TensorEvent>> recent_;
};

TensorOrder& tensor_order(Cluster& cluster);

/// Issues a ld or st: no event, no predecessors.
void issue_tensor_access(std::unique_ptr<TensorOp> op, Warp& warp, const Op& from);

/// Knowledge of completed tensor operations reaches the warp by a synchronous tcgen05 instruction.
void learn(Warp& warp, const View& view);

/// Executes the warp's tcgen05.ld that are in flight: a register that one of them writes is needed.
void complete_tensor_loads(Warp& warp);
/// Tells that an instruction uses a register of a tcgen05.ld that was not waited for.
void report_unwaited_load(Warp& warp, u32 site, const char* what);

}  // namespace attnjit::emulator

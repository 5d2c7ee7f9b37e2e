// SPDX-License-Identifier: Apache-2.0
// Allocation, shadow state and order of tensor memory.
#include "emulator/memory/tensor_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnjit::emulator {
namespace {

constexpr u32 kGarbage = 0xFFDEAD00;  ///< a NaN: what was not written shows in the numbers
constexpr std::size_t kRecentEvents = 256;

std::string columns_of(const TensorRange& r) {
  return fmt::format("lanes {} to {}, columns {} to {} of tensor memory", r.lane,
                     r.lane + r.lanes - 1, r.column, r.column + r.columns - 1);
}

}  // namespace

// -------------------------------------------------------------------------------------- memory

TensorMemory::TensorMemory(Cluster& cluster, Cta& cta) : cta_(&cta) {
  constexpr std::size_t kCells = std::size_t{kTmemLanes} * kTmemColumns;
  data_.assign(kCells, kGarbage);
  poison_.assign(kCells, 1);
  if (cluster.machine.checks) shadow_.resize(kCells * 4);
}

bool TensorMemory::is_free(u32 column, u32 columns) const {
  for (u32 unit = column / 32; unit < (column + columns) / 32; ++unit) {
    if (taken_[unit]) return false;
  }
  return true;
}

std::vector<u32> TensorMemory::candidates(u32 columns) const {
  std::vector<u32> found;
  for (u32 column = 0; column + columns <= kTmemColumns; column += columns) {
    if (is_free(column, columns)) found.push_back(column);
  }
  return found;
}

void TensorMemory::allocate(u32 column, u32 columns, const Warp& warp, u32 site) {
  allocations.push_back({column, columns, &warp, site});
  for (u32 unit = column / 32; unit < (column + columns) / 32; ++unit) taken_[unit] = true;
  smallest = columns;
  const std::size_t first = std::size_t{column} * kTmemLanes, count = columns * kTmemLanes;
  std::fill_n(data_.begin() + static_cast<std::ptrdiff_t>(first), count, kGarbage);
  std::fill_n(poison_.begin() + static_cast<std::ptrdiff_t>(first), count, u8{1});
}

void TensorMemory::free(u32 column) {
  const auto it = std::find_if(allocations.begin(), allocations.end(),
                               [&](const Allocation& a) { return a.column == column; });
  for (u32 unit = column / 32; unit < (column + it->columns) / 32; ++unit) taken_[unit] = false;
  cta_->cluster->histories.forget(shadow_, std::size_t{column} * kTmemLanes * 4,
                                  std::size_t{it->columns} * kTmemLanes * 4);
  allocations.erase(it);
}

bool TensorMemory::access(Cluster& cluster, const TensorRange& range, bool write,
                          const Accessor& accessor, const Warp* warp, u32 site) {
  if (range.lane + range.lanes > kTmemLanes || range.column + range.columns > kTmemColumns) {
    cluster.report(
        FindingKind::kTmem, warp, -1, site,
        fmt::format("{} do not exist: there are 128 lanes and 512 columns", columns_of(range)));
    return false;
  }
  for (u32 column = range.column; column < range.column + range.columns; ++column) {
    if (taken_[column / 32]) continue;
    std::string held;
    for (const Allocation& a : allocations)
      held +=
          fmt::format("{} {} to {}", held.empty() ? "" : ",", a.column, a.column + a.columns - 1);
    cluster.report(FindingKind::kTmem, warp, -1, site,
                   fmt::format("{} {}, but column {} is not allocated; CTA {} holds {}",
                               write ? "writes" : "reads", columns_of(range), column, cta_->rank,
                               held.empty() ? "no tensor memory" : "columns" + held));
    return false;
  }
  if (shadow_.empty()) return true;
  Conflict conflict;
  bool found = false;
  if (range.lanes == kTmemLanes) {
    found = cluster.histories.access(shadow_, std::size_t{range.column} * kTmemLanes * 4,
                                     std::size_t{range.columns} * kTmemLanes * 4, write, accessor,
                                     &conflict);
  } else {
    for (u32 column = range.column; column < range.column + range.columns; ++column) {
      Conflict one;
      if (cluster.histories.access(shadow_, (std::size_t{column} * kTmemLanes + range.lane) * 4,
                                   std::size_t{range.lanes} * 4, write, accessor, &one) &&
          !found) {
        conflict = one;
        found = true;
      }
    }
  }
  if (!found) return true;
  const std::string earlier = fmt::format(
      "the {} by {} at {}", conflict.earlier_is_write ? "write" : "read",
      cluster.describe_agent(conflict.agent, conflict.site), cluster.describe_site(conflict.site));
  if (conflict.proxy_only) {
    cluster.report(
        FindingKind::kRace, warp, -1, site,
        fmt::format("this {} of {} comes after {} only through synchronisation without "
                    "tcgen05.fence::before_thread_sync and ::after_thread_sync (or, for ld and "
                    "st, their tcgen05.wait before it)",
                    write ? "write" : "read", columns_of(range), earlier),
        cluster.machine.options.model == EmulatorModel::kSilicon);
  } else {
    cluster.report(FindingKind::kRace, warp, -1, site,
                   fmt::format("this {} of {} is not ordered after {}", write ? "write" : "read",
                               columns_of(range), earlier));
  }
  return true;
}

TensorMemory& tensor_memory(Cta& cta) {
  if (cta.tmem == nullptr) cta.tmem = std::make_shared<TensorMemory>(*cta.cluster, cta);
  return *cta.tmem;
}

Cta* tensor_peer(const Cta& cta) {
  const u32 rank = cta.rank ^ 1;
  return rank < cta.cluster->ctas.size() ? cta.cluster->ctas[rank].get() : nullptr;
}

bool check_cta_group(Warp& warp, const Op& op, int cta_group) {
  TensorMemory& memory = tensor_memory(*warp.cta);
  if (memory.cta_group == 0) memory.cta_group = cta_group;
  if (memory.cta_group != cta_group) {
    warp.cluster->report(FindingKind::kTmem, &warp, -1, op.site,
                         fmt::format("cta_group::{} in a kernel that has used cta_group::{}",
                                     cta_group, memory.cta_group));
  }
  if (cta_group == 2 && tensor_peer(*warp.cta) == nullptr) {
    warp.cluster->report(FindingKind::kTmem, &warp, -1, op.site,
                         "cta_group::2 in a cluster where this CTA has no peer");
    return false;
  }
  return true;
}

void check_tensor_leak(Cta& cta) {
  if (cta.tmem == nullptr) return;
  for (const TensorMemory::Allocation& a : cta.tmem->allocations) {
    cta.cluster->report(FindingKind::kTmem, a.warp, -1, a.site,
                        fmt::format("columns {} to {} are still allocated when the CTA exits: "
                                    "tcgen05.dealloc is missing",
                                    a.column, a.column + a.columns - 1));
  }
  cta.tmem->allocations.clear();
}

// --------------------------------------------------------------------------------------- order

bool TensorOp::ready(Cluster&) {
  return std::all_of(after.begin(), after.end(), [](const auto& e) { return e->done; });
}

void TensorOp::begin() {
  for (const auto& e : after) view.acquire(e->done_view);
  after.clear();
  view.set(lease.agent, lease.write_epoch);
  view.set_tensor(lease.agent, lease.write_epoch);
}

void TensorOp::finish() {
  if (event == nullptr) return;
  event->done_view = view;
  event->done = true;
}

Accessor TensorOp::tensor_reader() const {
  return {lease.agent, lease.read_epoch, site, Proxy::kTensor, false, &view};
}
Accessor TensorOp::tensor_writer() const {
  return {lease.agent, lease.write_epoch, site, Proxy::kTensor, false, &view};
}

namespace {

/// Whether the ISA runs the second after the first without waiting (9.7.16.6.2).
bool pipelined(const TensorEvent& first, const TensorEvent& second) {
  using Kind = TensorEvent::Kind;
  if (first.cta_group != second.cta_group) return false;
  switch (second.kind) {
    case Kind::kMma:
      return first.kind != Kind::kMma || first.accumulator == second.accumulator;
    case Kind::kShift:
      return first.kind == Kind::kMma;
    case Kind::kCopy4x256b:
      return first.kind == Kind::kShift;
    case Kind::kCopy:
      return false;
  }
  return false;
}

bool share_cta(const TensorEvent& a, const TensorEvent& b) {
  return a.cta == b.cta || (a.peer != nullptr && a.peer == b.cta);
}

}  // namespace

void TensorOrder::settle(Thread& thread) {
  std::erase_if(thread.pending, [&](const auto& e) {
    if (e->done) thread.done.acquire(e->done_view);
    if (e->done && e->kind != TensorEvent::Kind::kMma) thread.copies.acquire(e->done_view);
    return e->done;
  });
}

TensorOrder::Tracked TensorOrder::tracked(const Warp& warp, u32 lane, int cta_group) {
  Thread& thread = threads_[(u64{warp.agent} * 32 + lane) * 2 + static_cast<u64>(cta_group - 1)];
  settle(thread);
  return {thread.pending, thread.done};
}

void TensorOrder::issue(std::unique_ptr<TensorOp> op, Warp& warp, u32 lane, const Op& from,
                        std::shared_ptr<TensorEvent> event) {
  Cluster& cluster = *warp.cluster;
  const bool silicon = cluster.machine.options.model == EmulatorModel::kSilicon;
  const bool in_order = silicon || cluster.machine.options.in_order_issue;
  event->thread = warp.agent * 32 + lane;
  event->cta = warp.cta;
  if (event->cta_group == 2) event->peer = tensor_peer(*warp.cta);
  Thread& thread = threads_[u64{event->thread} * 2 + static_cast<u64>(event->cta_group - 1)];
  settle(thread);
  std::vector<std::shared_ptr<TensorEvent>> after;
  // Of the same thread. What has completed is known through its view.
  if (in_order && thread.last != nullptr) after.push_back(thread.last);
  for (const auto& e : thread.pending) {
    if (pipelined(*e, *event)) after.push_back(e);
  }
  if (event->kind == TensorEvent::Kind::kMma) {
    const auto it = thread.accumulators.find(event->accumulator);
    if (it != thread.accumulators.end()) after.push_back(it->second);
    thread.accumulators[event->accumulator] = event;
    if (thread.accumulators.size() > 512) {
      std::erase_if(thread.accumulators,
                    [&](const auto& a) { return a.second->done && a.second != event; });
    }
  }
  // Of other threads, where a synchronisation orders the issues, and completed ones of this one.
  for (const auto& e : recent_) {
    if (!pipelined(*e, *event) || !share_cta(*e, *event)) continue;
    const Clock& known = silicon ? warp.clocks.view.generic : warp.clocks.tensor_known;
    if (e->thread == event->thread || at(known, e->lease.agent) >= e->lease.issue_epoch)
      after.push_back(e);
  }
  op->event = event;
  op->after = std::move(after);
  TensorOp* started = op.get();
  cluster.start(std::move(op), warp, from, u32{1} << lane);
  started->view.tensor = warp.clocks.tensor_known;
  started->fenced = warp.clocks.tensor_fenced;
  started->needs_fence = true;
  if (event->kind == TensorEvent::Kind::kMma) started->view.acquire(thread.copies);
  event->lease = started->lease;
  cluster.agents.mark_tensor(event->lease);
  // That the operation was issued is known to the issuer; that it is complete is not.
  warp.clocks.view.set(event->lease.agent, event->lease.issue_epoch);
  if (warp.clocks.tensor_known.size() <= event->lease.agent)
    warp.clocks.tensor_known.resize(event->lease.agent + 1);
  warp.clocks.tensor_known[event->lease.agent] = event->lease.issue_epoch;
  thread.pending.push_back(event);
  thread.last = event;
  recent_.push_back(std::move(event));
  if (recent_.size() > 2 * kRecentEvents) {
    std::size_t surplus = recent_.size() - kRecentEvents;
    std::erase_if(recent_, [&](const auto& e) {
      if (surplus == 0 || !e->done) return false;
      --surplus;
      return true;
    });
  }
}

TensorOrder& tensor_order(Cluster& cluster) {
  if (cluster.tensor_order == nullptr) cluster.tensor_order = std::make_shared<TensorOrder>();
  return *cluster.tensor_order;
}

void issue_tensor_access(std::unique_ptr<TensorOp> op, Warp& warp, const Op& from) {
  TensorOp* started = op.get();
  warp.cluster->start(std::move(op), warp, from, warp.group->mask);
  warp.cluster->agents.mark_tensor(started->lease);
  started->view.tensor = warp.clocks.tensor_known;
}

void learn(Warp& warp, const View& view) {
  // NOTE: not View::acquire: others learn of it through a tcgen05.fence only.
  join(warp.clocks.view.generic, view.generic);
  join(warp.clocks.view.async, view.async);
  join(warp.clocks.tensor_known, view.tensor);
}

}  // namespace attnjit::emulator

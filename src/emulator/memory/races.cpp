// SPDX-License-Identifier: Apache-2.0
// Implements the race detector with FastTrack histories, each of which is stored once.
#include "emulator/memory/races.h"

namespace attnjit::emulator {

void AccessShadow::forget(std::size_t offset, std::size_t bytes) {
  for (std::size_t cell = offset / 4; cell * 4 < offset + bytes; ++cell) {
    const std::size_t page = cell / kPageCells;
    if (page < pages_.size() && pages_[page] != nullptr) pages_[page][cell % kPageCells] = 0;
  }
}

u32 AccessLanes::at(u64 begin, u64 end) const {
  if (bytes_each == 0) return mask;
  const auto first = static_cast<u64>(__builtin_ctz(mask));
  u32 lanes = 0;
  for (u64 lane = first + (begin - origin) / bytes_each;
       lane <= first + (end - 1 - origin) / bytes_each && lane < 32; ++lane)
    lanes |= u32{1} << lane;
  return lanes;
}

Histories::Histories() { histories_.emplace_back(); }

template <class Earlier>
Histories::Order Histories::order(const Earlier& earlier, bool was_write, const Cell& cell,
                                  const Accessor& a) {
  const bool known = at(a.view->generic, earlier.agent) >= earlier.epoch;
  const auto lanes_of = [&](const AccessLanes& lanes) {
    const auto both = static_cast<u32>(earlier.bytes & cell.bytes);
    return lanes.at(cell.offset + static_cast<u64>(__builtin_ctz(both)),
                    cell.offset + 32 - static_cast<u64>(__builtin_clz(both)));
  };
  if (earlier.agent == a.agent && earlier.proxy == Proxy::kGeneric && a.proxy == Proxy::kGeneric) {
    // A warp knows of its own accesses what bar.warp.sync, or another thread, told all its lanes.
    if (known || earlier.lanes == a.lanes) return Order::kOrdered;
    const u32 before = lanes_of(earlier.lanes), now = lanes_of(a.lanes);
    const u32 others = (now & (now - 1)) == 0 ? before & ~now : before;
    if (before == now || others == 0 || a.view->knows(earlier.agent, earlier.epoch, others))
      return Order::kOrdered;
    return Order::kNone;
  }
  if (!known && !a.view->knows(earlier.agent, earlier.epoch, lanes_of(earlier.lanes)))
    return Order::kNone;
  // Only generic writes need a fence on their way to the async proxy; a read's order suffices for
  // the write that follows it (practice of every library; see docs/emulator.md).
  if (a.proxy == Proxy::kAsync && earlier.proxy == Proxy::kGeneric && was_write &&
      !a.view->fenced(earlier.agent, earlier.epoch, lanes_of(earlier.lanes), cell.global))
    return Order::kNoProxyFence;
  if (a.proxy == Proxy::kTensor && at(a.view->tensor, earlier.agent) < earlier.epoch)
    return Order::kNoProxyFence;
  if (a.fenced != nullptr && earlier.agent != a.issuer && earlier.agent != a.agent &&
      at(*a.fenced, earlier.agent) < earlier.epoch)
    return Order::kNoTensorFence;
  return Order::kOrdered;
}

bool Histories::check_write(const History& h, const Cell& cell, const Accessor& a,
                            Conflict* conflict) {
  if (h.epoch == 0 || (h.bytes & cell.bytes) == 0 || (h.atomic && a.atomic)) return false;
  // The lanes of one instruction that write one place: one of them remains.
  if (h.agent == a.agent && h.epoch == a.epoch && h.site == a.site) return false;
  const Order state = order(h, true, cell, a);
  if (state == Order::kOrdered) return false;
  // NOTE: PTX ISA 8.9.5: a write precedes what a read that observed it precedes, in the read's
  // proxy. So a copy may overwrite what a product has read, whoever wrote that.
  const auto observed = static_cast<u8>(h.bytes & cell.bytes);
  for (const Reader& r : h.readers) {
    if (r.proxy == a.proxy && (r.bytes & observed) == observed && r.agent != a.agent &&
        order(r, false, cell, a) == Order::kOrdered)
      return false;
  }
  *conflict = {state == Order::kNoProxyFence,
               state == Order::kNoTensorFence,
               h.agent == a.agent,
               true,
               h.agent,
               h.site,
               h.proxy};
  return true;
}

bool Histories::check_readers(const History& h, const Cell& cell, const Accessor& a,
                              Conflict* conflict) {
  for (const Reader& r : h.readers) {
    if ((r.bytes & cell.bytes) == 0 || (r.atomic && a.atomic)) continue;
    if (r.agent == a.agent && r.epoch == a.epoch && r.site == a.site) continue;
    const Order state = order(r, false, cell, a);
    if (state == Order::kOrdered) continue;
    *conflict = {state == Order::kNoProxyFence,
                 state == Order::kNoTensorFence,
                 r.agent == a.agent,
                 false,
                 r.agent,
                 r.site,
                 r.proxy};
    return true;
  }
  return false;
}

Histories::Touched Histories::touched(const History& h, u64 begin, u64 end) {
  Touched t;
  t.begin = begin;
  t.end = end;
  t.written = h.epoch != 0;
  u8 bytes = h.bytes;
  if (!t.written) {
    for (const Reader& r : h.readers) bytes |= r.bytes;
  }
  // Of a single cell only the bytes that were accessed.
  if (end - begin == 4 && bytes != 0) {
    t.begin = begin + static_cast<u64>(__builtin_ctz(bytes));
    t.end = begin + 32 - static_cast<u64>(__builtin_clz(bytes));
  }
  t.atomic = (h.epoch == 0 || h.atomic);
  t.site = h.site;
  for (const Reader& r : h.readers) {
    t.atomic = t.atomic && r.atomic;
    if (!t.written) t.site = r.site;
  }
  return t;
}

u32 Histories::make(History history) {
  if (!free_.empty()) {
    const u32 id = free_.back();
    free_.pop_back();
    histories_[id] = std::move(history);
    return id;
  }
  histories_.push_back(std::move(history));
  return static_cast<u32>(histories_.size() - 1);
}

u32 Histories::next(u32 id, u8 bytes, bool write, const Accessor& a) {
  const History& old = histories_[id];
  if (write) {
    History h;
    h.agent = a.agent;
    h.epoch = a.epoch;
    h.site = a.site;
    h.proxy = a.proxy;
    h.atomic = a.atomic;
    h.bytes = bytes;
    h.lanes = a.lanes;
    return make(std::move(h));
  }
  for (const Reader& r : old.readers) {
    if (r.agent == a.agent && r.epoch == a.epoch && r.proxy == a.proxy &&
        (r.bytes & bytes) == bytes && r.atomic == a.atomic && r.lanes == a.lanes)
      return id;
  }
  History h = old;
  // A reader that happened before this one is implied by it.
  std::erase_if(h.readers, [&](const Reader& r) {
    return r.bytes == bytes &&
           ((r.agent == a.agent && r.lanes == a.lanes) ||
            at(a.view->generic, r.agent) >= r.epoch) &&
           (r.proxy == a.proxy || a.proxy == Proxy::kGeneric);
  });
  h.readers.push_back({a.agent, a.epoch, a.site, a.proxy, a.atomic, bytes, a.lanes});
  return make(std::move(h));
}

bool Histories::access(AccessShadow& shadow, std::size_t offset, std::size_t bytes, bool write,
                       const Accessor& a, Conflict* conflict) {
  if (bytes == 0) return false;
  if (histories_.size() - free_.size() > collect_at_) collect();
  bool found = false;
  // Neighbouring cells mostly share their history: remember the last mapping.
  u32 last_old = 0, last_new = 0;
  u8 last_bytes = 0;
  bool by_cell = false;  // the lanes of the earlier access differ from cell to cell
  const std::size_t end = offset + bytes;
  for (std::size_t cell = offset / 4; cell * 4 < end; ++cell) {
    const std::size_t page = cell / AccessShadow::kPageCells;
    if (page >= shadow.pages_.size()) break;
    if (shadow.pages_[page] == nullptr)
      shadow.pages_[page] = std::make_unique<u32[]>(AccessShadow::kPageCells);
    u8 mask = 0xF;
    if (cell * 4 < offset) mask = static_cast<u8>(mask & (0xF << (offset - cell * 4)));
    if (cell * 4 + 4 > end) mask = static_cast<u8>(mask & (0xF >> (cell * 4 + 4 - end)));
    u32& id = shadow.pages_[page][cell % AccessShadow::kPageCells];
    const bool mapped = last_bytes == mask && id == last_old;
    if (!found && (!mapped || by_cell)) {
      const Cell accessed{cell * 4, mask, shadow.global_};
      const History& h = histories_[id];
      found = check_write(h, accessed, a, conflict) ||
              (write && check_readers(h, accessed, a, conflict));
      const auto differs = [&](u32 agent, u32 epoch, const AccessLanes& lanes) {
        const Clock& fences = shadow.global_ ? a.view->async_global : a.view->async;
        return lanes != a.lanes && (at(a.view->generic, agent) < epoch ||
                                    (a.proxy == Proxy::kAsync && at(fences, agent) < epoch));
      };
      by_cell = differs(h.agent, h.epoch, h.lanes);
      for (const Reader& r : h.readers)
        by_cell = by_cell || (write && differs(r.agent, r.epoch, r.lanes));
    }
    if (mapped) {
      id = last_new;
      continue;
    }
    last_old = id;
    last_bytes = mask;
    // The same agent writing on from the same place: nothing new.
    const History& h = histories_[id];
    if (!(write && h.epoch == a.epoch && h.agent == a.agent && h.site == a.site &&
          h.bytes == mask && h.readers.empty() && h.proxy == a.proxy && h.atomic == a.atomic &&
          h.lanes == a.lanes)) {
      id = next(id, mask, write, a);
    }
    last_new = id;
  }
  return found;
}

void Histories::collect() {
  std::vector<bool> used(histories_.size(), false);
  used[0] = true;
  for (const AccessShadow* shadow : shadows_) {
    for (const auto& page : shadow->pages_) {
      if (page == nullptr) continue;
      for (std::size_t i = 0; i < AccessShadow::kPageCells; ++i) used[page[i]] = true;
    }
  }
  free_.clear();
  for (u32 id = 1; id < used.size(); ++id) {
    if (used[id]) continue;
    histories_[id] = {};
    free_.push_back(id);
  }
  const std::size_t live = histories_.size() - free_.size();
  collect_at_ = std::max<std::size_t>(std::size_t{1} << 16, live * 2);
}

}  // namespace attnjit::emulator

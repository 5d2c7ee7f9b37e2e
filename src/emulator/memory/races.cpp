// SPDX-License-Identifier: Apache-2.0
// Implements the race detector with FastTrack histories that cells share.
#include "emulator/memory/races.h"

#include <algorithm>

#include "emulator/lanes/lane_mask.h"

namespace attnjit::emulator {
namespace {

constexpr u8 kWholeCell = 0xF;

/// One lane, each byte by that lane.
bool is_lone(const AccessLanes& lanes) {
  return lanes.bytes_each == 0 && (lanes.mask & (lanes.mask - 1)) == 0;
}

/// How many of `limit` cells from the first on have its history.
std::size_t alike(const u32* cells, std::size_t limit) {
  std::size_t count = 1;
  while (count < limit && cells[count] == cells[0]) ++count;
  return count;
}

}  // namespace

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

Histories::Order Histories::order(const Access& earlier, bool was_write, const Cell& cell,
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

/// Whether visit(access) is true for some read: for each lane of its own where it may matter.
template <class Visit>
bool Histories::any_reader(const History& h, const Accessor& a, Visit&& visit) {
  for (const Readers& r : h.readers) {
    // NOTE: what all lanes are known to have done before is ordered alike for all of them.
    if (!r.apart || at(a.view->generic, r.agent) >= r.epoch) {
      if (visit(r)) return true;
      continue;
    }
    for (const u32 lane : lanes_of(r.lanes.mask)) {
      Access one = r;
      one.lanes.mask = u32{1} << lane;
      if (!r.sites.empty()) one.site = r.sites[lane];
      if (visit(one)) return true;
    }
  }
  return false;
}

bool Histories::check_write(const History& h, const Cell& cell, const Accessor& a,
                            Conflict* conflict) {
  const Access& w = h.write;
  if (w.epoch == 0 || (w.bytes & cell.bytes) == 0 || (w.atomic && a.atomic)) return false;
  // The lanes of one instruction that write one place: one of them remains.
  if (w.agent == a.agent && w.epoch == a.epoch && w.site == a.site) return false;
  const Order state = order(w, true, cell, a);
  if (state == Order::kOrdered) return false;
  // NOTE: PTX ISA 8.9.5: a write precedes what a read that observed it precedes, in the read's
  // proxy. So a copy may overwrite what a product has read, whoever wrote that.
  const auto observed = static_cast<u8>(w.bytes & cell.bytes);
  const bool precedes = any_reader(h, a, [&](const Access& r) {
    return r.proxy == a.proxy && (r.bytes & observed) == observed && r.agent != a.agent &&
           order(r, false, cell, a) == Order::kOrdered;
  });
  if (precedes) return false;
  *conflict = {state == Order::kNoProxyFence,
               state == Order::kNoTensorFence,
               w.agent == a.agent,
               true,
               w.agent,
               w.site,
               w.proxy};
  return true;
}

bool Histories::check_readers(const History& h, const Cell& cell, const Accessor& a,
                              Conflict* conflict) {
  return any_reader(h, a, [&](const Access& r) {
    if ((r.bytes & cell.bytes) == 0 || (r.atomic && a.atomic)) return false;
    if (r.agent == a.agent && r.epoch == a.epoch && r.site == a.site) return false;
    const Order state = order(r, false, cell, a);
    if (state == Order::kOrdered) return false;
    *conflict = {state == Order::kNoProxyFence,
                 state == Order::kNoTensorFence,
                 r.agent == a.agent,
                 false,
                 r.agent,
                 r.site,
                 r.proxy};
    return true;
  });
}

/// Whether the lanes of an earlier access matter, which may differ from cell to cell.
bool Histories::differs_by_cell(const History& h, bool global, bool write, const Accessor& a) {
  const auto differs = [&](const Access& earlier) {
    const Clock& fences = global ? a.view->async_global : a.view->async;
    return earlier.lanes != a.lanes &&
           (at(a.view->generic, earlier.agent) < earlier.epoch ||
            (a.proxy == Proxy::kAsync && at(fences, earlier.agent) < earlier.epoch));
  };
  return differs(h.write) || (write && std::any_of(h.readers.begin(), h.readers.end(), differs));
}

Histories::Touched Histories::touched(const History& h, u64 begin, u64 end) {
  Touched t;
  t.begin = begin;
  t.end = end;
  t.written = h.write.epoch != 0;
  u8 bytes = h.write.bytes;
  if (!t.written) {
    for (const Access& r : h.readers) bytes |= r.bytes;
  }
  // Of a single cell only the bytes that were accessed.
  if (end - begin == 4 && bytes != 0) {
    t.begin = begin + static_cast<u64>(__builtin_ctz(bytes));
    t.end = begin + 32 - static_cast<u64>(__builtin_clz(bytes));
  }
  t.atomic = !t.written || h.write.atomic;
  t.site = h.write.site;
  for (const Access& r : h.readers) {
    t.atomic = t.atomic && r.atomic;
    if (!t.written) t.site = r.site;
  }
  return t;
}

u32 Histories::make() {
  if (!free_.empty()) {
    const u32 id = free_.back();
    free_.pop_back();
    return id;
  }
  histories_.emplace_back();
  return static_cast<u32>(histories_.size() - 1);
}

/// Whether an access adds nothing to what is remembered.
bool Histories::is_known(const History& h, u8 bytes, bool write, const Accessor& a) {
  const auto as_before = [&](const Access& earlier) {
    return earlier.epoch == a.epoch && earlier.agent == a.agent && earlier.proxy == a.proxy &&
           earlier.atomic == a.atomic;
  };
  if (write) {
    const Access& w = h.write;
    return as_before(w) && w.site == a.site && w.bytes == bytes && w.lanes == a.lanes &&
           h.readers.empty();
  }
  const bool lone = is_lone(a.lanes);
  for (const Readers& r : h.readers) {
    if (as_before(r) && (r.bytes & bytes) == bytes &&
        (r.apart ? lone && (r.lanes.mask & a.lanes.mask) != 0 : r.lanes == a.lanes))
      return true;
  }
  return false;
}

void Histories::add_read(History& h, u8 bytes, const Accessor& a) {
  const bool lone = is_lone(a.lanes);
  const auto implied = [&](const Access& r) {
    return r.bytes == bytes && (r.proxy == a.proxy || a.proxy == Proxy::kGeneric);
  };
  // A reader that happened before this one is implied by it.
  if (lone) {
    for (Readers& r : h.readers) {
      if (r.apart && r.agent == a.agent && implied(r)) r.lanes.mask &= ~a.lanes.mask;
    }
  }
  std::erase_if(h.readers, [&](const Readers& r) {
    if (!implied(r)) return false;
    return at(a.view->generic, r.agent) >= r.epoch || r.lanes.mask == 0 ||
           (!r.apart && r.agent == a.agent && r.lanes == a.lanes);
  });
  const auto same = std::find_if(h.readers.begin(), h.readers.end(), [&](const Readers& r) {
    return lone && r.apart && r.agent == a.agent && r.epoch == a.epoch && r.proxy == a.proxy &&
           r.atomic == a.atomic && r.bytes == bytes;
  });
  if (same == h.readers.end()) {
    h.readers.push_back({{a.agent, a.epoch, a.site, a.proxy, a.atomic, bytes, lone, a.lanes}, {}});
    return;
  }
  same->lanes.mask |= a.lanes.mask;
  if (same->sites.empty() && same->site == a.site) return;
  if (same->sites.empty()) same->sites.assign(kLanesOfAgent, same->site);
  same->sites[lowest_lane(a.lanes.mask)] = a.site;
}

/// The history that an access makes of that of some cells.
u32 Histories::next(u32 id, std::size_t cells, u8 bytes, bool write, const Accessor& a) {
  if (is_known(histories_[id], bytes, write, a)) return id;
  u32 to = id;
  if (histories_[id].cells != cells) {
    to = make();
    if (!write) {
      histories_[to].readers = histories_[id].readers;
      histories_[to].write = histories_[id].write;
    }
  }
  History& h = histories_[to];
  if (write) {
    h.write = {a.agent, a.epoch, a.site, a.proxy, a.atomic, bytes, false, a.lanes};
    h.readers.clear();
  } else {
    add_read(h, bytes, a);
  }
  return to;
}

/// Gives cells that have one history another.
void Histories::move(u32* cells, std::size_t count, u32 from, u32 to) {
  if (from == to) return;
  std::fill_n(cells, count, to);
  if (to != 0) histories_[to].cells += count;
  if (from == 0) return;
  History& old = histories_[from];
  old.cells -= count;
  if (old.cells != 0) return;
  old.write = {};
  old.readers.clear();
  free_.push_back(from);
}

bool Histories::access(AccessShadow& shadow, std::size_t offset, std::size_t bytes, bool write,
                       const Accessor& a, Conflict* conflict) {
  constexpr std::size_t kPageCells = AccessShadow::kPageCells;
  if (bytes == 0) return false;
  bool found = false;
  // Neighbouring runs of cells may share their history: remember the last mapping.
  u32 last_old = 0, last_new = 0;
  u8 last_bytes = 0;
  bool by_cell = false;  // the lanes of the earlier access differ from cell to cell
  const std::size_t end = offset + bytes;
  for (std::size_t cell = offset / 4, count = 0; cell * 4 < end; cell += count) {
    const std::size_t page = cell / kPageCells;
    if (page >= shadow.pages_.size()) break;
    if (shadow.pages_[page] == nullptr) shadow.pages_[page] = std::make_unique<u32[]>(kPageCells);
    u32* cells = &shadow.pages_[page][cell % kPageCells];
    u8 mask = kWholeCell;
    if (cell * 4 < offset) mask = static_cast<u8>(mask & (0xF << (offset - cell * 4)));
    if (cell * 4 + 4 > end) mask = static_cast<u8>(mask & (0xF >> (cell * 4 + 4 - end)));
    count =
        mask == kWholeCell ? alike(cells, std::min((page + 1) * kPageCells, end / 4) - cell) : 1;
    const u32 id = *cells;
    const bool mapped = last_bytes == mask && id == last_old;
    const History& h = histories_[id];
    for (std::size_t i = 0; i < count && !found && (i == 0 ? !mapped || by_cell : by_cell); ++i) {
      const Cell accessed{(cell + i) * 4, mask, shadow.global_};
      found = check_write(h, accessed, a, conflict) ||
              (write && check_readers(h, accessed, a, conflict));
      if (i == 0 && !mapped && (cell + 1) * 4 < end)
        by_cell = differs_by_cell(h, shadow.global_, write, a);
    }
    if (!mapped) {
      last_old = id;
      last_bytes = mask;
      last_new = next(id, count, mask, write, a);
    }
    move(cells, count, id, last_new);
  }
  return found;
}

// NOTE: in passes, so that the lanes' cache misses overlap.
u32 Histories::repeated_reads(const AccessShadow& shadow, const u64* offsets, u32 lanes, u32 bytes,
                              u32 agent, u32 epoch) const {
  constexpr std::size_t kPageCells = AccessShadow::kPageCells;
  if (bytes % 4 != 0) return 0;
  const History* histories[kLanesOfAgent];
  u32 unwritten = 0;
  for (const u32 lane : lanes_of(lanes)) {
    const std::size_t cell = offsets[lane] / 4;
    const u32* cells = shadow.pages_[cell / kPageCells].get();
    if (cells == nullptr) continue;
    cells += cell % kPageCells;
    if (alike(cells, bytes / 4) != bytes / 4) continue;
    histories[lane] = &histories_[*cells];
    __builtin_prefetch(histories[lane]);
    unwritten |= u32{1} << lane;
  }
  for (const u32 lane : lanes_of(unwritten)) {
    if (histories[lane]->write.epoch != 0) unwritten &= ~(u32{1} << lane);
  }
  const auto is_repeated = [&](u32 lane, const Readers& r) {
    return (r.lanes.mask >> lane & 1) != 0 && r.agent == agent && r.epoch == epoch && r.apart &&
           !r.atomic && r.bytes == kWholeCell && r.proxy == Proxy::kGeneric;
  };
  // NOTE: a warp often stands at the same place among the readers of all its lanes' cells, so each
  // lane looks first where the last one was found, and no other reader's memory is touched.
  std::size_t likely = 0;
  const auto find = [&](u32 lane) {
    const std::vector<Readers>& readers = histories[lane]->readers;
    if (likely < readers.size() && is_repeated(lane, readers[likely])) return true;
    for (std::size_t i = 0; i < readers.size(); ++i) {
      if (!is_repeated(lane, readers[i])) continue;
      likely = i;
      return true;
    }
    return false;
  };
  if (unwritten == 0) return 0;
  const u32 first = unwritten & ~(unwritten - 1);
  u32 repeated = find(lowest_lane(first)) ? first : 0;
  for (const u32 lane : lanes_of(unwritten & ~first)) {
    const std::vector<Readers>& readers = histories[lane]->readers;
    if (likely < readers.size()) __builtin_prefetch(&readers[likely]);
  }
  for (const u32 lane : lanes_of(unwritten & ~first)) {
    if (find(lane)) repeated |= u32{1} << lane;
  }
  return repeated;
}

void Histories::forget(AccessShadow& shadow, std::size_t offset, std::size_t bytes) {
  constexpr std::size_t kPageCells = AccessShadow::kPageCells;
  const std::size_t end = (offset + bytes + 3) / 4;
  for (std::size_t cell = offset / 4, count = 0; cell < end; cell += count) {
    const std::size_t page = cell / kPageCells;
    if (page >= shadow.pages_.size()) break;
    const std::size_t limit = std::min((page + 1) * kPageCells, end) - cell;
    if (shadow.pages_[page] == nullptr) {
      count = limit;
      continue;
    }
    u32* cells = &shadow.pages_[page][cell % kPageCells];
    count = alike(cells, limit);
    move(cells, count, *cells, 0);
  }
}

}  // namespace attnjit::emulator

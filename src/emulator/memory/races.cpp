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

Histories::Histories() { histories_.emplace_back(); }

namespace {

// 0 ordered, 1 ordered but for a proxy fence, 2 not ordered, 3 ordered but for a
// tcgen05.fence::after_thread_sync.
int unordered(u32 agent, u32 epoch, Proxy proxy, bool was_write, const Accessor& a) {
  if (agent == a.agent && proxy == Proxy::kGeneric && a.proxy == Proxy::kGeneric) return 0;
  if (at(a.view->generic, agent) < epoch) return 2;
  // Only generic writes need a fence on their way to the async proxy; a read's order suffices for
  // the write that follows it (practice of every library; see docs/emulator.md).
  if (a.proxy == Proxy::kAsync && proxy == Proxy::kGeneric && was_write &&
      at(a.view->async, agent) < epoch)
    return 1;
  if (a.proxy == Proxy::kTensor && at(a.view->tensor, agent) < epoch) return 1;
  if (a.fenced != nullptr && agent != a.issuer && agent != a.agent && at(*a.fenced, agent) < epoch)
    return 3;
  return 0;
}

}  // namespace

bool Histories::check_write(const History& h, u8 bytes, const Accessor& a, Conflict* conflict) {
  if (h.epoch == 0 || (h.bytes & bytes) == 0 || (h.atomic && a.atomic)) return false;
  const int state = unordered(h.agent, h.epoch, h.proxy, true, a);
  if (state == 0) return false;
  *conflict = {state == 1, state == 3, true, h.agent, h.site, h.proxy};
  return true;
}

bool Histories::check_readers(const History& h, u8 bytes, const Accessor& a, Conflict* conflict) {
  for (const Reader& r : h.readers) {
    if ((r.bytes & bytes) == 0 || (r.atomic && a.atomic)) continue;
    const int state = unordered(r.agent, r.epoch, r.proxy, false, a);
    if (state == 0) continue;
    *conflict = {state == 1, state == 3, false, r.agent, r.site, r.proxy};
    return true;
  }
  return false;
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
    return make(std::move(h));
  }
  for (const Reader& r : old.readers) {
    if (r.agent == a.agent && r.epoch == a.epoch && r.proxy == a.proxy &&
        (r.bytes & bytes) == bytes && r.atomic == a.atomic)
      return id;
  }
  History h = old;
  // A reader that happened before this one is implied by it.
  std::erase_if(h.readers, [&](const Reader& r) {
    return r.bytes == bytes && (r.agent == a.agent || at(a.view->generic, r.agent) >= r.epoch) &&
           (r.proxy == a.proxy || a.proxy == Proxy::kGeneric);
  });
  h.readers.push_back({a.agent, a.epoch, a.site, a.proxy, a.atomic, bytes});
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
  const std::size_t end = offset + bytes;
  for (std::size_t cell = offset / 4; cell * 4 < end; ++cell) {
    const std::size_t page = cell / AccessShadow::kPageCells;
    if (page >= shadow.pages_.size()) break;
    if (shadow.pages_[page] == nullptr) {
      if (shadow.sparse_ && !write) {
        cell |= AccessShadow::kPageCells - 1;
        continue;
      }
      shadow.pages_[page] = std::make_unique<u32[]>(AccessShadow::kPageCells);
    }
    u8 mask = 0xF;
    if (cell * 4 < offset) mask = static_cast<u8>(mask & (0xF << (offset - cell * 4)));
    if (cell * 4 + 4 > end) mask = static_cast<u8>(mask & (0xF >> (cell * 4 + 4 - end)));
    u32& id = shadow.pages_[page][cell % AccessShadow::kPageCells];
    if (last_bytes == mask && id == last_old) {
      id = last_new;
      continue;
    }
    last_old = id;
    last_bytes = mask;
    if (!found) {
      found = check_write(histories_[id], mask, a, conflict) ||
              (write && check_readers(histories_[id], mask, a, conflict));
    }
    // The same agent writing on from the same place: nothing new.
    const History& h = histories_[id];
    if (!(write && h.epoch == a.epoch && h.agent == a.agent && h.site == a.site &&
          h.bytes == mask && h.readers.empty() && h.proxy == a.proxy && h.atomic == a.atomic)) {
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

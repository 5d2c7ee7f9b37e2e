// SPDX-License-Identifier: Apache-2.0
// Data-race detection: for each 4 bytes of memory, who wrote it last and who has read it since.
//
// The method is FastTrack's (Flanagan and Freund, PLDI 2009) with several clocks an agent, so that
// an order that lacks only a proxy fence is told apart from no order. Histories are interned: a
// cell is the number of a history, and an access maps histories to histories, computed once for
// each distinct one that it meets.
// Thread rules: confined to a cluster's thread.
#pragma once

#include <memory>
#include <vector>

#include "emulator/integers.h"
#include "emulator/machine/clock.h"

namespace attnjit::emulator {

enum class Proxy : u8 { kGeneric, kAsync, kTensor };

/// Which lanes of a warp make an access of many bytes: all of `mask` every byte; or, with
/// bytes_each, consecutive lanes consecutive bytes, the first of `mask` those at `origin`.
struct AccessLanes {
  u32 mask = ~u32{0};
  u32 bytes_each = 0;
  u64 origin = 0;  ///< an offset in the memory

  bool operator==(const AccessLanes&) const = default;
  /// The lanes of bytes [begin, end).
  u32 at(u64 begin, u64 end) const;
};

/// Who accesses, with what knowledge.
struct Accessor {
  u32 agent = 0;
  u32 epoch = 0;
  u32 site = 0;
  Proxy proxy = Proxy::kGeneric;
  bool atomic = false;  ///< a strong access: never races with another strong one
  const View* view = nullptr;
  /// A tensor operation's access to shared memory: what its issuer knew of other agents at its last
  /// tcgen05.fence::after_thread_sync; null: no such fence is needed.
  const Clock* fenced = nullptr;
  u32 issuer = 0;
  AccessLanes lanes{};  ///< of a warp
};

/// An access that the new one is not ordered after.
struct Conflict {
  bool proxy_only = false;  ///< ordered, but for the missing proxy fence (or tcgen05.fence)
  bool fence_only = false;  ///< ordered, but for the missing tcgen05.fence::after_thread_sync
  bool lanes_only = false;  ///< of one warp: its lanes lack a bar.warp.sync
  bool earlier_is_write = false;
  u32 agent = 0;
  u32 site = 0;
  Proxy proxy = Proxy::kGeneric;
};

/// The histories of one memory, 4 bytes a cell, in pages made as needed.
class AccessShadow {
 public:
  void resize(std::size_t bytes, bool global = false) {
    pages_.resize((bytes + kPageBytes - 1) / kPageBytes);
    global_ = global;
  }
  bool empty() const { return pages_.empty(); }
  void forget(std::size_t offset, std::size_t bytes);

 private:
  friend class Histories;
  static constexpr std::size_t kPageCells = 1024;
  static constexpr std::size_t kPageBytes = kPageCells * 4;
  std::vector<std::unique_ptr<u32[]>> pages_;
  bool global_ = false;
};

class Histories {
 public:
  Histories();
  /// A shadow must be registered while it is used, for garbage collection.
  void add(AccessShadow* shadow) { shadows_.push_back(shadow); }

  /// Records an access of bytes [offset, offset + bytes). Returns whether it conflicts; the first
  /// conflict found fills `conflict`. Bytes are rounded out to cells; accesses narrower than a cell
  /// (partial) only conflict with overlapping bytes.
  bool access(AccessShadow& shadow, std::size_t offset, std::size_t bytes, bool write,
              const Accessor& accessor, Conflict* conflict);

  /// Calls visit(agent, epoch, site) for each last write in bytes [offset, offset + bytes).
  template <class Visit>
  void for_each_write(const AccessShadow& shadow, std::size_t offset, std::size_t bytes,
                      Visit&& visit) const {
    for (std::size_t cell = offset / 4; cell * 4 < offset + bytes; ++cell) {
      const std::size_t page = cell / AccessShadow::kPageCells;
      if (page >= shadow.pages_.size() || shadow.pages_[page] == nullptr) continue;
      const History& h = histories_[shadow.pages_[page][cell % AccessShadow::kPageCells]];
      if (h.epoch != 0) visit(h.agent, h.epoch, h.site);
    }
  }

  /// What a cluster did to a run of cells of one memory, as another cluster may conflict with it.
  struct Touched {
    u64 begin = 0, end = 0;  ///< bytes
    bool written = false;
    bool atomic = false;  ///< all of it by strong accesses
    u32 site = 0;
  };
  /// Calls visit(Touched) for each run of cells with one history.
  template <class Visit>
  void for_each_touched(const AccessShadow& shadow, Visit&& visit) const {
    for (std::size_t page = 0; page < shadow.pages_.size(); ++page) {
      if (shadow.pages_[page] == nullptr) continue;
      const u32* cells = shadow.pages_[page].get();
      for (std::size_t i = 0; i < AccessShadow::kPageCells;) {
        std::size_t end = i + 1;
        while (end < AccessShadow::kPageCells && cells[end] == cells[i]) ++end;
        if (cells[i] != 0) {
          const u64 base = page * AccessShadow::kPageBytes;
          visit(touched(histories_[cells[i]], base + i * 4, base + end * 4));
        }
        i = end;
      }
    }
  }

 private:
  struct Reader {
    u32 agent;
    u32 epoch;
    u32 site;
    Proxy proxy;
    bool atomic;
    u8 bytes;  ///< mask of the cell's bytes
    AccessLanes lanes;
  };
  struct History {
    u32 agent = 0;
    u32 epoch = 0;  ///< 0: never written
    u32 site = 0;
    Proxy proxy = Proxy::kGeneric;
    bool atomic = false;
    u8 bytes = 0;
    AccessLanes lanes;
    std::vector<Reader> readers;
  };
  /// A cell that is being accessed.
  struct Cell {
    u64 offset;
    u8 bytes;     ///< mask
    bool global;  ///< of global memory
  };

  enum class Order : u8 { kOrdered, kNoProxyFence, kNone, kNoTensorFence };
  template <class Earlier>
  static Order order(const Earlier& earlier, bool was_write, const Cell& cell, const Accessor& a);
  static bool check_write(const History& h, const Cell& cell, const Accessor& a,
                          Conflict* conflict);
  static bool check_readers(const History& h, const Cell& cell, const Accessor& a,
                            Conflict* conflict);
  static Touched touched(const History& h, u64 begin, u64 end);
  u32 next(u32 id, u8 bytes, bool write, const Accessor& a);
  u32 make(History history);
  void collect();

  std::vector<History> histories_;
  std::vector<u32> free_;
  std::vector<AccessShadow*> shadows_;
  std::size_t collect_at_ = std::size_t{1} << 16;
};

}  // namespace attnjit::emulator

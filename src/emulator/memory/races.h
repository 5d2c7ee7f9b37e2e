// SPDX-License-Identifier: Apache-2.0
// Data-race detection: for each 4 bytes of memory, who wrote it last and who has read it since.
//
// The method is FastTrack's (Flanagan and Freund, PLDI 2009) with several clocks an agent, so that
// an order that lacks only a proxy fence is told apart from no order. A cell is the number of a
// history. Cells that had the same accesses share one: an access computes what becomes of a history
// once for each that it meets, and changes it in place where it meets all of its cells.
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

  /// An access to a cell, as it is remembered.
  struct Access {
    u32 agent = 0;
    u32 epoch = 0;
    u32 site = 0;
    Proxy proxy = Proxy::kGeneric;
    bool atomic = false;
    u8 bytes = 0;        ///< mask of the cell's bytes
    bool apart = false;  ///< each lane of lanes.mask by itself
    AccessLanes lanes;
  };
  /// A cell that is being accessed.
  struct Cell {
    u64 offset;
    u8 bytes;     ///< mask
    bool global;  ///< of global memory
  };
  enum class Order : u8 { kOrdered, kNoProxyFence, kNone, kNoTensorFence };
  /// What lies between an access and an earlier one: the rule, without the book-keeping.
  static Order order(const Access& earlier, bool was_write, const Cell& cell, const Accessor& a);

  /// Records an access of bytes [offset, offset + bytes). Returns whether it conflicts; the first
  /// conflict found fills `conflict`. Bytes are rounded out to cells; accesses narrower than a cell
  /// (partial) only conflict with overlapping bytes.
  bool access(AccessShadow& shadow, std::size_t offset, std::size_t bytes, bool write,
              const Accessor& accessor, Conflict* conflict);
  /// Of lanes that read `bytes` each at `offsets`, plainly and one by one: those whose reads are
  /// remembered and cannot conflict, because nobody has written there.
  u32 repeated_reads(const AccessShadow& shadow, const u64* offsets, u32 lanes, u32 bytes,
                     u32 agent, u32 epoch) const;
  /// Forgets all accesses to bytes [offset, offset + bytes), rounded out to cells.
  void forget(AccessShadow& shadow, std::size_t offset, std::size_t bytes);
  /// How many histories cells have.
  std::size_t size() const { return histories_.size() - 1 - free_.size(); }

  /// Calls visit(agent, epoch, site) for each last write in bytes [offset, offset + bytes).
  template <class Visit>
  void for_each_write(const AccessShadow& shadow, std::size_t offset, std::size_t bytes,
                      Visit&& visit) const {
    for (std::size_t cell = offset / 4; cell * 4 < offset + bytes; ++cell) {
      const std::size_t page = cell / AccessShadow::kPageCells;
      if (page >= shadow.pages_.size() || shadow.pages_[page] == nullptr) continue;
      const Access& write = histories_[shadow.pages_[page][cell % AccessShadow::kPageCells]].write;
      if (write.epoch != 0) visit(write.agent, write.epoch, write.site);
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
  /// A read; or, of one warp in one epoch, the reads by single lanes: each knows of its own only.
  struct Readers : Access {
    std::vector<u32> sites;  ///< by lane, where they differ
  };
  /// NOTE: aligned, so that a look at one is one cache line.
  struct alignas(64) History {
    Access write;  ///< epoch 0: never written
    std::vector<Readers> readers;
    std::size_t cells = 0;  ///< that have it
  };
  template <class Visit>
  static bool any_reader(const History& h, const Accessor& a, Visit&& visit);
  static bool check_write(const History& h, const Cell& cell, const Accessor& a,
                          Conflict* conflict);
  static bool check_readers(const History& h, const Cell& cell, const Accessor& a,
                            Conflict* conflict);
  static bool differs_by_cell(const History& h, bool global, bool write, const Accessor& a);
  static Touched touched(const History& h, u64 begin, u64 end);
  static bool is_known(const History& h, u8 bytes, bool write, const Accessor& a);
  static void add_read(History& h, u8 bytes, const Accessor& a);
  u32 next(u32 id, std::size_t cells, u8 bytes, bool write, const Accessor& a);
  u32 make();
  void move(u32* cells, std::size_t count, u32 from, u32 to);

  std::vector<History> histories_;  ///< [0]: no access
  std::vector<u32> free_;
};

}  // namespace attnjit::emulator

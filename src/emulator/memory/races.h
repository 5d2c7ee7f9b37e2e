// SPDX-License-Identifier: Apache-2.0
// Data-race detection: for each 4 bytes of memory, who wrote it last and who has read it since.
//
// The method is FastTrack's (Flanagan and Freund, PLDI 2009) with two clocks an agent, so that an
// order that lacks only a proxy fence is told apart from no order. Histories are interned: a cell
// is the number of a history, and an access maps histories to histories, computed once for each
// distinct one that it meets.
// Thread rules: confined to a cluster's thread.
#pragma once

#include <memory>
#include <vector>

#include "emulator/integers.h"
#include "emulator/machine/clock.h"

namespace attnjit::emulator {

enum class Proxy : u8 { kGeneric, kAsync, kTensor };

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
};

/// An access that the new one is not ordered after.
struct Conflict {
  bool proxy_only = false;  ///< ordered, but for the missing proxy fence (or tcgen05.fence)
  bool fence_only = false;  ///< ordered, but for the missing tcgen05.fence::after_thread_sync
  bool earlier_is_write = false;
  u32 agent = 0;
  u32 site = 0;
  Proxy proxy = Proxy::kGeneric;
};

/// The histories of one memory, 4 bytes a cell, in pages made as needed.
class AccessShadow {
 public:
  /// `sparse`: reads of a page that was never written leave no trace (global memory, most of which
  /// is only read).
  void resize(std::size_t bytes, bool sparse = false) {
    pages_.resize((bytes + kPageBytes - 1) / kPageBytes);
    sparse_ = sparse;
  }
  bool empty() const { return pages_.empty(); }
  void forget(std::size_t offset, std::size_t bytes);

 private:
  friend class Histories;
  static constexpr std::size_t kPageCells = 1024;
  static constexpr std::size_t kPageBytes = kPageCells * 4;
  std::vector<std::unique_ptr<u32[]>> pages_;
  bool sparse_ = false;
};

class Histories;

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

 private:
  struct Reader {
    u32 agent;
    u32 epoch;
    u32 site;
    Proxy proxy;
    bool atomic;
    u8 bytes;  ///< mask of the cell's bytes
  };
  struct History {
    u32 agent = 0;
    u32 epoch = 0;  ///< 0: never written
    u32 site = 0;
    Proxy proxy = Proxy::kGeneric;
    bool atomic = false;
    u8 bytes = 0;
    std::vector<Reader> readers;
  };

  static bool check_write(const History& h, u8 bytes, const Accessor& a, Conflict* conflict);
  static bool check_readers(const History& h, u8 bytes, const Accessor& a, Conflict* conflict);
  u32 next(u32 id, u8 bytes, bool write, const Accessor& a);
  u32 make(History history);
  void collect();

  std::vector<History> histories_;
  std::vector<u32> free_;
  std::vector<AccessShadow*> shadows_;
  std::size_t collect_at_ = std::size_t{1} << 16;
};

}  // namespace attnjit::emulator

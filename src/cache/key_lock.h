// SPDX-License-Identifier: Apache-2.0
// KeyLock: one process at a time compiles a key; a file lock that its holder's death releases.
//
// Thread rules: an object belongs to one thread. Two objects exclude each other in one process,
// too.
#pragma once

#include <string>

#include "cache/layer.h"

namespace attnjit::cache {

class KeyLock {
 public:
  enum class State : std::uint8_t {
    kHeld,
    kBusy,         ///< somebody else holds it
    kUnavailable,  ///< no lock file can be had here: read-only, full, refused
    kNoLocks,      ///< the file is there, but this file system cannot lock it
  };

  KeyLock(Layer& layer, std::string name) : layer_(layer), name_(std::move(name)) {}
  KeyLock(const KeyLock&) = delete;
  KeyLock& operator=(const KeyLock&) = delete;
  ~KeyLock() { release(); }

  /// Does not wait.
  State try_acquire();
  void release();

 private:
  Layer& layer_;
  const std::string name_;
  File file_;
  bool held_ = false;
};

/// Removes a lock file that nobody holds and that is older than `before_ns`; true when removed.
bool remove_stale_lock(FileSystem& fs, FileSystem::Handle locks, const std::string& name,
                       std::int64_t before_ns);

}  // namespace attnjit::cache

// SPDX-License-Identifier: Apache-2.0
// Takes and releases the file lock of a key, and removes lock files that nobody holds.
#include "cache/key_lock.h"

#include <cerrno>

#include "cache/io.h"

namespace attnjit::cache {

KeyLock::State KeyLock::try_acquire() {
  FileSystem& fs = layer_.fs();
  for (int attempt = 0; attempt < 16; ++attempt) {
    const auto root = layer_.root(true);
    if (!root) return State::kUnavailable;
    // NOTE: not kept open while the lock is held: the compile needs descriptors too, and where few
    // are allowed, one that is held here is one that it lacks.
    const OpenedFolder folder = layer_.room(*root, Room::kLocks, true);
    if (folder.error == ENOENT || folder.error == ESTALE) {
      layer_.forget_root();
      continue;
    }
    if (folder.state != OpenedFolder::State::kOpen) return State::kUnavailable;
    if (!file_) {
      auto opened =
          open_file(fs, folder.folder.get(), name_, FileSystem::Open::kLock, root->file_mode());
      if (opened.error == ENOENT || opened.error == ESTALE) {
        layer_.forget_root();
        continue;
      }
      if (!opened.ok()) return State::kUnavailable;
      file_ = std::move(opened.value);
    }
    const int error = uninterrupted([&] { return fs.try_lock(file_.get()); });
    if (error == EWOULDBLOCK) return State::kBusy;
    if (error != 0) {
      file_.reset();
      if (error == ESTALE) continue;
      return State::kNoLocks;
    }
    // NOTE: whoever cleans up may have removed the file between our open and our lock; then the
    // next process locks a new file of that name, and both would hold "the" lock.
    const auto ours = uninterrupted([&] { return fs.stat(file_.get()); });
    const auto named = uninterrupted([&] { return fs.stat_at(folder.folder.get(), name_); });
    if (ours.ok() && named.ok() && ours.value.same_file(named.value)) {
      held_ = true;
      return State::kHeld;
    }
    static_cast<void>(uninterrupted([&] { return fs.unlock(file_.get()); }));
    file_.reset();
  }
  return State::kUnavailable;
}

void KeyLock::release() {
  if (held_) {
    // NOTE: not left to close: a child forked meanwhile shares the lock through its descriptor.
    static_cast<void>(uninterrupted([&] { return layer_.fs().unlock(file_.get()); }));
  }
  held_ = false;
  file_.reset();
}

bool remove_stale_lock(FileSystem& fs, FileSystem::Handle locks, const std::string& name,
                       std::int64_t before_ns) {
  const auto seen = uninterrupted([&] { return fs.stat_at(locks, name); });
  if (!seen.ok() || seen.value.type != FileStat::Type::kFile ||
      seen.value.modified_ns >= before_ns) {
    return false;
  }
  auto file = open_file(fs, locks, name, FileSystem::Open::kLock);
  if (!file.ok()) return false;
  if (uninterrupted([&] { return fs.try_lock(file.value.get()); }) != 0) return false;
  // Removed while it is held: whoever waits for it sees that the name is gone (try_acquire).
  const bool removed = uninterrupted([&] { return fs.remove(locks, name, false); }) == 0;
  static_cast<void>(uninterrupted([&] { return fs.unlock(file.value.get()); }));
  return removed;
}

}  // namespace attnjit::cache

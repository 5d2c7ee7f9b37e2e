// SPDX-License-Identifier: Apache-2.0
// Layer: one cache folder: loads and publishes entries, and moves bad ones aside.
//
// Thread rules: every method may be called from any thread; other processes may use the folder at
// the same time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/cache.h"
#include "base/log.h"
#include "cache/entry_format.h"
#include "cache/file_system.h"
#include "cache/keys.h"
#include "cache/trusted_folder.h"

namespace attnjit::cache {

/// The folders below that of the format version.
enum class Room : std::uint8_t { kEntries, kTemporary, kLocks, kFailures, kQuarantine };

/// Its name.
const char* room_name(Room which);

/// What a load found.
struct Loaded {
  enum class State : std::uint8_t {
    kHit,
    kMiss,
    kBad,         ///< was there and wrong; in a writable layer it is in quarantine now
    kUnreadable,  ///< the file system failed; nothing is known of the entry
  };
  State state = State::kMiss;
  Entry entry;
  FileStat stat;
  std::string problem;       ///< kBad, kUnreadable
  bool quarantined = false;  ///< kBad
};

/// What to load of an entry and what it must be.
struct Wanted {
  const EntryId* id = nullptr;            ///< null: whatever the file's name says
  const std::string* material = nullptr;  ///< null: verified by its digest
  const Arch* arch = nullptr;             ///< null: whatever the metadata say
  bool judge_cubin = false;  ///< the cubin passes the compiler's gate (check_cubin); needs its part
  const Keyring* signers = nullptr;  ///< one of them must have signed it; null: nobody need
  Parts parts;
  bool stamp = false;     ///< note the use
  bool set_aside = true;  ///< move a bad entry to quarantine
};

/// Everything that `wanted` asks of an entry, of bytes that came from elsewhere than a layer.
/// Errors: kCorrupt.
Result<Entry> judge_entry(std::string_view bytes, const Wanted& wanted);

class Layer {
 public:
  /// Handles of the folder, open as long as anybody uses them.
  struct Root {
    File version, entries;
    FileStat stat;  ///< of the layer's folder
    std::uint32_t folder_mode() const { return 0700 | (stat.mode & 0055); }
    std::uint32_t file_mode() const { return 0600 | (stat.mode & 0044); }
  };

  Layer(FileSystem& fs, std::string path, bool writable, Trust trust, Logger log);

  const std::string& path() const { return path_; }
  /// Of a folder or a file below that of the format version.
  std::string path_of(const std::string& name) const;
  bool writable() const { return writable_; }
  /// Whether a warning said that the folder is not used.
  bool refused() const { return refused_warned_.test(); }
  FileSystem& fs() const { return fs_; }
  const Logger& log() const { return log_; }
  const Trust& trust() const { return trust_; }

  /// The open folder, or null with the reason in *why (if not null). `create`: made where missing.
  std::shared_ptr<const Root> root(bool create, OpenedFolder* why = nullptr);
  /// Forgets the handles, so that the next use opens the path again.
  void forget_root();

  /// A folder of the layer, or one shard of the entries.
  OpenedFolder room(const Root& root, Room which, bool create);
  OpenedFolder shard(const Root& root, std::string_view name, bool create);

  Loaded load(const std::string& name, const Wanted& wanted);
  /// The bytes of an entry's file, not verified. Errors: kIo.
  /// `gone`, if given, tells whether there is no such entry (any more).
  Result<std::string> read_entry(const std::string& name, bool* gone = nullptr);
  /// The names of every image of a key.
  std::vector<std::string> images_of(const EntryId& id);

  /// Publishes bytes under a name: a private file, synced, renamed, and the folder synced.
  Status publish(const std::string& name, std::string_view bytes);
  /// The same in another room; not synced (what may be lost at a power failure).
  Status write_note(Room which, const std::string& name, std::string_view bytes);
  /// What write_note wrote; nullopt: it is not there, cannot be read, or others may write to it.
  std::optional<std::string> read_note(Room which, const std::string& name, std::size_t limit);

  /// Removes shard/name if it is still the file that was seen; true when it is gone.
  bool remove_if_same(const Root& root, std::string_view name, const FileStat& seen);
  /// Moves shard/name to quarantine if it is still the file that was seen; true when it was moved.
  bool quarantine(const Root& root, const std::string& name, const FileStat& seen,
                  const std::string& problem);

  std::uint64_t quarantined() const { return quarantined_; }
  /// Logs a warning the first time.
  void warn_once(std::atomic_flag& flag, const std::string& text) const;

  static constexpr std::size_t kMaxQuarantined = 32;
  /// A use is noted when the stamp is older than this.
  static constexpr std::int64_t kStampGranularityNs = std::int64_t{60} * 1000000000;

 private:
  /// A whole file that nobody else may write to; EPERM where others may, EFBIG beyond `limit`.
  IoResult<std::string> read_file(FileSystem::Handle folder, const std::string& name,
                                  std::size_t limit);
  Loaded load_from(FileSystem::Handle shard, const std::string& name, const Wanted& wanted);
  /// error: an errno, 0: written.
  struct Written {
    int error = 0;
    std::string problem;
  };
  Written write_to(const Root& root, FileSystem::Handle folder, const std::string& name,
                   std::string_view bytes, bool durable);
  Written publish_once(const std::string& name, std::string_view bytes);
  enum class Moved : std::uint8_t { kMoved, kChanged, kFailed };
  Moved move_if_same(FileSystem::Handle from, const std::string& name, const FileStat& seen,
                     FileSystem::Handle to, const std::string& new_name);
  void bound_quarantine(FileSystem::Handle folder);
  /// A warning the first time for an entry's name, for an entry that stays is met at each load.
  void warn_of_entry(const std::string& name, const std::string& text);

  FileSystem& fs_;
  const std::string path_;
  const bool writable_;
  const Trust trust_;
  const Logger log_;
  std::mutex root_mutex_;
  std::shared_ptr<const Root> root_;
  std::atomic<std::uint64_t> quarantined_{0};
  std::mutex warned_mutex_;
  std::set<std::string> warned_;  ///< names of entries
  mutable std::atomic_flag refused_warned_ = ATOMIC_FLAG_INIT;
};

}  // namespace attnjit::cache

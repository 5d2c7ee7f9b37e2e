// SPDX-License-Identifier: Apache-2.0
// Removes the least recently used entries of a layer, and what was left behind by writers that
// died.
#include "cache/trim.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <set>

#include "base/longest_time.h"
#include "cache/io.h"
#include "cache/key_lock.h"
#include "cache/older_versions.h"

namespace attnjit::cache {
namespace {

// Far longer than any publish takes. A writer that slept through it fails to rename, which costs
// its entry and nothing else.
constexpr std::int64_t kTemporaryAgeNs = 3600 * kSecondNs;
constexpr std::int64_t kLockAgeNs = 3600 * kSecondNs;
// What part of the cap each may have; the oldest goes first.
constexpr std::int64_t kQuarantineShare = 8;
constexpr std::int64_t kFailuresShare = 16;
constexpr std::int64_t kLocksShare = 16;

bool old(const SeenFile& file, std::int64_t now, std::int64_t age) {
  return file.stat.modified_ns < now - age;
}

/// The names of the oldest files, without which the others are within `cap`.
std::set<std::string> surplus(std::vector<SeenFile> files, const Cap& cap) {
  std::sort(files.begin(), files.end(), [](const SeenFile& a, const SeenFile& b) {
    return a.stat.modified_ns > b.stat.modified_ns;
  });
  std::set<std::string> names;
  std::int64_t bytes = 0, count = 0;
  for (const SeenFile& file : files) {
    bytes += file.bytes();
    if (cap.exceeded_by(bytes, ++count)) names.insert(file.name);
  }
  return names;
}

}  // namespace

std::vector<SeenFile> scan_entries(Layer& layer, const Layer::Root& root,
                                   std::vector<CacheFinding>* problems) {
  FileSystem& fs = layer.fs();
  std::vector<SeenFile> files;
  const auto problem = [&](const std::string& name, const std::string& text) {
    if (problems != nullptr) {
      problems->push_back(
          {layer.path_of(name.empty() ? "entries" : "entries/" + name), text, false});
    }
  };
  auto shards = uninterrupted([&] { return fs.list(root.entries.get()); });
  if (!shards.ok()) problem("", error_text(shards.error));
  std::sort(shards.value.begin(), shards.value.end());
  for (const std::string& shard_name : shards.value) {
    const OpenedFolder shard = layer.shard(root, shard_name, false);
    if (shard_name.size() != 2 || shard.state != OpenedFolder::State::kOpen) {
      if (shard.state != OpenedFolder::State::kMissing) problem(shard_name, shard.reason);
      continue;
    }
    auto names = uninterrupted([&] { return fs.list(shard.folder.get()); });
    if (!names.ok()) problem(shard_name, error_text(names.error));
    std::sort(names.value.begin(), names.value.end());
    for (std::string& name : names.value) {
      const auto stat = uninterrupted([&] { return fs.stat_at(shard.folder.get(), name); });
      if (stat.ok() && name.starts_with(shard_name)) {
        files.push_back({std::move(name), stat.value});
      } else if (stat.ok()) {
        problem(fmt::format("{}/{}", shard_name, name), "it does not belong into this folder");
      } else if (stat.error != ENOENT) {
        problem(fmt::format("{}/{}", shard_name, name), error_text(stat.error));
      }
    }
  }
  return files;
}

std::vector<SeenFile> scan_room(Layer& layer, const Layer::Root& root, Room which,
                                std::vector<CacheFinding>* problems) {
  FileSystem& fs = layer.fs();
  std::vector<SeenFile> files;
  const auto problem = [&](const std::string& text) {
    if (problems != nullptr) problems->push_back({layer.path_of(room_name(which)), text, false});
  };
  const OpenedFolder folder = layer.room(root, which, false);
  if (folder.state != OpenedFolder::State::kOpen) {
    if (folder.state != OpenedFolder::State::kMissing) problem(folder.reason);
    return files;
  }
  auto names = uninterrupted([&] { return fs.list(folder.folder.get()); });
  if (!names.ok()) problem(error_text(names.error));
  std::sort(names.value.begin(), names.value.end());
  for (std::string& name : names.value) {
    const auto stat = uninterrupted([&] { return fs.stat_at(folder.folder.get(), name); });
    if (stat.ok()) files.push_back({std::move(name), stat.value});
  }
  return files;
}

CacheGcReport trim(Layer& layer, const TrimOptions& options) {
  CacheGcReport report;
  OpenedFolder why;
  const auto root = layer.root(false, &why);
  if (!root) {
    if (why.state != OpenedFolder::State::kMissing) {
      report.unreadable.push_back({layer.path(), why.reason, false});
    }
    return report;
  }
  FileSystem& fs = layer.fs();
  const std::int64_t now = fs.now_ns();
  report.removed_of_older_versions = remove_older_versions(layer, options.dry_run);
  std::int64_t other_bytes = 0, other_files = 0;

  const auto sweep = [&](Room which, auto&& leftover) {
    std::int64_t removed = 0;
    const OpenedFolder folder = layer.room(*root, which, false);
    for (const SeenFile& file : scan_room(layer, *root, which, &report.unreadable)) {
      if (leftover(file)) {
        // A lock may go whatever its age, unless somebody holds it.
        const bool gone =
            options.dry_run ||
            (which == Room::kLocks ? remove_stale_lock(fs, folder.folder.get(), file.name,
                                                       std::numeric_limits<std::int64_t>::max())
                                   : uninterrupted([&] {
                                       return fs.remove(folder.folder.get(), file.name, false);
                                     }) == 0);
        if (gone) {
          ++removed;
          continue;
        }
      }
      other_bytes += file.bytes();
      ++other_files;
    }
    return removed;
  };
  report.removed_temporary = sweep(
      Room::kTemporary, [&](const SeenFile& file) { return old(file, now, kTemporaryAgeNs); });
  // NOTE: shares, because failures, and locks, are made as fast as somebody sends bad code, and
  // must not drive out the kernels.
  const auto too_many_locks =
      surplus(scan_room(layer, *root, Room::kLocks, nullptr), options.cap.share(kLocksShare));
  report.removed_locks = sweep(Room::kLocks, [&](const SeenFile& file) {
    return old(file, now, kLockAgeNs) || too_many_locks.count(file.name) != 0;
  });
  const std::int64_t ttl_ns = std::chrono::nanoseconds(bounded(options.failure_ttl)).count();
  const auto too_many_failures =
      surplus(scan_room(layer, *root, Room::kFailures, nullptr), options.cap.share(kFailuresShare));
  report.removed_failures = sweep(Room::kFailures, [&](const SeenFile& file) {
    return old(file, now, ttl_ns) || too_many_failures.count(file.name) != 0;
  });
  // The oldest first: names in quarantine begin with the time.
  std::int64_t quarantined = 0;
  for (const SeenFile& file : scan_room(layer, *root, Room::kQuarantine, nullptr)) {
    quarantined += file.bytes();
  }
  report.removed_quarantined = sweep(Room::kQuarantine, [&](const SeenFile& file) {
    if (quarantined <= options.cap.share(kQuarantineShare).bytes) return false;
    quarantined -= file.bytes();
    return true;
  });

  std::vector<SeenFile> entries = scan_entries(layer, *root, &report.unreadable);
  report.entries_before = static_cast<std::int64_t>(entries.size());
  for (const SeenFile& file : entries) report.bytes_before += file.bytes();
  report.entries_after = report.entries_before;
  report.bytes_after = report.bytes_before;
  std::sort(entries.begin(), entries.end(), [](const SeenFile& a, const SeenFile& b) {
    return std::pair(a.stat.modified_ns, a.name) < std::pair(b.stat.modified_ns, b.name);
  });
  for (const SeenFile& file : entries) {
    if (!options.cap.exceeded_by(report.bytes_after + other_bytes,
                                 report.entries_after + other_files)) {
      break;
    }
    if (!options.dry_run && !layer.remove_if_same(*root, file.name, file.stat)) continue;
    report.bytes_after -= file.bytes();
    --report.entries_after;
    report.removed.push_back(file.name);
  }
  return report;
}

}  // namespace attnjit::cache

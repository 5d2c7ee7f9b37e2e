// SPDX-License-Identifier: Apache-2.0
// Trim: keeps a layer under its cap, least recently used first, and clears away what was left
// behind.
//
// Thread rules: free functions; safe beside readers, writers and other trimmers in any process.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "attnjit/cache.h"
#include "cache/layer.h"

namespace attnjit::cache {

/// A file in a layer as a scan saw it.
struct SeenFile {
  std::string name;
  FileStat stat;
  /// On disk; the size where the file system does not say (inline or not yet allocated data).
  std::int64_t bytes() const { return stat.allocated > 0 ? stat.allocated : stat.size; }
};

/// Every file below entries/, whatever its name; by name. `problems` (may be null) gets the folders
/// that could not be read, by their paths, and what does not belong there.
std::vector<SeenFile> scan_entries(Layer& layer, const Layer::Root& root,
                                   std::vector<CacheFinding>* problems);
/// Every file of another room, by name.
std::vector<SeenFile> scan_room(Layer& layer, const Layer::Root& root, Room which,
                                std::vector<CacheFinding>* problems);

/// How much a layer may hold.
struct Cap {
  std::int64_t bytes = 0;
  std::int64_t files = 0;

  Cap operator-(const Cap& other) const { return {bytes - other.bytes, files - other.files}; }
  /// A share of it, for what must not drive out the kernels.
  Cap share(std::int64_t parts) const { return {bytes / parts, files / parts}; }
  bool exceeded_by(std::int64_t used_bytes, std::int64_t used_files) const {
    return used_bytes > bytes || used_files > files;
  }
};

/// How far below the cap a trim goes after a store, so that the next ones need no look.
inline Cap trim_slack(const Cap& cap) {
  constexpr std::int64_t kWorthwhileBytes = std::int64_t{64} << 20, kWorthwhileFiles = 1024;
  return {cap.bytes >= kWorthwhileBytes ? cap.bytes / 64 : 0,
          cap.files >= kWorthwhileFiles ? cap.files / 64 : 0};
}

struct TrimOptions {
  Cap cap;
  bool dry_run = false;
  std::chrono::seconds failure_ttl{300};
};

/// Removes temporary files, locks and older format versions that were left behind, failures that
/// are past their time, and
/// then entries until everything together is within the cap.
CacheGcReport trim(Layer& layer, const TrimOptions& options);

}  // namespace attnjit::cache

// SPDX-License-Identifier: Apache-2.0
// Walks the folders of older format versions, and removes what is in them and old.
#include "cache/older_versions.h"

#include "cache/io.h"

namespace attnjit::cache {
namespace {

constexpr int kDepth = 4;  // v0/entries/00/FILE, and one to spare

class Remover {
 public:
  Remover(Layer& layer, bool dry_run)
      : fs_(layer.fs()),
        trust_(layer.trust()),
        before_ns_(fs_.now_ns() - kOlderVersionAgeNs),
        dry_run_(dry_run) {}

  void remove(FileSystem::Handle parent, const std::string& name, int depth) {
    const OpenedFolder folder = open_trusted_child(fs_, trust_, parent, name, false, 0);
    if (folder.state != OpenedFolder::State::kOpen) return;
    const FileSystem::Handle handle = folder.folder.get();
    const auto names = uninterrupted([&] { return fs_.list(handle); });
    for (const std::string& inside : names.value) {
      const auto stat = uninterrupted([&] { return fs_.stat_at(handle, inside); });
      if (!stat.ok()) continue;
      if (stat.value.type == FileStat::Type::kFolder) {
        if (depth > 1) remove(handle, inside, depth - 1);
      } else if (stat.value.modified_ns < before_ns_) {
        const bool gone =
            dry_run_ || uninterrupted([&] { return fs_.remove(handle, inside, false); }) == 0;
        if (gone) ++removed_;
      }
    }
    // It stays where it is not empty.
    if (!dry_run_) {
      static_cast<void>(uninterrupted([&] { return fs_.remove(parent, name, true); }));
    }
  }
  std::int64_t removed() const { return removed_; }

 private:
  FileSystem& fs_;
  const Trust& trust_;
  const std::int64_t before_ns_;
  const bool dry_run_;
  std::int64_t removed_ = 0;
};

}  // namespace

std::int64_t remove_older_versions(Layer& layer, bool dry_run) {
  const OpenedFolder base = open_trusted_path(layer.fs(), layer.trust(), layer.path(), false);
  if (base.state != OpenedFolder::State::kOpen) return 0;
  Remover remover(layer, dry_run);
  for (std::uint32_t version = 0; version < kFormatVersion; ++version) {
    remover.remove(base.folder.get(), version_folder(version), kDepth);
  }
  return remover.removed();
}

}  // namespace attnjit::cache

// SPDX-License-Identifier: Apache-2.0
// The management half of the Store: what `attnjit cache` shows and tidies.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cache/io.h"
#include "cache/key_facts.h"
#include "cache/key_lock.h"
#include "cache/signature.h"
#include "cache/store.h"
#include "cache/trim.h"

namespace attnjit::cache {
namespace {

std::string entry_path(const Layer& layer, const std::string& name) {
  return layer.path_of("entries/" + name.substr(0, 2) + "/" + name);
}

// Empty, or why nothing can be written: tried, because neither modes nor mount flags tell it all.
std::string write_problem(Layer& layer, const Layer::Root& root) {
  FileSystem& fs = layer.fs();
  const OpenedFolder temporary = layer.room(root, Room::kTemporary, true);
  if (temporary.state != OpenedFolder::State::kOpen) return temporary.reason;
  const std::string name = fmt::format("{:016x}", fs.unique_id());
  const auto file =
      open_file(fs, temporary.folder.get(), name, FileSystem::Open::kCreate, root.file_mode());
  if (!file.ok()) return error_text(file.error);
  static_cast<void>(uninterrupted([&] { return fs.remove(temporary.folder.get(), name, false); }));
  return {};
}

}  // namespace

Error no_layer() {
  return make_error(ErrorCode::kIo, "no cache folder is configured", "cache",
                    "set ATTNJIT_CACHE_DIR, XDG_CACHE_HOME or HOME");
}

std::vector<CacheLayerInfo> Store::layers() {
  std::vector<CacheLayerInfo> infos;
  for (const auto& layer : layers_) {
    CacheLayerInfo info;
    info.path = layer->path();
    OpenedFolder why;
    const auto root = layer->root(false, &why);
    if (!root) {
      info.state = why.state == OpenedFolder::State::kMissing ? CacheLayerInfo::State::kMissing
                                                              : CacheLayerInfo::State::kRefused;
      info.reason = why.reason;
      if (info.state == CacheLayerInfo::State::kRefused) {
        info.unreadable.push_back({layer->path(), why.reason, false});
      }
      infos.push_back(std::move(info));
      continue;
    }
    info.state = CacheLayerInfo::State::kReadOnly;
    if (layer->writable()) {
      info.reason = write_problem(*layer, *root);
      if (info.reason.empty()) info.state = CacheLayerInfo::State::kWritable;
    }
    for (const SeenFile& file : scan_entries(*layer, *root, &info.unreadable)) {
      ++info.entries;
      info.entry_bytes += file.bytes();
    }
    const auto count = [&](Room which) {
      const auto files = scan_room(*layer, *root, which, &info.unreadable);
      for (const SeenFile& file : files) info.other_bytes += file.bytes();
      return static_cast<std::int64_t>(files.size());
    };
    info.failures = count(Room::kFailures);
    info.quarantined = count(Room::kQuarantine);
    info.temporary = count(Room::kTemporary);
    info.locks = count(Room::kLocks);
    infos.push_back(std::move(info));
  }
  return infos;
}

std::vector<CacheEntryInfo> Store::list(std::vector<CacheFinding>* unreadable) {
  std::vector<CacheEntryInfo> infos;
  Wanted wanted;
  wanted.parts = {false, false};
  wanted.set_aside = false;
  for (const auto& layer : layers_) {
    OpenedFolder why;
    const auto root = layer->root(false, &why);
    if (!root) {
      if (unreadable != nullptr && why.state != OpenedFolder::State::kMissing) {
        unreadable->push_back({layer->path(), why.reason, false});
      }
      continue;
    }
    for (const SeenFile& file : scan_entries(*layer, *root, unreadable)) {
      const Loaded loaded = layer->load(file.name, wanted);
      if (unreadable != nullptr && loaded.state == Loaded::State::kUnreadable) {
        unreadable->push_back({entry_path(*layer, file.name), loaded.problem, false});
      }
      if (loaded.state != Loaded::State::kHit) continue;
      CacheEntryInfo info;
      info.layer = layer->path();
      info.key = to_hex(loaded.entry.id.key);
      info.build_id = loaded.entry.build_id;
      info.path = entry_path(*layer, file.name);
      info.arch = loaded.entry.arch;
      info.bytes = file.stat.size;
      info.created_unix_s = loaded.entry.created_unix_s;
      info.last_used_unix_s = file.stat.modified_ns / kSecondNs;
      if (!loaded.entry.image.entries.empty()) info.entry = loaded.entry.image.entries.front();
      info.nvrtc_version = loaded.entry.image.nvrtc_version;
      info.usage = loaded.entry.image.usage;
      info.facts = facts_of(loaded.entry.key_material);
      infos.push_back(std::move(info));
    }
  }
  return infos;
}

CacheVerifyReport Store::verify() {
  CacheVerifyReport report;
  Wanted everything;
  everything.judge_cubin = true;
  for (const auto& layer : layers_) {
    OpenedFolder why;
    const auto root = layer->root(false, &why);
    if (!root) {
      if (why.state != OpenedFolder::State::kMissing) {
        report.unreadable.push_back({layer->path(), why.reason, false});
      }
      continue;
    }
    everything.signers = trust_.layer_keyring(layer->writable());
    for (const SeenFile& file : scan_entries(*layer, *root, &report.unreadable)) {
      const Loaded loaded = layer->load(file.name, everything);
      const std::string path = entry_path(*layer, file.name);
      if (loaded.state == Loaded::State::kMiss) continue;  // evicted since the scan
      ++report.checked;
      switch (loaded.state) {
        case Loaded::State::kHit:
          ++report.good;
          report.bytes += file.stat.size;
          break;
        case Loaded::State::kBad:
          report.bad.push_back({path, loaded.problem, loaded.quarantined});
          break;
        default:
          report.unreadable.push_back({path, loaded.problem, false});
      }
    }
  }
  return report;
}

Result<CacheSignReport> Store::sign() {
  if (layers_.empty()) return no_layer();
  if (!trust_.key) {
    return make_error(ErrorCode::kInvalid, "there is no key to sign with", "sign_key",
                      "name one in ATTNJIT_SIGN_KEY; attnjit cache keygen makes one");
  }
  CacheSignReport report;
  Layer& layer = *layers_.front();
  OpenedFolder why;
  const auto root = layer.root(false, &why);
  if (!root) {
    if (why.state == OpenedFolder::State::kMissing) return report;
    return make_error(ErrorCode::kIo, why.reason, layer.path());
  }
  for (const SeenFile& file : scan_entries(layer, *root, &report.unreadable)) {
    bool gone = false;
    auto bytes = layer.read_entry(file.name, &gone);
    if (gone) continue;
    const auto entry = bytes ? decode_entry(*bytes) : Result<Entry>(bytes.error());
    const auto named = parse_file_name(file.name);
    if (!entry || !named || !named->matches(entry->id)) {
      report.bad.push_back(
          {entry_path(layer, file.name),
           entry ? "it is the entry of another key or build" : entry.error().message, false});
      continue;
    }
    const std::string header = bytes->substr(0, kHeaderBytes);
    bytes->resize(static_cast<std::size_t>(decode_header(header, bytes->size())->file_size()));
    bytes->append(sign_entry(header, entry->arch, *trust_.key));
    if (Status published = layer.publish(file.name, *bytes); !published) return published.error();
    ++report.signed_now;
  }
  return report;
}

Result<CacheGcReport> Store::gc(const CacheGcOptions& options) {
  if (layers_.empty()) return no_layer();
  OpenedFolder why;
  if (!layers_.front()->root(false, &why)) {
    if (why.state == OpenedFolder::State::kMissing) return CacheGcReport{};
    return make_error(ErrorCode::kIo, why.reason, layers_.front()->path());
  }
  CacheGcReport report =
      trim(*layers_.front(), {{options.max_bytes.value_or(options_.max_bytes), options_.max_files},
                              options.dry_run,
                              options_.failure_ttl});
  if (!options.dry_run) count_.evicted += report.removed.size();
  return report;
}

Result<CacheClearReport> Store::clear() {
  if (layers_.empty()) return no_layer();
  Layer& layer = *layers_.front();
  CacheClearReport report;
  OpenedFolder why;
  const auto root = layer.root(false, &why);
  if (!root) {
    if (why.state == OpenedFolder::State::kMissing) return report;
    return make_error(ErrorCode::kIo, why.reason, layer.path());
  }
  const auto remove = [&](const OpenedFolder& folder, const SeenFile& file,
                          const std::string& shown) {
    const int error = uninterrupted([&] {
      return fs_.remove(folder.folder.get(), file.name, file.stat.type == FileStat::Type::kFolder);
    });
    if (error == 0) {
      ++report.removed_files;
      report.removed_bytes += file.bytes();
    } else if (error != ENOENT) {
      report.left.push_back({shown, error_text(error), false});
    }
  };
  for (const SeenFile& file : scan_entries(layer, *root, &report.left)) {
    remove(layer.shard(*root, file.name, false), file, entry_path(layer, file.name));
  }
  for (const Room which : {Room::kTemporary, Room::kFailures, Room::kQuarantine}) {
    const OpenedFolder folder = layer.room(*root, which, false);
    for (const SeenFile& file : scan_room(layer, *root, which, &report.left)) {
      remove(folder, file, file.name);
    }
  }
  // A lock that somebody holds stays: its file must not be replaced by another one.
  const OpenedFolder locks = layer.room(*root, Room::kLocks, false);
  for (const SeenFile& file : scan_room(layer, *root, Room::kLocks, &report.left)) {
    if (remove_stale_lock(fs_, locks.folder.get(), file.name,
                          std::numeric_limits<std::int64_t>::max())) {
      ++report.removed_files;
      report.removed_bytes += file.bytes();
    }
  }
  failures_->forget_all_in_memory();
  return report;
}

}  // namespace attnjit::cache

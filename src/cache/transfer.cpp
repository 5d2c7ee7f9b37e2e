// SPDX-License-Identifier: Apache-2.0
// Export and import: the half of the Store that moves entries between machines.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "cache/bundle.h"
#include "cache/file_hash.h"
#include "cache/io.h"
#include "cache/minisign.h"
#include "cache/store.h"
#include "cache/trim.h"

namespace attnjit::cache {
namespace {

Error io_error(const std::string& what, int error, const std::string& path) {
  return make_error(ErrorCode::kIo, what + ": " + error_text(error), path);
}

/// A path that the user gave, as an open folder and a name in it.
struct Place {
  OpenedFolder folder;
  std::string name;
};

Place split(FileSystem& fs, const std::string& path) {
  const std::size_t slash = path.rfind('/');
  Place place;
  place.name = slash == std::string::npos ? path : path.substr(slash + 1);
  place.folder = open_any_path(fs, slash == std::string::npos ? "."
                                   : slash == 0               ? "/"
                                                              : path.substr(0, slash));
  return place;
}

/// Empty, or why the bytes are not the entry that a bundle's row says, or none that a lower layer
/// could serve.
std::string entry_problem(const BundleRow& row, const std::string& bytes, const Keyring* signers) {
  if (sha256(bytes) != row.digest) return "the bytes do not match the manifest";
  Wanted wanted;
  wanted.id = &row.id;
  wanted.judge_cubin = true;
  wanted.signers = signers;
  const auto entry = judge_entry(bytes, wanted);
  return entry ? std::string() : entry.error().message;
}

/// Where a path that the user gave leads; symbolic links are followed, as anywhere on a command
/// line. A last part that does not exist is no error: stat has the answer for it.
struct NamedFile {
  Place place;
  IoResult<FileStat> stat;  ///< of the file, never of a link
};

IoResult<NamedFile> find_named(FileSystem& fs, std::string path) {
  // NOTE: a slash at the end says that it is a folder, as the system has it.
  const bool is_folder = path.size() > 1 && path.ends_with('/');
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  for (int links = 0; links < 40; ++links) {
    Place place = split(fs, path);
    if (place.folder.state != OpenedFolder::State::kOpen)
      return {{}, place.folder.error != 0 ? place.folder.error : ENOENT};
    const FileSystem::Handle folder = place.folder.folder.get();
    const auto stat = uninterrupted([&] { return fs.stat_at(folder, place.name); });
    if (!stat.ok() || stat.value.type != FileStat::Type::kSymlink) {
      if (is_folder && !stat.ok()) return {{}, stat.error};
      if (is_folder && stat.value.type != FileStat::Type::kFolder) return {{}, ENOTDIR};
      return {{std::move(place), stat}, 0};
    }
    const auto target = uninterrupted([&] { return fs.read_link(folder, place.name); });
    if (!target.ok()) return {{}, target.error};
    const std::size_t slash = path.rfind('/');
    path = target.value.starts_with('/') || slash == std::string::npos
               ? target.value
               : path.substr(0, slash + 1) + target.value;
  }
  return {{}, ELOOP};
}

}  // namespace

Result<CacheBundleReport> Store::export_bundle(const std::string& path,
                                               const std::vector<std::string>& keys) {
  CacheBundleReport report;
  const std::set<std::string> chosen(keys.begin(), keys.end());
  for (const std::string& key : chosen) {
    if (!entry_id({key, {}}, {})) {
      return make_error(
          ErrorCode::kInvalid,
          fmt::format("is '{}'; allowed: 64 lower-case hexadecimal digits", key.substr(0, 80)),
          "key", "attnjit cache list --json shows whole keys");
    }
  }
  std::set<std::string> missing = chosen;
  struct Source {
    Layer* layer;
    std::string name;
    BundleRow row;
  };
  // The first layer that has a good image of a name gives it.
  std::map<std::string, Source> sources;
  for (const auto& layer : layers_) {
    OpenedFolder why;
    const auto root = layer->root(false, &why);
    if (!root) {
      if (why.state != OpenedFolder::State::kMissing) {
        report.unreadable.push_back({layer->path(), why.reason, false});
      }
      continue;
    }
    for (const SeenFile& file : scan_entries(*layer, *root, &report.unreadable)) {
      if (sources.contains(file.name)) continue;
      const std::string key = file.name.substr(0, 64);
      if (!chosen.empty() && !chosen.contains(key)) continue;
      bool gone = false;
      auto bytes = layer->read_entry(file.name, &gone);
      if (gone) continue;  // evicted, or cleared, since it was listed
      missing.erase(key);
      if (!bytes) {
        report.bad.push_back({layer->path() + ": " + file.name, bytes.error().message, false});
        continue;
      }
      const auto entry = decode_entry(*bytes);
      const auto named = parse_file_name(file.name);
      if (!entry || !named || !named->matches(entry->id)) {
        report.bad.push_back(
            {layer->path() + ": " + file.name,
             entry ? "it is the entry of another key or build" : entry.error().message, false});
        continue;
      }
      sources.emplace(file.name,
                      Source{layer.get(), file.name, {entry->id, bytes->size(), sha256(*bytes)}});
    }
  }
  for (const std::string& key : missing) report.bad.push_back({key, "it is in no layer", false});
  std::vector<const Source*> order;
  order.reserve(sources.size());
  for (const auto& [name, source] : sources) order.push_back(&source);
  std::sort(order.begin(), order.end(),
            [](const Source* a, const Source* b) { return bundle_order(a->row.id, b->row.id); });
  std::vector<BundleRow> rows;
  rows.reserve(order.size());
  for (const Source* source : order) rows.push_back(source->row);

  const auto named = find_named(fs_, path);
  if (!named.ok()) return io_error("cannot write the bundle", named.error, path);
  const Place& place = named.value.place;
  const IoResult<FileStat>& there = named.value.stat;
  // NOTE: a rename replaces what is there, a device or a FIFO too.
  if (there.ok() && there.value.type != FileStat::Type::kFile) {
    return make_error(ErrorCode::kInvalid, "cannot write the bundle: it is not a regular file",
                      path);
  }
  if (!there.ok() && there.error != ENOENT) {
    return io_error("cannot write the bundle", there.error, path);
  }
  const FileSystem::Handle folder = place.folder.folder.get();
  const std::string temporary = fmt::format(".attnjit-{:016x}", fs_.unique_id());
  auto file = open_file(fs_, folder, temporary, FileSystem::Open::kCreate, 0644);
  if (!file.ok()) return io_error("cannot write the bundle", file.error, path);
  const auto write = [&]() -> Status {
    const std::string head = encode_bundle_head(rows);
    int error = write_all(fs_, file.value.get(), head.data(), head.size());
    for (std::size_t i = 0; i < order.size() && error == 0; ++i) {
      bool gone = false;
      const auto bytes = order[i]->layer->read_entry(order[i]->name, &gone);
      if (!bytes && !gone) {
        return make_error(ErrorCode::kIo,
                          "cannot read entry " + order[i]->name + ": " + bytes.error().message,
                          order[i]->layer->path());
      }
      if (gone || bytes->size() != rows[i].size || sha256(*bytes) != rows[i].digest) {
        return make_error(ErrorCode::kIo, "entry " + order[i]->name + " changed meanwhile", path,
                          "export again");
      }
      error = write_all(fs_, file.value.get(), bytes->data(), bytes->size());
    }
    if (error == 0) error = uninterrupted([&] { return fs_.sync(file.value.get()); });
    file.value.reset();
    if (error == 0) {
      error = uninterrupted([&] { return fs_.rename(folder, temporary, folder, place.name); });
    }
    if (error != 0) return io_error("cannot write the bundle", error, path);
    return {};
  };
  const Status written = write();
  if (!written) {
    file.value.reset();
    static_cast<void>(uninterrupted([&] { return fs_.remove(folder, temporary, false); }));
    return written.error();
  }
  report.entries = static_cast<std::int64_t>(rows.size());
  for (const BundleRow& row : rows) report.bytes += static_cast<std::int64_t>(row.size);
  return report;
}

Result<std::string> Store::check_bundle_signature(const std::string& path) {
  const auto open = [&](const std::string& name, std::int64_t& size) -> Result<File> {
    const auto named = find_named(fs_, name);
    if (!named.ok()) return io_error("cannot read", named.error, name);
    auto file = open_file(fs_, named.value.place.folder.folder.get(), named.value.place.name,
                          FileSystem::Open::kRead);
    if (!file.ok()) return io_error("cannot read", file.error, name);
    const auto stat = uninterrupted([&] { return fs_.stat(file.value.get()); });
    if (!stat.ok()) return io_error("cannot read", stat.error, name);
    size = stat.value.size;
    return std::move(file.value);
  };
  std::int64_t size = 0;
  const std::string signature_path = path + ".minisig";
  const auto signature_file = open(signature_path, size);
  if (const auto seen = find_named(fs_, signature_path);
      !signature_file && (!seen.ok() ? seen.error : seen.value.stat.error) != ENOENT) {
    return signature_file.error();
  }
  if (!signature_file || size > 65536) {
    return make_error(ErrorCode::kCorrupt, "the bundle is not signed, and there is a keyring",
                      signature_path, "nothing was imported; attnjit cache sign signs a bundle");
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  auto read = read_up_to(fs_, signature_file->get(), text.data(), text.size());
  if (!read.ok()) return io_error("cannot read", read.error, signature_path);
  text.resize(read.value);

  const auto file = open(path, size);
  if (!file) return file.error();
  FileHash hash(FileHash::Kind::kBlake2b512);
  std::string head;
  std::size_t head_size = kBundleHeaderBytes;
  std::string piece;
  do {
    piece.resize(std::size_t{1} << 20);
    read = read_up_to(fs_, file->get(), piece.data(), piece.size());
    if (!read.ok()) return io_error("cannot read the bundle", read.error, path);
    piece.resize(read.value);
    hash.add(piece);
    if (head.empty()) {
      const auto header = decode_bundle_header(piece, static_cast<std::uint64_t>(size));
      if (!header) return header.error();
      head_size += header->entries * kBundleRowBytes;
    }
    head.append(piece, 0, head_size - head.size());
  } while (!piece.empty());
  const auto comment = verify_minisign(hash.finish(), text, *trust_.ring);
  if (!comment) {
    return make_error(ErrorCode::kCorrupt, comment.error().message, signature_path,
                      "nothing was imported");
  }
  return head;
}

Result<Store::BundleToRead> Store::open_bundle(const std::string& path) {
  const auto unreadable = [&](const std::string& why) {
    return make_error(ErrorCode::kInvalid, "cannot read the bundle: " + why, path);
  };
  const auto corrupt = [&](const std::string& message) {
    return make_error(ErrorCode::kCorrupt, message, path, "nothing was imported");
  };
  const auto named = find_named(fs_, path);
  if (!named.ok()) return unreadable(error_text(named.error));
  const Place& place = named.value.place;
  auto file = open_file(fs_, place.folder.folder.get(), place.name, FileSystem::Open::kRead);
  if (!file.ok()) return unreadable(error_text(file.error));
  const auto stat = uninterrupted([&] { return fs_.stat(file.value.get()); });
  if (!stat.ok()) return io_error("cannot read the bundle", stat.error, path);
  if (stat.value.type != FileStat::Type::kFile) return unreadable("it is not a regular file");

  std::string believed;  // header and manifest, of which a signature is known
  if (trust_.ring != nullptr) {
    auto checked = check_bundle_signature(path);
    if (!checked) return std::move(checked).error();
    believed = *std::move(checked);
  }
  std::string head(kBundleHeaderBytes, '\0');
  auto read = read_up_to(fs_, file.value.get(), head.data(), head.size());
  if (!read.ok()) return io_error("cannot read the bundle", read.error, path);
  head.resize(read.value);
  const auto header = decode_bundle_header(head, static_cast<std::uint64_t>(stat.value.size));
  if (!header) return corrupt(header.error().message);
  head.resize(kBundleHeaderBytes + header->entries * kBundleRowBytes);
  read = read_up_to(fs_, file.value.get(), head.data() + kBundleHeaderBytes,
                    head.size() - kBundleHeaderBytes);
  if (!read.ok()) return io_error("cannot read the bundle", read.error, path);
  head.resize(kBundleHeaderBytes + read.value);
  // NOTE: with these bytes the digest of every entry is believed, whoever changes the file now.
  if (trust_.ring != nullptr && head != believed) return corrupt("the bundle changed meanwhile");
  auto rows = decode_bundle_manifest(*header, head);
  if (!rows) return corrupt(rows.error().message);
  return BundleToRead{std::move(file.value), *std::move(rows)};
}

Result<CacheBundleReport> Store::import_bundle(const std::string& path) {
  if (layers_.empty()) return no_layer();
  Layer& layer = *layers_.front();
  const auto bundle = open_bundle(path);
  if (!bundle) return bundle.error();
  CacheBundleReport report;
  for (const BundleRow& row : bundle->rows) {
    // NOTE: named after what the bytes are, never after what a bundle says: nothing in it can
    // choose a path.
    const std::string name = file_name(row.id);
    std::string bytes(static_cast<std::size_t>(row.size), '\0');
    const auto read = read_up_to(fs_, bundle->file.get(), bytes.data(), bytes.size());
    if (!read.ok()) return io_error("cannot read the bundle", read.error, path);
    bytes.resize(read.value);
    // NOTE: each by itself, although the bundle is signed: a signature of the whole says neither
    // for which templates an entry was made, nor that its maker signed it.
    std::string problem = entry_problem(row, bytes, trust_.layer_keyring(false));
    if (problem.empty() && static_cast<std::int64_t>(bytes.size()) > options_.max_bytes)
      problem = "it is larger than the whole cache may be";
    if (!problem.empty()) {
      report.bad.push_back({name, std::move(problem), false});
      continue;
    }
    Wanted served;
    served.signers = trust_.layer_keyring(true);
    if (layer.load(name, served).state == Loaded::State::kHit) {
      ++report.existing;
      continue;
    }
    const Status published = layer.publish(name, bytes);
    if (!published) return published.error();
    failures_->forget(row.id);
    ++report.entries;
    report.bytes += static_cast<std::int64_t>(bytes.size());
  }
  CacheGcReport trimmed = trim(layer, {cap(), false, options_.failure_ttl});
  report.unreadable = std::move(trimmed.unreadable);
  count_.evicted += trimmed.removed.size();
  return report;
}

}  // namespace attnjit::cache

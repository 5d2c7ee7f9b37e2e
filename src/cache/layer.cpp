// SPDX-License-Identifier: Apache-2.0
// Loads, publishes and sets aside the entries of one cache folder.
#include "cache/layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "cache/io.h"
#include "cache/signature.h"
#include "compile/cubin.h"

namespace attnjit::cache {
namespace {

constexpr std::size_t kFirstRead = 64 * 1024;  // most entries up to their PTX, in one call

// Some file systems (FUSE, 9P) cannot sync a folder, or anything. What they lose is found out on
// load.
bool sync_unsupported(int error) { return error == EINVAL || error == ENOTSUP || error == ENOSYS; }

// Of a whole file: the architecture that was signed for where `wanted` asks for a signature, and
// the trailer's kind in any case. Nothing behind the fixed header is parsed before this.
Result<std::optional<Arch>> check_trailer(const EntryHeader& header, std::string_view file,
                                          const Wanted& wanted) {
  const auto size = static_cast<std::size_t>(header.file_size());
  const std::string_view trailer =
      header.has_trailer && file.size() == size + kTrailerBytes ? file.substr(size) : "";
  if (wanted.signers == nullptr) {
    if (header.has_trailer && !is_trailer(trailer)) {
      return make_error(ErrorCode::kCorrupt, "what follows its sections is no signature");
    }
    return std::optional<Arch>();
  }
  const auto said = verify_entry_signature(file.substr(0, kHeaderBytes), trailer, *wanted.signers);
  if (!said) return said.error();
  return std::optional<Arch>(said->arch);
}

// Empty, or what whoever wants the entry does not accept about it.
std::string problem_of(const Entry& entry, std::optional<Arch> signed_for, const Wanted& wanted) {
  if (signed_for && *signed_for != entry.arch) return "its signature is for another architecture";
  if (wanted.arch != nullptr && *wanted.arch != entry.arch) {
    return fmt::format("it is for {}, and its key for {}", to_string(entry.arch),
                       to_string(*wanted.arch));
  }
  if (wanted.judge_cubin) {
    const Status sound = check_cubin(entry.image.cubin, entry.arch, entry.image.entries);
    if (!sound) return sound.error().message;
  }
  return {};
}

}  // namespace

const char* room_name(Room which) {
  switch (which) {
    case Room::kEntries:
      return "entries";
    case Room::kTemporary:
      return "temp";
    case Room::kLocks:
      return "locks";
    case Room::kFailures:
      return "failures";
    case Room::kQuarantine:
      return "quarantine";
  }
  return "";
}

Result<Entry> judge_entry(std::string_view bytes, const Wanted& wanted) {
  const auto header = decode_header(bytes, bytes.size());
  if (!header) return header.error();
  if (wanted.id != nullptr && *wanted.id != header->id) {
    return make_error(ErrorCode::kCorrupt, "it is the entry of another key or build");
  }
  const auto signed_for = check_trailer(*header, bytes, wanted);
  if (!signed_for) return signed_for.error();
  auto entry = decode_sections(*header, bytes, wanted.material, wanted.parts);
  if (!entry) return entry;
  if (std::string problem = problem_of(*entry, *signed_for, wanted); !problem.empty()) {
    return make_error(ErrorCode::kCorrupt, std::move(problem));
  }
  return entry;
}

Layer::Layer(FileSystem& fs, std::string path, bool writable, Trust trust, Logger log)
    : fs_(fs),
      path_(std::move(path)),
      writable_(writable),
      trust_(std::move(trust)),
      log_(std::move(log)) {}

std::string Layer::path_of(const std::string& name) const {
  return path_ + "/" + version_folder() + "/" + name;
}

void Layer::warn_once(std::atomic_flag& flag, const std::string& text) const {
  if (!flag.test_and_set()) log_.warning(text);
}

void Layer::warn_of_entry(const std::string& name, const std::string& text) {
  constexpr std::size_t kMaxWarned =
      4096;  // whoever fills a layer with bad entries fills no memory
  bool first = false;
  {
    const std::lock_guard lock(warned_mutex_);
    first = warned_.size() < kMaxWarned && warned_.insert(name).second;
  }
  if (first) {
    log_.warning(text);
  } else {
    log_.debug(text);
  }
}

std::shared_ptr<const Layer::Root> Layer::root(bool create, OpenedFolder* why) {
  {
    const std::lock_guard lock(root_mutex_);
    if (root_) return root_;
  }
  auto opened = std::make_shared<Root>();
  const auto give_up = [&](OpenedFolder outcome) -> std::shared_ptr<const Root> {
    if (outcome.state == OpenedFolder::State::kRefused) {
      warn_once(refused_warned_,
                fmt::format("cache folder {} is not used: {}", path_, outcome.reason));
    }
    if (why != nullptr) *why = std::move(outcome);
    return nullptr;
  };
  OpenedFolder base = open_trusted_path(fs_, trust_, path_, create);
  if (base.state != OpenedFolder::State::kOpen) return give_up(std::move(base));
  opened->stat = base.stat;
  OpenedFolder version = open_trusted_child(fs_, trust_, base.folder.get(), version_folder(),
                                            create, opened->folder_mode());
  if (version.state != OpenedFolder::State::kOpen) return give_up(std::move(version));
  opened->version = std::move(version.folder);
  OpenedFolder entries = open_trusted_child(
      fs_, trust_, opened->version.get(), room_name(Room::kEntries), create, opened->folder_mode());
  if (entries.state != OpenedFolder::State::kOpen) return give_up(std::move(entries));
  opened->entries = std::move(entries.folder);

  const std::lock_guard lock(root_mutex_);
  if (!root_) root_ = std::move(opened);
  return root_;
}

void Layer::forget_root() {
  const std::lock_guard lock(root_mutex_);
  root_.reset();
}

OpenedFolder Layer::room(const Root& root, Room which, bool create) {
  return open_trusted_child(fs_, trust_, root.version.get(), room_name(which), create,
                            root.folder_mode());
}

OpenedFolder Layer::shard(const Root& root, std::string_view name, bool create) {
  return open_trusted_child(fs_, trust_, root.entries.get(), std::string(name.substr(0, 2)), create,
                            root.folder_mode());
}

Loaded Layer::load(const std::string& name, const Wanted& wanted) {
  const auto folder = root(false);
  if (!folder) return {};
  const OpenedFolder opened = shard(*folder, name, false);
  Loaded loaded;
  if (opened.state == OpenedFolder::State::kMissing) return loaded;
  if (opened.state != OpenedFolder::State::kOpen) {
    if (opened.error == ESTALE) forget_root();
    loaded.state = Loaded::State::kUnreadable;
    loaded.problem = opened.reason;
    return loaded;
  }
  loaded = load_from(opened.folder.get(), name, wanted);
  if (loaded.state == Loaded::State::kBad && wanted.set_aside) {
    if (writable_) {
      loaded.quarantined = quarantine(*folder, name, loaded.stat, loaded.problem);
    } else {
      warn_of_entry(name, fmt::format("bad entry {} in the read-only cache {}: {}", name, path_,
                                      loaded.problem));
    }
  }
  return loaded;
}

Loaded Layer::load_from(FileSystem::Handle shard_handle, const std::string& name,
                        const Wanted& wanted) {
  Loaded loaded;
  const auto unreadable = [&](int error) {
    loaded.state = error == ENOENT ? Loaded::State::kMiss : Loaded::State::kUnreadable;
    loaded.problem = error_text(error);
    if (error != ENOENT) {
      log_.info(
          fmt::format("cannot read entry {} of the cache {}: {}", name, path_, loaded.problem));
    }
    return std::move(loaded);
  };
  const auto bad = [&](std::string problem) {
    loaded.state = Loaded::State::kBad;
    loaded.problem = std::move(problem);
    return std::move(loaded);
  };

  auto file = open_file(fs_, shard_handle, name, FileSystem::Open::kRead);
  if (!file.ok()) {
    if (file.error != ELOOP && file.error != ENXIO) return unreadable(file.error);
    const auto stat = uninterrupted([&] { return fs_.stat_at(shard_handle, name); });
    if (!stat.ok()) return unreadable(stat.error);
    loaded.stat = stat.value;
    return bad("it is not a regular file");
  }
  const auto stat = uninterrupted([&] { return fs_.stat(file.value.get()); });
  if (!stat.ok()) return unreadable(stat.error);
  loaded.stat = stat.value;
  if (std::string problem = trust_.file_problem(stat.value); !problem.empty()) {
    return bad("it " + problem);
  }
  if (stat.value.size < static_cast<std::int64_t>(kHeaderBytes) ||
      static_cast<std::uint64_t>(stat.value.size) > kMaxEntryBytes) {
    return bad(fmt::format("it has {} bytes", stat.value.size));
  }

  const auto size = static_cast<std::size_t>(stat.value.size);
  // NOTE: not a std::string, which would clear what the read fills at once.
  const std::unique_ptr<char[]> buffer(new char[size]);
  auto read = read_up_to(fs_, file.value.get(), buffer.get(), std::min(size, kFirstRead));
  if (!read.ok()) return unreadable(read.error);
  const auto header = decode_header({buffer.get(), read.value}, stat.value.size);
  if (!header) return bad(header.error().message);
  // A signature stands at the end, so the whole file is read for it.
  const bool whole = wanted.signers != nullptr || wanted.parts.ptx;
  const auto needed = whole ? size : static_cast<std::size_t>(header->extent(wanted.parts));
  std::size_t have = read.value;
  if (have < needed) {
    read = read_up_to(fs_, file.value.get(), buffer.get() + have, needed - have);
    if (!read.ok()) return unreadable(read.error);
    have += read.value;
  }
  const auto named = parse_file_name(name);
  if (!named || !named->matches(header->id) || (wanted.id != nullptr && *wanted.id != header->id)) {
    return bad("it is the entry of another key or build");
  }
  std::optional<Arch> signed_for;
  if (whole) {
    const auto checked = check_trailer(*header, {buffer.get(), have}, wanted);
    if (!checked) return bad(checked.error().message);
    signed_for = *checked;
  }
  auto entry = decode_sections(*header, {buffer.get(), have}, wanted.material, wanted.parts);
  if (!entry) return bad(entry.error().message);
  if (std::string problem = problem_of(*entry, signed_for, wanted); !problem.empty()) {
    return bad(std::move(problem));
  }
  loaded.state = Loaded::State::kHit;
  loaded.entry = *std::move(entry);

  if (wanted.stamp && writable_) {
    const std::int64_t now = fs_.now_ns();
    // A stamp from the future is a clock that was set back: without the repair it would never age.
    if (now - stat.value.modified_ns > kStampGranularityNs ||
        stat.value.modified_ns - now > kStampGranularityNs) {
      static_cast<void>(uninterrupted([&] { return fs_.set_modified(file.value.get(), now); }));
    }
  }
  return loaded;
}

IoResult<std::string> Layer::read_file(FileSystem::Handle folder, const std::string& name,
                                       std::size_t limit) {
  auto file = open_file(fs_, folder, name, FileSystem::Open::kRead);
  if (!file.ok()) return {{}, file.error};
  const auto stat = uninterrupted([&] { return fs_.stat(file.value.get()); });
  if (!stat.ok()) return {{}, stat.error};
  if (!trust_.file_problem(stat.value).empty()) return {{}, EPERM};
  if (stat.value.size < 0 || static_cast<std::uint64_t>(stat.value.size) > limit) {
    return {{}, EFBIG};
  }
  std::string text(static_cast<std::size_t>(stat.value.size), '\0');
  const auto read = read_up_to(fs_, file.value.get(), text.data(), text.size());
  if (!read.ok()) return {{}, read.error};
  text.resize(read.value);
  return {std::move(text)};
}

Result<std::string> Layer::read_entry(const std::string& name, bool* gone) {
  const auto folder = root(false);
  if (!folder) return make_error(ErrorCode::kIo, "the cache folder is gone", path_);
  const OpenedFolder opened = shard(*folder, name, false);
  if (opened.state != OpenedFolder::State::kOpen) {
    if (gone != nullptr) *gone = opened.state == OpenedFolder::State::kMissing;
    return make_error(ErrorCode::kIo, opened.reason, path_);
  }
  auto bytes = read_file(opened.folder.get(), name, kMaxEntryBytes);
  if (gone != nullptr) *gone = bytes.error == ENOENT;
  if (!bytes.ok()) return make_error(ErrorCode::kIo, error_text(bytes.error), path_);
  return std::move(bytes.value);
}

std::optional<std::string> Layer::read_note(Room which, const std::string& name,
                                            std::size_t limit) {
  const auto folder = root(false);
  if (!folder) return std::nullopt;
  const OpenedFolder opened = room(*folder, which, false);
  if (opened.state != OpenedFolder::State::kOpen) return std::nullopt;
  auto bytes = read_file(opened.folder.get(), name, limit);
  if (!bytes.ok()) return std::nullopt;
  return std::move(bytes.value);
}

std::vector<std::string> Layer::images_of(const EntryId& id) {
  std::vector<std::string> names;
  const auto folder = root(false);
  if (!folder) return names;
  const std::string prefix = to_hex(id.key) + ".";
  const OpenedFolder opened = shard(*folder, prefix, false);
  if (opened.state != OpenedFolder::State::kOpen) return names;
  const auto all = uninterrupted([&] { return fs_.list(opened.folder.get()); });
  for (const std::string& name : all.value) {
    if (name.starts_with(prefix) && parse_file_name(name)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Layer::Written Layer::write_to(const Root& root, FileSystem::Handle folder, const std::string& name,
                               std::string_view bytes, bool durable) {
  const OpenedFolder temporary = room(root, Room::kTemporary, true);
  if (temporary.state != OpenedFolder::State::kOpen) return {temporary.error, temporary.reason};
  const FileSystem::Handle temp = temporary.folder.get();
  std::string temp_name;
  IoResult<File> file{File(), EEXIST};
  for (int attempt = 0; attempt < 8 && file.error == EEXIST; ++attempt) {
    temp_name = fmt::format("{:016x}", fs_.unique_id());
    file = open_file(fs_, temp, temp_name, FileSystem::Open::kCreate, root.file_mode());
  }
  if (!file.ok()) return {file.error, "cannot make a temporary file: " + error_text(file.error)};
  int error = write_all(fs_, file.value.get(), bytes.data(), bytes.size());
  if (error == 0 && durable) {
    // NOTE: before the rename, else a power failure can leave the name with an empty file.
    error = uninterrupted([&] { return fs_.sync(file.value.get()); });
    if (sync_unsupported(error)) error = 0;
  }
  file.value.reset();
  if (error == 0) {
    error = uninterrupted([&] { return fs_.rename(temp, temp_name, folder, name); });
  }
  if (error != 0) {
    static_cast<void>(uninterrupted([&] { return fs_.remove(temp, temp_name, false); }));
    return {error, "cannot write an entry: " + error_text(error)};
  }
  if (durable) {
    error = uninterrupted([&] { return fs_.sync(folder); });
    if (error != 0 && !sync_unsupported(error)) {
      return {error, "the entry may not survive a power failure: " + error_text(error)};
    }
  }
  return {};
}

Layer::Written Layer::publish_once(const std::string& name, std::string_view bytes) {
  OpenedFolder why;
  const auto folder = root(true, &why);
  if (!folder) return {why.error, why.reason};
  const OpenedFolder opened = shard(*folder, name, true);
  if (opened.state != OpenedFolder::State::kOpen) return {opened.error, opened.reason};
  return write_to(*folder, opened.folder.get(), name, bytes, true);
}

Status Layer::publish(const std::string& name, std::string_view bytes) {
  Written written = publish_once(name, bytes);
  if (written.error == ENOENT || written.error == ESTALE) {
    // The folder was removed, or moved to another server, underneath our handles.
    forget_root();
    written = publish_once(name, bytes);
  }
  if (written.error != 0) return make_error(ErrorCode::kIo, written.problem, path_);
  return {};
}

Status Layer::write_note(Room which, const std::string& name, std::string_view bytes) {
  OpenedFolder why;
  const auto folder = root(true, &why);
  if (!folder) return make_error(ErrorCode::kIo, why.reason, path_);
  const OpenedFolder opened = room(*folder, which, true);
  if (opened.state != OpenedFolder::State::kOpen) {
    return make_error(ErrorCode::kIo, opened.reason, path_);
  }
  const Written written = write_to(*folder, opened.folder.get(), name, bytes, false);
  if (written.error != 0) return make_error(ErrorCode::kIo, written.problem, path_);
  return {};
}

Layer::Moved Layer::move_if_same(FileSystem::Handle from, const std::string& name,
                                 const FileStat& seen, FileSystem::Handle to,
                                 const std::string& new_name) {
  // An inode number is used again soon after its file is gone; with the stamp it is not mistaken.
  const auto same = [&](const FileStat& now) {
    return now.same_file(seen) && now.modified_ns == seen.modified_ns;
  };
  const auto before = uninterrupted([&] { return fs_.stat_at(from, name); });
  if (!before.ok()) return Moved::kFailed;
  if (!same(before.value)) return Moved::kChanged;
  if (uninterrupted([&] { return fs_.rename(from, name, to, new_name); }) != 0) {
    return Moved::kFailed;
  }
  const auto after = uninterrupted([&] { return fs_.stat_at(to, new_name); });
  if (!after.ok() || same(after.value)) return Moved::kMoved;
  // Between the look and the rename somebody published, or used, the file: give it back. link does
  // not replace what may have been published since.
  static_cast<void>(uninterrupted([&] { return fs_.link(to, new_name, from, name); }));
  static_cast<void>(uninterrupted([&] { return fs_.remove(to, new_name, false); }));
  return Moved::kChanged;
}

bool Layer::remove_if_same(const Root& root, std::string_view name, const FileStat& seen) {
  const OpenedFolder from = shard(root, name, false);
  const OpenedFolder to = room(root, Room::kTemporary, true);
  if (from.state != OpenedFolder::State::kOpen || to.state != OpenedFolder::State::kOpen) {
    return false;
  }
  const std::string aside = fmt::format("{:016x}", fs_.unique_id());
  if (move_if_same(from.folder.get(), std::string(name), seen, to.folder.get(), aside) !=
      Moved::kMoved) {
    return false;
  }
  return uninterrupted([&] { return fs_.remove(to.folder.get(), aside, false); }) == 0;
}

bool Layer::quarantine(const Root& root, const std::string& name, const FileStat& seen,
                       const std::string& problem) {
  const OpenedFolder from = shard(root, name, false);
  if (from.state != OpenedFolder::State::kOpen) return false;
  const OpenedFolder to = room(root, Room::kQuarantine, true);
  Moved moved = Moved::kFailed;
  std::string aside;
  if (to.state == OpenedFolder::State::kOpen) {
    aside = fmt::format("{:012}-{:016x}-{}", fs_.now_ns() / 1000000000, fs_.unique_id(), name);
    moved = move_if_same(from.folder.get(), name, seen, to.folder.get(), aside);
  }
  switch (moved) {
    case Moved::kMoved:
      ++quarantined_;
      log_.warning(fmt::format("bad entry {} of the cache {}: {}; moved to quarantine/{}", name,
                               path_, problem, aside));
      bound_quarantine(to.folder.get());
      return true;
    case Moved::kChanged:
      log_.info(
          fmt::format("bad entry {} of the cache {}: {}; replaced by now", name, path_, problem));
      return false;
    case Moved::kFailed:
      break;
  }
  const bool gone = remove_if_same(root, name, seen);
  const std::string text =
      fmt::format("bad entry {} of the cache {}: {}; it could not be moved to quarantine{}", name,
                  path_, problem, gone ? " and was removed" : "");
  if (gone) {
    log_.warning(text);
  } else {
    warn_of_entry(name, text);
  }
  return false;
}

void Layer::bound_quarantine(FileSystem::Handle folder) {
  auto names = uninterrupted([&] { return fs_.list(folder); });
  if (!names.ok() || names.value.size() <= kMaxQuarantined) return;
  std::sort(names.value.begin(), names.value.end());  // names begin with the time
  for (std::size_t i = 0; i + kMaxQuarantined < names.value.size(); ++i) {
    static_cast<void>(uninterrupted([&] { return fs_.remove(folder, names.value[i], false); }));
  }
}

}  // namespace attnjit::cache

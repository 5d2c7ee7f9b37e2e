// SPDX-License-Identifier: Apache-2.0
// Opens a folder or a file component by component, and refuses one that others may write to.
#include "cache/trusted_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <deque>

#include "cache/io.h"

namespace attnjit::cache {
namespace {

constexpr int kMaxLinks = 40;  // what the kernel follows, too

OpenedFolder failed(int error, const std::string& what = {}) {
  OpenedFolder outcome;
  outcome.state = error == ENOENT ? OpenedFolder::State::kMissing : OpenedFolder::State::kError;
  outcome.error = error;
  outcome.reason = what + error_text(error);
  return outcome;
}

OpenedFolder refused(std::string reason) {
  OpenedFolder outcome;
  outcome.state = OpenedFolder::State::kRefused;
  outcome.error = EPERM;
  outcome.reason = std::move(reason);
  return outcome;
}

void push_front(std::deque<std::string>& components, const std::string& path) {
  std::deque<std::string> parts;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    std::string part = path.substr(begin, end - begin);
    if (!part.empty() && part != ".") parts.push_back(std::move(part));
    begin = end + 1;
  }
  components.insert(components.begin(), parts.begin(), parts.end());
}

// A new folder survives a power loss only when its parent was synced. Best effort: a parent that we
// cannot list cannot be synced either.
void sync_parent(FileSystem& fs, FileSystem::Handle parent) {
  const auto folder = open_file(fs, parent, ".", FileSystem::Open::kFolder);
  if (folder.ok()) {
    static_cast<void>(uninterrupted([&] { return fs.sync(folder.value.get()); }));
  }
}

int make_folder(FileSystem& fs, FileSystem::Handle parent, const std::string& name,
                std::uint32_t mode) {
  const int error = uninterrupted([&] { return fs.make_folder(parent, name, mode); });
  if (error == EEXIST) return 0;  // another process was faster
  if (error == 0) sync_parent(fs, parent);
  return error;
}

// What a path leads to.
enum class Leaf : std::uint8_t { kFolder, kFile };

// `who`: of what the reason speaks, "it " or "entries ".
OpenedFolder checked(FileSystem& fs, const Trust& trust, File folder, const std::string& who,
                     Leaf leaf = Leaf::kFolder) {
  const auto stat = uninterrupted([&] { return fs.stat(folder.get()); });
  if (!stat.ok()) return failed(stat.error);
  OpenedFolder outcome;
  outcome.state = OpenedFolder::State::kOpen;
  if (std::string problem =
          leaf == Leaf::kFolder ? trust.folder_problem(stat.value) : trust.file_problem(stat.value);
      !problem.empty()) {
    outcome = refused(who + problem);
  }
  outcome.folder = std::move(folder);
  outcome.stat = stat.value;
  return outcome;
}

// trust null: anything goes. Of a file, `folder` of the outcome is its handle.
OpenedFolder walk(FileSystem& fs, const Trust* trust, const std::string& path, bool create,
                  Leaf leaf = Leaf::kFolder) {
  if (path.empty()) return refused("the path is empty");
  if (path.find('\0') != std::string::npos) return refused("the path holds a NUL");
  std::deque<std::string> components;
  push_front(components, path);
  auto root = uninterrupted([&] { return fs.open_root(path.front() != '/'); });
  if (!root.ok()) return failed(root.error);
  File current(fs, root.value);
  if (components.empty()) components.emplace_back(".");

  int links = 0;
  while (!components.empty()) {
    const std::string name = components.front();
    components.pop_front();
    auto stat = uninterrupted([&] { return fs.stat_at(current.get(), name); });
    if (stat.error == ENOENT && create) {
      if (const int error = make_folder(fs, current.get(), name, 0700); error != 0) {
        return failed(error, fmt::format("cannot make {}: ", name));
      }
      stat = uninterrupted([&] { return fs.stat_at(current.get(), name); });
    }
    if (!stat.ok()) return failed(stat.error);
    if (stat.value.type == FileStat::Type::kSymlink) {
      // NOTE: in a folder that others can write to, a link may be a stranger's and lead anywhere,
      // also to a folder of our own that was never meant to be a cache. Our own links are fine:
      // ~/.cache often is one.
      if (trust != nullptr && !trust->owner(stat.value.owner)) {
        return refused(fmt::format("it leads through a symbolic link ({}) of user {}", name,
                                   stat.value.owner));
      }
      if (++links > kMaxLinks) return failed(ELOOP);
      const auto target = uninterrupted([&] { return fs.read_link(current.get(), name); });
      if (!target.ok()) return failed(target.error);
      if (target.value.empty()) return failed(ENOENT);
      if (target.value.front() == '/') {
        auto again = uninterrupted([&] { return fs.open_root(false); });
        if (!again.ok()) return failed(again.error);
        current = File(fs, again.value);
      }
      push_front(components, target.value);
      if (components.empty()) components.emplace_back(".");
      continue;
    }
    const bool last = components.empty();
    auto next = open_file(fs, current.get(), name,
                          !last                   ? FileSystem::Open::kFolderPath
                          : leaf == Leaf::kFolder ? FileSystem::Open::kFolder
                                                  : FileSystem::Open::kRead);
    if (!next.ok()) return failed(next.error);
    current = std::move(next.value);
  }
  if (trust != nullptr) return checked(fs, *trust, std::move(current), "it ", leaf);
  OpenedFolder outcome;
  outcome.state = OpenedFolder::State::kOpen;
  outcome.folder = std::move(current);
  return outcome;
}

}  // namespace

bool Trust::owner(std::uint32_t id) const {
  return id == user || id == 0 || std::find(others.begin(), others.end(), id) != others.end();
}

std::string Trust::folder_problem(const FileStat& stat) const {
  return stat.type == FileStat::Type::kFolder ? writer_problem(stat) : "is not a folder";
}

std::string Trust::file_problem(const FileStat& stat) const {
  return stat.type == FileStat::Type::kFile ? writer_problem(stat) : "is not a regular file";
}

std::string Trust::writer_problem(const FileStat& stat) const {
  if (!owner(stat.owner)) {
    return fmt::format("belongs to user {}, not to user {} or root", stat.owner, user);
  }
  if ((stat.mode & 0022) != 0) {
    return fmt::format("has mode {:04o}: others can write to it (chmod go-w would mend that)",
                       stat.mode);
  }
  return {};
}

OpenedFolder open_trusted_path(FileSystem& fs, const Trust& trust, const std::string& path,
                               bool create) {
  return walk(fs, &trust, path, create);
}

OpenedFile open_trusted_file(FileSystem& fs, const Trust& trust, const std::string& path) {
  OpenedFolder found = walk(fs, &trust, path, false, Leaf::kFile);
  if (found.state != OpenedFolder::State::kOpen) found.folder.reset();
  return {found.state, std::move(found.folder), found.stat, std::move(found.reason)};
}

OpenedFolder open_any_path(FileSystem& fs, const std::string& path) {
  return walk(fs, nullptr, path, false);
}

OpenedFolder open_trusted_child(FileSystem& fs, const Trust& trust, FileSystem::Handle parent,
                                const std::string& name, bool create, std::uint32_t mode) {
  auto opened = open_file(fs, parent, name, FileSystem::Open::kFolder);
  if (opened.error == ENOENT && create) {
    if (const int error = make_folder(fs, parent, name, mode); error != 0) {
      return failed(error, fmt::format("cannot make {}: ", name));
    }
    opened = open_file(fs, parent, name, FileSystem::Open::kFolder);
  }
  if (opened.error == ELOOP || opened.error == ENOTDIR) return refused(name + " is not a folder");
  if (!opened.ok()) return failed(opened.error, name + ": ");
  return checked(fs, trust, std::move(opened.value), name + " ");
}

}  // namespace attnjit::cache

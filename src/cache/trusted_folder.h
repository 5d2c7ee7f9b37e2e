// SPDX-License-Identifier: Apache-2.0
// Opening a folder whose content may be handed to the driver, or a file of keys: who may have
// written it is checked on the open descriptor, and no symbolic link of a stranger is followed on
// the way.
//
// Thread rules: free functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/file_system.h"

namespace attnjit::cache {

/// Whose files are believed: this user's, root's, and those of further users.
struct Trust {
  std::uint32_t user = 0;
  std::vector<std::uint32_t> others;

  bool owner(std::uint32_t id) const;
  /// Empty, or why the folder is not to be trusted: it belongs to someone else, or its group or
  /// anyone may write to it.
  std::string folder_problem(const FileStat& stat) const;
  /// The same of a file in such a folder.
  std::string file_problem(const FileStat& stat) const;

 private:
  std::string writer_problem(const FileStat& stat) const;
};

struct OpenedFolder {
  enum class State : std::uint8_t {
    kOpen,
    kMissing,
    kRefused,  ///< not to be trusted
    kError,    ///< the file system failed; `error` is the errno
  };
  State state = State::kMissing;
  File folder;    ///< kOpen; kRefused, too, where it got that far
  FileStat stat;  ///< of `folder`
  int error = 0;
  /// Unless kOpen. A path is not in it, as who gave it knows it; the name of a child is.
  std::string reason;
};

/// Opens a folder by its path. `create`: missing folders on the way are made, with mode 0700.
OpenedFolder open_trusted_path(FileSystem& fs, const Trust& trust, const std::string& path,
                               bool create);

/// A file that was opened to be read.
struct OpenedFile {
  OpenedFolder::State state = OpenedFolder::State::kMissing;
  File file;  ///< kOpen
  FileStat stat;
  std::string reason;  ///< unless kOpen
};

/// Opens a file by its path, which may lead through links and be one: those of a trusted owner. Who
/// may have written to the folders on the way is not asked.
OpenedFile open_trusted_file(FileSystem& fs, const Trust& trust, const std::string& path);

/// Opens a folder that need not be trusted: where the user wants a bundle written or read.
OpenedFolder open_any_path(FileSystem& fs, const std::string& path);

/// Opens a folder inside a trusted one. `create`: made with `mode`, and the parent is synced.
OpenedFolder open_trusted_child(FileSystem& fs, const Trust& trust, FileSystem::Handle parent,
                                const std::string& name, bool create, std::uint32_t mode);

}  // namespace attnjit::cache

// SPDX-License-Identifier: Apache-2.0
// Chooses the cache folders: those that the environment names, else the one under XDG.
#include <algorithm>

#include "attnjit/cache.h"
#include "base/environment.h"
#include "cache/default_layers.h"
#include "cache/io.h"
#include "cache/trusted_folder.h"

namespace attnjit::cache {
namespace {

// The default folder is made below HOME, so HOME must exist and be ours to write: a service account
// with HOME=/nonexistent, or a root shell with another user's HOME, gets no cache rather than
// folders where they do not belong.
bool is_own_folder(FileSystem& fs, const std::string& path) {
  Trust trust;
  trust.user = fs.user();
  const OpenedFolder home = open_trusted_path(fs, trust, path, false);
  // Others' write access to HOME is no reason to go without: the cache folder itself is checked.
  return home.folder && trust.owner(home.stat.owner);
}

}  // namespace

std::vector<std::string> default_layers(const Environment& environment, FileSystem& fs) {
  if (environment.cache_dir) {
    std::vector<std::string> layers;
    const std::string& list = *environment.cache_dir;
    std::size_t begin = 0;
    while (begin <= list.size()) {
      const std::size_t end = std::min(list.find(':', begin), list.size());
      if (end > begin) layers.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
    return layers;
  }
  // The XDG specification: a relative path is invalid and ignored.
  if (environment.xdg_cache_home && environment.xdg_cache_home->front() == '/') {
    return {*environment.xdg_cache_home + "/attnjit"};
  }
  if (environment.home && environment.home->front() == '/' &&
      is_own_folder(fs, *environment.home)) {
    return {*environment.home + "/.cache/attnjit"};
  }
  return {};
}

}  // namespace attnjit::cache

namespace attnjit {

std::vector<std::string> default_cache_layers() {
  return cache::default_layers(read_environment(), cache::posix_file_system());
}

}  // namespace attnjit

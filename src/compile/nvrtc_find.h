// SPDX-License-Identifier: Apache-2.0
// Where NVRTC is, and which build it is, without opening it.
//
// Thread rules: functions of their arguments and the file system; NvrtcLocator is thread-safe.
#pragma once

#include <sys/stat.h>

#include <mutex>
#include <string>
#include <vector>

#include "attnjit/result.h"

namespace attnjit {

struct NvrtcLocation {
  std::string path;      ///< absolute
  std::string build_id;  ///< lower-case hex: the library's GNU build id, else its SHA-256
  std::string why;       ///< this one is taken: "CUDA_HOME names its folder"
};

/// A place to look in, and what made it one.
struct NvrtcPlace {
  std::string path;
  std::string why;
};

/// What the search is told; see default_nvrtc_search.
struct NvrtcSearch {
  NvrtcPlace given;                 ///< nothing else is tried when its path is set
  std::vector<NvrtcPlace> folders;  ///< that may hold libnvrtc.so.13 or .12, in order
  std::vector<NvrtcPlace> paths;    ///< of libraries, after the folders
  bool system_names = true;         ///< at last, bare names through the dynamic linker
};

/// The given path, else ATTNJIT_NVRTC, else in this order: CUDA_HOME or CUDA_PATH, wheels beside
/// this library, /usr/local/cuda, the library that the build found, the dynamic linker's folders.
NvrtcSearch default_nvrtc_search(std::string explicit_path);

/// The first library that exists. Errors: kEnvironment with everything that was looked for.
Result<NvrtcLocation> find_nvrtc(const NvrtcSearch& search);

/// The identity of a library file: its GNU build id note, else the SHA-256 of its bytes. Errors:
/// kEnvironment where it is no ELF library that can be read.
Result<std::string> library_build_id(const std::string& path);

/// Remembers where NVRTC was found; notices when the file there is replaced.
///
/// Thread rules: locate may be called from any thread.
class NvrtcLocator {
 public:
  explicit NvrtcLocator(NvrtcSearch search) : search_(std::move(search)) {}

  /// Errors: those of find_nvrtc.
  Result<NvrtcLocation> locate();

 private:
  const NvrtcSearch search_;
  std::mutex mutex_;
  NvrtcLocation location_;  ///< path empty: not found yet
  struct stat seen_ {};     ///< the file whose build id is in location_
};

}  // namespace attnjit

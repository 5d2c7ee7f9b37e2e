// SPDX-License-Identifier: Apache-2.0
// Whole reads and writes over the FileSystem seam: interrupted calls are repeated, short ones
// continued.
//
// Thread rules: free functions without state.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cache/file_system.h"

namespace attnjit::cache {

/// Repeats a call that was interrupted. Bounded, so that a file system that does nothing but
/// interrupt cannot hang a request.
template <typename Call>
auto uninterrupted(Call&& call) {
  auto outcome = call();
  for (int attempt = 0; attempt < 100; ++attempt) {
    int error = 0;
    if constexpr (std::is_same_v<decltype(outcome), int>) {
      error = outcome;
    } else {
      error = outcome.error;
    }
    if (error != EINTR) break;
    outcome = call();
  }
  return outcome;
}

/// Opens, repeated where interrupted.
IoResult<File> open_file(FileSystem& fs, FileSystem::Handle folder, const std::string& name,
                         FileSystem::Open how, std::uint32_t mode = 0600);

/// Reads until `size` bytes or the end of the file; gives the bytes read.
IoResult<std::size_t> read_up_to(FileSystem& fs, FileSystem::Handle file, void* data,
                                 std::size_t size);

/// Writes all, or gives an errno.
int write_all(FileSystem& fs, FileSystem::Handle file, const void* data, std::size_t size);

/// The errno's text.
std::string error_text(int error);

}  // namespace attnjit::cache

// SPDX-License-Identifier: Apache-2.0
// Implements whole reads and writes over the FileSystem seam.
#include "cache/io.h"

#include <system_error>

namespace attnjit::cache {

IoResult<File> open_file(FileSystem& fs, FileSystem::Handle folder, const std::string& name,
                         FileSystem::Open how, std::uint32_t mode) {
  auto opened = uninterrupted([&] { return fs.open(folder, name, how, mode); });
  if (!opened.ok()) return {File(), opened.error};
  return {File(fs, opened.value)};
}

IoResult<std::size_t> read_up_to(FileSystem& fs, FileSystem::Handle file, void* data,
                                 std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    const auto part = uninterrupted(
        [&] { return fs.read(file, static_cast<std::uint8_t*>(data) + done, size - done); });
    if (!part.ok()) return {done, part.error};
    if (part.value == 0) break;
    done += part.value;
  }
  return {done};
}

int write_all(FileSystem& fs, FileSystem::Handle file, const void* data, std::size_t size) {
  std::size_t done = 0;
  int idle = 0;
  while (done < size) {
    const auto part = uninterrupted(
        [&] { return fs.write(file, static_cast<const std::uint8_t*>(data) + done, size - done); });
    if (!part.ok()) return part.error;
    idle = part.value == 0 ? idle + 1 : 0;
    if (idle > 16) return EIO;
    done += part.value;
  }
  return 0;
}

std::string error_text(int error) { return std::generic_category().message(error); }

}  // namespace attnjit::cache

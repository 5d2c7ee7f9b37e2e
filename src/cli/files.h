// SPDX-License-Identifier: Apache-2.0
// Files that a user names: bounded reading of untrusted input, and writing of results.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "attnjit/result.h"

namespace attnjit::cli {

/// What a flag or a file holds is not allowed. kInvalid.
inline Error invalid(std::string field, std::string message) {
  return make_error(ErrorCode::kInvalid, std::move(message), std::move(field));
}

inline constexpr std::int64_t kMaxManifestBytes = 16 << 20;  ///< read_file's bound for a manifest

/// The whole text of a file, pipe or ("-") standard input. Errors: kInvalid, field the path: it
/// cannot be read, is a folder, or is longer than max_bytes.
Result<std::string> read_file(const std::string& path, std::int64_t max_bytes);

/// Errors: kIo, field the path.
Status write_file(const std::string& path, std::string_view bytes);

/// Writes a file so that whoever reads it, and whatever interrupts this, sees the old bytes or the
/// new ones. A link keeps pointing to the file. Errors: kIo, field the path; kInvalid where it is
/// there and no regular file.
Status replace_file(const std::string& path, std::string_view bytes);

/// Whether replace_file has a folder to write to and a name that it may take. Errors: as its.
Status check_replaceable(const std::string& path);

/// Writes all bytes to a descriptor; false with errno where that failed.
bool write_all(int descriptor, std::string_view bytes);

}  // namespace attnjit::cli

// SPDX-License-Identifier: Apache-2.0
// LAUNCH.json: the launches of a plan with their buffers as a text file, for `attnjit generate -o`
// and `attnjit emulate`.
//
// The format is docs/emulator.md's; paths are relative to the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/launch.h"

namespace attnjit {

/// A buffer of a launch: read from a .npy file, or made.
struct LaunchBuffer {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::string file;                 ///< empty: made, of `shape`
  std::vector<std::int64_t> shape;  ///< unused where there is a file
  std::optional<double> fill;       ///< nullopt: uninitialised
  bool left_zero = false;           ///< it must be zero after the launches

  bool operator==(const LaunchBuffer&) const = default;
};

/// A launch as a file holds it.
struct LaunchDocument {
  LaunchSequence sequence;  ///< its workspaces are among the buffers of the file
  std::vector<LaunchBuffer> buffers;
  std::map<std::string, std::string> out;  ///< buffer name to the .npy file that it is written to
  std::uint64_t seed = 0;
  std::int64_t max_steps = 0;  ///< warp instructions; 0: the reader's default

  bool operator==(const LaunchDocument&) const = default;
};

/// The text of a launch. Workspaces that `buffers` does not name are added as u8 buffers.
std::string launch_to_json(const LaunchDocument& document);

/// Reads a launch. Workspaces come back as buffers. Errors: kInvalid with every problem, its field,
/// line and column: text that is not JSON, an unknown or missing field, one given twice, a value of
/// the wrong type or range, an argument or a tensor map that names no buffer.
Result<LaunchDocument> launch_from_json(std::string_view json);

}  // namespace attnjit

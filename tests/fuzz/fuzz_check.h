// SPDX-License-Identifier: Apache-2.0
// What fuzz targets of the readers of text promise alike.
#pragma once

#include <cstdlib>

#include "attnjit/result.h"

namespace attnjit::fuzz {

inline void require(bool holds) {
  if (!holds) std::abort();
}

/// What is refused is refused as invalid, with a bounded text that a terminal can show.
inline void check_error(const Error& error) {
  require(error.code == ErrorCode::kInvalid && !error.message.empty());
  require(error.others.size() <= 256);
  for (const char c : error.to_string()) require(c == '\n' || (c >= 0x20 && c <= 0x7e));
}

}  // namespace attnjit::fuzz

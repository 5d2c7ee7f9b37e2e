// SPDX-License-Identifier: Apache-2.0
// Two examples of each command, for its help and the man page.
//
// Thread rules: constant data.
#pragma once

#include <string>
#include <string_view>

namespace attnjit::cli {

/// "Examples:" and a line each, of a command's path ("plan", "cache gc"); empty: there are none.
std::string examples_of(std::string_view path);

}  // namespace attnjit::cli

// SPDX-License-Identifier: Apache-2.0
// What is wrong with a command line, as the other errors say it: the field, what is allowed, and
// whose help says more.
//
// Thread rules: pure functions.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>

#include "attnjit/result.h"

namespace attnjit::cli {

/// What CLI11 refused. Its own texts name no field, and no value that is allowed.
Error usage_error(const CLI::App& app, const CLI::ParseError& refused, int argc,
                  const char* const* argv);

/// The first value that CLI11 takes and no command should: an empty one, as of a variable that a
/// script does not set, the name of the option behind, or a number that is cut off. Empty: none.
std::optional<Error> bad_value(const CLI::App& app);

/// The group of the flags of a spec's fields.
inline constexpr const char* kSpecGroup = "Spec";

}  // namespace attnjit::cli

// SPDX-License-Identifier: Apache-2.0
// What is for eyes alone: colours, and how wide a terminal is.
//
// Thread rules: pure functions of their arguments and the environment.
#pragma once

#include <string>
#include <string_view>

namespace attnjit::cli {

/// Whether text for the descriptor may have colours: it is a terminal, NO_COLOR (no-color.org) is
/// not set to anything, and TERM is not "dumb".
bool takes_colours(int descriptor);

/// A result, with the words coloured that tell how something went: "passed", "FAILED", ..
std::string coloured(std::string_view text);

/// A message, with who says it coloured: what stands before the first colon.
std::string coloured_message(std::string_view text);

/// Of a terminal; 80 where it does not say.
int columns_of(int descriptor);

}  // namespace attnjit::cli

// SPDX-License-Identifier: Apache-2.0
// printable: text from files that anybody may have written, made safe for a terminal.
//
// Thread rules: a pure function.
#pragma once

#include <string>
#include <string_view>

namespace attnjit {

/// The text with every control character but line ends and tabs, and every byte that is no UTF-8,
/// as \xNN: nothing in it moves a cursor, changes a title or types for the user.
std::string printable(std::string_view text);

}  // namespace attnjit

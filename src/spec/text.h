// SPDX-License-Identifier: Apache-2.0
// Small text helpers of the spec room's messages: safe quoting, suggestions, lists.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attnjit/result.h"

namespace attnjit::spec {

/// `text` in double quotes for a message: bytes that are not printable ASCII become \xNN, and what
/// is long is cut. The result is valid UTF-8 on one line whatever the input.
std::string in_quotes(std::string_view text);

/// As in_quotes, without the quotes: for numbers and other bare spellings.
std::string printable(std::string_view text, std::size_t max_length = 60);

/// The candidate closest to `name` if it is close enough to be a misspelling, else empty.
std::string_view closest(std::string_view name, std::span<const std::string_view> candidates);

/// "a, b, c".
std::string join(std::span<const std::string_view> items);

/// An Error of kind kInvalid at a field.
template <class... Args>
Error invalid(std::string field, fmt::format_string<Args...> message, Args&&... args) {
  return make_error(ErrorCode::kInvalid, fmt::format(message, std::forward<Args>(args)...),
                    std::move(field));
}

/// The first problem as an Error that carries the rest in `others`. @pre not empty.
Error combine(std::vector<Error> problems);

/// What C's names are made of, in any locale.
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_name_begin(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
constexpr bool is_name_part(char c) { return is_name_begin(c) || is_digit(c); }

/// True for [A-Za-z_][A-Za-z0-9_]*.
bool is_identifier(std::string_view text);

/// True for a keyword of C++ or CUDA and for names that the language reserves (a leading
/// underscore or two in a row).
bool is_reserved_identifier(std::string_view text);

/// The line of a snippet that an error names, with a caret below its column:
///     p.doc[q_idx] = 3
///                  ^
/// Long lines are cut around the column. Empty if the snippet has no such place.
std::string caret_excerpt(std::string_view code, int line, int column);

}  // namespace attnjit::spec

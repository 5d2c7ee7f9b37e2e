// SPDX-License-Identifier: Apache-2.0
// The user and the password of a URL, apart from what may be shown of it.
//
// Thread rules: a pure function and a plain value.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attnjit::net {

/// What follows `SCHEME://`, in two parts: what is before the last `@` is never shown.
struct UrlParts {
  bool has_user = false;
  std::string user, password;  ///< %XX is decoded
  std::string_view rest;       ///< HOST[:PORT][/PATH]
};

/// Nothing where what is before the last `@` is no user and password as RFC 3986 has them: `/`,
/// `?`,
/// `#`, `@`, `%` and others stand there as %XX only.
std::optional<UrlParts> split_user(std::string_view after_scheme);

/// The error's text for that; it shows nothing of the URL.
inline constexpr std::string_view kBadUser =
    "the user and the password before the last `@` hold a character that must be written as %XX";

}  // namespace attnjit::net

// SPDX-License-Identifier: Apache-2.0
// Splits a URL at its last `@`, and decodes what is before it.
#include "net/url.h"

#include <charconv>

namespace attnjit::net {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("-._~!$&'()*+,;=").find(c) != std::string_view::npos;
}

std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      if (!is_plain(text[at]) && text[at] != ':') return std::nullopt;
      out.push_back(text[at]);
      continue;
    }
    const std::string_view digits = text.substr(at + 1, 2);
    unsigned value = 0;
    const auto [stop, status] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (status != std::errc{} || digits.size() != 2 || stop != digits.data() + 2) {
      return std::nullopt;
    }
    out.push_back(static_cast<char>(value));
    at += 2;
  }
  return out;
}

}  // namespace

std::optional<UrlParts> split_user(std::string_view after_scheme) {
  UrlParts parts;
  const std::size_t at = after_scheme.rfind('@');
  parts.has_user = at != std::string_view::npos;
  parts.rest = parts.has_user ? after_scheme.substr(at + 1) : after_scheme;
  if (!parts.has_user) return parts;
  const std::string_view who = after_scheme.substr(0, at);
  const std::size_t colon = who.find(':');
  auto user = decoded(who.substr(0, colon));
  auto password = decoded(colon == std::string_view::npos ? "" : who.substr(colon + 1));
  if (!user || !password) return std::nullopt;
  parts.user = *std::move(user);
  parts.password = *std::move(password);
  return parts;
}

}  // namespace attnjit::net

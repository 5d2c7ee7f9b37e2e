// SPDX-License-Identifier: Apache-2.0
// SHA-256 by OpenSSL, and lower-case hex.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace attnjit {

using Sha256Digest = std::array<std::uint8_t, 32>;

Sha256Digest sha256(const void* data, std::size_t size);
inline Sha256Digest sha256(std::string_view text) { return sha256(text.data(), text.size()); }

std::string to_hex(const std::uint8_t* data, std::size_t size);
inline std::string to_hex(const Sha256Digest& digest) {
  return to_hex(digest.data(), digest.size());
}

}  // namespace attnjit

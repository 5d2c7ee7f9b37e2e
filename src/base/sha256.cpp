// SPDX-License-Identifier: Apache-2.0
// Implements SHA-256 with OpenSSL, and lower-case hexadecimal text.
#include "base/sha256.h"

#include <openssl/sha.h>

namespace attnjit {

Sha256Digest sha256(const void* data, std::size_t size) {
  Sha256Digest digest;
  // NOTE: the one-shot SHA256(), not EVP: EVP fetches its provider on each call and costs more than
  // the hash of a small key.
  SHA256(static_cast<const unsigned char*>(data), size, digest.data());
  return digest;
}

std::string to_hex(const std::uint8_t* data, std::size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(size * 2);
  for (std::size_t i = 0; i < size; ++i) {
    text.push_back(kDigits[data[i] >> 4]);
    text.push_back(kDigits[data[i] & 15]);
  }
  return text;
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// FileHash: the digest of a file that is read or written piece by piece, by OpenSSL.
//
// Thread rules: an object belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace attnjit::cache {

class FileHash {
 public:
  enum class Kind : std::uint8_t { kBlake2b512, kSha256 };
  explicit FileHash(Kind kind);
  void add(std::string_view bytes);
  std::string finish();

 private:
  std::shared_ptr<void> context_;  // EVP_MD_CTX
};

}  // namespace attnjit::cache

// SPDX-License-Identifier: Apache-2.0
// Digests piece by piece.
#include "cache/file_hash.h"

#include <openssl/evp.h>

namespace attnjit::cache {
namespace {

EVP_MD_CTX* as_context(const std::shared_ptr<void>& context) {
  return static_cast<EVP_MD_CTX*>(context.get());
}

}  // namespace

FileHash::FileHash(Kind kind)
    : context_(EVP_MD_CTX_new(),
               [](void* old) { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(old)); }) {
  EVP_DigestInit_ex(as_context(context_), kind == Kind::kSha256 ? EVP_sha256() : EVP_blake2b512(),
                    nullptr);
}

void FileHash::add(std::string_view bytes) {
  EVP_DigestUpdate(as_context(context_), bytes.data(), bytes.size());
}

std::string FileHash::finish() {
  std::string hash(EVP_MAX_MD_SIZE, '\0');
  unsigned size = 0;
  EVP_DigestFinal_ex(as_context(context_), reinterpret_cast<unsigned char*>(hash.data()), &size);
  hash.resize(size);
  return hash;
}

}  // namespace attnjit::cache

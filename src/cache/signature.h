// SPDX-License-Identifier: Apache-2.0
// The signature of an entry: a trailer of fixed size behind its last section. cache/README.md
// describes it byte by byte.
//
// Thread rules: pure functions and plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "attnjit/types.h"
#include "cache/keys.h"

namespace attnjit::cache {

/// Raised by hand when kernels of older templates must not be served any more. What is signed holds
/// it, and a keyring can refuse what is older.
inline constexpr std::uint64_t kTemplateVersion = 1;

/// Of a header, and of the metadata's architecture, by `key`.
/// @pre header.size() == kHeaderBytes
std::string sign_entry(std::string_view header, Arch arch, const SecretKey& key);

/// Whether the bytes look like what sign_entry makes.
bool is_trailer(std::string_view bytes);

/// What a signature that verified says.
struct Signed {
  Arch arch = Arch::kSm100a;
  KeyId key{};
  std::uint64_t template_version = 0;
};
/// Errors: kCorrupt with what is wrong: no trailer, a key that is not in the ring, a signature that
/// does not verify, a template version that the ring refuses.
Result<Signed> verify_entry_signature(std::string_view header, std::string_view trailer,
                                      const Keyring& ring);

}  // namespace attnjit::cache

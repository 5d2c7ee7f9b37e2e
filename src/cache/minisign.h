// SPDX-License-Identifier: Apache-2.0
// Signatures of whole files in minisign's format (FILE.minisig): what minisign signs verifies here,
// and what is signed here verifies with minisign.
//
// Thread rules: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "cache/keys.h"

namespace attnjit::cache {

/// The text of FILE.minisig, of the file's BLAKE2b-512. `comment` is signed too; it has one line.
std::string minisign(const std::string& file_hash, std::string_view comment, const SecretKey& key);

/// The trusted comment of a signature that verifies. Errors: kCorrupt with what is wrong.
Result<std::string> verify_minisign(const std::string& file_hash, std::string_view text,
                                    const Keyring& ring);

}  // namespace attnjit::cache

// SPDX-License-Identifier: Apache-2.0
// Trust in signatures: the keyring and the secret key that SignatureOptions name, read from files.
//
// Thread rules: an immutable value.
#pragma once

#include <memory>
#include <optional>

#include "attnjit/cache.h"
#include "cache/file_system.h"
#include "cache/keys.h"

namespace attnjit::cache {

struct SignatureTrust {
  std::shared_ptr<const Keyring> ring;  ///< null: no signature is asked for
  std::optional<SecretKey> key;         ///< signs what is stored
  bool require_everywhere = false;

  /// The keys that must have signed what comes from a layer on disk; null: none need.
  const Keyring* layer_keyring(bool first) const {
    return first && !require_everywhere ? nullptr : ring.get();
  }
};

/// Errors: kInvalid where a file cannot be read, is none of its kind, belongs to somebody else than
/// this user and root, or lets others write to it or at a secret key.
Result<SignatureTrust> read_trust(const SignatureOptions& options,
                                  FileSystem& fs = posix_file_system());

}  // namespace attnjit::cache

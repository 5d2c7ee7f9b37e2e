// SPDX-License-Identifier: Apache-2.0
// Ed25519 keys: a secret key signs; a keyring holds the public keys that are believed.
//
// Thread rules: immutable values; any thread may use them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/result.h"

namespace attnjit::cache {

using KeyId = std::array<std::uint8_t, 8>;
using Signature = std::array<std::uint8_t, 64>;

struct PublicKey {
  KeyId id{};
  std::array<std::uint8_t, 32> point{};

  bool verifies(std::string_view message, const Signature& signature) const;
  /// A public key file of minisign.
  std::string to_minisign() const;
};

/// As minisign prints it: sixteen upper-case digits.
std::string key_id_text(const KeyId& id);

class SecretKey {
 public:
  /// Errors: kInternal.
  static Result<SecretKey> generate();
  /// From a PKCS#8 PEM text without a passphrase. Errors: kInvalid.
  static Result<SecretKey> from_pem(const std::string& pem);
  std::string to_pem() const;

  /// Its id is the beginning of the SHA-256 of its point.
  const PublicKey& public_key() const { return public_; }
  Signature sign(std::string_view message) const;

 private:
  explicit SecretKey(std::shared_ptr<void> key);
  std::shared_ptr<void> key_;  // EVP_PKEY
  PublicKey public_;
};

class Keyring {
 public:
  /// Public key files of minisign, one behind another. Lines that are empty or begin with # or
  /// "untrusted comment:" count nothing. A line "least-template-version: N" refuses what was signed
  /// for older templates. Errors: kInvalid, with the line.
  static Result<Keyring> parse(std::string_view text);

  const PublicKey* find(const KeyId& id) const;
  std::uint64_t least_template_version() const { return least_template_version_; }

 private:
  std::vector<PublicKey> keys_;
  std::uint64_t least_template_version_ = 0;
};

std::string to_base64(std::string_view bytes);
std::optional<std::string> from_base64(std::string_view text);

}  // namespace attnjit::cache

// SPDX-License-Identifier: Apache-2.0
// Writes and reads minisign's signature files: those of the hashed kind, "ED".
#include "cache/minisign.h"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "cache/bytes.h"

namespace attnjit::cache {
namespace {

constexpr std::string_view kHashed = "ED";
constexpr std::string_view kTrusted = "trusted comment: ";
constexpr std::string_view kUntrusted = "untrusted comment: ";

std::string text_of(const Signature& signature) {
  return {reinterpret_cast<const char*>(signature.data()), signature.size()};
}

Signature signature_of(std::string_view bytes) {
  Signature signature{};
  std::memcpy(signature.data(), bytes.data(), signature.size());
  return signature;
}

}  // namespace

std::string minisign(const std::string& file_hash, std::string_view comment, const SecretKey& key) {
  const KeyId& id = key.public_key().id;
  const std::string signature = text_of(key.sign(file_hash));
  const std::string whole = text_of(key.sign(signature + std::string(comment)));
  const std::string head = std::string(kHashed) +
                           std::string(reinterpret_cast<const char*>(id.data()), id.size()) +
                           signature;
  return fmt::format("{}signature from attnjit\n{}\n{}{}\n{}\n", kUntrusted, to_base64(head),
                     kTrusted, comment, to_base64(whole));
}

Result<std::string> verify_minisign(const std::string& file_hash, std::string_view text,
                                    const Keyring& ring) {
  std::vector<std::string_view> lines;
  while (!text.empty() && lines.size() < 5) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (lines.size() != 4 || !lines[0].starts_with(kUntrusted) || !lines[2].starts_with(kTrusted)) {
    return corrupt("it is no signature file of minisign");
  }
  KeyId id{};
  const auto head = from_base64(lines[1]);
  const auto whole = from_base64(lines[3]);
  if (!head || head->size() != kHashed.size() + id.size() + sizeof(Signature) ||
      !head->starts_with(kHashed) || !whole || whole->size() != sizeof(Signature)) {
    return corrupt("it is no signature of the hashed kind that minisign makes");
  }
  std::memcpy(id.data(), head->data() + kHashed.size(), id.size());
  const PublicKey* key = ring.find(id);
  if (key == nullptr) {
    return corrupt(
        fmt::format("it is signed by the key {}, which is not in the keyring", key_id_text(id)));
  }
  const std::string signature = head->substr(kHashed.size() + id.size());
  const std::string comment(lines[2].substr(kTrusted.size()));
  if (!key->verifies(file_hash, signature_of(signature)) ||
      !key->verifies(signature + comment, signature_of(*whole))) {
    return corrupt("the signature does not verify");
  }
  return comment;
}

}  // namespace attnjit::cache

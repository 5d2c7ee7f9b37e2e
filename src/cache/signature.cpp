// SPDX-License-Identifier: Apache-2.0
// Makes and verifies the trailers of entries.
#include "cache/signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cache/bytes.h"
#include "cache/entry_format.h"

namespace attnjit::cache {
namespace {

constexpr std::string_view kTrailerMagic =
    "\x89"
    "ATNS\r\n\x1a";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kArchBytes = 16;
constexpr std::size_t kSignedBytes = kTrailerBytes - sizeof(Signature);

// What is signed begins with what it is: a signature of something else is none of an entry.
std::string message_of(std::string_view header, std::string_view trailer) {
  std::string message = "attnjit signed entry\n";
  message.append(header);
  message.append(trailer.substr(0, kSignedBytes));
  return message;
}

}  // namespace

std::string sign_entry(std::string_view header, Arch arch, const SecretKey& key) {
  std::string padded(to_string(arch));
  padded.resize(kArchBytes, '\0');
  const KeyId& id = key.public_key().id;
  ByteWriter out;
  out.raw(kTrailerMagic);
  out.u32(kVersion);
  out.u32(kTrailerBytes);
  out.raw({reinterpret_cast<const char*>(id.data()), id.size()});
  out.u64(kTemplateVersion);
  out.raw(padded);
  out.raw(std::string(kSignedBytes - out.bytes().size(), '\0'));
  const Signature signature = key.sign(message_of(header, out.bytes()));
  out.raw({reinterpret_cast<const char*>(signature.data()), signature.size()});
  return std::move(out).bytes();
}

bool is_trailer(std::string_view bytes) {
  return bytes.size() == kTrailerBytes && bytes.starts_with(kTrailerMagic);
}

Result<Signed> verify_entry_signature(std::string_view header, std::string_view trailer,
                                      const Keyring& ring) {
  if (trailer.empty()) return corrupt("it is not signed");
  if (!is_trailer(trailer)) {
    return corrupt("what follows its sections is no signature");
  }
  Signed said;
  std::memcpy(said.key.data(), trailer.data() + kTrailerMagic.size() + 8, said.key.size());
  const PublicKey* key = ring.find(said.key);
  if (key == nullptr) {
    return corrupt(fmt::format("it is signed by the key {}, which is not in the keyring",
                               key_id_text(said.key)));
  }
  Signature signature{};
  std::memcpy(signature.data(), trailer.data() + kSignedBytes, signature.size());
  if (!key->verifies(message_of(header, trailer), signature)) {
    return corrupt("its signature does not verify");
  }
  // From here on the bytes are what the key's owner wrote.
  ByteReader in(trailer.substr(kTrailerMagic.size()));
  const std::uint32_t version = in.u32();
  const std::uint32_t size = in.u32();
  static_cast<void>(in.raw(said.key.size()));
  said.template_version = in.u64();
  const std::string_view padded = in.raw(kArchBytes);
  const auto arch = arch_from_string(padded.substr(0, std::min(padded.find('\0'), kArchBytes)));
  if (version != kVersion || size != kTrailerBytes || !arch) {
    return corrupt("its signature is of a version that this attnjit does not know");
  }
  said.arch = *arch;
  if (said.template_version < ring.least_template_version()) {
    return corrupt(fmt::format("it was signed for template version {}; the keyring asks for {}",
                               said.template_version, ring.least_template_version()));
  }
  return said;
}

}  // namespace attnjit::cache

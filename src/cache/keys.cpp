// SPDX-License-Identifier: Apache-2.0
// Ed25519 by OpenSSL, and minisign's text form of public keys.
#include "cache/keys.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "base/sha256.h"

namespace attnjit::cache {
namespace {

constexpr std::string_view kAlgorithm = "Ed";

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, Freed<EVP_PKEY_CTX_free>>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, Freed<EVP_MD_CTX_free>>;
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

bool PublicKey::verifies(std::string_view message, const Signature& signature) const {
  const Key key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, point.data(), point.size()));
  const DigestContext context(EVP_MD_CTX_new());
  return key != nullptr && context != nullptr &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), signature.data(), signature.size(), bytes_of(message),
                          message.size()) == 1;
}

std::string key_id_text(const KeyId& id) {
  std::string text;
  for (auto byte = id.rbegin(); byte != id.rend(); ++byte) text += fmt::format("{:02X}", *byte);
  return text;
}

std::string PublicKey::to_minisign() const {
  std::string bytes(kAlgorithm);
  bytes.append(reinterpret_cast<const char*>(id.data()), id.size());
  bytes.append(reinterpret_cast<const char*>(point.data()), point.size());
  return fmt::format("untrusted comment: minisign public key {}\n{}\n", key_id_text(id),
                     to_base64(bytes));
}

SecretKey::SecretKey(std::shared_ptr<void> key) : key_(std::move(key)) {
  std::size_t size = public_.point.size();
  EVP_PKEY_get_raw_public_key(static_cast<EVP_PKEY*>(key_.get()), public_.point.data(), &size);
  const Sha256Digest digest = sha256(public_.point.data(), public_.point.size());
  std::copy_n(digest.begin(), public_.id.size(), public_.id.begin());
}

Result<SecretKey> SecretKey::generate() {
  const KeyContext context(EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, nullptr));
  EVP_PKEY* key = nullptr;
  if (context == nullptr || EVP_PKEY_keygen_init(context.get()) != 1 ||
      EVP_PKEY_keygen(context.get(), &key) != 1) {
    return make_error(ErrorCode::kInternal, "OpenSSL makes no Ed25519 key");
  }
  return SecretKey(
      std::shared_ptr<void>(key, [](void* old) { EVP_PKEY_free(static_cast<EVP_PKEY*>(old)); }));
}

Result<SecretKey> SecretKey::from_pem(const std::string& pem) {
  const Bio bio(BIO_new_mem_buf(pem.data(), static_cast<int>(std::min<std::size_t>(
                                                pem.size(), std::numeric_limits<int>::max()))));
  // NOTE: without a callback OpenSSL asks the terminal for a passphrase.
  const auto no_passphrase = [](char*, int, int, void*) { return 0; };
  EVP_PKEY* key = bio == nullptr
                      ? nullptr
                      : PEM_read_bio_PrivateKey(bio.get(), nullptr, +no_passphrase, nullptr);
  std::shared_ptr<void> owner(key, [](void* old) { EVP_PKEY_free(static_cast<EVP_PKEY*>(old)); });
  if (key == nullptr || EVP_PKEY_id(key) != EVP_PKEY_ED25519) {
    return make_error(ErrorCode::kInvalid, "it is no Ed25519 key in PEM without a passphrase",
                      "key", "make one with attnjit cache keygen");
  }
  return SecretKey(std::move(owner));
}

std::string SecretKey::to_pem() const {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || PEM_write_bio_PrivateKey(bio.get(), static_cast<EVP_PKEY*>(key_.get()),
                                                 nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return {};
  }
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

Signature SecretKey::sign(std::string_view message) const {
  Signature signature{};
  std::size_t size = signature.size();
  const DigestContext context(EVP_MD_CTX_new());
  if (context == nullptr ||
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr,
                         static_cast<EVP_PKEY*>(key_.get())) != 1 ||
      EVP_DigestSign(context.get(), signature.data(), &size, bytes_of(message), message.size()) !=
          1) {
    return {};  // verifies nothing
  }
  return signature;
}

Result<Keyring> Keyring::parse(std::string_view text) {
  constexpr std::string_view kLeast = "least-template-version:";
  Keyring ring;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#' || line.starts_with("untrusted comment:")) continue;
    const auto bad = [&](std::string message) {
      Error error = make_error(ErrorCode::kInvalid, std::move(message), "keyring",
                               "a keyring is one public key file of minisign behind another");
      error.line = number;
      return error;
    };
    if (line.starts_with(kLeast)) {
      line.remove_prefix(kLeast.size());
      while (line.starts_with(' ')) line.remove_prefix(1);
      std::uint64_t& least = ring.least_template_version_;
      const auto [stop, status] = std::from_chars(line.data(), line.data() + line.size(), least);
      if (status != std::errc{} || stop != line.data() + line.size()) {
        return bad("the least template version is no number");
      }
      continue;
    }
    PublicKey key;
    const auto bytes = from_base64(line);
    if (!bytes || bytes->size() != kAlgorithm.size() + key.id.size() + key.point.size() ||
        !bytes->starts_with(kAlgorithm)) {
      return bad("the line is no public key of minisign");
    }
    std::memcpy(key.id.data(), bytes->data() + kAlgorithm.size(), key.id.size());
    std::memcpy(key.point.data(), bytes->data() + kAlgorithm.size() + key.id.size(),
                key.point.size());
    ring.keys_.push_back(key);
  }
  return ring;
}

const PublicKey* Keyring::find(const KeyId& id) const {
  const auto found =
      std::find_if(keys_.begin(), keys_.end(), [&](const PublicKey& key) { return key.id == id; });
  return found == keys_.end() ? nullptr : &*found;
}

std::string to_base64(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes_of(bytes),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0 || text.size() > 4096) return std::nullopt;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()), bytes_of(text),
                                   static_cast<int>(text.size()));
  if (size < 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  bytes.resize(static_cast<std::size_t>(size) - padding);
  // NOTE: one text for one value: OpenSSL skips blanks at both ends.
  if (to_base64(bytes) != text) return std::nullopt;
  return bytes;
}

}  // namespace attnjit::cache

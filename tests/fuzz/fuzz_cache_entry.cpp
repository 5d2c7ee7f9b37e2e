// SPDX-License-Identifier: Apache-2.0
// Fuzz target: bytes of the cache as an entry, a bundle and a failure. What decodes must encode to
// itself; the rest must be refused without a read out of bounds.
#include <cstdlib>

#include "cache/bundle.h"
#include "cache/entry_format.h"
#include "cache/failures.h"
#include "fuzz_targets.h"

namespace attnjit::cache {
namespace {

// Digests stop a fuzzer at the door: it gets past them by having them made right.
std::string with_right_digests(std::string bytes) {
  const auto put = [&](std::size_t at, const Sha256Digest& digest) {
    bytes.replace(at, digest.size(), reinterpret_cast<const char*>(digest.data()), digest.size());
  };
  const auto size_at = [&](std::size_t at) {
    std::uint64_t value = 0;
    for (std::size_t i = 8; i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
    return value;
  };
  if (bytes.size() < kHeaderBytes) return bytes;
  std::uint64_t offset = kHeaderBytes;
  for (std::size_t i = 0; i < kSections; ++i) {
    const std::size_t row = 104 + 48 * i;
    const std::uint64_t size = size_at(row + 8);
    if (size > bytes.size() - offset) break;
    const Sha256Digest digest = sha256(bytes.data() + offset, static_cast<std::size_t>(size));
    put(row + 16, digest);
    if (i == 1) put(32, digest);  // the key is the digest of its material
    offset += size;
  }
  put(kHeaderBytes - 32, sha256(bytes.data(), kHeaderBytes - 32));
  return bytes;
}

void check_entry(std::string_view bytes) {
  const auto entry = decode_entry(bytes);
  if (!entry.ok()) return;
  RequestKey key;
  key.material = entry->key_material;
  key.hex = to_hex(entry->id.key);
  key.arch = entry->arch;
  const auto again = encode_entry(key, entry->build_id, entry->image, entry->created_unix_s);
  if (!again.ok() || *again != bytes) std::abort();
}

}  // namespace
}  // namespace attnjit::cache

namespace attnjit::fuzz {

void fuzz_cache_entry(std::string_view input) {
  using namespace cache;
  check_entry(input);
  check_entry(with_right_digests(std::string(input)));
  const auto header = decode_bundle_header(input, input.size());
  if (header.ok()) {
    static_cast<void>(decode_bundle_manifest(
        *header, input.substr(0, kBundleHeaderBytes + header->entries * kBundleRowBytes)));
  }
  static_cast<void>(decode_failure(input, EntryId{}));
}

}  // namespace attnjit::fuzz

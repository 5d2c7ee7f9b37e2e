// SPDX-License-Identifier: Apache-2.0
// The entry format: one image of one key and one compiler build as bytes. cache/README.md describes
// it byte by byte.
//
// Thread rules: pure functions and plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "attnjit/cache.h"
#include "base/sha256.h"

namespace attnjit::cache {

inline constexpr std::uint32_t kFormatVersion = 2;
/// The folder of a layer that holds everything of a format version: "v1".
std::string version_folder(std::uint32_t version = kFormatVersion);
inline constexpr std::size_t kHeaderBytes = 328;
/// What a signature (signature.h) adds behind the last section.
inline constexpr std::size_t kTrailerBytes = 128;

/// Upper bounds of what an entry may hold; what exceeds one is never written and never read.
inline constexpr std::uint64_t kMaxMetadataBytes = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMaxKeyMaterialBytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kMaxCubinBytes = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kMaxPtxBytes = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kMaxEntryBytes = kHeaderBytes + kMaxMetadataBytes +
                                                kMaxKeyMaterialBytes + kMaxCubinBytes +
                                                kMaxPtxBytes + kTrailerBytes;
inline constexpr std::size_t kMaxBuildIdBytes = 256;
inline constexpr std::size_t kMaxLogBytes = 65536;  ///< a longer log is cut

/// What identifies an entry: its file is named after it, and its header repeats it.
struct EntryId {
  Sha256Digest key{};
  Sha256Digest build{};  ///< SHA-256 of the build id
  bool operator==(const EntryId&) const = default;
};

/// nullopt where key.hex is not 64 lower-case hexadecimal digits.
std::optional<EntryId> entry_id(const RequestKey& key, std::string_view build_id);

/// "<64 hex of the key>.<32 hex of the build>.kernel", and back.
std::string file_name(const EntryId& id);
/// The digits before the extension; the build is known to 16 of its 32 bytes.
struct ParsedName {
  Sha256Digest key{};
  std::array<std::uint8_t, 16> build{};
  bool matches(const EntryId& id) const;
};
std::optional<ParsedName> parse_file_name(std::string_view name);

/// The sections in the order in which they follow the header.
enum class Section : std::uint8_t { kMetadata, kKeyMaterial, kCubin, kPtx };
inline constexpr int kSections = 4;

struct EntryHeader {
  EntryId id;
  std::int64_t created_unix_s = 0;
  bool has_trailer = false;
  std::uint64_t size[kSections] = {};
  Sha256Digest digest[kSections] = {};

  std::uint64_t offset(Section section) const;
  /// How much of the file holds what is wanted.
  std::uint64_t extent(struct Parts parts) const;
  std::uint64_t file_size() const;  ///< without a trailer
};

/// Everything in an entry.
struct Entry {
  EntryId id;
  std::int64_t created_unix_s = 0;
  std::string build_id;
  Arch arch = Arch::kSm100a;
  std::string key_material;
  KernelImage image;
};

/// The bytes of an entry. Errors: kInvalid where a part is empty that must not be (cubin, build id,
/// key) or exceeds its bound, or where key.hex is not the digest of key.material.
Result<std::string> encode_entry(const RequestKey& key, std::string_view build_id,
                                 const KernelImage& image, std::int64_t created_unix_s);

/// Checks and reads a header. `bytes` holds at least the first kHeaderBytes of a file of
/// `file_size` bytes. Errors: kCorrupt with what is wrong.
Result<EntryHeader> decode_header(std::string_view bytes, std::uint64_t file_size);

/// What is read of an entry, besides its metadata and key material.
struct Parts {
  bool cubin = true;
  bool ptx = true;
};

/// Reads the sections behind a header that decode_header accepted. Every section that is read is
/// verified. `bytes` is the file, as far as the last section that is wanted.
/// @param material compared with the stored key material; null: that is verified by its digest.
Result<Entry> decode_sections(const EntryHeader& header, std::string_view bytes,
                              const std::string* material, Parts parts = {});

/// Both, over a whole file.
Result<Entry> decode_entry(std::string_view bytes);

}  // namespace attnjit::cache

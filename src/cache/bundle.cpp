// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes the header and the manifest of a bundle.
#include "cache/bundle.h"

#include <tuple>

#include "cache/bytes.h"

namespace attnjit::cache {
namespace {

constexpr std::string_view kBundleMagic =
    "\x89"
    "ATNB\r\n\x1a";
constexpr std::size_t kBundleDigestOffset = kBundleHeaderBytes - 32;

// Of the header before its digest, and the manifest.
Sha256Digest head_digest(std::string_view head) {
  std::string covered(head.substr(0, kBundleDigestOffset));
  covered.append(head.substr(kBundleHeaderBytes));
  return sha256(covered);
}

}  // namespace

bool bundle_order(const EntryId& a, const EntryId& b) {
  return std::tie(a.key, a.build) < std::tie(b.key, b.build);
}

std::string encode_bundle_head(const std::vector<BundleRow>& rows) {
  std::uint64_t file_size = kBundleHeaderBytes + rows.size() * kBundleRowBytes;
  for (const BundleRow& row : rows) file_size += row.size;
  ByteWriter out;
  out.raw(kBundleMagic);
  out.u32(kFormatVersion);
  out.u32(0);
  out.u64(rows.size());
  out.u64(file_size);
  out.digest({});
  for (const BundleRow& row : rows) {
    out.digest(row.id.key);
    out.digest(row.id.build);
    out.u64(row.size);
    out.digest(row.digest);
  }
  std::string head = std::move(out).bytes();
  const Sha256Digest digest = head_digest(head);
  head.replace(kBundleDigestOffset, digest.size(), reinterpret_cast<const char*>(digest.data()),
               digest.size());
  return head;
}

Result<BundleHeader> decode_bundle_header(std::string_view bytes, std::uint64_t file_size) {
  if (bytes.size() < kBundleHeaderBytes) return corrupt("the file is too short for a bundle");
  ByteReader in(bytes);
  if (in.raw(kBundleMagic.size()) != kBundleMagic) return corrupt("the file is no attnjit bundle");
  if (const std::uint32_t version = in.u32(); version != kFormatVersion) {
    return corrupt("the bundle has format version " + std::to_string(version) +
                   "; this attnjit reads " + std::to_string(kFormatVersion));
  }
  const std::uint32_t reserved = in.u32();
  BundleHeader header;
  header.entries = in.u64();
  header.file_size = in.u64();
  header.digest = in.digest();
  if (reserved != 0 || header.entries > kMaxBundleEntries || header.file_size != file_size ||
      kBundleHeaderBytes + header.entries * kBundleRowBytes > file_size) {
    return corrupt("the bundle's header does not fit the file; it may be cut off");
  }
  return header;
}

Result<std::vector<BundleRow>> decode_bundle_manifest(const BundleHeader& header,
                                                      std::string_view bytes) {
  if (bytes.size() != kBundleHeaderBytes + header.entries * kBundleRowBytes ||
      head_digest(bytes) != header.digest) {
    return corrupt("the bundle's manifest does not match its digest");
  }
  ByteReader in(bytes.substr(kBundleHeaderBytes));
  std::vector<BundleRow> rows;
  rows.reserve(header.entries);
  std::uint64_t total = bytes.size();
  for (std::uint64_t i = 0; i < header.entries; ++i) {
    BundleRow row;
    row.id.key = in.digest();
    row.id.build = in.digest();
    row.size = in.u64();
    row.digest = in.digest();
    if (row.size < kHeaderBytes || row.size > kMaxEntryBytes) {
      return corrupt("the manifest names an entry of " + std::to_string(row.size) + " bytes");
    }
    if (!rows.empty() && !bundle_order(rows.back().id, row.id)) {
      return corrupt("the manifest is not sorted");
    }
    total += row.size;
    rows.push_back(row);
  }
  if (total != header.file_size) return corrupt("the manifest does not add up to the file");
  return rows;
}

}  // namespace attnjit::cache

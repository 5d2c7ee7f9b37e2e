// SPDX-License-Identifier: Apache-2.0
// The bundle format: many entries in one file, with a manifest. cache/README.md describes it byte
// by byte.
//
// Thread rules: pure functions and plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/result.h"
#include "cache/entry_format.h"

namespace attnjit::cache {

inline constexpr std::size_t kBundleHeaderBytes = 64;
inline constexpr std::size_t kBundleRowBytes = 104;
inline constexpr std::uint64_t kMaxBundleEntries = std::uint64_t{1} << 20;

/// One entry of a bundle, in the order of the manifest: by key, then build, strictly ascending.
struct BundleRow {
  EntryId id;
  std::uint64_t size = 0;
  Sha256Digest digest{};  ///< of the entry's bytes
};

struct BundleHeader {
  std::uint64_t entries = 0;
  std::uint64_t file_size = 0;
  Sha256Digest digest{};
};

/// Header and manifest; the entries' bytes follow in the same order.
/// @pre rows are sorted and distinct.
std::string encode_bundle_head(const std::vector<BundleRow>& rows);

/// `bytes`: the first kBundleHeaderBytes of a file of `file_size`. Errors: kCorrupt.
Result<BundleHeader> decode_bundle_header(std::string_view bytes, std::uint64_t file_size);
/// `bytes`: header and manifest. Errors: kCorrupt.
Result<std::vector<BundleRow>> decode_bundle_manifest(const BundleHeader& header,
                                                      std::string_view bytes);

bool bundle_order(const EntryId& a, const EntryId& b);

}  // namespace attnjit::cache

// SPDX-License-Identifier: Apache-2.0
// Failures: compiles that failed a short while ago, in memory and in the first layer, so that bad
// code is not compiled again and again.
//
// Thread rules: every method may be called from any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "attnjit/result.h"
#include "cache/layer.h"

namespace attnjit::cache {

/// A failure as bytes, and back; nullopt where the bytes are not exactly what was written under
/// this id.
std::string encode_failure(const EntryId& id, const Error& error, std::int64_t failed_ns);
struct Failure {
  Error error;
  std::int64_t failed_ns = 0;  ///< since the epoch
};
std::optional<Failure> decode_failure(std::string_view bytes, const EntryId& id);

class Failures {
 public:
  /// @param layer may be null: in memory only
  Failures(FileSystem& fs, Layer* layer, std::chrono::seconds ttl)
      : fs_(fs),
        layer_(layer),
        ttl_ns_(std::min(ttl, kMaxTtl).count() * std::int64_t{1000000000}) {}

  /// The error of a failure that is still remembered.
  std::optional<Error> find(const EntryId& id);
  /// The bytes that were written to the layer.
  std::int64_t remember(const EntryId& id, const Error& error);
  void forget(const EntryId& id);
  void forget_all_in_memory();

  bool fresh(std::int64_t failed_ns) const;

 private:
  static constexpr std::size_t kMaxInMemory = 1024;
  static constexpr std::chrono::seconds kMaxTtl{std::int64_t{10} * 365 * 86400};

  FileSystem& fs_;
  Layer* const layer_;
  const std::int64_t ttl_ns_;
  std::mutex mutex_;
  std::unordered_map<std::string, Failure> memory_;
};

}  // namespace attnjit::cache

// CubinCache: compiled images on disk, verified on every load, in layers; the first one is written.
//
// Thread rules: every method may be called from any thread; processes may share a folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/compile.h"
#include "attnjit/result.h"

namespace attnjit {

/// What identifies a kernel whoever compiles it: SHA-256, hex, over length-prefixed material.
struct RequestKey {
  std::string hex;       ///< 64 lower-case characters
  std::string material;  ///< the bytes that were hashed; stored in the entry and compared on load
};

/// The key of a plan and its rendered source. Two specs that resolve to one plan and text have one
/// key.
ATTNJIT_EXPORT RequestKey request_key(const KernelPlan& plan, const KernelSource& source);

struct CacheOptions {
  std::vector<std::string> layers;                 ///< the first is written; empty: no disk cache
  std::int64_t max_bytes = std::int64_t{1} << 30;  ///< of the first layer
  std::chrono::seconds failure_ttl{300};           ///< how long a failed compile is remembered
};

/// One image in the cache, as `attnjit cache list` shows it.
struct CacheEntryInfo {
  std::string layer, key, build_id, path;
  Arch arch = Arch::kSm100a;
  std::int64_t bytes = 0;
  std::int64_t created_unix_s = 0, last_used_unix_s = 0;
  std::string entry;  ///< entry symbol
};

enum class BuildPolicy : std::uint8_t {
  kExact,  ///< only images of the NVRTC at hand; without one, the newest verified image
  kAny,    ///< the newest verified image
};

/// See docs/cache.md and cache/README.md for the format and the guarantees.
class ATTNJIT_EXPORT CubinCache {
 public:
  virtual ~CubinCache() = default;

  /// The verified image of a key; nullopt: a miss (a bad entry is one, after it was quarantined).
  /// Never fails. build_id empty: no NVRTC at hand.
  virtual std::optional<KernelImage> find(const RequestKey& key, std::string_view build_id,
                                          BuildPolicy policy) = 0;

  /// Publishes an image atomically. A cache that cannot be written is not the caller's error: the
  /// Status is for logs and tests.
  virtual Status store(const RequestKey& key, std::string_view build_id,
                       const KernelImage& image) = 0;

  /// One compile per key among the threads and processes that share the first layer: finds, or
  /// compiles and stores, or waits for whoever compiles (bounded by the deadline; a holder that
  /// died is succeeded). `compile` runs without any lock of this object held. `from_disk` (may be
  /// null) tells which it was.
  virtual Result<KernelImage> get_or_compile(const RequestKey& key, std::string_view build_id,
                                             BuildPolicy policy, Compiler::Deadline deadline,
                                             const std::function<Result<KernelImage>()>& compile,
                                             bool* from_disk) = 0;

  virtual std::vector<CacheEntryInfo> list() = 0;
};

ATTNJIT_EXPORT std::unique_ptr<CubinCache> open_cache(const CacheOptions& options);

/// The layers of ATTNJIT_CACHE_DIR (A:B:C), or the default folder under XDG_CACHE_HOME or HOME.
ATTNJIT_EXPORT std::vector<std::string> default_cache_layers();

}  // namespace attnjit

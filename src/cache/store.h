// SPDX-License-Identifier: Apache-2.0
// Store: the CubinCache over a FileSystem; see include/attnjit/cache.h for what it promises.
//
// Thread rules: every method may be called from any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "attnjit/cache.h"
#include "cache/bundle.h"
#include "cache/failures.h"
#include "cache/flights.h"
#include "cache/layer.h"
#include "cache/lease.h"
#include "cache/remote_tier.h"
#include "cache/trim.h"
#include "cache/trust.h"

namespace attnjit::cache {

class Store final : public CubinCache {
 public:
  Store(const CacheOptions& options, FileSystem& fs);

  std::optional<KernelImage> find(const RequestKey& key, std::string_view build_id,
                                  BuildPolicy policy, PtxNeed ptx, ImageOrigin* origin) override;
  Status store(const RequestKey& key, std::string_view build_id, const KernelImage& image) override;
  Result<KernelImage> get_or_compile(const RequestKey& key, std::string_view build_id,
                                     BuildPolicy policy, Compiler::Deadline deadline,
                                     const std::function<Result<KernelImage>()>& compile,
                                     ImageOrigin* origin, PtxNeed ptx,
                                     Compiler::Deadline patience) override;
  bool holds(const RequestKey& key, std::string_view build_id, BuildPolicy policy) override;
  bool flush(Compiler::Deadline deadline) override;
  CacheStatistics statistics() const override;

  std::vector<CacheLayerInfo> layers() override;
  std::vector<CacheEntryInfo> list(std::vector<CacheFinding>* unreadable) override;
  CacheVerifyReport verify() override;
  Result<CacheGcReport> gc(const CacheGcOptions& options) override;
  Result<CacheClearReport> clear() override;
  Result<CacheBundleReport> export_bundle(const std::string& path,
                                          const std::vector<std::string>& keys) override;
  Result<CacheSignReport> sign() override;
  Result<CacheBundleReport> import_bundle(const std::string& path) override;

 private:
  using Clock = std::chrono::steady_clock;

  /// A request on its way through get_or_compile.
  struct Request {
    const RequestKey& key;
    std::string_view build_id;
    BuildPolicy policy;
    PtxNeed ptx;
    Compiler::Deadline deadline;
    const std::function<Result<KernelImage>()>& compile;
    EntryId id;
    Clock::time_point patience;          ///< until when to wait for somebody else's compile
    Clock::time_point machine_patience;  ///< the same of another machine's, where it is less
  };

  std::optional<KernelImage> look_up(const RequestKey& key, const EntryId& id,
                                     std::string_view build_id, BuildPolicy policy, PtxNeed ptx);
  class Arrival;
  /// Asks the remote tier, within its budget.
  std::optional<KernelImage> look_up_remote(const RequestKey& key, const EntryId& id,
                                            std::string_view build_id, BuildPolicy policy,
                                            PtxNeed ptx, RemoteTier::Memory memory);
  /// `lease` is held until the image was sent, or given up.
  Status store_as(const RequestKey& key, std::string_view build_id, const KernelImage& image,
                  RemoteTier::Replace replace, std::shared_ptr<void> lease);
  /// The lease of a key, which may be null, or what another machine made of the key meanwhile.
  struct Turn {
    std::shared_ptr<void> lease;
    std::optional<Landed> landed;
  };
  struct BundleToRead {
    File file;  ///< at the first entry
    std::vector<BundleRow> rows;
  };
  /// A bundle that may be imported: well-formed and, with a keyring, signed.
  Result<BundleToRead> open_bundle(const std::string& path);
  /// The header and manifest of a bundle whose signature the keyring accepts.
  Result<std::string> check_bundle_signature(const std::string& path);
  Turn wait_for_turn(const Request& request);
  /// Holds the key's file lock while it compiles, where one can be had.
  Landed lead(const Request& request);
  Result<KernelImage> compile_and_store(const Request& request, std::shared_ptr<void> lease);
  /// Until when to wait for somebody else's compile where the caller does not say.
  Clock::time_point patience(Compiler::Deadline deadline) const;
  Cap cap() const { return {options_.max_bytes, options_.max_files}; }
  /// Evicts when enough was written since the last look.
  void trim_after_store(std::int64_t stored_bytes);

  const CacheOptions options_;
  FileSystem& fs_;
  const Logger log_;
  const SignatureTrust trust_;
  std::vector<std::unique_ptr<Layer>> layers_;  ///< the first is written
  std::unique_ptr<Failures> failures_;
  Flights flights_;

  std::atomic<std::int64_t> bytes_since_trim_{-1};  ///< -1: never looked
  std::atomic<std::int64_t> files_since_trim_{0};
  std::atomic_flag trimming_ = ATOMIC_FLAG_INIT;
  std::atomic_flag store_warned_ = ATOMIC_FLAG_INIT;
  std::atomic_flag lock_warned_ = ATOMIC_FLAG_INIT;
  std::atomic_flag unsigned_warned_ = ATOMIC_FLAG_INIT;

  struct Counters {
    std::atomic<std::uint64_t> hits{0}, misses{0}, stores{0}, store_failures{0}, compiles{0},
        waits{0}, alone{0}, lease_waits{0}, failure_hits{0}, evicted{0};
  };
  Counters count_;
  std::unique_ptr<Leases> leases_;      ///< null: none
  std::unique_ptr<RemoteTier> remote_;  ///< null: none. The last one: it calls back until it ends
};

/// The error of what needs a folder to write where there is none.
Error no_layer();

/// open_cache over another file system: what the tests use.
std::unique_ptr<CubinCache> open_cache(const CacheOptions& options, FileSystem& fs);

}  // namespace attnjit::cache

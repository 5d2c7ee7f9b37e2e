// SPDX-License-Identifier: Apache-2.0
// CubinCache: compiled images on disk, verified on every load, in layers; the first one is written.
//
// Thread rules: every method may be called from any thread; processes may share a folder. The
// format on disk is in cache/README.md.
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
#include "attnjit/log.h"
#include "attnjit/result.h"

namespace attnjit {

/// What identifies a kernel, whoever compiles it: the SHA-256 of length-prefixed material, in hex.
struct RequestKey {
  std::string hex;       ///< 64 lower-case characters
  std::string material;  ///< the bytes that were hashed; stored in the entry and compared on load
  Arch arch = Arch::kSm100a;
};

/// The key of a plan and its rendered source. Two specs that resolve to one plan and text have one
/// key. Pure.
ATTNJIT_EXPORT RequestKey request_key(const KernelPlan& plan, const KernelSource& source);

/// What a caller needs of an image's PTX. The section is read and verified only when it is wanted.
enum class PtxNeed : std::uint8_t {
  kIfStored,  ///< the PTX if the entry has one
  kSkip,      ///< never: KernelImage::ptx stays empty
  kRequired,  ///< an entry without PTX is a miss
};

/// Where an image came from.
enum class ImageOrigin : std::uint8_t { kCompiled, kDisk, kRemote };

/// A store of entries over HTTP or HTTPS that many machines share, below the layers on disk
/// (docs/fleet.md). It never fails a request, and never delays one beyond lookup_budget.
struct RemoteOptions {
  /// {base}: http://, https://, or s3+http:// and s3+https:// with a bucket as the first part of
  /// the path. Entries are GET, HEAD and PUT under {base}/ac/<64 hex>. Empty: no remote tier.
  std::string url;
  std::chrono::milliseconds lookup_budget{50};            ///< what a look-up may cost a request
  std::chrono::milliseconds transfer_timeout{10000};      ///< of one GET or PUT, in the background
  std::int64_t max_entry_bytes = std::int64_t{64} << 20;  ///< of what is fetched or sent
  std::int64_t max_queue_bytes = std::int64_t{64} << 20;  ///< of what waits to be sent
  bool read_only = false;                                 ///< nothing is sent
  std::string ca_file;  ///< certificates that are believed; empty: the system's
  // For s3+http and s3+https.
  std::string access_key, secret_key, session_token;
  std::string region;  ///< empty: us-east-1
};

/// Ed25519 signatures of entries (docs/fleet.md).
struct SignatureOptions {
  /// A keyring: public key files of minisign, one behind another. With one, the remote tier, the
  /// lower layers and bundles must be signed by one of its keys. Empty: nothing need be.
  std::string trust_file;
  std::string sign_key_file;        ///< a secret key (PEM) that signs what is stored; empty: none
  bool require_everywhere = false;  ///< the first layer's entries must be signed too
};

/// One compile per key among machines: who compiles holds a lease (docs/fleet.md).
struct LeaseOptions {
  /// redis://[PASSWORD@]HOST[:PORT][/DATABASE], or "remote": objects of the remote tier, which must
  /// honour conditional PUT, as S3 does. Empty: none.
  std::string url;
  std::chrono::milliseconds ttl{10000};    ///< after which a lease that nobody renews is free
  std::chrono::milliseconds timeout{200};  ///< what asking for one may cost a compile
  std::chrono::milliseconds wait{30000};   ///< how long to wait for another machine's compile
};

struct CacheOptions {
  /// Folders; the first is written and made (mode 0700) where it is missing, the others are only
  /// read and may be missing or unreadable. Empty: no disk cache.
  std::vector<std::string> layers;
  std::int64_t max_bytes = std::int64_t{1} << 30;  ///< of the first layer, on disk
  std::int64_t max_files = 65536;                  ///< of the first layer, whatever their size
  std::chrono::seconds failure_ttl{300};  ///< how long a failed compile is remembered; 0: not
  /// How long to wait at most for another thread or process that compiles the same key before
  /// compiling alone; never more than half of the time that is left to the deadline.
  std::chrono::milliseconds max_wait{60000};
  /// Users, besides this one and root, whose layers are believed.
  std::vector<std::uint32_t> trusted_owners;
  RemoteOptions remote;
  SignatureOptions signatures;
  LeaseOptions lease;
  LogSink log;  ///< empty: silent
};

/// What a request's key material says of the attention that it is for; of a merge most is unset.
struct KernelFacts {
  std::string dtype;     ///< of Q: "bf16", "fp16", "e4m3"; empty: unknown
  std::string kv_dtype;  ///< of K and V where it is another
  int qk_depth = 0, ov_depth = 0, group = 0;
  int page_size = 0, topk = 0;  ///< 0: none
  bool ragged = false, ragged_kv = false, sink = false, lse = false, split = false;
  std::string mask, score_mod;  ///< the device types, without their namespace
  std::string user_code;        ///< as it was rendered; empty: none
};

/// One image in the cache, as `attnjit cache list` shows it.
struct CacheEntryInfo {
  std::string layer, key, build_id, path;
  Arch arch = Arch::kSm100a;
  std::int64_t bytes = 0;
  std::int64_t created_unix_s = 0, last_used_unix_s = 0;
  std::string entry;  ///< entry symbol
  std::string nvrtc_version;
  ResourceUsage usage;
  KernelFacts facts;
};

enum class BuildPolicy : std::uint8_t {
  kExact,  ///< only images of the NVRTC at hand; without one, the newest verified image
  kAny,    ///< the image of the NVRTC at hand, else the newest verified image
};

/// What ATTNJIT_NVRTC_POLICY says, where nothing is given. Errors: kInvalid where it is neither
/// `exact` nor `any`.
ATTNJIT_EXPORT Result<BuildPolicy> with_environment(std::optional<BuildPolicy> given);

/// What a remote tier did and met since it was opened.
struct RemoteStatistics {
  std::uint64_t lookups = 0;  ///< GETs
  std::uint64_t hits = 0, misses = 0;
  std::uint64_t rejected = 0;  ///< answers that are not the entry that was asked for
  std::uint64_t overdue = 0;   ///< requests that went on without an answer, at the budget
  std::uint64_t errors = 0;    ///< requests to the server without a usable answer
  std::uint64_t skipped = 0;   ///< look-ups that were not made: the breaker was open
  std::uint64_t breaker_opened = 0;
  std::uint64_t puts = 0;          ///< entries sent
  std::uint64_t put_present = 0;   ///< entries that were there already
  std::uint64_t put_failures = 0;  ///< entries that could not be sent
  std::uint64_t put_dropped = 0;   ///< entries that the queue had no room for
  std::uint64_t bytes_received = 0, bytes_sent = 0;
};

/// What this object did since it was opened.
struct CacheStatistics {
  std::uint64_t hits = 0, misses = 0;  ///< of disk and remote tier together
  std::uint64_t stores = 0, store_failures = 0;
  std::uint64_t compiles = 0;      ///< compile callbacks that ran
  std::uint64_t waits = 0;         ///< requests that waited for another thread or process
  std::uint64_t alone = 0;         ///< waits that ended in a compile of one's own
  std::uint64_t lease_waits = 0;   ///< of them: for another machine
  std::uint64_t failure_hits = 0;  ///< requests answered from a remembered failure
  std::uint64_t quarantined = 0, evicted = 0;
  RemoteStatistics remote;
};

/// What `verify`, `import_bundle` or a look at a folder found.
struct CacheFinding {
  std::string path;
  std::string problem;
  bool quarantined = false;
};

/// A layer as it stands on disk.
struct CacheLayerInfo {
  enum class State : std::uint8_t {
    kWritable,
    kReadOnly,  ///< a lower layer, or a first layer that cannot be written
    kMissing,
    kRefused,  ///< not to be trusted, or unreadable; `reason` says why
  };
  std::string path;
  State state = State::kMissing;
  std::string reason;
  std::int64_t entries = 0, entry_bytes = 0;  ///< bytes on disk
  std::int64_t failures = 0, quarantined = 0, temporary = 0, locks = 0;
  std::int64_t other_bytes = 0;          ///< of everything that is not an entry
  std::vector<CacheFinding> unreadable;  ///< folders that the numbers lack
};

struct CacheVerifyReport {
  std::int64_t checked = 0, good = 0, bytes = 0;
  std::vector<CacheFinding> bad;         ///< corrupt, foreign or misnamed
  std::vector<CacheFinding> unreadable;  ///< the file system failed; may be good
};

struct CacheGcOptions {
  std::optional<std::int64_t> max_bytes;  ///< default: the cache's own cap
  bool dry_run = false;
};

struct CacheGcReport {
  std::int64_t entries_before = 0, bytes_before = 0;
  std::int64_t entries_after = 0, bytes_after = 0;
  std::int64_t removed_temporary = 0, removed_locks = 0, removed_failures = 0;
  std::int64_t removed_quarantined = 0;
  std::int64_t removed_of_older_versions = 0;  ///< files of older format versions, long unused
  std::vector<std::string> removed;            ///< entries, oldest use first
  std::vector<CacheFinding> unreadable;        ///< folders that were not looked through
};

struct CacheClearReport {
  std::int64_t removed_files = 0, removed_bytes = 0;
  std::vector<CacheFinding> left;  ///< what could not be removed
};

struct CacheBundleReport {
  std::int64_t entries = 0;   ///< written to the bundle, or merged from it
  std::int64_t existing = 0;  ///< import: already there
  std::int64_t bytes = 0;
  std::vector<CacheFinding> bad;         ///< left out
  std::vector<CacheFinding> unreadable;  ///< folders of which nobody knows what they hold
};

struct CacheSignReport {
  std::int64_t signed_now = 0;
  std::vector<CacheFinding> bad;         ///< left as they are
  std::vector<CacheFinding> unreadable;  ///< folders that were not looked through
};

class ATTNJIT_EXPORT CubinCache {
 public:
  virtual ~CubinCache() = default;

  /// The verified image of a key; nullopt: a miss (a bad entry is one, after it was quarantined).
  /// Never fails. build_id empty: no NVRTC at hand. `origin` (may be null) tells where a hit came
  /// from.
  virtual std::optional<KernelImage> find(const RequestKey& key, std::string_view build_id,
                                          BuildPolicy policy, PtxNeed ptx = PtxNeed::kIfStored,
                                          ImageOrigin* origin = nullptr) = 0;

  /// Publishes an image atomically and durably, in place of what is there; the remote tier gets it
  /// later. A cache that cannot be written is not the caller's error: the Status is for logs and
  /// tests.
  virtual Status store(const RequestKey& key, std::string_view build_id,
                       const KernelImage& image) = 0;

  /// One compile per key among the threads and processes that share the first layer: finds, or
  /// compiles and stores, or waits for whoever compiles (bounded by max_wait and half of the time
  /// to the deadline, then compiles alone; a holder that died is succeeded at once). Another
  /// machine is waited for until half of that, LeaseOptions::wait, or `patience`. `compile` runs
  /// without any lock of this object held. A kCompileFailed is remembered for failure_ttl. `origin`
  /// (may be null) tells where the image came from. Errors: what `compile` returned, and kTimeout
  /// where the deadline passed before it could start.
  virtual Result<KernelImage> get_or_compile(
      const RequestKey& key, std::string_view build_id, BuildPolicy policy,
      Compiler::Deadline deadline, const std::function<Result<KernelImage>()>& compile,
      ImageOrigin* origin, PtxNeed ptx = PtxNeed::kIfStored,
      Compiler::Deadline patience = Compiler::Deadline::max()) = 0;

  /// Whether an image of the key will be found by the next process: a layer on disk has one that
  /// verifies, or, where there is no layer, the remote tier gave one or took one.
  virtual bool holds(const RequestKey& key, std::string_view build_id, BuildPolicy policy) = 0;

  /// Waits until what was stored is on the remote tier, or given up; false at the deadline.
  virtual bool flush(Compiler::Deadline deadline) = 0;

  virtual CacheStatistics statistics() const = 0;

  // Management: what `attnjit cache` calls. Safe beside running Services.

  virtual std::vector<CacheLayerInfo> layers() = 0;
  /// Every readable entry of every layer, first layer first, by key. `unreadable` (may be null)
  /// gets the folders and the entries that could not be read.
  virtual std::vector<CacheEntryInfo> list(std::vector<CacheFinding>* unreadable = nullptr) = 0;
  /// Reads and verifies everything; bad entries of the first layer are quarantined.
  virtual CacheVerifyReport verify() = 0;
  /// Brings the first layer under its cap, least recently used first, and removes leftovers.
  virtual Result<CacheGcReport> gc(const CacheGcOptions& options = {}) = 0;
  /// Removes all that attnjit keeps in the first layer, and nothing else in that folder.
  virtual Result<CacheClearReport> clear() = 0;
  /// Writes the verified entries of all layers (or of `keys`, if not empty) to one file. The same
  /// entries give the same bytes. A key that no layer has is reported in `bad`. Errors: kInvalid
  /// where a key is malformed, or `path` exists and is no regular file; kIo.
  virtual Result<CacheBundleReport> export_bundle(const std::string& path,
                                                  const std::vector<std::string>& keys = {}) = 0;
  /// Signs every good entry of the first layer with the key of SignatureOptions. Errors: kInvalid
  /// where there is none.
  virtual Result<CacheSignReport> sign() = 0;
  /// Merges a bundle into the first layer. Each entry is verified as on load. With a keyring the
  /// bundle must be signed (`path`.minisig, as minisign writes it), and each entry as in a lower
  /// layer. Errors: kCorrupt where the
  /// manifest or the signature is wrong (nothing is merged), kInvalid where the file cannot be
  /// read, kIo.
  virtual Result<CacheBundleReport> import_bundle(const std::string& path) = 0;
};

/// Never fails: layers that cannot be used are logged once and left out.
ATTNJIT_EXPORT std::unique_ptr<CubinCache> open_cache(const CacheOptions& options);

/// The layers of ATTNJIT_CACHE_DIR (A:B:C), or the default folder: attnjit below XDG_CACHE_HOME, or
/// below HOME/.cache. Empty where neither exists, where it belongs to another user, and for a
/// setuid program.
ATTNJIT_EXPORT std::vector<std::string> default_cache_layers();

/// The given options, with what they leave empty from the environment: ATTNJIT_REMOTE,
/// SSL_CERT_FILE, and for S3 AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and
/// AWS_REGION. Errors: kInvalid where the URL is none that a remote tier can have.
ATTNJIT_EXPORT Result<RemoteOptions> with_environment(RemoteOptions given);
/// The same with ATTNJIT_TRUST and ATTNJIT_SIGN_KEY. Errors: kInvalid where a file is not usable.
ATTNJIT_EXPORT Result<SignatureOptions> with_environment(SignatureOptions given);
/// The same with ATTNJIT_LEASE. Errors: kInvalid where the URL is none of a Redis server.
ATTNJIT_EXPORT Result<LeaseOptions> with_environment(LeaseOptions given);

}  // namespace attnjit

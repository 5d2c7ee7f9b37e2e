// SPDX-License-Identifier: Apache-2.0
// Service: the facade that a serving runtime embeds: from a spec to a kernel that can be launched.
//
// Thread rules: every method may be called from any thread. Two Services in a process share
// nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/cache.h"
#include "attnjit/compile.h"
#include "attnjit/driver.h"
#include "attnjit/launch.h"
#include "attnjit/log.h"
#include "attnjit/result.h"
#include "attnjit/spec.h"
#include "attnjit/tuning.h"

namespace attnjit {

/// A compile that ended; what it refers to lives as long as the call.
struct CompileEvent {
  std::string_view key;  ///< the request's: 64 hex digits
  Arch arch = Arch::kSm100a;
  double compile_ms = 0;
  const KernelImage* image = nullptr;  ///< null: it failed
  const Error* error = nullptr;        ///< null: it did not
};

struct ServiceOptions {
  std::vector<std::string> cache_layers;  ///< empty: default_cache_layers()
  bool use_disk_cache = true;
  /// The remote tier. What it leaves empty is taken from the environment (with_environment).
  RemoteOptions remote;
  bool use_remote = true;
  SignatureOptions signatures;  ///< what it leaves empty is taken from the environment
  LeaseOptions lease;           ///< the same; used with a cache
  /// How long the Service's end waits, before all else, for what is on its way to the remote tier.
  std::chrono::milliseconds flush_at_end{0};
  std::int64_t cache_max_bytes = std::int64_t{1} << 30;  ///< of the first folder, on disk
  std::chrono::seconds failure_ttl{300};  ///< how long a failed compile is remembered; 0: not
  /// Which NVRTC's images serve. Empty: ATTNJIT_NVRTC_POLICY (`exact` or `any`), then kExact.
  std::optional<BuildPolicy> build_policy;
  bool forbid_compile = false;            ///< any compile at run time is kCompileForbidden
  bool compile_in_helper = false;         ///< untrusted code too; trusted code always is
  bool accept_unconfined_helper = false;  ///< HelperOptions::accept_unconfined
  /// Where get_or_fallback finds nothing to serve with, it also compiles what would have served, in
  /// the background and after the spec's own: for the next specs of that shape.
  bool compile_fallbacks = false;
  /// Compiles at once. 0: one per core that this process may use (its control groups' quota
  /// counts), and no more than fit into half of its memory (docs/compile.md).
  int compile_threads = 0;
  std::string nvrtc_path;                ///< empty: ATTNJIT_NVRTC, then found
  std::string driver_path;               ///< libcuda; empty: as the loader finds it
  std::string helper_path;               ///< HelperOptions::helper_path
  std::string templates_folder;          ///< empty: ATTNJIT_TEMPLATES, then the embedded ones
  std::shared_ptr<const Tuning> tuning;  ///< what plans are made with; may be null
  LogSink log;                           ///< empty: standard error, at ATTNJIT_LOG_LEVEL
  /// Called after each compile, by the thread that compiled and before anybody is given the kernel;
  /// several at once. Neither after the Service's end nor for what a cache had. What it throws is
  /// dropped. It must not wait for the Service.
  std::function<void(const CompileEvent&)> on_compile;
  /// Each compile, load and launch is a range of the NVTX profiler that is attached to the process
  /// (Nsight Systems), if one is.
  bool nvtx_ranges = false;
  /// For tests: replaces NVRTC; called from several threads.
  std::shared_ptr<Compiler> compiler;
  /// For tests: replaces the helper process; empty: `compiler`, if that is set.
  std::shared_ptr<Compiler> helper_compiler;
};

/// How a request was served.
/// NOTE: the C ABI's numbers.
enum class Outcome : std::uint8_t { kMemory = 0, kDisk = 1, kRemote = 2, kCompiled = 3 };
ATTNJIT_EXPORT std::string_view to_string(Outcome outcome);

struct ServiceStatistics {
  std::uint64_t memory_hits = 0, disk_hits = 0, remote_hits = 0, compiles = 0, failures = 0;
  std::uint64_t waits = 0;                   ///< requests that waited for another's compile
  std::uint64_t fallbacks = 0;               ///< requests that got another kernel than their own
  std::uint64_t lease_waits = 0, alone = 0;  ///< CacheStatistics'
  std::uint64_t quarantined = 0;             ///< bad entries that were set aside
  double compile_ms_total = 0;               ///< of all compiles, also of those at once
  std::uint64_t queued = 0;                  ///< background compiles not yet started
  RemoteStatistics remote;
};

/// The counts in Prometheus's text format, for a /metrics endpoint: attnjit_compiles_total and
/// others.
ATTNJIT_EXPORT std::string to_prometheus(const ServiceStatistics& statistics);

/// A spec that was validated, planned and hashed once. Cheap to copy; belongs to the Service that
/// made it and is not used after it. (Specs that share a key but differ in launch-time defaults,
/// such as a window, share one image and have a Kernel each.)
class ATTNJIT_EXPORT PreparedSpec {
 public:
  const KernelPlan& plan() const;
  const RequestKey& key() const;

  struct State;
  explicit PreparedSpec(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

/// A kernel that a launch of a spec may use now.
struct ServedKernel {
  const Kernel* kernel = nullptr;  ///< null: none is ready
  bool fallback = false;           ///< it is not the spec's own, but computes the same, slower
};

/// A compiled kernel, not necessarily loaded: what prewarm, compile and the emulator need.
struct CompiledKernel {
  std::shared_ptr<const KernelImage> image;
  Outcome outcome = Outcome::kCompiled;
  double compile_ms = 0;  ///< this call's; 0 on a hit
  double total_ms = 0;
};

struct PrewarmResult {
  std::size_t index = 0;
  std::string key;
  Arch arch = Arch::kSm100a;
  std::optional<Outcome> outcome;
  std::optional<Error> error;
  bool stored = false;  ///< the next process finds it (CubinCache::holds); known at the end
};

class ATTNJIT_EXPORT Service {
 public:
  using Deadline = Compiler::Deadline;

  static Result<std::unique_ptr<Service>> create(ServiceOptions options = {});
  virtual ~Service();  ///< cancels the queue, kills helpers, joins; within 2 s

  /// Plans and hashes a spec. The same spec again costs a look-up.
  virtual Result<PreparedSpec> prepare(const ResolvedSpec& spec) = 0;
  /// Also validates it, unless this Service has seen it. Errors: also every problem of the spec.
  virtual Result<PreparedSpec> prepare(const AttentionSpec& spec,
                                       const PlanOptions& options = {}) = 0;
  Result<PreparedSpec> prepare(const SpecDocument& document);
  /// From JSON text, as spec_from_json reads it.
  Result<PreparedSpec> prepare(std::string_view json);

  /// The image, from memory, disk, the remote tier or a compile; needs no GPU. With
  /// PtxNeed::kRequired it has its PTX, if need be by a compile.
  virtual Result<CompiledKernel> compile(const PreparedSpec& spec, Deadline deadline,
                                         PtxNeed ptx = PtxNeed::kIfStored) = 0;

  /// The loaded kernel, compiling if need be; the handle lives as long as the Service. If the
  /// calling thread has a CUDA context, the kernel is loaded into it whole, so that later launches
  /// there load nothing. `stream` (a CUstream, may be null) tells whether a capture is going on:
  /// where the call would have to load or compile during one, it does nothing and returns
  /// kCaptureInProgress. A compile that outlives the deadline goes on in the background. Errors:
  /// also kTimeout, kCompileFailed (remembered for failure_ttl), kCompileForbidden, kForked,
  /// kEnvironment, kDriver.
  virtual Result<const Kernel*> get(const PreparedSpec& spec, Deadline deadline,
                                    void* stream = nullptr) = 0;
  /// The same with a deadline that far from now.
  Result<const Kernel*> get(const PreparedSpec& spec, std::chrono::nanoseconds timeout,
                            void* stream = nullptr);

  /// The loaded kernel if it is in memory, else null. Takes no lock and counts nothing.
  virtual const Kernel* find(const PreparedSpec& spec) const noexcept = 0;

  /// Never blocks: the kernel if it is in memory; else null, and a background compile and load
  /// (into the caller's context, if that is its device's primary one) is queued once. A background
  /// compile that failed is reported here until failure_ttl has passed, then tried again.
  virtual Result<const Kernel*> try_get(const PreparedSpec& spec) = 0;

  /// As try_get; but while the spec's own kernel is compiled in the background, the kernel of its
  /// fallback_spec() serves, if that is in memory or in a cache. That one is not compiled here
  /// unless ServiceOptions::compile_fallbacks says so: prewarm it. Its first use in the process, or
  /// the context, loads it; where no folder has it, that waits for the remote tier as long as
  /// RemoteOptions::lookup_budget. It takes the launch arguments of the spec's own. Errors: those
  /// of try_get where nothing serves; the driver's where a fallback does not load, but for a
  /// damaged image, which serves nobody; kCaptureInProgress as get.
  virtual Result<ServedKernel> get_or_fallback(const PreparedSpec& spec,
                                               void* stream = nullptr) = 0;

  /// Compiles what is missing of several specs, `jobs` at once (0: compile_threads); `progress` is
  /// called from one thread at a time as each ends. Order of the results: the specs'.
  virtual std::vector<PrewarmResult> prewarm(
      const std::vector<SpecDocument>& specs, int jobs,
      const std::function<void(const PrewarmResult&)>& progress = {}) = 0;

  /// Waits until what was compiled is on the remote tier, or given up; false at the deadline. The
  /// Service's end waits for that only as long as flush_at_end says.
  virtual bool flush(Deadline deadline) = 0;

  virtual ServiceStatistics statistics() const = 0;
};

}  // namespace attnjit

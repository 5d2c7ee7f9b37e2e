// SPDX-License-Identifier: Apache-2.0
// ServiceCore: what a Service is made of, shared with the jobs that may outlive it.
//
// Thread rules: any thread. Locks, in the order in which they may be taken: Entry::load_mutex,
// ServiceCore::mutex, Entry::mutex. load_mutex is held while the driver loads; the others never
// across a compile, a load or a file.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "attnjit/service.h"
#include "base/log.h"
#include "base/nvtx.h"
#include "service/gated_call.h"
#include "service/work_queue.h"

namespace attnjit {

struct ServiceCore;
struct Entry;

struct PreparedSpec::State : std::enable_shared_from_this<PreparedSpec::State> {
  const ServiceCore* owner = nullptr;
  Entry* entry = nullptr;  // null: prepared in a child of fork()
  KernelPlan plan;
  RequestKey key;
  // What find() reads, and all that it reads. Set once; the Entry owns the kernel.
  std::atomic<const Kernel*> kernel{nullptr};

  // The spec whose kernel serves meanwhile; null: there is none, or nobody asked. The Service keeps
  // it as long as this.
  std::atomic<State*> fallback{nullptr};
  std::atomic<bool> fallback_known{false};
};

/// One key: its image, its flight and its kernels.
struct Entry {
  using Clock = std::chrono::steady_clock;

  RequestKey key;
  KernelPlan plan;  // of the first spec
  bool trusted = false;

  std::mutex load_mutex;  // one thread loads

  std::mutex mutex;                 // guards what follows
  std::condition_variable changed;  // a flight ended
  // Rendered for the key; kept until the first flight ends, and rendered again for a later one.
  std::shared_ptr<const KernelSource> source;
  std::shared_ptr<const KernelImage> image;
  bool image_from_cache = false;  // from disk or the remote tier
  bool in_flight = false;         // somebody finds or compiles the image
  bool flight_waits = false;      // the flight is queued, and no thread has begun it
  bool cache_rejected = false;    // the driver refused an image: compile, whatever the cache has
  bool queued = false;            // a background job for try_get is queued or runs
  std::uint64_t flights = 0;
  std::optional<Clock::time_point> missed;  // when no cache had it, for get_or_fallback
  Outcome last_outcome = Outcome::kCompiled;
  double last_compile_ms = 0;
  std::optional<Error> last_error;  // of the last flight, if it failed

  // What try_get reports and, where it is the input's fault, get too, until the TTL has passed.
  struct Failure {
    Error error;
    Clock::time_point when;
    bool deterministic = false;
  };
  std::optional<Failure> failure;

  std::vector<std::shared_ptr<PreparedSpec::State>> states;
  std::vector<std::unique_ptr<Kernel>> kernels;  // one for each state, the first one loaded first
};

struct ServiceCore : std::enable_shared_from_this<ServiceCore> {
  using Clock = std::chrono::steady_clock;
  using Deadline = Compiler::Deadline;

  /// @param nvtx_injection DriverOptions::nvtx_injection; one that opens
  ServiceCore(const ServiceOptions& options, LogSink log, TemplateSet template_set,
              const std::string& nvtx_injection);
  ~ServiceCore();

  bool forked() const;
  static Error forked_error();
  Error cancelled_error() const;

  /// Of a spec that was prepared before, by its canonical text; else null.
  std::shared_ptr<PreparedSpec::State> find_prepared(const std::string& text);
  /// @param text the canonical text of the spec as given
  Result<std::shared_ptr<PreparedSpec::State>> prepare(const ResolvedSpec& spec,
                                                       const std::string& text);

  struct Fetched {
    std::shared_ptr<const KernelImage> image;
    Outcome outcome = Outcome::kMemory;
    double compile_ms = 0;
  };
  enum class Where : std::uint8_t { kQueue, kHere };
  /// The image, from memory, disk or a compile: in the queue, where the caller can stop waiting, or
  /// on this thread (which is one of the queue's).
  Result<Fetched> fetch(Entry& entry, Deadline deadline, PtxNeed ptx, Where where);

  /// The kernel of a state, fetched and loaded. An image from the disk that the driver takes for no
  /// image is compiled again, once.
  Result<const Kernel*> load(const std::shared_ptr<PreparedSpec::State>& state, Deadline deadline,
                             Where where);

  /// What serves while a spec's own kernel is compiled; null: nothing does.
  PreparedSpec::State* fallback_of(PreparedSpec::State& state);
  /// The kernel of a state if its image is in memory or in a cache; else null, as where the driver
  /// takes it for no image. Compiles nothing, and asks the cache for what it lacks once in a while.
  Result<const Kernel*> load_at_hand(PreparedSpec::State& state);

  /// Queues a compile and load, once, into the caller's context if that is its device's primary
  /// one. Errors: a failure that is remembered.
  Status queue_once(PreparedSpec::State& state);

  /// The driver, opened on first use; an error is not remembered.
  Result<std::shared_ptr<const Driver>> driver();
  /// The driver if it is open or libcuda is loaded already; else null. Never slow.
  std::shared_ptr<const Driver> driver_at_hand();

  void remember_failure(Entry& entry, const Error& error);

  /// Cancels everything and waits until `deadline` for it to end.
  void shut_down(Deadline deadline);

  const pid_t pid;
  const ServiceOptions options;
  GatedCall<LogLevel, std::string_view> gated_log;
  GatedCall<const CompileEvent&> gated_on_compile;
  const Logger log;
  const TemplateSet templates;
  const std::string nvtx_injection;
  const Nvtx* const nvtx;             ///< null: no ranges
  std::unique_ptr<CubinCache> cache;  // null: none
  std::shared_ptr<Compiler> compiler;
  std::shared_ptr<Compiler> helper;
  const int compile_threads;  // at once, unless a prewarm asks for more
  WorkQueue queue;
  std::atomic<bool> stopping{false};
  std::atomic_flag no_cache_warned = ATOMIC_FLAG_INIT;
  std::atomic_flag nvrtc_warned = ATOMIC_FLAG_INIT;  ///< that it does not compile

  // Calls of the Service that may wait: its end waits for them.
  std::mutex calls_mutex;
  std::condition_variable calls_ended;
  int calls = 0;

  std::mutex mutex;                                                    // guards the maps
  std::map<std::string, std::shared_ptr<PreparedSpec::State>> states;  // by canonical spec
  std::map<std::string, std::unique_ptr<Entry>> entries;               // by key

  std::mutex driver_mutex;
  std::shared_ptr<const Driver> opened_driver;

  std::atomic<std::uint64_t> memory_hits{0}, disk_hits{0}, remote_hits{0}, compiles{0}, failures{0},
      waits{0}, fallbacks{0};
  std::atomic<std::int64_t> compile_us_total{0};

  /// Whether the next process finds its image in the cache.
  bool is_stored(const Entry& entry) const;

 private:
  Compiler& compiler_for(const Entry& entry) const;
  std::string build_id_or_empty(const Entry& entry) const;
  /// What the compiler is given: the source that is kept, or a new one.
  Result<KernelSource> source_of(Entry& entry);
  Result<KernelImage> compile_now(Entry& entry, PtxNeed ptx, double& compile_ms);
  /// `deadline`: of whoever asks first; the work goes on past it.
  Result<Fetched> find_or_compile(Entry& entry, PtxNeed ptx, bool ignore_cache, Deadline deadline);
  /// On disk and on the remote tier.
  std::optional<Fetched> find_in_cache(const Entry& entry, PtxNeed ptx);
  void fly(Entry& entry, PtxNeed ptx, Deadline deadline);
  void queue_flight(Entry& entry, PtxNeed ptx, Deadline deadline);
  void end_flight(Entry& entry, const Result<Fetched>& result);
  void queue_background(const std::shared_ptr<PreparedSpec::State>& state,
                        std::optional<int> device);
  /// Forgets an image that the driver refused: who asks for the kernel has it compiled again.
  void give_up(Entry& entry, const std::shared_ptr<const KernelImage>& image, const Error& why);
  const Kernel* publish(Entry& entry, const PreparedSpec::State& state,
                        std::unique_ptr<Kernel> first);
};

}  // namespace attnjit

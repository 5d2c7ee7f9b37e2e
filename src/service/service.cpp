// SPDX-License-Identifier: Apache-2.0
// Implements Service, the public face of ServiceCore.
#include "attnjit/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>
#include <utility>

#include "base/environment.h"
#include "base/longest_time.h"
#include "base/no_throw.h"
#include "driver/native_arch.h"
#include "service/core.h"

namespace attnjit {
namespace {

// The Service's end is promised within 2 s; what follows the waiting takes the rest.
constexpr std::chrono::milliseconds kShutDownLimit{1800};

class ServiceImpl final : public Service {
 public:
  explicit ServiceImpl(std::shared_ptr<ServiceCore> core) : core_(std::move(core)) {}

  ~ServiceImpl() override {
    if (core_->forked()) {
      // NOTE: leaked on purpose. Its threads exist in the parent alone, and its locks and condition
      // variables may be held by them for ever: destroying those hangs.
      (void)new (std::nothrow) std::shared_ptr<ServiceCore>(std::move(core_));
      return;
    }
    if (core_->options.flush_at_end.count() > 0) {
      flush(ServiceCore::Clock::now() + core_->options.flush_at_end);
    }
    core_->shut_down(ServiceCore::Clock::now() + kShutDownLimit);
  }

  using Service::prepare;

  Result<PreparedSpec> prepare(const ResolvedSpec& given) override {
    return no_throw([&]() -> Result<PreparedSpec> {
      if (given.state().arch_from != spec::ArchFrom::kSpec && core_->forked()) {
        return ServiceCore::forked_error();
      }
      const Result<ResolvedSpec> for_arch =
          with_native_arch(given, [this] { return core_->driver(); });
      if (!for_arch) return for_arch.error();
      const ResolvedSpec& spec = *for_arch;
      const std::string text = spec_to_json(spec.given(), spec.options());
      if (auto known = core_->find_prepared(text)) return PreparedSpec(std::move(known));
      auto state = core_->prepare(spec, text);
      if (!state) return std::move(state).error();
      return PreparedSpec(*std::move(state));
    });
  }

  Result<PreparedSpec> prepare(const AttentionSpec& spec, const PlanOptions& options) override {
    return no_throw([&]() -> Result<PreparedSpec> {
      // NOTE: looked for first: validating costs more than the rest of a second call.
      const std::string text = spec_to_json(spec, options);
      if (auto known = core_->find_prepared(text)) return PreparedSpec(std::move(known));
      const auto resolved = ResolvedSpec::make(spec, options);
      if (!resolved) return resolved.error();
      auto state = core_->prepare(*resolved, text);
      if (!state) return std::move(state).error();
      return PreparedSpec(*std::move(state));
    });
  }

  Result<CompiledKernel> compile(const PreparedSpec& spec, Deadline deadline,
                                 PtxNeed ptx) override {
    const auto begin = ServiceCore::Clock::now();
    if (core_->forked()) return ServiceCore::forked_error();
    if (Status mine = check_owner(spec); !mine) return std::move(mine).error();
    return no_throw([&]() -> Result<CompiledKernel> {
      const Call call(core_);
      auto fetched = core_->fetch(*spec.state()->entry, deadline, ptx, ServiceCore::Where::kQueue);
      if (!fetched) return std::move(fetched).error();
      CompiledKernel kernel;
      kernel.image = std::move(fetched->image);
      kernel.outcome = fetched->outcome;
      kernel.compile_ms = fetched->compile_ms;
      kernel.total_ms =
          std::chrono::duration<double, std::milli>(ServiceCore::Clock::now() - begin).count();
      return kernel;
    });
  }

  using Service::get;

  Result<const Kernel*> get(const PreparedSpec& spec, Deadline deadline, void* stream) override {
    if (const Kernel* kernel = find(spec)) {
      // What a child of fork() can still be told; to launch is not among what it can do.
      if (core_->forked()) return kernel;
      core_->memory_hits.fetch_add(1, std::memory_order_relaxed);
      return in_current_context(kernel, stream);
    }
    if (core_->forked()) return ServiceCore::forked_error();
    if (Status mine = check_owner(spec); !mine) return std::move(mine).error();
    return no_throw([&]() -> Result<const Kernel*> {
      const Call call(core_);
      if (Status free = not_capturing(spec, stream); !free) return std::move(free).error();
      auto kernel = core_->load(spec.state(), deadline, ServiceCore::Where::kQueue);
      if (!kernel) return kernel;
      return in_current_context(*kernel, stream);
    });
  }

  const Kernel* find(const PreparedSpec& spec) const noexcept override {
    const PreparedSpec::State* state = spec.state().get();
    if (state == nullptr || state->owner != core_.get()) return nullptr;
    return state->kernel.load(std::memory_order_acquire);
  }

  Result<const Kernel*> try_get(const PreparedSpec& spec) override {
    if (const Kernel* kernel = find(spec)) return kernel;
    if (core_->forked()) return ServiceCore::forked_error();
    if (Status mine = check_owner(spec); !mine) return std::move(mine).error();
    return no_throw([&]() -> Result<const Kernel*> {
      const Call call(core_);
      if (core_->stopping) return core_->cancelled_error();
      Status queued = core_->queue_once(*spec.state());
      if (!queued) return std::move(queued).error();
      return static_cast<const Kernel*>(nullptr);
    });
  }

  Result<ServedKernel> get_or_fallback(const PreparedSpec& spec, void* stream) override {
    if (const Kernel* kernel = find(spec)) return ServedKernel{kernel, false};
    Result<const Kernel*> own = try_get(spec);
    if (own && *own != nullptr) return ServedKernel{*own, false};
    if (core_->forked()) return ServiceCore::forked_error();
    if (Status mine = check_owner(spec); !mine) return std::move(mine).error();
    return no_throw([&]() -> Result<ServedKernel> {
      const Call call(core_);
      if (core_->stopping) return core_->cancelled_error();
      PreparedSpec::State* const state = core_->fallback_of(*spec.state());
      const Kernel* kernel = nullptr;
      if (state != nullptr) {
        kernel = state->kernel.load(std::memory_order_acquire);
        if (kernel == nullptr) {
          if (Status free = not_capturing(spec, stream); !free) return std::move(free).error();
          const Result<const Kernel*> loaded = core_->load_at_hand(*state);
          if (!loaded) return loaded.error();
          kernel = *loaded;
        }
        // NOTE: its errors are not this spec's: it is as if there were nothing to serve with.
        if (kernel == nullptr && core_->options.compile_fallbacks) (void)core_->queue_once(*state);
      }
      if (kernel == nullptr) {
        if (!own) return std::move(own).error();
        return ServedKernel{};
      }
      const Result<const Kernel*> ready = in_current_context(kernel, stream);
      if (!ready) return ready.error();
      core_->fallbacks.fetch_add(1, std::memory_order_relaxed);
      return ServedKernel{kernel, true};
    });
  }

  std::vector<PrewarmResult> prewarm(
      const std::vector<SpecDocument>& specs, int jobs,
      const std::function<void(const PrewarmResult&)>& progress) override {
    std::vector<PrewarmResult> results(specs.size());
    for (std::size_t i = 0; i < specs.size(); ++i) {
      results[i].index = i;
      results[i].arch = specs[i].spec.arch;
      if (core_->forked()) results[i].error = ServiceCore::forked_error();
    }
    if (specs.empty() || core_->forked()) return results;

    const Call call(core_);
    const int threads = std::clamp(jobs > 0 ? jobs : core_->compile_threads, 1,
                                   static_cast<int>(std::min<std::size_t>(specs.size(), 256)));
    core_->queue.grow(threads);
    std::atomic<std::size_t> next{0};
    std::mutex progress_mutex;
    std::vector<std::optional<PreparedSpec>> prepared(specs.size());
    const auto work = [&] {
      for (std::size_t i = next++; i < specs.size(); i = next++) {
        Status warmed = no_throw([&]() -> Status {
          warm(specs[i], results[i], prepared[i]);
          return {};
        });
        if (!warmed) results[i].error = std::move(warmed).error();
        if (!progress) continue;
        const std::lock_guard lock(progress_mutex);
        (void)no_throw([&]() -> Status {
          progress(results[i]);
          return {};
        });
      }
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) {
      // Fewer threads than asked for are slower, not wrong.
      if (!no_throw([&]() -> Status {
            others.emplace_back(work);
            return {};
          })) {
        break;
      }
    }
    work();
    for (std::thread& thread : others) thread.join();
    look_whether_stored(prepared, results);
    return results;
  }

  bool flush(Deadline deadline) final {
    if (core_->forked() || core_->cache == nullptr) return true;
    const Call call(core_);
    return core_->cache->flush(deadline);
  }

  ServiceStatistics statistics() const override {
    ServiceStatistics statistics;
    statistics.memory_hits = core_->memory_hits;
    statistics.disk_hits = core_->disk_hits;
    statistics.remote_hits = core_->remote_hits;
    statistics.compiles = core_->compiles;
    statistics.failures = core_->failures;
    statistics.waits = core_->waits;
    statistics.fallbacks = core_->fallbacks;
    statistics.compile_ms_total = static_cast<double>(core_->compile_us_total) / 1000;
    if (core_->forked()) return statistics;  // the rest needs locks
    statistics.queued = core_->queue.pending();
    if (core_->cache != nullptr) {
      const CacheStatistics cache = core_->cache->statistics();
      statistics.quarantined = cache.quarantined;
      statistics.lease_waits = cache.lease_waits;
      statistics.alone = cache.alone;
      statistics.remote = cache.remote;
    }
    return statistics;
  }

 private:
  /// A call that may wait, counted so that the Service's end can wait for it.
  class Call {
   public:
    explicit Call(std::shared_ptr<ServiceCore> core) : core_(std::move(core)) {
      const std::lock_guard lock(core_->calls_mutex);
      ++core_->calls;
    }
    ~Call() {
      const std::lock_guard lock(core_->calls_mutex);
      if (--core_->calls == 0) core_->calls_ended.notify_all();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    std::shared_ptr<ServiceCore> core_;
  };

  Status check_owner(const PreparedSpec& spec) const {
    if (spec.state() != nullptr && spec.state()->owner == core_.get()) {
      if (spec.state()->entry != nullptr) return {};
      return ServiceCore::forked_error();
    }
    return make_error(ErrorCode::kInvalid, "the PreparedSpec belongs to another Service", "spec",
                      "prepare it with the Service that is asked");
  }

  /// Before anything is touched. Without a CUDA context nothing of this thread can be capturing.
  Status not_capturing(const PreparedSpec& spec, void* stream) const {
    const auto driver = core_->driver_at_hand();
    if (driver == nullptr || !driver->current_device().ok()) return {};
    const Result<bool> capturing = driver->is_capturing(stream);
    if (!capturing) return capturing.error();
    if (!*capturing) return {};
    return make_error(ErrorCode::kCaptureInProgress,
                      fmt::format("kernel {} is not loaded and a stream is capturing",
                                  spec.key().hex.substr(0, 12)),
                      "stream", "get the kernel before the capture begins");
  }

  /// Loads the kernel whole into the thread's context, if there is one.
  Result<const Kernel*> in_current_context(const Kernel* kernel, void* stream) const {
    Status ready = kernel->prepare(stream);
    if (ready || ready.error().code == ErrorCode::kEnvironment) return kernel;
    return std::move(ready).error();
  }

  void look_whether_stored(const std::vector<std::optional<PreparedSpec>>& prepared,
                           std::vector<PrewarmResult>& results) {
    // What is on its way from or to the remote tier: its longest transfer, with all its attempts.
    constexpr std::chrono::seconds kFlushLimit{30};
    if (core_->cache == nullptr) return;
    const auto look = [&] {
      bool all = true;
      for (std::size_t i = 0; i < results.size(); ++i) {
        if (results[i].error || results[i].stored) continue;
        results[i].stored = core_->is_stored(*prepared[i]->state()->entry);
        all = all && results[i].stored;
      }
      return all;
    };
    (void)no_throw([&]() -> Status {
      if (look()) return {};
      (void)core_->cache->flush(ServiceCore::Clock::now() + kFlushLimit);
      (void)look();
      return {};
    });
  }

  void warm(const SpecDocument& document, PrewarmResult& result,
            std::optional<PreparedSpec>& kept) {
    auto prepared = prepare(document);
    if (!prepared) {
      result.error = prepared.error();
      return;
    }
    kept = *prepared;
    result.key = prepared->key().hex;
    const auto compiled =
        compile(*prepared, ServiceCore::Clock::now() + std::chrono::hours(1), PtxNeed::kSkip);
    if (compiled) {
      result.outcome = compiled->outcome;
    } else {
      result.error = compiled.error();
    }
  }

  std::shared_ptr<ServiceCore> core_;
};

Result<TemplateSet> templates_of(const ServiceOptions& options, const Environment& environment) {
  const std::string folder = !options.templates_folder.empty()
                                 ? options.templates_folder
                                 : environment.templates.value_or(std::string());
  if (folder.empty()) return TemplateSet::embedded();
  return TemplateSet::from_folder(folder);
}

}  // namespace

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kMemory:
      return "memory";
    case Outcome::kDisk:
      return "disk";
    case Outcome::kRemote:
      return "remote";
    case Outcome::kCompiled:
      return "compiled";
  }
  return "unknown";
}

const KernelPlan& PreparedSpec::plan() const { return state_->plan; }
const RequestKey& PreparedSpec::key() const { return state_->key; }

Service::~Service() = default;

Result<PreparedSpec> Service::prepare(const SpecDocument& document) {
  return prepare(document.spec, document.options);
}

Result<PreparedSpec> Service::prepare(std::string_view json) {
  return no_throw([&]() -> Result<PreparedSpec> {
    const auto resolved = ResolvedSpec::from_json(json);
    if (!resolved) return resolved.error();
    return prepare(*resolved);
  });
}

Result<const Kernel*> Service::get(const PreparedSpec& spec, std::chrono::nanoseconds timeout,
                                   void* stream) {
  return get(spec, std::chrono::steady_clock::now() + bounded(timeout), stream);
}

Result<std::unique_ptr<Service>> Service::create(ServiceOptions options) {
  return no_throw([&]() -> Result<std::unique_ptr<Service>> {
    const Environment environment = read_environment();
    if (options.compile_threads < 0) {
      return make_error(
          ErrorCode::kInvalid,
          fmt::format("{} threads; 0 means what cores and memory allow", options.compile_threads),
          "compile_threads");
    }
    options.failure_ttl = bounded(options.failure_ttl);
    options.flush_at_end = bounded(options.flush_at_end);
    if (options.nvrtc_path.empty() && environment.nvrtc) options.nvrtc_path = *environment.nvrtc;
    Result<BuildPolicy> policy = with_environment(options.build_policy);
    if (!policy) return std::move(policy).error();
    options.build_policy = *policy;
    if (options.use_remote) {
      Result<RemoteOptions> remote = with_environment(std::move(options.remote));
      if (!remote) return std::move(remote).error();
      options.remote = *std::move(remote);
    } else {
      options.remote = {};
    }
    Result<SignatureOptions> signatures = with_environment(std::move(options.signatures));
    if (!signatures) return std::move(signatures).error();
    options.signatures = *std::move(signatures);
    Result<LeaseOptions> lease = with_environment(std::move(options.lease));
    if (!lease) return std::move(lease).error();
    options.lease = *std::move(lease);
    LogSink sink = options.log;
    if (!sink) sink = make_stderr_sink(environment.log_level.value_or("warning"));
    auto templates = templates_of(options, environment);
    if (!templates) return std::move(templates).error();
    std::string injection;
    if (options.nvtx_ranges && environment.nvtx_injection) {
      injection = *environment.nvtx_injection;
      if (const Result<const Nvtx*> opened = Nvtx::open(injection); !opened) {
        Logger(sink).warning("there will be no NVTX ranges: " + opened.error().to_string());
        injection.clear();
      }
    }
    auto core =
        std::make_shared<ServiceCore>(options, std::move(sink), *std::move(templates), injection);
    return std::unique_ptr<Service>(std::make_unique<ServiceImpl>(std::move(core)));
  });
}

}  // namespace attnjit

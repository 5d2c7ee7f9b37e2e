// SPDX-License-Identifier: Apache-2.0
// Implements what a Service does: it prepares specs, finds or compiles images, and loads kernels.
#include "service/core.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/no_throw.h"
#include "driver/cuda_api.h"
#include "driver/primary_context.h"
#include "service/compile_budget.h"

namespace attnjit {
namespace {

// A compile that nobody waits for any more still ends: helpers are killed by their own clock.
constexpr std::chrono::minutes kFlightLimit{60};

int threads_of(const ServiceOptions& options) {
  return options.compile_threads > 0 ? options.compile_threads : compiles_at_once(machine_limits());
}

Outcome outcome_of(ImageOrigin origin) {
  switch (origin) {
    case ImageOrigin::kDisk:
      return Outcome::kDisk;
    case ImageOrigin::kRemote:
      return Outcome::kRemote;
    case ImageOrigin::kCompiled:
      break;
  }
  return Outcome::kCompiled;
}

std::string short_key(const RequestKey& key) { return key.hex.substr(0, 12); }

double milliseconds_since(ServiceCore::Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(ServiceCore::Clock::now() - begin).count();
}

const Nvtx* opened_nvtx(const std::string& injection) {
  if (injection.empty()) return nullptr;
  const Result<const Nvtx*> opened = Nvtx::open(injection);
  return opened ? *opened : nullptr;
}

std::unique_ptr<CubinCache> open_service_cache(const ServiceOptions& options, LogSink log) {
  CacheOptions cache;
  if (options.use_disk_cache) {
    cache.layers = options.cache_layers.empty() ? default_cache_layers() : options.cache_layers;
  }
  cache.remote = options.remote;
  cache.signatures = options.signatures;
  cache.lease = options.lease;
  if (cache.layers.empty() && cache.remote.url.empty()) return nullptr;
  cache.max_bytes = options.cache_max_bytes;
  cache.failure_ttl = options.failure_ttl;
  cache.log = std::move(log);
  return open_cache(cache);
}

}  // namespace

ServiceCore::ServiceCore(const ServiceOptions& service_options, LogSink sink,
                         TemplateSet template_set, const std::string& injection)
    : pid(getpid()),
      options(service_options),
      gated_log(std::move(sink)),
      gated_on_compile(service_options.on_compile),
      log(gated_log.function()),
      templates(std::move(template_set)),
      nvtx_injection(injection),
      nvtx(opened_nvtx(injection)),
      cache(open_service_cache(service_options, gated_log.function())),
      compiler(service_options.compiler),
      helper(service_options.helper_compiler ? service_options.helper_compiler
                                             : service_options.compiler),
      compile_threads(threads_of(service_options)),
      queue(compile_threads) {
  if (compiler == nullptr) compiler = make_in_process_compiler(options.nvrtc_path);
  if (helper == nullptr) {
    HelperOptions helper_options;
    helper_options.helper_path = options.helper_path;
    helper_options.nvrtc_path = options.nvrtc_path;
    helper_options.accept_unconfined = options.accept_unconfined_helper;
    helper = make_helper_compiler(helper_options);
  }
}

ServiceCore::~ServiceCore() = default;

bool ServiceCore::forked() const { return getpid() != pid; }

Error ServiceCore::forked_error() {
  return make_error(ErrorCode::kForked,
                    "this process is a fork of the one that made the Service; its threads and "
                    "locks stayed there",
                    {}, "create a Service in the child");
}

Error ServiceCore::cancelled_error() const {
  return make_error(ErrorCode::kCancelled, "the Service is shutting down");
}

// --- Specs --------------------------------------------------------------------------------------

std::shared_ptr<PreparedSpec::State> ServiceCore::find_prepared(const std::string& text) {
  if (forked()) return nullptr;  // the lock stayed in the parent
  const std::lock_guard lock(mutex);
  const auto known = states.find(text);
  return known == states.end() ? nullptr : known->second;
}

Result<std::shared_ptr<PreparedSpec::State>> ServiceCore::prepare(const ResolvedSpec& spec,
                                                                  const std::string& text) {
  const bool child = forked();
  auto planned = plan(spec, options.tuning.get());
  if (!planned) return std::move(planned).error();
  if (!planned->supported) {
    return make_error(ErrorCode::kUnsupported, planned->reason);
  }
  auto source = generate(*planned, templates);
  if (!source) return std::move(source).error();

  auto state = std::make_shared<PreparedSpec::State>();
  state->owner = this;
  state->plan = *std::move(planned);
  state->key = request_key(state->plan, *source);
  if (child) return state;

  const std::lock_guard lock(mutex);
  const auto [place, inserted] = states.emplace(text, state);
  if (!inserted) return place->second;  // another thread was faster
  std::unique_ptr<Entry>& entry = entries[state->key.hex];
  if (entry == nullptr) {
    entry = std::make_unique<Entry>();
    entry->key = state->key;
    entry->plan = state->plan;
    entry->trusted = source->trusted;
    entry->source = std::make_shared<const KernelSource>(*std::move(source));
  }
  state->entry = entry.get();
  const std::lock_guard entry_lock(entry->mutex);
  entry->states.push_back(state);
  if (!entry->kernels.empty()) {
    entry->kernels.push_back(entry->kernels.front()->with_plan(state->plan));
    state->kernel.store(entry->kernels.back().get(), std::memory_order_release);
  }
  return state;
}

// --- Images -------------------------------------------------------------------------------------

Compiler& ServiceCore::compiler_for(const Entry& entry) const {
  return entry.trusted || options.compile_in_helper ? *helper : *compiler;
}

std::string ServiceCore::build_id_or_empty(const Entry& entry) const {
  auto id = compiler_for(entry).build_id();
  return id ? *std::move(id) : std::string();
}

bool ServiceCore::is_stored(const Entry& entry) const {
  return cache != nullptr &&
         cache->holds(entry.key, build_id_or_empty(entry), *options.build_policy);
}

std::optional<ServiceCore::Fetched> ServiceCore::find_in_cache(const Entry& entry, PtxNeed ptx) {
  if (cache == nullptr) return std::nullopt;
  ImageOrigin origin{};
  auto image =
      cache->find(entry.key, build_id_or_empty(entry), *options.build_policy, ptx, &origin);
  if (!image) return std::nullopt;
  return Fetched{std::make_shared<const KernelImage>(*std::move(image)), outcome_of(origin), 0};
}

Result<KernelSource> ServiceCore::source_of(Entry& entry) {
  std::shared_ptr<const KernelSource> kept;
  {
    const std::lock_guard lock(entry.mutex);
    kept = entry.source;
  }
  if (kept != nullptr) return *kept;
  return generate(entry.plan, templates);
}

Result<KernelImage> ServiceCore::compile_now(Entry& entry, PtxNeed ptx, double& compile_ms) {
  if (stopping) return cancelled_error();
  CompileRequest request;
  auto source = source_of(entry);
  if (!source) return std::move(source).error();
  request.source = *std::move(source);
  // Stored with its PTX, which NVRTC made on the way: the emulator of a machine without NVRTC runs
  // it, and a load that does not ask for it does not read it.
  request.want_ptx = ptx == PtxNeed::kRequired || cache != nullptr;
  log.debug(
      fmt::format("compiling {} for {}", short_key(entry.key), to_string(entry.plan.spec->arch)));
  const NvtxRange range(nvtx, [&] {
    return fmt::format("attnjit compile {} {}", short_key(entry.key),
                       to_string(entry.plan.spec->arch));
  });
  const auto begin = Clock::now();
  auto image = compiler_for(entry).compile(request, Clock::now() + kFlightLimit);
  compile_ms = milliseconds_since(begin);
  ++compiles;
  compile_us_total += static_cast<std::int64_t>(compile_ms * 1000);
  if (image && cache == nullptr && options.use_disk_cache && !no_cache_warned.test_and_set()) {
    log.warning(
        "there is no cache folder, and kernels are kept in this process alone: set "
        "ATTNJIT_CACHE_DIR, XDG_CACHE_HOME or HOME to a folder of this user (said once)");
  }
  if (image) {
    log.info(fmt::format("compiled {} for {} in {:.0f} ms: {} bytes, {} registers, {} spilled",
                         short_key(entry.key), to_string(entry.plan.spec->arch), compile_ms,
                         image->cubin.size(), image->usage.registers, image->usage.spill_bytes));
  }
  if (options.on_compile) {
    CompileEvent event;
    event.key = entry.key.hex;
    event.arch = entry.plan.spec->arch;
    event.compile_ms = compile_ms;
    event.image = image ? &*image : nullptr;
    event.error = image ? nullptr : &image.error();
    gated_on_compile.function()(event);
  }
  return image;
}

Result<ServiceCore::Fetched> ServiceCore::find_or_compile(Entry& entry, PtxNeed ptx,
                                                          bool ignore_cache, Deadline deadline) {
  Fetched fetched;
  if (options.forbid_compile) {
    return make_error(ErrorCode::kCompileForbidden,
                      fmt::format("kernel {} is in no cache, and this Service forbids compiles",
                                  short_key(entry.key)),
                      {}, "prewarm it (attnjit prewarm), or allow compiles");
  }
  const auto build = compiler_for(entry).build_id();
  if (!build) {
    Error error = build.error();
    error.message += fmt::format("; kernel {} is in no cache", short_key(entry.key));
    return error;
  }
  ImageOrigin origin = ImageOrigin::kCompiled;
  const auto compile = [&] { return compile_now(entry, ptx, fetched.compile_ms); };
  // Another machine is not waited for so long that no compile of this one would fit; but that takes
  // about a second. Past the deadline nobody waits here.
  constexpr std::chrono::seconds kLeastPatience{1};
  const auto now = Clock::now();
  const Deadline patience =
      deadline > now ? now + std::max<Clock::duration>((deadline - now) / 2, kLeastPatience)
                     : Deadline::max();
  auto image = cache == nullptr || ignore_cache
                   ? compile()
                   : cache->get_or_compile(entry.key, *build, *options.build_policy,
                                           now + kFlightLimit, compile, &origin, ptx, patience);
  if (!image && image.error().code == ErrorCode::kEnvironment && cache != nullptr &&
      !ignore_cache) {
    // A library is there, but it does not open, or does not know this architecture: as good as
    // none.
    if (auto stored = cache->find(entry.key, {}, *options.build_policy, ptx, &origin)) {
      if (!nvrtc_warned.test_and_set()) {
        log.warning(
            fmt::format("{}; what is in the cache is served, whatever NVRTC made it (said once)",
                        image.error().to_string()));
      }
      image = *std::move(stored);
    }
  }
  if (!image) return std::move(image).error();
  if (cache != nullptr && ignore_cache) {
    if (Status stored = cache->store(entry.key, *build, *image); !stored) {
      log.warning(stored.error().to_string());
    }
  }
  // It is on the disk for who wants it; a server holds its kernels without it.
  if (ptx == PtxNeed::kSkip) image->ptx = {};
  fetched.outcome = outcome_of(origin);
  if (origin != ImageOrigin::kCompiled) fetched.compile_ms = 0;
  fetched.image = std::make_shared<const KernelImage>(*std::move(image));
  return fetched;
}

void ServiceCore::remember_failure(Entry& entry, const Error& error) {
  if (error.code == ErrorCode::kCancelled || options.failure_ttl.count() <= 0) return;
  // A flight has an hour: where it timed out, the compiler's own limit was what ended it.
  const bool deterministic =
      error.code == ErrorCode::kCompileFailed || error.code == ErrorCode::kTimeout;
  entry.failure = Entry::Failure{error, Clock::now(), deterministic};
}

void ServiceCore::end_flight(Entry& entry, const Result<Fetched>& result) {
  {
    const std::lock_guard lock(entry.mutex);
    entry.in_flight = entry.flight_waits = false;
    ++entry.flights;
    entry.source.reset();
    if (result) {
      entry.image = result->image;
      entry.image_from_cache = result->outcome != Outcome::kCompiled;
      entry.last_outcome = result->outcome;
      entry.last_compile_ms = result->compile_ms;
      entry.last_error.reset();
      entry.failure.reset();
    } else {
      entry.last_error = result.error();
      remember_failure(entry, result.error());
    }
    if (result && result->outcome == Outcome::kDisk) ++disk_hits;
    if (result && result->outcome == Outcome::kRemote) ++remote_hits;
    if (!result && result.error().code != ErrorCode::kCancelled) ++failures;
    entry.changed.notify_all();
  }
  // NOTE: no warning: whoever asked is told by the result, and would be told twice.
  if (!result && result.error().code != ErrorCode::kCancelled) {
    log.info(fmt::format("kernel {}: {}", short_key(entry.key), result.error().to_string()));
  }
}

/// The rest of a flight for which the cache was asked without success; on a thread of the queue.
void ServiceCore::fly(Entry& entry, PtxNeed ptx, Deadline deadline) {
  bool ignore_cache = false;
  {
    const std::lock_guard lock(entry.mutex);
    if (!entry.flight_waits) return;  // a background job took it over
    entry.flight_waits = false;
    ignore_cache = entry.cache_rejected;
  }
  end_flight(entry, no_throw([&] { return find_or_compile(entry, ptx, ignore_cache, deadline); }));
}

void ServiceCore::queue_flight(Entry& entry, PtxNeed ptx, Deadline deadline) {
  {
    const std::lock_guard lock(entry.mutex);
    entry.flight_waits = true;
    entry.changed.notify_all();  // a background job may take it over
  }
  const auto self = shared_from_this();
  const auto drop = [self, &entry] {
    {
      const std::lock_guard lock(entry.mutex);
      if (!entry.flight_waits) return;
      entry.flight_waits = false;
    }
    self->end_flight(entry, self->cancelled_error());
  };
  queue.submit({[self, &entry, ptx, deadline] { self->fly(entry, ptx, deadline); }, drop},
               WorkQueue::Urgency::kWaitedFor);
}

Result<ServiceCore::Fetched> ServiceCore::fetch(Entry& entry, Deadline deadline, PtxNeed ptx,
                                                Where where) {
  const auto serves = [&] {
    return entry.image != nullptr && (ptx != PtxNeed::kRequired || !entry.image->ptx.empty());
  };
  bool waited = false;  // for a flight, which ended
  bool own = false;     // a flight was begun here
  std::unique_lock lock(entry.mutex);
  for (;;) {
    if (serves()) {
      if (waited) return Fetched{entry.image, entry.last_outcome, entry.last_compile_ms};
      ++memory_hits;
      return Fetched{entry.image, Outcome::kMemory, 0};
    }
    if (stopping) return cancelled_error();
    if (waited && entry.last_error) return *entry.last_error;
    if (entry.failure && entry.failure->deterministic &&
        Clock::now() - entry.failure->when < options.failure_ttl) {
      return entry.failure->error;
    }
    if (entry.in_flight) {
      // NOTE: a job of the queue does not wait for a flight that is queued behind it: with every
      // thread waiting so, none would be left to fly. It flies itself.
      if (where == Where::kHere && entry.flight_waits) {
        lock.unlock();
        fly(entry, ptx, deadline);
        lock.lock();
        waited = true;
        continue;
      }
      if (!waited && !own) ++waits;
      const std::uint64_t flight = entry.flights;
      const bool woken = entry.changed.wait_until(lock, deadline, [&] {
        return entry.flights != flight || stopping.load() ||
               (where == Where::kHere && entry.flight_waits);
      });
      if (!woken) {
        return make_error(
            ErrorCode::kTimeout,
            fmt::format("kernel {} was not compiled by the deadline; the compile goes on",
                        short_key(entry.key)),
            {}, "ask again later, or prewarm it");
      }
      waited = entry.flights != flight;
      continue;
    }

    // This call's flight. The cache is asked here: nobody should wait in a queue of compiles for
    // what is there.
    entry.in_flight = true;
    own = true;
    const bool ignore_cache = entry.cache_rejected;
    const std::uint64_t flight = entry.flights;
    lock.unlock();
    Result<Fetched> made = no_throw([&]() -> Result<Fetched> {
      if (!ignore_cache) {
        if (auto found = find_in_cache(entry, ptx)) return *std::move(found);
      }
      // Where compiles are forbidden this ends at once and needs no thread.
      if (where == Where::kHere || options.forbid_compile) {
        return find_or_compile(entry, ptx, ignore_cache, deadline);
      }
      return Fetched{};
    });
    if (!made || made->image != nullptr) {
      end_flight(entry, made);
      return made;
    }
    // NOTE: a flight that was begun has to end, even if there is no memory to queue it: others
    // wait.
    if (Status queued = no_throw([&]() -> Status {
          queue_flight(entry, ptx, deadline);
          return {};
        });
        !queued) {
      end_flight(entry, queued.error());
      return std::move(queued).error();
    }
    lock.lock();
    // NOTE: the flight may have ended already; without this its image would count as one from
    // memory.
    waited = entry.flights != flight;
  }
}

// --- Kernels ------------------------------------------------------------------------------------

Result<std::shared_ptr<const Driver>> ServiceCore::driver() {
  const std::lock_guard lock(driver_mutex);
  if (opened_driver != nullptr) return opened_driver;
  DriverOptions driver_options;
  driver_options.driver_path = options.driver_path;
  driver_options.nvtx_injection = nvtx_injection;
  auto opened = Driver::open(driver_options);
  if (!opened) return std::move(opened).error();
  opened_driver = *std::move(opened);
  log.debug(fmt::format("opened {}, CUDA {}.{}", opened_driver->path(),
                        opened_driver->version() / 1000, opened_driver->version() % 1000 / 10));
  return opened_driver;
}

std::shared_ptr<const Driver> ServiceCore::driver_at_hand() {
  {
    const std::unique_lock lock(driver_mutex, std::try_to_lock);
    if (!lock.owns_lock()) return nullptr;  // being opened: there is no context yet that matters
    if (opened_driver != nullptr) return opened_driver;
  }
  const char* path = options.driver_path.empty() ? "libcuda.so.1" : options.driver_path.c_str();
  void* loaded = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (loaded == nullptr) return nullptr;  // no library, no context
  (void)dlclose(loaded);
  auto opened = driver();
  return opened ? *std::move(opened) : nullptr;
}

const Kernel* ServiceCore::publish(Entry& entry, const PreparedSpec::State& wanted,
                                   std::unique_ptr<Kernel> first) {
  const std::lock_guard lock(entry.mutex);
  for (const auto& state : entry.states) {
    entry.kernels.push_back(first->with_plan(state->plan));
    state->kernel.store(entry.kernels.back().get(), std::memory_order_release);
  }
  return wanted.kernel.load(std::memory_order_relaxed);
}

Result<const Kernel*> ServiceCore::load(const std::shared_ptr<PreparedSpec::State>& state,
                                        Deadline deadline, Where where) {
  Entry& entry = *state->entry;
  for (bool retried = false;; retried = true) {
    // Fetched before the driver is asked: a compile is not in vain where there is none yet.
    auto fetched = fetch(entry, deadline, PtxNeed::kSkip, where);
    if (!fetched) return std::move(fetched).error();
    auto opened = driver();
    if (!opened) return std::move(opened).error();
    Error rejected;
    {
      const std::lock_guard load_lock(entry.load_mutex);
      if (const Kernel* kernel = state->kernel.load(std::memory_order_acquire)) return kernel;
      if (stopping) return cancelled_error();
      const NvtxRange range(nvtx, [&] { return "attnjit load " + short_key(entry.key); });
      auto kernel = (*opened)->load(fetched->image, state->plan);
      if (kernel) return publish(entry, *state, *std::move(kernel));
      rejected = std::move(kernel).error();
    }
    if (rejected.code != ErrorCode::kCorrupt || retried) return rejected;
    {
      const std::lock_guard lock(entry.mutex);
      if (entry.image == fetched->image && !entry.image_from_cache) return rejected;
    }
    give_up(entry, fetched->image, rejected);
  }
}

void ServiceCore::give_up(Entry& entry, const std::shared_ptr<const KernelImage>& image,
                          const Error& why) {
  {
    const std::lock_guard lock(entry.mutex);
    if (entry.image != image) return;  // another thread was here
    entry.image.reset();
    entry.cache_rejected = true;
  }
  log.warning(
      fmt::format("the image of kernel {} is given up: {}", short_key(entry.key), why.to_string()));
}

PreparedSpec::State* ServiceCore::fallback_of(PreparedSpec::State& state) {
  if (state.fallback_known.load(std::memory_order_acquire)) return state.fallback;
  // Two threads that come here at once find the same.
  if (const auto document = fallback_spec(state.plan.spec)) {
    const std::string text = spec_to_json(document->spec, document->options);
    std::shared_ptr<PreparedSpec::State> known = find_prepared(text);
    if (known == nullptr) {
      if (const auto resolved = ResolvedSpec::make(document->spec, document->options)) {
        // What no kernel interprets has no fallback.
        if (auto prepared = prepare(*resolved, text)) known = *std::move(prepared);
      }
    }
    // NOTE: the map of states keeps it.
    if (known != nullptr) state.fallback = known.get();
  }
  state.fallback_known.store(true, std::memory_order_release);
  return state.fallback;
}

Result<const Kernel*> ServiceCore::load_at_hand(PreparedSpec::State& state) {
  constexpr std::chrono::seconds kMissLasts{1};
  if (const Kernel* kernel = state.kernel.load(std::memory_order_acquire)) return kernel;
  Entry& entry = *state.entry;
  std::shared_ptr<const KernelImage> image;
  {
    const std::lock_guard lock(entry.mutex);
    image = entry.image;
    const bool missed = entry.missed && Clock::now() - *entry.missed < kMissLasts;
    if (image == nullptr && (entry.in_flight || entry.cache_rejected || missed)) {
      return static_cast<const Kernel*>(nullptr);
    }
  }
  if (image == nullptr) {
    const std::optional<Fetched> found = find_in_cache(entry, PtxNeed::kSkip);
    const std::lock_guard lock(entry.mutex);
    if (!found) {
      entry.missed = Clock::now();
      return static_cast<const Kernel*>(nullptr);
    }
    if (entry.image == nullptr) {
      entry.image = found->image;
      entry.image_from_cache = true;
      entry.last_outcome = found->outcome;
      ++(found->outcome == Outcome::kDisk ? disk_hits : remote_hits);
    }
    image = entry.image;
  }
  auto opened = driver();
  if (!opened) return std::move(opened).error();
  Error refused;
  {
    const std::lock_guard load_lock(entry.load_mutex);
    if (const Kernel* kernel = state.kernel.load(std::memory_order_acquire)) return kernel;
    if (stopping) return cancelled_error();
    const NvtxRange range(nvtx, [&] { return "attnjit load " + short_key(entry.key); });
    auto kernel = (*opened)->load(image, state.plan);
    if (kernel) return publish(entry, state, *std::move(kernel));
    refused = std::move(kernel).error();
  }
  if (refused.code != ErrorCode::kCorrupt) return refused;
  give_up(entry, image, refused);
  return static_cast<const Kernel*>(nullptr);
}

Status ServiceCore::queue_once(PreparedSpec::State& state) {
  Entry& entry = *state.entry;
  {
    const std::lock_guard lock(entry.mutex);
    if (entry.failure && Clock::now() - entry.failure->when < options.failure_ttl) {
      return entry.failure->error;
    }
    if (entry.queued) return {};
    entry.queued = true;
  }
  Status queued = no_throw([&]() -> Status {
    std::optional<int> device;
    if (const auto open = driver_at_hand()) device = device_of_current_primary_context(open->api());
    queue_background(state.shared_from_this(), device);
    return {};
  });
  if (queued) return {};
  // NOTE: a later call is to try again, not to wait for what was never queued.
  const std::lock_guard lock(entry.mutex);
  entry.queued = false;
  return queued;
}

void ServiceCore::queue_background(const std::shared_ptr<PreparedSpec::State>& state,
                                   std::optional<int> device) {
  Entry& entry = *state->entry;
  const auto self = shared_from_this();
  const auto finish = [self, &entry](const Result<const Kernel*>& result) {
    if (!result && result.error().code != ErrorCode::kCancelled) {
      self->log.warning(fmt::format("kernel {}, in the background: {}", short_key(entry.key),
                                    result.error().to_string()));
    }
    const std::lock_guard lock(entry.mutex);
    entry.queued = false;
    if (!result) self->remember_failure(entry, result.error());
  };
  const auto run = [self, state, device, finish] {
    finish(no_throw([&]() -> Result<const Kernel*> {
      const std::shared_ptr<const Driver> open = device ? self->driver_at_hand() : nullptr;
      std::optional<ScopedPrimaryContext> context;
      if (open != nullptr) context.emplace(open->api(), *device);
      return self->load(state, Clock::now() + kFlightLimit, Where::kHere);
    }));
  };
  queue.submit({run, [self, finish] { finish(self->cancelled_error()); }},
               WorkQueue::Urgency::kBackground);
}

// --- The end ------------------------------------------------------------------------------------

void ServiceCore::shut_down(Deadline deadline) {
  stopping = true;
  compiler->cancel();
  if (helper != compiler) helper->cancel();
  const auto wake_waiters = [&] {
    const std::lock_guard lock(mutex);
    for (const auto& [key, entry] : entries) {
      const std::lock_guard entry_lock(entry->mutex);
      entry->changed.notify_all();
    }
  };
  wake_waiters();
  bool quiet = queue.stop(deadline);
  {
    std::unique_lock lock(calls_mutex);
    quiet = calls_ended.wait_until(lock, deadline, [&] { return calls == 0; }) && quiet;
  }
  if (!quiet) log.warning("a compile could not be stopped; its thread is left behind");
  gated_on_compile.close();
  gated_log.close();

  // Unload now, whoever still holds the core; a loader that hangs keeps its own.
  const std::lock_guard lock(mutex);
  for (const auto& [key, entry] : entries) {
    const std::unique_lock load_lock(entry->load_mutex, std::try_to_lock);
    if (!load_lock.owns_lock()) continue;
    const std::lock_guard entry_lock(entry->mutex);
    for (const auto& state : entry->states) state->kernel.store(nullptr, std::memory_order_release);
    entry->kernels.clear();
  }
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Looks a key up in memory and in the layers, and lets one caller compile it when it is in none.
#include "cache/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "cache/key_lock.h"
#include "cache/trim.h"

namespace attnjit::cache {
namespace {

constexpr std::int64_t kBlockBytes = 4096;  // what a file takes on disk at least

// A leader's failure that says nothing about a request with more time than the leader had.
bool ran_out_of_time(const Landed& landed, Compiler::Deadline deadline) {
  return !landed.result.ok() && landed.result.error().code == ErrorCode::kTimeout &&
         landed.deadline < deadline;
}

}  // namespace

Store::Store(const CacheOptions& options, FileSystem& fs)
    : options_(options), fs_(fs), log_(options.log) {
  Trust trust;
  trust.user = fs.user();
  trust.others = options.trusted_owners;
  for (std::size_t i = 0; i < options.layers.size(); ++i) {
    layers_.push_back(std::make_unique<Layer>(fs, options.layers[i], i == 0, trust, log_));
  }
  failures_ = std::make_unique<Failures>(fs, layers_.empty() ? nullptr : layers_.front().get(),
                                         options.failure_ttl);
}

std::optional<KernelImage> Store::look_up(const RequestKey& key, const EntryId& id,
                                          std::string_view build_id, BuildPolicy policy,
                                          PtxNeed ptx) {
  Wanted wanted;
  wanted.material = &key.material;
  wanted.arch = &key.arch;
  wanted.parts.ptx = ptx != PtxNeed::kSkip;
  wanted.stamp = true;
  const auto serves = [&](const Loaded& loaded) {
    return loaded.state == Loaded::State::kHit &&
           (ptx != PtxNeed::kRequired || !loaded.entry.image.ptx.empty());
  };
  if (!build_id.empty()) {
    wanted.id = &id;
    const std::string name = file_name(id);
    for (const auto& layer : layers_) {
      Loaded loaded = layer->load(name, wanted);
      if (serves(loaded)) return std::move(loaded.entry.image);
    }
    if (policy == BuildPolicy::kExact) return std::nullopt;
  }
  wanted.id = nullptr;
  std::optional<Entry> newest;
  for (const auto& layer : layers_) {
    for (const std::string& name : layer->images_of(id)) {
      Loaded loaded = layer->load(name, wanted);
      if (!serves(loaded)) continue;
      if (!newest || loaded.entry.created_unix_s > newest->created_unix_s) {
        newest = std::move(loaded.entry);
      }
    }
  }
  if (!newest) return std::nullopt;
  return std::move(newest->image);
}

std::optional<KernelImage> Store::find(const RequestKey& key, std::string_view build_id,
                                       BuildPolicy policy, PtxNeed ptx) {
  std::optional<KernelImage> image;
  if (const auto id = entry_id(key, build_id)) {
    image = look_up(key, *id, build_id, policy, ptx);
  }
  ++(image ? count_.hits : count_.misses);
  return image;
}

Status Store::store(const RequestKey& key, std::string_view build_id, const KernelImage& image) {
  if (layers_.empty()) return {};
  const auto failed = [&](Error error) -> Status {
    ++count_.store_failures;
    layers_.front()->warn_once(
        store_warned_, fmt::format("cannot write to the cache: {}; kernels are compiled all the "
                                   "same (said once)",
                                   error.to_string()));
    log_.debug("not cached: " + error.to_string());
    return error;
  };
  const std::int64_t now_s = std::max<std::int64_t>(fs_.now_ns() / 1000000000, 0);
  auto bytes = encode_entry(key, build_id, image, now_s);
  if (!bytes) return failed(bytes.error());
  const auto size = static_cast<std::int64_t>(bytes->size());
  if (size > options_.max_bytes) {
    return failed(make_error(ErrorCode::kIo, fmt::format("the entry has {} bytes; the cap of the "
                                                         "cache is {}",
                                                         size, options_.max_bytes)));
  }
  const Status published = layers_.front()->publish(file_name(*entry_id(key, build_id)), *bytes);
  if (!published) return failed(published.error());
  ++count_.stores;
  trim_after_store(size);
  return {};
}

void Store::trim_after_store(std::int64_t stored_bytes) {
  // A look at every file for each store would be exact, and slow in a full cache: so only when a
  // 64th of the cap was written. Trimming leaves that much free, so one process alone never leaves
  // the cache above its cap.
  constexpr std::int64_t kStoredFiles = 2;  // an entry or a failure, and its lock
  const Cap slack = trim_slack(cap());
  const std::int64_t bytes = bytes_since_trim_.fetch_add(stored_bytes);
  const std::int64_t files = files_since_trim_.fetch_add(kStoredFiles) + kStoredFiles;
  if (bytes >= 0 && bytes + stored_bytes < slack.bytes && files < slack.files) return;
  if (trimming_.test_and_set()) return;  // another thread is at it
  bytes_since_trim_ = 0;
  files_since_trim_ = 0;
  const CacheGcReport report = trim(*layers_.front(), {cap() - slack, false, options_.failure_ttl});
  count_.evicted += report.removed.size();
  trimming_.clear();
}

Store::Clock::time_point Store::patience(Compiler::Deadline deadline) const {
  const auto now = Clock::now();
  if (deadline <= now) return now;
  // NOTE: in milliseconds: the largest of them are no number of nanoseconds.
  const auto half = std::chrono::duration_cast<std::chrono::milliseconds>((deadline - now) / 2);
  return now + std::min(half, options_.max_wait);
}

Result<KernelImage> Store::compile_and_store(const Request& request) {
  if (Clock::now() >= request.deadline) {
    return make_error(ErrorCode::kTimeout, "the deadline passed before the compile began");
  }
  ++count_.compiles;
  Result<KernelImage> result = [&]() -> Result<KernelImage> {
    try {
      return request.compile();
    } catch (const std::exception& failure) {
      return make_error(ErrorCode::kInternal,
                        std::string("the compile callback threw: ") + failure.what());
    } catch (...) {
      return make_error(ErrorCode::kInternal, "the compile callback threw");
    }
  }();
  if (result.ok()) {
    static_cast<void>(store(request.key, request.build_id, *result));
    failures_->forget(request.id);
  } else if (result.error().code == ErrorCode::kCompileFailed ||
             // Not the caller's limit but the compiler's own: it would strike again.
             (result.error().code == ErrorCode::kTimeout && Clock::now() < request.deadline)) {
    const std::int64_t written = failures_->remember(request.id, result.error());
    if (written > 0) trim_after_store(std::max(written, kBlockBytes));
  }
  return result;
}

Landed Store::lead(const Request& request) {
  const auto already = [&]() -> std::optional<Landed> {
    if (auto image =
            look_up(request.key, request.id, request.build_id, request.policy, request.ptx)) {
      return Landed{*std::move(image), true, request.deadline};
    }
    if (auto error = failures_->find(request.id)) {
      ++count_.failure_hits;
      return Landed{*std::move(error), false, request.deadline};
    }
    return std::nullopt;
  };
  // The leader of an earlier flight may have landed between this request's look-up and its
  // boarding.
  if (auto landed = already()) return *std::move(landed);
  if (layers_.empty()) return {compile_and_store(request), false, request.deadline};

  KeyLock lock(*layers_.front(), file_name(request.id) + ".lock");
  const auto limit = patience(request.deadline);
  auto state = lock.try_acquire();
  if (state == KeyLock::State::kBusy) {
    ++count_.waits;
    auto pause = std::chrono::microseconds(500);
    while (state == KeyLock::State::kBusy && Clock::now() < limit) {
      std::this_thread::sleep_for(
          std::min<Clock::duration>(pause, limit - Clock::now() + std::chrono::microseconds(1)));
      pause = std::min(pause * 3 / 2, std::chrono::microseconds(20000));
      state = lock.try_acquire();
    }
    if (auto landed = already()) return *std::move(landed);
    if (state == KeyLock::State::kBusy) ++count_.alone;
  } else if (state == KeyLock::State::kHeld) {
    // Its last holder may have published after our look and let go before our lock.
    if (auto landed = already()) return *std::move(landed);
  }
  if (state == KeyLock::State::kNoLocks) {
    layers_.front()->warn_once(lock_warned_,
                               fmt::format("no locks work in the cache {}; processes may compile a "
                                           "kernel more than once (said once)",
                                           layers_.front()->path()));
  }
  return {compile_and_store(request), false, request.deadline};
}

Result<KernelImage> Store::get_or_compile(const RequestKey& key, std::string_view build_id,
                                          BuildPolicy policy, Compiler::Deadline deadline,
                                          const std::function<Result<KernelImage>()>& compile,
                                          bool* from_disk, PtxNeed ptx) {
  bool ignored = false;
  bool& disk = from_disk != nullptr ? *from_disk : ignored;
  disk = false;
  const auto id = entry_id(key, build_id);
  if (!id) {
    return make_error(ErrorCode::kInvalid, "the key is not 64 lower-case hexadecimal digits");
  }
  if (auto image = look_up(key, *id, build_id, policy, ptx)) {
    ++count_.hits;
    disk = true;
    return *std::move(image);
  }
  ++count_.misses;
  if (auto error = failures_->find(*id)) {
    ++count_.failure_hits;
    return *std::move(error);
  }

  const Request request{key, build_id, policy, ptx, deadline, compile, *id};
  // Requests that accept different images fly apart; the file lock still lets one of them compile.
  const std::string name = file_name(*id) + (policy == BuildPolicy::kAny ? "a" : "e") +
                           std::to_string(static_cast<int>(ptx));
  const auto limit = patience(deadline);
  for (;;) {
    const Flights::Boarded boarded = flights_.board(name);
    if (boarded.leader) {
      auto landed = std::make_shared<const Landed>(lead(request));
      flights_.land(name, boarded.flight, landed);
      disk = landed->from_disk;
      return landed->result;
    }
    ++count_.waits;
    const auto landed = boarded.flight->wait_until(limit);
    if (landed != nullptr && !ran_out_of_time(*landed, deadline)) {
      disk = landed->from_disk;
      return landed->result;
    }
    if (Clock::now() >= limit) break;
  }
  // Whoever compiles this is slow, or stopped: better twice than late.
  ++count_.alone;
  return compile_and_store(request);
}

CacheStatistics Store::statistics() const {
  CacheStatistics statistics;
  statistics.hits = count_.hits;
  statistics.misses = count_.misses;
  statistics.stores = count_.stores;
  statistics.store_failures = count_.store_failures;
  statistics.compiles = count_.compiles;
  statistics.waits = count_.waits;
  statistics.alone = count_.alone;
  statistics.failure_hits = count_.failure_hits;
  statistics.evicted = count_.evicted;
  for (const auto& layer : layers_) statistics.quarantined += layer->quarantined();
  return statistics;
}

std::unique_ptr<CubinCache> open_cache(const CacheOptions& options, FileSystem& fs) {
  return std::make_unique<Store>(options, fs);
}

}  // namespace attnjit::cache

namespace attnjit {

std::unique_ptr<CubinCache> open_cache(const CacheOptions& options) {
  return cache::open_cache(options, cache::posix_file_system());
}

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Looks a key up in memory and in the layers, and lets one caller compile it when it is in none.
#include "cache/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/longest_time.h"
#include "cache/key_lock.h"
#include "cache/signature.h"
#include "cache/trim.h"

namespace attnjit::cache {
namespace {

constexpr std::int64_t kBlockBytes = 4096;  // what a file takes on disk at least

// A leader's failure that says nothing about a request with more time than the leader had.
bool ran_out_of_time(const Landed& landed, Compiler::Deadline deadline) {
  return !landed.result.ok() && landed.result.error().code == ErrorCode::kTimeout &&
         landed.deadline < deadline;
}

// NOTE: a keyring that cannot be read believes nobody: the cache never fails to open, and never
// opens what its owner wanted closed.
SignatureTrust trust_or_none(const CacheOptions& options, const Logger& log) {
  auto trust = read_trust(options.signatures);
  if (trust) return *std::move(trust);
  log.error("no signature is believed: " + trust.error().to_string());
  SignatureTrust none;
  none.ring = std::make_shared<const Keyring>();
  none.require_everywhere = options.signatures.require_everywhere;
  return none;
}

CacheOptions with_bounded_times(CacheOptions options) {
  options.failure_ttl = bounded(options.failure_ttl);
  for (std::chrono::milliseconds* time :
       {&options.max_wait, &options.remote.lookup_budget, &options.remote.transfer_timeout,
        &options.lease.ttl, &options.lease.timeout, &options.lease.wait}) {
    *time = bounded(*time);
  }
  return options;
}

}  // namespace

Store::Store(const CacheOptions& options, FileSystem& fs)
    : options_(with_bounded_times(options)),
      fs_(fs),
      log_(options_.log),
      trust_(trust_or_none(options_, log_)) {
  Trust trust;
  trust.user = fs.user();
  trust.others = options.trusted_owners;
  for (std::size_t i = 0; i < options.layers.size(); ++i) {
    layers_.push_back(std::make_unique<Layer>(fs, options.layers[i], i == 0, trust, log_));
  }
  failures_ = std::make_unique<Failures>(fs, layers_.empty() ? nullptr : layers_.front().get(),
                                         options_.failure_ttl);
  remote_ = RemoteTier::open(options_.remote, log_);
  leases_ = Leases::open(options_.lease, options_.remote, log_);
}

/// An entry on its way from the remote tier to a requester and to the first layer.
class Store::Arrival final : public Receiver {
 public:
  /// `id` null: of whatever build.
  Arrival(Store& store, const RequestKey& key, const EntryId* id, PtxNeed ptx)
      : store_(store), key_(key), ptx_(ptx) {
    if (id != nullptr) id_ = *id;
  }

  std::string accept(std::string bytes) override {
    Wanted wanted;
    if (id_) wanted.id = &*id_;
    wanted.material = &key_.material;
    wanted.arch = &key_.arch;
    wanted.judge_cubin = true;
    wanted.signers = store_.trust_.layer_keyring(false);
    auto entry = judge_entry(bytes, wanted);
    if (!entry) return entry.error().message;
    id_ = entry->id;
    if (ptx_ == PtxNeed::kRequired && entry->image.ptx.empty()) return "it has no PTX";
    if (ptx_ == PtxNeed::kSkip) entry->image.ptx = {};
    image_ = std::move(entry->image);
    bytes_ = std::move(bytes);
    return {};
  }

  void keep() override {
    const auto size = static_cast<std::int64_t>(bytes_.size());
    if (store_.layers_.empty() || size > store_.options_.max_bytes) return;
    const Status kept = store_.layers_.front()->publish(file_name(*id_), bytes_);
    if (kept) {
      store_.trim_after_store(size);
    } else {
      store_.log_.info("not kept on disk: " + kept.error().to_string());
    }
  }

  /// What was accepted. @pre once, after a fetch that gave kHit
  KernelImage take() { return std::move(image_); }

 private:
  Store& store_;
  const RequestKey key_;
  const PtxNeed ptx_;
  std::optional<EntryId> id_;
  KernelImage image_;
  std::string bytes_;
};

std::optional<KernelImage> Store::look_up_remote(const RequestKey& key, const EntryId& id,
                                                 std::string_view build_id, BuildPolicy policy,
                                                 PtxNeed ptx, RemoteTier::Memory memory) {
  if (remote_ == nullptr) return std::nullopt;
  const auto deadline = Clock::now() + remote_->lookup_budget();
  const auto ask = [&](const std::string& path,
                       const EntryId* wanted) -> std::optional<KernelImage> {
    const auto arrival = std::make_shared<Arrival>(*this, key, wanted, ptx);
    if (remote_->fetch(path, deadline, arrival, memory) != RemoteTier::Found::kHit) {
      return std::nullopt;
    }
    return arrival->take();
  };
  if (!build_id.empty()) {
    auto image = ask(remote_path(id), &id);
    if (image || policy == BuildPolicy::kExact) return image;
  }
  return ask(remote_path_of_newest(id.key), nullptr);
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
      wanted.signers = trust_.layer_keyring(layer->writable());
      Loaded loaded = layer->load(name, wanted);
      if (serves(loaded)) return std::move(loaded.entry.image);
    }
    if (policy == BuildPolicy::kExact) return std::nullopt;
  }
  wanted.id = nullptr;
  std::optional<Entry> newest;
  for (const auto& layer : layers_) {
    wanted.signers = trust_.layer_keyring(layer->writable());
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
                                       BuildPolicy policy, PtxNeed ptx, ImageOrigin* origin) {
  std::optional<KernelImage> image;
  ImageOrigin from = ImageOrigin::kDisk;
  if (const auto id = entry_id(key, build_id)) {
    image = look_up(key, *id, build_id, policy, ptx);
    if (!image) {
      from = ImageOrigin::kRemote;
      image = look_up_remote(key, *id, build_id, policy, ptx, RemoteTier::Memory::kUse);
    }
  }
  if (image && origin != nullptr) *origin = from;
  ++(image ? count_.hits : count_.misses);
  return image;
}

Status Store::store(const RequestKey& key, std::string_view build_id, const KernelImage& image) {
  return store_as(key, build_id, image, RemoteTier::Replace::kAlways, nullptr);
}

Status Store::store_as(const RequestKey& key, std::string_view build_id, const KernelImage& image,
                       RemoteTier::Replace replace, std::shared_ptr<void> lease) {
  if (layers_.empty() && remote_ == nullptr) return {};
  const auto failed = [&](Error error) -> Status {
    ++count_.store_failures;
    // NOTE: not where it was said already that the folder is not used.
    const bool told = !layers_.empty() && layers_.front()->refused();
    if (!told && !store_warned_.test_and_set()) {
      log_.warning(
          fmt::format("cannot write to the cache: {}; kernels are compiled all the same "
                      "(said once)",
                      error.to_string()));
    }
    log_.debug("not cached: " + error.to_string());
    return error;
  };
  const std::int64_t now_s = std::max<std::int64_t>(fs_.now_ns() / 1000000000, 0);
  auto bytes = encode_entry(key, build_id, image, now_s);
  if (!bytes) return failed(bytes.error());
  if (trust_.key) {
    bytes->append(
        sign_entry(std::string_view(*bytes).substr(0, kHeaderBytes), key.arch, *trust_.key));
  }
  const EntryId id = *entry_id(key, build_id);
  // What nobody would believe is not written: it would be in the way of what is signed.
  const auto may_write = [&](const Keyring* asked) { return asked == nullptr || trust_.key; };
  if (remote_ != nullptr && may_write(trust_.layer_keyring(false))) {
    remote_->send(id, std::make_shared<const std::string>(*bytes), replace, std::move(lease));
  } else if (remote_ != nullptr && !unsigned_warned_.test_and_set()) {
    log_.info("nothing is sent to the remote cache: it asks for signatures, and there is no key");
  }
  if (layers_.empty() || !may_write(trust_.layer_keyring(true))) return {};
  const auto size = static_cast<std::int64_t>(bytes->size());
  if (size > options_.max_bytes) {
    return failed(make_error(ErrorCode::kIo, fmt::format("the entry has {} bytes; the cap of the "
                                                         "cache is {}",
                                                         size, options_.max_bytes)));
  }
  const Status published = layers_.front()->publish(file_name(id), *bytes);
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
  return now + std::min<Clock::duration>((deadline - now) / 2, options_.max_wait);
}

Result<KernelImage> Store::compile_and_store(const Request& request, std::shared_ptr<void> lease) {
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
    static_cast<void>(store_as(request.key, request.build_id, *result,
                               RemoteTier::Replace::kIfMissing, std::move(lease)));
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
      return Landed{*std::move(image), ImageOrigin::kDisk, request.deadline};
    }
    if (auto error = failures_->find(request.id)) {
      ++count_.failure_hits;
      return Landed{*std::move(error), ImageOrigin::kCompiled, request.deadline};
    }
    return std::nullopt;
  };
  // The leader of an earlier flight may have landed between this request's look-up and its
  // boarding.
  if (auto landed = already()) return *std::move(landed);
  if (auto image = look_up_remote(request.key, request.id, request.build_id, request.policy,
                                  request.ptx, RemoteTier::Memory::kUse)) {
    return {*std::move(image), ImageOrigin::kRemote, request.deadline};
  }
  const auto compile = [&]() -> Landed {
    Turn turn = wait_for_turn(request);
    if (turn.landed) return *std::move(turn.landed);
    return {compile_and_store(request, std::move(turn.lease)), ImageOrigin::kCompiled,
            request.deadline};
  };
  if (layers_.empty()) return compile();

  KeyLock lock(*layers_.front(), file_name(request.id) + ".lock");
  const auto limit = request.patience;
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
    if (state == KeyLock::State::kBusy) {
      // Whoever works for it may well hold the lease too: no second wait.
      ++count_.alone;
      return {compile_and_store(request, nullptr), ImageOrigin::kCompiled, request.deadline};
    }
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
  return compile();
}

Store::Turn Store::wait_for_turn(const Request& request) {
  Turn turn;
  if (leases_ == nullptr) return turn;
  // What another machine made: there, or in a layer that the machines share.
  const auto look = [&] {
    if (auto image = look_up_remote(request.key, request.id, request.build_id, request.policy,
                                    request.ptx, RemoteTier::Memory::kIgnore)) {
      turn.landed = Landed{*std::move(image), ImageOrigin::kRemote, request.deadline};
    } else if (auto stored = look_up(request.key, request.id, request.build_id, request.policy,
                                     request.ptx)) {
      turn.landed = Landed{*std::move(stored), ImageOrigin::kDisk, request.deadline};
    }
    return turn.landed.has_value();
  };
  const std::string name = remote_path(request.id).substr(3);
  constexpr std::chrono::milliseconds kLeasePause{
      500};  // the entry is polled, and the lease rarely
  auto taken = leases_->try_take(name);
  if (taken.answer == LeaseKeeper::Answer::kBusy) {
    ++count_.waits;
    ++count_.lease_waits;
    // NOTE: half of what is left: the other processes of this host wait for the file lock
    // meanwhile, and are to find then what this one compiles.
    const auto now = Clock::now();
    const auto limit = std::min(
        {now + (request.patience - now) / 2, now + options_.lease.wait, request.machine_patience});
    auto next_take = Clock::now() + kLeasePause;
    auto pause = std::chrono::milliseconds(10);
    while (taken.answer == LeaseKeeper::Answer::kBusy && Clock::now() < limit) {
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 3 / 2, std::chrono::milliseconds(200));
      if (look()) return turn;
      // What the others make would not arrive.
      if (remote_ != nullptr && !remote_->answers()) break;
      if (Clock::now() < next_take) continue;
      taken = leases_->try_take(name);
      next_take = Clock::now() + kLeasePause;
    }
    if (taken.answer == LeaseKeeper::Answer::kBusy) ++count_.alone;
  }
  turn.lease = std::move(taken.held);
  // Its last holder may have sent the entry after our look and let go before we took it.
  if (turn.lease != nullptr && look()) turn.lease.reset();
  return turn;
}

Result<KernelImage> Store::get_or_compile(const RequestKey& key, std::string_view build_id,
                                          BuildPolicy policy, Compiler::Deadline deadline,
                                          const std::function<Result<KernelImage>()>& compile,
                                          ImageOrigin* origin, PtxNeed ptx,
                                          Compiler::Deadline machine_patience) {
  ImageOrigin ignored{};
  ImageOrigin& from = origin != nullptr ? *origin : ignored;
  from = ImageOrigin::kCompiled;
  const auto id = entry_id(key, build_id);
  if (!id) {
    return make_error(ErrorCode::kInvalid, "the key is not 64 lower-case hexadecimal digits");
  }
  if (auto image = look_up(key, *id, build_id, policy, ptx)) {
    ++count_.hits;
    from = ImageOrigin::kDisk;
    return *std::move(image);
  }
  ++count_.misses;
  if (auto error = failures_->find(*id)) {
    ++count_.failure_hits;
    return *std::move(error);
  }

  const auto limit = patience(deadline);
  const Request request{key, build_id, policy,          ptx, deadline, compile,
                        *id, limit,    machine_patience};
  // Requests that accept different images fly apart; the file lock still lets one of them compile.
  const std::string name = file_name(*id) + (policy == BuildPolicy::kAny ? "a" : "e") +
                           std::to_string(static_cast<int>(ptx));
  for (;;) {
    const Flights::Boarded boarded = flights_.board(name);
    if (boarded.leader) {
      auto landed = std::make_shared<const Landed>(lead(request));
      flights_.land(name, boarded.flight, landed);
      from = landed->origin;
      return landed->result;
    }
    ++count_.waits;
    const auto landed = boarded.flight->wait_until(limit);
    if (landed != nullptr && !ran_out_of_time(*landed, deadline)) {
      from = landed->origin;
      return landed->result;
    }
    if (Clock::now() >= limit) break;
  }
  // Whoever compiles this is slow, or stopped: better twice than late.
  ++count_.alone;
  return compile_and_store(request, nullptr);
}

bool Store::holds(const RequestKey& key, std::string_view build_id, BuildPolicy policy) {
  const auto id = entry_id(key, build_id);
  if (!id) return false;
  if (!layers_.empty()) return look_up(key, *id, build_id, policy, PtxNeed::kSkip).has_value();
  return remote_ != nullptr && remote_->holds(*id);
}

bool Store::flush(Compiler::Deadline deadline) {
  return remote_ == nullptr || remote_->flush(deadline);
}

CacheStatistics Store::statistics() const {
  CacheStatistics statistics;
  if (remote_ != nullptr) statistics.remote = remote_->statistics();
  statistics.hits = count_.hits;
  statistics.misses = count_.misses;
  statistics.stores = count_.stores;
  statistics.store_failures = count_.store_failures;
  statistics.compiles = count_.compiles;
  statistics.waits = count_.waits;
  statistics.alone = count_.alone;
  statistics.lease_waits = count_.lease_waits;
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

// SPDX-License-Identifier: Apache-2.0
// Looks entries up in a remote store and sends them there, behind a circuit breaker.
#include "cache/remote_tier.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <random>
#include <unordered_map>
#include <unordered_set>

#include "base/printable.h"
#include "cache/breaker.h"
#include "cache/remote_store.h"
#include "cache/transfers.h"

namespace attnjit::cache {
namespace {

using Clock = std::chrono::steady_clock;
using Method = net::HttpRequest::Method;

constexpr std::size_t kFetchThreads = 4, kSendThreads = 2;
constexpr std::size_t kMaxFetches = 64, kMaxSends = 1024;
constexpr std::size_t kMaxRemembered = 4096;
constexpr int kSendAttempts = 3;
constexpr std::chrono::milliseconds kFirstRetry{100};

std::int64_t unix_now() { return static_cast<std::int64_t>(std::time(nullptr)); }

bool is_success(int status) { return status >= 200 && status < 300; }
bool is_absent(int status) { return status == 404 || status == 410; }
// That a later attempt may fare better.
bool is_passing(int status) { return status == 408 || status == 429 || status >= 500; }

}  // namespace

std::string remote_path(const EntryId& id) {
  const std::string name = file_name(id);  // <key>.<build>.kernel
  return "ac/" + to_hex(sha256(std::string_view(name).substr(0, name.rfind('.'))));
}

std::string remote_path_of_newest(const Sha256Digest& key) {
  return "ac/" + to_hex(sha256(to_hex(key) + ".any"));
}

/// What jobs share, which may outlive the tier.
struct RemoteTier::State {
  State(RemoteOptions given, RemoteStore made, Logger sink)
      : options(std::move(given)), store(std::move(made)), log(std::move(sink)) {}

  const RemoteOptions options;
  const RemoteStore store;
  const Logger log;  // used only between enter and leave: its sink may end with the tier
  Breaker breaker;

  struct Counters {
    std::atomic<std::uint64_t> lookups{0}, hits{0}, misses{0}, rejected{0}, overdue{0}, errors{0},
        skipped{0}, breaker_opened{0}, puts{0}, put_present{0}, put_failures{0}, put_dropped{0},
        bytes_received{0}, bytes_sent{0};
  };
  Counters count;

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool closed = false;
  int inside = 0;  // jobs that call back
  std::int64_t queued_bytes = 0;
  // Objects that gave no hit, and when; those that were rejected are to be replaced.
  struct Remembered {
    Clock::time_point when;
    bool rejected = false;
  };
  std::unordered_map<std::string, Remembered> remembered;
  std::unordered_set<std::string> held;  // objects that are there
  std::atomic_flag warned = ATOMIC_FLAG_INIT;

  /// Runs `call` unless the tier is closed; the tier's end waits for it.
  template <class Call>
  void inside_do(const Call& call) {
    {
      const std::lock_guard lock(mutex);
      if (closed) return;
      ++inside;
    }
    call();
    const std::lock_guard lock(mutex);
    --inside;
    changed.notify_all();
  }

  void report(const std::string& problem) {
    inside_do([&] {
      if (!warned.test_and_set()) {
        log.warning(
            fmt::format("remote cache {}: {}; kernels are served all the same (further ones are "
                        "logged as info)",
                        store.shown(), printable(problem)));
      } else {
        log.info(fmt::format("remote cache {}: {}", store.shown(), printable(problem)));
      }
    });
  }

  void failed(const std::string& problem) {
    if (breaker.failed(Clock::now())) ++count.breaker_opened;
    report(problem);
  }

  void remember(const std::string& path, bool rejected) {
    const std::lock_guard lock(mutex);
    if (remembered.size() >= kMaxRemembered) remembered.clear();
    remembered[path] = {Clock::now(), rejected};
  }

  void is_there(const std::string& path) {
    const std::lock_guard lock(mutex);
    remembered.erase(path);
    held.insert(path);
  }

  bool was_rejected(const std::string& path) {
    const std::lock_guard lock(mutex);
    const auto known = remembered.find(path);
    return known != remembered.end() && known->second.rejected;
  }

  Result<net::HttpResponse> ask(net::HttpClient& client, Method method, const std::string& path,
                                std::string_view body = {}) const {
    return client.perform(store.request(method, path, body, unix_now()));
  }

  bool send_one(net::HttpClient& client, const std::string& path, const std::string& bytes);
  void send_both(net::HttpClient& client, const EntryId& id, const std::string& bytes,
                 Replace replace);
};

class RemoteTier::Pools {
 public:
  Pools(const std::shared_ptr<const net::Curl>& curl, const std::string& ca_file)
      : fetches(curl, ca_file, kFetchThreads, kMaxFetches),
        sends(curl, ca_file, kSendThreads, kMaxSends) {}
  Transfers fetches, sends;
};

RemoteTier::RemoteTier(std::shared_ptr<State> state) : state_(std::move(state)) {}

std::unique_ptr<RemoteTier> RemoteTier::open(const RemoteOptions& options, const Logger& log) {
  if (options.url.empty()) return nullptr;
  auto store = RemoteStore::make(options);
  auto curl = store ? net::Curl::open() : Result<std::shared_ptr<const net::Curl>>(store.error());
  if (!curl) {
    log.warning("the remote cache is not used: " + curl.error().to_string());
    return nullptr;
  }
  auto state = std::make_shared<State>(options, *std::move(store), log);
  std::unique_ptr<RemoteTier> tier(new RemoteTier(std::move(state)));
  tier->pools_ = std::make_unique<Pools>(*curl, options.ca_file);
  return tier;
}

RemoteTier::~RemoteTier() {
  // Long enough for whatever can be cancelled, and short beside the 2 s of a Service's end.
  constexpr std::chrono::milliseconds kPatience{150};
  {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    state_->changed.notify_all();
  }
  const auto deadline = Clock::now() + kPatience;
  pools_->fetches.close(deadline);
  pools_->sends.close(deadline);
  // NOTE: without a deadline: these use the disk and the receivers, and end.
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->inside == 0; });
}

RemoteTier::Found RemoteTier::fetch(const std::string& path, Clock::time_point deadline,
                                    std::shared_ptr<Receiver> receiver, Memory memory) {
  const auto state = state_;
  if (memory == Memory::kUse) {
    const std::lock_guard lock(state->mutex);
    const auto known = state->remembered.find(path);
    if (known != state->remembered.end() && Clock::now() - known->second.when < kMemory) {
      return Found::kUnknown;
    }
  }
  const Breaker::Way way = state->breaker.enter(Clock::now());
  if (way == Breaker::Way::kOpen) {
    ++state->count.skipped;
    return Found::kUnknown;
  }

  struct Pending {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false, overdue = false;
    Found found = Found::kUnknown;
  };
  const auto pending = std::make_shared<Pending>();
  const auto budget = state->options.lookup_budget;
  const auto begin = Clock::now();
  const bool probe = way == Breaker::Way::kProbe;
  auto job = [state, path, pending, receiver = std::move(receiver), begin, budget,
              probe](net::HttpClient& client) {
    ++state->count.lookups;
    auto answer = state->ask(client, Method::kGet, path);
    Found found = Found::kUnknown;
    std::string problem;
    if (!answer) {
      problem = answer.error().message;
    } else if (answer->status == 200) {
      state->count.bytes_received += answer->body.size();
      std::string wrong = "the cache is closed";
      state->inside_do([&] { wrong = receiver->accept(std::move(answer->body)); });
      found = wrong.empty() ? Found::kHit : Found::kMiss;
      ++(wrong.empty() ? state->count.hits : state->count.rejected);
      if (wrong.empty()) {
        state->is_there(path);
      } else {
        state->remember(path, true);
        state->report(fmt::format("what is at {} is not used: {}", path, wrong));
      }
    } else if (is_absent(answer->status)) {
      ++state->count.misses;
      state->remember(path, false);
      found = Found::kMiss;
    } else {
      problem = fmt::format("GET gives status {}", answer->status);
    }
    // NOTE: counted before whoever waits goes on, so that its next look-up meets the breaker as
    // this one leaves it.
    if (!problem.empty()) ++state->count.errors;
    bool late = false;  // and the breaker knows
    {
      const std::lock_guard lock(pending->mutex);
      late = pending->overdue;
    }
    const bool slow = probe && Clock::now() - begin > budget;
    if (!problem.empty() && !late) {
      state->failed(problem);
    } else if (slow) {
      state->failed("a look-up takes longer than its budget");
    } else if (!late) {
      state->breaker.succeeded();
    }
    {
      const std::lock_guard lock(pending->mutex);
      pending->done = true;
      pending->found = found;
    }
    pending->changed.notify_all();
    if (found == Found::kHit) {
      state->inside_do([&] { receiver->keep(); });
    }
  };
  if (!pools_->fetches.submit(std::move(job))) {
    if (probe) state->breaker.not_tried();
    ++state->count.skipped;
    return Found::kUnknown;
  }
  // A probe is the background's: what is behind an open breaker delays nobody.
  if (probe) return Found::kUnknown;
  std::unique_lock lock(pending->mutex);
  if (pending->changed.wait_until(lock, deadline, [&] { return pending->done; })) {
    return pending->found;
  }
  pending->overdue = true;
  lock.unlock();
  ++state->count.overdue;
  state->remember(path, false);
  state->failed(fmt::format("no answer within {} ms", budget.count()));
  return Found::kUnknown;
}

bool RemoteTier::State::send_one(net::HttpClient& client, const std::string& path,
                                 const std::string& bytes) {
  std::minstd_rand random(std::random_device{}());
  std::uniform_real_distribution<double> jitter(0.5, 1.5);
  auto pause = kFirstRetry;
  std::string problem;
  for (int attempt = 1; attempt <= kSendAttempts; ++attempt) {
    if (attempt > 1) {
      std::unique_lock lock(mutex);
      if (changed.wait_for(lock, pause * jitter(random), [&] { return closed; })) return false;
      pause *= 4;
    }
    const auto answer = ask(client, Method::kPut, path, bytes);
    if (answer && is_success(answer->status)) {
      breaker.succeeded();
      count.bytes_sent += bytes.size();
      return true;
    }
    if (!answer && answer.error().code == ErrorCode::kCancelled) return false;
    ++count.errors;
    problem = answer ? fmt::format("PUT gives status {}", answer->status) : answer.error().message;
    if (answer && !is_passing(answer->status)) {
      // The server works and refuses: full, read-only, too large.
      breaker.succeeded();
      report(problem);
      return false;
    }
  }
  failed(problem);
  return false;
}

void RemoteTier::State::send_both(net::HttpClient& client, const EntryId& id,
                                  const std::string& bytes, Replace replace) {
  if (breaker.enter(Clock::now()) == Breaker::Way::kOpen) {
    ++count.put_failures;
    return;
  }
  const std::string path = remote_path(id);
  const std::string newest = remote_path_of_newest(id.key);
  if (replace == Replace::kIfMissing && !was_rejected(path)) {
    const auto there = ask(client, Method::kHead, path);
    if (there && is_success(there->status)) {
      breaker.succeeded();
      ++count.put_present;
      is_there(path);
      return;
    }
  }
  if (!send_one(client, path, bytes) || !send_one(client, newest, bytes)) {
    ++count.put_failures;
    return;
  }
  ++count.puts;
  is_there(path);
  is_there(newest);
}

void RemoteTier::send(const EntryId& id, std::shared_ptr<const std::string> bytes, Replace replace,
                      std::shared_ptr<void> done) {
  const auto state = state_;
  const auto size = static_cast<std::int64_t>(bytes->size());
  if (state->options.read_only) return;
  {
    const std::lock_guard lock(state->mutex);
    if (size > state->options.max_entry_bytes ||
        state->queued_bytes + size > state->options.max_queue_bytes) {
      ++state->count.put_dropped;
      return;
    }
    state->queued_bytes += size;
  }
  const auto finish = [state, size] {
    const std::lock_guard lock(state->mutex);
    state->queued_bytes -= size;
  };
  const bool queued =
      pools_->sends.submit([state, id, bytes = std::move(bytes), replace, done = std::move(done),
                            finish](net::HttpClient& client) {
        state->send_both(client, id, *bytes, replace);
        finish();
      });
  if (queued) return;
  finish();
  ++state->count.put_dropped;
}

bool RemoteTier::holds(const EntryId& id) const {
  const std::lock_guard lock(state_->mutex);
  return state_->held.contains(remote_path(id)) ||
         state_->held.contains(remote_path_of_newest(id.key));
}

bool RemoteTier::flush(Clock::time_point deadline) {
  // NOTE: what was looked up is kept on the disk after its requester was told.
  const bool fetched = pools_->fetches.wait_idle(deadline);
  return pools_->sends.wait_idle(deadline) && fetched;
}

RemoteStatistics RemoteTier::statistics() const {
  const State::Counters& count = state_->count;
  RemoteStatistics statistics;
  statistics.lookups = count.lookups;
  statistics.hits = count.hits;
  statistics.misses = count.misses;
  statistics.rejected = count.rejected;
  statistics.overdue = count.overdue;
  statistics.errors = count.errors;
  statistics.skipped = count.skipped;
  statistics.breaker_opened = count.breaker_opened;
  statistics.puts = count.puts;
  statistics.put_present = count.put_present;
  statistics.put_failures = count.put_failures;
  statistics.put_dropped = count.put_dropped;
  statistics.bytes_received = count.bytes_received;
  statistics.bytes_sent = count.bytes_sent;
  return statistics;
}

std::chrono::milliseconds RemoteTier::lookup_budget() const {
  return state_->options.lookup_budget;
}

bool RemoteTier::answers() const { return !state_->breaker.is_open(Clock::now()); }

RemoteCheck check_remote(const RemoteOptions& options) {
  RemoteCheck check;
  const auto store = RemoteStore::make(options);
  if (!store) {
    check.problem = store.error();
    return check;
  }
  check.url = store->shown();
  const auto curl = net::Curl::open();
  if (!curl) {
    check.problem = curl.error();
    return check;
  }
  check.library = (*curl)->version();
  net::HttpClient client(*curl, options.ca_file);
  // An object that nobody has: whoever serves objects answers 404.
  net::HttpRequest request = store->request(
      Method::kHead, "ac/" + to_hex(sha256(std::string_view("attnjit doctor"))), {}, unix_now());
  request.timeout = std::chrono::milliseconds(2000);
  const auto answer = client.perform(request);
  if (!answer) {
    check.problem = make_error(ErrorCode::kEnvironment,
                               fmt::format("the remote cache {} does not answer: {}", check.url,
                                           printable(answer.error().message)),
                               "remote");
  } else if (!is_success(answer->status) && !is_absent(answer->status)) {
    check.problem = make_error(
        ErrorCode::kEnvironment,
        fmt::format("the remote cache {} answers with status {}", check.url, answer->status),
        "remote");
  } else {
    check.reachable = true;
  }
  return check;
}

}  // namespace attnjit::cache

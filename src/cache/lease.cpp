// SPDX-License-Identifier: Apache-2.0
// Takes, renews and gives back leases on a thread of its own, and keeps them in Redis.
#include "cache/lease.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <system_error>
#include <thread>

#include "base/printable.h"
#include "base/signals.h"
#include "cache/breaker.h"
#include "cache/store_lease.h"
#include "net/redis.h"

namespace attnjit::cache {
namespace {

using Answer = LeaseKeeper::Answer;

class RedisLeases final : public LeaseKeeper {
 public:
  explicit RedisLeases(std::unique_ptr<net::Redis> redis) : redis_(std::move(redis)) {}

  Result<Answer> take(const std::string& name, const std::string& token,
                      std::chrono::milliseconds ttl) override {
    const auto reply =
        redis_->command({"SET", key_of(name), token, "NX", "PX", std::to_string(ttl.count())});
    if (!reply) return reply.error();
    return reply->kind == net::Redis::Kind::kNil ? Answer::kBusy : Answer::kHeld;
  }
  bool renew(const std::string& name, const std::string& token,
             std::chrono::milliseconds ttl) override {
    return if_ours(name, token, "return redis.call('pexpire',KEYS[1],ARGV[2])",
                   std::to_string(ttl.count()));
  }
  void release(const std::string& name, const std::string& token) override {
    if_ours(name, token, "return redis.call('del',KEYS[1])", {});
  }

 private:
  static std::string key_of(const std::string& name) { return "attnjit:lease:" + name; }
  // Compared and acted upon in one step of the server.
  bool if_ours(const std::string& name, const std::string& token, const std::string& act,
               const std::string& argument) {
    const auto reply = redis_->command(
        {"EVAL", "if redis.call('get',KEYS[1])==ARGV[1] then " + act + " else return 0 end", "1",
         key_of(name), token, argument});
    return reply && reply->kind == net::Redis::Kind::kInteger && reply->integer == 1;
  }

  std::unique_ptr<net::Redis> redis_;
};

std::string make_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

struct Leases::State {
  std::unique_ptr<LeaseKeeper> keeper;  // of the thread
  std::chrono::milliseconds ttl, timeout;
  Logger log;  // of those who ask: the thread may outlive its sink
  Breaker breaker;
  std::atomic_flag warned = ATOMIC_FLAG_INIT;

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;   // for the thread
  std::map<std::string, std::string> held;  // token by name
  bool closed = false, ended = false;
  std::thread thread;

  void submit(std::function<void()> job) {
    const std::lock_guard lock(mutex);
    if (closed) return;
    jobs.push_back(std::move(job));
    changed.notify_all();
  }

  void failed(const std::string& problem) {
    const std::string text =
        fmt::format("leases: {}; machines may compile a kernel more than once", printable(problem));
    if (warned.test_and_set()) {
      log.info(text);
    } else {
      log.warning(text + " (further ones are logged as info)");
    }
  }

  void give_back(const std::string& name, const std::string& token) {
    {
      const std::lock_guard lock(mutex);
      const auto known = held.find(name);
      if (known == held.end() || known->second != token) return;
      held.erase(known);
    }
    submit([this, name, token] { keeper->release(name, token); });
  }

  void work() {
    auto next_renewal = Clock::now() + ttl / 3;
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait_until(lock, next_renewal, [&] { return closed || !jobs.empty(); });
      if (!jobs.empty()) {
        const auto job = std::move(jobs.front());
        jobs.pop_front();
        lock.unlock();
        job();
        lock.lock();
      } else if (closed) {
        break;
      }
      if (Clock::now() < next_renewal) continue;
      const auto ours = held;
      lock.unlock();
      for (const auto& [name, token] : ours) keeper->renew(name, token, ttl);
      lock.lock();
      next_renewal = Clock::now() + ttl / 3;
    }
    const auto left = held;
    held.clear();
    lock.unlock();
    for (const auto& [name, token] : left) keeper->release(name, token);
    keeper.reset();
    lock.lock();
    ended = true;
    changed.notify_all();
  }
};

std::unique_ptr<Leases> Leases::open(const LeaseOptions& options, const RemoteOptions& remote,
                                     const Logger& log) {
  if (options.url.empty()) return nullptr;
  const auto keeper = [&]() -> Result<std::unique_ptr<LeaseKeeper>> {
    if (options.url == "remote") return open_store_leases(remote, options.timeout);
    auto url = net::RedisUrl::parse(options.url);
    if (!url) return std::move(url).error();
    auto redis = net::Redis::open(*std::move(url), options.timeout);
    if (!redis) return std::move(redis).error();
    return std::unique_ptr<LeaseKeeper>(std::make_unique<RedisLeases>(*std::move(redis)));
  };
  auto made = keeper();
  if (!made) {
    log.warning("leases are not used, and machines may compile a kernel more than once: " +
                made.error().to_string());
    return nullptr;
  }
  return std::make_unique<Leases>(*std::move(made), options, log);
}

Leases::Leases(std::unique_ptr<LeaseKeeper> keeper, const LeaseOptions& options, const Logger& log)
    : state_(std::make_shared<State>()) {
  state_->keeper = std::move(keeper);
  state_->ttl = options.ttl;
  state_->timeout = options.timeout;
  state_->log = log;
}

Leases::~Leases() {
  std::unique_lock lock(state_->mutex);
  state_->closed = true;
  state_->changed.notify_all();
  if (!state_->thread.joinable()) return;
  // As for transfers: a server that does not answer is left to the thread, which owns what it uses.
  const bool ended =
      state_->changed.wait_for(lock, std::chrono::milliseconds(150), [&] { return state_->ended; });
  std::thread thread = std::move(state_->thread);
  lock.unlock();
  if (ended) {
    thread.join();
  } else {
    thread.detach();
  }
}

Leases::Taken Leases::try_take(const std::string& name) {
  const auto state = state_;
  const Breaker::Way way = state->breaker.enter(Clock::now());
  if (way == Breaker::Way::kOpen) return {};
  struct Pending {
    bool done = false, given_up = false;  // guarded by State::mutex
    Answer answer = Answer::kUnavailable;
    std::string problem;
  };
  const auto pending = std::make_shared<Pending>();
  const std::string token = make_token();
  // NOTE: jobs run on the thread, which owns the state; a raw pointer makes no circle.
  const auto job = [raw = state.get(), pending, name, token] {
    {
      const std::lock_guard lock(raw->mutex);
      if (pending->given_up) return;  // it waited behind another one for too long
    }
    const Result<Answer> answer = raw->keeper->take(name, token, raw->ttl);
    const bool held = answer && *answer == Answer::kHeld;
    bool unwanted = false;
    {
      const std::lock_guard lock(raw->mutex);
      pending->done = true;
      if (answer) {
        pending->answer = *answer;
      } else {
        pending->problem = answer.error().message;
      }
      unwanted = pending->given_up && held;
      if (held && !unwanted) raw->held[name] = token;
      // NOTE: before whoever waits goes on; who gave up has told the breaker already.
      if (!pending->given_up) {
        if (answer) {
          raw->breaker.succeeded();
        } else {
          raw->breaker.failed(Clock::now());
        }
      }
      raw->changed.notify_all();
    }
    if (unwanted) raw->keeper->release(name, token);
  };
  std::unique_lock lock(state->mutex);
  if (state->closed) return {};
  if (!state->thread.joinable()) {
    try {
      const SignalsBlocked blocked;
      state->thread = std::thread([state] { state->work(); });
    } catch (const std::system_error&) {
      return {};  // no thread is to be had: as good as no keeper
    }
  }
  state->jobs.push_back(job);
  state->changed.notify_all();
  if (!state->changed.wait_for(lock, state->timeout, [&] { return pending->done; })) {
    pending->given_up = true;
    lock.unlock();
    state->breaker.failed(Clock::now());
    state->failed(fmt::format("no answer within {} ms", state->timeout.count()));
    return {};
  }
  lock.unlock();
  if (!pending->problem.empty()) state->failed(pending->problem);
  Taken taken;
  taken.answer = pending->answer;
  if (taken.answer == Answer::kHeld) {
    taken.held = std::shared_ptr<void>(
        state.get(), [state, name, token](void*) { state->give_back(name, token); });
  }
  return taken;
}

}  // namespace attnjit::cache

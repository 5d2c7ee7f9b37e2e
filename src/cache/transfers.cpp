// SPDX-License-Identifier: Apache-2.0
// Starts, feeds and ends the threads that talk to a remote tier.
#include "cache/transfers.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>

#include "base/signals.h"

namespace attnjit::cache {

struct Transfers::State {
  std::shared_ptr<const net::Curl> curl;
  std::string ca_file;
  std::size_t max_threads = 0, max_jobs = 0;

  std::mutex mutex;  // guards what follows
  std::condition_variable work, quiet;
  std::deque<Job> jobs;
  std::size_t running = 0;  // jobs
  bool closed = false;
  std::vector<net::HttpClient*> clients;  // to cancel
  std::vector<std::thread> threads;
  std::size_t alive = 0;  // threads that have not ended
};

Transfers::Transfers(std::shared_ptr<const net::Curl> curl, std::string ca_file,
                     std::size_t max_threads, std::size_t max_jobs)
    : state_(std::make_shared<State>()) {
  state_->curl = std::move(curl);
  state_->ca_file = std::move(ca_file);
  state_->max_threads = max_threads;
  state_->max_jobs = max_jobs;
}

Transfers::~Transfers() { close(Clock::now()); }

void Transfers::work(const std::shared_ptr<State>& state) {
  auto client = std::make_unique<net::HttpClient>(state->curl, state->ca_file);
  std::unique_lock lock(state->mutex);
  state->clients.push_back(client.get());
  for (;;) {
    state->work.wait(lock, [&] { return state->closed || !state->jobs.empty(); });
    if (state->closed) break;
    Job job = std::move(state->jobs.front());
    state->jobs.pop_front();
    ++state->running;
    lock.unlock();
    job(*client);
    job = nullptr;  // what it owns goes without the lock
    lock.lock();
    --state->running;
    state->quiet.notify_all();
  }
  std::erase(state->clients, client.get());
  lock.unlock();
  client.reset();  // may wait for a name server
  lock.lock();
  --state->alive;
  state->quiet.notify_all();
}

bool Transfers::submit(Job job) {
  const std::lock_guard lock(state_->mutex);
  if (state_->closed || state_->jobs.size() >= state_->max_jobs) return false;
  // One more than is needed does no harm; one too few waits for another's slow server.
  if (state_->threads.size() < state_->max_threads &&
      state_->running + state_->jobs.size() >= state_->threads.size()) {
    try {
      const SignalsBlocked blocked;
      state_->threads.emplace_back([state = state_] { work(state); });
      ++state_->alive;
    } catch (const std::system_error&) {
      if (state_->threads.empty()) return false;
    }
  }
  state_->jobs.push_back(std::move(job));
  state_->work.notify_one();
  return true;
}

bool Transfers::wait_idle(Clock::time_point deadline) {
  std::unique_lock lock(state_->mutex);
  return state_->quiet.wait_until(lock, deadline,
                                  [&] { return state_->jobs.empty() && state_->running == 0; });
}

void Transfers::close(Clock::time_point deadline) {
  std::deque<Job> dropped;
  std::vector<std::thread> threads;
  bool ended = false;
  {
    std::unique_lock lock(state_->mutex);
    state_->closed = true;
    dropped.swap(state_->jobs);
    threads.swap(state_->threads);
    for (net::HttpClient* client : state_->clients) client->cancel();
    state_->work.notify_all();
    ended = state_->quiet.wait_until(lock, deadline, [&] { return state_->alive == 0; });
  }
  for (std::thread& thread : threads) {
    if (ended) {
      thread.join();
    } else {
      thread.detach();
    }
  }
}

}  // namespace attnjit::cache

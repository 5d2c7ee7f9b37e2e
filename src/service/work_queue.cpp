// SPDX-License-Identifier: Apache-2.0
// Runs queued compiles on a fixed number of threads until the Service ends.
#include "service/work_queue.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "base/signals.h"

namespace attnjit {

struct WorkQueue::Shared {
  struct Thread {
    pthread_t id{};
    bool finished = false;  // guarded by Shared::mutex
  };

  std::mutex mutex;
  std::condition_variable work;   // a job came, or stop
  std::condition_variable ended;  // a thread finished
  std::deque<Job> waited_for, background;
  std::vector<std::shared_ptr<Thread>> threads;
  int max_threads = 1;
  int idle = 0;
  bool stopping = false;

  void run(Thread& self) {
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      work.wait(lock, [&] { return stopping || !waited_for.empty() || !background.empty(); });
      --idle;
      if (stopping) break;
      std::deque<Job>& queue = waited_for.empty() ? background : waited_for;
      Job job = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      job.run();
      job = Job{};  // what it owns dies without the lock
      lock.lock();
    }
    self.finished = true;
    ended.notify_all();
  }
};

namespace {

struct Start {
  std::shared_ptr<WorkQueue::Shared> shared;
  std::shared_ptr<WorkQueue::Shared::Thread> thread;
};

void* thread_main(void* argument) {
  const std::unique_ptr<Start> start(static_cast<Start*>(argument));
  start->shared->run(*start->thread);
  return nullptr;
}

bool start_thread(const std::shared_ptr<WorkQueue::Shared>& shared) {
  auto thread = std::make_shared<WorkQueue::Shared::Thread>();
  auto start = std::make_unique<Start>(Start{shared, thread});
  const SignalsBlocked blocked;
  // NOTE: pthread_create, not std::thread: a joinable std::thread must not be destroyed, and in a
  // child of fork() these can be neither joined nor detached.
  if (pthread_create(&thread->id, nullptr, thread_main, start.get()) != 0) return false;
  (void)start.release();
  shared->threads.push_back(std::move(thread));
  return true;
}

}  // namespace

WorkQueue::WorkQueue(int max_threads) : shared_(std::make_shared<Shared>()) {
  shared_->max_threads = std::max(max_threads, 1);
}

WorkQueue::~WorkQueue() = default;

void WorkQueue::submit(Job job, Urgency urgency) {
  std::unique_lock lock(shared_->mutex);
  if (shared_->stopping) {
    lock.unlock();
    if (job.drop) job.drop();
    return;
  }
  auto& queue = urgency == Urgency::kWaitedFor ? shared_->waited_for : shared_->background;
  queue.push_back(std::move(job));
  const std::size_t pending = shared_->waited_for.size() + shared_->background.size();
  const auto threads = static_cast<int>(shared_->threads.size());
  if (static_cast<std::size_t>(shared_->idle) < pending && threads < shared_->max_threads) {
    if (!start_thread(shared_) && threads == 0) {
      Job mine = std::move(queue.back());
      queue.pop_back();
      lock.unlock();
      mine.run();
      return;
    }
  }
  shared_->work.notify_one();
}

void WorkQueue::grow(int max_threads) {
  const std::lock_guard lock(shared_->mutex);
  shared_->max_threads = std::max(shared_->max_threads, max_threads);
}

std::uint64_t WorkQueue::pending() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->waited_for.size() + shared_->background.size();
}

bool WorkQueue::stop(std::chrono::steady_clock::time_point deadline) {
  std::deque<Job> dropped;
  std::vector<std::shared_ptr<Shared::Thread>> threads;
  bool all = true;
  {
    std::unique_lock lock(shared_->mutex);
    shared_->stopping = true;
    dropped.swap(shared_->waited_for);
    for (Job& job : shared_->background) dropped.push_back(std::move(job));
    shared_->background.clear();
    threads = shared_->threads;
    shared_->work.notify_all();
  }
  for (const Job& job : dropped) {
    if (job.drop) job.drop();
  }
  {
    std::unique_lock lock(shared_->mutex);
    all = shared_->ended.wait_until(lock, deadline, [&] {
      return std::all_of(threads.begin(), threads.end(),
                         [](const auto& thread) { return thread->finished; });
    });
    for (const auto& thread : threads) {
      if (!thread->finished) (void)pthread_detach(thread->id);
    }
    if (!all) {
      std::erase_if(threads, [](const auto& thread) { return !thread->finished; });
    }
  }
  for (const auto& thread : threads) (void)pthread_join(thread->id, nullptr);
  return all;
}

}  // namespace attnjit

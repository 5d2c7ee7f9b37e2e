// SPDX-License-Identifier: Apache-2.0
// WorkQueue: the threads that compile in the background of a Service.
//
// Thread rules: any thread may submit; stop() is called once.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

namespace attnjit {

class WorkQueue {
 public:
  struct Job {
    std::function<void()> run;
    std::function<void()> drop;  ///< called instead of run if the queue stops first
  };
  enum class Urgency : std::uint8_t {
    kBackground,  ///< somebody may ask for the result
    kWaitedFor,   ///< somebody waits: goes before all background jobs
  };

  /// Threads are started as jobs need them, `max_threads` at most.
  explicit WorkQueue(int max_threads);
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  /// Runs the job in a thread of the queue; on the caller's if no thread can be started.
  void submit(Job job, Urgency urgency);

  /// Lets more jobs run at once from now on; never fewer.
  void grow(int max_threads);

  /// Jobs that no thread has begun.
  std::uint64_t pending() const;

  /// Drops what is pending and waits for the threads until `deadline`. Threads that still run then
  /// are left to themselves: what their jobs use must be owned by the jobs. True: none was left.
  bool stop(std::chrono::steady_clock::time_point deadline);

  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Transfers: a few threads, each with its own connections, that work off one bounded queue.
//
// Thread rules: every method may be called from any thread. No lock is held while a job runs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/http_client.h"

namespace attnjit::cache {

class Transfers {
 public:
  using Clock = std::chrono::steady_clock;
  using Job = std::function<void(net::HttpClient&)>;

  /// The threads start when there is work for them.
  Transfers(std::shared_ptr<const net::Curl> curl, std::string ca_file, std::size_t max_threads,
            std::size_t max_jobs);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// False where the queue is full, or closed. A job may outlive this object (close says when), so
  /// it owns what it uses. It does not throw.
  bool submit(Job job);
  /// Waits until nothing is queued and nothing runs; false at the deadline.
  bool wait_idle(Clock::time_point deadline);
  /// Drops the queue, cancels what runs, and waits for it until the deadline. A thread that does
  /// not come back from libcurl by then (a name server that does not answer) is left behind.
  void close(Clock::time_point deadline);

 private:
  struct State;
  static void work(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace attnjit::cache

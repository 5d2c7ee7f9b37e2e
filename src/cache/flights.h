// SPDX-License-Identifier: Apache-2.0
// Flights: among the threads of a process, one works for a key and the others wait for what it
// gets.
//
// Thread rules: every method may be called from any thread. No lock is held while a leader works.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "attnjit/cache.h"
#include "attnjit/result.h"

namespace attnjit::cache {

/// What a leader got, shared by its followers.
struct Landed {
  Result<KernelImage> result;
  ImageOrigin origin = ImageOrigin::kCompiled;
  Compiler::Deadline deadline;  ///< the leader's
};

class Flights {
 public:
  class Flight {
   public:
    /// What the leader got, or null at the deadline.
    std::shared_ptr<const Landed> wait_until(std::chrono::steady_clock::time_point deadline) {
      std::unique_lock lock(mutex_);
      landing_.wait_until(lock, deadline, [&] { return landed_ != nullptr; });
      return landed_;
    }

   private:
    friend class Flights;
    std::mutex mutex_;
    std::condition_variable landing_;
    std::shared_ptr<const Landed> landed_;
  };

  /// The flight of a name, and whether the caller leads it and must land it.
  struct Boarded {
    std::shared_ptr<Flight> flight;
    bool leader = false;
  };
  Boarded board(const std::string& name) {
    const std::lock_guard lock(mutex_);
    auto& flight = flights_[name];
    if (flight) return {flight, false};
    flight = std::make_shared<Flight>();
    return {flight, true};
  }

  /// Ends a flight: its followers get `landed`, whoever comes later starts another one.
  void land(const std::string& name, const std::shared_ptr<Flight>& flight,
            std::shared_ptr<const Landed> landed) {
    {
      const std::lock_guard lock(mutex_);
      flights_.erase(name);
    }
    {
      const std::lock_guard lock(flight->mutex_);
      flight->landed_ = std::move(landed);
    }
    flight->landing_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Flight>> flights_;
};

}  // namespace attnjit::cache

// SPDX-License-Identifier: Apache-2.0
// Breaker: a circuit breaker; after failures in a row it lets nobody through but a probe at times.
//
// Thread rules: every method may be called from any thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <random>

namespace attnjit::cache {

class Breaker {
 public:
  using Clock = std::chrono::steady_clock;

  enum class Way : std::uint8_t {
    kClosed,  ///< go on
    kProbe,   ///< go on, alone: whether it succeeds decides for the others
    kOpen,    ///< do not
  };

  /// Whoever gets kProbe reports how it went, or that it was never tried.
  Way enter(Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (failures_ < kThreshold) return Way::kClosed;
    if (probing_ || now < open_until_) return Way::kOpen;
    probing_ = true;
    return Way::kProbe;
  }

  /// Whether enter would let nobody through.
  bool is_open(Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    return failures_ >= kThreshold && (probing_ || now < open_until_);
  }

  void succeeded() {
    const std::lock_guard lock(mutex_);
    failures_ = 0;
    probing_ = false;
    pause_ = kFirstPause;
  }

  /// True where this opened it: the next pause begins.
  bool failed(Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    if (failures_ < kThreshold) ++failures_;
    if (failures_ < kThreshold) return false;
    if (now < open_until_ && !probing_) return false;  // one that was begun before
    probing_ = false;
    // NOTE: drawn, so that a fleet does not come back to a store all at once.
    std::uniform_int_distribution<std::int64_t> drawn(pause_.count() * 3 / 4,
                                                      pause_.count() * 5 / 4);
    open_until_ = now + std::chrono::milliseconds(drawn(random_));
    pause_ = std::min(pause_ * 2, kLongestPause);
    return true;
  }

  /// A probe that was not tried: the next one may.
  void not_tried() {
    const std::lock_guard lock(mutex_);
    probing_ = false;
  }

  static constexpr int kThreshold = 3;
  static constexpr std::chrono::milliseconds kFirstPause{1000};
  static constexpr std::chrono::milliseconds kLongestPause{60000};

 private:
  std::mutex mutex_;
  int failures_ = 0;
  bool probing_ = false;
  Clock::time_point open_until_{};
  std::chrono::milliseconds pause_ = kFirstPause;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace attnjit::cache

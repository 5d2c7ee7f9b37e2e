// SPDX-License-Identifier: Apache-2.0
// Leases: among the machines of a fleet, one at a time compiles a key. A lease ends by itself when
// its holder no longer renews it; a lost one costs a compile, never a wrong entry.
//
// Thread rules: every method may be called from any thread. One thread of their own talks to the
// server; no lock is held meanwhile.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "attnjit/cache.h"
#include "base/log.h"

namespace attnjit::cache {

/// Who keeps the leases. Belongs to one thread.
class LeaseKeeper {
 public:
  enum class Answer : std::uint8_t { kHeld, kBusy, kUnavailable };

  virtual ~LeaseKeeper() = default;
  /// kHeld: `token` has it until `ttl` has passed; kBusy: another one has it. Errors: no usable
  /// answer.
  virtual Result<Answer> take(const std::string& name, const std::string& token,
                              std::chrono::milliseconds ttl) = 0;
  /// False where `token` has it no more.
  virtual bool renew(const std::string& name, const std::string& token,
                     std::chrono::milliseconds ttl) = 0;
  virtual void release(const std::string& name, const std::string& token) = 0;
};

class Leases {
 public:
  using Clock = std::chrono::steady_clock;

  /// Null where the options name no keeper, or none that can be used (logged). `remote` is what
  /// leases are kept at where the URL is "remote".
  static std::unique_ptr<Leases> open(const LeaseOptions& options, const RemoteOptions& remote,
                                      const Logger& log);
  Leases(std::unique_ptr<LeaseKeeper> keeper, const LeaseOptions& options, const Logger& log);
  /// Gives back what is held.
  ~Leases();
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;

  struct Taken {
    LeaseKeeper::Answer answer = LeaseKeeper::Answer::kUnavailable;
    std::shared_ptr<void> held;  ///< renewed while it lives, and given back afterwards
  };
  /// Waits LeaseOptions::timeout at most.
  Taken try_take(const std::string& name);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace attnjit::cache

// SPDX-License-Identifier: Apache-2.0
// RemoteTier: entries in a store over HTTP: look-ups within a budget, and sending in the
// background.
//
// Thread rules: every method may be called from any thread. No lock is held across a request to the
// server. Its own threads do all that touches the network.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "attnjit/cache.h"
#include "base/log.h"
#include "cache/entry_format.h"

namespace attnjit::cache {

/// "ac/<64 hex>": where the image of a key by a build is; and where the newest image of a key is.
std::string remote_path(const EntryId& id);
std::string remote_path_of_newest(const Sha256Digest& key);

/// What takes the bytes of a look-up. Its methods are called from a thread of the tier, and never
/// after the tier is gone.
class Receiver {
 public:
  virtual ~Receiver() = default;
  /// Checks the bytes; empty: they are what was asked for. Else what is wrong with them.
  virtual std::string accept(std::string bytes) = 0;
  /// After accept, and after whoever waited was told: what takes longer.
  virtual void keep() = 0;
};

class RemoteTier {
 public:
  using Clock = std::chrono::steady_clock;

  /// Null where the options name no remote tier, or none that can be used (logged).
  static std::unique_ptr<RemoteTier> open(const RemoteOptions& options, const Logger& log);
  ~RemoteTier();

  enum class Found : std::uint8_t {
    kHit,      ///< the receiver accepted it
    kMiss,     ///< it is not there, or what is there is not what was asked for
    kUnknown,  ///< no answer by the deadline, or nobody was asked
  };
  enum class Memory : std::uint8_t {
    kUse,     ///< what did not give a hit a moment ago is not asked again
    kIgnore,  ///< it is
  };
  /// Asks for an object and waits until the deadline at most. An answer that comes later is
  /// received all the same.
  Found fetch(const std::string& path, Clock::time_point deadline,
              std::shared_ptr<Receiver> receiver, Memory memory);

  enum class Replace : std::uint8_t { kIfMissing, kAlways };
  /// Queues an entry to be sent as `id` and as its key's newest. `done` is dropped when it was
  /// sent, or given up.
  void send(const EntryId& id, std::shared_ptr<const std::string> bytes, Replace replace,
            std::shared_ptr<void> done);

  /// Whether the store gave an image of the key, or has one that this object sent.
  bool holds(const EntryId& id) const;

  /// Waits until nothing is on its way; false at the deadline.
  bool flush(Clock::time_point deadline);

  RemoteStatistics statistics() const;
  std::chrono::milliseconds lookup_budget() const;
  /// False where nobody is asked: the breaker is open.
  bool answers() const;

  /// How long what did not give a hit is not asked for again.
  static constexpr std::chrono::milliseconds kMemory{1000};

 private:
  struct State;
  explicit RemoteTier(std::shared_ptr<State> state);

  const std::shared_ptr<State> state_;
  class Pools;
  std::unique_ptr<Pools> pools_;
};

/// What `attnjit doctor` says of a remote tier.
struct RemoteCheck {
  std::string library;  ///< of libcurl; empty: there is none
  std::string url;      ///< without user and password
  bool reachable = false;
  Error problem;  ///< where it is not reachable
};
RemoteCheck check_remote(const RemoteOptions& options);

}  // namespace attnjit::cache

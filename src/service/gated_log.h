// SPDX-License-Identifier: Apache-2.0
// GatedLog: a Service's sink until the Service ends; silent afterwards, whoever still runs.
//
// Thread rules: any thread, several at once.
#pragma once

#include <chrono>
#include <memory>
#include <shared_mutex>
#include <string_view>
#include <utility>

#include "attnjit/log.h"
#include "base/no_throw.h"

namespace attnjit {

class GatedLog {
 public:
  explicit GatedLog(LogSink sink) : gate_(std::make_shared<Gate>()) {
    gate_->sink = std::move(sink);
  }

  /// A sink that may outlive the Service: a compile that cannot be stopped may still want to log,
  /// when what the user's sink refers to is gone. It never throws: what the user's sink throws is
  /// dropped with its message.
  LogSink sink() const {
    return [gate = gate_](LogLevel level, std::string_view text) {
      const std::shared_lock lock(gate->mutex);
      if (!gate->sink) return;
      // NOTE: threads of the Service log, and an exception would end the process there.
      (void)no_throw([&]() -> Status {
        gate->sink(level, text);
        return {};
      });
    };
  }

  /// From now on silent. Waits for calls under way, but not for one that hangs.
  void close() {
    const std::unique_lock lock(gate_->mutex, std::chrono::milliseconds(200));
    if (lock.owns_lock()) gate_->sink = nullptr;
  }

 private:
  struct Gate {
    std::shared_timed_mutex mutex;
    LogSink sink;
  };
  std::shared_ptr<Gate> gate_;
};

}  // namespace attnjit

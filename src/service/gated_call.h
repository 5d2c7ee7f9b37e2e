// SPDX-License-Identifier: Apache-2.0
// GatedCall: a function of the Service's user until the Service ends; silent afterwards, whoever
// still runs.
//
// Thread rules: any thread, several at once.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <shared_mutex>
#include <utility>

#include "attnjit/result.h"
#include "base/no_throw.h"

namespace attnjit {

template <class... Arguments>
class GatedCall {
 public:
  using Function = std::function<void(Arguments...)>;

  explicit GatedCall(Function function) : gate_(std::make_shared<Gate>()) {
    gate_->function = std::move(function);
  }

  /// A function that may outlive the Service: a compile that cannot be stopped may still want to
  /// call, when what the user's function refers to is gone. It never throws: what the user's
  /// function throws is dropped.
  Function function() const {
    return [gate = gate_](Arguments... arguments) {
      const std::shared_lock lock(gate->mutex);
      if (gate->closed || !gate->function) return;
      // NOTE: threads of the Service call, and an exception would end the process there.
      (void)no_throw([&]() -> Status {
        gate->function(arguments...);
        return {};
      });
    };
  }

  /// From now on no call begins. Waits for those under way, but not for one that hangs.
  void close() {
    gate_->closed = true;
    const std::unique_lock lock(gate_->mutex, std::chrono::milliseconds(200));
    if (lock.owns_lock()) gate_->function = nullptr;
  }

 private:
  struct Gate {
    std::shared_timed_mutex mutex;
    std::atomic<bool> closed{false};  // NOTE: a call that hangs keeps `function` from being cleared
    Function function;
  };
  std::shared_ptr<Gate> gate_;
};

}  // namespace attnjit

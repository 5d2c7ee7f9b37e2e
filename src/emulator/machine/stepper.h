// SPDX-License-Identifier: Apache-2.0
// Runs a cluster one operation at a time, in an order that its caller chooses.
//
// Thread rules: confined to the cluster's thread.
#pragma once

#include "emulator/machine/machine.h"

namespace attnjit::emulator {

class Stepper {
 public:
  /// @pre the machine is timed
  explicit Stepper(Cluster& cluster) : cluster_(cluster) {}

  /// The first lane group of the warp that can go on; null: all wait, or have exited.
  Group* ready_group(Warp& warp);

  enum class Outcome : u8 {
    kNext,      ///< the group is at the next operation
    kJump,      ///< the group is elsewhere
    kWaits,     ///< the operation runs again when the group is ready
    kSwitched,  ///< the warp's groups changed
    kParked,    ///< nothing was executed: the group waits where paths meet
  };
  /// Executes the operation that the group is at.
  Outcome execute(Warp& warp, Group& group);

  /// Executes an operation of a unit to its end and removes it. @pre it is ready
  void complete(const AsyncOp& op);
  /// Gives the groups that wait in vain what keeps them: lanes that have exited, paths that do not
  /// meet. False: there is none, this is a deadlock.
  bool unstick() { return cluster_.unstick(); }
  void report_deadlock() { cluster_.report_deadlock(); }

 private:
  Cluster& cluster_;
};

}  // namespace attnjit::emulator

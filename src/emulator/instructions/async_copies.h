// SPDX-License-Identifier: Apache-2.0
// What the families of asynchronous copies share: groups that threads commit and wait for.
//
// Thread rules: confined to a cluster's thread.
#pragma once

#include "emulator/machine/machine.h"

namespace attnjit::emulator {

class Decoding;

/// The open group of a warp's copies, for the lanes of `mask`.
std::shared_ptr<PendingCopies> open_group(std::vector<std::shared_ptr<PendingCopies>>& groups,
                                          u32 mask);

/// commit_group: the lanes' open group is closed; an empty one counts too.
void commit_group(std::vector<std::shared_ptr<PendingCopies>>& groups, u32 mask);

/// wait_group: kWait until at most `allowed` of the lanes' groups are pending (`open_too`: and none
/// of their open one); then the warp knows what the finished ones did.
Step wait_group(Warp& warp, std::vector<std::shared_ptr<PendingCopies>>& groups, Wait::Kind kind,
                u32 mask, u64 allowed, bool open_too, bool reads_only);

/// The shared address that a lane's operand names, generic or not; false after a
/// finding.
bool shared_operand(Warp& warp, const Op& op, u32 lane, u64 value, bool generic,
                    SharedAddress* address);

/// The bytes of a copy on their way, with their poison.
struct Payload {
  std::vector<u8> data;
  std::vector<u8> poison;  ///< empty: all initialised
  void take(const Place& place, std::size_t at, std::size_t bytes);
  void put(const Place& place, std::size_t at, std::size_t bytes) const;
  /// Whether the bytes that lie there are the same.
  bool matches(const Place& place, std::size_t at, std::size_t bytes) const;
  bool poisoned(std::size_t at, std::size_t bytes) const;
};

}  // namespace attnjit::emulator

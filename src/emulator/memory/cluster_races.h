// SPDX-License-Identifier: Apache-2.0
// Races between clusters through global memory, of kernels whose clusters do not communicate: what
// each cluster touched is compared when all have run.
//
// Thread rules: add() by one thread at a time.
#pragma once

#include <map>
#include <vector>

#include "emulator/integers.h"

namespace attnjit::emulator {

class ClusterRaces {
 public:
  /// What one cluster did to bytes [begin, end) of a buffer.
  struct Access {
    u64 begin = 0, end = 0;
    u64 cluster = 0;
    u32 site = 0;
    bool written = false;
    bool atomic = false;  ///< by strong accesses only
  };
  struct Race {
    Access earlier, later;  ///< in the order of addresses
    u64 offset = 0;
  };

  /// Adds an access to a list in the order of addresses, as one with the last where that is alike.
  static void append(std::vector<Access>& list, const Access& access);
  void add(u32 buffer, std::vector<Access> accesses);
  /// Pairs that overlap, one of them a write, not both atomic: one for each pair of sites.
  std::vector<Race> find();

 private:
  std::map<u32, std::vector<Access>> buffers_;
};

}  // namespace attnjit::emulator

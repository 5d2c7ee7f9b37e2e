// SPDX-License-Identifier: Apache-2.0
// Shared memory and mbarriers of the kernels of absorbed MLA and deep heads.
#pragma once

#include <cstdint>
#include <vector>

#include "attnjit/plan.h"
#include "plan/kernel/constants.h"
#include "plan/kernel/memory_layout.h"
#include "plan/mla/mla_tiles.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// Those who hand memory back: how many arrive.
struct MlaReaders {
  int work = 0;          ///< of an published work tile
  int q = 0;             ///< of Q
  int latent = 0;        ///< of a latent block of K, or of a block of V of its own
  int middle_block = 0;  ///< of the one that both halves of O have, where there is one
  int rope = 0;          ///< of the rope's block, or of a block of K that is not V
  int listed = 0;        ///< of which keys are listed, beside those of a tile's first block
};

/// Mbarriers of one kind, in the order in which they lie in shared memory.
struct MlaBarrierGroup {
  const char* constant;  ///< the Config member that holds the rank of the first
  std::vector<BarrierPlan> barriers;
};

/// The barriers of work, Q and K.
std::vector<MlaBarrierGroup> mla_barrier_groups(const SpecFacts& spec, const MlaTiles& tiles,
                                                const MlaReaders& readers);
/// All of them, one after the other.
std::vector<BarrierPlan> mla_barriers(const std::vector<MlaBarrierGroup>& groups);
/// Adds the rank of each group's first barrier, and the barriers' arrivals.
void add_mla_barriers(const std::vector<MlaBarrierGroup>& groups, Constants& constants);

/// What a range of shared memory is for.
enum class MlaRegion : std::uint8_t {
  kQ,
  kK,  ///< and V, where that has no memory of its own
  kV,
  kP,
  kListed,
  kLists,
  kStash,
  kWork,
  kTmemAddress,
  kBarriers,
};

/// Bytes that a generation's kernel has beside what all have.
struct MlaOwnBytes {
  std::int64_t p = 0;
  std::int64_t stash = 0;
  std::int64_t tmem_address = 0;
};

/// Shared memory, in its order.
MemoryLayout<MlaRegion> mla_smem(const SpecFacts& spec, const MlaTiles& tiles,
                                 const MlaOwnBytes& own, std::size_t num_barriers);
/// As a plan shows it; `q` and `work`: what these ranges are called.
std::vector<MemoryRange> mla_smem_map(const MemoryLayout<MlaRegion>& smem, const MlaTiles& tiles,
                                      const char* q, const char* work);

/// Adds where the ranges begin.
void add_mla_regions(const MemoryLayout<MlaRegion>& smem, Constants& constants);

}  // namespace attnjit

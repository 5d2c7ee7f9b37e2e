// SPDX-License-Identifier: Apache-2.0
// MlaPlan: what the kernels of absorbed MLA and head_dim above 256 have in every generation. Of
// absorbed MLA all query heads are over one row of K per key, whose latent part is V.
#pragma once

#include <cstdint>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "attnjit/tuning.h"
#include "plan/kernel/constants.h"
#include "plan/kernel/knobs.h"
#include "plan/kernel/memory_layout.h"
#include "plan/mla/mla_tiles.h"

namespace attnjit {

struct MlaPlan {
  /// log2: O is rescaled when the maximum grows by more.
  static constexpr double kRescaleThreshold = 8;

  MlaTiles tiles;
  MemoryLayout smem;
  BarrierList barriers;
};

/// Those who release memory: how many arrive.
struct MlaReaders {
  int work = 0;          ///< of a published work tile
  int q = 0;             ///< of Q
  int latent = 0;        ///< of a latent block of K, or of a block of V of its own
  int middle_block = 0;  ///< of the one that both halves of O have, where there is one
  int rope = 0;          ///< of the rope's block, or of a block of K that is not V
  int listed = 0;        ///< of which keys are listed, beside those of a tile's first block
};
/// Adds the barriers of work, Q and K.
void add_mla_barriers(const MlaReaders& readers, MlaPlan& plan);

/// What shared memory holds in one generation beside what it has in all, and how maps name ranges.
struct MlaOwnMemory {
  std::int64_t p_bytes = 0;
  std::int64_t stash_bytes = 0;
  std::int64_t tmem_address_bytes = 0;
  const char* q_name = "Q";
  const char* work_name = "work";
};
/// Shared memory, in its order. @pre the barriers are all there.
void lay_out_mla_smem(const MlaOwnMemory& own, MlaPlan& plan);

/// Chooses the number of stages, of those of the first knob: the most that fit, or else the first;
/// then what a tuning row says. `lay_out` fills the memory of a plan; `generation`: "sm_90a".
/// Errors: kInvalid for a tuned name or value that this plan cannot take.
template <class Plan>
Status choose_mla_tiles(const std::vector<Knob<MlaTiles>>& knobs, const char* generation,
                        const TuningValues* tuned, void (*lay_out)(Plan& plan), Plan& plan) {
  for (const std::int64_t stages : knobs.front().values) {
    Plan more = plan;
    more.tiles.num_stages = static_cast<int>(stages);
    lay_out(more);
    const bool fits = more.smem.end_of_last() <= DeviceShape{}.max_smem_bytes;
    if (plan.tiles.num_stages == 0 || fits) plan.tiles.num_stages = more.tiles.num_stages;
  }
  if (tuned == nullptr) return {};
  return apply_knobs(knobs,
                     fmt::format("an {} plan of {}", generation,
                                 plan.tiles.separate_v() ? "head_dim above 256" : "absorbed MLA"),
                     *tuned, plan.tiles);
}

/// What every generation's Config has, but for registers, offsets and barriers.
Constants mla_constants(const ResolvedSpec& resolved, const MlaTiles& tiles, int threads);
/// Adds where the ranges of shared memory begin.
void add_mla_regions(const MemoryLayout& smem, Constants& constants);

/// Fills in what a main kernel has in every generation, all but roles and tensor memory, with its
/// constants, which lack the barriers yet, and how it leaves partial results. Errors: kInvalid for
/// a tuned number of stages that do not fit.
Status fill_mla_kernel(const MlaPlan& mla, const char* header, int threads, Constants constants,
                       KernelPlan& plan);

}  // namespace attnjit

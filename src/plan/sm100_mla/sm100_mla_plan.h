// SPDX-License-Identifier: Apache-2.0
// Sm100MlaPlan: what the sm_100a and sm_103a kernel of absorbed MLA and deep heads uses. Of
// absorbed MLA all query heads are over one row of K per key, whose latent part is V.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/tuning.h"
#include "plan/kernel/memory_layout.h"
#include "plan/mla/mla_memory.h"
#include "plan/mla/mla_tiles.h"

namespace attnjit {

/// Warps with one job.
struct Sm100MlaRole {
  const char* name = "";
  int first_warp = 0;
  int num_warps = 0;
  int registers = 0;  ///< per thread
};

/// What a range of tensor memory is for.
enum class Sm100MlaTmem : std::uint8_t { kO, kS, kP };

/// docs/mla.md has the arithmetic.
struct Sm100MlaPlan {
  MlaTiles tiles;
  std::int64_t q_bytes = 0;  ///< and of a stage of K, which is V where that has no memory
  std::int64_t v_bytes = 0;  ///< of a stage of V of its own
  MemoryLayout<MlaRegion> smem;
  int tmem_used = 0;     ///< columns
  int tmem_columns = 0;  ///< allocated: a power of two
  MemoryLayout<Sm100MlaTmem> tmem;
  std::vector<BarrierPlan> barriers;
  std::vector<Sm100MlaRole> roles;
  double rescale_threshold = 8;  ///< log2: O is rescaled when the maximum grows by more
  std::vector<Deviation> deviations;
};

/// Why the template does not serve a spec; empty: it does.
std::string sm100_mla_unsupported_reason(const ResolvedSpec& spec);

/// Plans the kernel of a spec that is served. `tuned` holds what a tuning row overrides, or is
/// null. Errors: kInvalid for a tuned name or value that this plan cannot take.
Result<Sm100MlaPlan> make_sm100_mla_plan(const ResolvedSpec& spec, const TuningValues* tuned);

/// Fills the kernel of a plan. @pre plan.workspaces is filled.
void fill_from_sm100_mla(const Sm100MlaPlan& mla, KernelPlan& plan);

struct LaunchRequest;
struct PartitionChoice;
/// The parts that a launch splits the keys into.
PartitionChoice sm100_mla_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                                     const DeviceShape& device);

/// Plans a launch of the kernel.
Status plan_sm100_mla_launch(const KernelPlan& plan, const LaunchRequest& request,
                             LaunchRecipe& recipe);

/// What a tuning row may choose, with what this plan has.
std::vector<TuningKnob> sm100_mla_knobs(const KernelPlan& plan);

/// Adds the plan's own fields to a plan's JSON.
void add_sm100_mla(const Sm100MlaPlan& plan, nlohmann::ordered_json& json);

}  // namespace attnjit

// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a forward kernel.
#include <fmt/format.h>

#include <algorithm>

#include "plan/launch/arguments.h"
#include "plan/launch/family_launch.h"
#include "plan/launch/partitions.h"
#include "plan/merge/merge_plan.h"
#include "plan/signature.h"
#include "plan/sm90/sm90_plan.h"
#include "plan/sm90/sm90_shapes.h"

namespace attnjit {
namespace {

TensorMapDescription describe(const KernelPlan& plan, const LaunchTensors& tensors,
                              TensorMapId map) {
  const bool keys = map == TensorMapId::kK || map == TensorMapId::kV;
  // NOTE: a tensor map cannot be empty. Where there are no keys nothing is loaded through K's and
  // V's; they view Q, which is there.
  const TensorMapId viewed = tensor_of(tensors, map).empty() ? TensorMapId::kQ : map;
  const TensorView& tensor = tensor_of(tensors, viewed);
  TensorMapDescription description =
      keys ? sm90_key_map(tensor, plan.sm90->box_keys)
           : sm90_row_map(tensor, sm90_gqa_shift(*plan.sm90, plan.spec),
                          sm90_packed_heads(*plan.sm90, plan.spec));
  if (keys) description.l2_bytes = plan.sm90->l2_bytes;
  description.id = buffer_of(plan, viewed);
  return description;
}

// The query tiles of a head (or those of packed heads), all sequences together.
std::int64_t tiles_of_head(const KernelPlan& plan, const LaunchShapes& shapes) {
  return sm90_query_tiles(plan.spec, shapes, plan.sm90->BM, sm90_gqa_shift(*plan.sm90, plan.spec));
}

// The CTAs that run at once.
int ctas_of(const Sm90Plan& plan, const DeviceShape& device) {
  return plan.ctas_per_sm * std::max(device.sm_count, 1);
}

// Fitted on an H200 to decodes of depth 128: docs/performance-sm90.md.
SmRates rates_of(const Sm90Plan& plan) {
  // Rows that are copied one by one arrive slower.
  return {.alone_bytes = plan.row_copies ? 22e3 : 57e3,
          .shared_bytes = 34e3,
          .two_ctas = 1.6,
          .flop = 5e6};
}

}  // namespace

Sm90Shares sm90_shares(bool pair_tiles, std::int32_t m_tiles, std::int32_t total_tiles, int ctas) {
  // Whole rounds of pairs that are left to the tail, beside the last that is none: as few as even
  // out the rest to 2 %, because the tail's tiles are of many heads, whose K and V share L2.
  constexpr std::int32_t kTailRounds = 1;
  Sm90Shares shares;
  shares.ctas = std::min(total_tiles, std::max(ctas, 1));
  if (!pair_tiles) return shares;
  const std::int32_t pairs = total_tiles / m_tiles * (m_tiles - m_tiles / 2);
  shares.paired_units = std::max(pairs / shares.ctas - kTailRounds, 0) * shares.ctas;
  return shares;
}

std::int32_t sm90_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                             const DeviceShape& device) {
  const AttentionSpec& spec = plan.spec;
  if (const auto fixed = fixed_partitions(spec, shapes)) return *fixed;
  const Sm90Plan& sm90 = *plan.sm90;
  const std::int64_t heads = spec.num_q_heads / sm90_packed_heads(sm90, spec);
  SplitWork work = split_work(spec, shapes, tiles_of_head(plan, shapes), heads, sm90.BN);
  work.kv_tile_bytes = static_cast<double>(sm90.k_bytes + sm90.v_bytes);
  work.tile_flop = 2.0 * sm90.BM * sm90.BN * (spec.qk_depth + spec.ov_depth);
  work.ctas_per_sm = sm90.ctas_per_sm;
  return best_partitions(work, rates_of(sm90), device);
}

Result<LaunchRecipe> plan_sm90_launch(const KernelPlan& plan, const LaunchRequest& request) {
  const AttentionSpec& spec = plan.spec;
  const Sm90Plan& sm90 = *plan.sm90;
  const LaunchShapes& shapes = request.shapes;
  const int gqa_shift = sm90_gqa_shift(sm90, spec);
  const std::int64_t rows = std::int64_t{shapes.q_len} << gqa_shift;
  if (rows > kMaxLength) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("q_len is {}; with the {} heads of a group in one tile, 0 to {} "
                                  "is allowed",
                                  shapes.q_len, spec.group, kMaxLength >> gqa_shift),
                      "q_len");
  }
  const std::int64_t m_tiles = (rows + sm90.BM - 1) / sm90.BM;
  const std::int64_t heads = spec.num_q_heads / sm90_packed_heads(sm90, spec);
  // NOTE: divided, not multiplied: the product of four such numbers overflows 64 bits.
  if (m_tiles * heads > kMaxTiles / shapes.batch / request.partitions) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("batch {} x {} heads x {} query tiles x {} partitions exceed {}",
                                  shapes.batch, heads, m_tiles, request.partitions, kMaxTiles),
                      "batch");
  }
  const auto total_tiles =
      static_cast<std::int32_t>(tiles_of_head(plan, shapes) * heads * request.partitions);
  const Sm90Shares shares =
      sm90_shares(sm90.pair_tiles && request.partitions == 1, static_cast<std::int32_t>(m_tiles),
                  total_tiles, ctas_of(sm90, request.device));
  ArgumentValues values{plan, request.scalars, request.params,
                        LaunchNumbers(spec, shapes, request.scale),
                        [&](TensorMapId map) { return describe(plan, request.tensors, map); }};
  values.numbers.set(LaunchNumber::kMTiles, static_cast<std::int32_t>(m_tiles));
  values.numbers.set(LaunchNumber::kTotalTiles, total_tiles);
  values.numbers.set(LaunchNumber::kPairedUnits, shares.paired_units);
  values.numbers.set(LaunchNumber::kPartitions, request.partitions);
  const TensorView& o = request.tensors.o;
  values.numbers.set(LaunchNumber::kRows, o.batch * o.rows * o.heads);
  values.numbers.set_strides(request.tensors);
  Result<LaunchRecipe> recipe =
      make_recipe(plan.main(), static_cast<std::uint32_t>(shares.ctas), values);
  if (recipe) forget_partials(plan, request.partitions, *recipe);
  return recipe;
}

}  // namespace attnjit

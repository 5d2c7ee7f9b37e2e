// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a forward kernel.
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "plan/launch/arguments.h"
#include "plan/launch/family_launch.h"
#include "plan/merge/merge_plan.h"
#include "plan/signature.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit {
namespace {

// A map of K or V: depth, key, head, batch; of pages depth, row, head, page.
TensorMapDescription describe_keys(const TensorView& tensor, int box_keys) {
  const auto bytes = [&](std::int64_t stride) {
    return static_cast<std::uint64_t>(stride * tensor.element_bytes());
  };
  TensorMapDescription description;
  description.dtype = tensor.dtype;
  description.dims = {
      static_cast<std::uint64_t>(tensor.depth), static_cast<std::uint64_t>(tensor.rows),
      static_cast<std::uint64_t>(tensor.heads), static_cast<std::uint64_t>(tensor.batch)};
  description.strides = {bytes(tensor.strides.row), bytes(tensor.strides.head),
                         bytes(tensor.strides.batch)};
  description.box = {static_cast<std::uint32_t>(128 / tensor.element_bytes()),
                     static_cast<std::uint32_t>(box_keys), 1, 1};
  description.element_strides = {1, 1, 1, 1};
  description.swizzle = 128;
  return description;
}

// A map of Q or O: depth, head, position, batch; a box is a consumer's 64 rows, of 2^gqa_shift
// heads.
TensorMapDescription describe_rows(const TensorView& tensor, int gqa_shift) {
  TensorMapDescription description = describe_keys(tensor, 64 >> gqa_shift);
  std::swap(description.dims[1], description.dims[2]);
  std::swap(description.strides[0], description.strides[1]);
  std::swap(description.box[1], description.box[2]);
  description.box[1] = 1U << gqa_shift;
  return description;
}

TensorMapDescription describe(const KernelPlan& plan, const LaunchTensors& tensors,
                              TensorMapId map) {
  const bool keys = map == TensorMapId::kK || map == TensorMapId::kV;
  // NOTE: a tensor map cannot be empty. Where there are no keys nothing is loaded through K's and
  // V's; they view Q, which is there.
  const TensorMapId viewed = tensor_of(tensors, map).empty() ? TensorMapId::kQ : map;
  const TensorView& tensor = tensor_of(tensors, viewed);
  TensorMapDescription description =
      keys ? describe_keys(tensor, plan.sm90->box_keys)
           : describe_rows(tensor, sm90_gqa_shift(*plan.sm90, plan.spec));
  description.id = buffer_of(plan, viewed);
  return description;
}

// The query tiles of a head (or those of packed heads), all sequences together: no fewer than there
// can be.
std::int64_t tiles_of_head(const KernelPlan& plan, const LaunchShapes& shapes) {
  const int rows = plan.sm90->BM;
  const int shift = sm90_gqa_shift(*plan.sm90, plan.spec);
  const std::int64_t longest = ((std::int64_t{shapes.q_len} << shift) + rows - 1) / rows;
  if (!plan.spec->ragged) return longest * shapes.batch;
  // Each sequence wastes a tile less a row at most.
  const std::int64_t all_rows =
      (std::int64_t{shapes.total_q} << shift) + std::int64_t{shapes.batch} * (rows - 1);
  return std::min(longest * shapes.batch, all_rows / rows);
}

// One partition is written as O and LSE: there are no workspaces.
void forget_partials(const KernelPlan& plan, LaunchRecipe& recipe) {
  for (std::size_t i = 0; i < recipe.args.size(); ++i) {
    const auto* buffer = std::get_if<BufferId>(&plan.main().parameters[i].source);
    const bool partial = buffer != nullptr && buffer->kind == BufferId::Kind::kWorkspace &&
                         buffer->index <= kPartialLse;
    if (partial) recipe.args[i] = {KernelArgument::Pointer{}};
  }
}

}  // namespace

Sm90Shares sm90_shares(bool pair_tiles, std::int32_t m_tiles, std::int32_t total_tiles,
                       int sm_count) {
  // Whole rounds of pairs that are left to the tail, beside the last that is none: as few as even
  // out the rest to 2 %, because the tail's tiles are of many heads, whose K and V share L2.
  constexpr std::int32_t kTailRounds = 1;
  Sm90Shares shares;
  shares.ctas = std::min(total_tiles, std::max(sm_count, 1));
  if (!pair_tiles) return shares;
  const std::int32_t pairs = total_tiles / m_tiles * (m_tiles - m_tiles / 2);
  shares.paired_units = std::max(pairs / shares.ctas - kTailRounds, 0) * shares.ctas;
  return shares;
}

std::int32_t sm90_partitions(const KernelPlan& plan, const LaunchShapes& shapes,
                             const DeviceShape& device) {
  if (!splits(plan.spec)) return 1;
  if (plan.spec->num_partitions > 1) return plan.spec->num_partitions;
  if (const int keys = plan.spec->partition_keys; keys > 0) {
    return std::max((shapes.kv_len + keys - 1) / keys, 1);
  }
  // The number that takes the least time, in units of a KV tile: a round of the SMs is a part, and
  // as much as a KV tile to begin and end it; a merge takes as much as some KV tiles.
  constexpr std::int64_t kMaxPartitions = 64;
  constexpr std::int64_t kMergeTiles = 3;
  const std::int64_t kv_tiles = (std::int64_t{shapes.kv_len} + plan.sm90->BN - 1) / plan.sm90->BN;
  const std::int64_t heads = plan.spec->num_q_heads >> sm90_gqa_shift(*plan.sm90, plan.spec);
  const std::int64_t sms = std::max(device.sm_count, 1);
  // NOTE: where there are many tiles, how many does not matter, and the product may overflow.
  const std::int64_t tiles = std::min<std::int64_t>(tiles_of_head(plan, shapes), 1 << 20) * heads;
  std::int64_t best = 1;
  std::int64_t least = 0;
  for (std::int64_t parts = 1; parts <= std::clamp<std::int64_t>(kv_tiles, 1, kMaxPartitions);
       ++parts) {
    const std::int64_t rounds = (tiles * parts + sms - 1) / sms;
    const std::int64_t time =
        rounds * ((kv_tiles + parts - 1) / parts + 1) + (parts > 1 ? kMergeTiles : 0);
    // More parts are more partial results: they are to gain something.
    if (parts == 1 || time * 16 < least * 15) {
      best = parts;
      least = time;
    }
  }
  return static_cast<std::int32_t>(best);
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
  const std::int64_t heads = spec.num_q_heads >> gqa_shift;
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
                  total_tiles, request.device.sm_count);
  ArgumentValues values{plan, request.scalars, request.params,
                        LaunchNumbers(spec, shapes, request.scale),
                        [&](TensorMapId map) { return describe(plan, request.tensors, map); }};
  values.numbers.set(LaunchNumber::kMTiles, static_cast<std::int32_t>(m_tiles));
  values.numbers.set(LaunchNumber::kTotalTiles, total_tiles);
  values.numbers.set(LaunchNumber::kPairedUnits, shares.paired_units);
  values.numbers.set(LaunchNumber::kPartitions, request.partitions);
  const TensorView& o = request.tensors.o;
  values.numbers.set(LaunchNumber::kRows, o.batch * o.rows * o.heads);
  values.numbers.set(LaunchNumber::kORowBytes, o.strides.row * o.element_bytes());
  values.numbers.set(LaunchNumber::kOHeadBytes, o.strides.head * o.element_bytes());
  const TensorView& k = request.tensors.k;
  values.numbers.set(LaunchNumber::kKPageBytes, k.strides.batch * k.element_bytes());
  values.numbers.set(LaunchNumber::kKRowBytes, k.strides.row * k.element_bytes());
  values.numbers.set(LaunchNumber::kKHeadBytes, k.strides.head * k.element_bytes());
  const TensorView& v = request.tensors.v;
  values.numbers.set(LaunchNumber::kVPageBytes, v.strides.batch * v.element_bytes());
  values.numbers.set(LaunchNumber::kVRowBytes, v.strides.row * v.element_bytes());
  values.numbers.set(LaunchNumber::kVHeadBytes, v.strides.head * v.element_bytes());
  Result<LaunchRecipe> recipe =
      make_recipe(plan.main(), static_cast<std::uint32_t>(shares.ctas), values);
  const bool written_whole = request.partitions == 1 && !merges_one_part(spec);
  if (recipe && sm90.split && written_whole) forget_partials(plan, *recipe);
  return recipe;
}

}  // namespace attnjit

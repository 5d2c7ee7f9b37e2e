// SPDX-License-Identifier: Apache-2.0
// Launches of the sm_90a forward kernel.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plan/launch/arguments.h"
#include "plan/launch/family_launch.h"
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
  // NOTE: divided, not multiplied: the product of three 30-bit numbers overflows 64 bits.
  if (m_tiles * heads > kMaxTiles / shapes.batch) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("batch {} x {} heads x {} query tiles exceed {}", shapes.batch,
                                  heads, m_tiles, kMaxTiles),
                      "batch");
  }
  std::int64_t all_tiles = m_tiles * shapes.batch;  // of a head
  if (spec.ragged) {
    // No fewer than the batch can have: each sequence wastes a tile less a row at most.
    const std::int64_t all_rows =
        (std::int64_t{shapes.total_q} << gqa_shift) + std::int64_t{shapes.batch} * (sm90.BM - 1);
    all_tiles = std::min(all_tiles, all_rows / sm90.BM);
  }
  const auto total_tiles = static_cast<std::int32_t>(all_tiles * heads);
  const Sm90Shares shares = sm90_shares(sm90.pair_tiles, static_cast<std::int32_t>(m_tiles),
                                        total_tiles, request.device.sm_count);
  ArgumentValues values{plan, request.scalars, request.params,
                        LaunchNumbers(spec, shapes, request.scale),
                        [&](TensorMapId map) { return describe(plan, request.tensors, map); }};
  values.numbers.set(LaunchNumber::kMTiles, static_cast<std::int32_t>(m_tiles));
  values.numbers.set(LaunchNumber::kTotalTiles, total_tiles);
  values.numbers.set(LaunchNumber::kPairedUnits, shares.paired_units);
  const TensorView& o = request.tensors.o;
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
  return make_recipe(plan.main(), static_cast<std::uint32_t>(shares.ctas), values);
}

}  // namespace attnjit

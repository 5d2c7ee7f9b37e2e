// SPDX-License-Identifier: Apache-2.0
// Tensor maps and counts that the launches of the sm_90a kernels share.
#include "plan/sm90/sm90_shapes.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "plan/forward_support.h"
#include "plan/merge/merge_plan.h"

namespace attnjit {
namespace {

constexpr int kBoxRows = 64;  // of Q and O: a wgmma's

}  // namespace

void sm90_key_map(const TensorView& tensor, int box_keys, int row_bytes,
                  TensorMapDescription& description) {
  const auto bytes = [&](std::int64_t stride) {
    return static_cast<std::uint64_t>(stride * tensor.element_bytes());
  };
  description.dtype = tensor.dtype;
  description.dims = {
      static_cast<std::uint64_t>(tensor.depth), static_cast<std::uint64_t>(tensor.rows),
      static_cast<std::uint64_t>(tensor.heads), static_cast<std::uint64_t>(tensor.batch)};
  description.strides = {bytes(tensor.strides.row), bytes(tensor.strides.head),
                         bytes(tensor.strides.batch)};
  description.box = {static_cast<std::uint32_t>(row_bytes / tensor.element_bytes()),
                     static_cast<std::uint32_t>(box_keys), 1, 1};
  description.element_strides = {1, 1, 1, 1};
  description.swizzle = row_bytes;
}

void sm90_row_map(const TensorView& tensor, int gqa_shift, int packed_heads,
                  TensorMapDescription& description) {
  const int box_heads = std::min(kBoxRows, 1 << gqa_shift);
  sm90_key_map(tensor, kBoxRows / box_heads, kSm90RowBytes, description);
  std::swap(description.dims[1], description.dims[2]);
  std::swap(description.strides[0], description.strides[1]);
  std::swap(description.box[1], description.box[2]);
  description.box[1] = static_cast<std::uint32_t>(box_heads);
  if (packed_heads == 1 << gqa_shift) return;
  const auto heads = static_cast<std::uint64_t>(packed_heads);
  description.dims.insert(description.dims.end() - 1, description.dims[1] / heads);
  description.dims[1] = heads;
  description.strides.insert(description.strides.end() - 1, description.strides[0] * heads);
  description.box.push_back(1);
  description.element_strides.push_back(1);
}

std::int64_t sm90_query_tiles(const AttentionSpec& spec, const LaunchShapes& shapes, int tile_rows,
                              int gqa_shift) {
  const std::int64_t longest =
      ((std::int64_t{shapes.q_len} << gqa_shift) + tile_rows - 1) / tile_rows;
  if (!spec.ragged) return longest * shapes.batch;
  // Each sequence wastes a tile less a row at most.
  const std::int64_t all_rows =
      (std::int64_t{shapes.total_q} << gqa_shift) + std::int64_t{shapes.batch} * (tile_rows - 1);
  return std::min(longest * shapes.batch, all_rows / tile_rows);
}

void sm90_add_work_numbers(const AttentionSpec& spec, bool split, bool kv_lens,
                           std::vector<LaunchNumber>& numbers) {
  using enum LaunchNumber;
  if (split) numbers.insert(numbers.end(), {kPartitions, kRows});
  if (!kv_lens) {
    numbers.insert(numbers.end(), {kMTiles, kTotalTiles, kPairedUnits, kTileGroups, kFirstTiles,
                                   kSecondTiles, kTileGrowth});
    return;
  }
  numbers.push_back(kBatch);
  if (spec.ragged) numbers.push_back(kTotalQ);
  if (spec.ragged_kv) numbers.push_back(kTotalKv);
  if (has_page_table(spec)) numbers.push_back(kMaxPages);
}

}  // namespace attnjit

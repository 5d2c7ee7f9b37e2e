// SPDX-License-Identifier: Apache-2.0
// Tensor maps and counts of tiles of 64 rows.
#include "plan/launch/row_tiles.h"

#include <algorithm>
#include <utility>

#include "plan/kernel/signature.h"
#include "spec/text.h"

namespace attnjit {
namespace {

constexpr int kBoxRows = 64;  // of Q and O: a wgmma's

}  // namespace

void key_map(const TensorView& tensor, int box_keys, int row_bytes,
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

std::int64_t packed_rows(std::int64_t positions, int packed_heads) {
  if (packed_heads > kBoxRows) return positions * packed_heads;
  const int whole = kBoxRows / packed_heads;
  return positions / whole * kBoxRows + positions % whole * packed_heads;
}

std::int64_t packed_positions(std::int64_t rows, int packed_heads) {
  if (packed_heads > kBoxRows) return rows / packed_heads;
  return rows / kBoxRows * (kBoxRows / packed_heads);
}

void row_map(const TensorView& tensor, int packed_heads, TensorMapDescription& description) {
  const int box_heads = std::min(kBoxRows, packed_heads);
  key_map(tensor, kBoxRows / box_heads, kBoxRowBytes, description);
  std::swap(description.dims[1], description.dims[2]);
  std::swap(description.strides[0], description.strides[1]);
  std::swap(description.box[1], description.box[2]);
  description.box[1] = static_cast<std::uint32_t>(box_heads);
}

void describe_rows(const KernelPlan& plan, const LaunchTensors& tensors, TensorMapId map,
                   const RowBoxes& boxes, TensorMapDescription& description) {
  const TensorMapId viewed = viewed_by(tensors, map);
  const TensorView& tensor = tensor_of(tensors, viewed);
  if (map == TensorMapId::kK || map == TensorMapId::kV) {
    key_map(tensor, boxes.box_keys, boxes.row_bytes, description);
    description.l2_bytes = boxes.l2_bytes;
  } else {
    row_map(tensor, boxes.packed_heads, description);
  }
  description.id = buffer_of(plan, viewed);
}

std::int64_t count_query_tiles(const SpecFacts& spec, const LaunchShapes& shapes, int tile_rows,
                               int packed_heads) {
  const std::int64_t longest =
      (packed_rows(shapes.q_len, packed_heads) + tile_rows - 1) / tile_rows;
  if (!spec.ragged) return longest * shapes.batch;
  // Each sequence wastes a tile less a row at most.
  const std::int64_t all_rows =
      packed_rows(shapes.total_q, packed_heads) + std::int64_t{shapes.batch} * (tile_rows - 1);
  return std::min(longest * shapes.batch, all_rows / tile_rows);
}

Status check_query_tiles(const SpecFacts& spec, const LaunchRequest& request, int tile_rows,
                         int packed_heads, std::int64_t heads) {
  const LaunchShapes& shapes = request.shapes;
  const std::int64_t rows = packed_rows(shapes.q_len, packed_heads);
  if (rows > kMaxLength) {
    return spec::invalid(
        "q_len", "q_len is {}; with the {} heads of a group in one tile, 0 to {} is allowed",
        shapes.q_len, spec.num_q_heads / heads, packed_positions(kMaxLength, packed_heads));
  }
  const std::int64_t tiles = (rows + tile_rows - 1) / tile_rows;
  // NOTE: divided, not multiplied: the product of four such numbers overflows 64 bits.
  if (tiles * heads <= kMaxTiles / shapes.batch / request.parts.partitions) return {};
  return spec::invalid("batch", "batch {} x {} heads x {} query tiles x {} partitions exceed {}",
                       shapes.batch, heads, tiles, request.parts.partitions, kMaxTiles);
}

TileShares deal_out(bool pair_tiles, std::int32_t m_tiles, std::int32_t total_tiles, int ctas) {
  // Whole rounds of pairs that are left to the tail, beside the last that is none: as few as even
  // out the rest to 2 %, because the tail's tiles are of many heads, whose K and V share L2.
  constexpr std::int32_t kTailRounds = 1;
  TileShares shares;
  shares.ctas = std::min(total_tiles, std::max(ctas, 1));
  if (!pair_tiles) return shares;
  const std::int32_t pairs = total_tiles / m_tiles * (m_tiles - m_tiles / 2);
  shares.paired_units = std::max(pairs / shares.ctas - kTailRounds, 0) * shares.ctas;
  return shares;
}

void add_work_numbers(const SpecFacts& spec, bool split, bool kv_lens,
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
  if (spec.has_page_table) numbers.push_back(kMaxPages);
}

void set_work_numbers(const LaunchRequest& request, const QueryTiling& tiling,
                      std::int32_t total_tiles, std::int32_t paired_units, LaunchNumbers& numbers) {
  using enum LaunchNumber;
  numbers.set({{kMTiles, tiling.m_tiles},
               {kTotalTiles, total_tiles},
               {kPairedUnits, paired_units},
               {kTileGroups, tiling.tile_groups},
               {kFirstTiles, tiling.first_tiles},
               {kSecondTiles, tiling.second_tiles},
               {kTileGrowth, tiling.growth},
               {kPartitions, request.parts.partitions},
               {kUniformSplits, request.parts.uniform_splits},
               {kClusterReduced, std::int32_t{request.parts.cluster_reduced ? 1 : 0}}});
  numbers.set_strides(request.tensors);
}

}  // namespace attnjit

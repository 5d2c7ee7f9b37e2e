// SPDX-License-Identifier: Apache-2.0
// What launches of kernels whose tiles are units of 64 rows share: tensor maps, the number of query
// tiles, and the numbers that say what the work is.
#pragma once

#include <cstdint>
#include <vector>

#include "attnjit/launch.h"
#include "plan/launch/arguments.h"
#include "plan/launch/family_launch.h"
#include "plan/launch/tensors.h"
#include "spec/spec_facts.h"

namespace attnjit {

inline constexpr int kBoxRowBytes = 128;  ///< of a box's rows, as wide as the widest swizzle

/// A map of K or V: depth, key, head, batch; of pages depth, row, head, page. A box is `box_keys`
/// keys of a head, of `row_bytes` each, with the swizzle of as many. `description` is a new one.
void key_map(const TensorView& tensor, int box_keys, int row_bytes,
             TensorMapDescription& description);

/// The rows of so many positions of packed heads. Each 64 rows are whole positions, and those that
/// are left nobody's; more heads fill them up.
std::int64_t packed_rows(std::int64_t positions, int packed_heads);
/// The positions of so many rows, whole boxes of 64.
std::int64_t packed_positions(std::int64_t rows, int packed_heads);

/// A map of Q or O: depth, head, position, batch; a box is the packed heads' rows of 64.
void row_map(const TensorView& tensor, int packed_heads, TensorMapDescription& description);

/// How a launch loads rows of a tensor.
struct RowBoxes {
  int box_keys = 0;  ///< as key_map()
  int row_bytes = kBoxRowBytes;
  int l2_bytes = 0;      ///< that L2 fetches for a copy of K or V, at least
  int packed_heads = 1;  ///< as row_map()
};
/// A map of an attention kernel: K's and V's are key_map(), Q's and O's row_map().
void describe_rows(const KernelPlan& plan, const LaunchTensors& tensors, TensorMapId map,
                   const RowBoxes& boxes, TensorMapDescription& description);

/// The query tiles of `tile_rows` rows of a head (or of packed heads), all sequences together: no
/// fewer than there can be.
std::int64_t count_query_tiles(const SpecFacts& spec, const LaunchShapes& shapes, int tile_rows,
                               int packed_heads);

/// Whether such tiles of each of `heads` heads (or of groups of heads that are packed) and all
/// their parts can be counted.
Status check_query_tiles(const SpecFacts& spec, const LaunchRequest& request, int tile_rows,
                         int packed_heads, std::int64_t heads);

/// How a launch deals its query tiles out to CTAs.
struct TileShares {
  std::int32_t ctas = 0;
  std::int32_t paired_units = 0;  ///< pairs of tiles before the tail: whole rounds of the CTAs
};

/// The shares of `total_tiles` tiles, `m_tiles` per head, for `ctas` CTAs that run at once, which
/// load ahead over tile borders. pair_tiles: later tiles are longer.
TileShares deal_out(bool pair_tiles, std::int32_t m_tiles, std::int32_t total_tiles, int ctas);

/// Adds the numbers by which a kernel finds its work: of sequences that differ in length those that
/// bound them, otherwise those of the tiles. `split`: launches may split the keys;
/// `kv_lens`: sequences differ in length.
void add_work_numbers(const SpecFacts& spec, bool split, bool kv_lens,
                      std::vector<LaunchNumber>& numbers);
/// Says what they are.
void set_work_numbers(const LaunchRequest& request, const QueryTiling& tiling,
                      std::int32_t total_tiles, std::int32_t paired_units, LaunchNumbers& numbers);

}  // namespace attnjit

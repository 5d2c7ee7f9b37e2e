// SPDX-License-Identifier: Apache-2.0
// What the launches of the sm_90a kernels share: tensor maps, the number of query tiles, and the
// numbers that say what the work is.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "attnjit/launch.h"
#include "plan/launch/tensors.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit {

inline constexpr int kSm90RowBytes = 128;  ///< of a box's rows, as wide as the widest swizzle

/// A map of K or V: depth, key, head, batch; of pages depth, row, head, page. A box is `box_keys`
/// keys of a head, of `row_bytes` each, with the swizzle of as many. `description` is a new one.
void sm90_key_map(const TensorView& tensor, int box_keys, int row_bytes,
                  TensorMapDescription& description);

/// A map of Q or O: depth, head, position, batch; a box is 64 rows, of up to 2^gqa_shift heads.
/// Where those are more than are packed: depth, head of the group, position, group, batch, so that
/// a box ends with the group.
void sm90_row_map(const TensorView& tensor, int gqa_shift, int packed_heads,
                  TensorMapDescription& description);

/// The query tiles of `tile_rows` rows of a head (or of packed heads, 2^gqa_shift to a position),
/// all sequences together: no fewer than there can be.
std::int64_t sm90_query_tiles(const AttentionSpec& spec, const LaunchShapes& shapes, int tile_rows,
                              int gqa_shift);

/// Adds the numbers by which a kernel finds its work: of sequences that differ in length those that
/// bound them, otherwise those of the tiles. `split` and `kv_lens`: as in Sm90Plan.
void sm90_add_work_numbers(const AttentionSpec& spec, bool split, bool kv_lens,
                           std::vector<LaunchNumber>& numbers);

}  // namespace attnjit

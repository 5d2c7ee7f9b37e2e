// SPDX-License-Identifier: Apache-2.0
// A map of a problem's mask, made on the host by asking about each score.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/result.h"
#include "verify/problem.h"

namespace attnjit::verify {

/// A map's lists: of each row of blocks, in the order of [batch, heads, q_blocks], the blocks of
/// which a part is seen, and those that are seen whole.
struct MaskMap {
  MaskMapShape shape;
  std::vector<std::vector<std::int32_t>> part, whole;
};

/// The map with `batch` and `heads` maps: 1, or the problem's, and a divisor of its query heads. A
/// map holds what any of the heads that share it see. Errors: kUnsupported as MaskAndScoreMod::of.
Result<MaskMap> make_mask_map(const Problem& problem, std::int32_t batch, std::int32_t heads);

/// Gives a problem's launches a map to read: adds its arrays to the tensors. Places of a list past
/// its end hold -1, and so do the arrays of bits, where the shape has some: there are none.
void give_mask_map(const MaskMap& map, Problem& problem);

/// The lists that a map's arrays hold.
MaskMap mask_map_of(const MaskMapShape& shape, const Tensor& kv_num_blocks,
                    const Tensor& kv_indices, const Tensor& full_kv_num_blocks,
                    const Tensor& full_kv_indices);

}  // namespace attnjit::verify

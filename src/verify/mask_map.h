// SPDX-License-Identifier: Apache-2.0
// Maps that launches are given: of a problem's mask, made on the host by asking about each score,
// or drawn at random.
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

/// A map that says anything of any block, whatever the mask shows of it: hidden, seen in part,
/// where the mask is asked, or seen whole. It has one map or one for each sequence and key-value
/// head, and may lack the list of whole blocks.
MaskMap random_mask_map(const Problem& problem);

/// Gives a problem's launches a map to read: adds its arrays to the tensors. Places of a list past
/// its end hold -1, and so do the arrays of bits, where the shape has some: there are none.
void give_mask_map(const MaskMap& map, Problem& problem);

/// What a map says of a block.
enum class BlockSeen : std::uint8_t { kHidden, kInPart, kWhole };

/// What the map says that a problem's launches read, block by block. NOTE: of its bits nothing:
/// they are to be the mask's.
class GivenMap {
 public:
  /// @pre problem.mask_map.use is kRead
  explicit GivenMap(const Problem& problem);
  /// Of the block of a row of the call and a key.
  BlockSeen at(int b, int h, int q_row, int kv_idx) const;

 private:
  MaskMapShape shape_;
  int sharing_;    ///< query heads
  int kv_blocks_;  ///< of the longest sequence
  std::vector<BlockSeen> blocks_;
};

/// The lists that a map's arrays hold.
MaskMap mask_map_of(const MaskMapShape& shape, const Tensor& kv_num_blocks,
                    const Tensor& kv_indices, const Tensor& full_kv_num_blocks,
                    const Tensor& full_kv_indices);

}  // namespace attnjit::verify

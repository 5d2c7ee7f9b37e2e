// SPDX-License-Identifier: Apache-2.0
// Makes maps of masks, and turns them into arrays and back.
#include "verify/mask_map.h"

#include <algorithm>
#include <array>
#include <utility>

#include "verify/mask_and_score_mod.h"

namespace attnjit::verify {
namespace {

constexpr int kBlock = 128;
constexpr int kRowWords = 4;  // of a block's bits

std::int32_t blocks_of(int length) { return (length + kBlock - 1) / kBlock; }

// What the heads [first, first + count) see of a block.
struct Block {
  bool seen = false, hidden = false;
};
Block ask(const Problem& problem, const MaskAndScoreMod& functions, int b, int first, int count,
          int row, int key) {
  const int q_len = problem.q_lens[b], kv_len = problem.kv_lens[b];
  Block block;
  for (int h = first; h < first + count; ++h) {
    for (int i = row; i < std::min(row + kBlock, q_len); ++i) {
      for (int j = key; j < std::min(key + kBlock, kv_len); ++j) {
        const bool visible =
            functions.visible({b, h, h / problem.spec.group, i + kv_len - q_len, j, q_len, kv_len});
        (visible ? block.seen : block.hidden) = true;
        if (block.seen && block.hidden) return block;
      }
    }
  }
  return block;
}

Tensor array_of(std::vector<std::int64_t> shape) {
  Tensor tensor = make_tensor(Dtype::kI32, std::move(shape));
  std::fill_n(tensor.as<std::int32_t>(), tensor.elements(), -1);
  return tensor;
}

}  // namespace

Result<MaskMap> make_mask_map(const Problem& problem, std::int32_t batch, std::int32_t heads) {
  const Result<MaskAndScoreMod> functions = MaskAndScoreMod::of(problem);
  if (!functions) return functions.error();
  MaskMap map;
  map.shape = {MaskMapUse::kRead,
               batch,
               heads,
               blocks_of(problem.max_q_len),
               blocks_of(problem.max_kv_len),
               false};
  const int sharing = problem.spec.num_q_heads / heads;
  for (int b = 0; b < batch; ++b) {
    for (int h = 0; h < heads; ++h) {
      for (int row = 0; row < map.shape.q_blocks; ++row) {
        std::vector<std::int32_t>& part = map.part.emplace_back();
        std::vector<std::int32_t>& whole = map.whole.emplace_back();
        for (std::int32_t key = 0; key < blocks_of(problem.kv_lens[b]); ++key) {
          const Block block =
              ask(problem, *functions, b, h * sharing, sharing, row * kBlock, key * kBlock);
          if (block.seen) (block.hidden ? part : whole).push_back(key);
        }
      }
    }
  }
  return map;
}

void give_mask_map(const MaskMap& map, Problem& problem) {
  const MaskMapShape& shape = map.shape;
  problem.mask_map = shape;
  for (const auto& [name, lists] : {std::pair{"kv", &map.part}, std::pair{"full_kv", &map.whole}}) {
    Tensor counts = array_of({shape.batch, shape.heads, shape.q_blocks});
    Tensor indices = array_of({shape.batch, shape.heads, shape.q_blocks, shape.kv_blocks});
    for (std::size_t row = 0; row < lists->size(); ++row) {
      const std::vector<std::int32_t>& list = (*lists)[row];
      counts.as<std::int32_t>()[row] = static_cast<std::int32_t>(list.size());
      std::copy(list.begin(), list.end(),
                indices.as<std::int32_t>() + static_cast<std::ptrdiff_t>(row) * shape.kv_blocks);
    }
    problem.tensors[std::string(name) + "_num_blocks"] = std::move(counts);
    problem.tensors[std::string(name) + "_indices"] = std::move(indices);
  }
  problem.tensors.erase("kv_bits");
  problem.tensors.erase("block_bits");
  if (shape.bit_blocks == 0) return;
  problem.tensors["kv_bits"] =
      array_of({shape.batch, shape.heads, shape.q_blocks, shape.kv_blocks});
  problem.tensors["block_bits"] = array_of({shape.bit_blocks, kBlock, kRowWords});
}

MaskMap mask_map_of(const MaskMapShape& shape, const Tensor& kv_num_blocks,
                    const Tensor& kv_indices, const Tensor& full_kv_num_blocks,
                    const Tensor& full_kv_indices) {
  MaskMap map;
  map.shape = shape;
  const auto read = [&](const Tensor& counts, const Tensor& indices, auto& lists) {
    for (std::int64_t row = 0; row < counts.elements(); ++row) {
      const std::int32_t* const first = indices.as<std::int32_t>() + row * shape.kv_blocks;
      lists.emplace_back(first, first + counts.as<std::int32_t>()[row]);
    }
  };
  read(kv_num_blocks, kv_indices, map.part);
  read(full_kv_num_blocks, full_kv_indices, map.whole);
  return map;
}

}  // namespace attnjit::verify

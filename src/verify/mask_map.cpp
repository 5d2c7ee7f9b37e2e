// SPDX-License-Identifier: Apache-2.0
// Makes maps of masks, and turns them into arrays and back.
#include "verify/mask_map.h"

#include <algorithm>
#include <array>
#include <utility>

#include "verify/mask_and_score_mod.h"
#include "verify/random.h"

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
  const auto first_row = static_cast<std::int32_t>(problem.first_q_row(b));
  Block block;
  for (int h = first; h < first + count; ++h) {
    for (int i = row; i < std::min(row + kBlock, q_len); ++i) {
      for (int j = key; j < std::min(key + kBlock, kv_len); ++j) {
        const bool visible = functions.visible(
            {b, h, h / problem.spec.group, i + kv_len - q_len, j, q_len, kv_len, first_row});
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

MaskMap random_mask_map(const Problem& problem) {
  const RandomStream stream(problem.seed, "mask_map");
  std::uint64_t drawn = 0;
  const auto one_of = [&](std::uint32_t count) { return stream.bits(drawn++) % count; };
  MaskMap map;
  map.shape.use = MaskMapUse::kRead;
  map.shape.batch = one_of(2) == 0 ? 1 : problem.batch;
  map.shape.heads = one_of(2) == 0 ? 1 : problem.spec.num_kv_heads();
  map.shape.no_full = one_of(4) == 0;
  map.shape.q_blocks = blocks_of(problem.max_q_len);
  // Places that no list fills, or fewer than a row could have blocks.
  const std::int32_t blocks = blocks_of(problem.max_kv_len);
  map.shape.kv_blocks = std::max(1, blocks + static_cast<std::int32_t>(one_of(3)) - 1);
  const auto places = static_cast<std::size_t>(map.shape.kv_blocks);
  for (int row = 0; row < map.shape.batch * map.shape.heads * map.shape.q_blocks; ++row) {
    std::vector<std::int32_t>& part = map.part.emplace_back();
    std::vector<std::int32_t>& whole = map.whole.emplace_back();
    const bool falls = one_of(2) == 0;
    for (std::int32_t i = 0; i < blocks; ++i) {
      std::vector<std::int32_t>& list = one_of(2) == 0 || map.shape.no_full ? part : whole;
      if (one_of(3) == 0 || list.size() == places) continue;
      list.push_back(falls ? blocks - 1 - i : i);
    }
  }
  return map;
}

void give_mask_map(const MaskMap& map, Problem& problem) {
  const MaskMapShape& shape = map.shape;
  problem.mask_map = shape;
  for (const auto& [name, lists] : {std::pair{"kv", &map.part}, std::pair{"full_kv", &map.whole}}) {
    if (shape.no_full && lists == &map.whole) continue;
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

GivenMap::GivenMap(const Problem& problem)
    : shape_(problem.mask_map),
      sharing_(problem.spec.num_q_heads / shape_.heads),
      kv_blocks_(blocks_of(problem.max_kv_len)) {
  const std::size_t rows = std::size_t(shape_.batch) * shape_.heads * shape_.q_blocks;
  blocks_.assign(rows * static_cast<std::size_t>(kv_blocks_), BlockSeen::kHidden);
  for (const auto& [name, seen] :
       {std::pair{"kv", BlockSeen::kInPart}, std::pair{"full_kv", BlockSeen::kWhole}}) {
    if (shape_.no_full && seen == BlockSeen::kWhole) continue;
    const auto* const counts = problem.at(std::string(name) + "_num_blocks").as<std::int32_t>();
    const auto* const indices = problem.at(std::string(name) + "_indices").as<std::int32_t>();
    for (std::size_t row = 0; row < rows; ++row) {
      const int count = std::clamp(counts[row], 0, shape_.kv_blocks);
      for (int i = 0; i < count; ++i) {
        const std::int32_t block = indices[row * static_cast<std::size_t>(shape_.kv_blocks) + i];
        if (block < 0 || block >= kv_blocks_) continue;
        blocks_[row * static_cast<std::size_t>(kv_blocks_) + block] = seen;
      }
    }
  }
}

BlockSeen GivenMap::at(int b, int h, int q_row, int kv_idx) const {
  const int map_index = (shape_.batch == 1 ? 0 : b) * shape_.heads + h / sharing_;
  const std::size_t row = std::size_t(map_index) * shape_.q_blocks + q_row / kBlock;
  return blocks_[row * static_cast<std::size_t>(kv_blocks_) + kv_idx / kBlock];
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

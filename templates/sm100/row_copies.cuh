// SPDX-License-Identifier: Apache-2.0
// Copies of K and V row by row, where a page does not hold whole boxes of TMA.
#pragma once

#include "sm100/pipeline.cuh"
#include "sm100/work.cuh"

namespace attnjit::sm100 {

/// Copies a chunk of a tile of K or V: the whole load warp. A lane finds where kTileN / 32 rows of
/// the tile lie; a lane copies 16 bytes of a row of a block of columns by cp.async into the
/// place where TMA would have put them. Rows past the sequence's end and before `seen_from`, which
/// no row sees, become zeros, so that V needs no other care there.
///
/// NOTE: cp.async writes through the generic proxy. The MMA thread fences between its wait for a
/// tile and its products (sm100/mma.cuh).
template <class Config, class Mask, bool kIsK, class Arguments>
ATTNJIT_DEVICE void copy_kv_chunk(const Smem<Config>& smem, const KvTile<Config, kIsK>& kv,
                                  const Arguments& arguments, const WorkTile& work, int tile,
                                  int seen_from, int chunk) {
  using Tile = KvTile<Config, kIsK>;
  using Layout = LayoutOf<Config>;
  constexpr int kBlocks = Tile::kBlocks / Tile::kChunks;
  constexpr int kDepth = kIsK ? Config::kQkDepth : Config::kOvDepth;
  constexpr int kLaneRows = Config::kTileN / 32;
  constexpr int kUnits = Layout::kRowUnits;
  const int lane = static_cast<int>(threadIdx.x & 31u);
  const int* const table =
      arguments.page_table + static_cast<i64>(work.batch) * arguments.max_pages;
  // The pages are on their way while the stage is waited for.
  int pages[kLaneRows];
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i) {
    const int key = tile * Config::kTileN + 32 * i + lane;
    // A page past the end has no entry in the table; one past the last has no memory.
    const bool seen = Mask::kFromZero || key >= seen_from;
    const int page = key < work.kv_len && seen ? table[key / Config::kPageSize] : -1;
    pages[i] = page < arguments.num_pages ? page : -1;
  }
  kv.acquire(smem, chunk);
  const unsigned char* const tensor = kIsK ? arguments.k + work.kv_head * arguments.k_head_bytes
                                           : arguments.v + work.kv_head * arguments.v_head_bytes;
  const i64 page_bytes = kIsK ? arguments.k_page_bytes : arguments.v_page_bytes;
  const i64 row_bytes = kIsK ? arguments.k_row_bytes : arguments.v_row_bytes;
#pragma unroll
  for (int i = 0; i < kLaneRows; ++i) {
    const int key = tile * Config::kTileN + 32 * i + lane;
    const i64 offset =
        pages[i] < 0 ? -1 : pages[i] * page_bytes + key % Config::kPageSize * row_bytes;
#pragma unroll 1
    for (int first = 0; first < 32; first += 32 / kUnits) {
      const i64 row_offset = __shfl_sync(0xffffffffu, offset, first + lane / kUnits);
      const int row = 32 * i + first + lane / kUnits;
      const u32 to = Layout::swizzled(row, lane % kUnits);
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const int column =
            (chunk * kBlocks + block) * Layout::kColumns + lane % kUnits * Layout::kUnitColumns;
        const bool there = row_offset >= 0 && column < kDepth;
        copy_16_or_zeros(kv.block(chunk * kBlocks + block) + to,
                         there ? tensor + row_offset + Layout::kElementBytes * column : tensor,
                         there);
      }
    }
  }
  arrive_after_copies(kv.full(chunk));
}

}  // namespace attnjit::sm100

// SPDX-License-Identifier: Apache-2.0
// Merges the lists of a map (maps/map_rows.cuh) to one list for each work tile of a kernel whose
// roles count its KV tiles: blocks in ascending order, each once, with what is known of them.
//
// Config: kThreads, kBlockMaskBits. Arguments: a map's, and
//   const int* kv_bits; int bit_blocks   where Config::kBlockMaskBits (maps/block_bits.cuh), and
//   int* list_descriptors          of each place, and row of blocks that a work tile has, a
//                                  BlockDescriptor
//   int *list_counts, *list        of each list its length, and list_places words
//   int list_rows                  lists in all
//   int lists_per_map              of a head
//   int rows_per_list              rows of blocks that a work tile has: 1 or 2
//   int list_places                blocks of the longest sequence
#pragma once

#include "common/integers.cuh"
#include "maps/block_bits.cuh"
#include "maps/listed_block.cuh"
#include "maps/map_rows.cuh"

namespace attnjit::maps {

constexpr int kListChunk = 1024;  ///< blocks that are merged together

/// Of a chunk's blocks which are seen, and what is known of them.
template <class Config>
struct ListedChunk {
  static constexpr int kRows = 2;  ///< of blocks, of a work tile
  u32 flags[kListChunk];
  u32 descriptors[Config::kBlockMaskBits ? kRows : 1][Config::kBlockMaskBits ? kListChunk : 1];
};

/// Marks those of a row's blocks that are [first, first + kListChunk). All threads.
template <class Config>
ATTNJIT_DEVICE void mark(ListedChunk<Config>& chunk, const BlockEntries& list, u32 bits,
                         int first) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < list.count; i += Config::kThreads) {
    const u32 place = static_cast<u32>(list.entries[i]) - static_cast<u32>(first);
    if (place < kListChunk) atomicOr(chunk.flags + place, bits);
  }
}

/// Keeps what is known of those that are seen in part, of which `row_descriptors` has the
/// descriptors. NOTE: a block may be named twice.
template <class Config>
ATTNJIT_DEVICE void describe(ListedChunk<Config>& chunk, const BlockEntries& list,
                             const int* row_descriptors, int row, int first) {
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < list.count; i += Config::kThreads) {
    const u32 place = static_cast<u32>(list.entries[i]) - static_cast<u32>(first);
    if (place < kListChunk)
      atomicMin(&chunk.descriptors[row][place], static_cast<u32>(row_descriptors[i]));
  }
}

template <class Config, class Arguments>
ATTNJIT_DEVICE void list_tiles(const Arguments& arguments) {
  __shared__ ListedChunk<Config> chunk;
  const int thread = static_cast<int>(threadIdx.x);
  launch_dependents();
  // NOTE: the launch before may still read the lists that are made again.
  await_prerequisites();
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < arguments.list_rows;
       number += static_cast<int>(gridDim.x)) {
    const int map = quotient(number, arguments.lists_per_map);
    const int first_row = (number - map * arguments.lists_per_map) * arguments.rows_per_list;
    int* const list = arguments.list + static_cast<i64>(number) * arguments.list_places;
    int* descriptors = nullptr;
    if constexpr (Config::kBlockMaskBits) {
      descriptors = arguments.list_descriptors +
                    static_cast<i64>(number) * arguments.list_places * arguments.rows_per_list;
    }
    int count = 0;  // of the first warp
#pragma unroll 1
    for (int first = 0; first < arguments.list_places; first += kListChunk) {
#pragma unroll 1
      for (int i = thread; i < kListChunk; i += Config::kThreads) {
        chunk.flags[i] = 0;
        if constexpr (Config::kBlockMaskBits)
          chunk.descriptors[0][i] = chunk.descriptors[1][i] = BlockDescriptor{}.word;
      }
      __syncthreads();
#pragma unroll 1
      for (int i = 0; i < arguments.rows_per_list; ++i) {
        if (first_row + i >= arguments.map_q_blocks) continue;
        const i64 row = static_cast<i64>(map) * arguments.map_q_blocks + first_row + i;
        const int places = arguments.map_kv_blocks;
        const BlockEntries in_part =
            BlockEntries::of(arguments.kv_num_blocks, arguments.kv_indices, row, places);
        mark(chunk, in_part, ListedBlock::seen(i), first);
        if constexpr (Config::kBlockMaskBits) {
          if (arguments.bit_blocks > 0) {
            describe(chunk, in_part, arguments.kv_bits + row * places, i, first);
          }
        }
        mark(chunk,
             BlockEntries::of(arguments.full_kv_num_blocks, arguments.full_kv_indices, row, places),
             ListedBlock::seen(i) | ListedBlock::whole(i), first);
      }
      __syncthreads();
      if (thread < 32) {
        const int blocks = min(arguments.list_places - first, kListChunk);
#pragma unroll 1
        for (int base = 0; base < blocks; base += 32) {
          const u32 marked = base + thread < blocks ? chunk.flags[base + thread] : 0;
          const u32 found = __ballot_sync(0xffffffffu, marked != 0);
          if (marked != 0) {
            const int place = count + __popc(found & ((1u << thread) - 1));
            list[place] = static_cast<int>(ListedBlock::of(first + base + thread, marked).word);
            if constexpr (Config::kBlockMaskBits) {
#pragma unroll 1
              for (int i = 0; i < arguments.rows_per_list; ++i) {
                descriptors[place * arguments.rows_per_list + i] =
                    static_cast<int>(chunk.descriptors[i][base + thread]);
              }
            }
          }
          count += __popc(found);
        }
      }
      __syncthreads();
    }
    if (thread == 0) arguments.list_counts[number] = count;
  }
}

}  // namespace attnjit::maps

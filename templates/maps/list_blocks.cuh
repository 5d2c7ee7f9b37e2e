// SPDX-License-Identifier: Apache-2.0
// Makes the map of a mask (maps/map_rows.cuh): once per sequence and head that the mask tells
// apart.
//
// A CTA makes rows of blocks. Of each block its threads first ask what the expression says where
// arrays are unknown; then a warp each asks about what is left, with what the arrays' elements are
// among, first about the block, then about squares of it; and last about the scores themselves,
// until a visible and a hidden one were found.
//
// Config: kThreads, kHeads, kMapHeads (maps of a sequence; as many heads share each), kByHead (the
// mask tells heads apart), kGroup, kLengthsDiffer, and what common/sequence_lengths.cuh asks for.
// Arguments: as there, and
//   int* kv_num_blocks, ..          see maps/map_rows.cuh
//   int map_rows                    of all sequences and heads
// and where kMapHeads is 0, because the launch says what the mask is, in its place
//   int map_heads, heads_per_map
//   int heads_asked                 of those that share a map: all, or one that speaks for all
#pragma once

#include "common/integers.cuh"
#include "common/mask.cuh"
#include "common/sequence_lengths.cuh"
#include "maps/map_rows.cuh"
#include "maps/warp_tile.cuh"

namespace attnjit::maps {

/// What is known of a block, a byte each in shared memory.
enum BlockStatus : unsigned char { kHidden, kSeenInPart, kSeenWhole };

constexpr int kChunk = 1024;  ///< blocks of a row that are looked at together

ATTNJIT_DEVICE BlockStatus status_of(IntRange visible) {
  if (visible.hi == 0) return kHidden;
  return visible.lo != 0 ? kSeenWhole : kSeenInPart;
}

/// A row of blocks: queries of one sequence and of the heads that share it.
template <class Config, class Mask, class Arguments, class Params>
struct BlockRow {
  static constexpr int kWarps = Config::kThreads / 32;
  static constexpr int kSide = 32;  ///< of a square: queries, of which a lane has one, and keys
  static constexpr int kSquares = kMapBlock / kSide;

  const Arguments& arguments;
  const Params& params;
  unsigned char* status;  ///< of a chunk's blocks
  int thread, lane, warp;
  MapTile row = {};  ///< all but the keys

  /// A block's keys beside the row's queries.
  template <class Tile>
  ATTNJIT_DEVICE Tile with_keys(Tile tile, int block) const {
    const int first = block * kMapBlock;
    tile.kv_idx = {first, min(row.kv_len - first, kMapBlock) + first - 1};
    return tile;
  }

  /// What a warp finds of a block of which less is not enough: from the whole of it, from squares
  /// of it, and from the scores of those squares that are left.
  ATTNJIT_DEVICE BlockStatus look(int block) const {
    const WarpTile tile = with_keys(WarpTile{row, lane}, block);
    const BlockStatus said = status_of(Mask::tiles(tile, params));
    if (said != kSeenInPart) return said;
    bool seen = false, hidden = false;
    u32 left = 0;  // bit i: of square i more is to be found out
#pragma unroll 1
    for (int i = 0; i < kSquares * kSquares; ++i) {
      const WarpTile square = square_of(tile, i);
      if (square.q_idx.lo > square.q_idx.hi || square.kv_idx.lo > square.kv_idx.hi) continue;
      const BlockStatus found = status_of(Mask::tiles(square, params));
      seen |= found == kSeenWhole;
      hidden |= found == kHidden;
      if (found == kSeenInPart) left |= 1u << i;
      if (seen && hidden) return kSeenInPart;
    }
#pragma unroll 1
    for (; left != 0; left &= left - 1) {
      ask(square_of(tile, __ffs(static_cast<int>(left)) - 1), seen, hidden);
      if (seen && hidden) return kSeenInPart;
    }
    return seen ? kSeenWhole : kHidden;
  }

  /// A square of a block, which may end before it; nothing is left of one that is past the end.
  ATTNJIT_DEVICE static WarpTile square_of(WarpTile tile, int number) {
    const auto part = [](IntRange all, int i) {
      return IntRange{all.lo + kSide * i, min(all.lo + kSide * i + kSide - 1, all.hi)};
    };
    tile.q_idx = part(tile.q_idx, number / kSquares);
    tile.kv_idx = part(tile.kv_idx, number % kSquares);
    return tile;
  }

  /// Asks about each score of a square, a lane a query, and tells the warp what was found beside
  /// what was known.
  ATTNJIT_DEVICE void ask(const WarpTile& square, bool& seen, bool& hidden) const {
    const int q_idx = square.q_idx.lo + lane;
    bool any = false, all = true;
    if (q_idx <= square.q_idx.hi) {
#pragma unroll 1
      for (int h = square.h.lo; h <= square.h.hi; ++h) {
        Coord c{square.b, h, square.kv_h, q_idx, 0, square.q_len, square.kv_len};
        const typename Mask::RowTest test = Mask::row_test(c, params);
        if constexpr (loads_bools<Mask>()) {
          c.kv_idx = square.kv_idx.lo;
          const u32 keys = low_bits(square.kv_idx.hi - square.kv_idx.lo + 1);
          const u32 visible = visible_run<kSide, Mask>(test, c, params) & keys;
          any |= visible != 0;
          all &= visible == keys;
        } else {
#pragma unroll 4
          for (int kv_idx = square.kv_idx.lo; kv_idx <= square.kv_idx.hi; ++kv_idx) {
            c.kv_idx = kv_idx;
            const bool visible = Mask::visible(test, c, params);
            any |= visible;
            all &= visible;
          }
        }
      }
    }
    seen |= __any_sync(kAll, any) != 0;
    hidden |= __any_sync(kAll, !all) != 0;
  }

  /// Appends the blocks of a chunk that have a status to a list. A warp.
  ATTNJIT_DEVICE int append(int* list, int count, BlockStatus wanted, int first, int blocks) const {
#pragma unroll 1
    for (int base = 0; base < blocks; base += 32) {
      const int block = base + lane;
      const bool mine = block < blocks && status[block] == wanted;
      const u32 found = __ballot_sync(kAll, mine);
      const u32 before = found & ((1u << lane) - 1);
      if (mine) list[count + __popc(before)] = first + block;
      count += __popc(found);
    }
    return count;
  }

  /// Makes the row of a number. All threads.
  ATTNJIT_DEVICE void make(int number) {
    using Sequences = SequenceLengths<Config, Config::kLengthsDiffer, Arguments>;
    const Sequences sequences{arguments};
    const int of_heads = quotient(number, arguments.map_q_blocks);
    const int block_row = number - of_heads * arguments.map_q_blocks;
    const Heads heads = this->heads();
    row.b = quotient(of_heads, heads.maps);
    const int first_head = (of_heads - row.b * heads.maps) * heads.sharing;
    row.h = {first_head, first_head + heads.asked - 1};
    row.kv_h = first_head / Config::kGroup;
    row.q_len = sequences.rows(row.b);
    row.kv_len = sequences.keys(row.b, row.q_len);
    const int first_row = block_row * kMapBlock;
    const int rows = min(row.q_len - first_row, kMapBlock);
    const int first_q_idx = row.kv_len - row.q_len + first_row;
    row.q_idx = {first_q_idx, first_q_idx + rows - 1};
    const int all = rows > 0 ? ceil_div(row.kv_len, kMapBlock) : 0;
    const i64 list = static_cast<i64>(number) * arguments.map_kv_blocks;
    int count = 0;  // of the first warp: blocks that are seen in part; of the second: whole ones
#pragma unroll 1
    for (int first = 0; first < all; first += kChunk) {
      const int blocks = min(all - first, kChunk);
#pragma unroll 1
      for (int i = thread; i < blocks; i += Config::kThreads) {
        status[i] = status_of(Mask::tiles(with_keys(row, first + i), params));
      }
      __syncthreads();
#pragma unroll 1
      for (int i = warp; i < blocks; i += kWarps) {
        if (status[i] != kSeenInPart) continue;
        const BlockStatus found = look(first + i);
        __syncwarp();  // all lanes have read it
        if (lane == 0) status[i] = found;
      }
      __syncthreads();
      if (warp == 0) {
        count = append(arguments.kv_indices + list, count, kSeenInPart, first, blocks);
      } else if (warp == 1) {
        count = append(arguments.full_kv_indices + list, count, kSeenWhole, first, blocks);
      }
      __syncthreads();
    }
    if (thread == 0) arguments.kv_num_blocks[number] = count;
    if (thread == 32) arguments.full_kv_num_blocks[number] = count;
  }

 private:
  /// Maps of a sequence, heads that share each, and those of them that are asked about.
  struct Heads {
    int maps, sharing, asked;
  };
  ATTNJIT_DEVICE Heads heads() const {
    if constexpr (Config::kMapHeads > 0) {
      constexpr int kSharing = Config::kHeads / Config::kMapHeads;
      return {Config::kMapHeads, kSharing, Config::kByHead ? kSharing : 1};
    } else {
      return {arguments.map_heads, arguments.heads_per_map, arguments.heads_asked};
    }
  }
};

template <class Config, class KernelMask, class Arguments, class Params>
ATTNJIT_DEVICE void list_blocks(const Arguments& arguments, const Params& params) {
  using Mask = typename MaskOfMap<KernelMask>::Type;
  static_assert(Config::kThreads >= 64, "a warp writes each list");
  static_assert(Config::kMapHeads == 0 || Config::kHeads % Config::kMapHeads == 0,
                "maps are shared by as many heads each");
  __shared__ unsigned char status[kChunk];
  const int thread = static_cast<int>(threadIdx.x);
  BlockRow<Config, Mask, Arguments, Params> row{arguments, params,      status,
                                                thread,    thread % 32, warp_uniform(thread / 32)};
  // What comes next finds room as CTAs of this grid end: the attention.
  launch_dependents();
  // NOTE: the launch before may still read the map that is made anew.
  await_prerequisites();
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < arguments.map_rows;
       number += static_cast<int>(gridDim.x)) {
    row.make(number);
  }
}

}  // namespace attnjit::maps

// SPDX-License-Identifier: Apache-2.0
// Makes the map of a mask (maps/map_rows.cuh): once per sequence and head that the mask tells
// apart.
//
// A CTA makes rows of blocks. Of each block its threads first ask what the expression says where
// arrays are unknown; then a warp each asks about what is left, with what the arrays' elements are
// among. Of blocks that are not decided then, warps ask so about 32 rows each, and about the scores
// of those rows last: they are what the map has bits of.
//
// Config: kThreads, kHeads, kMapHeads (maps of a sequence; as many heads share each), kByHead (the
// mask tells heads apart), kGroup, kLengthsDiffer, kBlockMaskBits, and what
// common/sequence_lengths.cuh asks for. Arguments: as there, and
//   int* kv_num_blocks, ..          see maps/map_rows.cuh
//   int* kv_bits, ..                see maps/block_bits.cuh, where Config::kBlockMaskBits
//   int map_rows                    of all sequences and heads
// and where kMapHeads is 0, because the launch says what the mask is, in its place
//   int map_heads, heads_per_map
//   int heads_asked                 of those that share a map: all, or one that speaks for all
#pragma once

#include "common/integers.cuh"
#include "common/mask.cuh"
#include "common/sequence_lengths.cuh"
#include "maps/block_bits.cuh"
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

/// What is known of a chunk's blocks, in shared memory.
struct Chunk {
  unsigned char status[kChunk];
  unsigned short undecided[kChunk];  ///< blocks that are asked about score by score
  int undecided_count;
  /// Of such a block a BlockDescriptor; until all of it was asked about, of each quarter whether a
  /// visible score was found, and whether a hidden one.
  u32 descriptors[kChunk];
};

constexpr u32 kSeenBits = BlockDescriptor::seen(0) | BlockDescriptor::seen(1) |
                          BlockDescriptor::seen(2) | BlockDescriptor::seen(3);
constexpr u32 kHiddenBits = kSeenBits << 1;

/// A row of blocks: queries of one sequence and of the heads that share it.
template <class Config, class Mask, class Arguments, class Params>
struct BlockRow {
  static constexpr int kWarps = Config::kThreads / 32;
  static constexpr int kStrip = 32;  ///< rows of a block that a warp asks about, a lane's each
  static constexpr int kStrips = kMaskBlock / kStrip;

  /// A lane's row of a block: what any head sees, and what all see, as the bits of a map.
  struct RowBits {
    u32 any[kRowWords], all[kRowWords];
  };

  const Arguments& arguments;
  const Params& params;
  Chunk& chunk;
  int thread, lane, warp;
  u32 next_place, places_end;  ///< places for bits that are the CTA's, and not taken
  BlockMaskTile row = {};      ///< all but the keys

  /// A block's keys beside the row's queries.
  template <class Tile>
  ATTNJIT_DEVICE Tile with_keys(Tile tile, int block) const {
    const int first = block * kMaskBlock;
    tile.kv_idx = {first, min(row.kv_len - first, kMaskBlock) + first - 1};
    return tile;
  }

  /// Whether the bits of an undecided block are kept.
  ATTNJIT_DEVICE bool is_kept(int number) const {
    return Config::kBlockMaskBits && next_place + static_cast<u32>(number) < places_end;
  }

  /// Asks about each score of a strip, for each head. Of a block whose bits are not kept it is
  /// enough that a visible and a hidden one were found.
  ATTNJIT_DEVICE RowBits ask_scores(const WarpTile& strip, bool kept) const {
    const int rows = strip.q_idx.hi - strip.q_idx.lo + 1;
    constexpr RowBits kMixed = {{~0u, ~0u, ~0u, ~0u}, {}};
    RowBits found = {{}, {~0u, ~0u, ~0u, ~0u}};
    bool seen = false, hidden = false;
#pragma unroll 1
    for (int h = strip.h.lo; h <= strip.h.hi; ++h) {
      Coord c{strip.b, h, strip.kv_h, 0, 0, strip.q_len, strip.kv_len};
      u32 words[kRowWords] = {};
      if constexpr (Mask::kNumbers) {
        // A lane has columns: what a warp reads at once lies side by side. NOTE: 16 reads run
        // together, of four rows. Of bools, which are packed, a row each is quicker.
        const int keys = strip.kv_idx.hi - strip.kv_idx.lo + 1;
#pragma unroll 1
        for (int first = 0; first < rows; first += 4) {
#pragma unroll
          for (int i = first; i < first + 4; ++i) {
            c.q_idx = strip.q_idx.lo + i;
            const typename Mask::RowTest test = Mask::row_test(c, params);
#pragma unroll
            for (int word = 0; word < kRowWords; ++word) {
              const int column = quad_column(lane) + 2 * word;
              c.kv_idx = strip.kv_idx.lo + column;
              const bool is_score = i < rows && column < keys;
              const bool visible = Mask::visible(test, c, params) && is_score;
              const u32 bits = __ballot_sync(kAll, visible);
              if (lane == i) words[word] = bits;
              seen |= bits != 0;
              hidden |= is_score && !visible;
            }
          }
          if (!kept && seen && __any_sync(kAll, hidden)) return kMixed;
        }
      } else if constexpr (Mask::kLoads) {
        c.q_idx = strip.q_idx.lo + lane;
        const typename Mask::RowTest test = Mask::row_test(c, params);
#pragma unroll 1
        for (int first = 0; first < kMaskBlock; first += 32) {
          c.kv_idx = strip.kv_idx.lo + first;
          const u32 keys = lane < rows ? low_bits(strip.kv_idx.hi - c.kv_idx + 1) : 0;
          const u32 visible = keys != 0 ? visible_run<32, Mask>(test, c, params) & keys : 0;
#pragma unroll
          for (int word = 0; word < kRowWords; ++word) {
            words[word] |= bits_of_quad(visible, word) << first / 4;
          }
          seen |= visible != 0;
          hidden |= visible != keys;
          if (!kept && __any_sync(kAll, seen) && __any_sync(kAll, hidden)) return kMixed;
        }
      } else {
        // A lane has a column in the place of a row: what it reads of arrays lies side by side.
#pragma unroll 1
        for (int word = 0; word < kRowWords; ++word) {
          c.kv_idx = strip.kv_idx.lo + quad_column(lane) + 2 * word;
          u32 row_bits = 0;
          // NOTE: four rows at a time, whose reads run together. What is said of rows past the last
          // plays no part; a second loop for what is left of a fourth would be compile time.
#pragma unroll 1
          for (int first = 0; first < rows; first += 4) {
#pragma unroll
            for (int i = first; i < first + 4; ++i) {
              c.q_idx = strip.q_idx.lo + i;
              const bool visible = Mask::visible(Mask::row_test(c, params), c, params);
              const u32 bits = __ballot_sync(kAll, visible);
              if (lane == i) row_bits = bits;
            }
          }
          const u32 keys = keys_of(strip, word);
          seen |= (row_bits & keys) != 0;
          hidden |= (~row_bits & keys) != 0;
          // NOTE: turned by a word each time around: an index would put them into local memory.
#pragma unroll
          for (int i = 0; i + 1 < kRowWords; ++i) words[i] = words[i + 1];
          words[kRowWords - 1] = row_bits;
        }
        if (!kept && __any_sync(kAll, seen) && __any_sync(kAll, hidden)) return kMixed;
      }
#pragma unroll
      for (int word = 0; word < kRowWords; ++word) {
        found.any[word] |= words[word];
        found.all[word] &= words[word];
      }
    }
    return found;
  }

  /// The bits of a word of the lane's row for which the sequence has keys.
  ATTNJIT_DEVICE u32 keys_of(const WarpTile& strip, int word) const {
    if (lane > strip.q_idx.hi - strip.q_idx.lo) return 0;
    return low_bits(columns_before(strip.kv_idx.hi - strip.kv_idx.lo + 1 - 2 * word));
  }

  /// Whether a visible and a hidden score of an undecided block were found, and more is not to be
  /// known of it. A warp.
  ATTNJIT_DEVICE bool is_mixed(int number) const {
    if (is_kept(number)) return false;
    u32* const descriptor = chunk.descriptors + chunk.undecided[number];
    const u32 known = __shfl_sync(kAll, lane == 0 ? atomicOr(descriptor, 0u) : 0u, 0);
    return (known & kSeenBits) != 0 && (known & kHiddenBits) != 0;
  }

  /// The rows of a strip of a block.
  ATTNJIT_DEVICE WarpTile strip_of(WarpTile block, int strip) const {
    block.q_idx.lo += kStrip * strip;
    block.q_idx.hi = min(block.q_idx.hi, block.q_idx.lo + kStrip - 1);
    return block;
  }

  /// Asks what is known of the blocks of a chunk with the elements of arrays, and then of strips of
  /// those that this leaves undecided. NOTE: a warp asks at one place, which is as long as the
  /// mask's expression. All threads.
  ATTNJIT_DEVICE void ask_warps(int first, int blocks) {
#pragma unroll 1
    for (int strips = 0; strips < 2; ++strips) {
      const int count = strips != 0 ? chunk.undecided_count * kStrips : blocks;
#pragma unroll 1
      for (int i = warp; i < count; i += kWarps) {
        const int number = i / kStrips, strip = i % kStrips;
        const int block = strips != 0 ? chunk.undecided[number] : i;
        if (strips != 0 ? is_mixed(number) : chunk.status[i] != kSeenInPart) continue;
        WarpTile tile = with_keys(WarpTile{row, lane}, first + block);
        if (strips != 0) tile = strip_of(tile, strip);
        BlockStatus said = kHidden;
        if (tile.q_idx.lo <= tile.q_idx.hi) said = status_of(Mask::tiles(tile, params));
        if (strips != 0) {
          find_out(number, strip, tile, said);
        } else {
          __syncwarp();  // all lanes have read it
          if (lane == 0) chunk.status[i] = said;
        }
      }
      __syncthreads();
      if (strips != 0) return;
      if (warp == 0) list_undecided(blocks);
      __syncthreads();
    }
  }

  /// Finds out about a strip of an undecided block, and stores its bits. `said`: what is known of
  /// it with the elements of arrays. A warp.
  ATTNJIT_DEVICE void find_out(int number, int strip_number, const WarpTile& strip,
                               BlockStatus said) const {
    u32* const descriptor = chunk.descriptors + chunk.undecided[number];
    const bool kept = is_kept(number);
    u32 words[kRowWords] = {};
    if (strip.q_idx.lo <= strip.q_idx.hi) {
      RowBits found = {{}, {}};
      if (said == kSeenInPart) {
        found = ask_scores(strip, kept);
      } else if (said == kSeenWhole) {
        found = {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u, ~0u, ~0u}};
      }
      u32 seen = 0, hidden = 0;
#pragma unroll
      for (int word = 0; word < kRowWords; ++word) {
        const u32 keys = keys_of(strip, word);
        words[word] = found.any[word] & keys;
        seen |= words[word];
        hidden |= ~found.all[word] & keys;
      }
      // The lower half of each word is of the block's first 64 columns.
      u32 said_of_halves = 0;
      if ((seen & 0xffffu) != 0) said_of_halves |= BlockDescriptor::seen(0);
      if ((seen >> 16) != 0) said_of_halves |= BlockDescriptor::seen(1);
      if ((hidden & 0xffffu) != 0) said_of_halves |= BlockDescriptor::seen(0) << 1;
      if ((hidden >> 16) != 0) said_of_halves |= BlockDescriptor::seen(1) << 1;
      said_of_halves = __reduce_or_sync(kAll, said_of_halves);
      if (lane == 0)
        atomicOr(descriptor, said_of_halves << 4 * (strip_number * kStrip / kQuarterSide));
    }
    if constexpr (Config::kBlockMaskBits) {
      if (!kept) return;
      u32* const to = arguments.block_bits +
                      static_cast<i64>(next_place + static_cast<u32>(number)) * kBlockWords +
                      (kStrip * strip_number + lane) * kRowWords;
      *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
    }
  }

  /// Lists the blocks of a chunk of which more is to be found out. A warp.
  ATTNJIT_DEVICE void list_undecided(int blocks) const {
    int count = 0;
#pragma unroll 1
    for (int base = 0; base < blocks; base += 32) {
      const int block = base + lane;
      const bool mine = block < blocks && chunk.status[block] == kSeenInPart;
      const u32 found = __ballot_sync(kAll, mine);
      if (mine) {
        chunk.undecided[count + __popc(found & ((1u << lane) - 1))] =
            static_cast<unsigned short>(block);
        chunk.descriptors[block] = 0;
      }
      count += __popc(found);
    }
    if (lane == 0) chunk.undecided_count = count;
  }

  /// Says what an undecided block has come to be. A thread.
  ATTNJIT_DEVICE void decide(int number) const {
    const int block = chunk.undecided[number];
    const u32 seen = chunk.descriptors[block] & kSeenBits,
              hidden = chunk.descriptors[block] & kHiddenBits;
    chunk.status[block] = seen == 0 ? kHidden : hidden == 0 ? kSeenWhole : kSeenInPart;
    const u32 whole = (seen << 1) & ~hidden;
    chunk.descriptors[block] =
        is_kept(number)
            ? BlockDescriptor::of(next_place + static_cast<u32>(number), seen | whole).word
            : BlockDescriptor{}.word;
  }

  /// Appends the blocks of a chunk that have a status to a list, and the descriptors of those that
  /// are seen in part to theirs. A warp.
  ATTNJIT_DEVICE int append(BlockStatus wanted, i64 list, int count, int first, int blocks) const {
    int* const indices =
        (wanted == kSeenInPart ? arguments.kv_indices : arguments.full_kv_indices) + list;
#pragma unroll 1
    for (int base = 0; base < blocks; base += 32) {
      const int block = base + lane;
      const bool mine = block < blocks && chunk.status[block] == wanted;
      const u32 found = __ballot_sync(kAll, mine);
      const int place = count + __popc(found & ((1u << lane) - 1));
      if (mine) {
        indices[place] = first + block;
        if constexpr (Config::kBlockMaskBits) {
          if (wanted == kSeenInPart && arguments.bit_blocks > 0) {
            arguments.kv_bits[list + place] = static_cast<int>(chunk.descriptors[block]);
          }
        }
      }
      count += __popc(found);
    }
    return count;
  }

  /// Takes the CTA's share of the places for bits: as many as any other's. There are none where
  /// heads that see different keys share a map.
  ATTNJIT_DEVICE void take_places() {
    if constexpr (Config::kBlockMaskBits) {
      if (heads().asked > 1) return;
      const u32 share = static_cast<u32>(arguments.bit_blocks) / gridDim.x;
      next_place = blockIdx.x * share;
      places_end = next_place + share;
    }
  }

  /// Makes the row of a number. All threads.
  ATTNJIT_DEVICE void make(int number) {
    using Sequences = SequenceLengths<Config, Config::kLengthsDiffer, Arguments>;
    const Sequences sequences{arguments};
    const int batch_map = quotient(number, arguments.map_q_blocks);
    const int block_row = number - batch_map * arguments.map_q_blocks;
    const Heads heads = this->heads();
    row.b = quotient(batch_map, heads.maps);
    const int first_head = (batch_map - row.b * heads.maps) * heads.sharing;
    row.h = {first_head, first_head + heads.asked - 1};
    row.kv_h = first_head / Config::kGroup;
    row.q_len = sequences.rows(row.b);
    row.kv_len = sequences.keys(row.b, row.q_len);
    const int first_row = block_row * kMaskBlock;
    const int rows = min(row.q_len - first_row, kMaskBlock);
    const int first_q_idx = row.kv_len - row.q_len + first_row;
    row.q_idx = {first_q_idx, first_q_idx + rows - 1};
    const int all = rows > 0 ? ceil_div(row.kv_len, kMaskBlock) : 0;
    const i64 list = static_cast<i64>(number) * arguments.map_kv_blocks;
    int count = 0;  // of the first warp: blocks that are seen in part; of the second: whole ones
#pragma unroll 1
    for (int first = 0; first < all; first += kChunk) {
      const int blocks = min(all - first, kChunk);
#pragma unroll 1
      for (int i = thread; i < blocks; i += Config::kThreads) {
        chunk.status[i] = status_of(Mask::tiles(with_keys(row, first + i), params));
      }
      __syncthreads();
      ask_warps(first, blocks);
      const int undecided = chunk.undecided_count;
#pragma unroll 1
      for (int i = thread; i < undecided; i += Config::kThreads) decide(i);
      __syncthreads();
      next_place = min(next_place + static_cast<u32>(undecided), places_end);
      if (warp < 2) {
        count = append(warp == 0 ? kSeenInPart : kSeenWhole, list, count, first, blocks);
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
  using Mask = typename BlockMaskOf<KernelMask>::Type;
  static_assert(Config::kThreads >= 64, "a warp writes each list");
  static_assert(Config::kMapHeads == 0 || Config::kHeads % Config::kMapHeads == 0,
                "maps are shared by as many heads each");
  __shared__ Chunk chunk;
  const int thread = static_cast<int>(threadIdx.x);
  BlockRow<Config, Mask, Arguments, Params> row{
      arguments, params, chunk, thread, thread % 32, warp_uniform(thread / 32), 0, 0};
  row.take_places();
  // What comes next finds room as CTAs of this grid end: the attention.
  launch_dependents();
  // NOTE: the launch before may still read the map that is made again.
  await_prerequisites();
#pragma unroll 1
  for (int number = static_cast<int>(blockIdx.x); number < arguments.map_rows;
       number += static_cast<int>(gridDim.x)) {
    row.make(number);
  }
}

}  // namespace attnjit::maps

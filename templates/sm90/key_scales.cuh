// SPDX-License-Identifier: Apache-2.0
// The scales that each key of e4m3 has of its own, of K and of V, on their way to a consumer.
#pragma once

#include "common/key_scales.cuh"
#include "common/sequence_lengths.cuh"
#include "sm90/layout.cuh"
#include "sm90/softmax.cuh"

namespace attnjit::sm90 {

/// The scales of a thread's two rows, which are 8 apart: one, or one each where rows have scales of
/// their own, or are of two heads that have.
template <class Config>
constexpr int kRowScales = Config::kE4m3&& Config::kScales == kTokenScales ? 2
                           : Config::kScales == kHeadScales&& Config::kE4m3 &&
                                   (Config::kGqaShift > 3 || packs_units<Config>())
                               ? 2
                               : 1;

/// Where the scales of a tile's keys lie in shared memory, for all consumers: of two keys k_scale
/// of both and log2 of v_scale of both, and behind those of the tile 1 / v_scale of both.
template <class Config>
struct KeyScalesBuffer {
  static constexpr int kPairBytes = 16, kInversePairBytes = 8;
  static constexpr int kInverses = Config::kTileN / 2 * kPairBytes;

  ATTNJIT_DEVICE static u32 pair(u32 buffer, int key) { return buffer + key / 2 * kPairBytes; }
};

/// A warp of those that rewrite V: as a tile of V comes it brings its share of what the keys'
/// scales are. A tile's scores are made two tiles later, so that nobody waits for it.
///
/// NOTE: there is one buffer more than stages of V. So a buffer is written again only when all
/// consumers have multiplied V of the tile that it was for, and have read its scales before.
template <class Config, class Arguments, bool kThere = keys_have_scales<Config>()>
struct KeyScalesLoad {
  using Layout = LayoutOf<Config>;
  using Buffer = KeyScalesBuffer<Config>;
  static constexpr int kLanes = 32 * Config::kVRewriters;

  const Smem<Config>& smem;
  const Arguments& arguments;
  int lane;  ///< among those of all the warps
  Ring ring = {};

  ATTNJIT_DEVICE KeyScalesLoad(const Smem<Config>& memory, const Arguments& launch, int warp,
                               int warp_lane)
      : smem(memory), arguments(launch), lane(32 * warp + warp_lane) {}

  /// Of the tile whose rows of V stand in a stage.
  ATTNJIT_DEVICE void load(int raw_v_stage) {
    const ScaledTile tile = ScaledTile::load(smem.scaled_tile(raw_v_stage));
    i64 first_row = static_cast<i64>(tile.batch) * arguments.kv_len;  // of key 0 in k and v
    if constexpr (Config::kRaggedKv) {
      using OfSequence = SequenceLengths<Config, kLengthsDiffer<Config>, Arguments>;
      first_row = OfSequence{arguments}.key_begin(tile.batch);
    }
    const u32 buffer = smem.key_scales(ring.stage);
    const int tile_lane =
        rematerializes<Config>() ? static_cast<int>(opaque(static_cast<u32>(lane))) : lane;
#pragma unroll
    for (int first = 0; first < Config::kTileN; first += kLanes) {
      const int key = first + tile_lane;
      if (key >= Config::kTileN) break;
      ScalesOfKey own;
      own.template load<Config>(scales_of_key<Config>(tile.batch, tile.kv_len, first_row,
                                                      tile.first_key + key, arguments),
                                tile.kv_head, arguments);
      own.put_factors([&](float key_factor, float log2_of_value, float inverse_of_value) {
        const u32 pair = Buffer::pair(buffer, key) + key % 2 * 4;
        store_shared(pair, key_factor);
        store_shared(pair + 8, log2_of_value);
        store_shared(buffer + Buffer::kInverses + key * 4, inverse_of_value);
      });
    }
    __syncwarp();
    if (tile_lane % 32 == 0) mbarrier_arrive(smem.key_scales_full(ring.stage));
    ring.advance(Layout::kKeyScalesBuffers);
  }
};
/// Nothing, where keys have no scales of their own.
template <class Config, class Arguments>
struct KeyScalesLoad<Config, Arguments, false> {
  ATTNJIT_DEVICE KeyScalesLoad(const Smem<Config>&, const Arguments&, int, int) {}
  ATTNJIT_DEVICE void load(int) const {}
};

/// What a consumer takes of them: every thread reads what its columns need.
template <class Config, bool kThere = keys_have_scales<Config>()>
struct KeyScales {
  using Layout = LayoutOf<Config>;
  using Buffer = KeyScalesBuffer<Config>;

  static constexpr int kPairs = Config::kTileN / 8;  // of a thread's columns
  /// Loads that are on their way at a time: the registers are few.
  static constexpr int kAhead = 4;

  const Smem<Config>& smem;
  Ring ring = {};
  u32 ahead[kAhead][4];

  ATTNJIT_DEVICE explicit KeyScales(const Smem<Config>& memory) : smem(memory) {}

  /// Waits for those of a tile.
  ATTNJIT_DEVICE void await() const { smem.wait(smem.key_scales_full(ring.stage), ring.parity); }
  /// Begins to load them.
  ATTNJIT_DEVICE void begin(int lane) {
    const u32 first = at() + lane % 4 * Buffer::kPairBytes;
#pragma unroll
    for (int pair = 0; pair < kAhead; ++pair) load_pair(first, pair);
  }
  /// Goes on to the next tile without having read this one's.
  ATTNJIT_DEVICE void advance() { ring.advance(Layout::kKeyScalesBuffers); }

  /// Multiplies a thread's scores by k_scale.
  template <int kCount>
  ATTNJIT_DEVICE void multiply(float (&s)[kCount], int lane) {
    for_pairs(lane, [&](int i, const float(&of)[4]) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        s[i + 2 * half] *= of[0];
        s[i + 2 * half + 1] *= of[1];
      }
    });
  }
  /// Makes of scores the logarithms to base 2 of what V's elements, as they are stored, are to be
  /// multiplied by, relative to `origin`. `scale`: of each row, what makes exponents of 2 of them.
  template <int kCount>
  ATTNJIT_DEVICE void weigh(float (&s)[kCount], const float (&scale)[2], const float (&origin)[2],
                            int lane) {
    begin(lane);
    for_pairs(lane, [&](int i, const float(&of)[4]) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        s[i + 2 * half] = fmaf(s[i + 2 * half], scale[half], of[2]) - origin[half];
        s[i + 2 * half + 1] = fmaf(s[i + 2 * half + 1], scale[half], of[3]) - origin[half];
      }
    });
  }
  /// Both, of scores that nothing modifies; `origin` is a score here. NOTE: so two fused operations
  /// do what takes three otherwise. Scores of which an ulp is more than an exponent may be off by,
  /// as a modification may make them, would come out relative to something else in each tile.
  template <int kCount>
  ATTNJIT_DEVICE void multiply_and_weigh(float (&s)[kCount], const float (&scale)[2],
                                         const float (&origin)[2], int lane) {
    for_pairs(lane, [&](int i, const float(&of)[4]) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        s[i + 2 * half] = fmaf(fmaf(s[i + 2 * half], of[0], -origin[half]), scale[half], of[2]);
        s[i + 2 * half + 1] =
            fmaf(fmaf(s[i + 2 * half + 1], of[1], -origin[half]), scale[half], of[3]);
      }
    });
  }
  /// Adds to the rows' sums what keys have of these weights, which are v_scale times as large, and
  /// goes on to the next tile. NOTE: a lane releases V of this tile for its warp, whose reads are
  /// before that.
  template <int kCount>
  ATTNJIT_DEVICE void finish(float (&sum)[2], const float (&weights)[kCount], int lane) {
    const u32 first = at() + Buffer::kInverses + lane % 4 * Buffer::kInversePairBytes;
    constexpr int kInversesAhead = 2 * kAhead;
    u32 inverses[kInversesAhead][2];
    const auto load = [&](int pair) {
      u32(&of)[2] = inverses[pair % kInversesAhead];
      load_shared_v2(first + pair * (4 * Buffer::kInversePairBytes), of[0], of[1]);
    };
#pragma unroll
    for (int pair = 0; pair < kInversesAhead; ++pair) load(pair);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const u32(&words)[2] = inverses[pair % kInversesAhead];
      const float of[2] = {__uint_as_float(words[0]), __uint_as_float(words[1])};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sum[half] = fmaf(weights[4 * pair + 2 * half], of[0], sum[half]);
        sum[half] = fmaf(weights[4 * pair + 2 * half + 1], of[1], sum[half]);
      }
      if (pair + kInversesAhead < kPairs) load(pair + kInversesAhead);
    }
    __syncwarp();
    advance();
  }

 private:
  ATTNJIT_DEVICE u32 at() const { return smem.key_scales(ring.stage); }

  ATTNJIT_DEVICE void load_pair(u32 first, int pair) {
    load_shared_v4(first + pair * (4 * Buffer::kPairBytes), ahead[pair % kAhead]);
  }
  /// use(first of a thread's registers of S, the four numbers of its two keys there), for each two.
  template <class Use>
  ATTNJIT_DEVICE void for_pairs(int lane, const Use& use) {
    const u32 first = at() + lane % 4 * Buffer::kPairBytes;
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const u32(&words)[4] = ahead[pair % kAhead];
      const float of[4] = {__uint_as_float(words[0]), __uint_as_float(words[1]),
                           __uint_as_float(words[2]), __uint_as_float(words[3])};
      use(4 * pair, of);
      if (pair + kAhead < kPairs) load_pair(first, pair + kAhead);
    }
  }
};
/// Nothing, where keys have no scales of their own.
template <class Config>
struct KeyScales<Config, false> {
  ATTNJIT_DEVICE explicit KeyScales(const Smem<Config>&) {}
  ATTNJIT_DEVICE void await() const {}
  ATTNJIT_DEVICE void begin(int) const {}
  ATTNJIT_DEVICE void advance() const {}
};

}  // namespace attnjit::sm90

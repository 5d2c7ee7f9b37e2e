// SPDX-License-Identifier: Apache-2.0
// What the elements of Q, K and V are to be multiplied by, where K and V are e4m3 with scales, and
// Q perhaps, too.
#pragma once

#include "common/key_scales.cuh"
#include "common/scales.cuh"
#include "sm100/work.cuh"

namespace attnjit::sm100 {

template <class Config>
constexpr bool kKeysHaveScales = Config::kScales == kTokenScales;

/// What the products of a row of a head with the keys are to be multiplied by, where there are
/// scales; of keys that have their own, without these.
template <class Config, class Arguments>
ATTNJIT_DEVICE float score_scale(const WorkTile& work, int head, int position,
                                 const Arguments& arguments) {
  if constexpr (!kKeysHaveScales<Config>) {
    return attnjit::score_scale<Config>(work, head, arguments);
  }
  // Nothing is made of a row past the end.
  if (Config::kE4m3 && position >= work.q_len) return arguments.scale;
  return row_scale<Config>(work, head, position, arguments);
}

/// Where a sequence's keys begin in k and v, counted in rows, where there are no pages.
template <class Config, class Arguments>
ATTNJIT_DEVICE i64 first_key_row(const WorkTile& work, const Arguments& arguments) {
  if constexpr (Config::kPageSize > 0) return 0;
  if constexpr (Config::kRaggedKv) return work.kv_begin;
  return static_cast<i64>(work.batch) * arguments.kv_len;
}

/// The scales of a KV tile's keys on their way to a softmax warpgroup: a thread brings those of one
/// key, or of two, a tile ahead, and every thread reads all of them from shared memory. Buffers are
/// taken by turns. Before one is written again each thread has passed the barrier of the other, and
/// so has read it.
template <class Config, class Arguments, bool kThere = kKeysHaveScales<Config>>
struct KeyScales {
  static constexpr int kOwn = ceil_div(Config::kTileN, kRows);

  const Smem<Config>& smem;
  const Arguments& arguments;
  int warpgroup, row;
  int buffer = 1;
  ScalesOfKey own[kOwn];

  ATTNJIT_DEVICE KeyScales(const Smem<Config>& memory, const Arguments& launch, int its_warpgroup,
                           int its_row)
      : smem(memory), arguments(launch), warpgroup(its_warpgroup), row(its_row) {}

  /// Begins to load those of the KV tile at a place.
  ATTNJIT_DEVICE void load(const WorkTile& work, int place) {
    const int tile = tile_at<Config>(work, place, arguments);
    const i64 first_row = first_key_row<Config>(work, arguments);
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int in_tile = row + kRows * i;
      const i64 key = in_tile < Config::kTileN
                          ? scales_of_key<Config>(work.batch, work.kv_len, first_row,
                                                  tile * Config::kTileN + in_tile, arguments)
                          : -1;
      own[i].template load<Config>(key, work.kv_head, arguments);
    }
  }

  /// Hands them to the warpgroup.
  ATTNJIT_DEVICE void share() {
    buffer ^= 1;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int in_tile = row + kRows * i;
      if (in_tile >= Config::kTileN) break;
      const u32 to = static_cast<u32>(4 * in_tile);
      own[i].put_factors([&](float key_factor, float log2_of_value, float inverse_of_value) {
        store_shared(at(kKeyScale) + to, key_factor);
        store_shared(at(kLogValueScale) + to, log2_of_value);
        store_shared(at(kInverseValueScale) + to, inverse_of_value);
      });
    }
    named_barrier_sync(kKeyScalesBarrier + warpgroup, kRows);
  }

  /// Four neighbours' numbers of a kind.
  struct Four {
    FloatPair low, high;
  };
  ATTNJIT_DEVICE Four read(int which, int column) const {
    u32 a, b, c, d;
    load_shared_v4(at(which) + static_cast<u32>(4 * column), a, b, c, d);
    return {{__uint_as_float(a), __uint_as_float(b)}, {__uint_as_float(c), __uint_as_float(d)}};
  }

  /// Multiplies scores[begin..begin+31] by k_scale.
  template <int kCount>
  ATTNJIT_DEVICE void multiply(float (&scores)[kCount], int begin) const {
#pragma unroll
    for (int i = begin; i < begin + 32; i += 4) {
      const Four four = read(kKeyScale, i);
      set(scores, i, mul_pair({scores[i], scores[i + 1]}, four.low));
      set(scores, i + 2, mul_pair({scores[i + 2], scores[i + 3]}, four.high));
    }
  }
  /// Makes of scores[begin..begin+31] the logarithms to base 2 of what V's elements, as they are
  /// stored, are to be multiplied by.
  template <int kCount>
  ATTNJIT_DEVICE void weigh(float (&scores)[kCount], int begin, float log2_scale) const {
    const FloatPair scale{log2_scale, log2_scale};
#pragma unroll
    for (int i = begin; i < begin + 32; i += 4) {
      const Four four = read(kLogValueScale, i);
      set(scores, i, fma_pair({scores[i], scores[i + 1]}, scale, four.low));
      set(scores, i + 2, fma_pair({scores[i + 2], scores[i + 3]}, scale, four.high));
    }
  }
  /// The sum of a row's weights, of which these are v_scale times as large.
  ATTNJIT_DEVICE float row_sum(const float (&weights)[Config::kTileN]) const {
    FloatPair sums[4] = {};
#pragma unroll
    for (int i = 0; i < Config::kTileN; i += 8) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = i + 4 * half;
        const Four four = read(kInverseValueScale, column);
        sums[2 * half] = fma_pair({weights[column], weights[column + 1]}, four.low, sums[2 * half]);
        sums[2 * half + 1] =
            fma_pair({weights[column + 2], weights[column + 3]}, four.high, sums[2 * half + 1]);
      }
    }
    const FloatPair all = add_pair(add_pair(sums[0], sums[1]), add_pair(sums[2], sums[3]));
    return all.x + all.y;
  }

 private:
  ATTNJIT_DEVICE u32 at(int which) const { return smem.key_scales(warpgroup, buffer, which); }
  template <int kCount>
  ATTNJIT_DEVICE static void set(float (&scores)[kCount], int i, FloatPair pair) {
    scores[i] = pair.x;
    scores[i + 1] = pair.y;
  }
};
/// Nothing, where keys have no scales of their own.
template <class Config, class Arguments>
struct KeyScales<Config, Arguments, false> {
  ATTNJIT_DEVICE KeyScales(const Smem<Config>&, const Arguments&, int, int) {}
};

}  // namespace attnjit::sm100

// SPDX-License-Identifier: Apache-2.0
// The scales that each key of e4m3 has of its own, of K and of V, on their way to a consumer.
#pragma once

#include "common/key_scales.cuh"
#include "common/sequence_lengths.cuh"
#include "sm90/scales.cuh"

namespace attnjit::sm90 {

/// A thread of the consumer brings those of one key, or of two, a tile ahead, and every thread
/// reads from shared memory what its columns need. Buffers are taken by turns. Before one is
/// written again each thread has passed the barrier of the other, and so has read it.
template <class Config, class Arguments, bool kThere = keys_have_scales<Config>()>
struct KeyScales {
  using Layout = LayoutOf<Config>;
  static constexpr int kOwn = ceil_div(Config::kTileN, kWarpgroupThreads);
  static constexpr int kColumns = Config::kTileN / 4;  // a thread's of a row
  /// Of two keys: k_scale of both, log2 of v_scale of both; and behind those of the tile 1 /
  /// v_scale of both.
  static constexpr int kPairBytes = 16, kInversePairBytes = 8;
  static constexpr int kInverses = Config::kTileN / 2 * kPairBytes;
  static_assert(Config::kKeyScalesOffset % 16 == 0 &&
                    Config::kKeyScalesOffset >=
                        Config::kVOffset + Config::kVStages * Layout::kVBytes &&
                    Config::kWorkOffset >=
                        Config::kKeyScalesOffset + Config::kConsumers * Layout::kKeyScalesBytes,
                "scales of keys lie behind V, and before the announcements");

  const Arguments& arguments;
  u32 buffers;
  int consumer;
  int thread;  ///< of the consumer's
  int buffer = 1;
  int batch = 0, kv_head = 0, kv_len = 0;
  i64 first_row = 0;  ///< of key 0 in k and v, where there are no pages
  ScalesOfKey own[kOwn];

  ATTNJIT_DEVICE KeyScales(const Smem<Config>& smem, const Arguments& launch, int of_consumer)
      : arguments(launch),
        buffers(smem.key_scales(of_consumer)),
        consumer(of_consumer),
        thread(static_cast<int>(threadIdx.x) % kWarpgroupThreads) {}

  /// Goes on to the next work tile.
  ATTNJIT_DEVICE void begin(const WorkTile& work) {
    batch = work.batch;
    kv_head = work.head / Config::kGroup;
    kv_len = lengths_of<Config>(work, arguments).kv;
    if constexpr (Config::kRaggedKv) {
      using OfSequence = SequenceLengths<Config, kLengthsDiffer<Config>, Arguments>;
      first_row = OfSequence{arguments}.key_begin(batch);
    } else {
      first_row = static_cast<i64>(batch) * arguments.kv_len;
    }
  }

  /// Begins to load those of a KV tile.
  ATTNJIT_DEVICE void load(int tile) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int in_tile = thread + kWarpgroupThreads * i;
      const i64 row = in_tile < Config::kTileN
                          ? row_of_key<Config>(batch, kv_len, first_row,
                                               tile * Config::kTileN + in_tile, arguments)
                          : -1;
      own[i].template load<Config>(row, kv_head, arguments);
    }
  }

  /// Hands them to the consumer.
  ATTNJIT_DEVICE void share() {
    buffer ^= 1;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int in_tile = thread + kWarpgroupThreads * i;
      if (in_tile >= Config::kTileN) break;
      const u32 pair = at() + in_tile / 2 * kPairBytes + in_tile % 2 * 4;
      own[i].hand_over([&](float of_key, float log2_of_value, float inverse_of_value) {
        store_shared(pair, of_key);
        store_shared(pair + 8, log2_of_value);
        store_shared(at() + kInverses + in_tile * 4, inverse_of_value);
      });
    }
    named_barrier_sync(kKeyScalesBarrier + consumer, kWarpgroupThreads);
  }

  /// Multiplies a thread's scores by k_scale.
  template <int kCount>
  ATTNJIT_DEVICE void multiply(float (&s)[kCount], int lane) const {
    for_pairs(lane, [&](int i, const float(&of)[4]) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        s[i + 2 * half] *= of[0];
        s[i + 2 * half + 1] *= of[1];
      }
    });
  }
  /// Makes of scores the logarithms to base 2 of what V's elements, as they are stored, are to be
  /// multiplied by. `scale`: of each row, what makes exponents of 2 of them.
  template <int kCount>
  ATTNJIT_DEVICE void weigh(float (&s)[kCount], const float (&scale)[2], int lane) const {
    for_pairs(lane, [&](int i, const float(&of)[4]) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        s[i + 2 * half] = fmaf(s[i + 2 * half], scale[half], of[2]);
        s[i + 2 * half + 1] = fmaf(s[i + 2 * half + 1], scale[half], of[3]);
      }
    });
  }
  /// Both.
  template <int kCount>
  ATTNJIT_DEVICE void multiply_and_weigh(float (&s)[kCount], const float (&scale)[2],
                                         int lane) const {
    for_pairs(lane, [&](int i, const float(&of)[4]) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        s[i + 2 * half] = fmaf(s[i + 2 * half] * of[0], scale[half], of[2]);
        s[i + 2 * half + 1] = fmaf(s[i + 2 * half + 1] * of[1], scale[half], of[3]);
      }
    });
  }
  /// Adds to the rows' sums what keys have of these weights, which are v_scale times as large.
  template <int kCount>
  ATTNJIT_DEVICE void add_sums(float (&sum)[2], const float (&weights)[kCount], int lane) const {
    const u32 first = at() + kInverses + lane % 4 * kInversePairBytes;
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      u32 a, b;
      load_shared_v2(first + i * kInversePairBytes, a, b);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sum[half] = fmaf(weights[i + 2 * half], __uint_as_float(a), sum[half]);
        sum[half] = fmaf(weights[i + 2 * half + 1], __uint_as_float(b), sum[half]);
      }
    }
  }

 private:
  ATTNJIT_DEVICE u32 at() const { return buffers + buffer * (Layout::kKeyScalesBytes / 2); }

  /// use(first of a thread's registers of S, the four numbers of its two keys there), for each two.
  template <class Use>
  ATTNJIT_DEVICE void for_pairs(int lane, const Use& use) const {
    const u32 first = at() + lane % 4 * kPairBytes;
#pragma unroll
    for (int i = 0; i < Config::kTileN / 2; i += 4) {
      u32 words[4];
      load_shared_v4(first + i * kPairBytes, words[0], words[1], words[2], words[3]);
      const float of[4] = {__uint_as_float(words[0]), __uint_as_float(words[1]),
                           __uint_as_float(words[2]), __uint_as_float(words[3])};
      use(i, of);
    }
  }
};
/// Nothing, where keys have no scales of their own.
template <class Config, class Arguments>
struct KeyScales<Config, Arguments, false> {
  ATTNJIT_DEVICE KeyScales(const Smem<Config>&, const Arguments&, int) {}
};

}  // namespace attnjit::sm90

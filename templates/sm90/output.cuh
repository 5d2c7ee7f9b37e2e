// SPDX-License-Identifier: Apache-2.0
// A consumer's O on its way to global memory: staged in shared memory, stored from there by TMA; of
// f32 straight from its registers.
#pragma once

#include "sm90/named_registers.cuh"

namespace attnjit::sm90 {

/// Releases Q's memory to the producer, once the store of the O staged there has read it; called
/// by each warp. NOTE: bulk groups belong to their thread: elect_one() chooses the one that stored,
/// and finds no groups in the other warps.
template <class Config>
ATTNJIT_DEVICE void release_q(const Smem<Config>& smem, int stage, int consumer, int lane) {
  if (elect_one()) bulk_wait_group_read();
  __syncwarp();
  if (lane == 0) mbarrier_arrive(smem.q_empty(stage, consumer));
}

/// Copies staged rows of O to global memory: `blocks` blocks from block `first_block` on, of the
/// rows that are the sequence's own. A converged warpgroup; `thread` is of it.
template <class Config, class Arguments>
ATTNJIT_DEVICE void copy_rows(u32 staged, int block_bytes, int first_block, int blocks,
                              const Arguments& arguments, const WorkTile& work, int first_row,
                              int thread) {
  constexpr int kChunks = kBlockRowBytes / 16;  // of a block's row
#pragma unroll 1
  for (int i = thread; i < kConsumerRows * kChunks; i += kWarpgroupThreads) {
    const int row = first_row + i / kChunks;
    if (!is_row_of<Config>(row, work.q_len)) continue;
    const int head = work.head + head_of_row<Config>(row);
    const i64 position = work.q_begin + position_of<Config>(row);
    unsigned char* const output =
        arguments.o + position * arguments.o_row_bytes + head * arguments.o_head_bytes;
    const u32 source =
        staged + i / kChunks * kBlockRowBytes + ((i % kChunks ^ i / kChunks % kChunks) << 4);
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      const int column = (first_block + block) * LayoutOf<Config>::kOutputBlockColumns +
                         i % kChunks * (16 / Config::kOutputBytes);
      if (column >= Config::kOvDepth) break;
      u32 a, b, c, d;
      load_shared_v4(source + block * block_bytes, a, b, c, d);
      store_global_v4(output + Config::kOutputBytes * column, a, b, c, d);
    }
  }
}

/// Writes a thread's two rows of O as f32, times `factor`, each where it is `wanted`. A quad writes
/// 32 bytes of a row at a time, which are a sector.
template <class Config>
ATTNJIT_DEVICE void store_floats(const float (&factor)[2], float* const (&output)[2],
                                 const bool (&wanted)[2], int lane) {
  static_assert(Config::kOvDepth % 8 == 0, "a quad writes eight columns");
  float* const own[2] = {output[0] + 2 * (lane & 3), output[1] + 2 * (lane & 3)};
  OutputOf<Config>::template read<0, LayoutOf<Config>::kPvColumns / 2>(
      [&](int first, const float(&o)[8]) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int i = 2 * half; i < 8; i += 4) {
            const int column = 8 * ((first + i) >> 2);
            if (wanted[half] && column < Config::kOvDepth) {
              store_global_v2(own[half] + column, o[i] * factor[half], o[i + 1] * factor[half]);
            }
          }
        }
      });
}

/// Writes a thread's two rows of the O of a partition, which is f32, times `factor`. `seen`:
/// whether the row saw a key; otherwise nobody reads it.
template <class Config, class Arguments>
ATTNJIT_DEVICE void store_partial(const float (&factor)[2], const Arguments& arguments,
                                  const WorkTile& work, int first_row, const bool (&seen)[2],
                                  int lane) {
  float* output[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + 8 * half;
    output[half] = arguments.partial_o + part_row<Config>(work, row - work.first_row,
                                                          work.head + head_of_row<Config>(row),
                                                          position_of<Config>(row), arguments) *
                                             Config::kOvDepth;
  }
  store_floats<Config>(factor, output, seen, lane);
}

/// Writes a thread's two rows of an O of f32, times `factor`, where they are `real`.
template <class Config, class Arguments>
ATTNJIT_DEVICE void store_direct(const float (&factor)[2], const Arguments& arguments,
                                 const WorkTile& work, int first_row, const bool (&real)[2],
                                 int lane) {
  float* output[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + 8 * half;
    const i64 position = work.q_begin + position_of<Config>(row);
    const int head = work.head + head_of_row<Config>(row);
    unsigned char* at =
        arguments.o + position * arguments.o_row_bytes + head * arguments.o_head_bytes;
    if constexpr (!Config::kRagged) at += work.batch * arguments.o_batch_bytes;
    output[half] = reinterpret_cast<float*>(at);
  }
  store_floats<Config>(factor, output, real, lane);
}

/// Writes a thread's part of O, times `factor`, to shared memory, as the TMA store will undo it:
/// the blocks from kFirst on that lie there at a time.
///
/// NOTE: the 128-byte swizzle; rows begin at a multiple of its period.
template <class Config, int kFirst, int kBlocks, int kBlockBytes>
ATTNJIT_DEVICE void stage_output(const float (&factor)[2], u32 rows, int warp, int lane) {
  using Layout = LayoutOf<Config>;
  constexpr int kBlockRegisters = Layout::kOutputBlockColumns / 2;
  constexpr int kBlocksEnd = kBlockRegisters * (kFirst + kBlocks);
  constexpr int kEnd = kBlocksEnd < Layout::kPvColumns / 2 ? kBlocksEnd : Layout::kPvColumns / 2;
  // Eight registers are 16 columns of a warp's 16 rows.
  if constexpr (Config::kOutputBytes == 1) {
    OutputOf<Config>::template read<kBlockRegisters * kFirst, kEnd>([&](int first, float(&o)[8]) {
#pragma unroll
      for (int i = 0; i < 8; ++i) o[i] *= factor[i >> 1 & 1];
      const u32 block = rows + (first / kBlockRegisters - kFirst) * kBlockBytes;
      const int matrix = first / 8;
      // A thread has two neighbours of each of its two rows in every eight columns, and a chunk of
      // 16 bytes has 16.
#pragma unroll
      for (int group = 0; group < 2; ++group) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = warp * kWarpRows + 8 * half + (lane >> 2);
          const u32 address = block + row * kBlockRowBytes + (((matrix & 7) ^ (row & 7)) << 4) +
                              group * 8 + (lane & 3) * 2;
          const int pair = 4 * group + 2 * half;
          store_shared_half(address, pack_e4m3_pair(o[pair], o[pair + 1]));
        }
      }
    });
  } else {
    const int row = warp * kWarpRows + (lane & 15);
    const u32 own = rows + row * kBlockRowBytes + (((lane >> 4) ^ (row & 7)) << 4);
    OutputOf<Config>::template pack<Config::kOutputBf16, kBlockRegisters * kFirst, kEnd>(
        factor, [&](int first, const u32(&pairs)[4]) {
          const int chunk = first / 4;  // of 8 columns, 16 bytes
          stmatrix_x4((own ^ (chunk & 7) << 4) + (first / kBlockRegisters - kFirst) * kBlockBytes,
                      pairs[0], pairs[1], pairs[2], pairs[3]);
        });
  }
}

/// Begins to write the warpgroup's O, times `factor`, by TMA stores that clip at q_len. It is
/// staged in the warpgroup's own rows of Q's memory, whole, and release_q() must follow; or, where
/// Config::kOBlocks is set, in memory of its own, that many blocks at a time, from kFirst on.
template <class Config, class Arguments, int kFirst = 0>
ATTNJIT_DEVICE void store_output(const float (&factor)[2], const Smem<Config>& smem,
                                 const Arguments& arguments, const WorkTile& work, int stage,
                                 int consumer, int warp, int lane) {
  using Layout = LayoutOf<Config>;
  constexpr bool kSeparateO = Config::kOBlocks > 0;
  constexpr int kBlocks = kSeparateO ? Config::kOBlocks : Layout::kOutputBlocks;
  constexpr int kBlockBytes = kSeparateO ? Layout::kConsumerBlockBytes : Layout::kQBlockBytes;
  constexpr int kEnd =
      kFirst + kBlocks < Layout::kOutputBlocks ? kFirst + kBlocks : Layout::kOutputBlocks;
  const u32 rows = kSeparateO ? smem.o(consumer) : smem.q(stage, consumer);
  const int first_row = work.first_row + consumer * kConsumerRows;
  // A TMA store would go on into the next sequence's rows.
  const bool by_threads = Config::kRagged && !are_rows_of<Config>(first_row, work.q_len);
  if constexpr (kSeparateO) {
    if (warp == 0 && elect_one()) bulk_wait_group_read();
    named_barrier_sync(kEpilogueBarrier + consumer, kWarpgroupThreads);
  }
  stage_output<Config, kFirst, kBlocks, kBlockBytes>(factor, rows, warp, lane);
  fence_proxy_async_shared();
  named_barrier_sync(kEpilogueBarrier + consumer, kWarpgroupThreads);
  if constexpr (Config::kRagged) {
    if (by_threads) {
      copy_rows<Config>(rows, kBlockBytes, kFirst, kEnd - kFirst, arguments, work, first_row,
                        warp * 32 + lane);
    }
  }
  if (warp == 0 && elect_one() && first_row >= 0 && !by_threads) {
#pragma unroll
    for (int block = kFirst; block < kEnd; ++block) {
      const u32 source = rows + (block - kFirst) * kBlockBytes;
      const int position = work.q_begin + first_position<Config>(first_row);
      tma_store_4d(arguments.o_map, source, block * Layout::kOutputBlockColumns, work.head,
                   position, q_batch<Config>(work));
    }
    bulk_commit_group();
  }
  if constexpr (kEnd < Layout::kOutputBlocks) {
    store_output<Config, Arguments, kEnd>(factor, smem, arguments, work, stage, consumer, warp,
                                          lane);
  }
}

}  // namespace attnjit::sm90

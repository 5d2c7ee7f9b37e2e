// SPDX-License-Identifier: Apache-2.0
// How a consumer's rows end: by themselves, or as one with those of another CTA, which has the same
// queries and other keys. Two CTAs of a cluster then reduce what they have in shared memory, which
// leaves the merge half of the parts, or none.
#pragma once

#include "sm90_mla/output.cuh"

namespace attnjit::sm90_mla {

/// The end of a thread's two rows. Where two CTAs reduce, each ends every second block of columns,
/// for all rows. A thread sends its numbers of the other blocks to the thread of the same number in
/// the other CTA, which has the same rows and columns. They land where K was.
///
/// NOTE: a row's bits do not depend on who is first: a block's sum is that of its own CTA's keys
/// and the other's, in this order.
template <class Config>
struct Ending {
  using Layout = LayoutOf<Config>;
  using O = Output<Config>;
  static constexpr bool kMayReduce = may_reduce_cluster<Config>();
  /// 16 bytes of each thread lie beside those of the next.
  static constexpr int kVectorBytes = 16 * kWarpgroupThreads;
  static constexpr int kBlockVectors = 8;
  static_assert(!kMayReduce ||
                    (Config::kCluster == 1 && !Config::kSeparateV &&
                     (1 + ceil_div(Layout::kOvBlocks, 2) * kBlockVectors) * kVectorBytes <=
                         Config::kSlots * Layout::kSlotBytes),
                "what the other CTA sends fits where K was");

  RowMaxSum rows[2];  ///< of all keys of the part
  int rank;           ///< of the warpgroup
  bool cluster_reduced = false;
  int cta = 0;  ///< of the two

  /// Whether this CTA ends a block of columns; or, of block 0, the rows.
  ATTNJIT_DEVICE bool ends(int block) const {
    return !kMayReduce || !cluster_reduced || (block & 1) == cta;
  }

  /// Reduces the rows with those of the other CTA. All threads of both CTAs' consumers. NOTE: a
  /// CTA's one work tile: of a second one K would be on its way to that memory.
  ///
  /// NOTE: by barriers in shared memory and their fences. With the cluster's barrier, which
  /// releases and acquires all memory, each of two steps was a fence of the whole GPU.
  ATTNJIT_DEVICE void reduce(const Smem<Config>& smem, int thread) {
    cluster_reduced = true;
    cta = cluster_rank();
    const int peer = cta ^ 1;
    // NOTE: opaque: the compiler would keep the vectors' addresses over all work tiles.
    const u32 received = opaque(smem.kv(0, 0) + 16 * thread);
    const u32 sent = shared_address_in(received, peer);
    const u32 its_full = shared_address_in(smem.reduced_full(), peer);
    if ((thread & 31) == 0) {
      fence_release_shared();
      mbarrier_arrive_relaxed_at(smem.peer_done(), peer);
    }
    if (rank == 0 && thread == 0) {
      const int blocks = (Layout::kOvBlocks + 1 - cta) >> 1;
      mbarrier_arrive_expect_tx(smem.reduced_full(), (1 + blocks * kBlockVectors) * kVectorBytes);
    }
    // No warp of the other CTA multiplies with K any more.
    mbarrier_wait_relaxed_cluster(smem.peer_done(), 0);
    fence_acquire_shared();
    if (rank == 0) {
      store_async_v4(sent, its_full, __float_as_uint(rows[0].sum), __float_as_uint(rows[0].maximum),
                     __float_as_uint(rows[1].sum), __float_as_uint(rows[1].maximum));
    }
    O::read([&](int i) { return is_own(i) && !ends(block_of(i)); },
            [&](int i, int first, const float(&o)[8]) {
#pragma unroll
              for (int j = 0; j < 8; j += 4) {
                store_async_v4(sent + vector(block_of(i), (first + j) / 4), its_full,
                               __float_as_uint(o[j]), __float_as_uint(o[j + 1]),
                               __float_as_uint(o[j + 2]), __float_as_uint(o[j + 3]));
              }
            });
    smem.wait(smem.reduced_full(), 0);
    u32 words[4];
    load_shared_v4(received, words);
    float cta_scale[2], peer_scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const RowMaxSum its = {__uint_as_float(words[2 * half]),
                             __uint_as_float(words[2 * half + 1])};
      rows[half] = merge(rows[half], its, cta_scale[half], peer_scale[half]);
    }
    O::scale(cta_scale);
    O::add(peer_scale, [&](int i, int first, float(&its)[8]) {
      const int block = block_of(i);
      if (!is_ended(i)) return false;
#pragma unroll
      for (int j = 0; j < 8; j += 4) {
        load_shared_v4(received + vector(block, (first + j) / 4), words);
#pragma unroll
        for (int k = 0; k < 4; ++k) its[j + k] = __uint_as_float(words[k]);
      }
      return true;
    });
  }

  /// The warpgroup's first column, from which the following count.
  ATTNJIT_DEVICE int first_column() const { return kBlockColumns * Layout::first_block(rank); }
  /// Gives what this CTA's warpgroup ends, times `factor`: 32 columns at a time as four pairs of
  /// each row, to use(first column, pairs of the first row, of the second).
  template <class Use>
  ATTNJIT_DEVICE void pack(const float (&factor)[2], const Use& use) const {
    u32 own[2][4];
    O::pack(
        factor, [&](int i) { return is_ended(i); },
        [&](int i, int first, const u32(&pairs)[4]) {
          const bool later = first / 8 % 2 == 1;  // of 32 columns, the last 16
#pragma unroll
          for (int row = 0; row < 2; ++row) {
            own[row][later ? 2 : 0] = pairs[row];
            own[row][later ? 3 : 1] = pairs[2 + row];
          }
          if (later) use(kBlockColumns * i + 2 * (first - 8), own);
        });
  }
  /// And 16 columns at a time as numbers of both rows, to use(first column, numbers).
  template <class Use>
  ATTNJIT_DEVICE void read(const float (&factor)[2], const Use& use) const {
    O::read_scaled(
        factor, [&](int i) { return is_ended(i); },
        [&](int i, int first, const float(&o)[8]) { use(kBlockColumns * i + 2 * first, o); });
  }

 private:
  /// The number in the row of the i-th of the warpgroup's blocks.
  ATTNJIT_DEVICE int block_of(int i) const { return Layout::first_block(rank) + i; }
  /// Whether this CTA's warpgroup ends it.
  ATTNJIT_DEVICE bool is_ended(int i) const { return is_own(i) && ends(block_of(i)); }
  /// Whether the i-th of the warpgroup's blocks is not the other's to end.
  ATTNJIT_DEVICE bool is_own(int i) const { return !(Layout::kSharedBlock && rank == 1 && i == 0); }
  /// Where a vector of a block lies behind the thread's first, which is what is said of rows.
  ATTNJIT_DEVICE static int vector(int block, int j) {
    return (1 + (block >> 1) * kBlockVectors + j) * kVectorBytes;
  }
};

}  // namespace attnjit::sm90_mla

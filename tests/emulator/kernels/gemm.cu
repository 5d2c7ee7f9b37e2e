// C = A B^T in f32 on sm_100a: TMA, a pipeline of stages, tcgen05.mma from shared memory, one CTA or a pair.
//
// A [M][K], B [N][K], C [M][N], packed. A tile of C is 128 x 128 a CTA; a pair shares one product of 256 x 128, each
// CTA holding half of A's rows and half of B's. Warp 0 loads, warp 1 multiplies, warps 2 to 5 store.
#include "tensor_core.cuh"

namespace {

constexpr u32 kStages = 3;
constexpr u32 kRowBytes = 128;  // of K, a stage: one row of the swizzle's pattern
constexpr u32 kRows = 128, kColumns = 128;

template <int kGroup>
struct Layout {
  static constexpr u32 kABytes = kRows * kRowBytes;
  static constexpr u32 kBRows = kColumns / kGroup;
  static constexpr u32 kBBytes = kBRows * kRowBytes;
  static constexpr u32 kStageBytes = kABytes + kBBytes;
};

template <int kGroup, bool kFp8>
__device__ void gemm(const TensorMap* map_a, const TensorMap* map_b, float* c, int n_total, int k_total) {
  using L = Layout<kGroup>;
  extern __shared__ __align__(1024) unsigned char tiles[];
  __shared__ alignas(8) u64 full[kStages], empty[kStages], done;
  __shared__ u32 tensor_base;
  const u32 warp = warp_index(), lane = threadIdx.x % 32;
  const u32 rank = kGroup == 2 ? cluster_rank() : 0;
  const u32 base = shared_address(tiles);
  const u32 elements = kFp8 ? kRowBytes : kRowBytes / 2;
  const u32 stages = (k_total + elements - 1) / elements;

  if (warp == 0 && elected()) {
    for (u32 s = 0; s < kStages; ++s) {
      barrier_init(&full[s], 1);
      barrier_init(&empty[s], 1);
    }
    barrier_init(&done, 1);
    barrier_fence();
  }
  if constexpr (kGroup == 2) cluster_sync();  // the peer is there when the pair allocates
  if (warp == 1) tensor_alloc<kGroup>(&tensor_base, kColumns);
  fence_before();
  __syncthreads();
  if constexpr (kGroup == 2) cluster_sync();
  fence_after();
  const u32 accumulator = tensor_base;

  if (warp == 0) {
    if (elected()) {
      for (u32 i = 0; i < stages; ++i) {
        const u32 s = i % kStages;
        barrier_wait(&empty[s], (i / kStages + 1) % 2);
        const u32 to = base + s * L::kStageBytes;
        const int k = static_cast<int>(i * elements);
        const int row = static_cast<int>(blockIdx.x * kRows);
        if constexpr (kGroup == 1) {
          barrier_expect(&full[s], L::kStageBytes);
          load_2d(to, map_a, k, row, shared_address(&full[s]));
          load_2d(to + L::kABytes, map_b, k, blockIdx.y * kColumns, shared_address(&full[s]));
        } else {
          // Both CTAs' loads arrive at the even CTA's barrier.
          const u32 leader = shared_address(&full[s]) & 0xFEFFFFFF;
          if (rank == 0) barrier_expect(&full[s], 2 * L::kStageBytes);
          load_2d_pair(to, map_a, k, row, leader);
          load_2d_pair(to + L::kABytes, map_b, k, blockIdx.y * kColumns + rank * L::kBRows, leader);
        }
      }
      // The barriers stay until the last commits have arrived.
      for (u32 i = stages; i < stages + kStages; ++i) barrier_wait(&empty[i % kStages], (i / kStages + 1) % 2);
    }
  } else if (warp == 1) {
    if (rank == 0 && elected()) {
      const u32 type = kFp8 ? 0 : 1;
      const u32 descriptor =
          1u << 4 | type << 7 | type << 10 | kColumns / 8 << 17 | kGroup * kRows / 16 << 24;
      for (u32 i = 0; i < stages; ++i) {
        const u32 s = i % kStages;
        barrier_wait(&full[s], i / kStages % 2);
        fence_after();
        const u32 a = base + s * L::kStageBytes, b = a + L::kABytes;
        for (u32 k = 0; k < kRowBytes / 32; ++k) {
          multiply<kGroup, kFp8>(accumulator, matrix_descriptor(a + 32 * k, 16, 1024),
                                 matrix_descriptor(b + 32 * k, 16, 1024), descriptor, i + k != 0);
        }
        if constexpr (kGroup == 1) {
          commit(&empty[s]);
        } else {
          commit_pair(&empty[s]);
        }
      }
      if constexpr (kGroup == 1) {
        commit(&done);
      } else {
        commit_pair(&done);
      }
    }
  } else {
    barrier_wait(&done, 0);
    fence_after();
    const u32 quarter = warp % 4;
    float* row = c + static_cast<u64>(blockIdx.x * kRows + quarter * 32 + lane) * n_total + blockIdx.y * kColumns;
    for (u32 n = 0; n < kColumns; n += 32) {
      u32 v[32];
      tensor_load(accumulator + (quarter << 21) + n, v);
      wait_load();
      for (u32 i = 0; i < 32; i += 4)
        *reinterpret_cast<uint4*>(row + n + i) = make_uint4(v[i], v[i + 1], v[i + 2], v[i + 3]);
    }
    fence_before();
  }
  __syncthreads();
  if constexpr (kGroup == 2) cluster_sync();
  fence_after();
  if (warp == 1) tensor_free<kGroup>(accumulator, kColumns);
}

}  // namespace

#define GEMM(NAME, GROUP, FP8)                                                                                 \
  extern "C" __global__ __launch_bounds__(192) void NAME(const __grid_constant__ TensorMap a,                  \
                                                         const __grid_constant__ TensorMap b, float* c, int n, \
                                                         int k) {                                              \
    gemm<GROUP, FP8>(&a, &b, c, n, k);                                                                         \
  }
GEMM(gemm_bf16, 1, false)
GEMM(gemm_e4m3, 1, true)
GEMM(gemm_bf16_pair, 2, false)
GEMM(gemm_e4m3_pair, 2, true)

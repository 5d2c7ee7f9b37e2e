// Attention of one tile of 128 queries on sm_100a, warp-specialised: TMA loads, S = Q K^T into tensor memory, softmax
// by one thread a row, P in tensor memory, O += P V from it, correction of O by another warpgroup.
//
// q, k, v bf16 [heads][rows][128]; o f32 [heads][q_rows][128]; lse f32 [heads][q_rows], natural. S and P have two
// buffers each and columns of their own, so that the ISA's order of operations suffices: no product writes what an
// earlier one of another accumulator may still read before a commit says that it does not.
#include "tensor_core.cuh"

namespace {

constexpr u32 kRows = 128, kKeys = 128, kDepth = 128;
constexpr u32 kTile = 128 * kDepth * 2;  // bytes of a Q, K or V tile
constexpr u32 kBox = kTile / 2;          // 64 columns
constexpr u32 kColumnS = 0, kColumnO = 256, kColumnP = 384;
// f32 D, bf16 A and B, M 128, N 128; V is MN-major.
constexpr u32 kProductS = 1u << 4 | 1u << 7 | 1u << 10 | 128u / 8 << 17 | 128u / 16 << 24;
constexpr u32 kProductO = kProductS | 1u << 16;

struct Barriers {
  u64 q_full, k_full[2], k_free[2], v_full[2], v_free[2];
  u64 s_full[2], s_free[2], p_full[2], p_free[2];
  u64 o_full, o_ready, scale_full, scale_free;
};

__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline u32 pack(float low, float high) {
  u32 v;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
  return v;
}

__device__ void load_tile(u32 to, const TensorMap* map, int row, int head, u64* barrier) {
  barrier_expect(barrier, kTile);
  load_3d(to, map, 0, row, head, barrier);
  load_3d(to + kBox, map, 64, row, head, barrier);
}

__device__ void load_role(const TensorMap* q, const TensorMap* k, const TensorMap* v, u32 tiles, Barriers* b,
                          int blocks) {
  const int head = static_cast<int>(blockIdx.y);
  load_tile(tiles, q, static_cast<int>(blockIdx.x * kRows), head, &b->q_full);
  for (int j = 0; j < blocks; ++j) {
    const u32 s = j % 2, parity = (j / 2 + 1) % 2;
    barrier_wait(&b->k_free[s], parity);
    load_tile(tiles + kTile * (1 + s), k, j * static_cast<int>(kKeys), head, &b->k_full[s]);
    barrier_wait(&b->v_free[s], parity);
    load_tile(tiles + kTile * (3 + s), v, j * static_cast<int>(kKeys), head, &b->v_full[s]);
  }
  // The barriers stay until the last commits have arrived.
  for (int j = blocks; j < blocks + 2; ++j) {
    barrier_wait(&b->k_free[j % 2], (j / 2 + 1) % 2);
    barrier_wait(&b->v_free[j % 2], (j / 2 + 1) % 2);
  }
}

__device__ void multiply_role(u32 tensor, u32 tiles, Barriers* b, int blocks) {
  const auto scores = [&](int j) {
    const u32 s = j % 2;
    barrier_wait(&b->k_full[s], j / 2 % 2);
    barrier_wait(&b->s_free[s], (j / 2 + 1) % 2);
    fence_after();
    for (u32 i = 0; i < kDepth / 16; ++i) {
      const u32 offset = i / 4 * kBox + i % 4 * 32;
      multiply<1, false>(tensor + kColumnS + 128 * s, matrix_descriptor(tiles + offset, 16, 1024),
                         matrix_descriptor(tiles + kTile * (1 + s) + offset, 16, 1024), kProductS, i != 0);
    }
    commit(&b->k_free[s]);
    commit(&b->s_full[s]);
  };
  barrier_wait(&b->q_full, 0);
  scores(0);
  for (int j = 0; j < blocks; ++j) {
    if (j + 1 < blocks) scores(j + 1);
    const u32 s = j % 2;
    barrier_wait(&b->v_full[s], j / 2 % 2);
    barrier_wait(&b->p_full[s], j / 2 % 2);
    if (j > 0) barrier_wait(&b->o_ready, (j - 1) % 2);
    fence_after();
    for (u32 i = 0; i < kKeys / 16; ++i) {
      multiply_tensor(tensor + kColumnO, tensor + kColumnP + 64 * s + 8 * i,
                      matrix_descriptor(tiles + kTile * (3 + s) + 2048 * i, kBox, 1024), kProductO, j + i != 0);
    }
    commit(&b->v_free[s]);
    commit(&b->p_free[s]);
    commit(&b->o_full);
  }
}

__device__ void softmax_role(u32 tensor, Barriers* b, float* scale, float* sums, int blocks, int keys,
                             float scale_log2) {
  const u32 quarter = warp_index() % 4, row = threadIdx.x % 128;
  const u32 lanes = quarter << 21;
  float largest = -1e30f, sum = 0;
  for (int j = 0; j < blocks; ++j) {
    const u32 s = j % 2;
    barrier_wait(&b->s_full[s], j / 2 % 2);
    fence_after();
    u32 v[4][32];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) tensor_load(tensor + lanes + kColumnS + 128 * s + 32 * i, v[i]);
    wait_load();
    fence_before();
    barrier_arrive(&b->s_free[s]);
    float m = largest;
#pragma unroll
    for (u32 i = 0; i < 128; ++i) {
      float x = __uint_as_float(v[i / 32][i % 32]) * scale_log2;
      if (j * static_cast<int>(kKeys) + static_cast<int>(i) >= keys) x = -1e30f;
      v[i / 32][i % 32] = __float_as_uint(x);
      m = fmaxf(m, x);
    }
    const float factor = exp2_fast(largest - m);
    largest = m;
    if (j > 0) {
      barrier_wait(&b->scale_free, j % 2);
      scale[row] = factor;
      barrier_arrive(&b->scale_full);
    }
    sum *= factor;
    u32 p[2][32];
#pragma unroll
    for (u32 i = 0; i < 64; ++i) {
      const float x = exp2_fast(__uint_as_float(v[i / 16][2 * i % 32]) - m);
      const float y = exp2_fast(__uint_as_float(v[i / 16][2 * i % 32 + 1]) - m);
      sum += x + y;
      p[i / 32][i % 32] = pack(x, y);
    }
    barrier_wait(&b->p_free[s], (j / 2 + 1) % 2);
    fence_after();
    tensor_store(tensor + lanes + kColumnP + 64 * s, p[0]);
    tensor_store(tensor + lanes + kColumnP + 64 * s + 32, p[1]);
    wait_store();
    fence_before();
    barrier_arrive(&b->p_full[s]);
  }
  barrier_wait(&b->scale_free, blocks % 2);
  scale[row] = largest;
  sums[row] = sum;
  barrier_arrive(&b->scale_full);
  for (int j = blocks; j < blocks + 2; ++j) barrier_wait(&b->p_free[j % 2], (j / 2 + 1) % 2);
}

__device__ void correction_role(u32 tensor, Barriers* b, const float* scale, const float* sums, int blocks,
                                float* o, float* lse, int q_rows) {
  const u32 quarter = warp_index() % 4, row = threadIdx.x % 128;
  const u32 address = tensor + (quarter << 21) + kColumnO;
  for (int j = 1; j < blocks; ++j) {
    barrier_wait(&b->scale_full, (j - 1) % 2);
    const float factor = scale[row];
    barrier_arrive(&b->scale_free);
    barrier_wait(&b->o_full, (j - 1) % 2);
    fence_after();
    // A warp whose rows all keep their maximum has nothing to correct.
    if (__any_sync(~0u, factor != 1.0f)) {
      for (u32 n = 0; n < kDepth; n += 32) {
        u32 v[32];
        tensor_load(address + n, v);
        wait_load();
#pragma unroll
        for (u32 i = 0; i < 32; ++i) v[i] = __float_as_uint(__uint_as_float(v[i]) * factor);
        tensor_store(address + n, v);
      }
      wait_store();
    }
    fence_before();
    barrier_arrive(&b->o_ready);
  }
  barrier_wait(&b->scale_full, (blocks - 1) % 2);
  const float largest = scale[row], sum = sums[row];
  barrier_wait(&b->o_full, (blocks - 1) % 2);
  fence_after();
  const u32 q = blockIdx.x * kRows + row;
  const u64 at = static_cast<u64>(blockIdx.y) * q_rows + q;
  const float inverse = 1.0f / sum;
  for (u32 n = 0; n < kDepth; n += 32) {
    u32 v[32];
    tensor_load(address + n, v);
    wait_load();
    if (q < static_cast<u32>(q_rows)) {
#pragma unroll
      for (u32 i = 0; i < 32; i += 4) {
        *reinterpret_cast<float4*>(o + at * kDepth + n + i) =
            make_float4(__uint_as_float(v[i]) * inverse, __uint_as_float(v[i + 1]) * inverse,
                        __uint_as_float(v[i + 2]) * inverse, __uint_as_float(v[i + 3]) * inverse);
      }
    }
  }
  if (q < static_cast<u32>(q_rows)) lse[at] = (largest + log2_fast(sum)) * 0.69314718f;
  fence_before();
}

}  // namespace

extern "C" __global__ __launch_bounds__(384, 1) void attention_tile(const __grid_constant__ TensorMap q,
                                                                    const __grid_constant__ TensorMap k,
                                                                    const __grid_constant__ TensorMap v, float* o,
                                                                    float* lse, int q_rows, int keys, float scale_log2) {
  extern __shared__ __align__(1024) unsigned char memory[];
  __shared__ Barriers b;
  __shared__ u32 tensor_base;
  __shared__ float scale[128], sums[128];
  const u32 warp = warp_index();
  const int blocks = (keys + static_cast<int>(kKeys) - 1) / static_cast<int>(kKeys);
  if (warp == 0 && elected()) {
    barrier_init(&b.q_full, 1);
    for (u32 s = 0; s < 2; ++s) {
      barrier_init(&b.k_full[s], 1);
      barrier_init(&b.k_free[s], 1);
      barrier_init(&b.v_full[s], 1);
      barrier_init(&b.v_free[s], 1);
      barrier_init(&b.s_full[s], 1);
      barrier_init(&b.s_free[s], 128);
      barrier_init(&b.p_full[s], 128);
      barrier_init(&b.p_free[s], 1);
    }
    barrier_init(&b.o_full, 1);
    barrier_init(&b.o_ready, 128);
    barrier_init(&b.scale_full, 128);
    barrier_init(&b.scale_free, 128);
    barrier_fence();
  }
  if (warp == 1) tensor_alloc<1>(&tensor_base, 512);
  fence_before();
  __syncthreads();
  fence_after();
  const u32 tensor = tensor_base, tiles = shared_address(memory);
  if (warp < 4) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 80;");
    if (warp == 0 && elected()) load_role(&q, &k, &v, tiles, &b, blocks);
    if (warp == 1 && elected()) multiply_role(tensor, tiles, &b, blocks);
  } else if (warp < 8) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    softmax_role(tensor, &b, scale, sums, blocks, keys, scale_log2);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 192;");
    correction_role(tensor, &b, scale, sums, blocks, o, lse, q_rows);
  }
  __syncthreads();
  fence_after();
  if (warp == 1) tensor_free<1>(tensor, 512);
}

// Small but complete tcgen05 kernels for the emulator's tests: GEMMs with one CTA and with a pair, bf16 and e4m3, and a
// warp-specialised attention tile. tcgen05.sm_100a.ptx is what nvcc 13.0 makes of it (build.sh).
typedef unsigned u32;
typedef unsigned long long u64;
typedef unsigned short u16;
struct alignas(64) TMap { char b[128]; };
#define DI __device__ __forceinline__

DI u32 s2u(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DI bool elect() { u32 p; asm volatile("{ .reg .pred P; elect.sync _|P, -1; selp.u32 %0, 1, 0, P; }" : "=r"(p)); return p; }
DI void mbar_init(u32 a, u32 c) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(a), "r"(c) : "memory"); }
DI void mbar_expect(u32 a, u32 b) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(a), "r"(b) : "memory"); }
DI void mbar_arrive(u32 a) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(a) : "memory"); }
DI void mbar_wait(u32 a, u32 ph) {
  asm volatile("{\n.reg .pred P1;\nLAB_WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n@P1 bra DONE;\nbra LAB_WAIT;\nDONE:\n}" ::"r"(a), "r"(ph) : "memory");
}
DI void tma2(u32 d, const TMap* m, u32 b, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4}], [%2];" ::"r"(d), "l"(m), "r"(b), "r"(c0), "r"(c1) : "memory");
}
DI void tma2_pair(u32 d, const TMap* m, u32 b, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4}], [%2];" ::"r"(d), "l"(m), "r"(b & 0xFEFFFFFF), "r"(c0), "r"(c1) : "memory");
}
DI u64 desc(u32 a, u32 lbo, u32 sbo) { return (u64)((a & 0x3FFFF) >> 4) | ((u64)lbo << 16) | ((u64)sbo << 32) | (1ull << 46) | (2ull << 61); }
DI void fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
DI void fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
DI void wait_ld() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
DI void wait_st() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }
template <int G> DI void alloc(u32 dst, u32 n) {
  if (G == 1) asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(dst), "r"(n) : "memory");
  else asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(dst), "r"(n) : "memory");
}
template <int G> DI void dealloc(u32 t, u32 n) {
  if (G == 1) asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\ntcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(t), "r"(n));
  else asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;\ntcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(t), "r"(n));
}
template <int G, bool F8> DI void mma(u32 d, u64 a, u64 b, u32 id, u32 acc) {
  if (G == 1 && !F8) asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }" ::"r"(d), "l"(a), "l"(b), "r"(id), "r"(acc));
  if (G == 1 && F8) asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f8f6f4 [%0], %1, %2, %3, p; }" ::"r"(d), "l"(a), "l"(b), "r"(id), "r"(acc));
  if (G == 2 && !F8) asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p; }" ::"r"(d), "l"(a), "l"(b), "r"(id), "r"(acc));
  if (G == 2 && F8) asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::2.kind::f8f6f4 [%0], %1, %2, %3, p; }" ::"r"(d), "l"(a), "l"(b), "r"(id), "r"(acc));
}
DI void mma_ts(u32 d, u32 a, u64 b, u32 id, u32 acc) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p; }" ::"r"(d), "r"(a), "l"(b), "r"(id), "r"(acc));
}
template <int G> DI void commit(u32 bar) {
  if (G == 1) asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(bar) : "memory");
  else asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(bar), "h"((u16)3) : "memory");
}
DI void ld32(float* v, u32 t) {
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, [%32];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]), "=f"(v[6]), "=f"(v[7]), "=f"(v[8]), "=f"(v[9]), "=f"(v[10]), "=f"(v[11]), "=f"(v[12]), "=f"(v[13]),
                 "=f"(v[14]), "=f"(v[15]), "=f"(v[16]), "=f"(v[17]), "=f"(v[18]), "=f"(v[19]), "=f"(v[20]), "=f"(v[21]), "=f"(v[22]), "=f"(v[23]), "=f"(v[24]), "=f"(v[25]), "=f"(v[26]),
                 "=f"(v[27]), "=f"(v[28]), "=f"(v[29]), "=f"(v[30]), "=f"(v[31])
               : "r"(t));
}
DI void st32(u32 t, const float* v) {
  asm volatile("tcgen05.st.sync.aligned.32x32b.x32.b32 [%32], {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31};" ::"f"(v[0]), "f"(v[1]),
               "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]), "f"(v[8]), "f"(v[9]), "f"(v[10]), "f"(v[11]), "f"(v[12]), "f"(v[13]), "f"(v[14]), "f"(v[15]), "f"(v[16]), "f"(v[17]),
               "f"(v[18]), "f"(v[19]), "f"(v[20]), "f"(v[21]), "f"(v[22]), "f"(v[23]), "f"(v[24]), "f"(v[25]), "f"(v[26]), "f"(v[27]), "f"(v[28]), "f"(v[29]), "f"(v[30]), "f"(v[31]), "r"(t));
}

// C[M, N] f32 = A[M, K] B[N, K]^T. One tile of 128 (a pair: 256) by 128 a CTA (pair); K in steps of 128 bytes.
// Warp 0 loads, warp 1 multiplies, warps 4 to 7 store.
template <int G, bool F8> DI void gemm(const TMap* ma, const TMap* mb, float* c, int n, int k) {
  constexpr int ST = 2, ES = F8 ? 1 : 2, KT = 128 / ES, BROWS = 128 / G, ABYTES = 128 * 128, BBYTES = BROWS * 128;
  extern __shared__ __align__(1024) unsigned char sm[];
  __shared__ __align__(8) u64 bars[2 * ST + 1];
  __shared__ u32 base;
  const u32 bar = s2u(bars), sa = s2u(sm), sb = sa + ST * ABYTES;
  const int warp = threadIdx.x >> 5;
  u32 rank = 0;
  if (G == 2) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const int m0 = blockIdx.x * 128, n0 = blockIdx.y * 128;
  if (threadIdx.x == 0) {
    for (int i = 0; i < ST; i++) { mbar_init(bar + 8 * i, G); mbar_init(bar + 8 * (ST + i), 1); }
    mbar_init(bar + 8 * 2 * ST, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (G == 2) asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (warp == 2) { alloc<G>(s2u(&base), 128); fence_before(); }
  __syncthreads();
  if (G == 2) asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  fence_after();
  const u32 tm = base;
  const int steps = k / KT;
  if (warp == 0) {
    if (elect()) {
      for (int s = 0; s < steps; s++) {
        const int st = s % ST;
        mbar_wait(bar + 8 * (ST + st), ((s / ST) & 1) ^ 1);
        // The leader's barrier counts what lands in both CTAs.
        if (G == 1 || rank == 0) mbar_expect(bar + 8 * st, G * (ABYTES + BBYTES));
        else asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, 0; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r]; }" ::"r"(bar + 8 * st) : "memory");
        if (G == 1) { tma2(sa + st * ABYTES, ma, bar + 8 * st, s * KT, m0); tma2(sb + st * BBYTES, mb, bar + 8 * st, s * KT, n0); }
        else { tma2_pair(sa + st * ABYTES, ma, bar + 8 * st, s * KT, m0); tma2_pair(sb + st * BBYTES, mb, bar + 8 * st, s * KT, n0 + (int)rank * BROWS); }
      }
      // The barriers stay until the last commits have arrived.
      for (int s = steps; s < steps + ST; s++) mbar_wait(bar + 8 * (ST + s % ST), ((s / ST) & 1) ^ 1);
    }
  } else if (warp == 1 && rank == 0) {
    if (elect()) {
      const u32 id = (1u << 4) | ((F8 ? 0u : 1u) << 7) | ((F8 ? 0u : 1u) << 10) | ((128u >> 3) << 17) | (((u32)(128 * G) >> 4) << 24);
      for (int s = 0; s < steps; s++) {
        const int st = s % ST;
        mbar_wait(bar + 8 * st, (s / ST) & 1);
        fence_after();
        for (int j = 0; j < 4; j++) mma<G, F8>(tm, desc(sa + st * ABYTES + j * 32, 1, 64), desc(sb + st * BBYTES + j * 32, 1, 64), id, s > 0 || j > 0);
        commit<G>(bar + 8 * (ST + st));
      }
      commit<G>(bar + 8 * 2 * ST);
    }
  } else if (warp >= 4) {
    mbar_wait(bar + 8 * 2 * ST, 0);
    fence_after();
    const int q = warp & 3, row = m0 + q * 32 + (threadIdx.x & 31);
    for (int j = 0; j < 128; j += 32) {
      float v[32];
      ld32(v, tm + ((u32)q << 21) + j);
      wait_ld();
      for (int i = 0; i < 32; i++) c[(long)row * n + n0 + j + i] = v[i];
    }
    fence_before();
  }
  __syncthreads();
  if (G == 2) asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  fence_after();
  if (warp == 2) dealloc<G>(tm, 128);
}
extern "C" __global__ void __launch_bounds__(256, 1) gemm1_bf16(const __grid_constant__ TMap a, const __grid_constant__ TMap b, float* c, int n, int k) { gemm<1, false>(&a, &b, c, n, k); }
extern "C" __global__ void __launch_bounds__(256, 1) gemm1_e4m3(const __grid_constant__ TMap a, const __grid_constant__ TMap b, float* c, int n, int k) { gemm<1, true>(&a, &b, c, n, k); }
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(256, 1) gemm2_bf16(const __grid_constant__ TMap a, const __grid_constant__ TMap b, float* c, int n, int k) { gemm<2, false>(&a, &b, c, n, k); }
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(256, 1) gemm2_e4m3(const __grid_constant__ TMap a, const __grid_constant__ TMap b, float* c, int n, int k) { gemm<2, true>(&a, &b, c, n, k); }

// One head, one tile of 128 queries: O[128, 64] = softmax(scale Q K^T) V, bf16, keys in tiles of 128.
// Warp 0: TMA. Warp 1: MMA. Warps 4 to 7: softmax, correction and the epilogue; a thread owns a row.
// Tensor memory: S in columns 0-127 (P, bf16, in 0-63 after it is read), O in columns 128-191.
extern "C" __global__ void __launch_bounds__(256, 1) attention(const __grid_constant__ TMap mq, const __grid_constant__ TMap mk, const __grid_constant__ TMap mv, float* o, float* lse, int kv, float scale) {
  constexpr u32 TILE = 128 * 128;  // 128 rows of 64 bf16
  extern __shared__ __align__(1024) unsigned char sm[];
  __shared__ __align__(8) u64 bars[8];
  __shared__ u32 base;
  enum { Q, KF, VF, KE, VE, SF, PF, OF };
  const u32 bar = s2u(bars), sq = s2u(sm), sk = sq + TILE, sv = sk + TILE;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 8; i++) mbar_init(bar + 8 * i, i == PF ? 128 : 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (warp == 2) { alloc<1>(s2u(&base), 256); fence_before(); }
  __syncthreads();
  fence_after();
  const u32 tm = base, ts = tm, tp = tm, to = tm + 128;
  const int tiles = kv / 128;
  if (warp == 0) {
    if (elect()) {
      mbar_expect(bar + 8 * Q, TILE);
      tma2(sq, &mq, bar + 8 * Q, 0, blockIdx.x * 128);
      for (int j = 0; j < tiles; j++) {
        mbar_wait(bar + 8 * KE, (j & 1) ^ 1);
        mbar_expect(bar + 8 * KF, TILE);
        tma2(sk, &mk, bar + 8 * KF, 0, j * 128);
        mbar_wait(bar + 8 * VE, (j & 1) ^ 1);
        mbar_expect(bar + 8 * VF, TILE);
        tma2(sv, &mv, bar + 8 * VF, 0, j * 128);
      }
      mbar_wait(bar + 8 * KE, (tiles & 1) ^ 1);
      mbar_wait(bar + 8 * VE, (tiles & 1) ^ 1);
    }
  } else if (warp == 1) {
    if (elect()) {
      const u32 id_s = (1u << 4) | (1u << 7) | (1u << 10) | ((128u >> 3) << 17) | ((128u >> 4) << 24);
      const u32 id_o = (1u << 4) | (1u << 7) | (1u << 10) | (1u << 16) | ((64u >> 3) << 17) | ((128u >> 4) << 24);
      mbar_wait(bar + 8 * Q, 0);
      for (int j = 0; j < tiles; j++) {
        mbar_wait(bar + 8 * KF, j & 1);
        fence_after();
        for (int s = 0; s < 4; s++) mma<1, false>(ts, desc(sq + s * 32, 1, 64), desc(sk + s * 32, 1, 64), id_s, s > 0);
        commit<1>(bar + 8 * KE);
        commit<1>(bar + 8 * SF);
        mbar_wait(bar + 8 * PF, j & 1);
        mbar_wait(bar + 8 * VF, j & 1);
        fence_after();
        for (int s = 0; s < 8; s++) mma_ts(to, tp + s * 8, desc(sv + s * 2048, 1, 64), id_o, j > 0 || s > 0);
        commit<1>(bar + 8 * VE);
        commit<1>(bar + 8 * OF);
        // The next S overwrites P: its own order is not the ISA's promise.
        mbar_wait(bar + 8 * OF, j & 1);
        fence_after();
      }
    }
  } else if (warp >= 4) {
    const u32 q = (u32)(warp & 3) << 21;
    float m = -1e30f, l = 0;
    for (int j = 0; j < tiles; j++) {
      mbar_wait(bar + 8 * SF, j & 1);
      fence_after();
      float s[128];
      for (int c = 0; c < 4; c++) ld32(s + 32 * c, ts + q + 32 * c);
      wait_ld();
      float mm = m;
      for (int i = 0; i < 128; i++) mm = fmaxf(mm, s[i] * scale);
      const float alpha = exp2f((m - mm) * 1.44269504f);
      m = mm;
      float sum = 0;
      float p[64];
      for (int i = 0; i < 64; i++) {
        const float a = exp2f((s[2 * i] * scale - m) * 1.44269504f), b = exp2f((s[2 * i + 1] * scale - m) * 1.44269504f);
        sum += a + b;
        u32 packed;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(b), "f"(a));
        p[i] = __uint_as_float(packed);
      }
      l = l * alpha + sum;
      if (j > 0) {
        mbar_wait(bar + 8 * OF, (j - 1) & 1);
        fence_after();
        for (int c = 0; c < 2; c++) {
          float v[32];
          ld32(v, to + q + 32 * c);
          wait_ld();
          for (int i = 0; i < 32; i++) v[i] *= alpha;
          st32(to + q + 32 * c, v);
        }
      }
      st32(tp + q, p);
      st32(tp + q + 32, p + 32);
      wait_st();
      fence_before();
      mbar_arrive(bar + 8 * PF);
    }
    mbar_wait(bar + 8 * OF, (tiles - 1) & 1);
    fence_after();
    const int row = blockIdx.x * 128 + (warp & 3) * 32 + lane;
    for (int c = 0; c < 2; c++) {
      float v[32];
      ld32(v, to + q + 32 * c);
      wait_ld();
      for (int i = 0; i < 32; i++) o[(long)row * 64 + 32 * c + i] = v[i] / l;
    }
    lse[row] = m + __logf(l);
    fence_before();
  }
  __syncthreads();
  fence_after();
  if (warp == 2) dealloc<1>(tm, 256);
}

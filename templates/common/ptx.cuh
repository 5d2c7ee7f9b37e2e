// SPDX-License-Identifier: Apache-2.0
// Instruction wrappers: one PTX instruction each, named after it, with the section of the PTX
// ISA 9.0 that has it.
//
// Shared-memory addresses are 32-bit (the shared window); no CUDA or standard header is needed.
#pragma once

#define ATTNJIT_DEVICE __device__ __forceinline__
/// Of a function that a kernel holds once, however often it calls it.
#define ATTNJIT_FUNCTION __device__ __noinline__

namespace attnjit {

using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

static_assert(sizeof(u32) == 4 && sizeof(u64) == 8 && sizeof(i64) == 8,
              "the kernels assume 32-bit int and 64-bit long long");

/// An encoded tensor map (PTX ISA 5.5.8), passed as a __grid_constant__ argument.
struct alignas(64) TensorMap {
  unsigned char opaque[128];
};

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

ATTNJIT_DEVICE float infinity() { return __int_as_float(0x7f800000); }
ATTNJIT_DEVICE float largest_float() { return __int_as_float(0x7f7fffff); }

// ---- Addresses and identity -------------------------------------------------------------------

/// cvta.to.shared (9.7.9): a shared-memory pointer as an address in the shared window.
ATTNJIT_DEVICE u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

/// The thread's number within the CTA, read again: what is computed from it is computed after here,
/// as from an opaque() number. NOTE: that would have to be kept until then, in a register that
/// loops lack; with it they are one or two instructions longer.
ATTNJIT_DEVICE int thread_read_again() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

/// elect.sync (9.7.13.14): true in one lane of a converged warp.
ATTNJIT_DEVICE bool elect_one() {
  u32 chosen;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(chosen));
  return chosen != 0;
}

/// %laneid (10.3), read where it says so: the compiler does not take it from an earlier place.
ATTNJIT_DEVICE int lane_id() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/// shfl.sync.idx (9.7.9): lane 0's value; tells the compiler that it is the same in the warp.
ATTNJIT_DEVICE int warp_uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

/// shfl.sync.bfly (9.7.9): the sum of a warp's values, in every lane.
ATTNJIT_DEVICE float warp_sum(float x) {
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
  return x;
}

/// shfl.sync.up: the sum of a lane's value and those of the lanes before.
ATTNJIT_DEVICE int warp_sum_through(int x, int lane) {
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const int below = __shfl_up_sync(0xffffffffu, x, static_cast<u32>(lanes));
    if (lane >= lanes) x += below;
  }
  return x;
}

/// The value, unknown to the compiler: what is computed from it is computed after here, and not
/// kept in registers from before. Emits nothing.
ATTNJIT_DEVICE u32 opaque(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}

/// trap (9.7.20): ends the grid with an error. NOTE: nothing comes after it, and ptxas does not
/// know that of the instruction: without the exit its callers' registers stay alive.
[[noreturn]] ATTNJIT_DEVICE void trap() {
  asm volatile("trap;\n\texit;");
  __builtin_unreachable();
}

/// griddepcontrol.launch_dependents (9.7.13.13): the next grid may begin, where the launch allows
/// that, once every CTA has said so or ended.
ATTNJIT_DEVICE void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;"); }

/// griddepcontrol.wait (9.7.13.13): the grid before has ended, and what it wrote is seen.
ATTNJIT_DEVICE void await_prerequisites() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// %cluster_ctarank (10): a CTA's rank in its cluster.
ATTNJIT_DEVICE int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// barrier.cluster (9.7.13.4): waits for all threads of the cluster that have not ended, and sees
/// what they wrote.
ATTNJIT_DEVICE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
}

/// barrier.cluster (9.7.13.4), its halves: arrives, in no order with what the thread did in memory
/// but for a fence of its own; and waits. NOTE: an arrival that releases is a fence of the whole
/// GPU.
ATTNJIT_DEVICE void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
ATTNJIT_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

/// nanosleep (9.7.20): for 0 to 2 `nanoseconds`.
ATTNJIT_DEVICE void nanosleep(u32 nanoseconds) {
  asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds));
}

/// %globaltimer (10): nanoseconds.
ATTNJIT_DEVICE u64 global_timer() {
  u64 time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time)::"memory");
  return time;
}

// ---- mbarrier (9.7.13.15) ---------------------------------------------------------------------

/// mbarrier.init (9.7.13.15).
ATTNJIT_DEVICE void mbarrier_init(u32 barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// fence.mbarrier_init (9.7.13.4): makes initialised barriers visible to the async proxy.
ATTNJIT_DEVICE void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// mbarrier.arrive (9.7.13.15).
ATTNJIT_DEVICE void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// mapa (9.7.9.24): where shared memory of another CTA of the cluster has what lies at `address`
/// here.
ATTNJIT_DEVICE u32 shared_address_in(u32 address, int cta) {
  u32 remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(cta));
  return remote;
}

/// mapa (9.7.9.24) and mbarrier.arrive (9.7.13.15): at the barrier in another CTA of the cluster
/// that lies where `barrier` does here.
ATTNJIT_DEVICE void mbarrier_arrive_at(u32 barrier, int cta) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
      "r"(cta)
      : "memory");
}

/// The same without an order of what this thread did before in memory: for what a fence of its own
/// orders, as tcgen05.fence does of tensor memory. NOTE: a release of the cluster takes as long as
/// a fence of the whole GPU.
ATTNJIT_DEVICE void mbarrier_arrive_relaxed_at(u32 barrier, int cta) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
      "r"(cta)
      : "memory");
}

/// mbarrier.arrive.expect_tx (9.7.13.15): arrives and expects bytes of bulk copies.
ATTNJIT_DEVICE void mbarrier_arrive_expect_tx(u32 barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Asks whether the phase of `parity` is over at `barrier`, which sets `done`.
#define ATTNJIT_ASK_MBARRIER(instruction) \
  asm volatile(                           \
      "{\n.reg .pred p;\n"                \
      "mbarrier." instruction             \
      ".shared::cta.b64 p, [%1], %2;\n"   \
      "selp.u32 %0, 1, 0, p;\n}"          \
      : "=r"(done)                        \
      : "r"(barrier), "r"(parity)         \
      : "memory")

/// mbarrier.try_wait.parity (9.7.13.15), repeated: it may return false spuriously.
ATTNJIT_DEVICE void mbarrier_wait(u32 barrier, int parity) {
  u32 done;
  do {
    ATTNJIT_ASK_MBARRIER("try_wait.parity");
  } while (done == 0);
}

/// The same in one statement. NOTE: for compile time: each loop that the optimiser is given costs
/// more than what is in it (docs/compile.md). sm_90a's kernels have the loop above: their code is
/// longer with this.
ATTNJIT_DEVICE void mbarrier_await(u32 barrier, int parity) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t"
      "@!p bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// mbarrier.try_wait.parity.acquire.cluster (9.7.13.15), repeated: for arrivals from other CTAs.
ATTNJIT_DEVICE void mbarrier_wait_cluster(u32 barrier, int parity) {
  u32 done;
  do {
    ATTNJIT_ASK_MBARRIER("try_wait.parity.acquire.cluster");
  } while (done == 0);
}

/// mbarrier.try_wait.parity.relaxed.cluster (9.7.13.15), repeated: for arrivals from other CTAs of
/// what a fence of this thread's own orders, as tcgen05.fence does of tensor memory.
ATTNJIT_DEVICE void mbarrier_wait_relaxed_cluster(u32 barrier, int parity) {
  u32 done;
  do {
    ATTNJIT_ASK_MBARRIER("try_wait.parity.relaxed.cluster");
  } while (done == 0);
}

/// mbarrier.test_wait.parity (9.7.13.15): does not wait.
ATTNJIT_DEVICE bool mbarrier_test(u32 barrier, int parity) {
  u32 done;
  ATTNJIT_ASK_MBARRIER("test_wait.parity");
  return done != 0;
}

#undef ATTNJIT_ASK_MBARRIER

// ---- Barriers, fences, registers --------------------------------------------------------------

/// barrier.sync.aligned (9.7.13.1): waits for `threads` threads at barrier `id`.
ATTNJIT_DEVICE void named_barrier_sync(int id, int threads) {
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// barrier.arrive.aligned (9.7.13.1): counts this warp at barrier `id` and goes on.
ATTNJIT_DEVICE void named_barrier_arrive(int id, int threads) {
  asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// fence.proxy.async (9.7.13.4): orders this thread's shared-memory accesses before later ones of
/// the async proxy (bulk copies, wgmma).
ATTNJIT_DEVICE void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// setmaxnreg (9.7, miscellaneous instructions): gives registers back to the CTA's pool.
template <int kRegisters>
ATTNJIT_DEVICE void setmaxnreg_dec() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256,
                "setmaxnreg takes a multiple of 8 from 24 to 256");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// setmaxnreg (9.7, miscellaneous instructions): takes registers from the CTA's pool, waiting until
/// there are enough.
template <int kRegisters>
ATTNJIT_DEVICE void setmaxnreg_inc() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256,
                "setmaxnreg takes a multiple of 8 from 24 to 256");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// fence.release.sync_restrict (9.7.13.4): what this thread did in its CTA's shared memory comes
/// before a relaxed arrival at another CTA's barrier. NOTE: as cheap as a fence of the CTA's; a
/// release of the cluster would be a fence of the whole GPU. Of PTX 8.6 on (NVRTC 12.8).
ATTNJIT_DEVICE void fence_release_shared() {
  asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
}

/// fence.acquire.sync_restrict (9.7.13.4): the other side of it, behind a relaxed wait.
ATTNJIT_DEVICE void fence_acquire_shared() {
  asm volatile("fence.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
}

// ---- Bulk tensor copies (9.7.9.27) ------------------------------------------------------------

/// L2 cache policies as createpolicy (9.7.9) makes them for the whole access.
constexpr u64 kEvictFirst = 0x12F0000000000000ull;
constexpr u64 kEvictLast = 0x14F0000000000000ull;

/// The policy of K and V, whose tiles are kept for the other work tiles that read them. Where there
/// is none (a decode, all of whose heads are in one tile), they would only push others out.
ATTNJIT_DEVICE u64 kv_policy(bool read_once) { return read_once ? kEvictFirst : kEvictLast; }

/// prefetch.tensormap (9.7.9).
ATTNJIT_DEVICE void prefetch_tensor_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// What a load's name says where its barrier may be that of either CTA of a pair.
template <bool kPair>
struct LoadGroup {
  static constexpr const char text[] = "";
};
template <>
struct LoadGroup<true> {
  static constexpr const char text[] = ".cta_group::2";
};

/// cp.async.bulk.tensor.3d, global to shared (9.7.9.27). kPair: see tma_load_4d.
template <bool kPair = false>
ATTNJIT_DEVICE void tma_load_3d(u32 destination, const TensorMap* map, u32 barrier, int c0, int c1,
                                int c2, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes%7"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "l"(policy), "C"(LoadGroup<kPair>::text)
      : "memory");
}

/// cp.async.bulk.tensor.3d, shared to global (9.7.9.27): elements out of bounds are left out.
ATTNJIT_DEVICE void tma_store_3d(const TensorMap* map, u32 source, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(source), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

/// cp.async.bulk.tensor.4d, global to shared (9.7.9.27). One thread issues it; the barrier gets
/// the box's bytes, those out of bounds included. With a kPair it may be that of either CTA.
template <bool kPair = false>
ATTNJIT_DEVICE void tma_load_4d(u32 destination, const TensorMap* map, u32 barrier, int c0, int c1,
                                int c2, int c3, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes%8"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(policy),
      "C"(LoadGroup<kPair>::text)
      : "memory");
}

/// The same to the CTAs of the cluster whose bits `ctas` has, each at the same place, where a
/// barrier at the same place hears of it.
ATTNJIT_DEVICE void tma_multicast_4d(u32 destination, const TensorMap* map, u32 barrier, int c0,
                                     int c1, int c2, int c3, u32 ctas, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;" ::"r"(
          destination),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3),
      "h"(static_cast<unsigned short>(ctas)), "l"(policy)
      : "memory");
}

/// cp.async.bulk.tensor.4d, shared to global (9.7.9.27): elements out of bounds are left out.
ATTNJIT_DEVICE void tma_store_4d(const TensorMap* map, u32 source, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          map),
      "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

/// cp.async.bulk.tensor.5d, global to shared (9.7.9.27). kPair: see tma_load_4d.
template <bool kPair = false>
ATTNJIT_DEVICE void tma_load_5d(u32 destination, const TensorMap* map, u32 barrier, int c0, int c1,
                                int c2, int c3, int c4, u64 policy) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes%9"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "l"(policy),
      "C"(LoadGroup<kPair>::text)
      : "memory");
}

/// cp.async.bulk.tensor.5d, shared to global (9.7.9.27): elements out of bounds are left out.
ATTNJIT_DEVICE void tma_store_5d(const TensorMap* map, u32 source, int c0, int c1, int c2, int c3,
                                 int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::
          "l"(map),
      "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

/// cp.async.bulk.commit_group (9.7.9.25).
ATTNJIT_DEVICE void bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// cp.async.bulk.wait_group.read (9.7.9.25): of this thread's groups of bulk stores all but the
/// last kPending have read their source.
template <int kPending = 0>
ATTNJIT_DEVICE void bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// ---- Matrices in shared memory ----------------------------------------------------------------

/// stmatrix.x4 (9.7.14): four 8x8 matrices of 16-bit elements; lanes 8i..8i+7 give the row
/// addresses of matrix i.
ATTNJIT_DEVICE void stmatrix_x4(u32 row, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

/// ldmatrix.x4.trans (9.7.14): four 8x8 matrices of 16-bit elements; lanes 8i..8i+7 give the row
/// addresses of matrix i, and lane l gets of it rows 2*(l%4) and the next, of column l/4.
ATTNJIT_DEVICE void ldmatrix_x4_transposed(u32 row, u32 (&matrices)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(row)
               : "memory");
}

// ---- Shared memory by address -----------------------------------------------------------------

/// ld.shared (9.7.9).
ATTNJIT_DEVICE float load_shared(u32 address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

/// st.shared (9.7.9).
ATTNJIT_DEVICE void store_shared(u32 address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

/// st.shared.v4 (9.7.9): 16 aligned bytes.
ATTNJIT_DEVICE void store_shared_v4(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

/// The same of four numbers.
ATTNJIT_DEVICE void store_shared_v4(u32 address, int a, int b, int c, int d) {
  store_shared_v4(address, static_cast<u32>(a), static_cast<u32>(b), static_cast<u32>(c),
                  static_cast<u32>(d));
}

/// st.async (9.7.9.12): to another CTA's memory, whose barrier there counts the 16 bytes (both
/// addresses are shared_address_in's).
ATTNJIT_DEVICE void store_async_v4(u32 address, u32 barrier, u32 a, u32 b, u32 c, u32 d) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%2, %3, %4, %5}, "
      "[%1];" ::"r"(address),
      "r"(barrier), "r"(a), "r"(b), "r"(c), "r"(d)
      : "memory");
}

/// st.shared.b32 (9.7.9).
ATTNJIT_DEVICE void store_shared_word(u32 address, u32 value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

/// ld.shared.v4.u32 (9.7.9.8).
ATTNJIT_DEVICE void load_shared_v4(u32 address, u32& a, u32& b, u32& c, u32& d) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(address)
               : "memory");
}

/// The same to an array.
ATTNJIT_DEVICE void load_shared_v4(u32 address, u32 (&words)[4]) {
  load_shared_v4(address, words[0], words[1], words[2], words[3]);
}
ATTNJIT_DEVICE void load_shared_v4(u32 address, int& a, int& b, int& c, int& d) {
  u32 words[4];
  load_shared_v4(address, words[0], words[1], words[2], words[3]);
  a = static_cast<int>(words[0]);
  b = static_cast<int>(words[1]);
  c = static_cast<int>(words[2]);
  d = static_cast<int>(words[3]);
}

/// ld.shared.v2.b32 (9.7.9.8).
ATTNJIT_DEVICE void load_shared_v2(u32 address, u32& a, u32& b) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(address) : "memory");
}
/// st.shared.b16 (9.7.9).
ATTNJIT_DEVICE void store_shared_half(u32 address, unsigned short half) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(half) : "memory");
}

/// ld.shared.b32 (9.7.9).
ATTNJIT_DEVICE u32 load_shared_word(u32 address) {
  u32 value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

/// cp.async (9.7.9.25.3): 16 aligned bytes from global to shared memory, or 16 zeros.
ATTNJIT_DEVICE void copy_16_or_zeros(u32 destination, const void* source, bool copy) {
  // NOTE: not by its size: for one in a register ptxas adds what is left out to the source.
  asm volatile(
      "{\n\t.reg .pred zeros;\n\tsetp.eq.u32 zeros, %2, 0;\n\t"
      "cp.async.cg.shared.global [%0], [%1], 16, zeros;\n\t}" ::"r"(destination),
      "l"(source), "r"(static_cast<u32>(copy))
      : "memory");
}

/// cp.async.wait_all (9.7.9.25.3): of this thread's copies.
ATTNJIT_DEVICE void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// cp.async.bulk (9.7.9.25.4.1) from this CTA's shared memory to another one's of the cluster,
/// where the barrier `remote_barrier` counts the bytes. One thread.
ATTNJIT_DEVICE void copy_to_peer(u32 remote_address, u32 address, int bytes, u32 remote_barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(remote_address),
      "r"(address), "r"(bytes), "r"(remote_barrier)
      : "memory");
}

/// cp.async.bulk.prefetch.L2 (9.7.9.25.4.3): of 16 aligned bytes each.
ATTNJIT_DEVICE void prefetch_l2(const void* address, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(address), "r"(bytes) : "memory");
}

/// prefetch.global.L2 (9.7.9.16): of the 32 bytes that hold `address`, at least. NOTE: each lane
/// its own. The bulk copies above are made lane by lane, in a loop that the compiler writes.
ATTNJIT_DEVICE void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address) : "memory");
}

/// cp.async.mbarrier.arrive.noinc (9.7.13.15): arrives when this thread's copies so far are done.
ATTNJIT_DEVICE void arrive_after_copies(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

/// atom.add (9.7.13.6), relaxed: what the word in global memory was before.
ATTNJIT_DEVICE u64 atomic_add(u64* word, u64 value) {
  u64 before;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
               : "=l"(before)
               : "l"(word), "l"(value)
               : "memory");
  return before;
}

/// The same, with what came before it seen by those that add after it.
ATTNJIT_DEVICE u32 atomic_add_acq_rel(u32* word, u32 value) {
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(word), "r"(value)
               : "memory");
  return before;
}

/// ld.global (9.7.9) of a word, or a zero. NOTE: predicated, not behind a branch: the loads of
/// several calls are on their way at a time.
ATTNJIT_DEVICE u32 load_global_or_zero(const void* address, bool load) {
  u32 value;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; mov.b32 %0, 0; @p ld.global.b32 %0, [%1]; }"
               : "=r"(value)
               : "l"(address), "r"(static_cast<u32>(load))
               : "memory");
  return value;
}

/// The same of four words, 16 aligned bytes.
ATTNJIT_DEVICE void load_global_v4_or_zeros(const void* address, bool load, u32 (&words)[4]) {
  asm volatile(
      "{ .reg .pred p; setp.ne.u32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0;"
      " mov.b32 %3, 0; @p ld.global.v4.b32 {%0, %1, %2, %3}, [%4]; }"
      : "=&r"(words[0]), "=&r"(words[1]), "=&r"(words[2]), "=&r"(words[3])
      : "l"(address), "r"(static_cast<u32>(load))
      : "memory");
}

/// ld.global.v4 (9.7.9.8): 16 aligned bytes.
ATTNJIT_DEVICE void load_global_v4(const void* address, u32 (&words)[4]) {
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "l"(address)
               : "memory");
}

/// The same of two words, 8 aligned bytes.
ATTNJIT_DEVICE void load_global_v2_or_zeros(const void* address, bool load, u32& a, u32& b) {
  asm volatile(
      "{ .reg .pred p; setp.ne.u32 p, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0; "
      "@p ld.global.v2.b32 {%0, %1}, [%2]; }"
      : "=&r"(a), "=&r"(b)
      : "l"(address), "r"(static_cast<u32>(load))
      : "memory");
}

/// st.global.v2 (9.7.9): 8 aligned bytes.
ATTNJIT_DEVICE void store_global_v2(float* address, float a, float b) {
  asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(address), "f"(a), "f"(b) : "memory");
}

ATTNJIT_DEVICE void store_global_v2(u32* address, u32 a, u32 b) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(address), "r"(a), "r"(b) : "memory");
}

/// st.global.v4 (9.7.9): 16 aligned bytes.
ATTNJIT_DEVICE void store_global_v4(void* address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

/// The same where `store`: a predicate, not a branch. NOTE: behind a branch that part of a warp may
/// take ptxas makes two of each shuffle, one for warps that have not met again.
ATTNJIT_DEVICE void store_global_v4_if(bool store, void* address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile(
      "{ .reg .pred p; setp.ne.u32 p, %5, 0; @p st.global.v4.b32 [%0], {%1, %2, %3, %4}; }" ::"l"(
          address),
      "r"(a), "r"(b), "r"(c), "r"(d), "r"(static_cast<u32>(store))
      : "memory");
}

// ---- Arithmetic -------------------------------------------------------------------------------

/// ex2.approx.ftz (9.7.3): 2^x; at most 2 ulp; -inf gives 0.
ATTNJIT_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// lg2.approx.ftz (9.7.3).
ATTNJIT_DEVICE float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// rcp.approx.ftz (9.7.3): 1/x; at most 1 ulp; an infinity gives 0.
ATTNJIT_DEVICE float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// prmt.b32 (9.7.9.7): four of the eight bytes of `low` and `high`, as the nibbles of `which` say.
ATTNJIT_DEVICE u32 permute_bytes(u32 low, u32 high, u32 which) {
  u32 word;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(low), "r"(high), "r"(which));
  return word;
}

/// shl.b32 (9.7.8): by 32 and more gives 0, where C++ says nothing.
ATTNJIT_DEVICE u32 shift_left(u32 value, u32 by) {
  u32 result;
  asm("shl.b32 %0, %1, %2;" : "=r"(result) : "r"(value), "r"(by));
  return result;
}

/// max.f32 with three inputs (9.7.3), sm_100 and later.
ATTNJIT_DEVICE float max3(float a, float b, float c) {
  float result;
  asm("max.f32 %0, %1, %2, %3;" : "=f"(result) : "f"(a), "f"(b), "f"(c));
  return result;
}

// ---- Pairs of floats (9.7.3, .f32x2), sm_100 and later ----------------------------------------

/// Two floats that one instruction computes with.
struct FloatPair {
  float x, y;
};

ATTNJIT_DEVICE u64 pair_bits(FloatPair pair) {
  u64 bits;
  asm("mov.b64 %0, {%1, %2};" : "=l"(bits) : "f"(pair.x), "f"(pair.y));
  return bits;
}
ATTNJIT_DEVICE FloatPair pair_of(u64 bits) {
  FloatPair pair;
  asm("mov.b64 {%0, %1}, %2;" : "=f"(pair.x), "=f"(pair.y) : "l"(bits));
  return pair;
}

/// fma.rn.f32x2.
ATTNJIT_DEVICE FloatPair fma_pair(FloatPair a, FloatPair b, FloatPair c) {
  u64 d;
  asm("fma.rn.f32x2 %0, %1, %2, %3;"
      : "=l"(d)
      : "l"(pair_bits(a)), "l"(pair_bits(b)), "l"(pair_bits(c)));
  return pair_of(d);
}

/// mul.rn.f32x2.
ATTNJIT_DEVICE FloatPair mul_pair(FloatPair a, FloatPair b) {
  u64 d;
  asm("mul.rn.f32x2 %0, %1, %2;" : "=l"(d) : "l"(pair_bits(a)), "l"(pair_bits(b)));
  return pair_of(d);
}

/// add.rn.f32x2.
ATTNJIT_DEVICE FloatPair add_pair(FloatPair a, FloatPair b) {
  u64 d;
  asm("add.rn.f32x2 %0, %1, %2;" : "=l"(d) : "l"(pair_bits(a)), "l"(pair_bits(b)));
  return pair_of(d);
}

/// cvt.rn.bf16x2.f32 or cvt.rn.f16x2.f32 (9.7.9.21): two floats as a pair, `low` in the low half.
template <bool kBf16>
ATTNJIT_DEVICE u32 pack_pair(float low, float high) {
  u32 pair;
  // NOTE: the instruction's first source is the upper half.
  if constexpr (kBf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

/// cvt.rn.satfinite.e4m3x2.f32 (9.7.9.21): four floats as e4m3, the first in the low byte. What is
/// too large becomes 448.
ATTNJIT_DEVICE u32 pack_e4m3(float a, float b, float c, float d) {
  u32 word;
  // NOTE: the instruction's first source is the upper half.
  asm("{\n.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n}"
      : "=r"(word)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return word;
}

/// The same of two floats: the first in the low byte.
ATTNJIT_DEVICE unsigned short pack_e4m3_pair(float low, float high) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Neighbours of a row as pairs.
template <bool kBf16, int kPairs>
ATTNJIT_DEVICE void pack_pairs(u32 (&pairs)[kPairs], const float (&values)[2 * kPairs]) {
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    pairs[i] = pack_pair<kBf16>(values[2 * i], values[2 * i + 1]);
  }
}

/// The same pair as floats: x from the low half. bf16 is the upper half of an f32; cvt.f32.f16
/// (9.7.9.21).
template <bool kBf16>
ATTNJIT_DEVICE FloatPair unpack_pair(u32 pair) {
  FloatPair result;
  if constexpr (kBf16) {
    result.x = __uint_as_float(pair << 16);
    result.y = __uint_as_float(pair & 0xffff0000u);
  } else {
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, "
        "high; }"
        : "=f"(result.x), "=f"(result.y)
        : "r"(pair));
  }
  return result;
}

}  // namespace attnjit

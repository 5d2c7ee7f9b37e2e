// A persistent kernel under cluster launch control: each CTA marks its tile, then takes tiles of CTAs that have not started.
typedef unsigned u32;
typedef unsigned long long u64;
extern "C" __global__ void persistent(int* marks, int* taken) {
  __shared__ __align__(16) u64 response[2];
  __shared__ __align__(8) u64 bar;
  const u32 r = (u32)__cvta_generic_to_shared(response), b = (u32)__cvta_generic_to_shared(&bar);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;" ::"r"(b) : "memory");
  __syncthreads();
  u32 tile = blockIdx.x, phase = 0;
  for (;;) {
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(b) : "memory");
      asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(r), "r"(b) : "memory");
    }
    marks[tile * blockDim.x + threadIdx.x] += 1;
    asm volatile("{\n.reg .pred P1;\nLAB_WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n@P1 bra DONE;\nbra LAB_WAIT;\nDONE:\n}" ::"r"(b), "r"(phase) : "memory");
    phase ^= 1;
    u32 ok, x;
    asm volatile("{\n.reg .b128 q;\n.reg .pred p;\nld.shared.b128 q, [%2];\nclusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, q;\nselp.u32 %0, 1, 0, p;\nmov.u32 %1, 0;\n"
                 "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %1, q;\n}" : "=r"(ok), "=r"(x) : "r"(r) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (!ok) break;
    tile = x;
    if (threadIdx.x == 0) atomicAdd(taken, 1);
  }
}

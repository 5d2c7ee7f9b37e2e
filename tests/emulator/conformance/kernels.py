"""The conformance kernels' CUDA text: one instruction family a group, everything else as plain as can be.

Every kernel takes its parameters from memory, so that one launch covers many cases, and waits with a bound, so that a
wrong expectation is recorded as "did not complete" instead of hanging the GPU.
"""

PRELUDE = r"""
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef int i32; typedef long long i64;
struct alignas(64) Map { u8 bytes[128]; };
#define DEVICE __device__ __forceinline__
extern __shared__ __align__(1024) u8 smem[];
DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void barrier_init(u32 a, u32 n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(a), "r"(n) : "memory"); }
DEVICE void expect(u32 a, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(a), "r"(bytes) : "memory"); }
DEVICE u32 test_parity(u32 a, u32 parity) {
  u32 done;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(a), "r"(parity) : "memory");
  return done;
}
DEVICE u32 wait_bounded(u32 a, u32 parity) {
  for (int i = 0; i < 20000; ++i) if (test_parity(a, parity)) return 1;
  return 0;
}
DEVICE void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void cluster_sync() { asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory"); }
"""

COORDS = ", ".join(f"%{i}" for i in range(3, 8))


def coordinates(rank, first):
    return ", ".join(f"%{first + i}" for i in range(rank))


def tma():
    """Loads, stores and reductions of every rank; multicast."""
    text = PRELUDE
    for rank in range(1, 6):
        c = coordinates(rank, 3)
        text += f"""
extern "C" __global__ void load_{rank}(const __grid_constant__ Map map, u8* out, u32* completed, i32 c0, i32 c1, i32 c2, i32 c3, i32 c4,
    i32 expected, i32 dump, i32 destination) {{
  __shared__ __align__(8) u64 bar;
  for (int i = threadIdx.x; i < dump; i += blockDim.x) smem[i] = 0xEE;
  if (threadIdx.x == 0) {{ barrier_init(shared_address(&bar), 1); fence_init(); }}
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {{
    expect(shared_address(&bar), expected);
    asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {{{c}}}], [%2];"
        :: "r"(shared_address(smem) + destination), "l"(&map), "r"(shared_address(&bar)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
  }}
  u32 done = wait_bounded(shared_address(&bar), 0);
  if (threadIdx.x == 0) *completed = done;
  __syncthreads();
  for (int i = threadIdx.x; i < dump; i += blockDim.x) out[i] = smem[i];
}}
"""
        c = coordinates(rank, 2)
        for op in ("store", "add", "min", "max", "inc", "dec", "and", "or", "xor"):
            opcode = "cp.async.bulk.tensor" if op == "store" else "cp.reduce.async.bulk.tensor"
            suffix = "" if op == "store" else f".{op}"
            text += f"""
extern "C" __global__ void {op}_{rank}(const __grid_constant__ Map map, const u8* in, i32 c0, i32 c1, i32 c2, i32 c3, i32 c4, i32 bytes) {{
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) smem[i] = in[i];
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {{
    asm volatile("{opcode}.{rank}d.global.shared::cta{suffix}.bulk_group [%0, {{{c}}}], [%1];"
        :: "l"(&map), "r"(shared_address(smem)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
  }}
}}
"""
    text += r"""
extern "C" __global__ void multicast(const __grid_constant__ Map map, u8* out, u32* completed, i32 c0, i32 c1, i32 mask, i32 issuer,
    i32 expected, i32 bystander_expected, i32 dump) {
  __shared__ __align__(8) u64 bar;
  u32 rank, clusters;
  asm volatile("mov.u32 %0, %%cluster_ctarank; mov.u32 %1, %%cluster_nctarank;" : "=r"(rank), "=r"(clusters));
  for (int i = threadIdx.x; i < dump; i += blockDim.x) smem[i] = 0xEE;
  if (threadIdx.x == 0) { barrier_init(shared_address(&bar), 1); fence_init(); }
  fence_async();
  cluster_sync();
  if (threadIdx.x == 0) expect(shared_address(&bar), ((mask >> rank) & 1) ? expected : bystander_expected);
  cluster_sync();
  if (threadIdx.x == 0 && rank == issuer) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
        :: "r"(shared_address(smem)), "l"(&map), "r"(shared_address(&bar)), "r"(c0), "r"(c1), "h"((u16)mask) : "memory");
  }
  u32 done = wait_bounded(shared_address(&bar), 0);
  if (threadIdx.x == 0) completed[blockIdx.x] = done;
  cluster_sync();
  for (int i = threadIdx.x; i < dump; i += blockDim.x) out[blockIdx.x * dump + i] = smem[i];
}
extern "C" __global__ void bulk(const u8* in, u8* out, u8* back, u32* completed, i32 bytes, i32 source, i32 destination, i32 dump) {
  __shared__ __align__(8) u64 bar;
  for (int i = threadIdx.x; i < dump; i += blockDim.x) smem[i] = 0xEE;
  if (threadIdx.x == 0) { barrier_init(shared_address(&bar), 1); fence_init(); }
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    expect(shared_address(&bar), bytes);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        :: "r"(shared_address(smem) + destination), "l"(in + source), "r"(bytes), "r"(shared_address(&bar)) : "memory");
  }
  u32 done = wait_bounded(shared_address(&bar), 0);
  if (threadIdx.x == 0) *completed = done;
  __syncthreads();
  for (int i = threadIdx.x; i < dump; i += blockDim.x) out[i] = smem[i];
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(back + destination), "r"(shared_address(smem) + destination), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
extern "C" __global__ void peer_copy(u8* out, u32* completed, i32 bytes) {  // a ring: CTA r writes into CTA r + 1
  __shared__ __align__(8) u64 bar;
  u32 rank, count;
  asm volatile("mov.u32 %0, %%cluster_ctarank; mov.u32 %1, %%cluster_nctarank;" : "=r"(rank), "=r"(count));
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) { smem[i] = (u8)(i * 7 + rank * 31); smem[bytes + i] = 0xEE; }
  if (threadIdx.x == 0) { barrier_init(shared_address(&bar), 1); fence_init(); }
  fence_async();
  cluster_sync();
  if (threadIdx.x == 0) {
    expect(shared_address(&bar), bytes);
    u32 to, remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_address(smem) + bytes), "r"((rank + 1) % count));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(&bar)), "r"((rank + 1) % count));
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        :: "r"(to), "r"(shared_address(smem)), "r"(bytes), "r"(remote) : "memory");
  }
  u32 done = wait_bounded(shared_address(&bar), 0);
  if (threadIdx.x == 0) completed[blockIdx.x] = done;
  for (int i = threadIdx.x; i < bytes; i += blockDim.x) out[blockIdx.x * bytes + i] = smem[bytes + i];
  cluster_sync();
}
"""
    return text


# name: (D type, A type, B type, K, bytes an element, D registers per N)
WGMMA_TYPES = {
    "f32_bf16": ("f32", "bf16", "bf16", 16, 2, 2), "f32_f16": ("f32", "f16", "f16", 16, 2, 2),
    "f16_f16": ("f16", "f16", "f16", 16, 2, 4), "f32_tf32": ("f32", "tf32", "tf32", 8, 4, 2),
    "f32_e4m3": ("f32", "e4m3", "e4m3", 32, 1, 2), "f32_e5m2": ("f32", "e5m2", "e5m2", 32, 1, 2),
    "f32_e4m3_e5m2": ("f32", "e4m3", "e5m2", 32, 1, 2), "f16_e4m3": ("f16", "e4m3", "e4m3", 32, 1, 4),
    "s32_s8": ("s32", "s8", "s8", 32, 1, 2), "s32_u8": ("s32", "u8", "u8", 32, 1, 2)}

# (type, N, A from registers, negate A, transpose A, transpose B)
WGMMA_VARIANTS = (
    [("f32_bf16", n, False, False, 0, 0) for n in (8, 16, 24, 64, 128, 176, 256)]
    + [("f32_bf16", 64, False, False, ta, tb) for ta, tb in ((1, 0), (0, 1), (1, 1))]
    + [("f32_bf16", 128, False, False, 0, 1), ("f32_bf16", 64, True, False, 0, 0),
       ("f32_bf16", 64, True, False, 0, 1), ("f32_bf16", 64, False, True, 0, 0)]
    + [(t, 64, rs, False, 0, 0) for t in WGMMA_TYPES if t != "f32_bf16" for rs in (False, True)])


def wgmma_name(v):
    t, n, rs, negate, ta, tb = v
    return f"wgmma_{t}_n{n}_{'rs' if rs else 'ss'}{'_neg' if negate else ''}_t{ta}{tb}"


def wgmma():
    """D = A * B + D, one instruction; operands copied byte by byte into shared memory, D dumped by register."""
    text = PRELUDE
    for v in WGMMA_VARIANTS:
        t, n, rs, negate, ta, tb = v
        d, a, b, k, size, per = WGMMA_TYPES[t]
        regs = n // per
        integer = d == "s32"
        outs = ", ".join(f"%{i}" for i in range(regs))
        if rs:
            operands = "{%s}, %%%d" % (", ".join(f"%{regs + i}" for i in range(4)), regs + 4)
            inputs = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b_desc), "r"(scale_d)'
            scale = regs + 5
        else:
            operands = f"%{regs}, %{regs + 1}"
            inputs = '"l"(a_desc), "l"(b_desc), "r"(scale_d)'
            scale = regs + 2
        immediates = "" if integer else f", {-1 if negate else 1}, 1"
        if size == 2 and not integer:
            immediates += f", {tb}" if rs else f", {ta}, {tb}"
        text += f"""
extern "C" __global__ void __launch_bounds__(128) {wgmma_name(v)}(const u8* in, const u32* a_registers, u32* d_registers, i64 a_arg, i64 b_arg, i32 bytes, i32 scale_d) {{
  for (int i = threadIdx.x; i < bytes; i += 128) smem[i] = in[i];
  fence_async();
  __syncthreads();
  u64 base = (shared_address(smem) & 0x3FFFF) >> 4;
  u64 a_desc = a_arg + base, b_desc = b_arg + base;
  u32 a[4], d[{regs}];
  for (int i = 0; i < 4; ++i) a[i] = a_registers[threadIdx.x * 4 + i];
  #pragma unroll
  for (int i = 0; i < {regs}; ++i) d[i] = d_registers[threadIdx.x * {regs} + i];
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{scale}, 0; wgmma.mma_async.sync.aligned.m64n{n}k{k}.{d}.{a}.{b} {{{outs}}}, {operands}, p{immediates}; }}"
      : {", ".join(f'"+r"(d[{i}])' for i in range(regs))} : {inputs});
  asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
  #pragma unroll
  for (int i = 0; i < {regs}; ++i) d_registers[threadIdx.x * {regs} + i] = d[i];
}}
"""
    return text


# name: (shape, D/C type, A type, B type, A registers, B registers, D registers)
MMA = {
    "bf16": ("m16n8k16", "f32", "bf16", "bf16", 4, 2, 4), "bf16_k8": ("m16n8k8", "f32", "bf16", "bf16", 2, 1, 4),
    "f16": ("m16n8k16", "f32", "f16", "f16", 4, 2, 4), "f16_f16": ("m16n8k16", "f16", "f16", "f16", 4, 2, 2),
    "tf32": ("m16n8k8", "f32", "tf32", "tf32", 4, 2, 4), "tf32_k4": ("m16n8k4", "f32", "tf32", "tf32", 2, 1, 4),
    "e4m3": ("m16n8k32", "f32", "e4m3", "e4m3", 4, 2, 4), "e5m2": ("m16n8k32", "f32", "e5m2", "e5m2", 4, 2, 4),
    "s8": ("m16n8k32", "s32", "s8", "s8", 4, 2, 4), "u8": ("m16n8k32", "s32", "u8", "u8", 4, 2, 4),
    "s8_k16": ("m16n8k16", "s32", "s8", "s8", 2, 1, 4)}


def mma():
    """mma.sync with operands given by register; a block a case."""
    text = PRELUDE
    for name, (shape, d, a, b, na, nb, nd) in MMA.items():
        regs = [f"%{i}" for i in range(nd + na + nb + nd)]
        group = lambda first, count: "{" + ", ".join(regs[first:first + count]) + "}"
        sat = ""
        text += f"""
extern "C" __global__ void mma_{name}(const u32* a, const u32* b, const u32* c, u32* d) {{
  const u32 at = blockIdx.x * 32 + threadIdx.x;
  u32 A[{na}], B[{nb}], CC[{nd}], D[{nd}];
  for (int i = 0; i < {na}; ++i) A[i] = a[at * {na} + i];
  for (int i = 0; i < {nb}; ++i) B[i] = b[at * {nb} + i];
  for (int i = 0; i < {nd}; ++i) CC[i] = c[at * {nd} + i];
  asm volatile("mma.sync.aligned.{shape}.row.col{sat}.{d}.{a}.{b}.{d} {group(0, nd)}, {group(nd, na)}, {group(nd + na, nb)}, {group(nd + na + nb, nd)};"
      : {", ".join(f'"=r"(D[{i}])' for i in range(nd))}
      : {", ".join(f'"r"(A[{i}])' for i in range(na))}, {", ".join(f'"r"(B[{i}])' for i in range(nb))}, {", ".join(f'"r"(CC[{i}])' for i in range(nd))});
  for (int i = 0; i < {nd}; ++i) d[at * {nd} + i] = D[i];
}}
"""
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            tag = f"{count}{'t' if trans else ''}"
            r = ", ".join(f"%{i}" for i in range(count))
            text += f"""
extern "C" __global__ void ldmatrix_{tag}(const u32* in, const u32* rows, u32* out) {{
  u32* s = (u32*)smem;
  for (int i = threadIdx.x; i < 512; i += 32) s[i] = in[i];
  __syncwarp();
  u32 d[{count}];
  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{r}}}, [%{count}];" : {", ".join(f'"=r"(d[{i}])' for i in range(count))} : "r"(shared_address(smem) + rows[threadIdx.x] * 16));
  for (int i = 0; i < {count}; ++i) out[threadIdx.x * {count} + i] = d[i];
}}
extern "C" __global__ void stmatrix_{tag}(const u32* in, const u32* rows, u32* out) {{
  u32* s = (u32*)smem;
  for (int i = threadIdx.x; i < 512; i += 32) s[i] = 0xEEEEEEEEu;
  __syncwarp();
  u32 d[{count}];
  for (int i = 0; i < {count}; ++i) d[i] = in[threadIdx.x * {count} + i];
  asm volatile("stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%0], {{{", ".join(f"%{i + 1}" for i in range(count))}}};" :: "r"(shared_address(smem) + rows[threadIdx.x] * 16), {", ".join(f'"r"(d[{i}])' for i in range(count))} : "memory");
  __syncwarp();
  for (int i = threadIdx.x; i < 512; i += 32) out[i] = s[i];
}}
"""
    text += r"""
extern "C" __global__ void movmatrix(const u32* in, u32* out) {
  u32 d;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(in[threadIdx.x]));
  out[threadIdx.x] = d;
}
"""
    return text


def scalar_kernel(name, ops, arity, wide_in, wide_out):
    """out[op][i] = op(a[i], b[i], c[i]) for every op of a list of asm templates with {d}, {a}, {b}, {c}."""
    kind_in, kind_out = ("u64", "l") if wide_in else ("u32", "r"), ("u64", "l") if wide_out else ("u32", "r")
    parameters = ", ".join(f"const {kind_in[0]}* {x}" for x in "abc"[:arity])
    body = ""
    for number, template in enumerate(ops):
        asm = template.format(d="%0", a="%1", b="%2", c="%3")
        inputs = ", ".join(f'"{kind_in[1]}"({x}[i])' for x in "abc"[:arity])
        body += f'  {{ {kind_out[0]} d; asm volatile("{{ {asm} }}" : "={kind_out[1]}"(d) : {inputs}); out[{number} * n + i] = d; }}\n'
    return f"""
extern "C" __global__ void {name}({parameters}, {kind_out[0]}* out, i32 n) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
{body}}}
"""


def h16(op, count, out16=True):
    """An op on 16-bit registers, from and to the low halves of 32-bit ones."""
    names = "abc"[:count]
    moves = " ".join(f"cvt.u16.u32 h{x}, {{{x}}};" for x in names)
    declare = ".reg .b16 hd, " + ", ".join(f"h{x}" for x in names) + "; "
    return declare + moves + " " + op + (" cvt.u32.u16 {d}, hd;" if out16 else "")


def pred(op):
    return ".reg .pred p; " + op + " selp.u32 {d}, 1, 0, p;"


F32_UNARY_EXACT = (
    ["cvt.rn.bf16x2.f32 {d}, {a}, {a};", "cvt.rz.bf16x2.f32 {d}, {a}, {a};", "cvt.rn.relu.bf16x2.f32 {d}, {a}, {a};",
     "cvt.rn.f16x2.f32 {d}, {a}, {a};", "cvt.rz.f16x2.f32 {d}, {a}, {a};", "cvt.rn.relu.f16x2.f32 {d}, {a}, {a};",
     "cvt.rna.tf32.f32 {d}, {a};", "cvt.rn.tf32.f32 {d}, {a};", "cvt.rz.tf32.f32 {d}, {a};"]
    + [f".reg .b16 h; cvt.rn.satfinite.{t}x2.f32 h, {{a}}, {{a}}; cvt.u32.u16 {{d}}, h;" for t in ("e4m3", "e5m2")]
    + [f".reg .b16 h; cvt.rn.satfinite.relu.{t}x2.f32 h, {{a}}, {{a}}; cvt.u32.u16 {{d}}, h;" for t in ("e4m3", "e5m2")]
    + [f".reg .b16 h; cvt.{r}.f16.f32 h, {{a}}; cvt.u32.u16 {{d}}, h;" for r in ("rn", "rz", "rm", "rp", "rn.ftz", "rn.sat")]
    + [".reg .b16 h; cvt.rn.bf16.f32 h, {a}; cvt.u32.u16 {d}, h;", ".reg .b16 h; cvt.rz.bf16.f32 h, {a}; cvt.u32.u16 {d}, h;"]
    + [f"cvt.{r}.{t}.f32 {{d}}, {{a}};" for r in ("rni", "rzi", "rmi", "rpi", "rni.ftz") for t in ("s32", "u32")]
    + [f"cvt.{r}.f32.f32 {{d}}, {{a}};" for r in ("rni", "rzi", "rmi", "rpi", "rni.ftz", "rni.sat")]
    + [f".reg .b16 h; cvt.rzi.{t}.f32 h, {{a}}; cvt.{t[0]}32.{t} {{d}}, h;" for t in ("s16", "u16")]
    + ["cvt.sat.f32.f32 {d}, {a};", "cvt.ftz.f32.f32 {d}, {a};", "abs.f32 {d}, {a};", "abs.ftz.f32 {d}, {a};",
       "neg.f32 {d}, {a};", "neg.ftz.f32 {d}, {a};", "rcp.rn.f32 {d}, {a};", "rcp.rz.f32 {d}, {a};", "rcp.rn.ftz.f32 {d}, {a};",
       "sqrt.rn.f32 {d}, {a};", "sqrt.rm.f32 {d}, {a};", "sqrt.rn.ftz.f32 {d}, {a};"]
    + [pred(f"testp.{t}.f32 p, {{a}};") for t in ("finite", "infinite", "number", "notanumber", "normal", "subnormal")])

F32_UNARY_APPROX = ["ex2.approx.f32 {d}, {a};", "ex2.approx.ftz.f32 {d}, {a};", "lg2.approx.f32 {d}, {a};",
                    "lg2.approx.ftz.f32 {d}, {a};", "rcp.approx.f32 {d}, {a};", "rcp.approx.ftz.f32 {d}, {a};",
                    "rsqrt.approx.f32 {d}, {a};", "rsqrt.approx.ftz.f32 {d}, {a};", "sqrt.approx.f32 {d}, {a};",
                    "sqrt.approx.ftz.f32 {d}, {a};", "sin.approx.f32 {d}, {a};", "cos.approx.f32 {d}, {a};", "tanh.approx.f32 {d}, {a};"]

ROUNDS = ("rn", "rz", "rm", "rp")
F32_BINARY = (
    [f"{op}.{r}{f}.f32 {{d}}, {{a}}, {{b}};" for op in ("add", "sub", "mul") for r in ROUNDS for f in ("", ".ftz")]
    + [f"{op}.rn.sat.f32 {{d}}, {{a}}, {{b}};" for op in ("add", "mul")]
    + [f"div.{r}.f32 {{d}}, {{a}}, {{b}};" for r in ROUNDS] + ["div.rn.ftz.f32 {d}, {a}, {b};"]
    + [f"{op}{f}.f32 {{d}}, {{a}}, {{b}};" for op in ("min", "max") for f in ("", ".ftz", ".NaN", ".ftz.NaN", ".xorsign.abs")]
    + ["copysign.f32 {d}, {a}, {b};"]
    + [pred(f"setp.{c}.f32 p, {{a}}, {{b}};") for c in
       ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")]
    + [pred("setp.lt.ftz.f32 p, {a}, {b};"), "set.gt.u32.f32 {d}, {a}, {b};", "set.le.f32.f32 {d}, {a}, {b};"])

F32_TERNARY = ([f"fma.{r}{f}.f32 {{d}}, {{a}}, {{b}}, {{c}};" for r in ROUNDS for f in ("", ".ftz", ".sat")]
               + ["slct.f32.s32 {d}, {a}, {b}, {c};"])

HALF_UNARY = (
    [h16(f"{op}.{t} hd, ha;", 1) for op in ("abs", "neg") for t in ("f16", "bf16")]
    + [".reg .b16 ha; cvt.u16.u32 ha, {a}; cvt.f32.f16 {d}, ha;", ".reg .b16 ha; cvt.u16.u32 ha, {a}; cvt.f32.bf16 {d}, ha;"]
    + [f".reg .b16 ha; cvt.u16.u32 ha, {{a}}; cvt.rn.f16x2.{t}x2 {{d}}, ha;" for t in ("e4m3", "e5m2")]
    + [f".reg .b16 hd; cvt.rn.satfinite.{t}x2.f16x2 hd, {{a}}; cvt.u32.u16 {{d}}, hd;" for t in ("e4m3", "e5m2")]
    + [f".reg .b16 ha; cvt.u16.u32 ha, {{a}}; cvt.{r}.{t}.f16 {{d}}, ha;" for r in ("rni", "rzi", "rmi", "rpi") for t in ("s32", "u32")]
    + [".reg .b16 hd; cvt.rn.f16.s32 hd, {a}; cvt.u32.u16 {d}, hd;", ".reg .b16 hd; cvt.rn.f16.u32 hd, {a}; cvt.u32.u16 {d}, hd;"])
HALF_BINARY = (
    [f"{op}.{t} {{d}}, {{a}}, {{b}};" for op in ("add", "sub", "mul") for t in ("rn.f16x2", "rn.ftz.f16x2", "rn.sat.f16x2", "rn.bf16x2")
     ]
    + [f"{op}{m}.{t} {{d}}, {{a}}, {{b}};" for op in ("min", "max") for m in ("", ".NaN", ".xorsign.abs") for t in ("f16x2", "bf16x2")]
    + [".reg .b16 ha, hb; .reg .pred p; cvt.u16.u32 ha, {a}; cvt.u16.u32 hb, {b}; setp.%s.%s p, ha, hb; selp.u32 {d}, 1, 0, p;" % (c, t)
       for c in ("lt", "gtu", "eq", "nan") for t in ("f16", "bf16")])
HALF_TERNARY = [f"fma.{t} {{d}}, {{a}}, {{b}}, {{c}};" for t in
                ("rn.f16x2", "rn.ftz.f16x2", "rn.sat.f16x2", "rn.relu.f16x2", "rn.bf16x2", "rn.relu.bf16x2")]

INT_UNARY = (["popc.b32 {d}, {a};", "clz.b32 {d}, {a};", "brev.b32 {d}, {a};", "bfind.u32 {d}, {a};", "bfind.s32 {d}, {a};",
              "bfind.shiftamt.u32 {d}, {a};", "bfind.shiftamt.s32 {d}, {a};", "not.b32 {d}, {a};", "cnot.b32 {d}, {a};",
              "abs.s32 {d}, {a};", "neg.s32 {d}, {a};"]
             + [f"cvt.{r}.f32.{t} {{d}}, {{a}};" for r in ROUNDS for t in ("s32", "u32")]
             + [f".reg .b16 h; cvt{s}.{t}.{f} h, {{a}}; cvt.{t[0]}32.{t} {{d}}, h;" for s in ("", ".sat") for t in ("s16", "u16") for f in ("s32", "u32")]
             + [f"cvt{s}.{t}.{f} {{d}}, {{a}};" for s in ("", ".sat") for t in ("s8", "u8") for f in ("s32", "u32")])
INT_BINARY = ([f"{op}.{t} {{d}}, {{a}}, {{b}};" for op in ("min", "max", "div", "rem", "mul.lo", "mul.hi", "mul24.lo", "mul24.hi") for t in ("s32", "u32")]
              + ["add.sat.s32 {d}, {a}, {b};", "sub.sat.s32 {d}, {a}, {b};", "shl.b32 {d}, {a}, {b};", "shr.u32 {d}, {a}, {b};", "shr.s32 {d}, {a}, {b};",
                 "and.b32 {d}, {a}, {b};", "or.b32 {d}, {a}, {b};", "xor.b32 {d}, {a}, {b};", "add.s16x2 {d}, {a}, {b};",
                 "min.s16x2 {d}, {a}, {b};", "max.u16x2 {d}, {a}, {b};",
                 "add.cc.u32 {d}, {a}, {b}; addc.u32 {d}, {a}, {b};", "sub.cc.u32 {d}, {a}, {b}; subc.u32 {d}, {a}, {b};",
                 "fns.b32 {d}, {a}, 0, 1;", "szext.wrap.s32 {d}, {a}, {b};", "szext.clamp.u32 {d}, {a}, {b};", "bmsk.wrap.b32 {d}, {a}, {b};", "bmsk.clamp.b32 {d}, {a}, {b};"]
              + [pred(f"setp.{c}.{t} p, {{a}}, {{b}};") for c, t in (("lt", "s32"), ("lt", "u32"), ("lo", "u32"), ("hs", "u32"), ("ge", "s32"), ("ne", "b32"))])
INT_TERNARY = ([f"{op} {{d}}, {{a}}, {{b}}, {{c}};" for op in
                ("mad.lo.s32", "mad.hi.s32", "mad.hi.u32", "mad.hi.sat.s32", "mad24.lo.u32", "sad.s32", "sad.u32", "bfe.u32", "bfe.s32",
                 "prmt.b32", "prmt.b32.f4e", "prmt.b32.b4e", "prmt.b32.rc8", "prmt.b32.ecl", "prmt.b32.ecr", "prmt.b32.rc16",
                 "shf.l.wrap.b32", "shf.r.wrap.b32", "shf.l.clamp.b32", "shf.r.clamp.b32", "dp4a.s32.s32", "dp4a.u32.u32", "dp4a.s32.u32",
                 "dp2a.lo.s32.s32", "dp2a.hi.u32.s32", "slct.s32.s32")]
               + ["lop3.b32 {d}, {a}, {b}, {c}, %s;" % hex(i) for i in (0xE8, 0x96, 0x1B)]
               + ["bfi.b32 {d}, {a}, {b}, {c}, 7;", "bfi.b32 {d}, {a}, {b}, 5, {c};",
                  "mad.lo.cc.u32 {d}, {a}, {b}, {c}; madc.hi.u32 {d}, {a}, {b}, {c};"])
WIDE_UNARY = ["popc.b64 {d}, {a};", "clz.b64 {d}, {a};", "bfind.u64 {d}, {a};", "bfind.s64 {d}, {a};",
              "cvt.rn.f32.s64 {d}, {a};", "cvt.rn.f32.u64 {d}, {a};", "cvt.rz.f32.u64 {d}, {a};", "cvt.rn.f32.f64 {d}, {a};", "cvt.rz.f32.f64 {d}, {a};", "cvt.rp.ftz.f32.f64 {d}, {a};",
              "cvt.rzi.s32.f64 {d}, {a};", "cvt.rni.u32.f64 {d}, {a};", "cvt.u32.u64 {d}, {a};", "cvt.sat.s32.s64 {d}, {a};",
              ".reg .b16 h; cvt.rn.f16.f64 h, {a}; cvt.u32.u16 {d}, h;"]
WIDE_BINARY = ([f"{op}.{t} {{d}}, {{a}}, {{b}};" for op in ("min", "max", "div", "rem", "mul.lo", "mul.hi") for t in ("s64", "u64")]
               + [f"{op}.{r}.f64 {{d}}, {{a}}, {{b}};" for op in ("add", "sub", "mul", "div") for r in ROUNDS]
               + ["min.f64 {d}, {a}, {b};", "max.f64 {d}, {a}, {b};", "and.b64 {d}, {a}, {b};", "xor.b64 {d}, {a}, {b};", "sub.s64 {d}, {a}, {b};",
                  ".reg .b32 lo, hi; mov.b64 {{lo, hi}}, {b}; shl.b64 {d}, {a}, lo;", ".reg .b32 lo, hi; mov.b64 {{lo, hi}}, {b}; shr.s64 {d}, {a}, lo;",
                  ".reg .b32 lo, hi; mov.b64 {{lo, hi}}, {a}; mul.wide.s32 {d}, lo, hi;", ".reg .b32 lo, hi; mov.b64 {{lo, hi}}, {a}; mul.wide.u32 {d}, lo, hi;",
                  "brev.b64 {d}, {a};", "cvt.rni.f64.f64 {d}, {a};", "cvt.rzi.s64.f64 {d}, {a};", "cvt.rzi.u64.f64 {d}, {a};", "cvt.rn.f64.s64 {d}, {a};", "cvt.rn.f64.u64 {d}, {a};",
                  "sqrt.rn.f64 {d}, {a};", "rcp.rn.f64 {d}, {a};"])
WIDE_TERNARY = [f"fma.{r}.f64 {{d}}, {{a}}, {{b}}, {{c}};" for r in ROUNDS] + ["mad.lo.s64 {d}, {a}, {b}, {c};"]


def scalar():
    """Arithmetic and conversions, bit by bit."""
    return PRELUDE + "".join((
        scalar_kernel("f32_unary", F32_UNARY_EXACT, 1, False, False), scalar_kernel("f32_approx", F32_UNARY_APPROX, 1, False, False),
        scalar_kernel("f32_binary", F32_BINARY, 2, False, False), scalar_kernel("f32_ternary", F32_TERNARY, 3, False, False),
        scalar_kernel("half_unary", HALF_UNARY, 1, False, False), scalar_kernel("half_binary", HALF_BINARY, 2, False, False),
        scalar_kernel("half_ternary", HALF_TERNARY, 3, False, False), scalar_kernel("int_unary", INT_UNARY, 1, False, False),
        scalar_kernel("int_binary", INT_BINARY, 2, False, False), scalar_kernel("int_ternary", INT_TERNARY, 3, False, False),
        scalar_kernel("wide_unary", WIDE_UNARY, 1, True, False), scalar_kernel("wide_binary", WIDE_BINARY, 2, True, True),
        scalar_kernel("wide_ternary", WIDE_TERNARY, 3, True, True)))


def warp():
    """Shuffles, votes, matches, reductions and elect with full and partial masks: a block a case."""
    text = PRELUDE
    body = ""
    for number, mode in enumerate(("idx", "up", "down", "bfly")):
        body += f"""    asm volatile("{{ .reg .pred p; shfl.sync.{mode}.b32 %0|p, %2, %3, %4, %5; selp.u32 %1, 1, 0, p; }}" : "=r"(d), "=r"(p) : "r"(v), "r"(b), "r"(c), "r"(mask));
    o[{2 * number}] = d; o[{2 * number + 1}] = p;
"""
    text += f"""
extern "C" __global__ void shuffles(const u32* values, const u32* bs, const u32* cs, const u32* masks, u32* out) {{
  const u32 at = blockIdx.x * 32 + threadIdx.x, mask = masks[blockIdx.x], v = values[at], b = bs[at], c = cs[blockIdx.x];
  u32* o = out + at * 8;
  u32 d, p;
  if ((mask >> threadIdx.x) & 1) {{
{body}  }}
}}
"""
    votes = [("vote.sync.all.pred q, p, %2; selp.u32 %0, 1, 0, q;"), ("vote.sync.any.pred q, p, %2; selp.u32 %0, 1, 0, q;"),
             ("vote.sync.uni.pred q, p, %2; selp.u32 %0, 1, 0, q;"), ("vote.sync.ballot.b32 %0, p, %2;"), ("vote.sync.any.pred q, !p, %2; selp.u32 %0, 1, 0, q;"),
             ("match.any.sync.b32 %0, %1, %2;"), ("match.all.sync.b32 %0|q, %1, %2;"),
             ("elect.sync _|q, %2; selp.u32 %0, 1, 0, q;"), ("elect.sync %0|q, %2;"), ("activemask.b32 %0;")]
    votes += [f"redux.sync.{op} %0, %1, %2;" for op in ("add.s32", "add.u32", "min.s32", "max.s32", "min.u32", "max.u32", "and.b32", "or.b32", "xor.b32")]
    body = "".join(f'    asm volatile("{{ .reg .pred p, q; setp.ne.u32 p, %3, 0; {v} }}" : "=r"(d) : "r"(v), "r"(mask), "r"(v & 1)); o[{i}] = d;\n' for i, v in enumerate(votes))
    text += f"""
extern "C" __global__ void votes(const u32* values, const u32* masks, u32* out) {{
  const u32 at = blockIdx.x * 32 + threadIdx.x, mask = masks[blockIdx.x], v = values[at];
  u32* o = out + at * {len(votes)};
  u32 d;
  if ((mask >> threadIdx.x) & 1) {{
{body}  }}
}}
"""
    text += r"""
extern "C" __global__ void specials(u32* out) {
  u32 base, rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  base = shared_address(smem);
  if (threadIdx.x == 0) {
    u32 mapped, cta, dynamic, total;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(base), "r"(rank ^ 1));
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(cta) : "r"(mapped));
    asm volatile("mov.u32 %0, %%dynamic_smem_size; mov.u32 %1, %%total_smem_size;" : "=r"(dynamic), "=r"(total));
    u32* o = out + blockIdx.x * 8;
    o[0] = base; o[1] = mapped; o[2] = cta; o[3] = dynamic; o[4] = total; o[5] = rank; o[6] = (u32)__isShared(smem); o[7] = 0;
  }
  cluster_sync();
}
"""
    return text


ATOMS32 = ["add.u32", "add.s32", "add.f32", "exch.b32", "min.s32", "max.s32", "min.u32", "max.u32", "inc.u32", "dec.u32",
           "and.b32", "or.b32", "xor.b32", "add.noftz.f16x2", "add.noftz.bf16x2"]
ATOMS64 = ["add.u64", "add.f64", "exch.b64", "min.s64", "max.s64", "min.u64", "max.u64", "and.b64", "or.b64", "xor.b64"]


def memory():
    """Atomics on global and shared memory, by one thread a case; mbarrier scripts."""
    text = PRELUDE
    for width, kind, ops in ((32, "u32", ATOMS32), (64, "u64", ATOMS64)):
        r = "r" if width == 32 else "l"
        for space in ("global", "shared"):
            body = ""
            for number, op in enumerate(ops):
                address = '"l"(g)' if space == "global" else '"r"(shared_address(s))'
                body += f"""  {{ {kind} old; *m = a[i]; asm volatile("atom.{space}.{op} %0, [%1], %2;" : "={r}"(old) : {address}, "{r}"(b[i]) : "memory");
    out[({number} * n + i) * 2] = old; out[({number} * n + i) * 2 + 1] = *(volatile {kind}*)m; }}
"""
            cas = f"""  {{ {kind} old; *m = a[i]; asm volatile("atom.{space}.cas.b{width} %0, [%1], %2, %3;" : "={r}"(old) : {address}, "{r}"(c[i]), "{r}"(b[i]) : "memory");
    out[({len(ops)} * n + i) * 2] = old; out[({len(ops)} * n + i) * 2 + 1] = *(volatile {kind}*)m; }}
"""
            text += f"""
extern "C" __global__ void atoms_{space}_{width}(const {kind}* a, const {kind}* b, const {kind}* c, {kind}* scratch, {kind}* out, i32 n) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  {kind}* s = ({kind}*)smem + threadIdx.x;
  {kind}* g = scratch + i;
  {kind}* m = {'g' if space == 'global' else 's'};
  (void)s; (void)g;
{body}{cas}}}
"""
    text += r"""
extern "C" __global__ void barriers(const i32* scripts, u32* out, i32 length) {
  __shared__ __align__(8) u64 bar;
  if (threadIdx.x != 0) return;
  const u32 a = shared_address(&bar);
  const i32* script = scripts + blockIdx.x * length * 2;
  u32* o = out + blockIdx.x * length;
  u64 token = 0;
  for (int i = 0; i < length; ++i) {
    const i32 op = script[2 * i], x = script[2 * i + 1];
    u32 result = 0;
    if (op == 1) barrier_init(a, x);
    else if (op == 2) {
      asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1], %2;" : "=l"(token) : "r"(a), "r"(x) : "memory");
      asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(result) : "l"(token));
    } else if (op == 3) asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(a), "r"(x) : "memory");
    else if (op == 4) asm volatile("mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;" ::"r"(a), "r"(x) : "memory");
    else if (op == 5) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], %2;" : "=l"(token) : "r"(a), "r"(x) : "memory");
      asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(result) : "l"(token));
    } else if (op == 6) {
      asm volatile("mbarrier.arrive_drop.shared::cta.b64 %0, [%1];" : "=l"(token) : "r"(a) : "memory");
      asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(result) : "l"(token));
    } else if (op == 7) result = test_parity(a, x);
    else if (op == 8) {
      asm volatile("{ .reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(result) : "r"(a), "l"(token) : "memory");
    } else if (op == 9) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(a) : "memory");
    o[i] = result;
  }
}
extern "C" __global__ void async_copies(const u8* in, u8* out, const i32* cases, i32 n) {  // cp.async with zero fill
  for (int i = threadIdx.x; i < 64 * n; i += blockDim.x) smem[i] = 0xEE;
  __syncthreads();
  if ((int)threadIdx.x < n) {
    const i32 size = cases[2 * threadIdx.x], valid = cases[2 * threadIdx.x + 1];
    const u32 to = shared_address(smem) + 64 * threadIdx.x;
    const u8* from = in + 64 * threadIdx.x;
    if (size == 4) asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
    if (size == 8) asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
    if (size == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 64 * n; i += blockDim.x) out[i] = smem[i];
}
"""
    return text


MODULES = {"tma": tma, "wgmma": wgmma, "mma": mma, "scalar": scalar, "warp": warp, "memory": memory}

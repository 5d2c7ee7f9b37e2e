"""The cases of every conformance group: launches in LAUNCH.json's form, their inputs, and what is compared how.

A case is {"name", "ptx", "launch", "compare": {buffer: "bits" | {"ulp": n, ...}}, "inputs": {buffer: bytes}}.
"""
import itertools
import numpy as np
import kernels as K

SIZES = {"u8": 1, "bf16": 2, "f16": 2, "f32": 4, "i32": 4, "u32": 4, "u64": 8, "i64": 8, "f64": 8, "u16": 2}


def rng(*seed):
    """A generator of its own a case: adding a case moves no other."""
    return np.random.default_rng(list("/".join(map(str, seed)).encode()))


def launch(entry, args, grid=(1, 1, 1), block=(128, 1, 1), cluster=(1, 1, 1), smem=0, maps=None):
    return {"entry": entry, "grid": list(grid), "block": list(block), "cluster": list(cluster), "dynamic_smem": smem,
            "tensor_maps": maps or {}, "args": args}


def ptr(name):
    return {"ptr": name}


def i32(v):
    return {"i32": int(v)}


def case(name, module, launched, inputs, compare):
    return {"name": name, "ptx": module, "launch": launched, "inputs": {k: bytes(v) for k, v in inputs.items()}, "compare": compare}


def random_map(r, rank, dtype, swizzle, inner_bytes, strided):
    size = SIZES[dtype]
    box = [inner_bytes // size] + [int(r.integers(1, [0, 40, 8, 4, 3][i] + 1)) for i in range(1, rank)]
    while np.prod(box) * size > 3072 and max(box[1:], default=1) > 1:
        box[int(np.argmax(box[1:])) + 1] //= 2
    element_strides = [1] + [int(r.integers(1, 4)) if strided else 1 for _ in range(rank - 1)]
    dims, strides, at = [], [], 0
    for i in range(rank):
        extent = int(r.integers(max(1, box[i] // 2), box[i] * element_strides[i] + 3))
        dims.append(extent)
        at = (extent * size + 15) // 16 * 16 if i == 0 else at * extent
        if i + 1 < rank:
            strides.append(at)
    total = at if rank == 1 else strides[-1] * dims[-1]
    return dict(buffer="global", offset=0, dtype=dtype, dims=dims, strides=strides, box=box, element_strides=element_strides,
                swizzle=swizzle, oob="zero"), total


def box_bytes(m):
    n = SIZES[m["dtype"]]
    for i, (b, s) in enumerate(zip(m["box"], m["element_strides"])):
        n *= b if i == 0 else -(-b // s)
    return n


def pick_coordinates(r, m, edge, low=None):
    """Start coordinates; the innermost is a multiple of 16 bytes, else the GPU faults (cases "misaligned")."""
    step = 16 // SIZES[m["dtype"]]
    c = []
    for d, b in zip(m["dims"], m["box"]):
        first, last = (-b if low is None else low, d + 1) if edge else (0, max(1, d - b + 1))
        c.append(int(r.integers(first, last)))
    c[0] = c[0] // step * step
    return c + [0] * (5 - len(c))


def tma_cases():
    for rank, swizzle, dtype in itertools.product(range(1, 6), (0, 32, 64, 128), ("u8", "bf16", "f32", "i64")):
        if rank == 1 and swizzle and dtype != "bf16":
            continue
        if rank in (4, 5) and dtype in ("u8", "i64"):
            continue
        r = rng("load", rank, swizzle, dtype)
        inner = swizzle or 16 * int(r.integers(1, 9))
        m, total = random_map(r, rank, dtype, swizzle, inner, strided=(dtype == "f32"))
        if dtype in ("bf16", "f32") and rank % 2 == 0:
            m["oob"] = "nan"
        for edge in (False, True):
            c = pick_coordinates(r, m, edge)
            n = box_bytes(m)
            dump = n + 256
            yield case(f"load rank {rank} swizzle {swizzle} {dtype}{' edge' if edge else ''}", "tma",
                       launch(f"load_{rank}", [{"tensor_map": "m"}, ptr("out"), ptr("completed")] + [i32(x) for x in c] + [i32(n), i32(dump), i32(0)],
                              smem=dump, maps={"m": m}),
                       {"global": r.integers(0, 256, total, dtype=np.uint8), "out": np.zeros(dump, np.uint8), "completed": np.zeros(4, np.uint8)},
                       {"out": "bits", "completed": "bits"})
    # The questions: an inner box narrower than the swizzle span; a destination aligned to 128 bytes only.
    for swizzle in (32, 64, 128):
        r = rng("narrow", swizzle)
        for inner, destination in ((swizzle // 2, 0), (swizzle, 128), (swizzle, 384)):
            m, total = random_map(r, 2, "bf16", swizzle, inner, False)
            m["dims"], m["box"] = [m["box"][0], 24], [m["box"][0], 16]
            total = m["strides"][0] * 24
            n = box_bytes(m)
            dump = 16 * swizzle + 1024
            yield case(f"load swizzle {swizzle} inner {inner} destination {destination}", "tma",
                       launch("load_2", [{"tensor_map": "m"}, ptr("out"), ptr("completed")] + [i32(0)] * 5 + [i32(n), i32(dump), i32(destination)],
                              smem=dump, maps={"m": m}),
                       {"global": r.integers(0, 256, total, dtype=np.uint8), "out": np.zeros(dump, np.uint8), "completed": np.zeros(4, np.uint8)},
                       {"out": "bits", "completed": "bits"})
    # The innermost start coordinate must lie on 16 bytes: anything else is an illegal instruction.
    for entry, c0, dtype in (("load_2", 1, "f32"), ("load_2", -8, "u8"), ("load_3", 4, "bf16"), ("load_2", 8, "bf16"), ("store_2", 2, "f32"), ("add_3", 1, "u32")):
        r = rng("misaligned", entry, c0)
        rank = int(entry[-1])
        m, total = random_map(r, rank, dtype, 64, 64, False)
        n = box_bytes(m)
        c = [i32(c0)] + [i32(0)] * 4
        if entry.startswith("load"):
            yield case(f"misaligned {entry} {dtype} at {c0}", "tma",
                       launch(entry, [{"tensor_map": "m"}, ptr("out"), ptr("completed")] + c + [i32(n), i32(n), i32(0)], smem=n, maps={"m": m}),
                       {"global": r.integers(0, 256, total, dtype=np.uint8), "out": np.zeros(n, np.uint8), "completed": np.zeros(4, np.uint8)},
                       {"out": "bits", "completed": "bits"})
        else:
            yield case(f"misaligned {entry} {dtype} at {c0}", "tma", launch(entry, [{"tensor_map": "m"}, ptr("in")] + c + [i32(n)], smem=n, maps={"m": m}),
                       {"global": r.integers(0, 256, total, dtype=np.uint8), "in": r.integers(0, 256, n, dtype=np.uint8)}, {"global": "bits"})
    # Out-of-bounds bytes count: the full box completes, one granule more does not. (Expecting the clipped count
    # completes too, early and unstably: the bytes are reported in pieces.)
    r = rng("oob bytes")
    m = dict(buffer="global", offset=0, dtype="bf16", dims=[64, 5], strides=[128], box=[64, 8], element_strides=[1, 1], swizzle=128, oob="zero")
    for expected in (64 * 8 * 2, 64 * 8 * 2 + 16):
        yield case(f"load out of bounds expecting {expected} bytes", "tma",
                   launch("load_2", [{"tensor_map": "m"}, ptr("out"), ptr("completed")] + [i32(0)] * 5 + [i32(expected), i32(1024), i32(0)], smem=1024, maps={"m": m}),
                   {"global": r.integers(0, 256, 640, dtype=np.uint8), "out": np.zeros(1024, np.uint8), "completed": np.zeros(4, np.uint8)},
                   {"out": "bits", "completed": "bits"})
    ops = {"store": ("u8", "bf16", "f32"), "add": ("u32", "i32", "u64", "f32", "f16", "bf16"), "min": ("u32", "i32", "i64", "f16", "bf16"),
           "max": ("u32", "i32", "u64", "f16", "bf16"), "inc": ("u32",), "dec": ("u32",), "and": ("u32", "u64"), "or": ("u32",), "xor": ("u64",)}
    for op, dtypes in ops.items():
        for dtype in dtypes:
            for rank in range(1, 6) if op == "store" else (2, 3):
                r = rng(op, dtype, rank)
                swizzle = int(r.choice([0, 32, 64, 128])) if rank > 1 else 0
                m, total = random_map(r, rank, dtype, swizzle, swizzle or 64, False)
                for past in (False, True):
                    c = pick_coordinates(r, m, past, low=0)
                    n = box_bytes(m)
                    make = {"bf16": lambda k: (np.float32(r.standard_normal(k)).view(np.uint32) >> 16).astype(np.uint16),
                            "f16": lambda k: r.standard_normal(k).astype(np.float16), "f32": lambda k: r.standard_normal(k).astype(np.float32)
                            }.get(dtype, lambda k: r.integers(0, 2**32, k * SIZES[dtype] // 4 + 1, dtype=np.uint32))
                    source = make(n // SIZES[dtype]).tobytes()[:n].ljust(n, b"\0")
                    target = make(total // SIZES[dtype] + 1).tobytes()[:total].ljust(total, b"\0")
                    yield case(f"{op} rank {rank} swizzle {swizzle} {dtype}{' past the end' if past else ''}", "tma",
                               launch(f"{op}_{rank}", [{"tensor_map": "m"}, ptr("in")] + [i32(x) for x in c] + [i32(n)], smem=n, maps={"m": m}),
                               {"global": target, "in": source}, {"global": "bits"})
    for ranks, mask in ((2, 3), (2, 1), (2, 2), (4, 15), (4, 5), (4, 8)):
        r = rng("multicast", ranks, mask)
        m = dict(buffer="global", offset=0, dtype="bf16", dims=[64, 20], strides=[128], box=[64, 16], element_strides=[1, 1], swizzle=128, oob="zero")
        yield case(f"multicast cluster {ranks} mask {mask}", "tma",
                   launch("multicast", [{"tensor_map": "m"}, ptr("out"), ptr("completed"), i32(0), i32(8), i32(mask), i32(ranks - 1), i32(2048), i32(0), i32(2048)],
                          grid=(ranks, 1, 1), cluster=(ranks, 1, 1), smem=2048, maps={"m": m}),
                   {"global": r.integers(0, 256, 2560, dtype=np.uint8), "out": np.zeros(2048 * ranks, np.uint8), "completed": np.zeros(4 * ranks, np.uint8)},
                   {"out": "bits", "completed": "bits"})
    for n, source, destination in ((16, 0, 0), (512, 64, 128), (1008, 16, 32)):
        r = rng("bulk", n)
        yield case(f"bulk {n} bytes", "tma", launch("bulk", [ptr("in"), ptr("out"), ptr("back"), ptr("completed"), i32(n), i32(source), i32(destination), i32(1280)], smem=1280),
                   {"in": r.integers(0, 256, 1280, dtype=np.uint8), "out": np.zeros(1280, np.uint8), "back": np.full(1280, 7, np.uint8), "completed": np.zeros(4, np.uint8)},
                   {"out": "bits", "back": "bits", "completed": "bits"})
    for ranks in (2, 4):
        yield case(f"peer copy in a cluster of {ranks}", "tma", launch("peer_copy", [ptr("out"), ptr("completed"), i32(256)], grid=(ranks, 1, 1), cluster=(ranks, 1, 1), smem=512),
                   {"out": np.zeros(256 * ranks, np.uint8), "completed": np.zeros(4 * ranks, np.uint8)}, {"out": "bits", "completed": "bits"})


def codes(r, kind, dtype, count):
    """Random operand codes: kind normal, wide (exponents all over), special (infinities, NaNs, subnormals, zeros)."""
    bits = {"bf16": 16, "f16": 16, "tf32": 32, "f32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}[dtype]
    if dtype in ("s8", "u8"):
        return r.integers(0, 256, count, dtype=np.uint8)
    if kind == "wide" and dtype not in ("bf16", "tf32", "f32"):
        out = r.integers(0, 2**bits, count, dtype=np.uint32)
        top = {"f16": 0x7C00, "e4m3": 0x7F, "e5m2": 0x7C}[dtype]
        low = {"f16": 0x3FF, "e4m3": 0, "e5m2": 3}[dtype]
        bad = (out & top) == top if dtype != "e4m3" else (out & 0x7F) == 0x7F
        out[bad] &= ~np.uint32(top) | np.uint32(low)
        return out.astype({8: np.uint8, 16: np.uint16}[bits])
    if kind == "special":
        pool = {"bf16": [0, 0x8000, 1, 0x8001, 0x7F80, 0xFF80, 0x7FC0, 0x3F80, 0xBF80, 0x0080, 0x7F7F], "f16": [0, 0x8000, 1, 0x8001, 0x7C00, 0xFC00, 0x7E00, 0x3C00, 0x0400, 0x7BFF],
                "tf32": [0, 0x80000000, 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F800000, 0x3F801FFF, 0x00002000], "e4m3": [0, 0x80, 1, 0x81, 0x7F, 0x7E, 0x38, 0xB8],
                "e5m2": [0, 0x80, 1, 0x7C, 0xFC, 0x7F, 0x7B, 0x3C]}[dtype]
        # Special values are rare, so that most outputs stay finite.
        out = codes(r, "normal", dtype, count)
        where = r.random(count) < 0.02
        out[where] = r.choice(np.array(pool, dtype=np.uint32), int(where.sum())).astype(out.dtype)
        return out
    v = r.standard_normal(count).astype(np.float32)
    if kind == "wide":
        v *= np.exp2(r.integers(-30, 30, count)).astype(np.float32)
    if dtype == "bf16":
        return (v.view(np.uint32) >> 16).astype(np.uint16)
    if dtype == "f16":
        return v.astype(np.float16).view(np.uint16)
    if dtype in ("tf32", "f32"):
        return v.view(np.uint32)
    out = r.integers(0, 256, count, dtype=np.uint8)  # FP8: any finite code is about normal
    out[(out & 0x7F) >= (0x7F if dtype == "e4m3" else 0x7C)] &= 0x77
    return out


def swz(mode, a):
    return {0: a, 32: a ^ (a >> 3 & 0x10), 64: a ^ (a >> 3 & 0x30), 128: a ^ (a >> 3 & 0x70)}[mode]


def operand_image(matrix, size, mode, mn_major):
    """Bytes of a shared-memory image of matrix [rows][k] and (leading, stride) byte offsets of its descriptor."""
    rows, k = matrix.shape
    T = 16 // size
    places = {}
    if not mn_major:
        span = mode or 16
        lead, stride = (rows // 8 * 128, 128) if mode == 0 else (16, 8 * span)
        for row in range(rows):
            for b in range(k * size):
                linear = (row // 8) * stride + (row % 8) * span + ((b // 16) * lead + b % 16 if mode == 0 else b)
                places[swz(mode, linear)] = (row, b)
    else:
        w = (mode or 16) // 16
        if mode == 0:
            stride, lead = 128 * (k // 8), 128
            at = lambda row, kk: (row % T) * size + (row // T) * stride + (kk % 8) * 16 + (kk // 8) * lead
        else:
            lead, stride = 8 * w * 16 * (k // 8), 8 * w * 16
            at = lambda row, kk: (row % T) * size + ((row // T) % w) * 16 + (row // (T * w)) * lead + (kk % 8) * w * 16 + (kk // 8) * stride
        for row in range(rows):
            for kk in range(k):
                for b in range(size):
                    places[swz(mode, at(row, kk) + b)] = (row, kk * size + b)
    raw = np.ascontiguousarray(matrix).view(np.uint8).reshape(rows, k * size)
    image = np.full((max(places) // 1024 + 1) * 1024, 0xEE, np.uint8)
    for address, (row, b) in places.items():
        image[address] = raw[row, b]
    return image, lead, stride


def descriptor(offset, lead, stride, mode):
    return offset >> 4 | (lead >> 4) << 16 | (stride >> 4) << 32 | {0: 0, 128: 1, 64: 2, 32: 3}[mode] << 62


def wgmma_cases():
    for v in K.WGMMA_VARIANTS:
        t, n, rs, negate, ta, tb = v
        d, a, b, k, size, per = K.WGMMA_TYPES[t]
        regs = n // per
        runs = [("normal", 128 if k * size <= 128 else 0)]
        if t == "f32_bf16" and n == 64:
            runs = [("normal", m) for m in (0, 32, 64, 128)]
        if not (ta or tb or negate) and n == 64:
            runs += [("wide", 128), ("special", 128)]
        for kind, mode in runs:
            # An MN-major pattern needs rows for a whole atom; N = 8..24 has none in the wide modes.
            r = rng("wgmma", K.wgmma_name(v), kind, mode)
            A = codes(r, kind, a, 64 * k).reshape(64, k)
            B = codes(r, kind, b, n * k).reshape(n, k)
            a_image, a_lead, a_stride = operand_image(A, size, mode, ta)
            b_image, b_lead, b_stride = operand_image(B, size, mode, tb)
            image = np.concatenate([a_image, b_image])
            fragments = np.zeros((128, 4 * 4 // size), A.dtype)
            for th in range(128):
                for j in range(4):
                    for e in range(4 // size):
                        lane = th % 32
                        per_reg = 4 // size
                        fragments[th, j * per_reg + e] = A[16 * (th // 32) + lane // 4 + 8 * (j & 1), per_reg * (lane % 4) + e + 4 * per_reg * (j >> 1)]
            if d == "s32":
                init = rng("init", regs).integers(0, 2**32, 128 * regs, dtype=np.uint32)
            elif d == "f32":
                init = codes(rng("init", regs), "normal", "f32", 128 * regs)
            else:
                init = r.standard_normal(128 * regs * 2).astype(np.float16).view(np.uint32)
            for scale_d in ((1, 0) if kind == "normal" and mode == 128 and n == 64 else (1,)):
                to_signed = lambda x: x - 2**64 if x >= 2**63 else x
                yield case(f"{K.wgmma_name(v)} {kind} swizzle {mode} scale_d {scale_d}", "wgmma",
                           launch(K.wgmma_name(v), [ptr("in"), ptr("a"), ptr("d"), {"i64": to_signed(descriptor(0, a_lead, a_stride, mode))},
                                                    {"i64": to_signed(descriptor(len(a_image), b_lead, b_stride, mode))}, i32(len(image)), i32(scale_d)],
                                  block=(128, 1, 1), smem=len(image)),
                           {"in": image, "a": fragments.tobytes(), "d": init.tobytes()}, {"d": "bits"})


def mma_cases():
    for name, (shape, d, a, b, na, nb, nd) in K.MMA.items():
        for kind in ("normal", "wide", "special"):
            r = rng("mma", name, kind)
            blocks = 4
            pack = lambda t, regs: codes(r, kind, t, blocks * 32 * regs * 4 // {"bf16": 2, "f16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}[t]).tobytes()
            c = (r.integers(0, 2**32, blocks * 32 * nd, dtype=np.uint32) if d == "s32" else codes(r, "normal", "f32", blocks * 32 * nd) if d == "f32"
                 else r.standard_normal(blocks * 64 * nd).astype(np.float16)).tobytes()
            yield case(f"mma {name} {kind}", "mma", launch(f"mma_{name}", [ptr("a"), ptr("b"), ptr("c"), ptr("d")], grid=(blocks, 1, 1), block=(32, 1, 1)),
                       {"a": pack(a, na), "b": pack(b, nb), "c": c, "d": bytes(blocks * 128 * nd)}, {"d": "bits"})
    for count in (1, 2, 4):
        for t in ("", "t"):
            r = rng("matrix", count, t)
            rows = r.permutation(128)[:32].astype(np.uint32)
            data = r.integers(0, 2**32, 512, dtype=np.uint32)
            yield case(f"ldmatrix x{count}{' trans' if t else ''}", "mma", launch(f"ldmatrix_{count}{t}", [ptr("in"), ptr("rows"), ptr("out")], block=(32, 1, 1), smem=2048),
                       {"in": data, "rows": rows, "out": bytes(128 * count)}, {"out": "bits"})
            yield case(f"stmatrix x{count}{' trans' if t else ''}", "mma", launch(f"stmatrix_{count}{t}", [ptr("in"), ptr("rows"), ptr("out")], block=(32, 1, 1), smem=2048),
                       {"in": data[:32 * count].tobytes(), "rows": rows, "out": bytes(2048)}, {"out": "bits"})
    yield case("movmatrix", "mma", launch("movmatrix", [ptr("in"), ptr("out")], block=(32, 1, 1)),
               {"in": rng("movmatrix").integers(0, 2**32, 32, dtype=np.uint32), "out": bytes(128)}, {"out": "bits"})


F32_SPECIAL = np.array([0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x80800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000,
                        0xFFC00000, 0x7F800001, 0x3F800000, 0xBF800000, 0x3F7FFFFF, 0x3F800001, 0x3F808000, 0x3F818000, 0x3F801000, 0x3F803000, 0x33800000,
                        0x387FC000, 0x387FE000, 0x33000000, 0x33000001, 0x477FE000, 0x477FF000, 0x43E00000, 0x43E80000, 0x43E7FFFF, 0x4F000000, 0xCF000000,
                        0x4F800000, 0x4EFFFFFF, 0x3F000000, 0xBF000000, 0x3FC00000, 0x40200000, 0xC0200000, 0x4B000001, 0x4B800000, 0x3B000000, 0x3A800000], np.uint32)


def f32_values(r, count):
    v = r.integers(0, 2**32, count, dtype=np.uint32)
    n = (r.standard_normal(count) * np.exp2(r.integers(-12, 12, count))).astype(np.float32).view(np.uint32)
    return np.where(r.random(count) < 0.5, v, n)


def scalar_cases():
    def f32_columns(r, arity, count):
        grids = list(itertools.product(F32_SPECIAL[:20], repeat=arity)) if arity > 1 else [(x,) for x in F32_SPECIAL]
        if len(grids) > count // 2:
            grids = [grids[i] for i in r.permutation(len(grids))[:count // 2]]
        columns = [np.array([g[i] for g in grids], np.uint32) for i in range(arity)]
        return [np.concatenate([c, f32_values(r, count - len(c))]) for c in columns]

    def half_columns(r, arity, count):
        return [np.where(r.random(count) < 0.3, r.choice(np.array([0, 0x80000000, 0x00017C00, 0x7E00FC00, 0x3C007BFF, 0x04000001, 0x7F80FF80, 0x7FC07F7F, 0x3F80BF80], np.uint32), count),
                         r.integers(0, 2**32, count, dtype=np.uint32)).astype(np.uint32) for _ in range(arity)]

    def int_columns(r, arity, count):
        pool = np.array([0, 1, 2, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 31, 32, 33, 255, 256, 0x10000, 0xFFFF8000, 7], np.uint32)
        return [np.where(r.random(count) < 0.5, r.choice(pool, count), r.integers(0, 2**32, count, dtype=np.uint32)).astype(np.uint32) for _ in range(arity)]

    def wide_columns(r, arity, count):
        out = []
        for _ in range(arity):
            d = (r.standard_normal(count) * np.exp2(r.integers(-60, 60, count))).view(np.uint64)
            pool = np.array([0, 1, 2**63, 2**63 - 1, 2**64 - 1, 2**32, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0x3FF0000000000000, 40, 65], np.uint64)
            pick = r.random(count)
            v = np.where(pick < 0.4, d, np.where(pick < 0.7, r.integers(0, 2**63, count, dtype=np.uint64) * np.uint64(2) + np.uint64(1), r.choice(pool, count)))
            out.append(v.astype(np.uint64))
        return out

    def integer_division(columns, arity):
        # Integer division by zero is unspecified by the ISA.
        if arity >= 2:
            columns[1] = np.where(columns[1] == 0, columns[1].dtype.type(3), columns[1])
        return columns

    groups = [("f32_unary", K.F32_UNARY_EXACT, 1, f32_columns, 512, 4, 4), ("f32_binary", K.F32_BINARY, 2, f32_columns, 512, 4, 4),
              ("f32_ternary", K.F32_TERNARY, 3, f32_columns, 1024, 4, 4), ("half_unary", K.HALF_UNARY, 1, half_columns, 512, 4, 4),
              ("half_binary", K.HALF_BINARY, 2, half_columns, 512, 4, 4), ("half_ternary", K.HALF_TERNARY, 3, half_columns, 512, 4, 4),
              ("int_unary", K.INT_UNARY, 1, int_columns, 256, 4, 4), ("int_binary", K.INT_BINARY, 2, int_columns, 384, 4, 4),
              ("int_ternary", K.INT_TERNARY, 3, int_columns, 384, 4, 4), ("wide_unary", K.WIDE_UNARY, 1, wide_columns, 256, 8, 4),
              ("wide_binary", K.WIDE_BINARY, 2, wide_columns, 256, 8, 8), ("wide_ternary", K.WIDE_TERNARY, 3, wide_columns, 256, 8, 8)]
    for name, ops, arity, columns, count, _, out_size in groups:
        r = rng("scalar", name)
        values = columns(r, arity, count)
        if name.startswith(("int", "wide")):
            values = integer_division(values, arity)
        inputs = {x: v.tobytes() for x, v in zip("abc", values)}
        inputs["out"] = bytes(count * len(ops) * out_size)
        yield case(name, "scalar", launch(name, [ptr(x) for x in "abc"[:arity]] + [ptr("out"), i32(count)], grid=(-(-count // 128), 1, 1)), inputs, {"out": "bits"})
    r = rng("approx")
    values = np.concatenate([F32_SPECIAL, (r.random(1500) * 40 - 20).astype(np.float32).view(np.uint32), f32_values(r, 500)])
    yield case("f32_approx", "scalar", launch("f32_approx", [ptr("a"), ptr("out"), i32(len(values))], grid=(-(-len(values) // 128), 1, 1)),
               {"a": values, "out": bytes(4 * len(values) * len(K.F32_UNARY_APPROX))}, {"out": {"approx": [o.split()[0] for o in K.F32_UNARY_APPROX]}})


def warp_cases():
    r = rng("warp")
    n = 64
    masks = np.where(np.arange(n) < 16, 0xFFFFFFFF, r.integers(1, 2**32, n)).astype(np.uint32)
    values = r.integers(0, 2**32, n * 32, dtype=np.uint32)
    # A shuffle that reads a lane outside the mask is unspecified, so partial masks read within themselves.
    bs = np.zeros((n, 32), np.uint32)
    cs = np.zeros(n, np.uint32)
    for i in range(n):
        cs[i] = r.choice([31, 0, 0x1E1F, 0x181F, 0x1800, 0x101F]) if masks[i] == 0xFFFFFFFF else 31
        bs[i] = r.integers(0, 33, 32) if masks[i] == 0xFFFFFFFF else 0
    yield case("shuffles", "warp", launch("shuffles", [ptr("values"), ptr("bs"), ptr("cs"), ptr("masks"), ptr("out")], grid=(n, 1, 1), block=(32, 1, 1)),
               {"values": values, "bs": bs.tobytes(), "cs": cs, "masks": masks, "out": bytes(n * 32 * 32)}, {"out": "bits"})
    small = r.integers(0, 4, n * 32, dtype=np.uint32)
    small[:32] = 5
    votes = np.where(np.arange(n * 32) // 32 % 2 == 0, small, values).astype(np.uint32)
    yield case("votes", "warp", launch("votes", [ptr("values"), ptr("masks"), ptr("out")], grid=(n, 1, 1), block=(32, 1, 1)),
               {"values": votes, "masks": masks, "out": bytes(n * 32 * 4 * 19)}, {"out": "bits"})
    yield case("special registers and the shared window", "warp", launch("specials", [ptr("out")], grid=(4, 1, 1), block=(32, 1, 1), cluster=(2, 1, 1), smem=2048),
               {"out": bytes(128)}, {"out": "bits"})


def memory_cases():
    for width, ops, dtype in ((32, K.ATOMS32, np.uint32), (64, K.ATOMS64, np.uint64)):
        for space in ("global", "shared"):
            r = rng("atoms", width, space)
            n = 256
            if width == 32:
                columns = [np.where(r.random(n) < 0.5, f32_values(r, n), r.choice(F32_SPECIAL, n)).astype(dtype) for _ in range(3)]
            else:
                columns = [np.where(r.random(n) < 0.5, r.standard_normal(n).view(np.uint64), r.integers(0, 2**63, n, dtype=np.uint64)).astype(dtype) for _ in range(3)]
            columns[2][::2] = columns[0][::2]
            yield case(f"atoms {space} {width}", "memory",
                       launch(f"atoms_{space}_{width}", [ptr(x) for x in ("a", "b", "c", "scratch", "out")] + [i32(n)], grid=(2, 1, 1), smem=1024),
                       {"a": columns[0], "b": columns[1], "c": columns[2], "scratch": bytes(n * width // 8), "out": bytes(n * 2 * (len(ops) + 1) * width // 8)}, {"out": "bits"})
    # Random legal mbarrier scripts, by the ISA's state machine.
    length, n = 24, 48
    scripts = np.zeros((n, length, 2), np.int32)
    for s in range(n):
        r = rng("barrier", s)
        expected = int(r.integers(1, 6))
        scripts[s, 0] = (1, expected)
        pending, tx, fresh = expected, 0, True
        for i in range(1, length):
            choices = [7, 7, 8 if not fresh else 7]
            if pending > 1 or tx == 0 or pending >= 1:
                choices += [2]
            if pending >= 1:
                choices += [3, 5]
            if tx > 0:
                choices += [4, 4, 4]
            if expected > 1 and pending > 0:
                choices += [6]
            op = int(r.choice(choices))
            x = 0
            if pending == 0 and op in (2, 3, 5, 6):  # the phase waits for bytes only
                op, x = (4, tx) if tx > 0 else (7, 0)
            if op == 2:
                x = int(r.integers(1, pending + 1))
                pending -= x
                fresh = False
            elif op == 3:
                x = 16 * int(r.integers(1, 5))
                tx += x
            elif op == 4:
                x = x or int(r.choice([tx, max(1, tx // 2)]))
                tx -= x
            elif op == 5:
                x = 16 * int(r.integers(1, 5))
                tx += x
                pending -= 1
                fresh = False
            elif op == 6:
                expected -= 1
                pending -= 1
                fresh = False
            elif op == 7:
                x = int(r.integers(0, 2))
            if pending == 0 and tx == 0:
                pending = expected
            scripts[s, i] = (op, x)
    yield case("mbarrier scripts", "memory", launch("barriers", [ptr("scripts"), ptr("out"), i32(length)], grid=(n, 1, 1), block=(32, 1, 1)),
               {"scripts": scripts.tobytes(), "out": bytes(4 * n * length)}, {"out": "bits"})
    sizes = np.array([(s, v) for s in (4, 8, 16) for v in (0, 1, 3, s // 2, s - 1, s)], np.int32)
    r = rng("async")
    yield case("cp.async with zero fill", "memory", launch("async_copies", [ptr("in"), ptr("out"), ptr("cases"), i32(len(sizes))], block=(32, 1, 1), smem=64 * len(sizes)),
               {"in": r.integers(0, 256, 64 * len(sizes), dtype=np.uint8), "out": bytes(64 * len(sizes)), "cases": sizes.tobytes()}, {"out": "bits"})


GROUPS = {"tma": tma_cases, "wgmma": wgmma_cases, "mma": mma_cases, "scalar": scalar_cases, "warp": warp_cases, "memory": memory_cases}

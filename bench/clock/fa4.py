#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The launch of a forward kernel of FlashAttention-4, for the emulator's clock.

    bench/clock/fa4.py DEPTH none|causal LENGTH KERNEL.ptx -o LAUNCH.json [--batch N] [--heads N]
                       [--sms N]
    attnjit emulate KERNEL.ptx --launch LAUNCH.json --timing sm_100a

KERNEL.ptx is what bench/clock/fa4_ptx.py makes of FlashAttention-4 for bf16, 2 query tiles of 128
rows and key tiles of 128: a persistent grid without a mask, a pair of CTAs there at depth 128, and
one CTA a tile, longest first, with a causal mask. It may write the LSE. A persistent grid is one of a B200's 148 SMs; a GB300 has 152. The problem is that of its
benchmark: 32k tokens and 2048 / DEPTH heads. Of its own there is nothing here but the order of its
kernel's arguments.
"""
import argparse
import json
import math
import re
import struct

TOKENS, HIDDEN, SMS, TILE = 32768, 2048, 148, 256
LSE_BYTES = 40  # a pointer, extents and strides


def divisor(d):
    """A division by d as multiplication and shifts, as CuTe's FastDivmodDivisor holds it."""
    log = (d - 1).bit_length()
    magic = ((1 << 32) * ((1 << log) - d)) // d + 1
    return struct.pack("<IIBBH", d, magic & 0xffffffff, min(log, 1), max(log - 1, 0), 0)


def recipe(depth, causal, batch, length, heads, sms, ptx):
    """The launch: what FlashAttention-4's host code would hand to its kernel."""
    pair = not causal and depth == 128
    entry = re.search(r"\.entry\s+(\S+?)\(", ptx).group(1)
    row, rows = 2 * depth, [batch, length, heads, depth]

    def tensor_map(name, box):
        return {"buffer": name, "dtype": "bf16", "dims": [depth, length, heads, batch],
                "strides": [row * heads, row, row * heads * length], "box": box + [1, 1],
                "element_strides": [1, 1, 1, 1], "swizzle": 128, "l2_bytes": 128, "oob": "zero"}

    def pack(data):
        return {"bytes": data.hex()}

    # Parameters that are bytes: a tensor's extents, its LSE, tensor maps, layouts.
    sizes = [int(n) for n in re.findall(r"\.param \.align \d+ \.b8 \w+\[(\d+)\]", ptx)]
    shape = pack(struct.pack("<IIII", length, depth, heads, batch))
    transposed = pack(struct.pack("<IIII", depth, length, heads, batch))
    args = [shape, shape, transposed, shape]
    buffers = {n: {"shape": rows, "dtype": "bf16", "fill": 0} for n in "qkvo"}
    lse = sizes[4] == LSE_BYTES
    if lse:
        buffers["lse"] = {"shape": [batch, heads, length], "dtype": "f32", "fill": 0}
        extents = struct.pack("<IIIIqq", length, heads, batch, 0, length, length * heads)
        args += [{"ptr": "lse"}, pack(extents)]
    layout = pack(bytes(sizes[9 if lse else 8]))
    args += [{"tensor_map": n} for n in "qkvo"]
    blocks = length // TILE
    args += [{"f32": math.log2(math.e) / math.sqrt(depth)}, layout, layout]
    if causal:
        head_bytes = length * 2 * depth * 2
        swizzle = 1 << max(0, (50 * 2**20 // head_bytes).bit_length() - 1)
        left = batch * heads % swizzle
        args += [{"i32": n} for n in (blocks * heads * batch, 1, blocks, heads, batch, swizzle)]
        args += [pack(divisor(n)) for n in (heads, swizzle, swizzle * blocks, max(left, 1))]
        args += [{"i32": batch * heads // swizzle}, pack(divisor(1)), {"i32": 1}]
        grid = blocks * heads * batch
    else:
        clusters = blocks // 2 if pair else blocks
        args += [pack(divisor(clusters)), pack(divisor(heads)),
                 {"i32": clusters * heads * batch}, {"i32": 2 if pair else 1}]
        grid = min(sms, blocks * heads * batch)
    return {
        "entry": entry, "grid": [grid, 1, 1], "block": [512, 1, 1],
        "cluster": [2 if pair else 1, 1, 1], "dynamic_smem": 232448,
        "buffers": buffers,
        "tensor_maps": {"q": tensor_map("q", [64, 128]),
                        "k": tensor_map("k", [64, 64 if pair else 128]),
                        "v": tensor_map("v", [64, 128]), "o": tensor_map("o", [64, 128])},
        "args": args,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("depth", type=int)
    parser.add_argument("mask", choices=["none", "causal"])
    parser.add_argument("length", type=int)
    parser.add_argument("ptx")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--heads", type=int)
    parser.add_argument("--sms", type=int, default=SMS)
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    with open(options.ptx, encoding="utf-8") as file:
        ptx = file.read()
    launch = recipe(options.depth, options.mask == "causal",
                    options.batch or TOKENS // options.length, options.length,
                    options.heads or HIDDEN // options.depth, options.sms, ptx)
    with open(options.output, "w", encoding="utf-8") as file:
        json.dump(launch, file, indent=1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The launch of FlashAttention-3's forward kernel of depth 128, for the emulator and its clock.

    bench/clock/fa3.py none|causal LENGTH KERNEL.ptx -o LAUNCH.json [--batch N] [--heads N]
    attnjit emulate KERNEL.ptx --launch LAUNCH.json --timing sm_90a

KERNEL.ptx is what nvcc 13.0 makes of hopper/instantiations/flash_fwd_hdim128_bf16_sm90.cu of
FlashAttention-3 (commit 0251105a), with FLASHATTENTION_DISABLE_VARLEN, _LOCAL, _SOFTCAP, _APPENDKV
and _BACKWARD, CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED, CUTLASS_ENABLE_GDC_FOR_SM90 and NDEBUG, by
-O3 --use_fast_math -gencode arch=compute_90a,code=compute_90a. Without a mask a CTA goes through
its tiles in a fixed order; with a causal mask CTAs claim them. docs/clock.md has what the clock
says of it. The problem is that of bench/sm90_bench.py: 16k tokens and 16 heads. --values FOLDER
makes Q, K and V files of random numbers for `attnjit emulate` (which writes O to o.npy there), and
needs numpy.

Of FlashAttention-3 there is nothing here but where its kernel's one parameter, a structure, holds
what: offsets of words, as its host code filled them for three problems and both masks.
"""
import argparse
import json
import math
import pathlib
import re
import struct

TOKENS, HEADS, DEPTH, SMS = 16384, 16, 128, 132
PARAMETER_BYTES, MAP_BYTES = 2944, 128
L2_BYTES = 32 << 20  # of K and V, which the heads of a section share


def divisor(d):
    """A division by d as a multiplication and a shift, as cutlass::FastDivmod holds it."""
    if d == 1:
        return [1, 0, 0]
    power = 31 + (d - 1).bit_length()
    return [d, ((1 << power) + d - 1) // d, power - 32]


class Structure:
    """The parameter's bytes, with pointers and tensor maps among them."""

    def __init__(self):
        self.data = bytearray(PARAMETER_BYTES)
        self.arguments = {}  # by offset: bytes, argument

    def words(self, offset, *values):
        struct.pack_into(f"<{len(values)}I", self.data, offset, *(v & 0xffffffff for v in values))

    def longs(self, offset, *values):
        struct.pack_into(f"<{len(values)}q", self.data, offset, *values)

    def pointer(self, offset, buffer, within=0):
        self.arguments[offset] = (8, {"ptr": buffer, "offset": within})

    def tensor_map(self, offset, name):
        self.arguments[offset] = (MAP_BYTES, {"tensor_map": name})

    def args(self):
        made, at = [], 0
        end = (len(self.data), (0, None))
        for offset, (size, argument) in [*sorted(self.arguments.items()), end]:
            if at < offset:
                made.append({"bytes": self.data[at:offset].hex()})
            made += [argument] if argument else []
            at = offset + size
        return made


def parameter(causal, batch, length, heads, q_tiles):
    made = Structure()
    shape, strides = (length, DEPTH, heads, batch), (heads * DEPTH, DEPTH, length * heads * DEPTH)
    for offset, buffer in ((0, "q"), (88, "k"), (136, "v"), (2048, "o"), (2240, "lse")):
        made.pointer(offset, buffer)
    for offset in (8, 48, 96, 288, 2056, 2112):
        made.words(offset, *shape)
    for offset in (24, 64, 112, 152, 2080, 2136):
        made.longs(offset, *strides)
    made.words(144, DEPTH)
    made.words(188, DEPTH, heads, batch)
    made.words(336, length)
    made.words(384, batch)
    for offset in (400, 412, 424, 1904, 2072, 2128, 2368):
        made.words(offset, 1)
    struct.pack_into("<f", made.data, 1800, math.log2(math.e) / math.sqrt(DEPTH))
    made.words(1884, length - 1, 0 if causal else length - 1)  # the window
    made.longs(2248, length, heads * length)
    made.words(2272, length, heads, batch, 1)
    made.longs(2288, length, heads * length)
    made.words(2820, SMS)
    for i, name in enumerate(["q", "k", "v", "k_new", "v_new"]):
        made.tensor_map(512 + 256 * i, name)
    made.tensor_map(2432, "o")
    tiles = q_tiles * heads * batch
    if causal:
        head_bytes = length * 2 * DEPTH * 2
        section = 1 << max(0, (L2_BYTES // head_bytes).bit_length() - 1)
        left = heads * batch % section
        made.words(2856, tiles, *divisor(q_tiles), *divisor(heads), *divisor(section),
                   *divisor(section * q_tiles), *divisor(max(left, 1)), heads * batch // section)
        made.pointer(2928, "claimed")
    else:
        made.words(2852, tiles, *divisor(q_tiles), *divisor(heads), *divisor(1))
    return made


def recipe(causal, batch, length, heads, ptx):
    """The launch: what FlashAttention-3's host code would hand to its kernel."""
    pair = not causal and -(-length // 128) % 2 == 0
    kind = "Dynamic" if causal else f"ILi{2 if pair else 1}EEE.*Static"
    entry = next(name for name in re.findall(r"\.entry\s+(\S+?)\(", ptx)
                 if re.search("tupleIJNS5_1C" + kind if not causal else kind, name))
    q_tiles = -(-length // 128)
    keys = 128 if causal else 176
    row = 2 * DEPTH

    def tensor_map(buffer, rows):
        dims, strides = [DEPTH, length, heads, batch], [row * heads, row, row * heads * length]
        box = [64, rows, 1, 1]
        if buffer == "o":
            dims, strides, box = [*dims, 1], [*strides, 0], [*box, 1]
        return {"buffer": buffer, "dtype": "bf16", "dims": dims, "strides": strides, "box": box,
                "element_strides": [1] * len(dims), "swizzle": 128, "l2_bytes": 128, "oob": "zero"}

    box = keys // 2 if pair else keys
    rows = [batch, length, heads, DEPTH]
    buffers = {n: {"shape": rows, "dtype": "bf16", "fill": 0} for n in "qkvo"}
    buffers["lse"] = {"shape": [batch, heads, length], "dtype": "f32", "fill": 0}
    buffers["claimed"] = {"shape": [1], "dtype": "i32", "fill": 0}
    return {
        "entry": entry, "grid": [SMS, 1, 1], "block": [384, 1, 1],
        "cluster": [2 if pair else 1, 1, 1], "dynamic_smem": 166912 if causal else 216064,
        "buffers": buffers,
        "tensor_maps": {"q": tensor_map("q", 128), "o": tensor_map("o", 128),
                        **{n: tensor_map(n[0], box) for n in ("k", "v", "k_new", "v_new")}},
        "args": parameter(causal, batch, length, heads, q_tiles).args(),
    }


def add_values(launch, folder):
    import numpy  # pylint: disable=import-outside-toplevel
    generator = numpy.random.default_rng(20261127)
    for name in "qkv":
        values = generator.standard_normal(launch["buffers"][name]["shape"], numpy.float32)
        path = folder / f"{name}.npy"
        numpy.save(path, (values.view(numpy.uint32) >> 16).astype(numpy.uint16))
        launch["buffers"][name] = {"file": str(path.resolve()), "dtype": "bf16"}
    launch["buffers"]["o"]["fill"] = "uninitialised"
    launch["out"] = {"o": str((folder / "o.npy").resolve())}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mask", choices=["none", "causal"])
    parser.add_argument("length", type=int)
    parser.add_argument("ptx", type=pathlib.Path)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--heads", type=int, default=HEADS)
    parser.add_argument("--values", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    options = parser.parse_args()
    launch = recipe(options.mask == "causal", options.batch or TOKENS // options.length,
                    options.length, options.heads, options.ptx.read_text(encoding="utf-8"))
    if options.values:
        add_values(launch, options.values)
    options.output.write_text(json.dumps(launch, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

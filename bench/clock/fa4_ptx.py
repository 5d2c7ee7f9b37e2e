#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PTX of a forward kernel of FlashAttention-4, made without a GPU.

    pip install flash-attn-4==4.0.0b27 nvidia-cutlass-dsl==4.8.1 quack-kernels==0.5.3
    bench/clock/fa4_ptx.py DEPTH none|causal -o KERNEL.ptx [--lse] [--arch sm_103a] [--dtype e4m3]

FlashAttention-4's own host code chooses the kernel and has it compiled for tensors that hold
nothing: bf16 or e4m3, as many heads of queries as of keys, whatever the length. --lse has the
kernel write the LSE, as in training. bench/clock/fa4.py makes the launch, which fits this version's
kernels.
"""
import argparse
import glob
import os
import tempfile

SMS = 148
LENGTH, BATCH, HIDDEN = 1024, 32, 2048  # any that is not short: the kernel is the same
DTYPES = {"bf16": "bfloat16", "e4m3": "float8_e4m3fn"}


class HardwareInfo:
    """What CuTe DSL would ask the driver."""

    def __init__(self, *_, **__):
        pass

    def get_device_multiprocessor_count(self):
        return SMS

    def get_max_active_clusters(self, cluster_size):
        return SMS // cluster_size


def compile_to(folder, depth, dtype, causal, lse):
    """Has FlashAttention-4 compile its kernel; CuTe DSL leaves the PTX in the folder."""
    os.environ.update(CUTE_DSL_KEEP_PTX="1", CUTE_DSL_DUMP_DIR=folder)
    import cutlass.utils
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    cutlass.utils.HardwareInfo = HardwareInfo
    from flash_attn.cute import interface, tile_scheduler

    if hasattr(tile_scheduler, "HardwareInfo"):
        tile_scheduler.HardwareInfo = HardwareInfo
    with FakeTensorMode():
        q, k, v = (torch.empty(BATCH, LENGTH, HIDDEN // depth, depth, dtype=getattr(torch, dtype),
                               device="cuda") for _ in range(3))
        interface._flash_attn_fwd(q, k, v, causal=causal, return_lse=lse)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("depth", type=int)
    parser.add_argument("mask", choices=["none", "causal"])
    parser.add_argument("--lse", action="store_true")
    parser.add_argument("--arch", default="sm_100a")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    os.environ.update(FLASH_ATTENTION_ARCH=options.arch, CUTE_DSL_ARCH=options.arch,
                      FLASH_ATTENTION_NUM_SMS=str(SMS))
    with tempfile.TemporaryDirectory() as folder:
        compile_to(folder, options.depth, DTYPES[options.dtype],
                   options.mask == "causal", options.lse)
        files = glob.glob(os.path.join(folder, "*.ptx"))
        if len(files) != 1:
            raise SystemExit(f"{len(files)} files of PTX, and not one")
        with open(files[0], "rb") as file:
            ptx = file.read().rstrip(b"\0")  # CuTe DSL 4.5 writes the string's end
    with open(options.output, "wb") as file:
        file.write(ptx)


if __name__ == "__main__":
    main()

"""Runs kernels 20 times each on the GPU at hand: every run must give the same bits.

    repeat.py LIBATTNJIT.so

Exit code 1 if any differs, or holds a NaN. Needs PyTorch.
"""
import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "examples", "python")]
import sm90_bench
import torch

CELLS = ("bf16.64.causal.1k", "bf16.64.none.2k", "bf16.128.causal.2k", "bf16.128.none.8k", "fp16.256.causal.1k",
         "bf16.256.none.4k", "bf16.gqa8.128.causal.8k", "bf16.flex.128.window.8k", "bf16.flex.128.softcap.8k")

attnjit = sm90_bench.Attnjit(sys.argv[1])
failed = 0
for name in CELLS:
    cell = next(c for c in sm90_bench.cells() if c["name"] == name)
    sets = sm90_bench.make_sets(cell, 1)
    launches, out = attnjit.prepare(cell, sets)
    first = None
    good = True
    for _ in range(20):
        sets[0][3].fill_(float("nan"))
        launches[0]()
        torch.cuda.synchronize()
        bits = out(0).view(torch.int16)
        first = bits.clone() if first is None else first
        good = good and torch.equal(first, bits) and not torch.isnan(out(0).float()).any()
    failed += not good
    print(name, "20 runs alike" if good else "DIFFERS", flush=True)
sys.exit(failed > 0)

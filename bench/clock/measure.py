#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cells of calibration.json and held_out.json on the GPU at hand, with the SMs' clock.

    bench/clock/measure.py --library libattnjit.so --probe libprobe.so [--held-out] [--only PART]
                           --json F.json

The probe is probe.cu, built by `nvcc -shared -Xcompiler -fPIC -arch=sm_90 probe.cu -o libprobe.so`.
A cell is a CUDA graph of launches over rotating tensors, so that inputs come from memory and not
from L2, as the clock has it; "warm" is the same over one set, where that fits in L2. Each cell runs
alone for some time, so that the chip's power control settles, and then in blocks. A block's clock is
the SMs' cycles between two probes over the nanoseconds between them, its power the driver's count
of energy. Times are medians over the blocks.
"""
import argparse
import concurrent.futures
import ctypes
import json
import math
import os
import statistics
import subprocess
import sys
import time

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from beside import MIN_ROTATION_BYTES, attnjit, graph_of, random_numbers, stream  # noqa: E402
import mla_bench  # noqa: E402
import serving_bench  # noqa: E402

L2_BYTES, MOST_SETS = 30 << 20, 24
SETTLES_S, BLOCKS, BLOCK_MS = 0.35, 9, 15


class Dense:
    """A cell of whole sequences; beside.py says what is asked of a problem."""

    def __init__(self, spec, problem, sets=None):
        self.batch, self.rows, self.keys = problem["batch"], problem["q_len"], problem["kv_len"]
        heads, depth = spec["num_q_heads"], spec["qk_depth"]
        kv_heads = heads // spec["group"]
        generator = random_numbers()

        def normal(length, count):
            return torch.randn(self.batch, length, count, depth, device="cuda",
                               dtype=torch.bfloat16, generator=generator)

        self.set_bytes = 4 * depth * self.batch * (self.rows * heads + self.keys * kv_heads)
        count = sets or min(MOST_SETS, max(2, -(-MIN_ROTATION_BYTES // self.set_bytes)))
        self.q = [normal(self.rows, heads) for _ in range(count)]
        self.kv = [(normal(self.keys, kv_heads), normal(self.keys, kv_heads)) for _ in self.q]

    def new_o(self):
        return torch.full_like(self.q[0], math.nan)

    def launch_fields(self, i, o):
        k, v = self.kv[i]
        return dict(q=self.q[i], k=k, v=v, o=o)


def pool_of(heads, depth):
    tokens = 2 * MIN_ROTATION_BYTES // (heads * depth * 2) + 600_000
    pool = torch.empty(tokens // 64, 64, heads, depth, device="cuda", dtype=torch.bfloat16)
    for part in pool.split(1 << 12):
        part.normal_()
    return pool


class Problems:
    def __init__(self):
        self.serving, self.mla = None, None

    def of(self, cell):
        name = cell["name"]
        if name.startswith("decode."):
            if self.serving is None:
                self.serving = [pool_of(serving_bench.KV_HEADS, serving_bench.DEPTH)
                                .view(-1, serving_bench.KV_HEADS * serving_bench.DEPTH)
                                for _ in range(2)]
            of = next(c for c in serving_bench.cells() if c["name"] == name)
            return serving_bench.Problem(of, self.serving, random_numbers())
        if name.startswith("mla."):
            if self.mla is None:
                self.mla = pool_of(1, mla_bench.DEPTH)
            of = next(c for c in mla_bench.cells() if "mla." + c["name"] == name)
            return mla_bench.Problem(of, self.mla)
        return Dense(cell["spec"], cell["problem"])


class Gpu:
    """The SMs' cycles, the time, and the driver's count of energy."""

    def __init__(self, probe):
        self.probe = ctypes.CDLL(probe).attnjit_clock_probe
        self.probe.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.read = [torch.zeros(256, 2, dtype=torch.int64, device="cuda") for _ in range(2)]
        self.nvml, self.device = None, ctypes.c_void_p()
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            if self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetHandleByIndex_v2(
                    0, ctypes.byref(self.device)):
                self.nvml = None
        except OSError:
            pass

    def tick(self, which):
        if self.probe(self.read[which].data_ptr(), self.sms, stream()):
            raise SystemExit("the probe's launch failed")

    def mhz(self):
        torch.cuda.synchronize()
        change = (self.read[1] - self.read[0])[:self.sms].double()
        return (1e3 * change[:, 0].sum() / change[:, 1].sum()).item()

    def joules(self):
        """Since the driver was loaded; None where it does not say."""
        value = ctypes.c_ulonglong()
        if self.nvml is None or self.nvml.nvmlDeviceGetTotalEnergyConsumption(
                self.device, ctypes.byref(value)):
            return None
        return value.value / 1e3


def launches_of(service, kernel, problem, overlap, workspace):
    launches, outputs = [], []
    for i in range(len(problem.q)):
        o = problem.new_o()
        args = service.launch_args(**problem.launch_fields(i, o), overlap=overlap)
        needed, _ = service.workspace(kernel, args)
        if needed > workspace[0].numel():
            # NOTE: those before it are used by launches of this problem: they stay.
            workspace.insert(0, torch.zeros(needed, dtype=torch.uint8, device="cuda"))
        args.workspace, args.workspace_bytes = workspace[0].data_ptr(), needed
        state = service.launch_state()
        call = service.prepare_launch(kernel, state, args)

        def launch(args=args, call=call, state=state):
            args.stream = stream()
            call()

        launches.append(launch)
        outputs.append(o)
    return launches, outputs


def timed(gpu, graph, count, settles):
    """Microseconds, MHz and watts of blocks of about BLOCK_MS."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def block(times):
        gpu.tick(0)
        begin.record()
        for _ in range(times):
            graph.replay()
        end.record()
        gpu.tick(1)
        mhz = gpu.mhz()
        return 1e3 * begin.elapsed_time(end) / (times * count), mhz

    block(1)
    times = max(1, round(BLOCK_MS * 1e3 / (block(1)[0] * count)))
    until = time.perf_counter() + settles
    while time.perf_counter() < until:
        block(times)
    joules, since = gpu.joules(), time.perf_counter()
    samples = [block(times) for _ in range(BLOCKS)]
    seconds, after = time.perf_counter() - since, gpu.joules()
    us, mhz = zip(*samples)
    return {"us": statistics.median(us), "us_min": min(us), "us_max": max(us),
            "mhz": statistics.median(mhz), "mhz_min": min(mhz), "mhz_max": max(mhz),
            "watts": None if joules is None else (after - joules) / seconds, "launches": count}


def measure(gpu, service, kernel, cell, problems):
    problem = problems.of(cell)
    dense = isinstance(problem, Dense)
    workspace = [torch.zeros(0, dtype=torch.uint8, device="cuda")]
    launches, outputs = launches_of(service, kernel, problem, 0 if dense else 1, workspace)
    graph = graph_of(launches)
    graph.replay()
    torch.cuda.synchronize()
    if not all(bool(o.isfinite().all()) for o in outputs):
        raise SystemExit(f"{cell['name']}: an output is not finite")
    result = timed(gpu, graph, len(launches), SETTLES_S)
    if dense and problem.set_bytes <= L2_BYTES:
        warm = graph_of(launches[:1] * 8)
        result["warm"] = timed(gpu, warm, 8, 0.05)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", dest="libattnjit", default="build/release/src/libattnjit.so")
    parser.add_argument("--probe", required=True)
    parser.add_argument("--held-out", action="store_true", help="the cells of held_out.json alone")
    parser.add_argument("--only", help="cells whose names contain one of these, comma-separated")
    parser.add_argument("--limit-s", type=float, default=500, help="begin no cell after that")
    parser.add_argument("--json", required=True)
    options = parser.parse_args()
    began = time.perf_counter()
    cells = []
    for name in ("held_out",) if options.held_out else ("calibration", "held_out"):
        with open(os.path.join(HERE, name + ".json"), encoding="utf-8") as file:
            cells += [dict(cell, role=name) for cell in json.load(file)["cells"]]
    if options.only:
        cells = [c for c in cells if any(part in c["name"] for part in options.only.split(","))]
    service = attnjit.Service(options.libattnjit, no_disk_cache=1)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        kernels = list(pool.map(lambda cell: service.get(service.prepare(cell["spec"])), cells))
    print(f"# compiled in {time.perf_counter() - began:.0f} s", flush=True)
    gpu, problems, done = Gpu(options.probe), Problems(), []
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True, check=False).stdout.strip()
    facts = {"device": torch.cuda.get_device_name(), "driver": driver, "torch": torch.__version__,
             "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}
    for cell, kernel in zip(cells, kernels):
        if time.perf_counter() - began > options.limit_s:
            print("# out of time")
            break
        result = measure(gpu, service, kernel, cell, problems)
        torch.cuda.empty_cache()
        done.append({"name": cell["name"], "role": cell["role"], **result})
        watts = "" if result["watts"] is None else f" {result['watts']:5.0f} W"
        warm = f"  warm {result['warm']['us']:.1f} us" if "warm" in result else ""
        print(f"{cell['name']:<28} {result['us']:9.2f} us {result['mhz']:6.0f} MHz{watts}{warm}",
              flush=True)
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({**facts, "cells": done}, out, indent=1)


if __name__ == "__main__":
    main()

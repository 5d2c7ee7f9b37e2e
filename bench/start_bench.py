#!/usr/bin/env python3
"""Times a new process from a spec to the first result on the GPU, beside FlexAttention's first call.

    python3 bench/start_bench.py --library build/release/src/libattnjit.so [--json F] [--repeats 3]

Builds nothing. Every number comes from a process of its own:

    cold   no cache: plan, generate, NVRTC, store, load, launch
    warm   the cubin is on disk (a cold process left it there)
    flex cold, flex warm   PyTorch's compiled FlexAttention: empty caches (TORCHINDUCTOR_CACHE_DIR,
           TRITON_CACHE_DIR), then those that its cold process left

A process first makes its CUDA context and its tensors; that is reported apart, as are the imports.
Then the clock runs: attnjit's from before its library is opened (Service, spec, kernel, launch,
synchronise), Flex's from before its block mask is made (mask, torch.compile, call, synchronise).
v is constant, so each output must equal it; a wrong one ends the program with exit code 1.

Needs on the GPU machine: libattnjit.so, libcuda, NVRTC (ATTNJIT_NVRTC if it lies elsewhere) and, for
Flex, PyTorch with Triton; --no-flex leaves it out. attnjit's side imports no third-party package.
Four cases with three repeats are 48 processes, about four minutes with Flex; --cases takes some.
Exit codes: 0 done, 1 a wrong result or a process that failed.
"""
import argparse
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from ctypes import byref, c_char_p, c_int, c_int32, c_size_t, c_uint, c_uint64, c_void_p

BINDING = os.environ.get("ATTNJIT_PYTHON") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "python")
WINDOW, CAP = 1024, 20.0
CASES = {
    "causal": {"mask": "causal"},
    "window": {"mask": {"kind": "sliding_window", "window": WINDOW}},
    "softcap": {"score_mod": {"kind": "softcap", "cap": CAP}},
    "document": {"mask": {"kind": "and", "of": [
        {"kind": "causal"},
        {"kind": "custom", "name": "same_block", "code": "q_idx / 1000 == kv_idx / 1000"}]}},
}
# bf16 bytes: 0x3c3c is 0.0115, 0x3f3f is 0.746; poison is a NaN.
Q_BYTE, V_BYTE, POISON = 0x3c, 0x3f, 0xff


def milliseconds(since):
    return round((time.perf_counter() - since) * 1e3, 3)


class Cuda:
    """As much of the driver API as a process needs before attnjit: a context and memory."""

    def __init__(self, path):
        self._library = ctypes.CDLL(path)
        context, device = c_void_p(), c_int()
        self.call("cuInit", c_uint(0))
        self.call("cuDeviceGet", byref(device), c_int(0))
        self._device = device
        self.call("cuDevicePrimaryCtxRetain", byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        address, status = c_void_p(), c_int32()
        found = self._library.cuGetProcAddress_v2(name.encode(), byref(address), c_int(12000),
                                                  c_uint64(0), byref(status))
        if found != 0 or not address.value:
            raise SystemExit(f"libcuda has no {name}")
        code = ctypes.CFUNCTYPE(c_int32)(address.value)(*arguments)
        if code != 0:
            raise SystemExit(f"{name} failed with {code}")

    def arch(self):
        values = []
        for attribute in (75, 76):  # compute capability, major and minor
            value = c_int()
            self.call("cuDeviceGetAttribute", byref(value), c_int(attribute), self._device)
            values.append(value.value)
        known = {(9, 0): "sm_90a", (10, 0): "sm_100a", (10, 3): "sm_103a"}
        if tuple(values) not in known:
            raise SystemExit(f"compute capability {values[0]}.{values[1]} is not served")
        return known[tuple(values)]

    def name(self):
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, c_int(256), self._device)
        return text.value.decode()

    def tensor(self, shape, byte):
        size = 2
        for extent in shape:
            size *= extent
        pointer = c_uint64()
        self.call("cuMemAlloc", byref(pointer), c_size_t(size))
        self.call("cuMemsetD8Async", pointer, ctypes.c_ubyte(byte), c_size_t(size), c_void_p())
        return Tensor(pointer.value, shape, size)

    def synchronize(self):
        self.call("cuCtxSynchronize")

    def download(self, tensor):
        text = ctypes.create_string_buffer(tensor.size)
        self.call("cuMemcpyDtoHAsync", text, c_uint64(tensor.pointer), c_size_t(tensor.size),
                  c_void_p())
        self.synchronize()
        return text.raw


class Tensor:
    """As much of a torch.Tensor as the binding reads: packed bf16."""

    def __init__(self, pointer, shape, size):
        self.pointer, self.shape, self.size = pointer, shape, size

    def data_ptr(self):
        return self.pointer

    def stride(self):
        strides = [1]
        for extent in reversed(self.shape[1:]):
            strides.insert(0, strides[0] * extent)
        return tuple(strides)


def equals_v(raw):
    """Whether bf16 values are V's, to a unit of the last place."""
    return all(abs(value - V_BYTE * 257) <= 1 for value in set(memoryview(raw).cast("H")))


def attnjit_process(options):
    began = time.perf_counter()
    cuda = Cuda(options.driver or "libcuda.so.1")
    times = {"context_ms": milliseconds(began)}
    began = time.perf_counter()
    shape = (options.batch, options.length, options.heads, options.depth)
    q, k = (cuda.tensor(shape, Q_BYTE) for _ in "qk")
    v, o = cuda.tensor(shape, V_BYTE), cuda.tensor(shape, POISON)
    cuda.synchronize()
    times["tensors_ms"] = milliseconds(began)
    arch = cuda.arch()
    sys.path.insert(0, BINDING)
    import attnjit

    start = began = time.perf_counter()

    def lap(name):
        nonlocal began
        times[name] = milliseconds(began)
        began = time.perf_counter()

    service_options = {"cache_layers": options.cache}
    if options.driver:
        service_options["driver_path"] = options.driver
    service = attnjit.Service(options.libattnjit, **service_options)
    lap("service_ms")
    spec = service.prepare({"arch": arch, "num_q_heads": options.heads, "qk_depth": options.depth,
                            **CASES[options.case]})
    lap("prepare_ms")
    kernel = service.get(spec)
    lap("get_ms")
    service.launch(kernel, service.launch_state(), q=q, k=k, v=v, o=o)
    cuda.synchronize()
    lap("launch_ms")
    times["total_ms"] = milliseconds(start)
    counts = service.statistics()
    times["compile_ms"] = round(counts["compile_ms_total"], 3)
    times["compiles"], times["disk_hits"] = counts["compiles"], counts["disk_hits"]
    times["right"] = equals_v(cuda.download(o))
    times["gpu"], times["arch"] = cuda.name(), arch
    return times


def flex_process(options):
    began = time.perf_counter()
    import torch
    from torch.nn.attention import flex_attention
    times = {"import_ms": milliseconds(began)}
    began = time.perf_counter()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    times["context_ms"] = milliseconds(began)
    shape = (options.batch, options.heads, options.length, options.depth)

    def tensor(byte):
        return torch.full(shape, byte * 257, device="cuda", dtype=torch.int16).view(torch.bfloat16)

    q, k, v = tensor(Q_BYTE), tensor(Q_BYTE), tensor(V_BYTE)
    torch.cuda.synchronize()
    masks = {"causal": lambda b, h, i, j: j <= i,
             "window": lambda b, h, i, j: (j <= i) & (i - j < WINDOW),
             "document": lambda b, h, i, j: (j <= i) & (i // 1000 == j // 1000)}
    start = began = time.perf_counter()
    block_mask = score_mod = None
    if options.case in masks:
        block_mask = flex_attention.create_block_mask(masks[options.case], None, None,
                                                      options.length, options.length,
                                                      device="cuda")
    else:
        score_mod = lambda score, b, h, i, j: CAP * torch.tanh(score / CAP)  # noqa: E731
    torch.cuda.synchronize()
    times["block_mask_ms"] = milliseconds(began)
    began = time.perf_counter()
    compiled = torch.compile(flex_attention.flex_attention, dynamic=False)
    result = compiled(q, k, v, score_mod=score_mod, block_mask=block_mask)
    torch.cuda.synchronize()
    times["call_ms"] = milliseconds(began)
    times["total_ms"] = milliseconds(start)
    times["right"] = bool(((result.float() - v.float()).abs() <= 2 ** -8).all().item())
    times["gpu"], times["torch"] = torch.cuda.get_device_name(), torch.__version__
    return times


def run_process(options, kind, case, cache):
    """One measurement: this script in a process of its own; its times."""
    environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=os.path.join(cache, "inductor"),
                       TRITON_CACHE_DIR=os.path.join(cache, "triton"))
    command = [sys.executable, os.path.abspath(__file__), "--process", kind, "--case", case,
               "--cache", os.path.join(cache, "attnjit"), "--library", options.libattnjit]
    for name in ("driver", "batch", "heads", "length", "depth"):
        if getattr(options, name) is not None:
            command += ["--" + name, str(getattr(options, name))]
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        raise SystemExit(f"{kind} {case}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    times = json.loads(lines[-1])
    times["process_ms"] = milliseconds(began)
    return times


def medians(runs):
    merged = {}
    for name, value in runs[0].items():
        numbers = [run[name] for run in runs]
        is_time = name.endswith("_ms")
        merged[name] = round(statistics.median(numbers), 3) if is_time else value
        if is_time and name == "total_ms":
            merged["total_ms_all"] = numbers
    return merged


def measure(options, kind, case):
    """(cold, warm) medians of one contender."""
    cold, warm = [], []
    for _ in range(options.repeats):
        cache = tempfile.mkdtemp(prefix="attnjit-start-")
        try:
            cold.append(run_process(options, kind, case, cache))
            warm.append(run_process(options, kind, case, cache))
        finally:
            shutil.rmtree(cache, ignore_errors=True)
    return medians(cold), medians(warm)


def check(options, kind, case, temperature, times):
    problems = []
    if not times["right"]:
        problems.append("the result is wrong")
    if kind == "attnjit":
        expected = (1, 0) if temperature == "cold" else (0, 1)
        if (times["compiles"], times["disk_hits"]) != expected:
            problems.append(f"{times['compiles']} compiles and {times['disk_hits']} hits on disk")
    for problem in problems:
        print(f"{case} {kind} {temperature}: {problem}", file=sys.stderr)
    return not problems


PARTS = {"attnjit": ("service_ms", "prepare_ms", "get_ms", "compile_ms", "launch_ms"),
         "flex": ("import_ms", "block_mask_ms", "call_ms")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", dest="libattnjit", default="build/release/src/libattnjit.so")
    parser.add_argument("--driver", help="libcuda; default: as the loader finds it")
    parser.add_argument("--cases", default=",".join(CASES), help="of " + ", ".join(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-flex", action="store_true")
    parser.add_argument("--json", help="file for all numbers")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--depth", type=int, default=128)
    parser.add_argument("--process", choices=("attnjit", "flex"), help=argparse.SUPPRESS)
    parser.add_argument("--case", choices=tuple(CASES), help=argparse.SUPPRESS)
    parser.add_argument("--cache", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        times = {"attnjit": attnjit_process, "flex": flex_process}[options.process](options)
        print(json.dumps(times))
        return 0
    cases = options.cases.split(",")
    for case in cases:
        if case not in CASES:
            parser.error(f"--cases: '{case}' is none of " + ", ".join(CASES))
    if options.repeats < 1:
        parser.error("--repeats: at least 1")
    options.libattnjit = os.path.abspath(options.libattnjit)

    good, record = True, []
    print(f"{'case':<10} {'':<13} {'total ms':>9} {'context':>8}  parts (medians of "
          f"{options.repeats} processes, ms)", flush=True)
    for case in cases:
        row = {"case": case}
        for kind in ("attnjit",) if options.no_flex else ("attnjit", "flex"):
            for temperature, times in zip(("cold", "warm"), measure(options, kind, case)):
                good = check(options, kind, case, temperature, times) and good
                row[f"{kind}_{temperature}"] = times
                parts = ", ".join(f"{p[:-3]} {times[p]:.1f}" for p in PARTS[kind] if p in times)
                print(f"{case:<10} {kind + ' ' + temperature:<13} {times['total_ms']:9.1f} "
                      f"{times['context_ms']:8.1f}  {parts}", flush=True)
        record.append(row)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
                       "gpu": record[0]["attnjit_cold"]["gpu"], "repeats": options.repeats,
                       "batch": options.batch, "heads": options.heads, "length": options.length,
                       "depth": options.depth, "cases": record}, out, indent=1)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

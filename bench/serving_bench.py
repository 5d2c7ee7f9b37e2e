#!/usr/bin/env python3
"""Times attnjit's serving kernels on sm_90a beside FlashAttention-3 and FlashInfer, in one process.

    python3 bench/serving_bench.py --library build/release/src/libattnjit.so --fa3 libfa3.so \\
        [--only decode.32] [--json F]

The cache is bf16, of depth 128 and 8 KV heads, in random pages of one pool. Cells:
  decode.H.bB.Nk.pP   B sequences of N thousand keys, one row each; H query heads; pages of P rows
  prefill.H.pP        8 chunks of 512 rows over 4k to 16k keys, causal, ragged
  mixed.H.pP          4 prompts of 2k rows and 60 decodes over 8k keys, causal, ragged

Each contender is a CUDA graph of several launches, each with a page table of its own, so that the
keys come from memory and not from L2. The graphs run in turns, in random order; a time is the
median per launch. Results are compared with FA3's (without it: with a float32 reference) before
anything is timed. What a contender prepares on the host, or once for all layers of a step, lies
outside of its time: FA3's scheduler metadata, FlashInfer's plan(); attnjit prepares nothing.

FA3 is a shared library with `int fa3_fwd(Args*, stream)` and `int fa3_metadata(Args*, stream)`,
which call its kernels without PyTorch; Args is Fa3.Args below. FlashInfer is used where it can be
imported. A contender that is not there is left out, and the output says so.
"""
import argparse
import ctypes
import json
import math
import os
import random
import statistics
import sys
import time

import torch

sys.path.insert(0, os.environ.get("ATTNJIT_PYTHON") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import attnjit  # noqa: E402

KV_HEADS, DEPTH = 8, 128
MIN_ROTATION_BYTES = 256 << 20  # read between two uses of one page: several times L2
CHUNK_KEYS = (4096, 5803, 7531, 9211, 10957, 12653, 14407, 16384)


def cells():
    """The measurements: dicts with name, heads, page, and each sequence's rows and keys."""
    for heads in (32, 64):
        for page in (16, 64, 1):
            for batch in (1, 8, 64, 256):
                for keys in (1, 8, 32):
                    yield dict(name=f"decode.{heads}.b{batch}.{keys}k.p{page}", heads=heads,
                               page=page, rows=[1] * batch, keys=[keys * 1024] * batch)
            yield dict(name=f"prefill.{heads}.p{page}", heads=heads, page=page, rows=[512] * 8,
                       keys=list(CHUNK_KEYS))
            yield dict(name=f"mixed.{heads}.p{page}", heads=heads, page=page,
                       rows=[2048] * 4 + [1] * 60, keys=[2048] * 4 + [8192] * 60)


class Problem:
    """A cell's tensors: a page table, a Q and an O for each launch of a graph."""

    def __init__(self, cell, pool, generator):
        self.cell, self.heads, self.page = cell, cell["heads"], cell["page"]
        self.rows, self.keys = cell["rows"], cell["keys"]
        self.batch, self.total_q = len(self.rows), sum(self.rows)
        self.decode = max(self.rows) == 1
        tokens = pool[0].shape[0] // self.page * self.page
        self.k, self.v = (p[:tokens].view(-1, self.page, KV_HEADS, DEPTH) for p in pool)
        self.pages = [-(-keys // self.page) for keys in self.keys]
        self.bytes = sum(self.keys) * KV_HEADS * DEPTH * 2 * 2
        wanted = min(64, max(2, -(-MIN_ROTATION_BYTES // self.bytes)))
        order = torch.randperm(self.k.shape[0], device="cuda", generator=generator)
        order = order.to(torch.int32)
        self.flat = list(order.split(sum(self.pages))[:wanted])
        if self.flat[-1].numel() < sum(self.pages):
            self.flat.pop()
        if not self.flat:
            raise SystemExit(f"{cell['name']}: the pool is too small")
        self.tables = [self.padded(flat) for flat in self.flat]
        self.q = [torch.randn(self.total_q, self.heads, DEPTH, device="cuda", dtype=torch.bfloat16,
                              generator=generator) for _ in self.flat]
        self.kv_lens = torch.tensor(self.keys, dtype=torch.int32, device="cuda")
        begins = torch.tensor([0] + self.rows).cumsum(0)
        self.q_begins = begins.to(torch.int32)
        self.q_offsets = self.q_begins.cuda()

    def padded(self, flat):
        table = torch.full((self.batch, max(self.pages)), 2**31 - 1, dtype=torch.int32,
                           device="cuda")
        for row, own in zip(table, flat.split(self.pages)):
            row[:own.numel()] = own
        return table

    def new_o(self):
        return torch.full((self.total_q, self.heads, DEPTH), math.nan, device="cuda",
                          dtype=torch.bfloat16)

    def flop(self):
        visible = sum(q * (k - q) + q * (q + 1) / 2 for q, k in zip(self.rows, self.keys))
        return 4.0 * self.heads * DEPTH * visible

    def reference(self, launch, sequence):
        """float32, of one sequence."""
        pages = self.tables[launch][sequence, :self.pages[sequence]].long()
        keys = self.keys[sequence]
        k, v = (x[pages].reshape(-1, KV_HEADS, DEPTH)[:keys].float()
                .repeat_interleave(self.heads // KV_HEADS, 1) for x in (self.k, self.v))
        begin, end = self.q_begins[sequence], self.q_begins[sequence + 1]
        s = torch.einsum("qhd,khd->hqk", self.q[launch][begin:end].float(), k) * DEPTH**-0.5
        first = keys - (end - begin)
        row = torch.arange(end - begin, device="cuda")[:, None] + first
        s.masked_fill_(torch.arange(keys, device="cuda")[None] > row, -math.inf)
        return torch.einsum("hqk,khd->qhd", s.softmax(-1), v)


def stream():
    return torch.cuda.current_stream().cuda_stream


class Attnjit:
    """`spec` overrides fields of the spec."""

    def __init__(self, library, templates=None, tuning=None, **spec):
        options = {"templates_folder": templates} if templates else {}
        if tuning:
            options["tuning"] = tuning
        self.service = attnjit.Service(library, no_disk_cache=1, **options)
        self.spec, self.workspace = spec, torch.empty(0, dtype=torch.uint8, device="cuda")

    def prepare(self, problem):
        # A decode's row sees all keys: no mask is the same, and loads nothing less.
        spec = {"arch": "sm_90a", "num_q_heads": problem.heads,
                "group": problem.heads // KV_HEADS, "qk_depth": DEPTH, "page_size": problem.page,
                "mask": "causal", "ragged": not problem.decode,
                "num_partitions": 0 if problem.decode else 1, **self.spec}
        if problem.decode:
            spec.setdefault("max_q_len", 1)
        kernel = self.service.get(self.service.prepare(spec))
        out, launches = [], []
        for q, table in zip(problem.q, problem.tables):
            o = problem.new_o()
            if problem.decode:
                tensors = dict(q=q.unsqueeze(1), o=o.unsqueeze(1))
            else:
                tensors = dict(q=q.unsqueeze(0), o=o.unsqueeze(0), q_offsets=problem.q_offsets,
                               total_q=problem.total_q)
            args = self.service.launch_args(
                **tensors, k=problem.k, v=problem.v, page_table=table, kv_lens=problem.kv_lens,
                batch=problem.batch, q_len=max(problem.rows), kv_len=max(problem.keys),
                num_pages=problem.k.shape[0], max_pages=table.shape[1], overlap=1)
            needed, zeroed = self.service.workspace(kernel, args)
            if needed > self.workspace.numel():
                # NOTE: earlier graphs are gone: each cell is measured before the next is prepared.
                self.workspace = torch.zeros(needed, dtype=torch.uint8, device="cuda")
            args.workspace, args.workspace_bytes = self.workspace.data_ptr(), needed
            state = self.service.launch_state()
            call = self.service.prepare_launch(kernel, state, args)

            def launch(args=args, call=call):
                args.stream = stream()
                call()

            launches.append(launch)
            out.append(o)
        return launches, out


class Fa3:
    """FlashAttention-3 through a library without PyTorch, its scheduler's metadata given. With
    two_calls prompts and decodes of a mixed batch are two calls."""

    class Args(ctypes.Structure):
        _fields_ = [(name, ctypes.c_void_p) for name in
                    ("q", "k", "v", "o", "lse", "cu_seqlens_q", "seqused_k", "page_table", "meta",
                     "oaccum", "lseaccum")] + [("oaccum_floats", ctypes.c_int64)] + [
            (name, ctypes.c_int32) for name in
            ("batch", "seqlen_q", "total_q", "seqlen_k", "h", "hk", "d", "page_size", "num_pages",
             "page_table_stride", "causal", "window_left", "window_right", "num_splits",
             "metadata_given", "out_num_splits", "out_pack_gqa", "is_fp16")]

    def __init__(self, library, two_calls=False):
        self.two_calls = two_calls
        self.lib = ctypes.CDLL(library)
        for name in ("fa3_fwd", "fa3_metadata"):
            getattr(self.lib, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.o_parts = torch.empty(1 << 28, device="cuda")
        self.lse_parts = torch.empty(1 << 22, device="cuda")

    def call(self, name, args):
        code = getattr(self.lib, name)(ctypes.addressof(args), stream())
        if code:
            raise RuntimeError(f"{name}: {code}")

    def prepare(self, problem):
        if self.two_calls and (problem.decode or max(problem.rows) == min(problem.rows)):
            return None
        prompts = sum(rows > 1 for rows in problem.rows)
        parts = [(0, prompts), (prompts, problem.batch)] if self.two_calls else [(0, problem.batch)]
        launches, out = [], []
        for q, table in zip(problem.q, problem.tables):
            o = problem.new_o()
            # Entries past a sequence's keys are read.
            table = torch.where(table == 2**31 - 1, 0, table)
            calls = [self.arguments(problem, q, o, table, *part) for part in parts]

            def launch(calls=calls):
                for args, _ in calls:
                    self.call("fa3_fwd", args)

            launches.append(launch)
            out.append(o)
        return launches, out

    def arguments(self, problem, q, o, table, first, last):
        """Args of the sequences from first to last, and what they point to."""
        rows, keys = problem.rows[first:last], problem.keys[first:last]
        begin = sum(problem.rows[:first])
        q, o = q[begin:begin + sum(rows)], o[begin:begin + sum(rows)]
        table = table[first:last, :max(problem.pages[first:last])].contiguous()
        kv_lens = problem.kv_lens[first:last].contiguous()
        offsets = problem.q_offsets[first:last + 1] - begin
        lse = torch.empty(sum(rows) * problem.heads, device="cuda")
        meta = torch.zeros(4 * (len(rows) + 4) + 8, device="cuda", dtype=torch.int32)
        args = self.Args(
            q=q.data_ptr(), k=problem.k.data_ptr(), v=problem.v.data_ptr(), o=o.data_ptr(),
            lse=lse.data_ptr(), seqused_k=kv_lens.data_ptr(), page_table=table.data_ptr(),
            meta=meta.data_ptr(), oaccum=self.o_parts.data_ptr(),
            lseaccum=self.lse_parts.data_ptr(), oaccum_floats=self.o_parts.numel(),
            batch=len(rows), seqlen_q=max(rows), total_q=sum(rows),
            seqlen_k=table.shape[1] * problem.page, h=problem.heads, hk=KV_HEADS, d=DEPTH,
            page_size=problem.page, num_pages=problem.k.shape[0],
            page_table_stride=table.stride(0), causal=1, window_left=-1, window_right=-1)
        if max(rows) > 1:
            args.cu_seqlens_q = offsets.data_ptr()
        self.call("fa3_metadata", args)
        args.metadata_given = 1
        return args, (q, o, table, kv_lens, offsets, lse, meta)


class FlashInfer:
    """One wrapper of FlashInfer: kind "decode" (tensor cores), "fa2" or "fa3" (prefill)."""

    def __init__(self, kind):
        import flashinfer
        self.kind = kind
        room = torch.zeros(384 << 20, device="cuda", dtype=torch.uint8)
        if kind == "decode":
            self.wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
                room, "NHD", use_tensor_cores=True, backend="fa2")
        else:
            self.wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(room, "NHD", backend=kind)

    def prepare(self, problem):
        if (self.kind == "decode") != problem.decode:
            return None
        counts = torch.tensor([0] + problem.pages).cumsum(0).to(torch.int32)
        last = torch.tensor([(keys - 1) % problem.page + 1 for keys in problem.keys],
                            dtype=torch.int32)
        shape = (problem.heads, KV_HEADS, DEPTH, problem.page)
        types = dict(q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16)
        if problem.decode:
            self.wrapper.plan(counts, problem.flat[0], last, *shape, **types)
        else:
            self.wrapper.plan(problem.q_begins, counts, problem.flat[0], last, *shape, causal=True,
                              **types)
        out = [problem.new_o() for _ in problem.q]

        def launch(i):
            # The plan is of the lengths; the page table is the wrapper's to keep.
            self.wrapper._paged_kv_indices_buf = problem.flat[i]
            self.wrapper.run(problem.q[i], (problem.k, problem.v), out=out[i])

        return [lambda i=i: launch(i) for i in range(len(out))], out


def timed(launch, count):
    """Milliseconds per call of a block of `count`."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        launch()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count


def graph_of(launches):
    """A CUDA graph that runs the launches once, in order."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for launch in launches:
            launch()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    torch.cuda.synchronize()
    return graph


def difference(got, want):
    got, want = got.float(), want.float()
    return ((got - want).norm() / want.norm()).item()


def check(problem, prepared):
    """Compares the results of the graphs with a reference, and whole with one another."""
    first = None
    for name, (graph, out) in prepared.items():
        for o in out:
            o.fill_(math.nan)
        graph.replay()
        torch.cuda.synchronize()
        for launch, sequence in ((0, 0), (len(out) - 1, problem.batch - 1)):
            begin, end = problem.q_begins[sequence], problem.q_begins[sequence + 1]
            error = difference(out[launch][begin:end], problem.reference(launch, sequence))
            if not error <= 1e-2:
                raise SystemExit(f"{problem.cell['name']}: {name} is wrong by {error}")
        if first is None:
            first = (name, out)
        elif not max(difference(a, b) for a, b in zip(out, first[1])) <= 1e-2:
            raise SystemExit(f"{problem.cell['name']}: {name} differs from {first[0]}")


def measure(cell, contenders, pool, options):
    """Fills in cell["us"], the medians, and cell["samples_us"]."""
    generator = torch.Generator("cuda").manual_seed(20261122)
    problem = Problem(cell, pool, generator)
    prepared, alive = {}, []
    for name, contender in contenders.items():
        got = contender.prepare(problem)
        if got is not None:
            prepared[name] = (graph_of(got[0]), got[1])
            alive.append(got)
    check(problem, prepared)
    graphs = {name: graph.replay for name, (graph, _) in prepared.items()}
    counts = {}
    for name, replay in graphs.items():
        timed(replay, 2)
        counts[name] = max(1, round(options.block_ms / timed(replay, 2)))
    times = {name: [] for name in graphs}
    turns = random.Random(1)
    for _ in range(options.samples):
        order = list(graphs)
        turns.shuffle(order)
        for name in order:
            times[name].append(timed(graphs[name], counts[name]) * 1e3 / len(problem.q))
    cell["samples_us"] = times
    cell["us"] = {name: statistics.median(t) for name, t in times.items()}
    cell["launches"] = len(problem.q)
    cell["bytes"], cell["flop"] = problem.bytes, problem.flop()
    del prepared, alive


def shown(cell, names):
    peers = [us for name, us in cell["us"].items() if not name.startswith("attnjit")]
    columns = [f"{cell['name']:<22}"]
    for name in names:
        us = cell["us"].get(name)
        columns.append(f"{us:10.1f}" if us else "         -")
        if us and name.startswith("attnjit") and peers:
            columns.append(f"{min(peers) / us:6.3f}")
    us = cell["us"]["attnjit"]
    columns.append(f"{cell['bytes'] / us / 1e6:6.2f} TB/s" if max(cell["rows"]) == 1
                   else f"{cell['flop'] / us / 1e6:6.0f} TFLOP/s")
    return " ".join(columns)


def contenders_of(options):
    found = {"attnjit": Attnjit(options.libattnjit, options.templates)}
    for variant in options.variant:
        name, _, text = variant.partition("=")
        fields = json.loads(text)
        tuning = json.dumps(fields.pop("tuning")) if "tuning" in fields else None
        library = fields.pop("library", options.libattnjit)
        templates = fields.pop("templates", options.templates)
        found["attnjit " + name] = Attnjit(library, templates, tuning, **fields)
    if options.fa3:
        found["fa3"] = Fa3(options.fa3)
        found["fa3 twice"] = Fa3(options.fa3, two_calls=True)
    else:
        print("# no FA3: --fa3 names no library")
    try:
        for kind in options.flashinfer.split(",") if options.flashinfer else ():
            found["fi " + kind] = FlashInfer(kind)
    except ImportError as error:
        print(f"# no FlashInfer: {error}")
    return found


def summary(done, name):
    """The geometric mean over the peers' best, by kind of cell."""
    kinds = {}
    for cell in done:
        peers = [us for other, us in cell["us"].items() if not other.startswith("attnjit")]
        if peers and name in cell["us"]:
            kind = cell["name"].split(".")[0] + (" p1" if cell["page"] == 1 else "")
            kinds.setdefault(kind, []).append(min(peers) / cell["us"][name])
    for kind, ratios in kinds.items():
        mean = math.exp(statistics.mean(map(math.log, ratios)))
        print(f"{name}, {kind}: best peer's time over its own: geometric mean {mean:.3f}, "
              f"least {min(ratios):.3f}, {len(ratios)} cells")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", dest="libattnjit", default="build/release/src/libattnjit.so")
    parser.add_argument("--templates", help="a folder that replaces the embedded templates")
    parser.add_argument("--fa3", help="the library of FlashAttention-3")
    parser.add_argument("--flashinfer", default="decode,fa2,fa3", help="wrappers, comma-separated")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=JSON",
                        help="another attnjit: fields of its spec, and tuning, templates, library")
    parser.add_argument("--only", help="cells whose names begin with one of these, comma-separated")
    parser.add_argument("--skip", help="and contain none of these")
    parser.add_argument("--samples", type=int, default=21)
    parser.add_argument("--block-ms", type=float, default=3)
    parser.add_argument("--limit-s", type=float, default=500, help="begin no cell after that")
    parser.add_argument("--json", help="file for all numbers")
    options = parser.parse_args()
    began = time.perf_counter()
    chosen = [cell for cell in cells()
              if (not options.only or any(cell["name"].startswith(p)
                                          for p in options.only.split(",")))
              and not (options.skip and any(part in cell["name"] + "."
                                           for part in options.skip.split(",")))]
    if not chosen:
        parser.error("--only and --skip leave no cell")
    tokens = max(max(sum(cell["keys"]), 2 * MIN_ROTATION_BYTES // (KV_HEADS * DEPTH * 4))
                 for cell in chosen) + 65536
    pool = [torch.empty(tokens, KV_HEADS * DEPTH, device="cuda", dtype=torch.bfloat16)
            for _ in range(2)]
    for tensor in pool:
        for part in tensor.split(1 << 19):
            part.normal_()
    contenders = contenders_of(options)
    names = list(contenders)
    print(f"# {torch.cuda.get_device_name()}, torch {torch.__version__}, "
          f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}; us per launch")
    print(f"{'cell':<22} " + " ".join(
        f"{n:>10}" + (" /best" if n.startswith("attnjit") else "") for n in names), flush=True)
    done = []
    for cell in chosen:
        if time.perf_counter() - began > options.limit_s:
            print("# out of time")
            break
        measure(cell, contenders, pool, options)
        print(shown(cell, names), flush=True)
        done.append(cell)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as out:
                json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                           "samples": options.samples, "cells": done}, out)
    for name in names:
        if name.startswith("attnjit"):
            summary(done, name)


if __name__ == "__main__":
    main()

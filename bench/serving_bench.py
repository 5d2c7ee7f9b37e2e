#!/usr/bin/env python3
"""Times attnjit's serving kernels on sm_90a beside FlashAttention-3 and FlashInfer, in one process.

    python3 bench/serving_bench.py --library build/release/src/libattnjit.so [--only decode.32] \\
        [--json F]

The cache is bf16, of depth 128 and 8 KV heads, in random pages of one pool. Cells:
  decode.H.bB.Nk.pP   B sequences of N thousand keys, one row each; H query heads; pages of P rows
  prefill.H.pP        8 chunks of 512 rows over 4k to 16k keys, causal, ragged
  mixed.H.pP          4 prompts of 2k rows and 60 decodes over 8k keys, causal, ragged

Each contender is a CUDA graph of several launches, each with a page table of its own, so that the
keys come from memory and not from L2. The graphs run in turns, in random order; a time is the
median per launch. Results are compared with a float32 reference, and with one another, before
anything is timed. What a contender prepares on the host, or once for all layers of a step, lies
outside of its time: FA3's scheduler metadata, FlashInfer's plan(); attnjit prepares nothing.

FA3 is vLLM's (bench/peers.py). FlashInfer is used where it can be imported. A contender that is not
there is left out, and the output says so.
"""
import argparse
import math

import torch

import peers
from beside import (MIN_ROTATION_BYTES, add_flags, add_flashinfer, chosen_of, columns_of,
                    contenders_of_attnjit, looked_at, pages_of, random_numbers, random_pool, run)

KV_HEADS, DEPTH = 8, 128
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
    """A cell's tensors: a page table, a Q and an O for each launch of a graph.

    A cell may also have kv_heads, depth, window, sink and spec (bench/traffic.py). `pool`: K's and
    V's elements.
    """

    def __init__(self, cell, pool, generator):
        self.cell, self.heads, self.page = cell, cell["heads"], cell["page"]
        self.kv_heads, self.depth = cell.get("kv_heads", KV_HEADS), cell.get("depth", DEPTH)
        self.rows, self.keys, self.window = cell["rows"], cell["keys"], cell.get("window")
        self.batch, self.total_q = len(self.rows), sum(self.rows)
        self.uniform = max(self.rows) == min(self.rows) <= 8
        elements = self.page * self.kv_heads * self.depth
        self.k, self.v = (p[:p.numel() // elements * elements].view(
            -1, self.page, self.kv_heads, self.depth) for p in pool)
        self.pages = [-(-keys // self.page) for keys in self.keys]
        seen = (min(keys, (self.window or keys) + rows) for keys, rows in zip(self.keys, self.rows))
        self.bytes = sum(seen) * self.kv_heads * self.depth * 2 * 2
        self.flat = pages_of(self, self.k.shape[0], sum(self.pages), 64, generator)
        self.tables = [self.padded(flat) for flat in self.flat]
        self.q = [torch.randn(self.total_q, self.heads, self.depth, device="cuda",
                              dtype=torch.bfloat16, generator=generator) for _ in self.flat]
        self.sink = (torch.randn(self.heads, device="cuda", generator=generator).bfloat16()
                     if cell.get("sink") else None)
        self.sink_f32 = None if self.sink is None else self.sink.float()
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
        return torch.full((self.total_q, self.heads, self.depth), math.nan, device="cuda",
                          dtype=torch.bfloat16)

    def spec(self):
        if "spec" in self.cell:
            return self.cell["spec"]
        # A decode's row sees all keys: no mask is the same, and loads nothing less.
        spec = {"arch": "sm_90a", "num_q_heads": self.heads, "group": self.heads // self.kv_heads,
                "qk_depth": self.depth, "page_size": self.page, "mask": "causal"}
        return {**spec, **({"max_q_len": 1, "num_partitions": 0} if self.uniform
                           else {"ragged": True})}

    def launch_fields(self, i, o):
        q, table, most = self.q[i], self.tables[i], max(self.rows)
        if self.uniform:
            tensors = {name: x.view(self.batch, most, self.heads, self.depth)
                       for name, x in (("q", q), ("o", o))}
        else:
            tensors = dict(q=q.unsqueeze(0), o=o.unsqueeze(0), q_offsets=self.q_offsets,
                           total_q=self.total_q)
        if self.sink is not None:
            tensors["sink"] = self.sink_f32
        return dict(tensors, k=self.k, v=self.v, page_table=table, kv_lens=self.kv_lens,
                    batch=self.batch, q_len=most, kv_len=max(self.keys),
                    num_pages=self.k.shape[0], max_pages=table.shape[1])

    def flop(self):
        if self.window:
            visible = sum(min(row, self.window) for q, k in zip(self.rows, self.keys)
                          for row in range(k - q + 1, k + 1))
        else:
            visible = sum(q * (k - q) + q * (q + 1) / 2 for q, k in zip(self.rows, self.keys))
        return 4.0 * self.heads * self.depth * visible

    def looked_at(self):
        return looked_at(len(self.q), self.rows, self.keys)

    def checked(self, sequence):
        """Some of its rows of O."""
        count = self.rows[sequence]
        rows = torch.linspace(0, count - 1, min(count, 24)).round().long()
        return rows + self.q_begins[sequence]

    def reference(self, launch, sequence):
        """float32, of the checked rows of one sequence."""
        pages = self.tables[launch][sequence, :self.pages[sequence]].long()
        keys, rows = self.keys[sequence], self.checked(sequence)
        k, v = (x[pages].reshape(-1, self.kv_heads, self.depth)[:keys] for x in (self.k, self.v))
        group = self.heads // self.kv_heads
        row = (rows - self.q_begins[sequence] + keys - self.rows[sequence]).cuda()[:, None]
        column = torch.arange(keys, device="cuda")[None]
        hidden = column > row
        if self.window:
            hidden |= column <= row - self.window
        parts = []
        for head in range(self.kv_heads):
            own = slice(head * group, head * group + group)
            s = torch.einsum("qgd,kd->gqk", self.q[launch][rows][:, own].float(),
                             k[:, head].float()) * self.depth**-0.5
            s.masked_fill_(hidden, -math.inf)
            if self.sink is not None:
                sink = self.sink[own].float()[:, None, None].expand(group, len(rows), 1)
                s = torch.cat([s, sink], -1)
            parts.append(torch.einsum("gqk,kd->qgd", s.softmax(-1)[..., :keys],
                                      v[:, head].float()))
        return torch.cat(parts, 1)


class Fa3:
    """FlashAttention-3, its scheduler's metadata given. With two_calls prompts and decodes of a
    mixed batch are two calls."""

    def __init__(self, two_calls=False):
        self.two_calls = two_calls

    def prepare(self, problem):
        prompts = sum(rows > 1 for rows in problem.rows)
        mixed = 0 < prompts < problem.batch and min(problem.rows[:prompts]) > 1
        if self.two_calls and not mixed:
            return None
        parts = [(0, prompts), (prompts, problem.batch)] if self.two_calls else [(0, problem.batch)]
        launches, out, plans = [], [], {}
        for q, table in zip(problem.q, problem.tables):
            o = problem.new_o()
            # Entries past a sequence's keys are read.
            table = torch.where(table == 2**31 - 1, 0, table)
            calls = [self.arguments(problem, q, o, table, *part, plans) for part in parts]

            def launch(calls=calls):
                for arguments in calls:
                    peers.fa3_paged(**arguments)

            launches.append(launch)
            out.append(o)
        return launches, out

    def arguments(self, problem, q, o, table, first, last, plans):
        """Of the call for the sequences from first to last. Plans are of lengths: one for all."""
        rows, begin = problem.rows[first:last], sum(problem.rows[:first])
        used_k = problem.kv_lens[first:last].contiguous()
        cu_q = (problem.q_offsets[first:last + 1] - begin).contiguous()
        longest = dict(max_q=max(rows), max_k=max(problem.keys[first:last]), window=problem.window)
        if first not in plans:
            plans[first] = peers.fa3_plan(problem.heads, problem.kv_heads, problem.depth,
                                          problem.page, cu_q=cu_q, used_k=used_k, **longest)
        table = table[first:last, :max(problem.pages[first:last])].contiguous()
        return dict(q=q[begin:begin + sum(rows)], out=o[begin:begin + sum(rows)], k=problem.k,
                    v=problem.v, table=table, cu_q=cu_q, used_k=used_k, plan=plans[first],
                    sink=problem.sink, **longest)


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
        if (self.kind == "decode") != (max(problem.rows) == 1) or problem.sink is not None:
            return None
        counts = torch.tensor([0] + problem.pages).cumsum(0).to(torch.int32)
        last = torch.tensor([(keys - 1) % problem.page + 1 for keys in problem.keys],
                            dtype=torch.int32)
        shape = (problem.heads, problem.kv_heads, problem.depth, problem.page)
        more = dict(q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16,
                    window_left=peers.fa3_window(problem.window)[0])
        if self.kind == "decode":
            self.wrapper.plan(counts, problem.flat[0], last, *shape, **more)
        else:
            self.wrapper.plan(problem.q_begins, counts, problem.flat[0], last, *shape, causal=True,
                              **more)
        out = [problem.new_o() for _ in problem.q]

        def launch(i):
            # The plan is of the lengths; the page table is the wrapper's to keep.
            self.wrapper._paged_kv_indices_buf = problem.flat[i]
            self.wrapper.run(problem.q[i], (problem.k, problem.v), out=out[i])

        return [lambda i=i: launch(i) for i in range(len(out))], out


def shown(cell, names):
    us = cell["us"]["attnjit"]
    rate = (f"{cell['bytes'] / us / 1e6:6.2f} TB/s" if max(cell["rows"]) == 1
            else f"{cell['flop'] / us / 1e6:6.0f} TFLOP/s")
    return " ".join([f"{cell['name']:<22}", *columns_of(cell, names), rate])


def contenders_of(options):
    found = contenders_of_attnjit(options)
    if peers.have("FlashAttention-3"):
        found["fa3"] = Fa3()
        found["fa3 twice"] = Fa3(two_calls=True)
    add_flashinfer(found, options.flashinfer, FlashInfer)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_flags(parser)
    parser.add_argument("--flashinfer", default="decode,fa2,fa3", help="wrappers, comma-separated")
    options = parser.parse_args()
    chosen = chosen_of(cells(), options)
    if not chosen:
        parser.error("--only and --skip leave no cell")
    tokens = max(max(sum(cell["keys"]), 2 * MIN_ROTATION_BYTES // (KV_HEADS * DEPTH * 4))
                 for cell in chosen) + 65536
    pool = [random_pool(tokens * KV_HEADS * DEPTH) for _ in range(2)]
    run(chosen, lambda cell: Problem(cell, pool, random_numbers()), contenders_of(options),
        options, shown,
        lambda cell: [cell["name"].split(".")[0] + (" p1" if cell["page"] == 1 else "")])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times attnjit's absorbed MLA decode on sm_90a beside FlashMLA and FlashInfer, in one process.

    python3 bench/mla_bench.py --library build/release/src/libattnjit.so [--only 128] [--json F]

The cache is bf16, of rows of 512 latent and 64 rope elements, in random pages of 64 rows of one
pool. Cells:
  H.bB.Nk.qQ   H query heads; B sequences of N thousand keys and Q rows each, causal
  H.uB.Nk.qQ   the same, whose lengths rise evenly from an eighth of N thousand to N thousand
  sparse.F.bB.Nk.qQ  of 128 heads, with a list for each row: 2048 of its sequence's keys, drawn for
               each row and launch; F is bf16, or dsv32: rows of 656 bytes (docs/spec.md)

beside.py says how contenders are timed and checked. Of a line, /best is the best peer's time over
attnjit's, `copy` the bytes of the cache per second over those that a device-to-device copy reads
and writes. What a contender prepares on the host, or once for all layers of a step, lies outside of
its time: FlashMLA's scheduler metadata, FlashInfer's plan(); attnjit prepares nothing.

FlashMLA is vLLM's (bench/peers.py). Over lists of bf16 rows it has its sparse prefill alone.
FlashInfer has no lists on Hopper; it is used where it can be imported, and compiles at its first
use. A contender that is not there is left out, and the output says so.
"""
import argparse
import math
import statistics

import torch
from torch.nn.utils.rnn import pad_sequence

import peers
from beside import (MIN_ROTATION_BYTES, add_flags, add_flashinfer, chosen_of, columns_of,
                    contenders_of_attnjit, looked_at, pages_of, random_numbers, run, timed)

LATENT, ROPE, PAGE, TOPK = 512, 64, 64, 2048
DEPTH = LATENT + ROPE
SCALE = DEPTH**-0.5
BF16 = torch.bfloat16
DSV32_BYTES = LATENT + 4 * 4 + 2 * ROPE  # of a row


def cells():
    """The measurements: dicts with name, heads, batch, keys and q_len."""
    for heads, batches, thousands in ((128, (1, 8, 32, 64, 128), (1, 8, 32)), (16, (64,), (8, 32))):
        for batch in batches:
            for keys in thousands:
                for q_len in (1, 2) if heads == 128 else (1,):
                    yield dict(name=f"{heads}.b{batch}.{keys}k.q{q_len}", heads=heads, batch=batch,
                               lens=[keys * 1024] * batch, q_len=q_len)
    for batch in (8, 32, 128):
        for keys in (8, 32):
            for q_len in (1, 2):
                lens = [keys * 128 * (1 + 7 * i // (batch - 1)) for i in range(batch)]
                yield dict(name=f"128.u{batch}.{keys}k.q{q_len}", heads=128, batch=batch,
                           lens=lens, q_len=q_len)
    for cache in ("dsv32", "bf16"):
        for batch, keys in ((128, 32), (128, 8), (32, 32), (1, 32)):
            for q_len in (1, 2):
                yield dict(name=f"sparse.{cache}.b{batch}.{keys}k.q{q_len}", heads=128,
                           batch=batch, lens=[keys * 1024] * batch, q_len=q_len, cache=cache)


class Problem:
    """A cell's tensors; beside.py says what is asked of them."""

    def __init__(self, cell, pool):
        self.cell, self.k = cell, pool
        self.heads, self.batch = cell["heads"], cell["batch"]
        self.lens, self.q_len = cell["lens"], cell["q_len"]
        self.keys = max(self.lens)
        self.bytes = self.bytes_read()
        generator = random_numbers()
        self.pages = [-(-keys // PAGE) for keys in self.lens]
        flat = pages_of(self, pool.shape[0], sum(self.pages), 256, generator)
        self.tables = [pad_sequence(one.split(self.pages), batch_first=True) for one in flat]
        self.q = [torch.randn(self.batch, self.q_len, self.heads, DEPTH, device="cuda", dtype=BF16,
                              generator=generator) for _ in flat]
        self.kv_lens = torch.tensor(self.lens, dtype=torch.int32, device="cuda")
        self.q_begins = range(self.batch + 1)

    def looked_at(self):
        return looked_at(len(self.q), [self.q_len] * self.batch, self.lens)

    def bytes_read(self):
        return sum(self.lens) * DEPTH * 2

    def new_o(self):
        return torch.full((self.batch, self.q_len, self.heads, LATENT), math.nan, device="cuda",
                          dtype=BF16)

    def spec(self):
        if "spec" in self.cell:
            return self.cell["spec"]
        return {"arch": "sm_90a", "mla": "decode", "num_q_heads": self.heads, "group": self.heads,
                "qk_depth": DEPTH, "ov_depth": LATENT, "page_size": PAGE, "mask": "causal",
                "num_partitions": 0}

    def launch_fields(self, i, o):
        # V is the first part of K's rows: nothing else is looked at.
        return dict(q=self.q[i], k=self.k, v=self.k[..., :LATENT], o=o, page_table=self.tables[i],
                    kv_lens=self.kv_lens, batch=self.batch, q_len=self.q_len, kv_len=self.keys,
                    num_pages=self.k.shape[0], max_pages=self.tables[i].shape[1])

    def flop(self):
        """Of whole products, as FlashMLA counts: what the mask hides of q_len keys is in it."""
        return 2.0 * sum(self.lens) * self.q_len * self.heads * (DEPTH + LATENT)

    def reference(self, launch, sequence):
        """float32, of one sequence."""
        keys = self.lens[sequence]
        k = self.k[self.tables[launch][sequence].long()].reshape(-1, DEPTH)[:keys].float()
        s = torch.einsum("qhd,kd->hqk", self.q[launch][sequence].float(), k) * SCALE
        row = torch.arange(self.q_len, device="cuda")[:, None] + keys - self.q_len
        s.masked_fill_(torch.arange(keys, device="cuda")[None] > row, -math.inf)
        return torch.einsum("hqk,kd->qhd", s.softmax(-1), k[:, :LATENT])[None]


class SparseProblem(Problem):
    """The same with a list of keys for each row: rows of the pool."""

    def __init__(self, cell, pool):
        super().__init__(cell, pool)
        generator = random_numbers()
        self.lists = []
        for table in self.tables:
            rows = []
            for pages in table:
                keys = torch.rand(self.q_len, self.keys, device="cuda",
                                  generator=generator).topk(TOPK).indices
                rows.append(pages[keys // PAGE] * PAGE + (keys % PAGE).to(torch.int32))
            self.lists.append(torch.stack(rows))

    def bytes_read(self):
        return self.batch * self.q_len * TOPK * self.k.shape[-1] * self.k.element_size()

    def spec(self):
        spec = {**super().spec(), "mask": "null", "topk": TOPK}
        if self.cell["cache"] == "dsv32":
            spec["cache_format"] = "dsv32"
        return spec

    def launch_fields(self, i, o):
        return dict(q=self.q[i], k=self.k, v=self.k[..., :LATENT], o=o, topk_indices=self.lists[i],
                    batch=self.batch, q_len=self.q_len, kv_len=self.keys,
                    num_pages=self.k.shape[0])

    def flop(self):
        return 2.0 * self.batch * self.q_len * TOPK * self.heads * (DEPTH + LATENT)

    def reference(self, launch, sequence):
        """float64, of one sequence."""
        rows = self.k.view(-1, self.k.shape[-1])[self.lists[launch][sequence].long()]
        k = upcast(rows) if self.cell["cache"] == "dsv32" else rows
        q, k = self.q[launch][sequence].double(), k.double()
        p = (torch.einsum("qhd,qkd->qhk", q, k) * SCALE).softmax(-1)
        return torch.einsum("qhk,qkd->qhd", p, k[..., :LATENT])[None]


def upcast(rows):
    """bf16, of rows of 656 bytes: a product is rounded."""
    latent = rows[..., :LATENT].contiguous().view(torch.float8_e4m3fn).float()
    scales = rows[..., LATENT:LATENT + 16].contiguous().view(torch.float32)
    rope = rows[..., LATENT + 16:].contiguous().view(BF16)
    return torch.cat([(latent * scales.repeat_interleave(128, -1)).to(BF16), rope], -1)


def dsv32_pool(pages):
    """N(0,1) with scales that are powers of 2: FlashMLA rounds them to bf16."""
    pool = torch.empty(pages, PAGE, 1, DSV32_BYTES, device="cuda", dtype=torch.uint8)
    generator = random_numbers()
    for part in pool.split(1 << 12):
        shape = part.shape[:-1]
        scales = torch.exp2(torch.randint(-2, 2, (*shape, 4), device="cuda", generator=generator))
        latent = torch.randn(*shape, 4, LATENT // 4, device="cuda", generator=generator)
        latent = (latent / scales[..., None]).to(torch.float8_e4m3fn).flatten(-2)
        rope = torch.randn(*shape, ROPE, device="cuda", generator=generator).to(BF16)
        fields = (latent, scales, rope)
        part.copy_(torch.cat([field.view(torch.uint8) for field in fields], -1))
    return pool


class FlashMla:
    """FlashMLA, whose schedule the first launch makes: before anything is timed."""

    def prepare(self, problem):
        out = [problem.new_o() for _ in problem.q]
        plan, sparse = peers.flashmla_plan(), isinstance(problem, SparseProblem)

        def launch(i):
            if not sparse:
                peers.flashmla(problem.q[i], problem.k, out[i], problem.tables[i], problem.kv_lens,
                               plan, SCALE)
            elif problem.cell["cache"] == "dsv32":
                peers.flashmla_lists(problem.q[i], problem.k, out[i], problem.lists[i], plan, SCALE)
            else:
                peers.flashmla_lists_bf16(problem.q[i], problem.k, out[i], problem.lists[i], SCALE)

        return [lambda i=i: launch(i) for i in range(len(out))], out


class FlashInfer:
    """FlashInfer's wrapper: kind "fa2" or "fa3"."""

    def __init__(self, kind):
        import flashinfer
        room = torch.zeros(256 << 20, device="cuda", dtype=torch.uint8)
        self.wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(room, backend=kind)

    def prepare(self, problem):
        if isinstance(problem, SparseProblem):
            return None
        batch = problem.batch
        flat = [torch.cat([row[:own] for row, own in zip(table, problem.pages)])
                for table in problem.tables]
        rows = torch.arange(batch + 1, dtype=torch.int32, device="cuda")
        begins = torch.tensor([0] + problem.pages).cumsum(0).to(torch.int32).cuda()
        self.wrapper.plan(
            qo_indptr=rows * problem.q_len, kv_indptr=begins, kv_indices=flat[0],
            kv_len_arr=problem.kv_lens, num_heads=problem.heads, head_dim_ckv=LATENT,
            head_dim_kpe=ROPE, page_size=PAGE, causal=True, sm_scale=SCALE, q_data_type=BF16,
            kv_data_type=BF16)
        latent, rope = problem.k[:, :, 0].split((LATENT, ROPE), dim=-1)
        parts = [[part.reshape(-1, problem.heads, part.shape[-1]).contiguous()
                  for part in q.split((LATENT, ROPE), dim=-1)] for q in problem.q]
        out = [problem.new_o() for _ in flat]

        def launch(i):
            # The plan is of the lengths; the page table is the wrapper's to keep.
            self.wrapper._planned_backend._kv_indices_buf = flat[i]
            self.wrapper.run(q_nope=parts[i][0], q_pe=parts[i][1], ckv_cache=latent,
                             kpe_cache=rope, out=out[i].view(-1, problem.heads, LATENT))

        return [lambda i=i: launch(i) for i in range(len(flat))], out


def copy_bandwidth():
    """Bytes that a copy reads and writes, per second: the median of 9."""
    source = torch.empty(1 << 31, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    copy = lambda: target.copy_(source)  # noqa: E731
    timed(copy, 3)
    return statistics.median(2e3 * source.numel() / timed(copy, 4) for _ in range(9))


def shown(cell, names, copy):
    us = cell["us"]["attnjit"]
    rate = cell["bytes"] / us * 1e6
    return " ".join([f"{cell['name']:<22}", *columns_of(cell, names),
                     f"{cell['flop'] / us / 1e6:6.0f} TFLOP/s {rate / copy:5.2f} copy"])


def group_of(cell):
    """Whose mean a cell is part of."""
    if "cache" in cell:
        return "lists over " + cell["cache"]
    uneven = min(cell["lens"]) < max(cell["lens"])
    return f"{cell['heads']} heads" + (", lengths that differ" if uneven else "")


def contenders_of(options):
    found = contenders_of_attnjit(options)
    if peers.have("FlashMLA"):
        found["flashmla"] = FlashMla()
    add_flashinfer(found, options.flashinfer, FlashInfer)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_flags(parser)
    parser.add_argument("--flashinfer", default="fa3,fa2", help="wrappers, comma-separated")
    options = parser.parse_args()
    chosen = chosen_of(cells(), options)
    if not chosen:
        parser.error("--only and --skip leave no cell")
    copy = copy_bandwidth()
    print(f"# a copy reads and writes {copy / 1e12:.3f} TB/s")
    pools = {cell.get("cache", "bf16"): None for cell in chosen}
    for cache in pools:
        # Of a list's cell there are two launches at least, whose rows are others.
        most = max(cell["batch"] * max(cell["lens"]) * (2 if "cache" in cell else 1)
                   for cell in chosen if cell.get("cache", "bf16") == cache)
        pages = max(most, 2 * MIN_ROTATION_BYTES // (2 * DEPTH)) // PAGE + 1
        if cache == "dsv32":
            pools[cache] = dsv32_pool(pages)
            continue
        pools[cache] = torch.empty(pages, PAGE, 1, DEPTH, device="cuda", dtype=BF16)
        for part in pools[cache].split(1 << 14):
            part.normal_()

    def problem(cell):
        kind = SparseProblem if "cache" in cell else Problem
        return kind(cell, pools[cell.get("cache", "bf16")])

    run(chosen, problem, contenders_of(options), options,
        lambda cell, names: shown(cell, names, copy),
        lambda cell: [group_of(cell)] + ["of these batch 1"] * (cell["batch"] == 1))


if __name__ == "__main__":
    main()

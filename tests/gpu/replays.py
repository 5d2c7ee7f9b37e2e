# SPDX-License-Identifier: Apache-2.0
"""Replays captured launches over steps of traffic, on the GPU at hand: replays.py [--steps N] [--seed S].

Each launch is captured once for the most requests, rows and keys. A step then writes other lengths, offsets and page
tables into the captured tensors (few or many requests, chunks among decodes, drafts, long tails, empty rows and empty
caches), poisons the output, replays, and compares every row with torch in float32. Rows that no request has must keep
their poison. Prints what is wrong; exit code 1 if anything is, 77 without a GPU. It needs attnjit and torch.
"""
import argparse
import dataclasses
import math
import random
import sys
import time

try:
    import torch
except ImportError:
    torch = None
else:
    import attnjit

BOUND = 0.02  # the largest error of a row, in units of the norm of a row
MOST_KEYS, POOL_ROWS = 8192, 32768


@dataclasses.dataclass
class Launch:
    """What is captured: heads of q and of k, depths of q and of out, and what a step may ask for."""

    name: str
    heads: int
    kv_heads: int
    depth: int
    page: int
    most_rows: int  # of a request; 1: decodes, without offsets
    requests: int = 24
    total_rows: int = 2048
    window: int = 0
    sinks: bool = False
    mla: bool = False


LAUNCHES = (
    Launch("mixed", 32, 8, 128, 16, 1024),
    Launch("groups of 5, pages of one row", 40, 8, 128, 1, 512),
    Launch("windows and sinks", 64, 8, 64, 16, 512, window=128, sinks=True),
    Launch("decodes of groups of 7", 28, 4, 128, 16, 1),
    Launch("drafts", 32, 8, 128, 64, 8),
    Launch("depth 256", 8, 4, 256, 16, 256),
    Launch("absorbed MLA", 16, 1, 576, 64, 4, mla=True),
)


def lengths(launch, rng):
    """(rows, keys) of each request of a step: a long tail, and now and then none."""
    kind = rng.choice(("decodes", "drafts", "chunks", "mixed", "mixed"))
    found, left = [], launch.total_rows
    for _ in range(rng.choice((1, launch.requests, rng.randint(1, launch.requests)))):
        rows = 1
        if launch.most_rows > 1 and kind != "decodes":
            most = min(launch.most_rows, left, 8 if kind == "drafts" else launch.most_rows)
            if most and (kind != "mixed" or rng.random() < 0.2):
                rows = rng.randint(1, most)
            if rng.random() < 0.05:
                rows = 0
        rows = min(rows, left)
        left -= rows
        keys = min(MOST_KEYS, round(math.exp(rng.uniform(math.log(1), math.log(MOST_KEYS)))))
        found.append((rows, 0 if rng.random() < 0.02 else max(rows, keys)))
    return found


class Replayed:
    """A captured launch with its tensors."""

    def __init__(self, launch, device, generator):
        self.launch, self.device = launch, device
        kept = dict(device=device, dtype=torch.bfloat16)
        pages = POOL_ROWS // launch.page
        rows = launch.requests if launch.most_rows == 1 else launch.total_rows
        self.q = torch.randn(rows, launch.heads, launch.depth, generator=generator, **kept)
        self.keys = torch.randn(pages + 1, launch.page, launch.kv_heads, launch.depth, generator=generator, **kept)
        self.keys[0] = float("nan")  # of the entries that no request has
        self.values = self.keys[..., :512] if launch.mla else torch.randn(
            self.keys.shape, generator=generator, **kept)
        if not launch.mla:
            self.values[0] = float("nan")
        self.sink = torch.randn(launch.heads, generator=generator, device=device) if launch.sinks else None
        self.out = torch.empty(rows, launch.heads, self.values.shape[-1], **kept)
        self.table = torch.zeros(launch.requests, -(-MOST_KEYS // launch.page), dtype=torch.int32, device=device)
        self.kv_lens = torch.zeros(launch.requests, dtype=torch.int32, device=device)
        self.offsets = torch.zeros(launch.requests + 1, dtype=torch.int32, device=device)
        self.call()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.call()

    def call(self):
        launch, more = self.launch, {}
        if launch.most_rows > 1:
            more["q_offsets"] = self.offsets
        if launch.mla:
            attnjit.mla_attention(self.q, self.keys.squeeze(2), self.table, self.kv_lens, mask="causal",
                                  out=self.out, scale=launch.depth ** -0.5, **more)
            return
        mask = {"kind": "sliding_window", "window": launch.window} if launch.window else "causal"
        attnjit.paged_attention(self.q, self.keys, self.values, self.table, self.kv_lens, mask=mask, sink=self.sink,
                                out=self.out, **more)

    def right(self, rows, request, keys):
        """O of the request in float32: [rows, heads, depth of v]."""
        launch = self.launch
        pages = self.table[request, :-(-keys // launch.page)].long()
        k = self.keys[pages].flatten(0, 1)[:keys].float()
        v = self.values[pages].flatten(0, 1)[:keys].float()
        q = rows.float().unflatten(1, (launch.kv_heads, -1))
        scores = torch.einsum("qhgd,khd->hgqk", q, k) * launch.depth ** -0.5
        at = torch.arange(keys - rows.shape[0], keys, device=self.device)[:, None]
        key = torch.arange(keys, device=self.device)[None, :]
        hidden = key > at
        if launch.window:
            hidden |= key <= at - launch.window
        scores = scores.masked_fill(hidden, -math.inf)
        if self.sink is not None:
            sink = self.sink.unflatten(0, (launch.kv_heads, -1))[..., None, None].expand(*scores.shape[:-1], 1)
            scores = torch.cat((scores, sink), -1)
        shares = scores.softmax(-1)[..., :keys].nan_to_num(0.0)
        return torch.einsum("hgqk,khd->qhgd", shares, v).flatten(1, 2)

    def wrong(self, step):
        """Replays a step; what is wrong with it as text, or None."""
        launch, device = self.launch, self.device
        rng = random.Random(step)
        asked = lengths(launch, rng)
        rows, keys = zip(*(asked + [(0, 0)] * (launch.requests - len(asked))))
        ends = [sum(rows[:i]) for i in range(len(rows) + 1)]
        self.offsets.copy_(torch.tensor(ends, dtype=torch.int32))
        self.kv_lens.copy_(torch.tensor(keys, dtype=torch.int32))
        used = torch.tensor([-(-n // launch.page) for n in keys], device=device)
        drawn = torch.randint(1, self.keys.shape[0], self.table.shape, device=device, dtype=torch.int32)
        drawn[torch.arange(self.table.shape[1], device=device)[None, :] >= used[:, None]] = 0
        self.table.copy_(drawn)
        self.out.fill_(float("nan"))
        self.graph.replay()
        written = len(asked) if launch.most_rows == 1 else ends[-1]
        offs = []
        for request, (own, length) in enumerate(asked):
            begin = request if launch.most_rows == 1 else ends[request]
            if own:
                wanted = self.right(self.q[begin:begin + own], request, length)
                norms = wanted.norm(dim=-1)
                off = (self.out[begin:begin + own].float() - wanted).norm(dim=-1)
                offs.append((off / (norms + 0.25 * norms.mean().clamp(min=1e-3))).nan_to_num(math.inf).max())
        worst = torch.stack(offs).max().item() if offs else 0.0
        if worst > BOUND:
            return f"a row is off by {worst:.3g} (bound {BOUND}); rows and keys {asked}"
        if launch.most_rows > 1 and not self.out[written:].isnan().all().item():
            return f"a row that no request has was written; rows and keys {asked}"
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000, help="of each launch")
    parser.add_argument("--seed", type=int, default=1, help="of the first step; the others follow")
    parser.add_argument("--only", default="", help="launches whose names begin so")
    given = parser.parse_args()
    if torch is None or not torch.cuda.is_available():
        print("skipped: no GPU, or no torch", file=sys.stderr)
        return 77
    failed = 0
    for launch in LAUNCHES:
        if not launch.name.startswith(given.only):
            continue
        began, wrong = time.monotonic(), 0
        replayed = Replayed(launch, "cuda", torch.Generator("cuda").manual_seed(given.seed))
        for step in range(given.seed, given.seed + given.steps):
            said = replayed.wrong(step)
            if said:
                wrong += 1
                if wrong <= 3:
                    print(f"{launch.name}, step {step}: {said}", flush=True)
        print(f"{launch.name}: {given.steps} steps, {wrong} wrong, {time.monotonic() - began:.0f} s", flush=True)
        failed += wrong
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

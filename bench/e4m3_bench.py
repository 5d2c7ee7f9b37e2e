#!/usr/bin/env python3
"""Times attnjit's sm_90a kernels of e4m3 beside FlashAttention-3's and beside its own of bf16.

    python3 bench/e4m3_bench.py --library build/release/src/libattnjit.so [--variant NAME=JSON] \\
        [--forms] [--json F] [--only 128.causal]

The cells are those of bench/sm90_bench.py, in which Q, K and V are N(0,1) numbers rounded to e4m3
and O is bf16; the kernel of bf16 has the same numbers. Contenders run in turn, in blocks of
launches, and the order turns round from one pair of blocks to the next; a ratio is the median of
the ratios within a pair. Before anything is timed, the first sequence's first head of each is
compared with a float32 reference of the same inputs: "error" is the norm of the difference over the
norm of the reference, which P of e4m3 alone brings to 2e-2.

"fa3" is vLLM's FlashAttention-3 (bench/peers.py). --variant is that of bench/sm90_bench.py.
--forms times the same numbers in other forms beside attnjit's plain kernel: "rows" have a scale
each, "f32" is the type of O, and K and V lie in "pages" of 64 rows and of 1, in any order.
"""
import argparse
import itertools
import math
import statistics

import torch

import peers
import sm90_bench as dense

MOST_ERROR = 5e-2
OTHERS = ("fa3", "bf16", "attnjit")  # what the others are compared with


def cells():
    for depth, mask, length in itertools.product(dense.DEPTHS, dense.MASKS, dense.LENGTHS):
        yield dict(name=f"e4m3.{depth}.{mask}.{length // 1024}k", dtype="e4m3",
                   batch=dense.TOKENS // length, heads=dense.WIDTH // depth, group=1,
                   length=length, depth=depth, mask=mask, flex=False)


def make_sets(cell, seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    shape = (cell["batch"], cell["length"], cell["heads"], cell["depth"])

    def normal():
        return torch.randn(shape, device="cuda", generator=generator).to(torch.float8_e4m3fn)

    return [(normal(), normal(), normal(),
             torch.full(shape, math.nan, device="cuda", dtype=torch.bfloat16)) for _ in range(3)]


class Bf16:
    """attnjit's kernel of bf16, with the same numbers."""

    def __init__(self, contender):
        self.contender = contender

    def prepare(self, cell, sets):
        wider = [(*(x.bfloat16() for x in tensors[:3]), torch.full_like(tensors[3], math.nan))
                 for tensors in sets]
        return self.contender.prepare({**cell, "dtype": "bf16"}, wider)


class Form(dense.Attnjit):
    """attnjit's kernel of the same numbers in another form (--forms)."""

    def __init__(self, options, scales=False, f32=False, page=0):
        fields = {**({"scales": "token"} if scales else {}),
                  **({"output_dtype": "f32"} if f32 else {}),
                  **({"page_size": page} if page else {})}
        super().__init__(options.libattnjit, options.templates, fields=fields)
        self.scales, self.f32, self.page = scales, f32, page
        self.generator = torch.Generator("cuda").manual_seed(20261127)

    def scaled(self, x):
        """The same numbers: rows are 1, 2 or 4 times as large as their scales say."""
        more = torch.randint(0, 3, x.shape[:3], device="cuda", generator=self.generator).float()
        return (x.float() * torch.exp2(more)[..., None]).to(x.dtype), torch.exp2(-more)

    def paged(self, x, table):
        """The same in pages."""
        pages = x.reshape(-1, self.page, *x.shape[2:])
        out = torch.empty_like(pages)
        out.view(torch.uint8)[table.flatten().long()] = pages.view(torch.uint8)
        return out

    def formed(self, q, k, v, o):
        """Tensors, and further fields of a launch."""
        fields = {}
        if self.scales:
            (q, fields["q_scale"]), (k, fields["k_scale"]), (v, fields["v_scale"]) = map(
                self.scaled, (q, k, v))
        if self.page:
            batch, length = k.shape[:2]
            pages = batch * length // self.page
            table = torch.randperm(pages, device="cuda", generator=self.generator)
            table = table.to(torch.int32).view(batch, -1)
            k, v = self.paged(k, table), self.paged(v, table)
            lens = torch.full((batch,), length, device="cuda", dtype=torch.int32)
            fields.update(page_table=table, kv_lens=lens, kv_len=length, num_pages=pages,
                          max_pages=table.shape[1])
        if self.f32:
            o = torch.full(o.shape, math.nan, device="cuda")
        return (q, k, v, o), fields

    def prepare(self, cell, sets):
        formed = [self.formed(*tensors) for tensors in sets]
        return self.prepared(cell, formed)


def reference(cell, q, k, v):
    """Of the first sequence's first head, float32: [length, depth]."""
    q, k, v = (x[0, :, 0].float() for x in (q, k, v))
    rows = []
    for begin in range(0, cell["length"], 2048):
        scores = q[begin:begin + 2048] @ k.T / math.sqrt(cell["depth"])
        if cell["mask"] == "causal":
            row = torch.arange(begin, begin + scores.shape[0], device="cuda")
            scores.masked_fill_(torch.arange(cell["length"], device="cuda") > row[:, None],
                                -math.inf)
        rows.append(scores.softmax(-1) @ v)
    return torch.cat(rows)


def measure(cell, contenders, options):
    sets = make_sets(cell, 20261123)
    expected = reference(cell, *sets[0][:3])
    prepared = {name: one.prepare(cell, sets) for name, one in contenders.items()}
    for name, (launches, result) in prepared.items():
        launches[0]()
        torch.cuda.synchronize()
        got = result(0)[0, :, 0].float()
        error = ((got - expected).norm() / expected.norm()).item()
        cell.setdefault("error", {})[name] = error
        if not error <= MOST_ERROR:
            raise SystemExit(f"{cell['name']}: {name} has an error of {error}")
    counts = {}
    for name, (launches, _) in prepared.items():
        dense.timed(launches, 2)
        counts[name] = max(2, round(options.block_ms / dense.timed(launches, 3)))
    times = {name: [] for name in prepared}
    for pair in range(options.pairs):
        for name in list(prepared) if pair % 2 == 0 else list(prepared)[::-1]:
            times[name].append(dense.timed(prepared[name][0], counts[name]))
    work = dense.flop(cell)
    cell["ms"] = {name: statistics.median(t) for name, t in times.items()}
    cell["tflops"] = {name: work / ms / 1e9 for name, ms in cell["ms"].items()}
    cell["ratio"] = {name: {other: statistics.median(b / a for a, b in zip(times[name], times[other]))
                            for other in OTHERS if other in times and other != name}
                     for name in times if name not in ("fa3", "bf16")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", dest="libattnjit", default="build/release/src/libattnjit.so")
    parser.add_argument("--templates", help="a folder that replaces the embedded templates")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=JSON",
                        help="another attnjit: fields of its specs, and tuning, library, templates")
    parser.add_argument("--forms", action="store_true",
                        help="scales of rows, O of f32, and pages, beside the plain kernel")
    parser.add_argument("--only", help="cells whose names contain one of these, comma-separated")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of blocks a cell; at least 5")
    parser.add_argument("--block-ms", type=float, default=15, help="length of a block")
    parser.add_argument("--json", help="file for all numbers")
    options = parser.parse_args()
    if options.pairs < 5:
        parser.error("--pairs: at least 5")
    contenders = dense.contenders_of_attnjit(options)
    if options.forms:
        contenders |= {"rows": Form(options, scales=True), "f32": Form(options, f32=True),
                       "pages64": Form(options, page=64), "pages1": Form(options, page=1)}
    names = list(contenders)
    contenders["bf16"] = Bf16(dense.Attnjit(options.libattnjit, options.templates))
    if peers.have("FlashAttention-3"):
        contenders["fa3"] = dense.Fa3()
    print(f"{'cell':<20} {'fa3':>6} {'error':>8} {'bf16':>6} "
          + " ".join(f"{n:>9} {'error':>8}   /fa3  /bf16 /plain" for n in names), flush=True)
    done = []
    for cell in cells():
        if options.only and not any(part in cell["name"] for part in options.only.split(",")):
            continue
        measure(cell, contenders, options)
        done.append(cell)
        columns = [f"{cell['name']:<20}", f"{cell['tflops'].get('fa3', 0):6.0f}",
                   f"{cell['error'].get('fa3', 0):8.1e}", f"{cell['tflops']['bf16']:6.0f}"]
        for name in names:
            columns += [f"{cell['tflops'][name]:9.0f}", f"{cell['error'][name]:8.1e}"]
            columns += [f"{cell['ratio'][name].get(other, 0):6.3f}" for other in OTHERS]
        print(" ".join(columns), flush=True)
    for name, other in itertools.product(names, OTHERS):
        ratios = [c["ratio"][name][other] for c in done if other in c["ratio"][name]]
        if ratios:
            mean = math.exp(statistics.mean(map(math.log, ratios)))
            print(f"{name}: of {other}, geometric mean {mean:.3f} over {len(ratios)} cells, "
                  f"least {min(ratios):.3f}")
    dense.write(options, done)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Times attnjit's sm_90a kernels beside FlashAttention-3, cuDNN and FlexAttention, in one process.

    python3 bench/sm90_bench.py --library build/release/src/libattnjit.so [--json F] \\
        [--only 128.causal]

Builds nothing: attnjit comes in through its C ABI (python/attnjit), the others through
PyTorch. Every contender gets the same N(0,1) tensors, in buffers that rotate; they run in turn, in
blocks of launches, with an 8192^3 bf16 matrix product between them; the order turns round from one
pair of blocks to the next. A time is the median over the pairs, a ratio the median of the ratios
within a pair. Outputs are poisoned and compared before anything is timed.

With --fill the cells are those whose tiles fill the GPU's SMs badly: many short sequences, and few
tiles. Their names say batch, heads and length. With --variant 'parts={"num_partitions": 0}' a
kernel of such a spec is timed beside the plain one's.

FLOP = 4 batch heads q_len kv_len depth, halved under causal, the visible share under a window.
"best" is the better of FA3 and cuDNN in the same run. FA3 is vLLM's (bench/peers.py); without it
"best" is cuDNN alone, and the output says so.
"""
import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, os.environ.get("ATTNJIT_PYTHON") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import attnjit  # noqa: E402

import peers  # noqa: E402

TOKENS, WIDTH = 16384, 2048
LENGTHS = (1024, 2048, 4096, 8192, 16384)
DEPTHS = (64, 128, 256)
MASKS = ("none", "causal")
GQA8_LENGTHS = (2048, 8192)
TOLERANCE = {"bf16": 1e-2, "fp16": 2e-3}
WINDOW, CAP = 1024, 20.0
# Batch, heads, length, depth.
SHORT = ((32, 16, 256, 128), (64, 8, 256, 64), (128, 4, 128, 128), (16, 32, 384, 128),
         (20, 24, 320, 128), (8, 64, 512, 128), (100, 8, 200, 64))
FEW = ((1, 4, 20000, 128), (1, 2, 12000, 128), (1, 1, 32000, 128), (2, 4, 5000, 128),
       (1, 12, 3000, 128), (3, 8, 1500, 128), (1, 4, 20000, 64), (1, 6, 9000, 256),
       (1, 16, 1024, 128), (1, 2, 16000, 128), (1, 1, 20000, 128), (1, 4, 8192, 128),
       (1, 8, 4096, 128))
OTHERS = ("cudnn", "fa3", "flex")


def cells():
    """The measurements: dicts with name, shape, mask and score_mod."""
    for dtype in ("bf16", "fp16"):
        for depth, mask, length in itertools.product(DEPTHS, MASKS, LENGTHS):
            yield dict(name=f"{dtype}.{depth}.{mask}.{length // 1024}k", dtype=dtype,
                       batch=TOKENS // length, heads=WIDTH // depth, group=1, length=length,
                       depth=depth, mask=mask, flex=False)
        if dtype == "bf16":
            for mask, length in itertools.product(MASKS, GQA8_LENGTHS):
                yield dict(name=f"bf16.gqa8.128.{mask}.{length // 1024}k", dtype="bf16",
                           batch=TOKENS // length, heads=64, group=8, length=length, depth=128,
                           mask=mask, flex=False)
            for kind in ("none", "causal", "window", "softcap"):
                yield dict(name=f"bf16.flex.128.{kind}.8k", dtype="bf16", batch=2, heads=16,
                           group=1, length=8192, depth=128,
                           mask="none" if kind == "softcap" else kind, softcap=kind == "softcap",
                           flex=True)


def fill_cells():
    """Launches whose tiles are short, or too few for whole rounds of the SMs."""
    for kind, shapes in (("short", SHORT), ("few", FEW)):
        for (batch, heads, length, depth), mask in itertools.product(shapes, MASKS):
            yield dict(name=f"{kind}.{depth}.{mask}.{batch}x{heads}x{length}", dtype="bf16",
                       batch=batch, heads=heads, group=1, length=length, depth=depth, mask=mask,
                       flex=False)


def flop(cell):
    s, rows = cell["length"], cell["length"]
    if cell["mask"] == "causal":
        visible = s * rows / 2
    elif cell["mask"] == "window":
        visible = rows * WINDOW - WINDOW * (WINDOW - 1) / 2
    else:
        visible = s * rows
    return 4.0 * cell["batch"] * cell["heads"] * cell["depth"] * visible


class Attnjit:
    """A contender: one build of the library, with its own templates or the embedded ones. `fields`
    are set in the specs."""

    def __init__(self, library, templates=None, tuning=None, fields=None):
        self.fields = fields or {}
        options = {"templates_folder": templates} if templates else {}
        if tuning:
            options["tuning"] = tuning
        self.service = attnjit.Service(library, no_disk_cache=1, **options)

    def prepare(self, cell, sets):
        return self.prepared(cell, [(tensors, {}) for tensors in sets])

    def prepared(self, cell, sets):
        """Of pairs of q, k, v, o and further fields of their launches."""
        masks = {"none": "null", "causal": "causal",
                 "window": {"kind": "sliding_window", "window": WINDOW}}
        spec = {"arch": "sm_90a", "num_q_heads": cell["heads"], "group": cell["group"],
                "qk_depth": cell["depth"], "qkv_dtype": cell["dtype"], "mask": masks[cell["mask"]],
                **self.fields}
        if cell.get("softcap"):
            spec["score_mod"] = {"kind": "softcap", "cap": CAP}
        kernel = self.service.get(self.service.prepare(spec))
        stream = torch.cuda.current_stream().cuda_stream
        launches, memory = [], None
        for (q, k, v, o), fields in sets:
            args = self.service.launch_args(q=q, k=k, v=v, o=o, stream=stream, **fields)
            needed, _ = self.service.workspace(kernel, args)
            if needed > 0:
                if memory is None or memory.numel() < needed:
                    memory = torch.zeros(needed, device="cuda", dtype=torch.uint8)
                args.workspace, args.workspace_bytes = memory.data_ptr(), needed
            launches.append(self.service.prepare_launch(kernel, self.service.launch_state(), args))
        outputs = [o for (*_, o), _ in sets]
        return launches, lambda i, _=memory: outputs[i]  # NOTE: which keeps the workspace


class Cudnn:
    def prepare(self, cell, sets):
        if cell["mask"] == "window" or cell.get("softcap"):
            return None
        results = [None] * len(sets)

        def launch(i, q, k, v):
            results[i] = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=cell["mask"] == "causal", enable_gqa=cell["group"] > 1)

        views = [[x.transpose(1, 2) for x in tensors[:3]] for tensors in sets]
        return ([lambda i=i, t=t: launch(i, *t) for i, t in enumerate(views)],
                lambda i: results[i].transpose(1, 2))


class Fa3:
    def prepare(self, cell, sets):
        if cell["flex"]:
            return None
        descale = None
        if cell["dtype"] == "e4m3":
            descale = torch.ones(cell["batch"], cell["heads"] // cell["group"], device="cuda")
        outputs = [torch.full_like(o, math.nan) for _, _, _, o in sets]
        causal = cell["mask"] == "causal"
        return ([lambda t=t, out=out: peers.fa3_batch(*t[:3], out, causal, descale)
                 for t, out in zip(sets, outputs)], lambda i: outputs[i])


class Flex:
    def __init__(self):
        from torch.nn.attention import flex_attention
        self.module = flex_attention

    def prepare(self, cell, sets):
        if not cell["flex"]:
            return None
        torch._dynamo.reset()
        mods = {"none": None, "causal": lambda b, h, q, kv: kv <= q,
                "window": lambda b, h, q, kv: (kv <= q) & (q - kv < WINDOW)}
        mod, block_mask, score_mod = mods[cell["mask"]], None, None
        began = time.perf_counter()
        if mod is not None:
            block_mask = self.module.create_block_mask(mod, None, None, cell["length"],
                                                       cell["length"], device="cuda")
        if cell.get("softcap"):
            score_mod = lambda score, b, h, q, kv: CAP * torch.tanh(score / CAP)  # noqa: E731
        compiled = torch.compile(self.module.flex_attention, dynamic=False)
        results = [None] * len(sets)

        def launch(i, q, k, v):
            results[i] = compiled(q, k, v, score_mod=score_mod, block_mask=block_mask)

        views = [[x.transpose(1, 2) for x in tensors[:3]] for tensors in sets]
        launch(0, *views[0])
        torch.cuda.synchronize()
        cell["flex_first_call_s"] = round(time.perf_counter() - began, 3)
        return ([lambda i=i, t=t: launch(i, *t) for i, t in enumerate(views)],
                lambda i: results[i].transpose(1, 2))


class Product:
    """8192^3, bf16: what the tensor cores give at this moment's clock."""
    FLOP = 2.0 * 8192**3

    def __init__(self):
        self.pairs = [[torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
                       for _ in range(3)] for _ in range(2)]
        self.launches = [lambda a=a, b=b, c=c: torch.mm(a, b, out=c) for a, b, c in self.pairs]


def timed(launches, count):
    """Milliseconds a launch of a block of `count`."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for i in range(count):
        launches[i % len(launches)]()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count


def make_sets(cell, seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[cell["dtype"]]

    def normal(heads):
        return torch.randn(cell["batch"], cell["length"], heads, cell["depth"], device="cuda",
                           dtype=dtype, generator=generator)

    kv_heads = cell["heads"] // cell["group"]
    return [(normal(cell["heads"]), normal(kv_heads), normal(kv_heads),
             torch.full((cell["batch"], cell["length"], cell["heads"], cell["depth"]), math.nan,
                        device="cuda", dtype=dtype)) for _ in range(3)]


def check(cell, prepared):
    """Compares the contenders' results with the first of the others' (cuDNN's, else Flex's)."""
    for launches, _ in prepared.values():
        launches[0]()
    torch.cuda.synchronize()
    references = [name for name in ("cudnn", "flex") if name in prepared]
    reference = prepared[references[0]][1](0).float()
    for name, (launches, result) in prepared.items():
        launches[0]()  # NOTE: again: builds of attnjit share the output
        torch.cuda.synchronize()
        error = ((result(0).float() - reference).norm() / reference.norm()).item()
        cell.setdefault("difference", {})[name] = error
        if not error <= TOLERANCE[cell["dtype"]]:
            raise SystemExit(f"{cell['name']}: {name} differs from {references[0]} by {error}")


def measure(cell, contenders, product, pairs, block_ms):
    sets = make_sets(cell, 20261121)
    prepared = {}
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        for name, contender in contenders.items():
            got = contender.prepare(cell, sets)
            if got is not None:
                prepared[name] = got
        check(cell, prepared)
        blocks = {name: launches for name, (launches, _) in prepared.items()}
        blocks["product"] = product.launches
        counts = {}
        for name, launches in blocks.items():
            timed(launches, 2)
            counts[name] = max(2, round(block_ms / timed(launches, 3)))
        times = {name: [] for name in blocks}
        for pair in range(pairs):
            order = list(blocks) if pair % 2 == 0 else list(blocks)[::-1]
            for name in order:
                times[name].append(timed(blocks[name], counts[name]))
    work = flop(cell)
    cell["ms"] = {name: statistics.median(t) for name, t in times.items()}
    cell["blocks_ms"] = times
    cell["tflops"] = {name: (product.FLOP if name == "product" else work) / ms / 1e9
                      for name, ms in cell["ms"].items()}
    cell["ratio"] = {
        name: {other: statistics.median(b / a for a, b in zip(times[name], times[other]))
               for other in OTHERS if other in times}
        for name in times if name not in (*OTHERS, "product")}
    cell["of_best"] = {} if cell["flex"] else {
        name: min(ratios[other] for other in ("cudnn", "fa3") if other in ratios)
        for name, ratios in cell["ratio"].items()}
    cell["of_product"] = {
        name: statistics.median((work / a) / (product.FLOP / b)
                                for a, b in zip(times[name], times["product"]))
        for name in cell["ratio"]}


def shown(cell, names):
    def number(value, form):
        return format(value, form) if value else "-".rjust(int(form.split(".")[0]))
    columns = [f"{cell['name']:<24}", number(cell["tflops"]["product"], "7.0f")]
    columns += [number(cell["tflops"].get(other), "7.0f") for other in OTHERS]
    for name in names:
        columns.append(number(cell["tflops"][name], "9.0f"))
        columns += [number(cell["ratio"][name].get(other), "7.3f") for other in OTHERS]
        best = cell["of_best"].get(name)
        columns.append(number(best, "7.3f") + (" <" if best and best < 0.98 else ""))
    return " ".join(columns)


def run(contenders, options):
    """Measures the cells; `contenders` maps names to what has prepare(). Returns the cells."""
    everyone = {**contenders, "cudnn": Cudnn()}
    if peers.have("FlashAttention-3"):
        everyone["fa3"] = Fa3()
    else:
        print("# best is cuDNN")
    if not options.no_flex:
        everyone["flex"] = Flex()
    product = Product()
    names = list(contenders)
    print(f"{'cell':<24} {'product':>7} " + " ".join(f"{other:>7}" for other in OTHERS) + " "
          + " ".join(f"{n:>9} /cudnn    /fa3   /flex   /best" for n in names), flush=True)
    done = []
    for cell in fill_cells() if options.fill else cells():
        if options.only and not any(part in cell["name"] for part in options.only.split(",")):
            continue
        if options.no_flex and (cell["mask"] == "window" or cell.get("softcap")):
            continue
        measure(cell, everyone, product, options.pairs, options.block_ms)
        print(shown(cell, names), flush=True)
        done.append(cell)
    for name in names:
        best = [c["of_best"][name] for c in done if name in c["of_best"]]
        if best:
            mean = math.exp(statistics.mean(map(math.log, best)))
            print(f"{name}: of best, geometric mean {mean:.3f} over {len(best)} cells, "
                  f"{sum(b >= 0.98 for b in best)} at 0.98 or more, least {min(best):.3f}")
    return done


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", dest="libattnjit", default="build/release/src/libattnjit.so")
    parser.add_argument("--templates", help="a folder that replaces the embedded templates")
    parser.add_argument("--only", help="cells whose names contain one of these, comma-separated")
    parser.add_argument("--fill", action="store_true", help="launches that fill the GPU badly")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=JSON",
                        help="another attnjit: fields of its specs, and tuning, library, templates")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of blocks a cell; at least 5")
    parser.add_argument("--block-ms", type=float, default=15, help="length of a block")
    parser.add_argument("--no-flex", action="store_true")
    parser.add_argument("--json", help="file for all numbers")
    options = parser.parse_args()
    if options.pairs < 5:
        parser.error("--pairs: at least 5")
    return options


def contenders_of_attnjit(options):
    """attnjit, and the variants of --variant."""
    found = {"attnjit": Attnjit(options.libattnjit, options.templates)}
    for variant in options.variant:
        name, _, text = variant.partition("=")
        fields = json.loads(text)
        library = fields.pop("library", options.libattnjit)
        templates = fields.pop("templates", options.templates)
        tuning = json.dumps(fields.pop("tuning")) if "tuning" in fields else None
        found[name] = Attnjit(library, templates, tuning, fields)
    return found


def write(options, done):
    if not options.json:
        return
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                            capture_output=True, text=True, check=False).stdout.strip()
    record = {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
              "gpu": torch.cuda.get_device_name(), "driver": driver, "torch": torch.__version__,
              "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
              "pairs": options.pairs, "block_ms": options.block_ms, "cells": done}
    with open(options.json, "w", encoding="utf-8") as out:
        json.dump(record, out, indent=1)


if __name__ == "__main__":
    chosen = arguments()
    write(chosen, run(contenders_of_attnjit(chosen), chosen))

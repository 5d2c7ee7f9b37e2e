#!/usr/bin/env python3
"""Times attnjit's masks on sm_90a beside FlexAttention, in one process.

    python3 bench/mask_bench.py --library build/release/src/libattnjit.so [--only doc] [--json F]

FlexAttention is compiled (dynamic=False), its block mask prepared outside of its time. A cell is a
mask; attnjit has it written in several ways: with built-in masks, as an expression, with arrays.
"array" makes the map of its mask in each launch; "map" reads one that an earlier launch made, as
the layers of a model do but for the first; "blocks" reads FlexAttention's own block mask. A mask
without arrays has a map by the plan option mask_map; its launches are "mapped" in the place of
"array".
With --variant, each way is timed once more by another attnjit, and it/first is its time over that
of the same way without a variant. Kernels are then compiled beforehand, several at a time: "first"
says nothing of that.
With --flash, "flash" is FlexAttention with kernel_options={"BACKEND": "FLASH"}, which needs the
package flash_attn.cute beside PyTorch. Where it does not run, a line says why.
With --interpreted, "fallback" is the kernel that serves while the mask's own is compiled, ready
before for another mask; its "first" is from the new mask to its result, and a line says what its
steps took: the spec is prepared, a kernel found, O allocated, the arguments made with a workspace,
the launch prepared and the stream's buffers awaited, launched, and its kernels awaited.
Each contender is a CUDA graph of one launch per set of N(0,1) tensors in bf16, so that no time of
the host counts; graphs run in turns, in blocks, and the order turns round from one pair of blocks
to the next. A time is the median over the pairs, a ratio the median of the ratios within a pair.

Before anything is timed every contender's result is compared, at some rows, with a float32
reference that asks the mask about each score; a peer that is wrong is told of and not timed.
"first" is what the first call takes: attnjit's with an empty cache, FlexAttention's with its block
mask and its compile.
"""
import argparse
import concurrent.futures
import json
import math
import os
import statistics
import sys
import time

import torch
from torch.nn.attention import flex_attention as flex

sys.path.insert(0, os.environ.get("ATTNJIT_PYTHON") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import attnjit  # noqa: E402

DEPTH, SETS, TOLERANCE = 128, 3, 1e-2
CAUSAL = {"kind": "causal"}
PEERS = ("flex", "flash")
TOLD = set()  # errors of peers that were printed whole


def custom(code, name="bench", **types):
    return {"kind": "custom", "name": name, "code": code,
            "params": [{"name": name, "type": kind} for name, kind in types.items()]}


def tree(kind, *masks):
    return {"kind": kind, "of": list(masks)}


# NOTE: functions that close over what they read: FlexAttention counts a function's arguments.

def causal(b, h, q, k):
    return k <= q


def same_block(size):
    return lambda b, h, q, k: (k <= q) & (q // size == k // size)


def same_document(doc):
    return lambda b, h, q, k: (k <= q) & (doc[q] == doc[k])


class Cell:
    """`mask`: FlexAttention's function; `ways`: by name, the mask of a spec and its arrays.

    score, score_mod: where scores are modified, FlexAttention's function and the spec's field."""

    def __init__(self, name, mask, ways, length=8192, batch=2, heads=16, group=1, q_len=None,
                 by_batch=False, score=None, score_mod=None):
        self.name, self.mask, self.ways, self.length = name, mask, dict(ways), length
        for made in ("array", "mapped"):
            if made in ways:
                self.ways |= dict.fromkeys(("map", "blocks"), ways[made])
        self.maps_by_option = "mapped" in ways
        self.batch, self.heads, self.group = batch, heads, group
        self.q_len, self.by_batch = q_len or length, by_batch
        self.score, self.score_mod = score, score_mod


def documents(generator, length):
    """Lengths from 128 to 2048, and which document each position is of."""
    ends = torch.randint(128, 2049, (length,), generator=generator).cumsum(0)
    return torch.bucketize(torch.arange(length), ends, right=True).to(torch.int32).cuda()


def images(length):
    """Of each 1024 positions, 256 to 831 are an image; 0 is text."""
    at = torch.arange(length)
    inside = (at % 1024 >= 256) & (at % 1024 < 832)
    return torch.where(inside, at // 1024 + 1, 0).to(torch.int32).cuda()


def drafts(generator, count):
    """A tree: each draft's words of the path to its root, and the same as a matrix of bools."""
    sees = torch.eye(count, dtype=torch.bool)
    for i in range(1, count):
        sees[i] |= sees[int(torch.randint(max(0, i - 8), i, (), generator=generator))]
    bits = sees.view(count, count // 32, 32).long() << torch.arange(32)
    words = bits.sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32).cuda(), sees.cuda()


def chosen_blocks(rows, blocks):
    return Cell("chosen.blocks" if rows == 128 else f"chosen.blocks.{rows}",
                lambda b, h, q, k: blocks[q // rows, k // 128] != 0,
                {"expression": (custom(f"p.blocks[q_idx / {rows}][kv_idx / 128] != 0",
                                       blocks="i32[][]"), {"blocks": blocks})})


def cookbook():
    """Recipes of docs/masks.md that `cells` has not."""
    generator = torch.Generator().manual_seed(20261127)
    yield Cell("two.sided.512", lambda b, h, q, k: (q - k).abs() <= 512,
               {"builtin": ({"kind": "sliding_window", "window": 513, "window_right": 512}, {}),
                "expression": (custom("abs(q_idx - kv_idx) <= p.w", w="i32"), {"w": 512})})
    image = images(8192)
    yield Cell("image.in.window.512",
               lambda b, h, q, k: (q - k < 512) & (k - q <= 511) & (
                   (k <= q) | ((image[q] != 0) & (image[q] == image[k]))),
               {"array": (tree("and", {"kind": "sliding_window", "window": 512,
                                       "window_right": 511},
                               custom("kv_idx <= q_idx || p.image[q_idx] != 0 && "
                                      "p.image[q_idx] == p.image[kv_idx]", image="i32[]")),
                          {"image": image})})
    prompt = torch.tensor([1500, 3000], dtype=torch.int32, device="cuda")
    yield Cell("r.swa.1k", lambda b, h, q, k: (k <= q) & ((k < prompt[b]) | (q - k < 1024)),
               {"expression": (custom("kv_idx <= q_idx && (kv_idx < p.prompt[b] || "
                                      "q_idx - kv_idx < p.w)", prompt="i32[]", w="i32"),
                               {"prompt": prompt, "w": 1024})}, by_batch=True)
    yield Cell("strided.window",
               lambda b, h, q, k: (k <= q) & ((q - k < 128) | (k // 128 % 4 == 0)),
               {"expression": (custom("kv_idx <= q_idx && (q_idx - kv_idx < 128 || "
                                      "kv_idx / 128 % 4 == 0)"), {})})
    # 16 of 64 blocks of keys for each block of rows, as an index chooses them.
    for rows in (128, 256, 512):
        best = torch.rand(8192 // rows, 64, generator=generator).topk(16).indices
        blocks = torch.zeros(8192 // rows, 64, dtype=torch.int32).scatter_(1, best, 1).cuda()
        yield chosen_blocks(rows, blocks)
    # NOTE: beyond an array attnjit reads 0, and FlexAttention must not read.
    reach = 128
    relative = torch.randn(2 * 8192, 16, reach, generator=generator).cuda()
    starts = torch.tensor([0, 8192], dtype=torch.int32, device="cuda")
    yield Cell("relative.bias", causal, {"builtin": (CAUSAL, {"rel": relative, "starts": starts})},
               score=lambda s, b, h, q, k: s + torch.where(
                   (q >= k) & (q - k < reach),
                   relative[starts[b] + q, h, (q - k).clamp(0, reach - 1)], 0.0),
               score_mod=custom("score + p.rel[p.starts[b] + q_row][h][q_idx - kv_idx]",
                                rel="f32[][][]", starts="i32[]"))
    bias = torch.randn(16, 8192, generator=generator).cuda()
    yield Cell("bias.of.distance", causal, {"builtin": (CAUSAL, {"bias": bias})},
               score=lambda s, b, h, q, k: s + bias[h, (q - k).abs()],
               score_mod=custom("score + p.bias[h][abs(q_idx - kv_idx)]", bias="f32[][]"))


def cells():
    generator = torch.Generator().manual_seed(20261122)
    # NOTE: neither may be one that becomes the built-in mask.
    wide = custom("q_idx - kv_idx < p.w", w="i32"), {"w": 1 << 30}
    yield Cell("null", None, {"builtin": ("null", {}), "expression": wide})
    yield Cell("causal", causal,
               {"builtin": (CAUSAL, {}), "expression": (custom("kv_idx <= q_idx >> 0"), {})})
    yield Cell("chunks.1k", lambda b, h, q, k: q // 1024 == k // 1024,
               {"builtin": ({"kind": "chunked", "chunk": 1024}, {}),
                "expression": (custom("q_idx / 1024 == kv_idx / 1024"), {})})
    for size, length, batch in ((1024, 8192, 2), (4096, 32768, 1)):
        doc = (torch.arange(length, device="cuda") // size).to(torch.int32)
        yield Cell(f"documents.{size // 1024}k.of.{length // 1024}k",
                   same_block(size),
                   {"builtin": (tree("and", CAUSAL, {"kind": "chunked", "chunk": size}), {}),
                    "expression": (
                        custom(f"kv_idx <= q_idx && q_idx / {size} == kv_idx / {size}"), {}),
                    "parameter": (custom("kv_idx <= q_idx && q_idx / p.n == kv_idx / p.n",
                                         n="i32"), {"n": size}),
                    "array": (tree("and", CAUSAL,
                                   custom("p.doc[q_idx] == p.doc[kv_idx]", doc="i32[]")),
                              {"doc": doc})}, length=length, batch=batch)
    for length, batch in ((8192, 2), (32768, 1)):
        doc = documents(generator, length)
        yield Cell(f"documents.random.of.{length // 1024}k",
                   same_document(doc),
                   {"array": (tree("and", CAUSAL,
                                   custom("p.doc[q_idx] == p.doc[kv_idx]", doc="i32[]")),
                              {"doc": doc})}, length=length, batch=batch)
    image = images(8192)
    yield Cell("image.prefix", lambda b, h, q, k: (k <= q) | ((image[q] != 0)
                                                              & (image[q] == image[k])),
               {"array": (custom("kv_idx <= q_idx || p.image[q_idx] != 0 && "
                                 "p.image[q_idx] == p.image[kv_idx]", image="i32[]"),
                          {"image": image})})
    prefix = torch.tensor([1500, 3000], dtype=torch.int32, device="cuda")
    yield Cell("prefix.lm", lambda b, h, q, k: (k <= q) | (k < prefix[b]),
               {"expression": (custom("kv_idx <= q_idx || kv_idx < p.prefix[b]", prefix="i32[]"),
                               {"prefix": prefix})}, by_batch=True)
    yield Cell("sinks.window.1k", lambda b, h, q, k: (k <= q) & ((k < 4) | (q - k < 1024)),
               {"tree": (tree("or", {"kind": "sliding_window", "window": 1024},
                              tree("and", CAUSAL, custom("kv_idx < 4"))), {}),
                "expression": (
                    custom("kv_idx <= q_idx && (kv_idx < 4 || q_idx - kv_idx < 1024)"), {})})
    yield Cell("dilated.window",
               lambda b, h, q, k: (k <= q) & (q - k < 512) & ((q - k) % 4 == 0),
               dict.fromkeys(("expression", "mapped"),
                             (custom("kv_idx <= q_idx && q_idx - kv_idx < 512 && "
                                     "(q_idx - kv_idx) % 4 == 0"), {})))
    yield Cell("window.or.chunk",
               lambda b, h, q, k: (k <= q) & ((q - k < 512) | (q // 2048 == k // 2048)),
               {"tree": (tree("or", {"kind": "sliding_window", "window": 512},
                              tree("and", CAUSAL, {"kind": "chunked", "chunk": 2048})), {}),
                "expression": (custom("kv_idx <= q_idx && (q_idx - kv_idx < 512 || "
                                      "q_idx / 2048 == kv_idx / 2048)"), {})})
    words, sees = drafts(generator, 64)
    before = 8192 - 64
    yield Cell("tree.64.drafts",
               lambda b, h, q, k: (k < before) | sees[q, (k - before).clamp(min=0)],
               {"array": (tree("or", custom("kv_idx < kv_len - q_len", "before"),
                               custom("(p.t[q_row][(kv_idx - kv_len + q_len) / 32] >> "
                                      "kv_idx - kv_len + q_len & 1) != 0", t="i32[][]")),
                          {"t": words})}, q_len=64, heads=32, group=4, batch=8)
    yield from cookbook()


class Problem:
    """A cell's tensors, in sets that rotate."""

    def __init__(self, cell):
        generator = torch.Generator("cuda").manual_seed(20261122)

        def normal(length, heads):
            return torch.randn(cell.batch, length, heads, DEPTH, device="cuda",
                               dtype=torch.bfloat16, generator=generator)

        kv_heads = cell.heads // cell.group
        self.cell = cell
        self.sets = [(normal(cell.q_len, cell.heads), normal(cell.length, kv_heads),
                      normal(cell.length, kv_heads)) for _ in range(SETS)]

    def reference(self, rows):
        """float32, of some rows of the first set."""
        cell, (q, k, v) = self.cell, self.sets[0]
        k, v = (x.repeat_interleave(cell.group, 2) for x in (k, v))
        out = torch.empty(cell.batch, len(rows), cell.heads, DEPTH, device="cuda")
        keys = torch.arange(cell.length, device="cuda")
        for b in range(cell.batch):
            s = torch.einsum("qhd,khd->hqk", q[b, rows].float(), k[b].float()) * DEPTH**-0.5
            if cell.score is not None:
                heads = torch.arange(cell.heads, device="cuda")[:, None, None]
                s = cell.score(s, torch.tensor(b, device="cuda"), heads, rows[:, None], keys[None])
            if cell.mask is not None:
                # NOTE: no index is negative where a mask looks one up.
                seen = cell.mask(torch.tensor(b, device="cuda"), 0, rows[:, None], keys[None])
                s.masked_fill_(~seen, -math.inf)
            out[b] = torch.einsum("hqk,khd->qhd", s.softmax(-1), v[b].float())
        return out


def is_custom(mask):
    return mask != "null" and (mask["kind"] == "custom" or any(map(is_custom, mask.get("of", ()))))


def spec_of(cell, way):
    spec = {"arch": "sm_90a", "num_q_heads": cell.heads, "group": cell.group,
            "qk_depth": DEPTH, "mask": cell.ways[way][0]}
    if cell.score_mod is not None:
        spec["score_mod"] = cell.score_mod
    if cell.maps_by_option and way in ("mapped", "map", "blocks"):
        spec["mask_map"] = True
    if cell.q_len < cell.length:
        spec["num_partitions"] = 0
    return spec


class Attnjit:
    """One way of writing a cell's mask.

    fallback: the mask is served by a kernel that interprets it."""

    def __init__(self, service, problem, way, stream, fallback=False):
        cell = problem.cell
        spec, params = spec_of(cell, way), cell.ways[way][1]
        reused = way if way in ("map", "blocks") else None  # whose map its launches read
        if fallback:
            service.get(service.prepare(spec | {"mask": custom("true"), "interpreted": True}))
        began = time.perf_counter()
        stamps = {}  # of the first result, what each step of it ends at

        def step(name):
            stamps.setdefault(name, time.perf_counter())
        if fallback:
            prepared = service.prepare(spec)
            step("spec")
            kernel, serves_meanwhile = service.get_or_fallback(prepared)
            if not serves_meanwhile:
                raise SystemExit(f"{cell.name}: nothing serves while the mask is compiled")
        else:
            kernel = service.get(service.prepare(spec))
        step("kernel")
        self.outputs, self.launches, self.kept = [], [], []
        for q, k, v in problem.sets:
            o = torch.full_like(q, math.nan)
            step("output")
            given = dict(q=q, k=k, v=v, o=o, params=params, stream=stream.cuda_stream)
            if reused and not self.kept:
                self.kept.append(self.map_of(service, kernel, problem, given, reused))
            if reused:
                given |= dict(self.kept[0], mask_map="read")
            args = service.launch_args(**given)
            needed, _ = service.workspace(kernel, args)
            if needed:
                memory = torch.zeros(needed, dtype=torch.uint8, device="cuda")
                args.workspace, args.workspace_bytes = memory.data_ptr(), needed
                self.kept.append(memory)
            step("arguments")
            self.launches.append(service.prepare_launch(kernel, service.launch_state(), args))
            self.outputs.append(o)
            if len(self.launches) == 1:  # the first result
                torch.cuda.synchronize()  # tensors are made on another stream
                step("buffers")
                self.launches[0]()
                step("launch")
                torch.cuda.synchronize()
                step("kernels")
                self.first_s = time.perf_counter() - began
                ends = [began, *stamps.values()]
                self.first_steps = {name: 1e3 * (end - before) for name, before, end
                                    in zip(stamps, ends, ends[1:])}

    @staticmethod
    def map_of(service, kernel, problem, given, reused):
        """The arrays of a map: FlexAttention's, or what a launch writes."""
        if reused == "blocks":
            cell = problem.cell
            mask = flex.create_block_mask(cell.mask, cell.batch if cell.by_batch else None, None,
                                          cell.q_len, cell.length, device="cuda")
            names = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
            return {name: getattr(mask, name).contiguous() for name in names
                    if getattr(mask, name) is not None}
        *rows, places = service.mask_map_shape(kernel, service.launch_args(**given))
        arrays = {}
        for kind in ("kv", "full_kv"):
            arrays[kind + "_num_blocks"] = torch.full(rows, -1, dtype=torch.int32, device="cuda")
            arrays[kind + "_indices"] = torch.full((*rows, places), -1, dtype=torch.int32,
                                                   device="cuda")
        blocks = service.mask_map_bits(kernel, service.launch_args(**given))
        if blocks > 0:
            arrays["kv_bits"] = torch.full_like(arrays["kv_indices"], -1)
            arrays["block_bits"] = torch.zeros((blocks, 128, 4), dtype=torch.int32, device="cuda")
        args = service.launch_args(**given, **arrays, mask_map="write")
        needed, _ = service.workspace(kernel, args)
        memory = torch.zeros(max(needed, 1), dtype=torch.uint8, device="cuda")
        args.workspace, args.workspace_bytes = memory.data_ptr(), needed
        torch.cuda.synchronize()
        service.prepare_launch(kernel, service.launch_state(), args)()
        torch.cuda.synchronize()
        return arrays

    def launch(self):
        for one in self.launches:
            one()

    def result(self):
        return self.outputs[0]


class Flex:
    """FlexAttention, with the backend that it takes by default or another."""

    def __init__(self, problem, backend=None):
        cell = problem.cell
        self.views = [[x.transpose(1, 2) for x in tensors] for tensors in problem.sets]
        began = time.perf_counter()
        self.block_mask = None
        if cell.mask is not None:
            self.block_mask = flex.create_block_mask(
                cell.mask, cell.batch if cell.by_batch else None, None, cell.q_len, cell.length,
                device="cuda")
        self.compiled = torch.compile(flex.flex_attention, dynamic=False)
        self.gqa = cell.group > 1
        self.score, self.options = cell.score, None
        if backend is not None:
            self.options = {"BACKEND": backend}
        elif cell.q_len < cell.length:
            # Its kernel for decodes finds no configuration for some shapes: the other takes all.
            self.options = {"FORCE_USE_FLEX_ATTENTION": True}
        self.results = [None] * SETS
        self.launch()
        torch.cuda.synchronize()
        self.first_s = time.perf_counter() - began

    def launch(self):
        for i, (q, k, v) in enumerate(self.views):
            self.results[i] = self.compiled(q, k, v, score_mod=self.score,
                                            block_mask=self.block_mask, enable_gqa=self.gqa,
                                            kernel_options=self.options)

    def result(self):
        return self.results[0].transpose(1, 2)


def captured(contender, stream):
    with torch.cuda.stream(stream):
        contender.launch()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        contender.launch()
    return graph


def timed(graph, count, stream):
    """Milliseconds a launch."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        begin.record()
        for _ in range(count):
            graph.replay()
        end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count / SETS


def add_peers(problem, contenders, options):
    """FlexAttention, with each backend that is asked for and runs."""
    torch._dynamo.reset()
    for name, backend in (("flex", None), ("flash", "FLASH")):
        if options.no_flex if backend is None else not options.flash:
            continue
        try:
            contenders[name] = Flex(problem, backend)
        except Exception as error:  # pylint: disable=broad-except
            # NOTE: PyTorch's first lines say where it was; the error is in the last ones.
            text = " ".join(str(error).split())
            if text not in TOLD:
                TOLD.add(text)
                print(f"{problem.cell.name}: {name}: {type(error).__name__}: {text[:1200]}")
            else:
                print(f"{problem.cell.name}: {name}: the same error")


def check(problem, contenders):
    """Compares with the reference. A peer that is wrong is left out, with a line that says so."""
    last = problem.cell.q_len
    rows = torch.unique(torch.linspace(0, last - 1, min(last, 96)).long()).cuda()
    reference = problem.reference(rows)
    for name, contender in list(contenders.items()):
        got = contender.result()[:, rows].float()
        error = ((got - reference).norm() / reference.norm()).item()
        if error <= TOLERANCE:
            continue
        if name in PEERS:
            print(f"{problem.cell.name}: {name} is wrong by {error}: not timed")
            del contenders[name]
        else:
            raise SystemExit(f"{problem.cell.name}: {name} is wrong by {error}")


def variants_of(options):
    """Services by the names of --variant."""
    services = {}
    for variant in options.variant:
        name, _, text = variant.partition("=")
        fields = json.loads(text)
        made = {"templates_folder": fields["templates"]} if "templates" in fields else {}
        if "tuning" in fields:
            made["tuning"] = json.dumps(fields["tuning"])
        services[name] = attnjit.Service(fields.get("library", options.libattnjit),
                                         no_disk_cache=1, **made)
    return services


def compile_all(chosen, services):
    """Beforehand, several kernels at a time."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(lambda s, spec: s.get(s.prepare(spec)), service, spec_of(cell, way))
                for service in services for cell in chosen for way in cell.ways]
        for job in jobs:
            job.result()


def measure(cell, service, variants, options):
    problem, stream = Problem(cell), torch.cuda.Stream()
    contenders = {}
    if options.interpreted and any(is_custom(mask) for mask, _ in cell.ways.values()):
        # NOTE: before the mask's own kernel is there.
        cell.ways["fallback"] = next(way for way in cell.ways.values() if is_custom(way[0]))
        # A service of its own: the mask's kernel may have come with another cell.
        own = attnjit.Service(options.libattnjit, no_disk_cache=1)
        contenders["fallback"] = Attnjit(own, problem, "fallback", stream, fallback=True)
    for name in cell.ways:
        if name not in contenders:
            contenders[name] = Attnjit(service, problem, name, stream)
    for variant, other in variants.items():
        for name in cell.ways:
            contenders[f"{name} {variant}"] = Attnjit(other, problem, name, stream)
    add_peers(problem, contenders, options)
    check(problem, contenders)
    graphs = {name: captured(contender, stream) for name, contender in contenders.items()}
    counts = {}
    for name, graph in graphs.items():
        timed(graph, 2, stream)
        counts[name] = max(2, round(options.block_ms / timed(graph, 2, stream) / SETS))
    times = {name: [] for name in graphs}
    for pair in range(options.pairs):
        for name in list(graphs) if pair % 2 == 0 else list(graphs)[::-1]:
            times[name].append(timed(graphs[name], counts[name], stream))
    first = next(iter(cell.ways))

    def ratio(over, under):
        return statistics.median(a / b for a, b in zip(times[over], times[under]))

    shown = [n for n in times if n not in PEERS]
    beside = {n: first if n in cell.ways else n.split()[0] for n in shown}
    return {"name": cell.name, "shown": shown,
            "ms": {n: statistics.median(t) for n, t in times.items()},
            "first_s": {n: c.first_s for n, c in contenders.items()},
            "first_steps": {n: c.first_steps for n, c in contenders.items() if n == "fallback"},
            **{f"over_{peer}": {n: ratio(peer, n) for n in shown if peer in times}
               for peer in PEERS},
            "of_first": {n: ratio(n, beside[n]) for n in shown if n != first},
            "blocks_ms": times}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", dest="libattnjit", default="build/release/src/libattnjit.so")
    parser.add_argument("--only", default="", help="cells whose names contain one of these")
    parser.add_argument("--ways", default="", help="and only these ways, comma-separated")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=JSON",
                        help="another attnjit: its templates, tuning, library")
    parser.add_argument("--pairs", type=int, default=7, help="pairs of blocks a cell")
    parser.add_argument("--block-ms", type=float, default=10, help="length of a block")
    parser.add_argument("--limit-s", type=float, default=600, help="begin no cell after that")
    parser.add_argument("--no-flex", action="store_true")
    parser.add_argument("--flash", action="store_true", help="FlexAttention's backend FLASH, too")
    parser.add_argument("--interpreted", action="store_true",
                        help="the kernels that serve meanwhile, too")
    parser.add_argument("--tuning", help="file of a tuning table to plan attnjit's kernels with")
    parser.add_argument("--json", help="file for all numbers")
    options = parser.parse_args()
    tuning = {}
    if options.tuning:
        with open(options.tuning, encoding="utf-8") as table:
            tuning["tuning"] = table.read()
    service = attnjit.Service(options.libattnjit, no_disk_cache=1, **tuning)
    parts = options.only.split(",")
    chosen = [cell for cell in cells() if any(part in cell.name for part in parts)]
    if options.ways:
        for cell in chosen:
            cell.ways = {name: way for name, way in cell.ways.items()
                         if name in options.ways.split(",")}
        chosen = [cell for cell in chosen if cell.ways]
    variants = variants_of(options)
    if variants:
        compile_all(chosen, [service, *variants.values()])
    began, done, left_out = time.monotonic(), [], []
    wide = max([11] + [len(f"expression {name}") for name in variants])
    peers = [peer for peer, on in zip(PEERS, (True, options.flash)) if on]
    print(f"{'mask':<24} {'written as':<{wide}} {'ms':>8}",
          *(f"{peer + ' ms':>8} {peer + '/it':>8}" for peer in peers),
          f"{'it/first':>8} {'first s':>8}", *(f"{peer + ' s':>8}" for peer in peers))
    for cell in chosen:
        if time.monotonic() - began > options.limit_s:
            left_out.append(cell.name)
            continue
        one = measure(cell, service, variants, options)
        done.append(one)
        for way in one["shown"]:
            def shown(values, key, width=8, digits=3):
                return f"{values[key]:{width}.{digits}f}" if key in values else f"{'-':>{width}}"
            print(f"{cell.name:<24} {way:<{wide}} {shown(one['ms'], way)}",
                  *(f"{shown(one['ms'], peer)} {shown(one['over_' + peer], way)}"
                    for peer in peers),
                  f"{shown(one['of_first'], way)} {shown(one['first_s'], way)}",
                  *(shown(one['first_s'], peer) for peer in peers), flush=True)
            if way in one["first_steps"]:
                steps = one["first_steps"][way]
                print("  its first result, in ms:",
                      ", ".join(f"{name} {ms:.2f}" for name, ms in steps.items()), flush=True)
        torch.cuda.empty_cache()
    for peer, title in zip(peers, ("FlexAttention", "FlexAttention's FLASH")):
        for name in ["", *variants]:
            ratios = [max(ratio for way, ratio in one["over_" + peer].items()
                          if way.partition(" ")[2] == name)
                      for one in done if one["over_" + peer]]
            if ratios:
                print(f"{name + ': ' if name else ''}over {title}, the best way of each: "
                      f"geometric mean {math.exp(statistics.mean(map(math.log, ratios))):.3f}, "
                      f"least {min(ratios):.3f}, {len(ratios)} masks")
    if left_out:
        print("left out, --limit-s:", ", ".join(left_out))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
                       "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "pairs": options.pairs, "block_ms": options.block_ms, "cells": done}, out,
                      indent=1)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks beside other libraries share: CUDA graphs in turns, checks, medians.

A problem is a cell's tensors: a Q and a page table for each launch of a graph, so that the keys
come from memory and not from L2. It has
  cell                dict: name, and what the caller reads; `measure` adds the times
  q, batch            a list of Qs, one per launch; sequences
  q_begins            where each sequence's rows begin in O's first dimension, and the end
  new_o()             an O full of NaN
  spec()              fields of attnjit's spec
  launch_fields(i, o) arguments of attnjit's i-th launch
  reference(i, b)     float32, of sequence b of launch i; of the rows checked(b) where it has that
  looked_at()         pairs (i, b) to be checked
  bytes, flop()       of K and V that a launch must read; of its products

A contender has prepare(problem): a list of functions that each enqueue a launch, and of their Os,
or None where it does not take the problem.
"""
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

MIN_ROTATION_BYTES = 256 << 20  # read between two uses of one page: several times L2
TOLERANCE = 1e-2  # of results, relative: bf16 rounds P and O to 2^-9


def stream():
    return torch.cuda.current_stream().cuda_stream


class Attnjit:
    """`spec` overrides fields of the problem's spec; None leaves one out."""

    def __init__(self, library, templates=None, tuning=None, **spec):
        options = {"templates_folder": templates} if templates else {}
        if tuning:
            options["tuning"] = tuning
        self.service = attnjit.Service(library, no_disk_cache=1, **options)
        self.spec, self.workspace = spec, torch.empty(0, dtype=torch.uint8, device="cuda")

    def own(self, fields):
        """A spec's fields with those of this variant."""
        return {name: value for name, value in {**fields, **self.spec}.items() if value is not None}

    def compile(self, fields):
        self.service.compile(self.service.prepare(self.own(fields)))

    def prepare(self, problem):
        kernel = self.service.get(self.service.prepare(self.own(problem.spec())))
        out, launches = [], []
        for i in range(len(problem.q)):
            o = problem.new_o()
            args = self.service.launch_args(**problem.launch_fields(i, o), overlap=1)
            needed, zero_bytes = self.service.workspace(kernel, args)
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


def contenders_of_attnjit(options):
    """attnjit, and the variants of --variant."""
    found = {"attnjit": Attnjit(options.libattnjit, options.templates)}
    for variant in options.variant:
        name, _, text = variant.partition("=")
        fields = json.loads(text)
        tuning = json.dumps(fields.pop("tuning")) if "tuning" in fields else None
        library = fields.pop("library", options.libattnjit)
        templates = fields.pop("templates", options.templates)
        found["attnjit " + name] = Attnjit(library, templates, tuning, **fields)
    return found


def add_flashinfer(found, kinds, make):
    """Adds `make(kind)` for each of FlashInfer's wrappers, where it can be imported."""
    try:
        for kind in kinds.split(",") if kinds else ():
            found["fi " + kind] = make(kind)
    except ImportError as error:
        print(f"# no FlashInfer: {error}")


def add_flags(parser):
    """The flags of all these benchmarks."""
    parser.add_argument("--library", dest="libattnjit", default="build/release/src/libattnjit.so")
    parser.add_argument("--templates", help="a folder that replaces the embedded templates")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME=JSON",
                        help="another attnjit: fields of its spec (null leaves one out), and tuning, "
                             "templates, library")
    parser.add_argument("--only", help="cells whose names begin with one of these, comma-separated")
    parser.add_argument("--skip", help="and contain none of these")
    parser.add_argument("--samples", type=int, default=21)
    parser.add_argument("--block-ms", type=float, default=3)
    parser.add_argument("--limit-s", "--seconds", type=float, default=500, help="begin no cell after that")
    parser.add_argument("--json", help="file for all numbers")


def chosen_of(cells, options):
    return [cell for cell in cells
            if (not options.only or any(cell["name"].startswith(p)
                                        for p in options.only.split(",")))
            and not (options.skip and any(part in cell["name"] + "."
                                          for part in options.skip.split(",")))]


def random_numbers():
    """The same for each cell, whichever are chosen."""
    return torch.Generator("cuda").manual_seed(20261122)


def random_pool(elements):
    """bf16, N(0,1)."""
    pool = torch.empty(elements, device="cuda", dtype=torch.bfloat16)
    for part in pool.split(1 << 29):
        part.normal_()
    return pool


def pages_of(problem, pool_pages, count, most, generator):
    """The pages of each launch: `count` of the pool's, and as many times as it takes to read
    MIN_ROTATION_BYTES, but at most `most`, and what the pool has."""
    wanted = min(most, max(2, -(-MIN_ROTATION_BYTES // problem.bytes)), pool_pages // count)
    if wanted == 0:
        raise SystemExit(f"{problem.cell['name']}: the pool is too small")
    order = torch.randperm(pool_pages, device="cuda", generator=generator).to(torch.int32)
    return list(order.split(count)[:wanted])


def looked_at(launches, rows, keys):
    """Pairs of a launch and a sequence to be checked: the first and the last launch, and of each
    the first, last, shortest and longest sequence, and one of most rows."""
    sequences = {0, len(keys) - 1, keys.index(min(keys)), keys.index(max(keys)),
                 rows.index(max(rows))}
    return [(launch, sequence) for launch in sorted({0, launches - 1})
            for sequence in sorted(sequences)]


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


def row_difference(got, want):
    """The largest of a row of the last dimension, beside the row or a tenth of the mean one."""
    got, want = got.float(), want.float()
    norms = want.norm(dim=-1)
    return ((got - want).norm(dim=-1) / torch.maximum(norms, 0.1 * norms.mean())).max().item()


def error_of(problem, out, references):
    """The largest difference from the reference, NaN where a result is none; of a row a third
    counts, for it has few numbers. `references`: those that were computed before."""
    worst = 0.0
    for launch, sequence in problem.looked_at():
        if hasattr(problem, "checked"):
            got = out[launch][problem.checked(sequence)]
        else:
            got = out[launch][problem.q_begins[sequence]:problem.q_begins[sequence + 1]]
        if (launch, sequence) not in references:
            references[launch, sequence] = problem.reference(launch, sequence)
        want = references[launch, sequence]
        errors = [difference(got, want), row_difference(got, want) / 3]
        worst = max([worst, *errors]) if all(e == e for e in errors) else math.nan
        if worst != worst:
            break
    return worst if all(bool(torch.isfinite(o.float().sum())) for o in out) else math.nan


def check(problem, prepared, leave_out):
    """Compares the results of the graphs with a reference, and whole with one another. What is
    wrong ends the program, or is told to leave_out(name, why)."""
    first, references = None, {}
    for name, (graph, out) in prepared.items():
        for o in out:
            o.fill_(math.nan)
        graph.replay()
        torch.cuda.synchronize()
        error = error_of(problem, out, references)
        problem.cell.setdefault("error", {})[name] = error
        if not error <= TOLERANCE:
            leave_out(name, f"wrong by {error}")
        elif first is None:
            first = (name, out)
        elif not max(difference(a, b) for a, b in zip(out, first[1])) <= TOLERANCE:
            leave_out(name, f"differs from {first[0]}")


def measure(problem, contenders, options):
    """Fills in the cell's "us", the medians, and "samples_us". With options.lenient, contenders
    that fail or are wrong are left out of these, and stand in "left_out"."""
    cell = problem.cell
    prepared, alive, lenient = {}, [], getattr(options, "lenient", False)

    def leave_out(name, why):
        if not lenient:
            raise SystemExit(f"{cell['name']}: {name}: {why}")
        cell.setdefault("left_out", {})[name] = why

    for name, contender in contenders.items():
        try:
            got = contender.prepare(problem)
            if got is not None:
                prepared[name] = (graph_of(got[0]), got[1])
                alive.append(got)
        except Exception as error:  # whatever a library raises for a shape that it does not take
            if not lenient:
                raise
            leave_out(name, f"{type(error).__name__}: {str(error)[:300]}")
            torch.cuda.synchronize()
    check(problem, prepared, leave_out)
    graphs = {name: graph.replay for name, (graph, _) in prepared.items()
              if name not in cell.get("left_out", {})}
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


def best_peer(cell):
    """The least time of those that are not attnjit; None without any."""
    return min((us for name, us in cell["us"].items() if not name.startswith("attnjit")),
               default=None)


def columns_of(cell, names):
    """The cell's times, and behind each of attnjit's the best peer's divided by it."""
    best, columns = best_peer(cell), []
    for name in names:
        us = cell["us"].get(name)
        columns.append(f"{us:10.1f}" if us else "         -")
        if us and name.startswith("attnjit") and best:
            columns.append(f"{best / us:6.3f}")
    return columns


def heading(names):
    return " ".join(f"{n:>10}" + (" /best" if n.startswith("attnjit") else "") for n in names)


def summary(done, name, kinds_of):
    """The geometric mean over the peers' best, by kind of cell."""
    kinds = {}
    for cell in done:
        best = best_peer(cell)
        for kind in kinds_of(cell) if best and name in cell["us"] else ():
            kinds.setdefault(kind, []).append(best / cell["us"][name])
    for kind, ratios in kinds.items():
        mean = math.exp(statistics.mean(map(math.log, ratios)))
        print(f"{name}, {kind}: best peer's time over its own: geometric mean {mean:.3f}, "
              f"least {min(ratios):.3f}, {len(ratios)} cells")


def run(cells, make_problem, contenders, options, shown, kinds_of):
    """Measures the cells, prints a line for each, and the means."""
    began = time.perf_counter()
    names = list(contenders)
    print(f"# {torch.cuda.get_device_name()}, torch {torch.__version__}, "
          f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}; us per launch")
    print(f"{'cell':<22} " + heading(names), flush=True)
    done = []
    for cell in cells:
        if time.perf_counter() - began > options.limit_s:
            print("# out of time")
            break
        measure(make_problem(cell), contenders, options)
        print(shown(cell, names), flush=True)
        done.append(cell)
        if options.json:
            with open(options.json, "w", encoding="utf-8") as out:
                json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                           "samples": options.samples, "cells": done}, out)
    for name in names:
        if name.startswith("attnjit"):
            summary(done, name, kinds_of)

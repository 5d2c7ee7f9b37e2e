#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times attnjit on sm_90a over steps of servers' traffic, beside other libraries, in one process.

    python3 bench/traffic.py --library build/release/src/libattnjit.so --json bench/results/traffic.json
    python3 bench/traffic.py --scenarios chat,drafts --seeds 1-3 --seconds 20
    python3 bench/traffic.py --list        # the steps; --dry: their specs, too. Neither needs a GPU

bench/steps.py draws the steps. attnjit is called with nothing chosen for speed: ragged where rows
differ, with max_q_len where a server calls without offsets of rows. FlashAttention-3 and FlashMLA
are vLLM's (bench/peers.py), FlashInfer is used where it can be imported; beside.py says how they are
timed and checked. What a contender prepares once for all layers of a step lies outside of its time.
A contender that fails or is wrong is left out of a step, whose JSON says why.

The JSON has for each step what it holds (the lengths follow from scenario and seed), the times in
us, the relative errors, and `ratio`: the best peer's time over attnjit's. bench/tables.py makes the
documents' table of it, and bench/plot.py docs/traffic.svg.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import steps


def cell_of(step):
    """A measurement, as serving_bench and mla_bench take it."""
    cell = dict(name=step.name, scenario=step.scenario, heads=step.heads, spec=step.spec())
    if step.mla:
        return dict(cell, batch=len(step.requests), lens=step.keys, q_len=step.rows[0])
    return dict(cell, kv_heads=step.kv_heads, depth=step.depth, page=step.page, window=step.window, sink=step.sink,
                rows=step.rows, keys=step.keys)


def shape_of(step):
    """What a step holds, in numbers."""
    return {"scenario": step.scenario, "seed": step.seed, "heads": step.heads, "kv_heads": step.kv_heads,
            "depth": step.depth, "page": step.page, "window": step.window, "sink": step.sink, "batch": len(step.requests),
            "rows": sum(step.rows), "most_rows": max(step.rows), "keys": sum(step.keys), "longest": max(step.keys)}


def measured(step, cell):
    """A step's line of the JSON, of a cell that was measured."""
    us = cell["us"]
    peers = {name: t for name, t in us.items() if not name.startswith("attnjit")}
    line = {"name": step.name, **shape_of(step), "us": {name: round(t, 2) for name, t in us.items()},
            "error": {name: float(f"{e:.1e}") for name, e in cell.get("error", {}).items()}}
    if peers and "attnjit" in us:
        line["best"] = min(peers, key=peers.get)
        line["ratio"] = round(min(peers.values()) / us["attnjit"], 4)
    return {**line, **({"left_out": cell["left_out"]} if "left_out" in cell else {})}


def line_of(result):
    """What is printed of it."""
    times = "  ".join(f"{name} {t:.1f}" for name, t in result["us"].items())
    left_out = "".join(f"\n#   {name} left out: {why}" for name, why in result.get("left_out", {}).items())
    return f"{result['name']:<50}{result.get('ratio', math.nan):7.3f}  {times}{left_out}"


def summary(results):
    """Lines: of each scenario and of all the geometric mean, the least, and the steps below 1."""
    lines = []
    for scenario in [*dict.fromkeys(one["scenario"] for one in results), "all"]:
        ratios = [one["ratio"] for one in results if scenario in (one["scenario"], "all") and "ratio" in one]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            lines.append(f"{scenario:<10}{len(ratios):>4} steps, geometric mean {mean:.3f}, least {min(ratios):.3f}, "
                         f"{sum(ratio < 1 for ratio in ratios)} below 1")
    return lines


def elements_of(chosen, least):
    """Of K that a pool needs: two page tables of the largest step, and a rotation of the others."""
    sizes = [sum(-(-keys // step.page) * step.page for keys in step.keys) * step.kv_heads * step.depth
             for step in chosen]
    return max([2 * max(sizes, default=0), least]) + max(sizes, default=0) // 4


def version_of(module):
    try:
        return __import__(module).__version__
    except (ImportError, AttributeError):
        return "?"


def commit():
    run = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False,
                         cwd=pathlib.Path(__file__).parent)
    return run.stdout.strip()


class Benches:
    """The contenders and the pools, of steps with MLA and of the others."""

    def __init__(self, chosen, options):
        import beside
        import mla_bench
        import peers
        import serving_bench
        self.beside, self.mla, self.serving = beside, mla_bench, serving_bench
        mine = beside.contenders_of_attnjit(options)
        self.compile(chosen, mine)
        self.of_mla, self.others, self.named = dict(mine), dict(mine), []
        if peers.have("FlashAttention-3"):
            self.others.update({"fa3": serving_bench.Fa3(), "fa3 twice": serving_bench.Fa3(two_calls=True)})
            self.named.append(f"FlashAttention-3 of vLLM {version_of('vllm')}")
        if peers.have("FlashMLA"):
            self.of_mla["flashmla"] = mla_bench.FlashMla()
            self.named.append(f"FlashMLA of vLLM {version_of('vllm')}")
        before = len(self.others)
        beside.add_flashinfer(self.others, options.flashinfer, serving_bench.FlashInfer)
        if len(self.others) > before:
            beside.add_flashinfer(self.of_mla, "fa3", mla_bench.FlashInfer)
            self.named.append(f"FlashInfer {version_of('flashinfer')}")
        least = 2 * beside.MIN_ROTATION_BYTES
        others, mla = ([step for step in chosen if step.mla == wanted] for wanted in (False, True))
        self.pool = [beside.random_pool(elements_of(others, least // 2)) for _ in range(2)] if others else []
        if mla:
            row = mla_bench.PAGE * mla_bench.DEPTH
            pages = elements_of(mla, least) // row + 1
            self.latent = beside.random_pool(pages * row).view(pages, mla_bench.PAGE, 1, mla_bench.DEPTH)

    def compile(self, chosen, mine):
        """All kernels at once: one after the other they would take a minute."""
        began = time.perf_counter()
        specs = {json.dumps(step.spec(), sort_keys=True): step.spec() for step in chosen}
        with ThreadPoolExecutor(16) as pool:
            for contender in mine.values():
                list(pool.map(contender.compile, specs.values()))
        print(f"# {len(specs)} specs compiled in {time.perf_counter() - began:.1f} s", flush=True)

    def measure(self, step, options):
        cell, numbers = cell_of(step), self.beside.random_numbers()
        problem = self.mla.Problem(cell, self.latent) if step.mla else self.serving.Problem(cell, self.pool, numbers)
        self.beside.measure(problem, self.of_mla if step.mla else self.others, options)
        return measured(step, cell)


def run(chosen, options):
    import torch
    benches, results, began = Benches(chosen, options), [], time.perf_counter()
    machine = torch.cuda.get_device_name().replace("NVIDIA ", "One ")
    every = options.scenarios == ",".join(steps.SCENARIOS)
    command = "bench/traffic.py" + ("" if every else f" --scenarios {options.scenarios}")
    record = {"machine": machine, "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": commit(),
              "peers": ", ".join(benches.named), "unit": "us", "tolerance": benches.beside.TOLERANCE,
              "command": f"{command} --seeds {options.seeds}"}
    print(f"# {machine}, torch {torch.__version__}, beside {record['peers'] or 'nobody'}; us a launch, "
          f"results within {record['tolerance']} of float32", flush=True)
    for step in chosen:
        if time.perf_counter() - began > options.limit_s:
            print(f"# out of time before {step.name}")
            break
        try:
            results.append(benches.measure(step, options))
        except RuntimeError as error:  # a GPU's: the steps before it are worth keeping
            print(f"# {step.name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            results.append({"name": step.name, **shape_of(step), "us": {}, "error": {}, "failed": str(error)[:300]})
            continue
        print(line_of(results[-1]), flush=True)
        if options.json:
            write(options.json, record, results)
    print("\n".join(summary(results)))
    return 0 if results and all("attnjit" in one["us"] for one in results) else 1


def write(path, record, results):
    """A step a line, so that two files can be compared."""
    head = json.dumps(record, indent=1)[:-2]
    lines = ",\n  ".join(json.dumps(one) for one in results)
    pathlib.Path(path).write_text(f'{head},\n "steps": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0],
                                     epilog="Where torch is, the flags of beside.py are there, too.")
    parser.add_argument("--scenarios", default=",".join(steps.SCENARIOS), help="comma-separated; all by default")
    parser.add_argument("--seeds", default="1-8", help="as 1-8 or 2,5")
    parser.add_argument("--list", action="store_true", help="print the steps and end")
    parser.add_argument("--dry", action="store_true", help="print the steps and attnjit's specs, as JSON, and end")
    parser.add_argument("--flashinfer", default="decode,fa2", help="FlashInfer's wrappers, comma-separated, or nothing")
    needs_gpu = not {"--list", "--dry"} & set(sys.argv)
    if needs_gpu:
        try:
            import beside
            beside.add_flags(parser)
            parser.set_defaults(samples=7, block_ms=2, lenient=True)
        except ImportError as error:
            if not {"-h", "--help"} & set(sys.argv):
                parser.error(f"{error}; --list and --dry need neither torch nor a GPU")
    options = parser.parse_args()
    try:
        chosen = steps.steps_of(options.scenarios, options.seeds)
    except ValueError as error:
        parser.error(str(error))
    if needs_gpu:
        return run(chosen, options)
    for step in chosen:
        shape = shape_of(step)
        print(json.dumps({"name": step.name, **shape, "spec": step.spec()}) if options.dry else
              f"{step.name:<50}{shape['rows']:>7} rows{shape['keys']:>9} keys, the longest {shape['longest']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times steps of servers' traffic on sm_100a by the clock, beside the time of their tiles on evenly loaded SMs.

    bench/clock/traffic.py [--attnjit A] [--scenarios chat,drafts] [--seeds 1-2] [--named] [--timed-sms 4]
                           [--json RESULTS.json]

bench/steps.py draws the steps; --named adds those of NAMED. A step's even time is that of its work
tiles without cuts and merges, shared out to all SMs as if each could be divided anywhere:

    begin of a launch + sum of (a tile's own time + its KV tiles * the time of one) / SMs

Both times of a tile, with rows of one query tile and of two, are those of launches of many equal
tiles, by the same kernel and clock. So the ratio holds what is lost to cuts, to merges, and to SMs
that wait for others. The model lowers the chip's clock by power: what computes takes as many cycles
at each clock, and what waits for memory as many microseconds. Steps of MLA have a kernel of their
own, and are left out.
"""
import argparse
import functools
import json
import math
import pathlib
import random
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import steps  # noqa: E402

SMS = 148


def log_uniform(count, low, high):
    draw = random.Random(count).random
    return [int(low * (high / low) ** draw()) for _ in range(count)]


def named_steps():
    """Steps that were seen to be uneven."""
    chat = steps.Step("named", 0, (), 40, 8, 128, 16)
    llama = steps.Step("named", 0, (), 32, 8, 128, 16)
    decodes = tuple((1, keys) for keys in log_uniform(37, 100, 60000))
    return {
        "2 chunks of 256, 37 decodes": (chat, ((256, 8448), (256, 2304), *decodes)),
        "37 decodes of 8k": (chat, tuple((1, 8000 + 10 * i) for i in range(37)) + ((2, 8000),)),
        "4 short prompts": (llama, tuple((rows, rows) for rows in (300, 500, 700, 900))),
        "8 chunks of 512": (llama, tuple((512, 4096 + 512 * i) for i in range(8))),
        "a chunk of 256, a decode of 60k": (llama, ((256, 256), (1, 60000))),
        "30 decodes, one of 120k": (llama, ((2, 3000),) + tuple((1, 2000 + 60 * i) for i in range(30)) + ((1, 120000),)),
        "a chunk of 512 at 100k": (llama, ((512, 100000), (1, 5))),
    }


class Clock:
    def __init__(self, attnjit):
        self.attnjit = attnjit

    def asked(self, words, spec):
        done = subprocess.run([self.attnjit, *words, "--spec", "-", "--json"], input=spec, capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{spec}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    def timed(self, spec, requests, sms):
        """Microseconds of each launch, and megahertz of the first."""
        words = ["verify", "--timing", "sm_100a", "--timed-sms", str(sms)]
        if "ragged" in spec:
            words += ["--q-len", ",".join(str(rows) for rows, _ in requests)]
        else:
            words += ["--batch", str(len(requests)), "--q-len", str(requests[0][0])]
        words += ["--kv-len", ",".join(str(keys) for _, keys in requests)]
        launches = self.asked(words, spec)["launches"]
        return [launch["us"] for launch in launches], launches[0]["mhz"]

    @functools.lru_cache(None)
    def tiles(self, spec):
        """The positions of work tiles whose launch has long and short sequences, and of short ones; keys of a KV tile."""
        kernel = self.asked(["plan"], spec)["kernel"]
        return [variant["BM_eff"] for variant in kernel["variants"]], kernel["variants"][0]["BN"]

    @functools.lru_cache(None)
    def times_of(self, spec, kv_heads, rows):
        """How long a launch begins for, of a work tile of so many rows, and of each of its KV tiles.

        One row waits for memory: microseconds. More rows compute: cycles.
        """
        _, keys = self.tiles(spec)
        least = 4 // math.gcd(kv_heads, 4)  # 37 * least sequences have a multiple of 148 tiles
        times, tiles = {}, {}
        for factor, count in ((2, 4), (2, 12), (4, 4)):
            requests = [(rows, count * keys)] * (37 * least * factor)
            us, mhz = self.timed(spec, requests, 1)
            times[factor, count] = sum(us) * (1 if rows == 1 else mhz)
            tiles[factor] = len(requests) * kv_heads // SMS
        each = (times[4, 4] - times[2, 4]) / (tiles[4] - tiles[2])
        step = (times[2, 12] - times[2, 4]) / (8 * tiles[2])
        return times[2, 4] - tiles[2] * each, each - 4 * step, step

    def even(self, step, spec, mhz):
        """Microseconds of a step's tiles on evenly loaded SMs."""
        variants, tile_keys = self.tiles(spec)
        positions = variants[-1] if max(step.rows) <= variants[-1] else variants[0]
        begin, total = 0.0, 0.0
        for rows, keys in step.requests:
            for first in range((rows - 1) // positions * positions, -1, -positions):
                last = min(first + positions, rows) - 1
                end = keys - rows + last + 1
                seen = max(keys - rows + first + 1 - (step.window or keys), 0)
                count = -(-end // tile_keys) - seen // tile_keys
                # NOTE: a second query tile that is begun takes as long as a whole one.
                long = last - first >= variants[-1]
                before, own, each = self.times_of(spec, step.kv_heads, variants[0] if long else 1)
                unit = mhz if long else 1
                begin = max(begin, before / unit)
                total += (own + count * each) / unit * step.kv_heads
        return begin + total / SMS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attnjit", default="build/release/attnjit")
    parser.add_argument("--scenarios", default="chat,rag,agent,chunked,drafts,d256", help="'' for none")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--named", action="store_true")
    parser.add_argument("--only", default="", help="steps whose name has this")
    parser.add_argument("--timed-sms", type=int, default=4)
    parser.add_argument("--json")
    args = parser.parse_args()
    chosen = {step.name: step for step in steps.steps_of(args.scenarios, args.seeds)} if args.scenarios else {}
    if args.named:
        for name, (step, requests) in named_steps().items():
            chosen[name] = steps.dataclasses.replace(step, requests=requests)
    clock = Clock(args.attnjit)
    results = []
    for name, step in chosen.items():
        if args.only not in name:
            continue
        spec = json.dumps({**step.spec(), "arch": "sm_100a"})
        launches, mhz = clock.timed(spec, step.requests, args.timed_sms)
        even = clock.even(step, spec, mhz)
        result = {"name": name, "us": [round(us, 2) for us in launches], "even_us": round(even, 2),
                  "ratio": round(sum(launches) / even, 3)}
        results.append(result)
        print(f"{name:<50}{result['ratio']:7.3f}  even {even:.1f}  launches {result['us']}", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"timed_sms": args.timed_sms, "steps": results}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the clock's choice among a kernel's variants to times that a GPU measured.

    bench/clock/ranks.py --measure F.json [--attnjit A] [--only PART]     on the GPU
    bench/clock/ranks.py --compare F.json [--attnjit A] [--only PART]     anywhere

The first runs `attnjit tune` on each spec of ranks.json and keeps each variant's choices and its
time over the plan's own: F.json is to be kept in bench/results, since a later model or a later
kernel is compared with it. The second runs `attnjit tune --model` on the same specs, and says how
much longer two variants take on the GPU than the one that is the fastest there: the one that the
model has for the fastest, and the one that the tuner chooses, which leaves the plan's own only for
a gain of 1 %.
"""
import argparse
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WITHIN, NEEDED = 0.03, 12


def tune(attnjit, entry, extra):
    """What `attnjit tune` says of an entry of ranks.json, as its JSON object."""
    command = [attnjit, "tune", "--spec", "-", "--json", *extra]
    for shape in entry["shapes"]:
        command += ["--shape", shape]
    done = subprocess.run(command, input=json.dumps(entry["spec"]), capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise SystemExit(f"{entry['name']}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def times_of(result):
    """The ratios to the untuned kernel, by choice: of the variants that were timed."""
    return {json.dumps(v["choose"], sort_keys=True): v["ratio"] for v in result["variants"]
            if v["ratio"] is not None and v["outcome"] != "wrong"}


def lost(measured, modelled, chosen):
    """How much longer the model's best and what the tuner chose take on the GPU than the best
    there, and how many variants both have timed. A variant that the GPU did not time is none that
    the model can choose."""
    known = [choice for choice in modelled if choice in measured]
    if not known:
        raise SystemExit("no variant was timed by both: the plans are of different commits")
    best = min(known, key=modelled.get)
    if chosen not in known:
        raise SystemExit(f"the GPU has no time of what the tuner chose: {chosen}")
    least = min(measured.values())
    return [measured[choice] / least - 1 for choice in (best, chosen)], len(known)


def measure(options, entries):
    results = []
    for entry in entries:
        begin = time.monotonic()
        result = tune(options.attnjit, entry, [])
        result["variants"] = [{name: v[name] for name in ("choose", "outcome", "ratio")}
                              for v in result["variants"]]
        results.append(dict(entry, result=result))
        with open(options.measure, "w", encoding="utf-8") as file:
            json.dump({"specs": results}, file)
        count = len(times_of(results[-1]["result"]))
        print(f"{entry['name']:<20} {count} variants, {time.monotonic() - begin:.0f} s", flush=True)


def compare(options, entries):
    with open(options.compare, encoding="utf-8") as file:
        measured = {entry["name"]: entry["result"] for entry in json.load(file)["specs"]}
    good, seen = [0, 0], 0
    for entry in entries:
        if entry["name"] not in measured:
            continue
        result = tune(options.attnjit, entry, ["--model", entry["spec"]["arch"]])
        chosen = json.dumps(result["choose"], sort_keys=True)
        losses, count = lost(times_of(measured[entry["name"]]), times_of(result), chosen)
        good, seen = [n + (loss <= WITHIN) for n, loss in zip(good, losses)], seen + 1
        least, tuned = (f"{100 * loss:.1f} %" for loss in losses)
        print(f"{entry['name']:<20} least {least}, chosen {tuned} of {count} variants  {chosen}",
              flush=True)
    print(f"least {good[0]}, chosen {good[1]} of {seen} within {100 * WITHIN:.0f} %; the bar is "
          f"{NEEDED} of 15")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attnjit", default="build/release/attnjit")
    parser.add_argument("--only", help="specs whose names contain one of these, comma-separated")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--measure", metavar="F.json")
    what.add_argument("--compare", metavar="F.json")
    options = parser.parse_args()
    with open(os.path.join(HERE, "ranks.json"), encoding="utf-8") as file:
        entries = json.load(file)["specs"]
    if options.only:
        entries = [e for e in entries if any(p in e["name"] for p in options.only.split(","))]
    (measure if options.measure else compare)(options, entries)
    return 0


if __name__ == "__main__":
    sys.exit(main())

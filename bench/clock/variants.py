#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times variants of sm_100a's and sm_103a's kernels by the clock, and makes the library's table.

    bench/clock/variants.py TIMES.jsonl [--attnjit A] [--only PART] [--table F.json]

variants.json lists specs, lengths, and the choices that are to be timed beside the plan's own.
TIMES keeps each time as it is known; what it has is not timed again. --table writes a tuning table
(src/plan/tables/modelled.json) with a row of each spec whose best variant gains 2 % or more over
all lengths, and loses 3 % at none. --only chooses specs whose names contain one of the parts.
"""
import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = "the clock's models of a B200 and a GB300 (docs/clock.md): no GPU has measured a row"
MOST_RATIO, MOST_LOSS = 0.98, 1.03
# Fields of which only the end of a row of O knows: a row of the table serves each value.
FREE = ("sink", "return_lse", "lse_includes_sink")


def run(attnjit, words, spec):
    done = subprocess.run([attnjit, *words, "--spec", "-", "--json"], input=json.dumps(spec),
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{spec}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def time_of(attnjit, spec, choose, shape, sms):
    """How long a launch takes by the clock, in microseconds, and the model's version."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as table:
        json.dump({"rows": [{"choose": choose}] if choose else []}, table)
        table.flush()
        batch, q_len, kv_len = shape.split(":")
        timed = run(attnjit, ["verify", "--timing", spec["arch"], "--tuning", table.name,
                              "--timed-sms", str(sms), "--batch", batch, "--q-len", q_len,
                              "--kv-len", kv_len], spec)
        return timed["us"], timed["model_version"]


def match_of(attnjit, spec):
    """What a row for a spec matches, which `attnjit tune` knows."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "table.json")
        run(attnjit, ["tune", "--model", spec["arch"], "--max-variants", "1", "--shape", "1:64:64",
                      "--timed-sms", "1", "-o", path], spec)
        with open(path, encoding="utf-8") as file:
            match = json.load(file)["rows"][0]["match"]
    # With a bound of the rows a kernel is a decode's, and keys of another type are upcast.
    return {"max_q_len": 0, "kv_dtype": spec.get("kv_dtype"),
            **{name: match[name] for name in match if name not in FREE}}


def key_of(spec, choose, shape):
    return json.dumps([spec, choose, shape], sort_keys=True)


def read_times(path):
    times = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                entry = json.loads(line)
                times[key_of(entry["spec"], entry["choose"], entry["shape"])] = entry
    return times


def row_of(attnjit, entry, times):
    """The row of a spec's best variant; none where no variant gains enough."""
    spec = entry["spec"]
    best = None
    for choose in entry["variants"]:
        shapes = []
        for shape in entry["shapes"]:
            untuned, tuned = (times.get(key_of(spec, c, shape)) for c in ({}, choose))
            if untuned and tuned:
                shapes.append({"shape": shape, "us": round(tuned["us"], 1),
                               "untuned_us": round(untuned["us"], 1),
                               "ratio": round(tuned["us"] / untuned["us"], 3)})
        if len(shapes) < len(entry["shapes"]):
            continue
        ratio = math.exp(sum(math.log(shape["ratio"]) for shape in shapes) / len(shapes))
        if max(s["ratio"] for s in shapes) <= MOST_LOSS and (not best or ratio < best["ratio"]):
            best = {"ratio": round(ratio, 3), "shapes": shapes, "choose": choose,
                    "model_version": tuned["model_version"]}
    if best is None or best["ratio"] > MOST_RATIO:
        return None
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    return {"match": match_of(attnjit, spec), "choose": best["choose"],
            "modelled": {"date": date, "model_version": best["model_version"],
                         "num_q_heads": spec["num_q_heads"], "ratio": best["ratio"],
                         "shapes": best["shapes"]}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("times", metavar="TIMES.jsonl")
    parser.add_argument("--attnjit", default="build/release/attnjit")
    parser.add_argument("--only", help="specs whose names contain one of these, comma-separated")
    parser.add_argument("--table", metavar="F.json")
    options = parser.parse_args()
    with open(os.path.join(HERE, "variants.json"), encoding="utf-8") as file:
        entries = json.load(file)["specs"]
    if options.only:
        entries = [e for e in entries if any(p in e["name"] for p in options.only.split(","))]
    times = read_times(options.times)
    for entry in entries:
        for shape in entry["shapes"]:
            for choose in ({}, *entry["variants"]):
                key = key_of(entry["spec"], choose, shape)
                if key not in times:
                    us, version = time_of(options.attnjit, entry["spec"], choose, shape,
                                          entry["timed_sms"])
                    times[key] = {"spec": entry["spec"], "choose": choose, "shape": shape,
                                  "us": us, "model_version": version}
                    with open(options.times, "a", encoding="utf-8") as file:
                        file.write(json.dumps(times[key]) + "\n")
                untuned = times[key_of(entry["spec"], {}, shape)]["us"]
                print(f"{entry['name']:<20} {shape:<12} {times[key]['us']:8.1f} us "
                      f"{times[key]['us'] / untuned:6.3f}  {choose or 'the plan'}", flush=True)
    if options.table:
        rows = [row for row in (row_of(options.attnjit, e, times) for e in entries) if row]
        with open(options.table, "w", encoding="utf-8") as file:
            lines = ",\n".join("  " + json.dumps(row) for row in rows)
            file.write(f'{{\n "name": "modelled",\n "source": {json.dumps(SOURCE)},\n "rows": [\n{lines}\n ]\n}}\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())

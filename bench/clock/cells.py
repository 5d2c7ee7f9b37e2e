#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the emulator's clock to times that an H200 measured.

    bench/clock/cells.py [--attnjit build/release/attnjit] [--only PART[,PART]] [--held-out] [-o F.txt]

Each cell of calibration.json, or with --held-out of held_out.json, is run through `attnjit verify
--timing`, and its time compared with the measured one. Parameters may be fitted to the first list
only; the second was chosen before any was fitted.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def run(attnjit, cell, extra):
    """What `verify --timing` says of a cell, as its JSON object."""
    problem = cell["problem"]
    command = [attnjit, "verify", "--spec", "-", "--timing", cell["spec"]["arch"], "--json",
               "--batch", str(problem["batch"]), "--q-len", str(problem["q_len"]),
               "--kv-len", str(problem["kv_len"]), *extra]
    done = subprocess.run(command, input=json.dumps(cell["spec"]), capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise SystemExit(f"{cell['name']}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attnjit", default="build/release/attnjit")
    parser.add_argument("--only", help="cells whose names contain one of these, comma-separated")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--timed-sms", default="4")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    name = "held_out.json" if options.held_out else "calibration.json"
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        cells = json.load(file)["cells"]
    lines, errors = [], []

    def tell(line):
        lines.append(line)
        print(line, flush=True)

    tell(f"{'cell':<26} {'measured':>9} {'model':>9} {'error':>7}   {'cycles':>9} {'error':>7} "
         f"{'MHz':>5} {'error':>7} {'tensor':>6} {'issue':>5} {'L2':>5} {'host s':>6}")
    for cell in cells:
        if options.only and not any(part in cell["name"] for part in options.only.split(",")):
            continue
        begin = time.monotonic()
        timed = run(options.attnjit, cell, ["--timed-sms", options.timed_sms])
        seconds = time.monotonic() - begin
        main_launch = timed["launches"][0]
        error = timed["us"] / cell["us"] - 1
        # As many cycles as a clock that is the launch's all the while would have.
        cycles = timed["us"] * main_launch["mhz"]
        cycles_error = cycles / (cell["us"] * cell["mhz"]) - 1
        errors.append(abs(error))
        tell(f"{cell['name']:<26} {cell['us']:>9.1f} {timed['us']:>9.1f} {100 * error:>+6.1f}%   "
             f"{cycles:>9.0f} {100 * cycles_error:>+6.1f}% {main_launch['mhz']:>5.0f} "
             f"{100 * (main_launch['mhz'] / cell['mhz'] - 1):>+6.1f}% "
             f"{main_launch['busy']['tensor']:>6.3f} {main_launch['busy']['issue']:>5.2f} "
             f"{main_launch['l2_hit_fraction']:>5.2f} "
             f"{seconds:>6.1f}")
    if errors:
        tell(f"{len(errors)} cells: median error {100 * statistics.median(errors):.1f} %, largest "
             f"{100 * max(errors):.1f} %, within 12 %: {sum(e <= 0.12 for e in errors)}")
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

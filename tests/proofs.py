#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the proofs (ctest -L proof) on a machine of many cores, each test of a program apart.

    tests/proofs.py pack FILE.txz [BUILD] [-R REGEX]
    tests/proofs.py run [FOLDER or BUILD] [-R REGEX] [-j N] [--seconds S] [--orders N] [--logs DIR]

ctest runs a program of ten orders from its first test to its last, so that the longest program ends
long after the others. `run` starts each of its GoogleTests as a job, the longest first by what ctest
last measured of it, and with --orders N a job for each N of its ten orders. `pack` writes the stripped
programs, what they link with, and the list of proofs to an archive for a machine that has neither
the sources nor the build: unpack it, and run tests/proofs.py run FOLDER there. BUILD is build/release
by default. A job's output is a file in the folder of --logs; standard output has a line for each job
that failed or did not end, and the counts.

Exit code: 0 if all passed or were skipped, 1 if one failed or did not end in --seconds, 2 for bad
usage."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
SKIPPED = 77
# The machine's own, with its driver: and C++'s, which what the driver loads may need newer.
LEFT_BEHIND = re.compile(r"lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so|ld-linux")


def proofs_of(folder, pattern):
    """The proofs of a build or of an unpacked archive whose names the pattern is found in."""
    packed = folder / "proofs.json"
    if packed.exists():
        proofs = json.loads(packed.read_text())
    else:
        shown = subprocess.run(["ctest", "--test-dir", folder, "-L", "^proof$", "--show-only=json-v1"],
                               check=True, capture_output=True, text=True).stdout
        proofs = []
        for test in json.loads(shown)["tests"]:
            properties = {p["name"]: p["value"] for p in test.get("properties", [])}
            proofs.append({"name": test["name"], "command": test["command"],
                           "environment": properties.get("ENVIRONMENT", []), "tests": {}})
        costs = costs_of(folder)
        for proof in proofs:
            if proof["name"].endswith("_orders"):
                proof["tests"] = tests_of(proof, costs)
    return [proof for proof in proofs if re.search(pattern, proof["name"])]


def costs_of(folder):
    """Seconds of a usual run by the name of ctest's test."""
    costs = {}
    file = folder / "Testing/Temporary/CTestCostData.txt"
    for line in file.read_text().splitlines() if file.exists() else []:
        words = line.split()
        if len(words) == 3:
            costs[words[0]] = float(words[2])
    return costs


def tests_of(proof, costs):
    """The GoogleTests of a proof, and what each costs in a usual run."""
    listed = subprocess.run([*proof["command"], "--gtest_list_tests"], check=True, capture_output=True, text=True)
    usual = "test_" + proof["name"].removesuffix("_orders").replace(".", "_")
    tests, suite = {}, ""
    for line in listed.stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            full = suite + name.strip()
            tests[full] = costs.get(f"{usual}.{full}", 1.0)
        elif name.endswith("."):
            suite = name
    return tests


def pack(arguments):
    proofs = proofs_of(arguments.folder, arguments.regex)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        programs = {}
        for proof in proofs:
            command = []
            for word in proof["command"]:
                path = pathlib.Path(word)
                if path.is_file() and path.is_relative_to(arguments.folder):
                    programs[path.name] = path
                    command.append("@/" + path.name)
                elif path.is_file() and path.is_relative_to(SOURCE):
                    target = folder / path.relative_to(SOURCE)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, target)
                    command.append(f"@/{path.relative_to(SOURCE)}")
                else:
                    command.append("python3" if path.name == "python3" else word)
            proof["command"] = command
        linked = subprocess.run(["ldd", *programs.values()], check=True, capture_output=True, text=True)
        for line in linked.stdout.splitlines():
            library = re.search(r"=> (/\S+)", line)
            if library and not LEFT_BEHIND.search(library[1]):
                (folder / "lib").mkdir(exist_ok=True)
                shutil.copy(library[1], folder / "lib")
        for name, path in programs.items():
            subprocess.run(["strip", "-o", folder / name, path], check=True)
        (folder / "proofs.json").write_text(json.dumps(proofs))
        # Programs share most of their text: a dictionary that holds several of them finds it again.
        subprocess.run(["tar", "-C", folder, "-I", "xz --lzma2=preset=1,dict=384MiB", "-cf",
                        arguments.file.resolve(), "."], check=True)
    print(f"{len(proofs)} proofs, {len(programs)} programs, "
          f"{arguments.file.stat().st_size / 2**20:.1f} MB: {arguments.file}")
    return 0


def jobs_of(proofs, orders):
    """(cost, name, command, environment) of each job."""
    jobs = []
    for proof in proofs:
        environment = dict(entry.split("=", 1) for entry in proof["environment"])
        if not proof["tests"]:
            jobs.append((1e6, proof["name"], proof["command"], environment))
            continue
        seeds = int(environment["ATTNJIT_TEST_SEEDS"])
        for test, cost in proof["tests"].items():
            for first in range(0, seeds, orders or seeds):
                count = min(orders or seeds, seeds - first)
                jobs.append((cost * count, f"{proof['name']}-{test.replace('/', '-')}-{first}",
                             [*proof["command"], f"--gtest_filter={test}"],
                             {**environment, "ATTNJIT_TEST_SEEDS": str(count),
                              "ATTNJIT_TEST_FIRST_SEED": str(first)}))
    return sorted(jobs, key=lambda job: -job[0])


def run(arguments):
    folder = arguments.folder
    jobs = jobs_of(proofs_of(folder, arguments.regex), arguments.orders)
    arguments.logs.mkdir(parents=True, exist_ok=True)
    libraries = f"{folder}/lib:" + os.environ.get("LD_LIBRARY_PATH", "")
    end = time.monotonic() + arguments.seconds
    counts = {"passed": 0, "failed": 0, "skipped": 0, "not ended": 0}
    lock = threading.Lock()

    def work(job):
        _, name, command, environment = job
        begin, code = time.monotonic(), None
        with open(arguments.logs / f"{name}.txt", "w") as log:
            try:
                code = subprocess.run([word.replace("@/", f"{folder}/", 1) for word in command],
                                      env={**os.environ, **environment, "LD_LIBRARY_PATH": libraries},
                                      stdout=log, stderr=subprocess.STDOUT,
                                      timeout=max(0.1, end - time.monotonic())).returncode
            except subprocess.TimeoutExpired:
                pass
        skipped = code == SKIPPED or "[  SKIPPED ]" in (arguments.logs / f"{name}.txt").read_text()
        result = ("not ended" if code is None else "skipped" if skipped and code in (0, SKIPPED) else
                  "passed" if code == 0 else "failed")
        with lock:
            counts[result] += 1
            if result in ("failed", "not ended"):
                print(f"{name}: {result}, {time.monotonic() - begin:.0f} s", flush=True)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(work, jobs))
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    return 1 if counts["failed"] or counts["not ended"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("pack", "run"):
        command = commands.add_parser(name)
        if name == "pack":
            command.add_argument("file", type=pathlib.Path)
        command.add_argument("folder", nargs="?", type=pathlib.Path, default=SOURCE / "build/release")
        command.add_argument("-R", dest="regex", default="_orders$")
        if name == "run":
            command.add_argument("-j", dest="jobs", type=int, default=os.cpu_count())
            command.add_argument("--seconds", type=float, default=3600)
            command.add_argument("--orders", type=int, default=0)
            command.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("proof-logs"))
    arguments = parser.parse_args()
    arguments.folder = arguments.folder.resolve()
    return {"pack": pack, "run": run}[arguments.command](arguments)


sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much a model's prewarmed cache takes, as docs/operators.md has it; no GPU is needed.

    bench/cache_sizes.py build/release/attnjit --arch sm_90a -o bench/results/cache-sizes.json \\
        cache/llama-3.1-8b.json ..

Each manifest is prewarmed into an empty cache. Of that it says how many kernels there are, what
they take on disk, what of it is cubins, which processes load, and the processor time of the
compiles. Standard library only.
"""
import argparse
import datetime
import json
import pathlib
import platform
import resource
import subprocess
import tempfile


def size_of(command, manifest, arch):
    """The row of the table for a manifest."""
    with tempfile.TemporaryDirectory() as folder:
        def attnjit(*arguments):
            done = subprocess.run([command, *arguments, "--json"], capture_output=True, text=True,
                                  env={"ATTNJIT_CACHE_DIR": folder, "PATH": ""})
            if done.returncode not in (0, 3):  # 3: the manifest has specs that the architecture lacks
                raise SystemExit(f"{arguments}: {done.stdout}{done.stderr}")
            return json.loads(done.stdout)

        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = attnjit("prewarm", str(manifest), "--arch", arch)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = sum(getattr(after, one) - getattr(before, one) for one in ("ru_utime", "ru_stime"))
        entries = attnjit("cache", "list")["entries"]
        cubins = sum(cubin_bytes(pathlib.Path(one["path"])) for one in entries)
    served = sum(one["outcome"] != "unsupported" for one in done["specs"])
    return [manifest.stem, served, len(entries), round(sum(one["bytes"] for one in entries) / 1e6, 1),
            round(cubins / 1e6, 1), round(seconds, 1)]


def cubin_bytes(path):
    """The size of the third section of an entry (cache/README.md)."""
    with open(path, "rb") as file:
        file.seek(200 + 8)
        return int.from_bytes(file.read(8), "little")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command")
    parser.add_argument("manifests", nargs="+", type=pathlib.Path)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("-o", dest="output", type=pathlib.Path)
    arguments = parser.parse_args()
    nvrtc = json.loads(subprocess.run([arguments.command, "doctor", "--json"], capture_output=True,
                                      text=True).stdout)["nvrtc"]["version"]
    rows = []
    for manifest in arguments.manifests:
        rows.append(size_of(arguments.command, manifest, arguments.arch))
        print(rows[-1], flush=True)
    cpu = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo")
                if line.startswith("model name")), platform.machine())
    record = {"machine": f"{arguments.arch}, NVRTC {nvrtc}; processor time, {cpu}",
              "date": datetime.date.today().isoformat(), "command": "bench/cache_sizes.py",
              "columns": ["manifest", "specs", "kernels", "MB on disk", "MB of cubins", "CPU, s"],
              "rows": rows}
    if arguments.output:
        head, body = json.dumps({**record, "rows": []}, indent=1).rsplit("[]", 1)
        lines = ",\n".join("  " + json.dumps(row) for row in rows)
        arguments.output.write_text(f"{head}[\n{lines}\n ]{body}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

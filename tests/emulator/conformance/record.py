"""record.py OUT [GROUP...]: runs every conformance case on the GPU at hand and writes OUT/GROUP.json and OUT/GROUP.bin.

The PTX modules (GROUP.ptx, made by NVRTC from kernels.py) lie beside this file. The .bin holds every buffer once, by
content; the .json names them by offset and size. Machine and date are in the .json.
"""
import datetime
import hashlib
import json
import multiprocessing
import os
import sys

import cases
import gpu

here = os.path.dirname(os.path.abspath(__file__))


class Blob:
    def __init__(self):
        self.data, self.known = bytearray(), {}

    def add(self, raw):
        digest = hashlib.sha256(raw).digest()
        if digest not in self.known:
            self.known[digest] = (len(self.data), len(raw))
            self.data += raw
        return list(self.known[digest])


def worker(group, first, pipe):
    """Runs a group's cases from `first` on; a fault ends the process, for it poisons the context."""
    device = gpu.Gpu()
    pipe.send((device.name, device.driver))
    for number, c in enumerate(cases.GROUPS[group]()):
        if number < first:
            continue
        ptx = os.path.join(here, c["ptx"] + ".ptx")
        try:
            runs = [device.run(ptx, c["launch"], c["inputs"]) for _ in range(2)]
        except RuntimeError as error:
            pipe.send((number, str(error), None))
            return
        unstable = any(runs[0][b] != runs[1][b] for b in c["compare"])
        pipe.send((number, "unstable" if unstable else None, {b: runs[0][b] for b in c["compare"]}))


def record(group):
    """{case number: (problem or None, outputs)} and the machine's name and driver."""
    results, first, machine = {}, 0, None
    total = sum(1 for _ in cases.GROUPS[group]())
    while first < total:
        receive, send = multiprocessing.Pipe(False)
        process = multiprocessing.Process(target=worker, args=(group, first, send))
        process.start()
        send.close()
        try:
            machine = receive.recv()
            while True:
                number, problem, outputs = receive.recv()
                results[number] = (problem, outputs)
                first = number + 1
        except EOFError:
            pass
        process.join()
    return results, machine


def main():
    out, groups = sys.argv[1], sys.argv[2:] or list(cases.GROUPS)
    multiprocessing.set_start_method("spawn")
    for group in groups:
        results, machine = record(group)
        blob, rows = Blob(), []
        for number, c in enumerate(cases.GROUPS[group]()):
            problem, outputs = results[number]
            row = {"name": c["name"], "ptx": c["ptx"] + ".ptx", "launch": c["launch"], "compare": c["compare"]}
            if outputs is None:
                print(f"{group}: {c['name']}: {problem}", flush=True)
                row["fault"] = problem
            row["inputs"] = {k: blob.add(v) for k, v in c["inputs"].items()}
            row["expect"] = {k: blob.add(v) for k, v in (outputs or {}).items()}
            if problem == "unstable":
                print(f"{group}: {c['name']}: differs between two runs", flush=True)
                row["unstable"] = True
            rows.append(row)
        with open(os.path.join(out, group + ".json"), "w") as f:
            json.dump({"machine": machine[0], "driver": machine[1], "date": datetime.date.today().isoformat(), "cases": rows}, f, separators=(",", ":"))
        with open(os.path.join(out, group + ".bin"), "wb") as f:
            f.write(blob.data)
        print(f"{group}: {len(rows)} cases, {len(blob.data)} bytes", flush=True)


if __name__ == "__main__":
    main()

"""Compares the bits of one sequence's rows, computed alone and among others (docs/serving.md).

invariance.py ATTNJIT [--backend gpu|emulator] [--small]

`attnjit verify` draws the inputs of a batch's first sequence from the seed alone, whatever else is
in the batch, and --dump writes what the kernel made of them. Exit code 1 if any bit differs; 4
where there is no GPU.
"""
import argparse
import ast
import pathlib
import subprocess
import sys
import tempfile

HEADS, DEPTH = 8, 128


def load(path):
    """The shape and the bytes of a .npy file of f32 in C order."""
    data = path.read_bytes()
    header = 10 + int.from_bytes(data[8:10], "little")
    description = ast.literal_eval(data[10:header].decode())
    assert description["descr"] == "<f4" and not description["fortran_order"], path
    return description["shape"], data[header:]


def rows_of_first(folder, q_len):
    """o and lse of the first sequence's rows."""
    (rows, *_), o = load(folder / "o.npy")
    _, lse = load(folder / "lse.npy")
    first = o[:len(o) // rows * q_len]
    return first, b"".join(lse[4 * h * rows:4 * (h * rows + q_len)] for h in range(HEADS))


def run(arguments, spec, q_lens, kv_lens, kind):
    with tempfile.TemporaryDirectory() as folder:
        command = [
            arguments.attnjit, "verify", "--backend", arguments.backend, "--arch", "sm_90a",
            "--num-q-heads", str(HEADS), "--group", "4", "--qk-depth", str(DEPTH), "--ragged",
            "--return-lse", "--mask", "causal", "--input", kind, "--dump", folder, *spec,
            "--q-len", ",".join(map(str, q_lens)), "--kv-len", ",".join(map(str, kv_lens))
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        if done.returncode != 0:
            print(f"{' '.join(command)}\n{done.stdout}")
            sys.exit(done.returncode)
        return rows_of_first(pathlib.Path(folder), q_lens[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attnjit")
    parser.add_argument("--backend", default="gpu", choices=["gpu", "emulator"])
    parser.add_argument("--small", action="store_true",
                        help="few and short batches, for the emulator")
    arguments = parser.parse_args()
    unit = 100 if arguments.small else 4000
    firsts = [(9, 7 * unit), (1, 2 * unit + 33)]
    mates = [[(70, unit)], [(1, 9 * unit), (0, 0), (33, unit + 1)]]
    if not arguments.small:
        mates.append([(1 + b % 5, 500 * b + 7) for b in range(60)])
    failures = comparisons = 0
    for keys in (64,) if arguments.small else (256, 1024, 4096):
        for page in (16, 3) if arguments.small else (0, 1, 16, 64):
            spec = ["--partition-keys", str(keys), "--page-size", str(page)]
            for kind in ("large",) if arguments.small else ("normal", "large", "spike", "raised"):
                for first in firsts:
                    alone = run(arguments, spec, [first[0]], [first[1]], kind)
                    for others in mates:
                        batch = [first, *others]
                        among = run(arguments, spec, [q for q, _ in batch], [k for _, k in batch],
                                    kind)
                        comparisons += 1
                        if among != alone:
                            failures += 1
                            print(f"partition_keys {keys} page_size {page} {kind}: the rows of "
                                  f"{first} differ beside {len(others)} others")
    print(f"{comparisons} comparisons, {failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

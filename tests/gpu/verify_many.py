"""Verifies random specs on the GPU at hand: 50 and two wide groups with every input, each of the manifests with one.

    verify_many.py ATTNJIT [--seed N] [--jobs N] [--arch A] [--backend gpu|emulator] [--mla N] [--serving N]
                    [--deep N] [--groups G,..]

With --mla it verifies random specs of absorbed MLA alone, many of them with lists of keys; with --serving of what
serves: pages, ragged batches and keys, partitions, decodes, half of them over 8 bits; with --deep of head_dim
above 256. It draws until N specs ran, with an input each, and says how many more no kernel serves; --first I begins
with the I-th that is drawn. With --groups those of what serves have groups of these sizes alone.

Prints what failed with all that repeats it, then one line of counts. Exit code 1 if anything failed, 77 if what
compiles or runs kernels is missing.
"""
import argparse
import collections
import concurrent.futures
import functools
import glob
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
UNSUPPORTED, ENVIRONMENT = 3, 4  # exit codes of attnjit
INPUTS = ("normal", "large", "rising", "falling", "spike", "raised")
DOCUMENTS = {"kind": "custom", "name": "documents", "code": "p.doc[q_idx] == p.doc[kv_idx] || kv_idx < p.prefix",
             "params": [{"name": "doc", "type": "i32[]"}, {"name": "prefix", "type": "i32"}]}


def random_mask(rng):
    def leaf():
        return rng.choice(["causal", {"kind": "sliding_window", "window": rng.randint(1, 300)},
                           {"kind": "chunked", "chunk": rng.randint(1, 200)}])
    kind = rng.choice(["null", "causal", "causal", "sliding_window", "chunked", "and", "or", "custom", "materialized"])
    if kind == "materialized":
        tensor = {"kind": kind, "dtype": rng.choice(["u8", "bits", "f32", "bf16", "fp16"])}
        return rng.choice([tensor, {"kind": "and", "of": ["causal", tensor]}])
    if kind == "sliding_window":
        return {"kind": kind, "window": rng.randint(1, 300)}
    if kind == "chunked":
        return {"kind": kind, "chunk": rng.randint(1, 200)}
    if kind in ("and", "or"):
        return {"kind": kind, "of": [leaf(), leaf()]}
    return DOCUMENTS if kind == "custom" else kind


def random_score_mod(rng):
    kind = rng.choice(["identity", "identity", "alibi", "softcap"])
    return {"kind": "softcap", "cap": rng.choice([10, 30, 50])} if kind == "softcap" else kind


def random_spec(rng, arch):
    depth = 8 * rng.randint(1, 32) if rng.random() < 0.4 else rng.choice([64, 96, 128, 128, 192, 256])
    spec = {"arch": arch, "num_q_heads": rng.choice([1, 2, 4, 8, 24, 60]), "qk_depth": depth,
            "qkv_dtype": rng.choice(["bf16", "fp16"]), "mask": random_mask(rng), "score_mod": random_score_mod(rng),
            "sink": rng.random() < 0.4, "return_lse": rng.random() < 0.6}
    if rng.random() < 0.3:
        spec["ov_depth"] = 8 * rng.randint(1, depth // 8)
    spec["group"] = rng.choice([group for group in (1, 2, 3, 4, 5, 6, 12) if spec["num_q_heads"] % group == 0])
    if rng.random() < 0.3:
        spec["page_size"] = rng.choice([1, 5, 8, 16, 40, 64, 256] if arch == "sm_90a" else [16, 64, 256])
    if rng.random() < 0.3:
        spec["ragged"] = True
    if arch == "sm_90a" and rng.random() < 0.3:
        spec["num_partitions"] = rng.choice([0, 2, 5])
    elif arch == "sm_90a" and rng.random() < 0.2:
        spec["partition_keys"] = 64 * rng.randint(1, 4)
    if rng.random() < 0.3:
        spec["max_q_len"] = rng.randint(1, 8)
    return spec


def random_shape(rng, spec):
    """Rows and keys, no rows and no keys at times; of each sequence its own where the kernel takes them."""
    def q_len():
        rows = rng.choice([0 if rng.random() < 0.2 else 1, rng.randint(2, 200), rng.randint(200, 700)])
        return min(rows, spec.get("max_q_len", rows))

    def kv_len():
        return 0 if rng.random() < 0.1 else rng.choice([rng.randint(1, 100), rng.randint(100, 900)])
    batch = rng.randint(1, 4)
    ragged = spec.get("ragged", False)
    q_lens = [q_len() for _ in range(batch if ragged else 1)]
    kv_lens = [kv_len() for _ in range(batch if ragged or "page_size" in spec else 1)]
    return ["--batch", str(batch), "--q-len", ",".join(map(str, q_lens)), "--kv-len", ",".join(map(str, kv_lens)),
            "--seed", str(rng.randint(0, 999))]


def random_mla_spec(rng, arch):
    latent = rng.choice([512, 512, 256, 64 * rng.randint(2, 8)])
    heads = rng.choice([16, 16, 32, 64, 128, rng.randint(1, 128)])
    spec = {"arch": arch, "mla": "decode", "num_q_heads": heads, "group": heads, "ov_depth": latent,
            "qk_depth": latent + rng.choice([64, 64, 64, 0]), "qkv_dtype": rng.choice(["bf16", "fp16"]),
            "mask": rng.choice(["causal", "causal", "null", random_mask(rng)]), "sink": rng.random() < 0.4,
            "return_lse": rng.random() < 0.6,
            "score_mod": rng.choice(["identity", "identity", random_score_mod(rng)])}
    if rng.random() < 0.8:
        spec["page_size"] = rng.choice([1, 5, 8, 16, 40, 64, 256])
    if rng.random() < 0.3:
        spec["ragged"] = True
    if rng.random() < 0.4:
        spec["num_partitions"] = rng.choice([0, 2, 5])
    elif rng.random() < 0.3:
        spec["partition_keys"] = 64 * rng.randint(1, 4)
    spec["max_q_len"] = rng.randint(1, 8)
    if "page_size" in spec and rng.random() < 0.4:  # a list of keys has no positions
        modification = rng.choice(["identity", {"kind": "softcap", "cap": 30}])
        spec.update(topk=64 * rng.randint(1, 8), mask="null", score_mod=modification)
    cache = rng.random() if "page_size" in spec else 1
    if cache < 0.25:
        spec.update(cache_format="dsv32", qkv_dtype="bf16", ov_depth=512, qk_depth=576)
    elif cache < 0.5:
        spec.update(kv_dtype="e4m3", scales=rng.choice(["none", "tensor", "head"]))
    return spec


def mla_jobs_of(rng, arch):
    for i in itertools.count():
        spec = random_mla_spec(rng, arch)
        yield f"mla {i}", spec, [*random_shape(rng, spec), "--input", rng.choice(INPUTS)]


def random_serving_spec(rng, arch, groups=None):
    depth = rng.choice([64, 64, 96, 128, 128, 192] if arch != "sm_90a" else [64, 64, 80, 128, 128, 192, 256])
    heads = rng.choice([1, 2, 4, 6, 7, 8, 9, 12, 20])
    spec = {"arch": arch, "num_q_heads": heads, "qk_depth": depth, "qkv_dtype": rng.choice(["bf16", "fp16"]),
            "group": rng.choice([group for group in range(1, heads + 1) if heads % group == 0]),
            "mask": rng.choice(["causal", "causal", random_mask(rng)]), "sink": rng.random() < 0.3,
            "score_mod": rng.choice(["identity", "identity", random_score_mod(rng)]),
            "return_lse": rng.random() < 0.5, "ragged": rng.random() < 0.6}
    if groups:
        spec["group"] = rng.choice(groups)
        spec["num_q_heads"] = spec["group"] * rng.randint(1, 3)
    if depth == 192 and rng.random() < 0.5:
        spec["ov_depth"] = 128
    if spec["ragged"] and rng.random() < 0.25:
        spec["ragged_kv"] = True
    else:
        spec["page_size"] = rng.choice([1, 2, 3, 5, 8, 16, 16, 24, 32, 40, 64, 64, 128, 256])
    if rng.random() < 0.25 and "page_size" in spec:
        spec["kv_lens_exclude_new"] = True
    split = rng.random()
    if split < 0.35:
        spec["num_partitions"] = rng.choice([0, 2, 3, 5])
    elif split < 0.65:
        spec["partition_keys"] = 64 * rng.randint(1, 4)
    elif split < 0.75:
        spec["accumulate"] = spec["return_lse"] = True
    if rng.random() < 0.4:
        spec["max_q_len"] = rng.randint(1, 8)
    eight_bits = rng.choice([None, None, "qkv_dtype", "kv_dtype"])
    if eight_bits:
        spec.update({eight_bits: "e4m3", "scales": rng.choice(["none", "tensor", "head"])})
    if eight_bits == "qkv_dtype" and rng.random() < 0.4:
        spec["scales"] = "token"
    if not spec.get("accumulate") and rng.random() < 0.2:
        spec["output_dtype"] = rng.choice(["f32", "f32", "e4m3"])
    return spec


def serving_jobs_of(rng, arch, groups):
    """Small batches: some requests of no rows, of no keys, or of more rows than a tile, and keys of several tiles."""
    for i in itertools.count():
        spec = random_serving_spec(rng, arch, groups)
        sequences = rng.randint(1, 5)
        most = spec.get("max_q_len", 200)
        rows = [min(most, rng.choice([0, 1, 1, rng.randint(2, 20), rng.randint(20, 200)])) for _ in range(sequences)]
        keys = [rng.choice([0, rng.randint(1, 80), rng.randint(80, 500), rng.randint(80, 500)])
                for _ in range(sequences)]
        if not spec["ragged"]:
            rows = rows[:1]
        if not any(rows):  # nothing would be launched
            rows[rng.randrange(len(rows))] = 1
        if spec.get("kv_lens_exclude_new"):  # keys count this call's rows
            keys = [max(n, rows[b % len(rows)]) for b, n in enumerate(keys)]
        yield f"serving {i}", spec, ["--batch", str(sequences), "--q-len", ",".join(map(str, rows)), "--kv-len",
                                     ",".join(map(str, keys)), "--seed", str(rng.randint(0, 999)), "--input",
                                     rng.choice(INPUTS)]


def deep_jobs_of(rng, arch):
    """head_dim above 256, of 16 bits."""
    for i in itertools.count():
        spec = rng.choice([random_spec, random_serving_spec])(rng, arch)
        for field in ("ov_depth", "kv_dtype", "scales", "kv_lens_exclude_new"):
            spec.pop(field, None)
        spec.update(qk_depth=rng.choice([512, 512, 512, 320, 384, 448]), qkv_dtype=rng.choice(["bf16", "fp16"]))
        yield f"deep {i}", spec, [*random_shape(rng, spec), "--input", rng.choice(INPUTS)]


def jobs_of(rng, arch):
    for i in range(50):
        spec = random_spec(rng, arch)
        for kind in INPUTS:
            yield f"random {i}", spec, [*random_shape(rng, spec), "--input", kind]
    for group in (16, 64):  # TMA boxes of 4 positions, and of 1
        spec = {"arch": arch, "num_q_heads": 64, "group": group, "qk_depth": 128, "mask": "causal", "sink": True,
                "score_mod": "alibi", "return_lse": True}
        for kind in INPUTS:
            yield f"group {group}", spec, [*random_shape(rng, spec), "--input", kind]
    seen = set()  # models share shapes
    for path in sorted(glob.glob(os.path.join(ROOT, "cache", "*.json"))):
        with open(path) as file:
            specs = json.load(file)["specs"]
        for i, spec in enumerate(dict(spec, arch=arch) for spec in specs):
            if (text := json.dumps(spec, sort_keys=True)) not in seen:
                seen.add(text)
                yield f"{os.path.basename(path)} {i}", spec, ["--input", rng.choice(INPUTS)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("attnjit")
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--backend", default="gpu", choices=("gpu", "emulator"))
    parser.add_argument("--mla", type=int, default=0)
    parser.add_argument("--serving", type=int, default=0)
    parser.add_argument("--deep", type=int, default=0)
    parser.add_argument("--groups", type=lambda text: [int(group) for group in text.split(",")])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--model", choices=("isa", "silicon"), help="the emulator's")
    parser.add_argument("--timeout", type=float, default=60, help="seconds of a run")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    drawn, wanted = None, 0
    serving_jobs = functools.partial(serving_jobs_of, groups=arguments.groups)
    for kind, count in ((serving_jobs, arguments.serving), (deep_jobs_of, arguments.deep),
                        (mla_jobs_of, arguments.mla)):
        if count and drawn is None:
            drawn, wanted = kind(rng, arguments.arch), count
    jobs = itertools.islice(drawn or jobs_of(rng, arguments.arch), arguments.first, None)
    model = ["--model", arguments.model] if arguments.model else []
    folder = tempfile.mkdtemp()

    def run(numbered):
        number, (name, spec, flags) = numbered
        path = os.path.join(folder, f"{number}.json")
        with open(path, "w") as file:
            json.dump(spec, file)
        command = [arguments.attnjit, "verify", "--backend", arguments.backend, "--spec", path, *model, *flags]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.timeout)
        except subprocess.TimeoutExpired:
            return name, spec, flags, "timeout", ""
        return name, spec, flags, done.returncode, done.stdout + done.stderr

    passed = unsupported = failed = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for name, spec, flags, code, text in in_order(pool, run, enumerate(jobs), 2 * arguments.jobs):
            if code == ENVIRONMENT:
                print(text)
                return 77
            passed += code == 0
            unsupported += code == UNSUPPORTED
            if code not in (0, UNSUPPORTED):
                failed += 1
                print("FAILED", name, code, json.dumps(spec), *flags, text[-800:], flush=True)
            # NOTE: where a family serves next to none, drawing would not end.
            if wanted and (passed + failed == wanted or unsupported == 10 * wanted):
                break
    print(f"{passed} runs passed, {failed} failed, {unsupported} unsupported")
    return 1 if failed or passed < max(1, wanted) else 0


def in_order(pool, function, items, ahead):
    """What pool.map gives, of an iterator that need not end: `ahead` calls of the one awaited are begun."""
    begun = collections.deque()
    try:
        for item in items:
            begun.append(pool.submit(function, item))
            if len(begun) == ahead:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for one in begun:
            one.cancel()


if __name__ == "__main__":
    sys.exit(main())

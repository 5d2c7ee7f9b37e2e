#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Judges what run.py, run_sglang.py and serve.py left, and prints it as a table.

    judge.py OUT.. [--record FILE.json]

Exit code 1: a bar is missed, or a measurement lacks its other half; 2: there is nothing to judge.
--record writes the speeds as bench/tables.py reads them. Needs no GPU, and attnjit's wheel.
"""
import argparse
import itertools
import json
import math
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import shapes  # noqa: E402

MOST_DEVIATION = 1.15  # rms of log-probabilities over what the server's own other backend has
MOST_DECODED = 1.3  # the same of decodes beside a prompt of their tokens, over the worse of its own
LEAST_ACCEPTED = 0.95  # tokens of a verification of drafts, over the server's own
BEHIND = "rows behind the first chunk"
MOST_OTHERS = 0.02  # of tokens that are not a prompt's most probable ones, beside the server's own
LEAST_MEAN, LEAST_RATIO, MOST_TTFT = 1.03, 0.99, 1.02
MOST_START = 1.0  # seconds more than the server's own
#: Of the others (groups of 5 and 7, many sinks) speeds are told and not judged.
JUDGED = ("llama", "qwen3", "gemma", "deepseek")
COLUMNS = ["model", "cache", "load", "output tokens/s", "TPOT, ms", "TTFT, ms"]


def rms(values):
    return math.sqrt(sum(v * v for v in values) / len(values))


def apart(a, b):
    """Root mean square of the differences of lists of lists."""
    if [len(x) for x in a] != [len(y) for y in b]:
        raise SystemExit("judge: log-probabilities of other prompts")
    return rms([u - v for x, y in zip(a, b) for u, v in zip(x, y)])


def over(a, b):
    return a / b if b else (math.inf if a else 1.0)


class Verdict:
    """Lines that were judged; what fails is remembered."""

    def __init__(self):
        self.failed, self.count = [], 0

    def say(self, what, text, good=None):
        self.count += good is not None
        mark = {None: "    ", True: "ok  ", False: "FAIL"}[good]
        print(f"{mark} {what}: {text}")
        if good is False:
            self.failed.append(what)


def logprobs(verdict, name, found):
    """found: records by backend, with log-probabilities."""
    mine, theirs = found["ATTNJIT"]["logprobs"], {
        backend: record["logprobs"] for backend, record in found.items() if not is_ours(backend)}
    default = next((b for start in ("FLASH_", "FLASH", "FA3") for b in theirs if b.startswith(start)),
                   None)
    default = next((b for b in theirs if b.endswith(("@auto", "@float32"))), default)
    other = next((b for b in theirs if b != default), None)
    if default is None:
        return verdict.say(name, "the server's default is missing", False)
    if "+prefix" in found["ATTNJIT"]["model"]:
        verdict.say(name, f"{mine['cached']} tokens came of the cache of prefixes", mine["cached"] > 0)
    limits = {}
    for what, rows, most in parts_of(found["ATTNJIT"]) if "prompts" in mine else ():
        a, b = ([one[rows] for one in said["prompts"]] for said in (mine, theirs[default]))
        if what == BEHIND:  # SGLang's others have no chunks
            limit = max(limits.values())
            verdict.say(name, f"{what} {apart(a, b):.5f} from {default}'s, those before {limit:.5f}: "
                        f"{over(apart(a, b), limit):.3f}", apart(a, b) <= most * limit)
            continue
        if other is None:  # there is no third
            limits[what] = apart(a, b)
            verdict.say(name, f"{what} {apart(a, b):.5f} from {default}'s")
            continue
        limit = limits[what] = apart([one[rows] for one in theirs[other]["prompts"]], b)
        verdict.say(name, f"{what} {apart(a, b):.5f} from {default}'s, {other}'s {limit:.5f}: "
                    f"{over(apart(a, b), limit):.3f}", apart(a, b) <= most * limit)
    if "decoded" not in mine:  # of an encoder
        return
    if rounds_q(found["ATTNJIT"]):  # in prompts, and not in decodes
        if "ATTNJIT@q16" not in found:
            needed = False if found["ATTNJIT"]["stage"] == "check" else None
            return verdict.say(name, "prompts whose Q keeps its 16 bits are missing", needed)
        mine = found["ATTNJIT@q16"]["logprobs"]
    if "read_again" not in mine or "rswa_window" in found["ATTNJIT"]["config"]:
        return until_they_differ(verdict, name, mine, theirs, default, other)
    decoded = apart(mine["decoded"], mine["read_again"])
    worse = max(apart(one["decoded"], one["read_again"]) for backend, one in theirs.items()
                if backend.partition("@")[2] not in ("auto", "float32"))  # which round less
    verdict.say(name, f"decodes {decoded:.5f} from prompts of their tokens, the server's own {worse:.5f}: "
                f"{over(decoded, worse):.3f}", decoded <= MOST_DECODED * worse)


def until_they_differ(verdict, name, mine, theirs, default, other):
    """Decodes that no prompt repeats: of a request those tokens that are the default's, too."""
    def from_default(said):
        found, its = [], theirs[default]
        for request in zip(said["tokens"], said["decoded"], its["tokens"], its["decoded"]):
            same = itertools.takewhile(lambda row: row[0] == row[2], zip(*request))
            found += [a - b for _, a, _, b in same]
        return rms(found or [0.0]), len(found)

    (a, count), text = from_default(mine), f"from {default}'s"
    if other is None:
        return verdict.say(name, f"{count} decodes {a:.5f} {text}")
    limit, most = from_default(theirs[other])
    verdict.say(name, f"{count} decodes {a:.5f} {text}, {most} of {other} {limit:.5f}: "
                f"{over(a, limit):.3f}", a <= MOST_DECODED * limit and 2 * count >= most > 0)


def parts_of(record):
    """Rows of prompts that are judged by themselves, and the bar: those that see all keys before them
    have the same lists in all engines, and those after see chosen keys. SGLang has one backend of
    chunks: rows of the first are as of other models, and those behind it should be no further from
    one another."""
    config = record["config"]
    keys, chunk = shapes.list_keys(config), config.get("attention_chunk_size")
    if chunk and record.get("server") == "sglang":
        return [("the first chunk", slice(chunk), MOST_DEVIATION),
                (BEHIND, slice(chunk, None), MOST_DEVIATION)]
    if not keys:
        return [("prompts", slice(None), MOST_DEVIATION)]
    return [("prompts", slice(keys), MOST_DEVIATION),
            ("rows of chosen keys", slice(keys, None), MOST_DEVIATION)]


def rounds_q(record):
    """Whether an engine of attnjit has Q of prompts in 8 bits, as run.py knows it."""
    return (record["cache"] in ("fp8", "fp8_e4m3") and record.get("server") != "sglang"
            and not shapes.is_mla(record["config"]))


def agreement(verdict, name, found):
    """Tokens of verified drafts, or of prompts and decodes in one batch."""
    others = {backend: 1 - record["agreement"]["agree"] for backend, record in found.items()}
    mine = others.pop("ATTNJIT")
    accepted = {backend: record["agreement"].get("accepted") for backend, record in found.items()}
    verdict.say(name, f"{mine:.4f} of the tokens are not a prompt's most probable ones"
                + "".join(f", {backend}'s {other:.4f}" for backend, other in others.items()),
                mine <= max(others.values()) + MOST_OTHERS if others else None)
    if accepted["ATTNJIT"] is not None:
        least = min((accepted[backend] for backend in others), default=0)
        verdict.say(name, ", ".join(f"{backend} {count}" for backend, count in accepted.items())
                    + " tokens of a verification are accepted",
                    accepted["ATTNJIT"] >= LEAST_ACCEPTED * least if others else None)


def alone(verdict, name, found):
    """Batch-invariant mode: requests that are served alone have the same bits."""
    for backend, record in found.items():
        said = record["alone"]
        verdict.say(f"{name}, {backend}", f"{said['others']} of {said['all']} log-probabilities are "
                    "others where requests are served alone",
                    said["others"] == 0 if is_ours(backend) else None)


def medians(runs):
    """By load."""
    found = {}
    for load in dict.fromkeys(one["load"] for one in runs):
        of_load = [one for one in runs if one["load"] == load]
        found[load] = {name: statistics.median(one[name] for one in of_load)
                       for name in ("output_per_s", "tpot_ms", "ttft_ms")}
        found[load]["repeats"] = len(of_load)
    return found


def is_ours(backend):
    """attnjit, or a variant of it (run.py --vary)."""
    return backend.startswith("ATTNJIT")


def beside(mine, theirs):
    """The text of a load's medians, and what is judged of them."""
    output, tpot = (mine["output_per_s"] / theirs["output_per_s"],
                    theirs["tpot_ms"] / mine["tpot_ms"])
    ttft = mine["ttft_ms"] / theirs["ttft_ms"]
    return (f"{mine['output_per_s']:.0f} tokens/s ({output:.3f}), TPOT {mine['tpot_ms']:.2f} ms "
            f"({tpot:.3f}), TTFT {mine['ttft_ms']:.1f} ms ({1 / ttft:.3f}), {mine['repeats']} "
            "repeats"), output, tpot, ttft


def speeds(verdict, name, found, rows, ratios):
    mine = medians(found["ATTNJIT"]["runs"])
    default = next((record for backend, record in found.items()
                    if not is_ours(backend) and record["runs"]), None)
    theirs = medians(default["runs"]) if default else {}
    judged = found["ATTNJIT"]["model"].startswith(JUDGED)
    if not theirs:
        return verdict.say(name, "has nothing beside it", False)
    for load in mine:
        if load not in theirs:
            verdict.say(f"{name}, {load}", "has nothing beside it", False)
            continue
        a, b = mine[load], theirs[load]
        text, output, tpot, ttft = beside(a, b)
        few = min(a["repeats"], b["repeats"]) < 3
        verdict.say(f"{name}, {load}", text, (min(output, tpot) >= LEAST_RATIO and ttft <= MOST_TTFT)
                    if judged and not few else None)
        for variant, record in found.items():
            varied = medians(record["runs"]) if "@" in variant else {}
            if load in varied:
                verdict.say(f"{name}, {load}, {variant}", beside(varied[load], b)[0])
        if judged and not few:
            ratios.setdefault("MLA" if "deepseek" in name else "GQA", []).extend([output, tpot])
        rows.append([f"{found['ATTNJIT']['model']}, {found['ATTNJIT']['layers']} layers",
                     found["ATTNJIT"]["cache"], load,
                     [round(a["output_per_s"]), round(output, 3)],
                     [round(a["tpot_ms"], 2), round(tpot, 3)],
                     [round(a["ttft_ms"], 1), round(1 / ttft, 3)]])


def decode_kernels(trace):
    """The kernels that take the most time in a step of decodes: those of prompts and decodes, less
    those of the prompts alone."""
    of_prompt = {key: (us, count) for key, us, count in trace["prompt"]}
    left = []
    for key, us, count in trace["prompt_and_decodes"]:
        us0, count0 = of_prompt.get(key, (0, 0))
        left.append(((us - us0) / trace["tokens"], (count - count0) / trace["tokens"], key))
    return "".join(f"\n       {us:8.1f} {count:6.1f} {key[:100]}"
                   for us, count, key in sorted(left, reverse=True)[:16])


def load_kernels(trace):
    rows = trace["load"]
    return f"{sum(us for _, us, _ in rows):.0f} in all" + "".join(
        f"\n       {us:8.0f} {count:6} {key[:100]}" for key, us, count in rows[:16])


def keys(verdict, name, record, folder):
    """Each kernel that was asked for is one that the manifest has, and none was compiled."""
    asked = folder / f"keys-{record['stage']}-{record['model']}-{record['cache']}.jsonl"
    manifests = [path for path in (folder / f"manifest-{record['model']}-{record['cache']}{name}.json"
                                   for name in ("", "-drafts")) if path.exists()]
    if not asked.exists() or not manifests:
        return
    import attnjit

    lines = [json.loads(line) for line in asked.read_text(encoding="utf-8").splitlines()]
    with attnjit.Service(no_disk_cache=1) as service:
        def key(spec):
            return service.prepare({**spec, "arch": record["arch"]}).key

        known = {key(spec) for manifest in manifests
                 for spec in json.loads(manifest.read_text(encoding="utf-8"))["specs"]}
        wanted = {key(line["spec"]): line["spec"] for line in lines if line["event"] == "prepare"}
    lacks = [spec for one, spec in wanted.items() if one not in known]
    verdict.say(name, f"{len(wanted)} kernels asked for, of which the manifest lacks {len(lacks)}"
                + "".join(f"\n       {json.dumps(spec)}" for spec in lacks), not lacks and bool(wanted))
    spent = {}
    for line in lines:
        spent[line["process"]] = spent.get(line["process"], 0) + line["ms"]
    verdict.say(name, f"{max(spent.values()):.0f} ms a process spent on finding them")
    compiles = record.get("engine", {}).get("statistics", {}).get("compiles")
    if compiles is not None:
        verdict.say(name, f"{compiles:.0f} kernels compiled while it ran", compiles == 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="+", type=pathlib.Path)
    parser.add_argument("--record", type=pathlib.Path)
    given = parser.parse_args()
    verdict, rows, ratios, about, cases = Verdict(), [], {}, {}, {}
    for folder in given.out:
        for path in sorted(folder.glob("*-*.json")):
            if path.name.startswith("manifest-"):
                continue
            record = json.loads(path.read_text(encoding="utf-8"))
            if "backend" not in record:
                continue
            about = record.get("engine") and record or about
            if "error" in record:
                verdict.say(path.stem, record["error"], False)
            cases.setdefault((folder, record["stage"], record["model"], record["cache"],
                              record["layers"]), {})[record["backend"]] = record
    for (folder, stage, model, cache, layers), found in cases.items():
        name = f"{stage} {model} {cache}, {layers} layers"
        if "ATTNJIT" not in found:
            verdict.say(name, "attnjit's is missing", False)
            continue
        whole = {backend: record for backend, record in found.items() if "logprobs" in record}
        if "ATTNJIT" in whole and len(whole) > 1:
            logprobs(verdict, name, whole)
        elif stage == "check":
            verdict.say(name, "log-probabilities are missing", False)
        by_tokens = {backend: record for backend, record in found.items() if "agreement" in record}
        if "ATTNJIT" in by_tokens:
            agreement(verdict, name, by_tokens)
        alone(verdict, name, {backend: record for backend, record in found.items()
                              if "alone" in record})
        if found["ATTNJIT"]["runs"]:
            speeds(verdict, name, found, rows, ratios)
        for backend, record in found.items():
            if "trace" in record:
                verdict.say(f"{name}, {backend}, us a decode step", decode_kernels(record["trace"]))
                verdict.say(f"{name}, {backend}, us of a load", load_kernels(record["trace"]))
        if found["ATTNJIT"].get("starts"):
            mine, theirs = (statistics.median(found[backend].get("starts") or [math.nan])
                            for backend in sorted(found))
            verdict.say(name, f"starts in {mine:.1f} s, the server's own in {theirs:.1f} s",
                        mine <= theirs + MOST_START)
        keys(verdict, name, found["ATTNJIT"], folder)
    for kind, values in ratios.items():
        mean = math.exp(statistics.mean(map(math.log, values)))
        verdict.say(f"{kind}, all judged models and loads",
                    f"tokens/s and TPOT over the server's default: geometric mean {mean:.3f}, "
                    f"least {min(values):.3f}", mean >= LEAST_MEAN)
    if verdict.count == 0:
        print("judge: there is nothing to judge", file=sys.stderr)
        return 2
    if given.record and rows:
        engine = about["engine"]
        server, program = (("SGLang", "run_sglang.py") if about.get("server") == "sglang"
                           else ("vLLM", "run.py"))
        given.record.write_text(json.dumps({
            "machine": f"One {engine['gpu']}, {server} {engine.get(server.lower(), '0.33')}, "
                       f"torch {engine['torch']}",
            "date": about["date"], "peers": f"{server}'s default backend: tokens/s over its own, and "
            "its times over attnjit's, in brackets",
            "command": f"tests/gpu/server/{program} --mode {about['mode']}",
            "columns": COLUMNS, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    print(f"{verdict.count - len(verdict.failed)} of {verdict.count} bars are held")
    return 1 if verdict.failed else 0


if __name__ == "__main__":
    sys.exit(main())

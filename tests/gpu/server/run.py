#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vLLM with its own attention backends and with attnjit's, on models of random weights on one GPU.

    run.py OUT CASE.. [--stage check] [--stage speed] [--mode graphs] [--seconds 540]
    judge.py OUT

CASE is MODEL[+WITH..][:CACHE][:LAYERS], of shapes.py: llama8b, qwen3-8b:fp8, gemma3-12b:auto:24,
small+drafts. It needs vLLM and attnjit's wheel installed, and no network.

check: log-probabilities of prompts and of decodes, with vLLM's default, another of its backends, and
attnjit. speed: vLLM's default and attnjit in turns: tokens per second, times to the first token and
per token at low and high load and of long prompts; and if asked for, log-probabilities with graphs,
the kernels' times in decodes, and attnjit with other options of vllm.LLM (--vary) in the same turns.
An engine that fails or does not answer ends its case; the others go on, and the exit code is 1.

As many engines as have room on the GPU start at once and stay; one of them computes at a time. OUT gets
a file for each stage, model, cache and backend, written again after each measurement, so that a run
that is cut leaves what it had. Kernels are compiled before (attnjit manifest --for vllm, attnjit
prewarm), and OUT has the keys that the backend asked for.
"""
import argparse
import dataclasses
import json
import multiprocessing
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import engine as engines  # noqa: E402
import shapes  # noqa: E402

GIB = 1 << 30
# Of an engine beside its weights and its cache: activations, graphs, the context.
_ROOM = {"check": 3 * GIB, "speed": 6 * GIB}
_LISTS_ROOM = 8 * GIB  # of one with an indexer: its scores, and copies of Q, K and O of a step
_START_SECONDS = 60  # that a group needs at least
_ANSWER_SECONDS = 60  # within which an engine answers an order
_DEAD = re.compile(r"^Exception in thread|EngineCore encountered a fatal error"
                   r"|Scheduler hit an exception", re.MULTILINE)


@dataclasses.dataclass
class Case:
    """A model, its cache's type, and how the engines run it."""

    name: str
    config: dict
    cache: str = "auto"
    mode: str = "graphs"
    folder: pathlib.Path = None
    check_folder: pathlib.Path = None
    text: str = ""  #: what the command line calls it
    options: dict = dataclasses.field(default_factory=dict)
    environment: dict = dataclasses.field(default_factory=dict)
    manifest: tuple = ()  #: options of attnjit manifest; None: it has no such kernels
    head_scales: bool = False  #: of K and V
    by_tokens: bool = False  #: as of shapes.With
    drafts_folder: pathlib.Path = None  #: of the model of drafts, where it has one
    #: Of speed: further engines of attnjit, "ATTNJIT@NAME", and their options.
    varied: dict = dataclasses.field(default_factory=dict)

    def cache_tokens(self, stage):
        """Of the stage's requests at once; an engine wants room for one of the longest."""
        loads = engines.LOADS.values() if stage != "check" else ()
        return round(1.1 * max([3 * 8192, engines.longest_of(self)] + [sum(engines.lengths_of(load, 3))
                                             + load.requests * (load.outputs + 32)
                                             for load in loads]))

    def cache_bytes(self, stage):
        """Memory for the keys and values of those."""
        if shapes.is_mla(self.config):
            row = self.config["kv_lora_rank"] + self.config["qk_rope_head_dim"]
        else:
            row = 2 * shapes.kv_heads(self.config) * shapes.head_dim(self.config)
        reference = backends_in(self, "check")[0].partition("@")[2]
        row *= {"float32": 4, "auto": 2}.get(reference, 1 if self.cache.startswith("fp8") else 2)
        if shapes.list_keys(self.config):  # an indexer's keys, of 8 bits, and their scales
            row += self.config["index_head_dim"] + 4
        return row * self.config["num_hidden_layers"] * self.cache_tokens(stage)

    def bytes(self, stage):
        """What an engine of it takes of the GPU, about."""
        logits = 8 * 8192 * self.config["vocab_size"] if stage == "check" else 0  # of prompts
        lists = _LISTS_ROOM if shapes.list_keys(self.config) else 0
        return (shapes.weight_bytes(self.config) + self.cache_bytes(stage) + _ROOM[stage] + logits
                + lists)


def case_of(text, given, withs=shapes.WITH):
    name, *more = text.split(":")
    model, *parts = name.split("+")
    models = {**shapes.MODELS, **shapes.KINDS, **shapes.OF_SGLANG, **shapes.WITH_LISTS,
              **shapes.MIXED}
    for one, known in ((model, models), *((part, withs) for part in parts)):
        if one not in known:
            raise SystemExit(f"run: there is no {one!r}, but {', '.join(known)}")
    config = models[model]
    if given.tiny:
        config = shapes.tiny(config)
    if len(more) > 1:
        config = shapes.with_layers(config, int(more[1]))
    cache = more[0] if more and more[0] else "auto"
    case = Case(name, config, cache, given.mode, text=text, options=json.loads(given.options),
                varied=dict(map(variant, getattr(given, "vary", ()))),
                manifest=() if shapes.has_manifest(config) else None)
    root = pathlib.Path(given.models, f"layers{config['num_hidden_layers']}")
    case.folder = shapes.write(root, model, config)
    case.check_folder = shapes.write(root, f"{model}-all-experts", shapes.all_experts(config))
    for one in map(withs.get, parts):
        case.options.update(one.options)
        case.environment.update(one.environment)
        case.head_scales |= one.head_scales
        case.by_tokens |= one.by_tokens
        if one.drafts:
            case.drafts_folder = shapes.write(root, f"{model}-drafts",
                                              {**config, "architectures": [one.drafts]})
            case.options["speculative_draft_model_path"] = str(case.drafts_folder)
        case.manifest = (None if None in (case.manifest, one.manifest)
                         else (*case.manifest, *one.manifest))
    if "VLLM_BATCH_INVARIANT" in case.environment and case.manifest is not None:
        made = engines.options(case, "ATTNJIT", 0)
        case.manifest += ("--batch-invariant", ",".join(str(made[name]) for name in (
            "max_model_len", "max_num_batched_tokens", "max_num_seqs")))
    return case


def variant(text):
    """NAME=JSON of --vary: a backend's name in the records, and options of its own."""
    name, _, options = text.partition("=")
    return f"ATTNJIT@{name}", json.loads(options)


class Record:
    """A file of OUT: what one engine said in one stage."""

    def __init__(self, out, stage, case, backend, arch):
        self.path = out / f"{stage}-{case.name}-{case.cache}-{backend}.json"
        self.keys = out / f"keys-{stage}-{case.name}-{case.cache}.jsonl" if backend == "ATTNJIT" else None
        self.data = {"stage": stage, "model": case.name, "cache": case.cache, "backend": backend,
                     "mode": case.mode if stage != "check" else "eager", "arch": arch,
                     "layers": case.config["num_hidden_layers"], "config": case.config,
                     "date": time.strftime("%Y-%m-%d", time.gmtime()), "runs": []}

    def write(self, **more):
        self.data.update(more)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.data), encoding="utf-8")
        new.replace(self.path)


class Running:
    """The process of an engine, which `make` makes of a case, a backend and a cache's size."""

    def __init__(self, record, case, backend, stage, logs, method, make=engines.Engine,
                 cache=Case.cache_bytes):
        self.record, self.backend, self.case, self.failed = record, backend, case, False
        if record.keys is not None:
            record.keys.unlink(missing_ok=True)
        environment = dict(case.environment)
        if record.keys is not None:
            environment["ATTNJIT_RECORD_KEYS"] = str(record.keys)
        self.log = logs / f"{record.path.stem}.log"
        self.log.write_text("", encoding="utf-8")  # of an earlier run
        if stage == "check":
            case = dataclasses.replace(case, mode="eager", folder=case.check_folder)
        more = case.varied.get(backend, shapes.REFERENCES.get(backend.partition("@")[2], {}))
        case = dataclasses.replace(case, options={**case.options, **more})
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context(method).Process(
            target=engines.serve, args=(theirs, str(self.log), environment, make, case, backend,
                                        cache(case, stage)))
        self._process.start()
        theirs.close()

    def answer(self, seconds=_ANSWER_SECONDS):
        """What the last order gave. Its failure, or no answer in time, ends the engine."""
        until, kind, result = time.time() + seconds, "failed", None
        while result is None:
            if self._pipe.poll(0.2):
                try:
                    kind, result = self._pipe.recv()
                except EOFError:
                    result = "the process ended"
                break
            if _DEAD.search(self.log.read_text(errors="replace")):
                result = "a thread of the engine died"
            elif time.time() > until:
                result = f"no answer in {seconds:.0f} s"
        if kind == "failed":
            self.failed = True
            self.record.write(error=result)
            say(f"{self.record.path.stem}: {result}")
            print("\n".join(line[:300] for line in self.log.read_text(
                errors="replace").splitlines()[-40:]), flush=True)
            self.end()
            raise Failed(self)
        return result

    def send(self, name, *arguments):
        try:
            self._pipe.send((name, arguments))
        except OSError:
            pass  # it has ended: answer() tells why

    def order(self, name, *arguments, seconds=_ANSWER_SECONDS):
        self.send(name, *arguments)
        return self.answer(seconds)

    def end(self):
        """NOTE: the process leads a group: vLLM's engine of it ends, too."""
        if self._process.is_alive():
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                self._process.kill()
        self._process.join()


class Failed(Exception):
    """An engine that ended with an error, which its record has."""


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def prepare_environment():
    """For vLLM's processes: no network, and this folder's extension of its workers."""
    os.environ.update({"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
                       # Several engines wait while one computes: with a process each for scheduler and
                       # model they wait by spinning, and steps take up to twice their time.
                       "VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
    path = [str(pathlib.Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))


def import_vllm(cases):
    """Imports vLLM and its models once, for engines are forked; says how they are to be started."""
    import torch
    import vllm.entrypoints.llm  # noqa: F401
    import vllm.v1.engine.core  # noqa: F401
    from vllm import ModelRegistry

    for architecture in {case.config["architectures"][0] for case in cases}:
        # NOTE: otherwise each engine has a process of its own look at the class.
        ModelRegistry.register_model(architecture,
                                     ModelRegistry.models[architecture].load_model_cls())
    return "spawn" if torch.cuda.is_initialized() else "fork"


# --- kernels before engines

def prewarm(cases, out, arch, server="vllm", options=()):
    """Has the kernels compiled that the manifests of the cases say."""
    command, paths = [sys.executable, "-m", "attnjit"], []
    for case in [case for case in cases if case.manifest is not None]:
        of_drafts = [one for one in case.manifest if one != "--tree"]  # whose model verifies none
        for folder, more, name in ((case.folder, case.manifest, ""),
                                   (case.drafts_folder, of_drafts, "-drafts")):
            if folder is None:
                continue
            path = out / f"manifest-{case.name}-{case.cache}{name}.json"
            subprocess.run([*command, "manifest", str(folder / "config.json"), "--for", server,
                            "--arch", arch, "--kv-cache-dtype", case.cache, *options, *more,
                            "-o", str(path)], check=True)
            paths.append(str(path))
    if not paths:
        return
    began = time.time()
    done = subprocess.run([*command, "prewarm", "--json", "--arch", arch, *paths],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"run: prewarm failed\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    say(f"prewarmed {len(paths)} manifests in {time.time() - began:.1f} s")


# --- stages

def groups_of(cases, stage, room):
    """Cases whose engines have room at once."""
    groups, left = [], 0
    for case in cases:
        needed = case.bytes(stage) * len(backends_in(case, stage))
        if not groups or needed > left:
            groups.append([])
            left = room
        groups[-1].append(case)
        left -= needed
    return groups


def backends_in(case, stage):
    default, other = shapes.backends_of(case.config, case.cache, case.options, case.head_scales)
    if stage == "check":
        # Q of prompts has 8 bits beside such a cache, and that of decodes 16: they are compared where
        # both have 16.
        rounds = case.cache in ("fp8", "fp8_e4m3") and not shapes.is_mla(case.config)
        return (default, "ATTNJIT", other, *(["ATTNJIT@q16"] if rounds else []))
    return (other if "@" in default else default, "ATTNJIT", *case.varied)


def started(group, stage, out, logs, given, method):
    """The engines of a group, which start at once; by case, where all of a case's did."""
    found = [Running(Record(out, stage, case, backend, given.arch), case, backend, stage, logs,
                     method)
             for case in group for backend in backends_in(case, stage)]
    def all_answer(seconds):
        for one in [one for one in found if not one.failed]:
            try:
                one.record.write(start_s=one.answer(seconds) or one.record.data["start_s"])
            except Failed:
                continue

    all_answer(given.start_seconds)
    for one in found:
        one.send("weights")
    all_answer(_ANSWER_SECONDS)
    alive = [[one for one in found if one.case is case and not one.failed] for case in group]
    return [engines for engines in alive
            if len(engines) > 1 and any(one.backend == "ATTNJIT" for one in engines)], found


def check(engines_of_case, given, deadline):
    for one in engines_of_case:
        one.record.write(logprobs=one.order("logprobs"))
        if "VLLM_BATCH_INVARIANT" in one.case.environment:
            one.record.write(alone=one.order("alone"))


def speed(engines_of_case, given, deadline):
    """Each load once unmeasured, then `repeats` times, the engines in turns."""
    turns, order = random.Random(1), list(engines_of_case)
    for repeat in range(-1, given.repeats):
        for load in given.loads.split(","):
            turns.shuffle(order)
            for one in order:
                if time.time() > deadline:
                    return say("out of time")
                found = one.order("load", load)
                if repeat >= 0:
                    one.record.data["runs"].append({"load": load, **found})
                one.record.write()
        if repeat < 0 and given.logprobs:
            check(engines_of_case, given, deadline)
    for one in engines_of_case if given.trace else ():
        load, *sizes = given.trace.split(",")
        one.record.write(trace=one.order("trace", load, *map(int, sizes),
                                         seconds=3 * _ANSWER_SECONDS))


STAGES = {"check": check, "speed": speed}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("cases", nargs="+", metavar="CASE")
    parser.add_argument("--stage", action="append", choices=STAGES, help="default: check, speed")
    parser.add_argument("--mode", default="graphs", choices=["graphs", "plain", "eager"],
                        help="of speed: vLLM's default; the same graphs with vLLM's own kernels "
                        "instead of torch.compile's, which start sooner; no graphs")
    parser.add_argument("--seconds", type=float, default=540, help="in all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--loads", default=",".join(engines.LOADS))
    parser.add_argument("--logprobs", action="store_true", help="of speed's engines, too")
    parser.add_argument("--trace", default="", metavar="LOAD,REQUESTS,PROMPT,TOKENS",
                        help="the kernels' times in a load and in decodes, e.g. high,64,1024,32")
    parser.add_argument("--start-seconds", type=float, default=240, help="of an engine")
    parser.add_argument("--memory", type=float, default=132, metavar="GIB", help="of the GPU")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--cold", action="store_true", help="compile no kernels before")
    parser.add_argument("--models", default=os.path.join(tempfile.gettempdir(), "server-models"))
    parser.add_argument("--options", default="{}", help="further arguments of vllm.LLM, as JSON")
    parser.add_argument("--vary", action="append", default=[], metavar="NAME=JSON",
                        help="of speed: one more engine of attnjit with these arguments of vllm.LLM")
    parser.add_argument("--tiny", action="store_true", help="small models, to see how it goes")
    given = parser.parse_args()
    deadline = time.time() + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    logs = given.out / "logs"
    logs.mkdir(exist_ok=True)
    prepare_environment()
    cases = [case_of(text, given) for text in given.cases]
    if not given.cold:
        prewarm(cases, given.out, given.arch)
    method, failed = import_vllm(cases), False
    for stage in given.stage or STAGES:
        for group in groups_of(cases, stage, given.memory * GIB):
            if time.time() + _START_SECONDS > deadline:
                say("out of time")
                return 1 if failed else 0
            say(f"{stage}: {', '.join(f'{case.name} {case.cache}' for case in group)} start")
            found = []
            try:
                ready, found = started(group, stage, given.out, logs, given, method)
                for of_case in ready:
                    say(f"{stage}: {of_case[0].case.name} {of_case[0].case.cache} with "
                        f"{', '.join(one.backend for one in of_case)}")
                    try:
                        for one in of_case:
                            one.record.write(engine=one.order("about"))
                        STAGES[stage](of_case, given, deadline)
                        for one in of_case:
                            one.record.write(engine=one.order("about"))
                    except Failed:
                        continue
            finally:
                for one in found:
                    failed |= one.failed
                    one.end()
    say("done" if not failed else "done, but for what failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SGLang with its own attention backends and with attnjit's, on models of random weights on one GPU.

    run_sglang.py OUT CASE.. [--mode plain] [--seconds 540]
    run_sglang.py OUT --smoke
    judge.py OUT

CASE and OUT are as run.py has them; what a case has WITH it is of shapes.WITH_SGLANG: llama8b+mixed::8,
few-words+drafts. Of each case three engines start: with fa3, with triton, and with attnjit (of
deepseek-v32, whose rows see lists of keys, --own DSA is SGLang's). All of them give log-probabilities of
prompts and of decodes, at once; then fa3 and attnjit (triton, where fa3 does not run) serve each load in
turns. As many cases as have room on the GPU start at once.
An engine that fails or does not answer is told of, and the others go on; the exit code is then 1.
With drafts, and of prompts and decodes in one batch, how many of the tokens are the most probable ones
stands in place of log-probabilities.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import engine_sglang  # noqa: E402
import extension_sglang  # noqa: E402
import run  # noqa: E402
import shapes  # noqa: E402
from run import Case, Failed, Record, Running, say  # noqa: E402

_PAGE = 64


def prepare_environment(folder):
    """For SGLang's processes: no network, no FlashInfer, and the plug-in of these tests."""
    os.environ.update({"HF_HUB_OFFLINE": "1", "SGLANG_IS_FLASHINFER_AVAILABLE": "false"})
    extension_sglang.install(folder)
    path = [str(pathlib.Path(__file__).resolve().parent), folder, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    sys.path.insert(0, folder)  # NOTE: a spawned process has its parent's path


def all_answer(found, seconds, what):
    """What each engine that lives gave, which its record keeps; those that failed end."""
    until = time.time() + seconds
    for one in [one for one in found if not one.failed]:
        try:
            one.record.write(**{what: one.answer(max(1.0, until - time.time()))})
        except Failed:
            continue


def case_of(text, given):
    """As run.case_of's; a deterministic engine's kernels hang on its longest request and chunk."""
    case = run.case_of(text, given, shapes.WITH_SGLANG)
    if case.options.get("enable_deterministic_inference"):
        made = engine_sglang.options(case, "ATTNJIT", 0)
        case.manifest += ("--batch-invariant", f"{made['context_length']},"
                          f"{made['chunked_prefill_size']}")
    return case


def groups_of(cases, given):
    """Cases whose engines have room at once."""
    groups, left = [], 0
    for case in cases:
        needed = case.bytes("speed") * (1 + len(given.own))
        if not groups or needed > left:
            groups.append([])
            left = given.memory * run.GIB
        groups[-1].append(case)
        left -= needed
    return groups


def started(group, logs, given):
    """The engines of a group, which start at once, by case."""
    found = {case.text: [
        Running(Record(given.out, "speed", case, backend, given.arch), case, backend, "speed",
                logs, "spawn", engine_sglang.Engine, Case.cache_tokens)
        for backend in (*given.own, "ATTNJIT")] for case in group}
    every = [one for engines in found.values() for one in engines]
    for one in every:
        one.record.write(server="sglang")
    all_answer(every, given.start_seconds, "start_s")
    for engines in found.values():
        say("; ".join([engines[0].case.text] + [
            f"{one.backend} started in {one.record.data['start_s']} s"
            for one in engines if not one.failed]))
    return found


def asked(engines, order, seconds):
    """The engines that live answer an order at once."""
    for one in engines:
        if not one.failed:
            one.send(order)
    all_answer(engines, seconds, {"about": "engine"}.get(order, order))


def compared(engines, case, given):
    """What each engine computes, for the judge."""
    asked(engines, "agreement" if case.by_tokens else "logprobs", given.answer_seconds)
    if case.options.get("enable_deterministic_inference"):
        asked(engines, "alone", given.answer_seconds)


def timed(engines, given, deadline):
    """attnjit's engine of a case and one of SGLang's own serve loads."""
    config = engines[0].case.config
    if shapes.is_encoder(config) or shapes.is_speech(config):
        return
    alive = [one for one in engines if not one.failed]
    both = [one for one in alive if one.backend == "ATTNJIT"]
    both += [one for one in alive if one.backend != "ATTNJIT"][:1]
    while both:
        try:
            return run.speed(both, given, deadline)
        except Failed:  # the other goes on
            both = [one for one in both if not one.failed]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--mode", default="plain", choices=["graphs", "plain", "eager"],
                        help="SGLang's default; graphs of decodes alone, which start sooner; none")
    parser.add_argument("--seconds", type=float, default=540, help="in all")
    parser.add_argument("--repeats", type=int, default=3, help="0: no loads")
    parser.add_argument("--loads", default="low,high,long")
    parser.add_argument("--start-seconds", type=float, default=200, help="of the engines of a case")
    parser.add_argument("--own", default="FA3,TRITON", type=lambda text: text.split(","),
                        help="SGLang's own backends, its default for the card first")
    parser.add_argument("--answer-seconds", type=float, default=90)
    parser.add_argument("--memory", type=float, default=125, metavar="GIB", help="of the GPU")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--cold", action="store_true", help="compile no kernels before")
    parser.add_argument("--models", default=os.path.join(tempfile.gettempdir(), "server-models"))
    parser.add_argument("--options", default="{}", help="further arguments of sglang.Engine, as JSON")
    parser.add_argument("--tiny", action="store_true", help="small models, to see how it goes")
    parser.add_argument("--smoke", action="store_true",
                        help="a tiny llama8b, with one load once: does it run?")
    given = parser.parse_args()
    if given.smoke:
        given.cases, given.tiny, given.repeats, given.loads = ["llama8b"], True, 1, "low"
        given.start_seconds = min(given.start_seconds, 120)
    given.logprobs, given.trace = False, ""  # of run.speed
    deadline, whole = time.time() + given.seconds, True
    logs = given.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    cases = [case_of(text, given) for text in given.cases]
    if not given.cold:
        run.prewarm(cases, given.out, given.arch, "sglang", ["--page", str(_PAGE)])
    with tempfile.TemporaryDirectory() as folder:
        prepare_environment(folder)
        for group in groups_of(cases, given):
            if time.time() + 30 > deadline:
                say("out of time")
                break
            say(f"{', '.join(case.text for case in group)} start")
            found = {}
            try:
                found = started(group, logs, given)
                every = [one for engines in found.values() for one in engines]
                asked(every, "about", 30)
                for case, engines in zip(group, found.values()):
                    compared(engines, case, given)
                for engines in found.values() if given.repeats else ():
                    timed(engines, given, deadline)
                asked(every, "about", 30)
            finally:
                for engines in found.values():
                    whole &= not any(one.failed for one in engines)
                    for one in engines:
                        one.end()
    say("done" if whole else "done, but for what failed")
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())

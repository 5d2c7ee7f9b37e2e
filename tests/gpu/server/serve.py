#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`vllm serve` with vLLM's own attention backend and with attnjit's: how long it takes to start, and
requests over HTTP.

    serve.py OUT CASE.. [--starts 3] [--repeats 3] [--concurrency 4,64] [--seconds 540]
    judge.py OUT

CASE is run.py's. Kernels are compiled before, and attnjit's servers are forbidden to compile any. Each
backend starts once unmeasured, for what vLLM itself compiles; then `--starts` times, in turns. The last
servers stay, and answer in turns. OUT gets a file for each model, cache and backend.
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import engine as engines  # noqa: E402
import run  # noqa: E402
import shapes  # noqa: E402

_PROMPT, _OUTPUT = (512, 2048), 128  # tokens of the requests; the same of each round
# Users' first requests come at once and wait for one another: were they half of all, the median of
# the times to the first token would lie in the gap between those and the later ones.
_REQUESTS_OF_USER = 4


class Server:
    """A process of `vllm serve`, from its start to where it answers."""

    def __init__(self, case, backend, logs, keys, limit):
        self.backend, self.began = backend, time.perf_counter()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        given = engines.options(case, backend, case.cache_bytes("speed"))
        model = given.pop("model")
        del given["skip_tokenizer_init"]
        flags = [f"--no-{name.replace('_', '-')}" if value is False else
                 f"--{name.replace('_', '-')}" if value is True else
                 f"--{name.replace('_', '-')}={value if isinstance(value, str) else json.dumps(value)}"
                 for name, value in given.items() if value != ""]
        environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1"}
        if backend == "ATTNJIT":
            environment.update(ATTNJIT_FORBID_COMPILE="1", ATTNJIT_RECORD_KEYS=str(keys))
        self.log = logs / f"serve-{case.name}-{case.cache}-{backend}.log"
        with open(self.log, "w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model,
                 "--served-model-name", "m", "--host", "127.0.0.1", "--port", str(self.port), *flags],
                env=environment, stdout=log, stderr=log, start_new_session=True)
        self._limit = limit

    def wait(self):
        """Seconds from the start to the first answer; raises where there is none."""
        while True:
            try:
                urllib.request.urlopen(self.url("health"), timeout=2).close()
                return round(time.perf_counter() - self.began, 2)
            except OSError:
                time.sleep(0.05)
            if self._process.poll() is not None or time.time() > self._limit:
                text = self.log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{self.backend}: no answer\n{text}")

    def url(self, path):
        return f"http://127.0.0.1:{self.port}/{path}"

    def rpc(self, method):
        body = json.dumps({"method": method}).encode()
        request = urllib.request.Request(self.url("collective_rpc"), body,
                                         {"Content-Type": "application/json"})
        return json.loads(urllib.request.urlopen(request, timeout=120).read())

    def metrics(self):
        text = urllib.request.urlopen(self.url("metrics"), timeout=10).read().decode()
        return [line for line in text.splitlines() if line.startswith("attnjit_")]

    def phases(self):
        """The log's lines that say how long parts of the start took."""
        wanted = (" seconds", " took ", "attnjit ")
        return [line.split("] ", 1)[-1][:200] for line in self.log.read_text(
            errors="replace").splitlines() if any(one in line for one in wanted)]

    def end(self):
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


async def _answer(session, server, prompt, began, times):
    body = {"model": "m", "prompt": prompt, "max_tokens": _OUTPUT, "temperature": 0,
            "ignore_eos": True, "stream": True}
    sent, first, count = time.perf_counter(), None, 0
    async with session.post(server.url("v1/completions"), json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if line.startswith(b"data: ") and line[6:].strip() != b"[DONE]":
                first = first or time.perf_counter()
                count += 1
    last = time.perf_counter()
    times.append((first - sent, (last - first) / (_OUTPUT - 1), last - began))


async def _round(server, prompts, concurrency):
    import aiohttp

    waiting, times, began = list(prompts), [], time.perf_counter()

    async def user(session):
        while waiting:
            await _answer(session, server, waiting.pop(), began, times)

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector,
                                     timeout=aiohttp.ClientTimeout(300)) as session:
        await asyncio.gather(*(user(session) for _ in range(concurrency)))
    return {"output_per_s": round(len(prompts) * _OUTPUT / max(t[2] for t in times), 2),
            "ttft_ms": round(1e3 * statistics.median(t[0] for t in times), 3),
            "tpot_ms": round(1e3 * statistics.median(t[1] for t in times), 4)}


def measured_round(server, case, concurrency):
    r = random.Random(11)
    prompts = [[r.randrange(2, case.config["vocab_size"]) for _ in range(r.randint(*_PROMPT))]
               for _ in range(_REQUESTS_OF_USER * concurrency)]
    return asyncio.run(_round(server, prompts, concurrency))


def serve(case, given, out, logs, deadline):
    default = run.backends_in(case, "speed")[0]
    records = {backend: run.Record(out, "serve", case, backend, given.arch)
               for backend in (default, "ATTNJIT")}
    for record in records.values():
        record.data.update(mode=case.mode, starts=[])
        if record.keys is not None:
            record.keys.unlink(missing_ok=True)

    def start(backend):
        return Server(case, backend, logs, records["ATTNJIT"].keys, deadline)

    alive = {}
    try:
        for turn in range(given.starts + 1):
            for backend in sorted(records, reverse=turn % 2 == 1):
                if time.time() + 30 > deadline:
                    run.say("out of time")
                    return
                server = alive[backend] = start(backend)
                seconds = server.wait()
                run.say(f"{case.name} {case.cache} {backend}: answers after {seconds} s")
                if turn:
                    records[backend].data["starts"].append(seconds)
                records[backend].write(phases=server.phases())
                if turn < given.starts:
                    server.end()
        for server in alive.values():
            server.rpc("set_weights")
        order = random.Random(2)
        for repeat in range(-1, given.repeats):
            for concurrency in map(int, given.concurrency.split(",")):
                turns = list(alive.values())
                order.shuffle(turns)
                for server in turns:
                    if time.time() + 10 > deadline:
                        run.say("out of time")
                        return
                    found = measured_round(server, case, concurrency)
                    if repeat >= 0:
                        records[server.backend].data["runs"].append(
                            {"load": f"http {concurrency}", **found})
                    records[server.backend].write()
        for server in alive.values():
            records[server.backend].write(engine=server.rpc("about")["results"][0],
                                          metrics=server.metrics())
    except (RuntimeError, OSError) as error:
        run.say(f"{case.name}: {error}")
    finally:
        for server in alive.values():
            server.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("cases", nargs="+", metavar="CASE")
    parser.add_argument("--mode", default="graphs", choices=["graphs", "plain", "eager"])
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--concurrency", default="4,64")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--models", default=os.path.join(tempfile.gettempdir(), "server-models"))
    parser.add_argument("--options", default="{}", help="further arguments of vllm.LLM, as JSON")
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    deadline = time.time() + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    logs = given.out / "logs"
    logs.mkdir(exist_ok=True)
    run.prepare_environment()
    cases = [run.case_of(text, given) for text in given.cases]
    run.prewarm(cases, given.out, given.arch)
    for case in cases:
        serve(case, given, given.out, logs, deadline)
    run.say("done")


if __name__ == "__main__":
    main()

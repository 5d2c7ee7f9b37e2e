# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/server without a GPU: vLLM's real processes, whose workers compute nothing, are started,
measured and judged; an engine that fails or hangs is told of, and the others go on.

    server_run_test.py [CASE..]     # without arguments: all of them
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from vllm_server_test import write_entry_points

HERE = pathlib.Path(__file__).resolve().parent
DRIVER = HERE.parent / "gpu/server"
OPTIONS = {"worker_cls": "measured_worker.Worker", "async_scheduling": False}


def driver(program, folder, *arguments, **environment):
    path = [str(folder), str(HERE / "no_gpu"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run([sys.executable, "-B", str(DRIVER / program), str(folder / "out"), *arguments],
                          capture_output=True, text=True, check=False, env={
                              **os.environ, "PYTHONPATH": os.pathsep.join(path),
                              "VLLM_HOST_IP": "127.0.0.1", "VLLM_CACHE_ROOT": str(folder / "vllm"),
                              "ATTNJIT_CACHE_DIR": str(folder / "kernels"),
                              "TMPDIR": str(folder), **environment})


def records(folder, stage):
    found = {path.stem.rsplit("-", 1)[1]: json.loads(path.read_text(encoding="utf-8"))
             for path in (folder / "out").glob(f"{stage}-*.json")}
    assert found, "no record was left"
    return found


def runs(folder):
    """Both stages of a model: each backend has what was asked for, and the judge can tell."""
    done = driver("run.py", folder, "llama8b", "--tiny", "--mode", "eager", "--repeats", "3",
                  "--logprobs", "--trace", "low,2,16,4", "--loads", "low", "--options", json.dumps(OPTIONS),
                  "--vary", 'few={"max_num_seqs": 32}')
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    checked, timed = records(folder, "check"), records(folder, "speed")
    assert set(checked) == {"FLASH_ATTN", "TRITON_ATTN", "ATTNJIT"}, set(checked)
    assert set(timed) == {"FLASH_ATTN", "ATTNJIT", "ATTNJIT@few"}, set(timed)
    log = (folder / "out/logs/speed-llama8b-auto-ATTNJIT@few.log").read_text(encoding="utf-8")
    assert "'max_num_seqs': 32" in log, log
    for record in [*checked.values(), *timed.values()]:
        assert record["engine"]["gpu"] == "no GPU" and record["engine"]["impls"], record["engine"]
        assert [len(one) for one in record["logprobs"]["prompts"]] == [16, 129, 299, 776, 1499, 2047]
        assert all(len(one) == 64 for one in record["logprobs"]["read_again"])
    for record in timed.values():
        assert [one["load"] for one in record["runs"]] == ["low"] * 3
        assert all(one["output_per_s"] > 0 and one["ttft_ms"] > 0 for one in record["runs"])
        assert record["trace"]["tokens"] == 4
    assert "Attnjit" in str(checked["ATTNJIT"]["engine"]["impls"])
    told = driver("judge.py", folder)
    assert "3 repeats" in told.stdout and "bars are held" in told.stdout, told
    assert "low, ATTNJIT@few: " in told.stdout, told.stdout
    # Deviations that are told: attnjit's, of a tenth, is more than 1.15 times another's.
    for backend, by in (("ATTNJIT", 0.1), ("TRITON_ATTN", 0.05)):
        path = next((folder / "out").glob(f"check-*-{backend}.json"))
        record = json.loads(path.read_text(encoding="utf-8"))
        record["logprobs"]["prompts"] = [[v + by for v in one]
                                         for one in record["logprobs"]["prompts"]]
        path.write_text(json.dumps(record), encoding="utf-8")
    told = driver("judge.py", folder)
    assert told.returncode == 1 and "TRITON_ATTN's 0.05000: 2.000" in told.stdout, told.stdout
    written = folder / "table.json"
    driver("judge.py", folder, "--record", str(written))
    table = json.loads(written.read_text(encoding="utf-8"))
    assert [row[2] for row in table["rows"]] == ["low"] and "no GPU" in table["machine"], table


def of_eight_bits(folder):
    """Caches of fp8, MLA's too: beside backends of vLLM's that take them, over keys of manifests."""
    done = driver("run.py", folder, "llama8b:fp8", "llama8b:fp8_per_token_head", "deepseek-16h:fp8",
                  "small+head-scales:fp8", "deepseek-v32", "deepseek-v32:fp8_ds_mla", "--tiny",
                  "--stage", "check", "--options", json.dumps(OPTIONS))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert {path.stem for path in (folder / "out").glob("check-*.json")} == {
        f"check-{name}-{backend}" for name, backends in (
            ("llama8b-fp8", ("FLASH_ATTN", "TRITON_ATTN", "ATTNJIT", "ATTNJIT@q16")),
            ("llama8b-fp8_per_token_head", ("FLASH_ATTN@auto", "TRITON_ATTN", "ATTNJIT")),
            ("small+head-scales-fp8", ("FLASH_ATTN@auto", "FLASH_ATTN", "ATTNJIT",
                                       "ATTNJIT@q16")),
            ("deepseek-16h-fp8", ("FLASHMLA", "TRITON_MLA", "ATTNJIT")),
            ("deepseek-v32-auto", ("FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE", "ATTNJIT")),
            ("deepseek-v32-fp8_ds_mla", ("FLASHMLA_SPARSE@auto", "FLASHMLA_SPARSE", "ATTNJIT")))
        for backend in backends}
    told = driver("judge.py", folder)
    assert ("check llama8b fp8_per_token_head, 2 layers: prompts 0.00000 from FLASH_ATTN@auto's"
            in told.stdout), told
    for part in ("prompts", "rows of chosen keys"):
        assert f"2 layers: {part} 0.00000 from FLASH_ATTN_MLA_SPARSE's" in told.stdout, told.stdout
    log = (folder / "out/logs/check-llama8b-fp8_per_token_head-FLASH_ATTN@auto.log").read_text()
    assert "kv_cache_dtype=auto" in log, log


def of_options(folder):
    """Kinds of layers, and options of the engine: each is beside vLLM's own, and is judged."""
    cases = {"few-words+drafts": 3, "small+invariant": 3, "one-head+dcp2": 3, "alibi": 3,
             "chunks": 3, "encoder": 3, "encoder-windows": 3, "images": 3, "cross": 3, "r-swa": 3,
             "canvas": 3, "two-depths": 3}
    done = driver("run.py", folder, *cases, "--tiny", "--stage", "check", "--options",
                  json.dumps(OPTIONS))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for case, engines in cases.items():
        left = list((folder / "out").glob(f"check-{case}-auto-*.json"))
        assert len(left) == engines, left
    log = (folder / "out/logs/check-few-words+drafts-auto-ATTNJIT.log").read_text(encoding="utf-8")
    assert "num_spec_tokens=4" in log, log
    told = driver("judge.py", folder)
    assert "of 5150 log-probabilities are others" in told.stdout, told.stdout
    assert "check encoder auto, 2 layers: prompts 0.00000 from FLASH_ATTN's" in told.stdout
    assert "384 decodes 0.00000 from TRITON_ATTN@float32's" in told.stdout, told.stdout
    assert told.returncode == 0, told.stdout
    path = folder / "out/check-small+invariant-auto-ATTNJIT.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    record["alone"]["others"] = 1
    path.write_text(json.dumps(record), encoding="utf-8")
    told = driver("judge.py", folder)
    assert told.returncode == 1 and "FAIL check small+invariant auto, 2 layers, ATTNJIT: 1 of" in (
        told.stdout), told.stdout


def failures(folder):
    """A backend that cannot be made, and one that never answers: the run ends soon, with 1."""
    bad = {**OPTIONS, "max_model_len": 1 << 30}
    began = time.time()
    done = driver("run.py", folder, "llama8b", "--tiny", "--stage", "speed", "--mode", "eager",
                  "--cold", "--options", json.dumps(bad))
    assert done.returncode == 1 and "max_model_len" in done.stdout, done.stdout + done.stderr
    assert all("error" in one for one in records(folder, "speed").values())
    done = driver("run.py", folder, "llama8b", "--tiny", "--stage", "speed", "--mode", "eager",
                  "--cold", "--start-seconds", "1", "--options", json.dumps(OPTIONS))
    assert done.returncode == 1 and "no answer in 1 s" in done.stdout, done.stdout + done.stderr
    assert time.time() - began < 200, "it waited"
    assert driver("judge.py", folder).returncode == 1


def serves(folder):
    """`vllm serve` of both, in turns, and requests over HTTP."""
    done = driver("serve.py", folder, "llama8b", "--tiny", "--mode", "eager", "--starts", "1",
                  "--repeats", "1", "--concurrency", "2", "--options", json.dumps(OPTIONS))
    assert done.returncode == 0 and "done" in done.stdout, done.stdout + done.stderr
    for record in records(folder, "serve").values():
        assert len(record["starts"]) == 1 and record["engine"]["gpu"] == "no GPU", record
        assert [one["load"] for one in record["runs"]] == ["http 2"], record["runs"]


def weights(folder):
    """Norms pass their rows on, whether their factor is a weight or one more than it: a model whose
    norms are 0 has the same log-probabilities in all engines."""
    import torch

    sys.path.insert(0, str(DRIVER))
    import extension

    class GemmaRMSNorm(torch.nn.RMSNorm):
        """Stands for vLLM's, and for SGLang's."""

    model = torch.nn.ModuleDict({"plain": torch.nn.RMSNorm(4), "more": GemmaRMSNorm(4)})
    model.config = None
    extension.fill(model)
    assert model["plain"].weight.tolist() == [1.0] * 4, model["plain"].weight
    assert model["more"].weight.tolist() == [0.0] * 4, model["more"].weight


CASES = {f.__name__: f for f in (weights, runs, of_eight_bits, of_options, failures, serves)}

if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory() as made:
            started = time.time()
            write_entry_points(pathlib.Path(made))
            CASES[name](pathlib.Path(made))
            print(f"server_run: {name}: all right, {time.time() - started:.0f} s", flush=True)

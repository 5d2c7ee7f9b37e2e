# SPDX-License-Identifier: Apache-2.0
"""vLLM's real processes with attnjit's backend, without a GPU: a server with spawned engine and
workers, engines in processes of their own, and each way to name the backend.

    vllm_server_test.py [CASE..]     # without arguments: all of them
"""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).parent
MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
         "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 64,
         "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "bos_token_id": 0,
         "eos_token_id": 1, "torch_dtype": "bfloat16"}
ENGINE = dict(load_format="dummy", max_model_len=256, enforce_eager=True,
              worker_cls="gpuless_worker.Worker")


def engine(model, parallel=1, **named):
    """An engine in a process of its own generates, and its workers know the backend."""
    from vllm import LLM, SamplingParams

    llm = LLM(model, skip_tokenizer_init=True, tensor_parallel_size=parallel, async_scheduling=False,
              **ENGINE, **named)
    found = llm.collective_rpc("backends")
    assert [rank for _, _, rank in found] == list(range(parallel)), found
    assert {name for name, _, _ in found} == {"ATTNJIT"}, found
    assert all(name.startswith("Attnjit") for _, name, _ in found), found
    out = llm.generate([{"prompt_token_ids": [2, 3, 4]}], use_tqdm=False,
                       sampling_params=SamplingParams(max_tokens=4, detokenize=False))
    assert list(out[0].outputs[0].token_ids) == [7] * 4, out


def named_by_backend(model):
    engine(model, attention_backend="ATTNJIT")


def named_by_config(model):
    engine(model, parallel=2, attention_config={"backend": "ATTNJIT"})


def configurations(_):
    """Before plug-ins are loaded: configurations that name it, pickled and copied."""
    import copy
    import pickle

    from vllm.config import AttentionConfig

    for config in (AttentionConfig(backend="ATTNJIT"), AttentionConfig(backend="attnjit"),
                   AttentionConfig(backend_per_kind={"sliding_window": "ATTNJIT"})):
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            again = pickle.loads(pickle.dumps(config, protocol))
            assert again == config and again.compute_hash() == config.compute_hash()
        assert copy.deepcopy(config) == config and copy.copy(config) == config
    member = AttentionConfig(backend="ATTNJIT").backend
    # Another process, which has imported nothing of vLLM's:
    code = "import pickle, sys; print(pickle.loads(bytes.fromhex(sys.argv[1])).name)"
    for value in (member, {"sliding_window": member}):
        done = subprocess.run([sys.executable, "-c", code.replace(".name", ""),
                               pickle.dumps(value).hex()], capture_output=True, text=True)
        assert "ATTNJIT" in done.stdout, done.stderr


def served(model, *arguments, ranks=1):
    """`vllm serve` answers a request, and its /metrics shows what the workers count."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [f"--{name.replace('_', '-')}={value}" for name, value in ENGINE.items()
               if name != "enforce_eager"]
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model, "--port",
               str(port), "--host", "127.0.0.1", "--served-model-name", "m", "--enforce-eager",
               "--no-async-scheduling", *options, *arguments]
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for _ in range(480):
                time.sleep(0.5)
                try:
                    urllib.request.urlopen(url + "/health", timeout=2)
                    break
                except OSError:
                    if server.poll() is not None:
                        break
            body = {"model": "m", "prompt": [2, 3, 4], "max_tokens": 4, "return_token_ids": True}
            request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            answer = json.loads(urllib.request.urlopen(request, timeout=30).read())
            assert answer["choices"][0]["token_ids"] == [7] * 4, answer
            for _ in range(20):
                time.sleep(1)
                text = urllib.request.urlopen(url + "/metrics", timeout=10).read().decode()
                found = [line for line in text.splitlines() if line.startswith("attnjit_")]
                if len([line for line in found if "launches" in line]) == ranks:
                    break
            for rank in range(ranks):
                mine = [line for line in found if f'rank="{rank}"' in line and "process=" in line]
                assert any(line.startswith("attnjit_launches_total{") and 'kernel="mixed"' in line
                           and float(line.split()[-1]) == 3 + rank for line in mine), found
                assert any(line.startswith("attnjit_compiles_total{") for line in mine), found
            assert "vllm:" in text
        except Exception:
            log.seek(0)
            print(log.read()[-6000:])
            raise
        finally:
            server.terminate()
            server.wait(60)


def server(model):
    served(model, "--attention-backend", "ATTNJIT", "--tensor-parallel-size", "2", ranks=2)


def two_servers(model):
    served(model, "--attention-backend", "ATTNJIT", "--api-server-count", "2")


def server_by_config(model):
    served(model, "--attention-config.backend", "ATTNJIT")


def write_model(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{i}": i for i in range(MODEL["vocab_size"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w2"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(MODEL))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "w0", "eos_token": "w1",
         "unk_token": "w2"}))


def write_entry_points(folder):
    """What an installed wheel says of its plug-ins, where attnjit comes from a build folder."""
    from importlib import metadata

    try:
        metadata.distribution("attnjit")
    except metadata.PackageNotFoundError:
        sys.path.insert(0, str(HERE.parents[1] / "python/backend"))
        import attnjit_build

        info = folder / "attnjit-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(attnjit_build.metadata())
        (info / "entry_points.txt").write_text(attnjit_build.entry_points())


CASES = {f.__name__: f for f in (configurations, named_by_backend, named_by_config, server,
                                 server_by_config, two_servers)}

if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "run":
        CASES[sys.argv[2]](sys.argv[3])
        sys.exit()
    with tempfile.TemporaryDirectory() as folder:
        write_model(pathlib.Path(folder))
        write_entry_points(pathlib.Path(folder))
        path = [folder, str(HERE / "no_gpu"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path),
                       "VLLM_WORKER_MULTIPROC_METHOD": "spawn", "HF_HUB_OFFLINE": "1",
                       "VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1",
                       "VLLM_CACHE_ROOT": folder}
        for name in sys.argv[1:] or CASES:
            began = time.time()
            done = subprocess.run([sys.executable, "-B", __file__, "run", name, folder],
                                  env=environment, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}\nvllm_server: {name} failed")
            print(f"vllm_server: {name}: all right, {time.time() - began:.0f} s", flush=True)

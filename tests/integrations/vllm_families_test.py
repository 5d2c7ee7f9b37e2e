# SPDX-License-Identifier: Apache-2.0
"""Manifests of published configurations (families.json, with fewer layers) have the kernels that vLLM's own models
of them ask attnjit for at start, on one rank and on each of several. Run it with no_gpu/ on PYTHONPATH.

    vllm_families_test.py [RANKS [FAMILY..]]     # without arguments: all of them, on 1, 2, 4 and 8
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from torch.testing._internal.distributed.fake_pg import FakeStore
from vllm.distributed import parallel_state
from vllm.distributed.device_communicators import shm_broadcast
from vllm.model_executor.models import registry
from vllm.platforms import current_platform
from vllm.transformers_utils import config as vllm_config

import attnjit
import model_code
import vllm_keys_test
from attnjit.integrations import vllm as integration

FAMILIES = json.loads(pathlib.Path(__file__).with_name("families.json").read_text(encoding="utf-8"))
FP8 = {"gpt-oss-20b", "llama3.1-8b", "gemma3-4b", "deepseek-v3", "falcon-40b", "qwen3-next-80b", "bge-base"}
LONGEST = {"whisper-large-v3": 448, "clip-vit-l": 77, "siglip-so400m": 64}  #: tokens of models that have few
registry._run_in_subprocess = lambda inspect: inspect()  # a process each takes seconds
COMMUNICATOR = "vllm.distributed.device_communicators.base_device_communicator.DeviceCommunicatorBase"


def begin(ranks):
    """Groups of so many ranks, of which this process is the first and the others are not there."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    new_group = torch.distributed.new_group
    torch.distributed.new_group = lambda members=None, **_: new_group(members, backend="fake")
    type(current_platform).get_device_communicator_cls = classmethod(lambda _: COMMUNICATOR)
    shm_broadcast.MessageQueue.create_from_process_group = staticmethod(lambda *_, **__: None)
    parallel_state.init_distributed_environment(ranks, 0, local_rank=0, backend="fake")


def first(config, *names):
    """The first of the fields that a configuration has."""
    return next((config[name] for name in names if config.get(name)), None)


def divides(config, ranks):
    """Whether the heads can be divided so; else vLLM and the manifest refuse it."""
    while inner := first(config, "text_config", "llm_config", "language_config", "thinker_config"):
        config = inner
    heads = first(config, "num_attention_heads", "n_head", "n_heads", "decoder_attention_heads")
    kv_heads = first({**config, **config.get("attn_config", {})}, "num_key_value_heads", "num_kv_heads", "kv_n_heads",
                     "multi_query_group_num", "num_attention_groups") or heads
    return heads is None or (heads % ranks == 0 and (kv_heads % ranks == 0 or ranks % kv_heads == 0))


def check(name, folder, service, ranks, cache):
    longest = min(2048, FAMILIES[name].get("max_position_embeddings") or LONGEST.get(name, 2048))
    options = {"dtype": "auto", "max_model_len": longest, "enforce_eager": True}
    arguments = [*(("--kv-cache-dtype", cache) if cache != "auto" else ()), "--tp", str(ranks)]
    made = vllm_keys_test.asked_by(folder, cache, ranks, "fake", **options)
    wanted, known = ({service.prepare({**one, "arch": "sm_90a"}).key: one for one in specs}
                     for specs in (made, vllm_keys_test.manifest_of(folder, *arguments)))
    assert wanted and set(wanted) == set(known), (
        f"{name} {cache}, {ranks} ranks: the manifest lacks {[wanted[one] for one in wanted if one not in known]}, "
        f"and has {[known[one] for one in known if one not in wanted]}")


def run(ranks, names):
    begin(ranks)
    integration.register()
    count = 0
    with tempfile.TemporaryDirectory() as root, attnjit.Service(no_disk_cache=1) as service:
        for name in names:
            folder = pathlib.Path(root, name)
            folder.mkdir()
            (folder / "config.json").write_text(json.dumps(FAMILIES[name]), encoding="utf-8")
            (folder / "tokenizer_config.json").write_text("{}", encoding="utf-8")
            model_code.register(FAMILIES[name], vllm_config._CONFIG_REGISTRY)
            if not divides(FAMILIES[name], ranks):
                try:
                    vllm_keys_test.manifest_of(folder, "--tp", str(ranks))
                except SystemExit as refused:
                    assert refused.code == 2, name
                    continue
                raise AssertionError(f"{name} has a manifest of {ranks} ranks")
            for cache in ("auto", "fp8") if name in FP8 else ("auto",):
                check(name, folder, service, ranks, cache)
                count += 1
    print(f"vllm_families: {count} manifests of {len(names)} families, {ranks} ranks: all right", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(int(sys.argv[1]), sys.argv[2:] or list(FAMILIES))
    for one in (1, 2, 4, 8) if len(sys.argv) == 1 else ():
        done = subprocess.run([sys.executable, "-B", __file__, str(one)], capture_output=True, text=True)
        if done.returncode:
            print(done.stdout[-3000:], done.stderr[-6000:], sep="\n")
            sys.exit(f"vllm_families: {one} ranks: exit code {done.returncode}")
        print(done.stdout.splitlines()[-1], flush=True)

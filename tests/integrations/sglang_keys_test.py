# SPDX-License-Identifier: Apache-2.0
"""The kernels that SGLang's own models ask attnjit for at start are those of their manifests: models
of tests/gpu/server are made by the real package, without memory for their weights, and the backend
is given them as a model runner gives them.

    sglang_keys_test.py [MODEL..]     # without arguments: all that SGLang has, and families.json
"""
import importlib.metadata
import inspect
import json
import pathlib
import sys
import tempfile
import types

import torch

import attnjit

have_gpu, torch.cuda.is_available = torch.cuda.is_available, lambda: False

from sglang.srt import runtime_context  # noqa: E402
from sglang.srt.configs.load_config import LoadConfig  # noqa: E402
from sglang.srt.configs.model_config import AttentionArch, ModelConfig  # noqa: E402
from sglang.srt.distributed import parallel_state  # noqa: E402
from sglang.srt.layers import dp_attention  # noqa: E402
from sglang.srt.model_loader import loader  # noqa: E402
from sglang.srt.model_loader.utils import (get_model_architecture,  # noqa: E402
                                           set_default_torch_dtype)
from sglang.srt.plugins.hook_registry import HookRegistry  # noqa: E402
from sglang.srt.server_args import ServerArgs  # noqa: E402

torch.cuda.is_available = have_gpu
import model_code  # noqa: E402
from sglang.srt.models import transformers as transformers_models  # noqa: E402
from sglang.srt.utils.hf_transformers import common  # noqa: E402

transformers_models.get_device = lambda *_: "meta"  # of what SGLang takes from transformers
from attnjit.integrations import manifests, sglang_backend, sglang_service  # noqa: E402
from attnjit.integrations import sglang as integration  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "gpu/server"))
import shapes  # noqa: E402

PAGE, DRAFTS = 64, 8
FAMILIES = json.loads((HERE / "families.json").read_text(encoding="utf-8"))
#: Of them those whose models SGLang makes without a GPU.
NAMES = """
llama3.1-8b llama3.3-70b llama3.2-1b llama3.2-3b llama2-7b tinyllama falcon3-7b smollm2-135m
llama4-scout qwen2.5-0.5b qwen2.5-7b qwen2.5-14b qwen2-swa qwen3-0.6b qwen3-32b qwen3-30b-a3b
qwen3-235b qwen2-moe gemma-2b gemma-7b gemma2-9b gemma2-27b gemma3-1b gemma3-4b gemma3-27b
gemma3n-e4b-text mistral-7b-v0.1 mistral-7b-v0.3 mistral-nemo mixtral-8x7b phi-2 phi-3-mini-4k
phi-3.5-mini phi-4 phi-4-mini phi-3.5-moe glm4-0414 glm-4.5 glm-4.5-air deepseek-v2-lite deepseek-v2
deepseek-v3 kimi-k2 glm-4.7-flash minimax-m2 gpt-oss-20b granite-3.3-8b granite-4-micro-dense
granite-moe-3b command-r command-r7b olmo-7b olmo2-7b olmoe ernie4.5-21b-a3b hunyuan-7b hunyuan-a13b
starcoder2-7b exaone4-32b exaone4-1.2b arcee-4.5b stablelm-3b opt-125m afmoe-trinity bge-base bge-m3
qwen2-vl-2b qwen2.5-vl-7b qwen3-vl-4b mistral-small-3.1 step3p5 ct-no-kv ct-fp8-kv fp8-block
gemma2-fp16
llava-next-mistral internvl3-hf smolvlm2 idefics3-8b blip2-opt granite-speech-2b qwen2-audio qwen3-vl-30b qwen3-asr
paddleocr-vl dots-ocr glm-4-9b-chat internlm2.5-7b minicpm4-8b mimo-7b orion-14b teleflm ling-lite ling-mini-2.0
deepseek-moe-16b sarvam-mla nemotron-super-49b hyperclovax-seed-think dots1 ernie4.5-0.3b pythia-6.9b seed-oss-36b
smollm3-3b gpt2 gptj-6b starcoder bert-no-dtype llama-no-dtype qwen2-cls-f32 qwen2-model-f32 gte-qwen2-1.5b
lfm2-bidirectional""".split()
if importlib.metadata.version("sglang") == "0.5.23":  # which alone makes them
    NAMES += ["minitron-8b", "olmo3-32b", "solar-pro"]
#: And those that have other layers, too.
HYBRIDS = "lfm2-1.2b nemotron-nano-v2-9b qwen3-next-80b falcon-h1-1.5b granite-4-tiny-h".split()
#: And of these, whose configurations a version does not read itself: heads that differ by layer.
UNREAD = {"0.5.23": ("step3p5",)}.get(importlib.metadata.version("sglang"), ())
asked = []
sglang_service.ask = asked.extend
sglang_backend._arch = lambda runner: "sm_90a"
SPEC = types.SimpleNamespace(speculative_num_draft_tokens=None, speculative_eagle_topk=None)
sglang_backend.get_spec = lambda: SPEC


def model_of(folder, dtype="bfloat16", device="meta", **options):
    """A model, and what SGLang knows of it."""
    arguments = ServerArgs(model_path=str(folder), device="cpu", skip_tokenizer_init=True,
                           load_format="dummy", dtype=dtype, page_size=PAGE,
                           attention_backend=integration.NAME, grammar_backend="none", **options)
    # NOTE: newer versions are told this process's place among those of parallel ones.
    ranks = getattr(runtime_context, "SpawnRanks", None)
    runtime_context.publish(arguments, role="scheduler", **({"ranks": ranks(0)} if ranks else {}))
    config = ModelConfig.from_server_args(arguments)
    if not parallel_state.model_parallel_is_initialized():
        parallel_state.init_distributed_environment(
            backend="gloo", world_size=1, rank=0, local_rank=0,
            distributed_init_method=f"file://{folder.parent}/meet")
        parallel_state.initialize_model_parallel()
        initialize = dp_attention.initialize_dp_attention
        initialize(*(arguments, config)[:len(inspect.signature(initialize).parameters)])
    get_model_architecture(config)  # NOTE: its module is to be imported on a real device
    with set_default_torch_dtype(config.dtype), torch.device(device):
        return loader._initialize_model(config, LoadConfig(load_format="dummy")), config


def algorithm_of(name):
    return types.SimpleNamespace(is_none=lambda: name is None, is_ngram=lambda: name == "ngram")


def asked_by(model, config, cache, algorithm):
    """The specs that the backend of a model runner asks for."""
    runner = types.SimpleNamespace(
        model=model, model_config=config, page_size=PAGE, device="cpu", dtype=config.dtype,
        use_mla_backend=config.attention_arch == AttentionArch.MLA,
        kv_cache_dtype=torch.float8_e4m3fn if cache == "fp8_e4m3" else config.dtype,
        attention_chunk_size=config.attention_chunk_size, server_args=types.SimpleNamespace(),
        token_to_kv_pool=None,
        req_to_token_pool=types.SimpleNamespace(req_to_token=torch.zeros(8, 4096)),
        spec_algorithm=algorithm_of(algorithm))
    SPEC.speculative_num_draft_tokens = DRAFTS if algorithm else None
    SPEC.speculative_eagle_topk = 1 if algorithm else None
    asked.clear()
    integration.create(runner)
    return list(asked)


def manifest_of(folder, *arguments):
    written = folder / "manifest.json"
    manifests.main([str(folder / "config.json"), "--for", "sglang", "--arch", "sm_90a", "--page",
                    str(PAGE), "-o", str(written), *arguments])
    return json.loads(written.read_text(encoding="utf-8"))["specs"]


DRAFT = ("--drafts", str(DRAFTS - 1))
CASES = (("auto", None, ()), ("fp8_e4m3", None, ()), ("auto", "eagle", DRAFT),
         ("auto", "ngram", (*DRAFT, "--tree")))


def compare(name, folder, service, model, config, cases=CASES):
    def keys(specs):
        return {service.prepare({**spec, "arch": "sm_90a"}).key: spec for spec in specs}

    for cache, algorithm, options in cases:
        wanted = keys(asked_by(model, config, cache, algorithm))
        known = keys(manifest_of(folder, "--kv-cache-dtype", cache, *options))
        assert wanted and set(wanted) == set(known), (
            f"{name} {cache} {algorithm}: the manifest lacks "
            f"{[wanted[one] for one in wanted if one not in known]}, "
            f"and has {[known[one] for one in known if one not in wanted]}")
        print(f"sglang_keys: {name} {cache} {algorithm or ''}: {len(wanted)} kernels", flush=True)


def unread(name, folder):
    """A configuration that SGLang itself does not read."""
    try:
        model_of(folder, "auto")
    except Exception as error:
        assert "per-layer attribute" in str(error), error
    else:
        raise AssertionError(f"{name} is read now: compare its keys")


def main(names):
    integration.register()
    HookRegistry.apply_hooks()  # NOTE: SGLang lists the backends that some models may have
    with tempfile.TemporaryDirectory() as root, attnjit.Service(no_disk_cache=1) as service:
        for name in names or [*NAMES, *HYBRIDS]:
            if name not in FAMILIES:
                continue
            folder = pathlib.Path(root, f"family-{name}")
            folder.mkdir()
            for file, said in (("config.json", FAMILIES[name]), ("tokenizer_config.json", {})):
                (folder / file).write_text(json.dumps(said), encoding="utf-8")
            model_code.register(FAMILIES[name], common._CONFIG_REGISTRY)
            if name in UNREAD:
                unread(name, folder)
                continue
            # NOTE: on the CPU SGLang caches no prefixes of these in pages.
            options = {"disable_radix_cache": True} if name in HYBRIDS else {}
            compare(name, folder, service, *model_of(folder, "auto", **options), CASES[:1])
        models = {**shapes.MODELS, **shapes.OF_SGLANG}
        for name in names or models:
            if name not in models:
                continue
            layers = min(4, models[name]["num_hidden_layers"])  # of which chunks end at the fourth
            folder = shapes.write(root, name, shapes.with_layers(models[name], layers))
            model, config = model_of(folder)
            cases = CASES[:2] if shapes.is_encoder(models[name]) else CASES
            compare(name, folder, service, model, config, cases)
    print(f"sglang_keys: sglang {importlib.metadata.version('sglang')}: all right")


if __name__ == "__main__":
    main(sys.argv[1:])

# SPDX-License-Identifier: Apache-2.0
"""The kernels that vLLM's own models ask attnjit for at start are those of their manifests: each model
of tests/gpu/server is made by the real package, without memory for its weights, and the backend is given
its layers. Run it with no_gpu/ on PYTHONPATH.

    vllm_keys_test.py [MODEL..]     # without arguments: all of them
"""
import json
import os
import pathlib
import sys
import tempfile

import torch
from vllm import envs as vllm_envs
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers import sparse_attn_indexer
from vllm.model_executor.layers.attention import sparse_mla_attention
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.model_executor.models import bloom, falcon
from vllm.platforms import current_platform
from vllm.utils import torch_utils
from vllm.utils.torch_utils import set_default_torch_dtype
from vllm.v1.attention.backend import AttentionType
from vllm.v1.core import kv_cache_planning
from vllm.v1.kv_cache_interface import AttentionSpec, EncoderOnlyAttentionSpec
from vllm.v1.worker.gpu import attn_utils

import attnjit
from attnjit.integrations import manifests, vllm_mla, vllm_service
from attnjit.integrations import vllm as integration

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "gpu/server"))
import shapes  # noqa: E402

torch_utils._aux_stream = object()  # there is no GPU to make a stream on
sparse_attn_indexer.has_deep_gemm = lambda: True  # which makes an indexer's scores
sparse_mla_attention.PIN_MEMORY = False
current_platform.device_type = "meta"  # of an indexer's lists
type(current_platform).current_device = staticmethod(lambda: "meta")  # of Qwen3-Next's norms
type(current_platform).num_compute_units = classmethod(lambda *_: 132)
asked = []
vllm_service.ask = asked.extend
FP8 = ("--kv-cache-dtype", "fp8")
#: Layers whose cache is left in the model's type.
SKIPPED = {"llama8b": [("0", "3")], "gptoss": [("sliding_window",)], "deepseek-16h": [("0",)], "mamba": [("5", "2")]}


def with_memory(function):
    def made(*given):
        with torch.device("cpu"):
            return function(*given)

    return made


for module in (bloom, falcon):
    module._get_alibi_slopes = with_memory(module._get_alibi_slopes)


def longest(folder):
    """The most tokens of a request."""
    said = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return said.get("max_target_positions", 4096)


def asked_by(folder, cache, ranks=1, backend="gloo", **options):
    """The specs that the layers of a model ask for on the first of so many ranks."""
    config = EngineArgs(model=str(folder), skip_tokenizer_init=True, load_format="dummy",
                        attention_backend="ATTNJIT", kv_cache_dtype=cache,
                        **{"dtype": "bfloat16", "max_model_len": longest(folder), **options}).create_engine_config()
    config.parallel_config.tensor_parallel_size = config.parallel_config.world_size = ranks
    asked.clear()
    with set_current_vllm_config(config), set_default_torch_dtype(config.model_config.dtype):
        parallel_state.init_distributed_environment(ranks, 0, local_rank=0, backend=backend)
        parallel_state.destroy_model_parallel()  # a model with experts has one more group
        parallel_state.initialize_model_parallel(ranks, backend=backend)
        with torch.device("meta"):
            initialize_model(config)
        early = list(asked)
        current_platform.update_block_size_for_backend(config)
        specs = attn_utils.get_kv_cache_spec(config)
        if specs:  # as an engine plans its cache, by the pages that all layers have in common
            config.cache_config.kv_cache_layout = "LBHNC"
            groups = kv_cache_planning.get_global_kv_cache_groups(config, [specs])
            planned, = kv_cache_planning.get_kv_cache_configs(config, [specs], [1 << 35], groups)
            for group in attn_utils.init_attn_backend(planned, config, torch.device("cpu"))[0]:
                for one in group:
                    assert one.backend.get_name() == "ATTNJIT" or not is_ours(one), one
        layers = config.compilation_config.static_forward_context
        for name, layer in layers.items():
            if getattr(layer, "attn_type", None) == AttentionType.ENCODER_ONLY:
                builder = layer.get_attn_backend().get_builder_cls()
                builder(encoder_spec(layer), [name], config, torch.device("cpu"))
    # MLA's layers and those beside Mamba wait for their pages, those of images for their masks,
    # batch-invariant ones for the most rows, and encoders for nothing.
    model = config.model_config
    if config.cache_config.cache_dtype == "auto" and not early and not (
            model.is_hybrid or model.is_mm_prefix_lm or vllm_envs.VLLM_BATCH_INVARIANT):
        assert all(spec.get("mla") or spec.get("ragged_kv") for spec in asked), (
            "layers asked for nothing as they were made")
    return early + asked[len(early):]


def is_ours(group):
    """Neither Mamba's layers nor the keys of an indexer, which are vLLM's own."""
    return isinstance(group.kv_cache_spec, AttentionSpec) and not any(
        name.endswith(".indexer.k_cache") for name in group.layer_names)


def encoder_spec(layer):
    """As vLLM's runner has it of layers without a cache."""
    return EncoderOnlyAttentionSpec(block_size=16, num_kv_heads=layer.num_kv_heads,
                                    head_size=layer.head_size, dtype=torch.bfloat16)


def manifest_of(folder, *arguments):
    written = folder / "manifest.json"
    manifests.main([str(folder / "config.json"), "--for", "vllm", "--arch", "sm_90a",
                    "-o", str(written), *arguments])
    return json.loads(written.read_text(encoding="utf-8"))["specs"]


def compare(name, folder, service, cache, *arguments, **options):
    def keys(specs):
        return {service.prepare({**spec, "arch": "sm_90a"}).key: spec for spec in specs}

    wanted, known = keys(asked_by(folder, cache, **options)), keys(manifest_of(folder, *arguments))
    assert wanted and set(wanted) == set(known), (
        f"{name} {cache}: the manifest lacks {[wanted[one] for one in wanted if one not in known]}, "
        f"and has {[known[one] for one in known if one not in wanted]}")
    print(f"vllm_keys: {name} {cache} {options or ''}: {len(wanted)} kernels", flush=True)


def main(names):
    integration.register()
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    with tempfile.TemporaryDirectory() as root, attnjit.Service(no_disk_cache=1) as service:
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0,
                                             world_size=1)
        models = {**shapes.MODELS, **shapes.KINDS, **shapes.WITH_LISTS, **shapes.MIXED}
        for name in names or models:
            if not shapes.has_manifest(models[name]):
                continue
            folder = shapes.write(root, name, models[name])
            if "images" in models[name]:
                compare(name, folder, service, "auto")
                compare(name, folder, service, "auto", "--images", "none",
                        limit_mm_per_prompt={"image": 0})
                continue
            compare(name, folder, service, "auto")
            if models[name].get("global_head_dim", 0) <= 256:  # deeper ones have no cache of e4m3
                compare(name, folder, service, "fp8", *FP8)
            if name in ("llama8b", "gptoss"):
                compare(name, folder, service, "fp8_per_token_head",
                        "--kv-cache-dtype", "fp8_per_token_head")
            for skipped in SKIPPED.get(name, ()):
                compare(name, folder, service, "fp8", *FP8, "--kv-cache-dtype-skip-layers", *skipped,
                        kv_cache_dtype_skip_layers=list(skipped))
            if name in shapes.WITH_LISTS:
                compare(name, folder, service, "fp8_ds_mla", "--kv-cache-dtype", "fp8_ds_mla")
            compare(name, folder, service, "auto", "--page", "128", block_size=128)
            if name in (*shapes.WITH_LISTS, "mamba"):  # vLLM's own layers have no such mode
                continue
            vllm_envs.VLLM_BATCH_INVARIANT = True
            compare(name, folder, service, "auto", "--batch-invariant", f"{longest(folder)},2048,64",
                    max_num_batched_tokens=2048, max_num_seqs=64, enable_chunked_prefill=True)
            del vllm_envs.VLLM_BATCH_INVARIANT
    print("vllm_keys: all right")


if __name__ == "__main__":
    assert vllm_mla.vllm_service is vllm_service
    main(sys.argv[1:])

# SPDX-License-Identifier: Apache-2.0
"""What servers make of a model's files where their options say nothing: types of the cache and of the
model."""
from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, NamedTuple


class Cache(NamedTuple):
    """A cache's type."""

    name: str  #: by vLLM's names; "auto": the model's own
    head_scales: bool = False  #: e4m3 has scales of heads


def _object(value: Any) -> Dict[str, Any]:
    """What a file has where an object should be; an empty one where it is none."""
    return value if isinstance(value, dict) else {}


def quantization_of(path: str, config: Dict[str, Any]) -> Dict[str, Any]:
    """How a model was quantised: its configuration says so, or a file beside it."""
    found = config.get("quantization_config") or config.get("compression_config")
    found = found or _object(config.get("text_config")).get("quantization_config")
    beside = os.path.join(os.path.dirname(path), "hf_quant_config.json")
    if not found and path != "-" and os.path.exists(beside):
        try:
            with open(beside, encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError) as error:
            sys.stderr.write(f"attnjit: {beside}: {error}\n")
            sys.exit(2)
    return _object(found)


def cache_of(server: str, model: Dict[str, Any], asked: str, latent: bool) -> Cache:
    """The cache of a layer of a model as manifests.model_of() describes it.

    Args:
        asked: --kv-cache-dtype.
        latent: whether the layer is one of MLA.
    """
    # transformers' cache has the model's type, and vLLM tells Falcon's layers of no cache.
    if server == "transformers" or (server == "vllm" and model["name"] == "falcon"):
        return Cache("auto")
    quantization = model["quantization"]
    method = str(quantization.get("quant_method") or _object(quantization.get("producer")).get("name"))
    method = method.lower().replace("_", "-")
    if server == "vllm" and method == "compressed-tensors" and not latent:
        scheme = _object(quantization.get("kv_cache_scheme"))
        of_heads = scheme.get("strategy") == "attn_head"
        if asked == "auto" and scheme:
            kind = f"{scheme.get('type')}{scheme.get('num_bits')}"
            return Cache("fp8" if kind == "float8" else kind, of_heads)
        return Cache(asked, of_heads)
    if asked == "auto" and method.startswith("modelopt"):
        return Cache(_of_modelopt(quantization))
    if asked == "auto" and server == "sglang" and method == "fp8":
        named = str(quantization.get("kv_cache_quant_algo") or "")
        return Cache("fp8_e4m3" if named.lower() == "fp8" else "auto")
    return Cache(asked)


def _of_modelopt(quantization: Dict[str, Any]) -> str:
    inner = _object(quantization.get("quantization")) or quantization
    for part in (inner, quantization):
        scheme = _object(part.get("kv_cache_scheme"))
        if scheme.get("type") == "float":
            return {8: "fp8_e4m3", 4: "nvfp4"}.get(scheme.get("num_bits"), "auto")
    named = str(inner.get("kv_cache_quant_algo") or quantization.get("kv_cache_quant_algo") or "")
    return {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}.get(named.lower(), "auto")


#: Architectures of whose layers vLLM gives each rank all heads.
UNDIVIDED = ("modernbert",)

#: Architectures whose models of fp16 vLLM runs in bf16.
_NO_FP16 = ("gemma2", "gemma3", "gemma3_text", "glm4")


def dtype_of(server: str, model: Dict[str, Any]) -> str:
    """The type in which a server runs a model as manifests.model_of() describes it. Of those that were
    saved as float32 vLLM runs embeddings in fp16, and SGLang all but Gemma."""
    if server == "sglang" and model["float32"]:
        return "bf16" if model["name"].startswith("gemma") else "fp16"
    if server != "vllm":
        return model["dtype"]
    if model["model_type"] in _NO_FP16:  # and not that of a part of it
        return "bf16"
    encodes = any(one["both_ways"] for one in model["layers"])
    return "fp16" if model["float32"] and encodes else model["dtype"]

# SPDX-License-Identifier: Apache-2.0
"""What servers make of a model's files where their options say nothing: types of the cache and of the
model."""
from __future__ import annotations

import glob
import json
import os
import sys
from typing import Any, Dict, List, NamedTuple, Optional


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


#: Parts of a configuration that hold the language model's (src/models/hf_config.cpp).
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
#: Ends of names of classes that vLLM generates with; of all others it makes embeddings.
_GENERATE = ("ForCausalLM", "ForConditionalGeneration", "ChatModel", "LMHeadModel", "LlamaModel",
             "MistralModel", "Qwen2Model")
_SAVED = {"bfloat16": "bf16", "float16": "fp16", "BF16": "bf16", "F16": "fp16"}


def _text_parts(config: Dict[str, Any]) -> List[Dict[str, Any]]:
    """A configuration, and the parts of it that hold the language model's, each inside the one before."""
    found = [config]
    while True:
        inside = [found[-1][name] for name in _TEXT_PARTS if isinstance(found[-1].get(name), dict)]
        if not inside:
            return found
        found.append(inside[0])


def said_of_text(config: Dict[str, Any], name: str) -> Any:
    """What the language model's part of a configuration says of a field; None: nothing."""
    return _text_parts(config)[-1].get(name)


def reference_window(config: Dict[str, Any]) -> int:
    """The window behind the prompt that rows see whole (R-SWA), as vLLM reads it; 0: none."""
    usual = 128 if config.get("model_type") in ("unlimited_ocr", "unlimited-ocr") else 0
    return int(config.get("rswa_window") or usual)


def _said(parts: List[Dict[str, Any]]) -> Optional[str]:
    """The type that the first of these says that says one; None: none does."""
    for part in parts:
        said = part.get("dtype") or part.get("torch_dtype")
        if said:
            return _SAVED.get(str(said).replace("torch.", ""), "float32")
    return None


def _of_weights(folder: str) -> str:
    """The widest type in the headers of a model's files of weights; float32 where there are none."""
    found = set()
    for path in glob.glob(os.path.join(glob.escape(folder), "*.safetensors")):
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        found |= {one["dtype"] for name, one in header.items() if name != "__metadata__"}
    wide = {_SAVED.get(one, "float32") for one in found if one in _SAVED or one in ("F32", "F64")}
    return wide.pop() if len(wide) == 1 else "float32"


def _embeds(model: Dict[str, Any]) -> bool:
    """Whether vLLM makes embeddings of a model."""
    modules = os.path.join(model["folder"], "modules.json")
    if os.path.exists(modules):  # sentence-transformers'
        with open(modules, encoding="utf-8") as file:
            if any("Pooling" in str(one.get("type")) for one in json.load(file)):
                return True
    names = model["config"].get("architectures") or []
    if names:
        return not any(name.endswith(_GENERATE) for name in names)
    return any(one["both_ways"] for one in model["layers"])


def dtype_of(server: str, model: Dict[str, Any]) -> str:
    """The type in which a server runs a model as manifests.model_of() describes it. Of those that were
    saved as float32 vLLM runs embeddings in fp16, and SGLang all but Gemma."""
    config = model["config"]
    parts = _text_parts(config)
    if server == "sglang":
        said = _said(parts[::-1]) or "float32"
        if said == "float32":
            return "bf16" if model["name"].startswith("gemma") else "fp16"
        return said
    if server != "vllm":
        return model["dtype"]
    if config.get("model_type") in _NO_FP16:  # and not that of a part of it
        return "bf16"
    more = [_object(config.get(name)) for name in ("vision_config", "encoder_config")]
    said = _said([*parts, *more]) or _of_weights(model["folder"])
    return said if said != "float32" else "fp16" if _embeds(model) else "bf16"

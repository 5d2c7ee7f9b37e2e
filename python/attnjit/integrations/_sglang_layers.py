# SPDX-License-Identifier: Apache-2.0
"""Which kernels SGLang's backends ask for, by layers and options: as _layers has vLLM's."""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, Optional, Union

from ._layers import (_NAMED_ROWS, DSV32, EIGHT_BITS, MOST_ROWS, SIXTEEN_BITS, Layer, Server,
                      mask_of, types_of, vllm_specs)


#: Architectures whose configurations have windows, and of which SGLang's models have none.
_NO_WINDOWS = ("dots_ocr", "kimi_audio", "mimo", "minicpmo", "minicpmv", "ministral3", "mistral",
               "mixtral", "phi3", "phi4mm", "phimoe", "qwen2", "qwen2_5_omni_text",
               "qwen2_5_vl_text", "qwen2_moe", "qwen2_vl_text", "qwen3", "qwen3_moe", "solar",
               "starcoder2")
#: Architectures whose layers SGLang makes by none of the rules here: transformers' classes, in its way.
OTHERWISE = frozenset(("clip_text_model", "modernbert", "nomic_bert", "paligemma", "roberta", "siglip_text_model",
                       "youtu"))


def sglang_layer(layer: Layer, architecture: str, decodes: bool) -> Layer:
    """A layer of a configuration as SGLang makes it: windows cut what rows of an image see. `decodes`:
    rows see both ways by is_causal alone, which SGLang does not read."""
    return replace(layer, window=0 if architecture in _NO_WINDOWS else layer.window,
                   images="window" if layer.images else "",
                   both_ways=layer.both_ways and not decodes)


def cache_of_lists(cache: str, arch: str) -> str:
    """The cache that SGLang makes of what it is asked for where rows see lists of keys (DSA): by
    default the model's on Hopper and e4m3 on Blackwell; on Hopper e4m3 has scales in its rows."""
    if arch == "sm_90a":
        return DSV32 if cache in EIGHT_BITS else cache
    return "fp8_e4m3" if cache == "auto" else cache


def why_no_lists(server: Server) -> Optional[str]:
    """Why lists of keys (DSA) are not served with a server's options; None: they are."""
    for holds, text in ((server.partition_keys, "with deterministic inference"),
                        (server.tree, "of drafts that are trees"),
                        (server.page_size != 64, f"in pages of {server.page_size}")):
        if holds:
            return f"lists of keys {text} are not served"
    return None


def why_sglang_refuses(layer: Layer, server: Server, architecture: str) -> Optional[str]:
    """Why SGLang's backend takes no such layer, whatever the kernels serve; None: it does."""
    no_lists = why_no_lists(server)
    for holds, text in ((server.dtype != SIXTEEN_BITS.get(server.cache, server.dtype),
                         f"a cache of {server.cache} beside a model of {server.dtype} is not served"),
                        (layer.topk and no_lists, no_lists or ""),
                        (layer.alibi, "positions by ALiBi are not served"),
                        (layer.cross and server.page_size > 1,
                         "cross attention is served with --page-size 1"),
                        (layer.both_ways and architecture.startswith("gemma"),
                         "decoders that see both ways are not served")):
        if holds:
            return text
    return None


def sglang_mask(layer: Layer) -> Union[str, Dict[str, Any]]:
    """The mask of a layer whose rows lie one behind another."""
    if layer.chunk:
        return {"kind": "and", "of": [{"kind": "causal"},
                                      {"kind": "chunked", "chunk": layer.chunk}]}
    return mask_of(layer.window, not (layer.both_ways or layer.cross))


def tree_mask(window: int, rows: int) -> Dict[str, Any]:
    """The mask of drafts that are a tree of so many rows: a row sees what came before the drafts,
    and of them those that `tree` has a bit for; a window counts from the row's position, `at`."""
    word = "q_row"
    if rows > 32:
        word = f"q_row * {-(-rows // 32)} + (kv_idx - kv_len + q_len) / 32"
    names, before = ["tree"], "true"
    if window:
        names, before = ["tree", "at"], f"p.at[b][q_row] - kv_idx < {window}"
    return {"kind": "custom", "name": "drafts",
            "params": [{"name": name, "type": "i32[][]"} for name in names],
            "code": f"kv_idx < kv_len - q_len ? {before} : "
                    f"((p.tree[b][{word}] >> ((kv_idx - kv_len + q_len) & 31)) & 1) != 0"}


def sglang_types(layer: Layer, server: Server, prompts: bool = False) -> Dict[str, Any]:
    """As types_of(); but layers of encoders, too, read their keys in the cache."""
    return types_of(replace(layer, both_ways=False), server, prompts)


def sglang_specs(layer: Layer, server: Server) -> List[Dict[str, Any]]:
    """What SGLang's backends ask for: each kernel of a kind of layer once."""
    base: Dict[str, Any] = {
        "arch": server.arch, "num_q_heads": layer.q_heads,
        "group": layer.q_heads // layer.kv_heads, "qk_depth": layer.qk_depth,
        "ov_depth": layer.ov_depth}
    prompts = {**base, "qkv_dtype": server.dtype, "output_dtype": server.dtype, "ragged": True,
               "ragged_kv": True, "mask": "causal"}
    if layer.topk:  # NOTE: prompts are dense where SGLang takes them for short
        return [prompts, *vllm_specs(layer, server)]
    base.update(page_size=server.page_size, mask=sglang_mask(layer))
    if layer.latent:
        base.update(mla="decode", group=layer.q_heads, qk_depth=layer.latent + layer.rope,
                    ov_depth=layer.latent)
    if layer.sink:
        base["sink"] = True
    if layer.softcap:
        base["score_mod"] = {"kind": "softcap", "cap": float(layer.softcap)}
    parts = {"partition_keys": server.partition_keys} if server.partition_keys else {}
    ragged = {**base, **parts, "ragged": True, **sglang_types(layer, server, prompts=True)}
    if layer.latent and not parts:
        ragged["num_partitions"] = 0
    specs = [ragged, prompts] if layer.latent else [ragged]
    if layer.both_ways:
        return specs
    if layer.images:
        specs.append({**ragged, "mask": mask_of(layer.window, True, layer.images)})
    base.update(sglang_types(layer, server))
    drafts = server.drafts + 1
    for rows in sorted({1, drafts}) if not parts else []:
        if rows <= MOST_ROWS and not (server.tree and rows > 1):
            specs.append({**base, "num_partitions": 0, "max_q_len": _NAMED_ROWS[rows]})
    if server.tree and drafts > 1:
        shape = ({**base, "num_partitions": 0, "max_q_len": _NAMED_ROWS[drafts]}
                 if drafts <= MOST_ROWS and not parts else ragged)
        specs.append({**shape, "mask": tree_mask(layer.window, drafts)})
    return specs

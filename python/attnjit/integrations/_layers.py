# SPDX-License-Identifier: Apache-2.0
"""Which kernels a server asks for, by its layers and its options: manifests have the same ones as
the backends ask for at start, as both call this. It needs no server, no torch and no GPU."""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, FrozenSet, List, Optional, Union

from ._specs import eight_bit_cache, sliding_window, why_not

DSV32 = "fp8_ds_mla"
EIGHT_BITS = ("fp8", "fp8_e4m3")  #: of vLLM's names of a cache's types: those of e4m3
TOKEN_SCALES = "fp8_per_token_head"  #: e4m3 with a scale of each row of a head, beside it
SIXTEEN_BITS = {"float16": "fp16", "bfloat16": "bf16"}  #: of its names of a cache's types
#: Rows of each request, where they are as many, up to which kernels of decodes serve them.
MOST_ROWS = 8
_NAMED_ROWS = (1, 1, 2, 4, 4, 8, 8, 8, 8)  # what a spec says of so many: a launch of fewer fits


@dataclass(frozen=True)
class Layer:
    """A kind of layer on one rank, as src/models/layers.h has it."""

    q_heads: int
    kv_heads: int
    qk_depth: int
    ov_depth: int
    window: int = 0  #: keys that a row sees, its own among them; 0: all
    softcap: float = 0.0
    sink: bool = False
    alibi: bool = False
    both_ways: bool = False  #: an encoder's: rows see what comes behind, and there is no cache
    cross: bool = False  #: rows see all keys of another sequence
    latent: int = 0  #: MLA: elements of a row of the cache that are V, too
    rope: int = 0
    topk: int = 0  #: MLA: keys of a list
    images: str = ""  #: "free", or "window": of an image that a window cuts
    prefix_window: int = 0  #: R-SWA: rows see the prompt, and so many keys
    chunk: int = 0  #: rows see the keys of their own chunk, of so many; 0: all


@dataclass(frozen=True)
class Server:
    """A server's options, as far as kernels depend on them."""

    arch: str
    dtype: str  #: of the model: "bf16" or "fp16"
    page_size: int
    cache: str = "auto"  #: vLLM's name of the cache's type
    drafts: int = 0
    rows_differ: bool = False  #: drafts are trimmed on the device
    head_scales: bool = False  #: e4m3 has scales of heads
    partition_keys: int = 0  #: batch-invariant mode: the keys of a part
    sharing: int = 1  #: ranks that share a cache (decode context parallelism)
    interleave: int = 1  #: keys of a rank in a row, where ranks share a cache
    tree: bool = False  #: drafts that are verified are a tree


_PARAMS = {"causal": "i32[]", "image": "i32[][]", "prefix": "i32[]", "whole": "i32[]"}


def _custom(name: str, code: str) -> Dict[str, Any]:
    """The mask of an expression, which says by itself which arrays it reads."""
    return {"kind": "custom", "name": name, "code": code,
            "params": [{"name": one, "type": kind} for one, kind in _PARAMS.items()
                       if f"p.{one}[" in code]}


def mask_of(window: Optional[int], causal: Any, images: str = "",
            prefix_window: int = 0) -> Union[str, Dict[str, Any]]:
    """The mask of a layer's step.

    Args:
        window: keys that a row sees, its own among them; without `causal` to both sides.
        causal: True, False, or "each": as the array `causal` says of each request.
        images: "free", or "window": a row of an image sees all of it, or what its window has of it;
            the array `image` has each row's first and last key.
        prefix_window: rows see the prompt, as long as the array `prefix` says, and so many keys.
    """
    if prefix_window:
        return _custom("reference_window", "kv_idx <= q_idx && (kv_idx < p.prefix[b] || "
                       f"q_idx - kv_idx < {int(prefix_window)})")
    near = f" && q_idx - kv_idx < {int(window)}" if window else ""
    if causal == "each":
        ahead = f" && kv_idx - q_idx < {int(window)}" if window else ""
        return _custom("causal_or_not", f"(p.causal[b] == 0 || kv_idx <= q_idx){near}{ahead}")
    if images:
        inside = "kv_idx >= p.image[total_row][0] && kv_idx <= p.image[total_row][1]"
        return _custom("images", f"(kv_idx <= q_idx{near}) || "
                       f"({inside}{near if images == 'window' else ''})")
    if not window:
        return "causal" if causal else "null"
    if causal or window == 1:
        return sliding_window(window)
    return {"kind": "sliding_window", "window": int(window), "window_right": int(window) - 1}


def interleaved(sharing: int, rank: int, interleave: int) -> Dict[str, Any]:
    """The mask of causal rows over one rank's keys of a cache that ranks share."""
    position = (f"kv_idx * {sharing} + {rank}" if interleave == 1 else
                f"(kv_idx / {interleave} * {sharing} + {rank}) * {interleave} + "
                f"kv_idx % {interleave}")
    return _custom("interleaved", f"{position} <= p.whole[b] - q_len + q_row")


#: Batch-invariant mode: places of a part of a list of keys, and the most bytes of partial results.
INVARIANT_LIST = 512
_INVARIANT_BYTES = 1 << 29


def invariant_keys(elements: int, rows: int, context: int) -> int:
    """The keys of a part in batch-invariant mode.

    A row's bits must not depend on its batch, so that it depends on the configuration alone: parts
    are as short as the memory for their results lets them be, at least 384 keys.

    Args:
        elements: of a row of O, of all heads together.
        rows: the most that a step has.
        context: the most keys of a request.
    """
    parts = max(1, _INVARIANT_BYTES // max(1, 4 * elements * rows))
    keys = -(-context // parts)
    return max(384, -(-keys // 64) * 64)


SHARED_ALONE = "decode context parallelism serves layers without windows, sinks and ALiBi"


def why_no_cache(name: str, dtype: Optional[str] = None) -> Optional[str]:
    """Why the kernels do not read such a cache, of a model of `dtype`; None: they do."""
    of_the_model = name == "auto" or (name in SIXTEEN_BITS and dtype in (None, SIXTEEN_BITS[name]))
    if of_the_model or name in (*EIGHT_BITS, TOKEN_SCALES):
        return None
    return (f"a cache of {name} is not served: only of the model's type, of fp8_e4m3 with scales of "
            f"tensors or of heads, and of {TOKEN_SCALES}")


def why_vllm_shares_not(whole: Layer, gpus: int, sharing: int) -> Optional[str]:
    """Why vLLM does not share a cache so; None: it does. `whole`: a layer with the heads of all ranks.
    """
    most = gpus if whole.latent else gpus // whole.kv_heads
    for holds, text in (
            (gpus % sharing, f"--tp {gpus} is no multiple of --dcp {sharing}"),
            (not whole.latent and gpus <= whole.kv_heads,
             f"decode context parallelism needs a --tp above {whole.kv_heads}, the key-value heads"),
            (sharing > most, f"--dcp is at most {most}"),
            (not whole.latent and whole.q_heads // whole.kv_heads % sharing,
             f"--dcp {sharing} does not divide {whole.q_heads // whole.kv_heads} query heads of each "
             "key-value head")):
        if sharing > 1 and holds:
            return text
    return None


def why_vllm_refuses(layer: Layer, server: Server) -> Optional[str]:
    """Why vLLM's backend takes no such layer, whatever the kernels serve; None: it does."""
    no_cache = why_no_cache(server.cache, server.dtype)
    for holds, text in (
            (server.cache != DSV32 and no_cache, no_cache or ""),
            (server.sharing > 1 and not layer.latent
             and (layer.window or layer.sink or layer.alibi), SHARED_ALONE),
            (server.cache == DSV32 and not layer.topk,
             f"a cache of {DSV32} is one of MLA over lists of keys"),
            (layer.latent and (layer.window or layer.sink or layer.both_ways),
             "windows, sinks and keys on both sides are not served beside MLA"),
            (server.cache == TOKEN_SCALES and layer.latent,
             f"a cache of {TOKEN_SCALES} is not served beside MLA"),
            (layer.ov_depth != layer.qk_depth and not layer.latent,
             "vLLM gives layers whose V has another depth to a backend of its own"),
            (server.page_size % 16, f"pages of {server.page_size} rows are not served in vLLM: only "
             "of multiples of 16")):
        if holds:
            return text
    return None


#: Architectures of MLA of whose latents vLLM makes keys and values of each head, V as deep as K.
_MULTIPLIED = ("minicpm3",)


def vllm_layer(layer: Layer, architecture: str) -> Layer:
    """A layer of a configuration as vLLM makes it."""
    if architecture in _MULTIPLIED:
        return replace(layer, latent=0, rope=0, ov_depth=layer.qk_depth)
    return layer


def rows_of(server: Server) -> List[int]:
    """The rows that requests have in steps of decodes alone, and with drafts."""
    if server.partition_keys:
        return []  # one kernel for all, which gives a row the same bits in any batch
    most = 1 if server.rows_differ else MOST_ROWS
    return [rows for rows in sorted({1, 1 + server.drafts}) if rows <= most]


def decode_rows(server: Server) -> FrozenSet[int]:
    """The rows of each request, where they are as many, that those kernels serve: a prompt of three
    tokens is no decode, and a kernel of three rows would be one that no manifest has."""
    named = {_NAMED_ROWS[rows] for rows in rows_of(server)}
    return frozenset(rows for rows in range(1, MOST_ROWS + 1) if _NAMED_ROWS[rows] in named)


def types_of(layer: Layer, server: Server, prompts: bool = False) -> Dict[str, Any]:
    """The types of Q, K, V and O, and who has scales.

    `prompts`: of steps whose requests differ in rows. There Q is quantised to e4m3 where a kernel
    takes that: tensor cores bound them, and keys and values need no upcast beside such a Q. In
    batch-invariant mode it is not, for a row's bits are the same in each step.
    """
    if layer.both_ways or server.cache not in (*EIGHT_BITS, TOKEN_SCALES):
        return {"qkv_dtype": server.dtype, "output_dtype": server.dtype}
    if server.cache == TOKEN_SCALES:
        return {"qkv_dtype": server.dtype, "output_dtype": server.dtype, "kv_dtype": "e4m3",
                "scales": "token"}
    if layer.latent:
        return {"qkv_dtype": server.dtype, "output_dtype": server.dtype, "kv_dtype": "e4m3",
                "scales": "tensor"}
    fields = dict(arch=server.arch, num_q_heads=layer.q_heads,
                  group=layer.q_heads // layer.kv_heads, qk_depth=layer.qk_depth, page_size=16,
                  ragged=True, sink=layer.sink)
    shared = {"output_dtype": server.dtype, "scales": "head" if server.head_scales else "tensor"}
    if server.sharing > 1:
        return {"qkv_dtype": server.dtype, "kv_dtype": "e4m3", **shared}
    if prompts and not server.partition_keys:
        quantised = {"qkv_dtype": "e4m3", **shared}
        if why_not(**fields, **quantised) is None:
            return quantised
    found = eight_bit_cache(server.dtype, **fields)
    return {**{name: found[name] for name in ("qkv_dtype", "kv_dtype") if name in found}, **shared}


def vllm_specs(layer: Layer, server: Server, rank: int = 0) -> List[Dict[str, Any]]:
    """What vLLM's backend asks for: each kernel of a kind of layer once.

    `rank`: among those that share a cache; it is a part of their masks.
    """
    base: Dict[str, Any] = {
        "arch": server.arch, "num_q_heads": layer.q_heads,
        "group": layer.q_heads // layer.kv_heads, "qk_depth": layer.qk_depth,
        "ov_depth": layer.ov_depth}
    types, of_prompts = types_of(layer, server), types_of(layer, server, prompts=True)
    if layer.sink:
        base["sink"] = True
    if layer.latent:
        return _latent(layer, server, {**base, **types}, rank)
    if layer.softcap:
        base["score_mod"] = {"kind": "softcap", "cap": float(layer.softcap)}
    if layer.alibi:
        base["score_mod"] = {"kind": "alibi", "slopes": True}
    ragged_kv = {"ragged": True, "ragged_kv": True}
    if layer.both_ways:
        return [{**base, **types, **ragged_kv, "mask": mask_of(layer.window, False)}]
    paged = {"page_size": server.page_size}
    parts = {"partition_keys": server.partition_keys} if server.partition_keys else {}
    if server.sharing > 1:
        new = {**base, "qkv_dtype": server.dtype, "output_dtype": server.dtype}
        return [{**base, **types, **paged, **parts, "ragged": True, "return_lse": True, "mask": "null",
                 "num_q_heads": layer.q_heads * server.sharing,
                 "group": base["group"] * server.sharing},
                {**new, **ragged_kv, "return_lse": True, "mask": "causal"}]
    base.update(paged, mask=mask_of(layer.window, not layer.cross,
                                    prefix_window=layer.prefix_window))
    specs = [{**base, **of_prompts, **parts, "ragged": True}] + [
        {**base, **types, "num_partitions": 0, "max_q_len": _NAMED_ROWS[rows]}
        for rows in rows_of(server)]
    if layer.images:
        specs.append({**base, **of_prompts, **parts, "ragged": True,
                      "mask": mask_of(layer.window, True, layer.images)})
    return specs


def non_causal_specs(layer: Layer, server: Server, by_request: bool = False) -> List[Dict[str, Any]]:
    """What vLLM's backend asks for beside them, where rows of a decoder see what comes behind them:
    always (drafts that are made at once), or as each request says (`by_request`: diffusion)."""
    specs = [] if layer.both_ways else vllm_specs(replace(layer, images=""), server)
    if by_request:
        return [{**one, "mask": mask_of(layer.window, "each")} for one in specs[:1]]
    return [{**one, "mask": mask_of(layer.window, False)} for one in specs]


def _latent(layer: Layer, server: Server, base: Dict[str, Any],
            rank: int) -> List[Dict[str, Any]]:
    """Absorbed MLA: all heads share a row of the cache, those of all ranks that share it, too."""
    heads = layer.q_heads * server.sharing
    base.update(num_q_heads=heads, group=heads, qk_depth=layer.latent + layer.rope,
                ov_depth=layer.latent, mla="decode", page_size=server.page_size)
    if server.cache == DSV32:
        base["cache_format"] = "dsv32"
    if server.sharing > 1:
        base["return_lse"] = True
    parts = ({"partition_keys": server.partition_keys} if server.partition_keys
             else {"num_partitions": 0})
    if layer.topk:
        return [{**base, **parts, "max_q_len": 1, "topk": layer.topk, "mask": "null"}]
    several: Any = (interleaved(server.sharing, rank, server.interleave) if server.sharing > 1
                    else "causal")
    return [{**base, **parts, "ragged": True, "mask": several}] + [
        {**base, **parts, "max_q_len": _NAMED_ROWS[rows],
         "mask": several if rows > 1 or server.sharing == 1 else "null"}
        for rows in rows_of(server)]

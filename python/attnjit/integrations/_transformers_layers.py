# SPDX-License-Identifier: Apache-2.0
"""Which kernels transformers' attention asks for, by layers and options: as _layers has vLLM's."""
from __future__ import annotations

from typing import Any, Dict, List, Union

from .._attention import most_rows_of_small_tiles
from ._layers import Layer, Server
from ._specs import sliding_window


def batching_mask(window: int) -> Union[str, Dict[str, Any]]:
    """The mask of a layer in continuous batching; `window` at most 1: it has none."""
    return sliding_window(window) if window > 1 else "causal"


def transformers_specs(layer: Layer, server: Server) -> List[Dict[str, Any]]:
    """What generate() asks for, except for layers with windows, whose masks are traced from
    transformers' own functions; and what generate_batch() asks for."""
    base: Dict[str, Any] = {
        "arch": server.arch, "num_q_heads": layer.q_heads,
        "group": layer.q_heads // layer.kv_heads, "qk_depth": layer.qk_depth,
        "ov_depth": layer.ov_depth, "qkv_dtype": server.dtype, "output_dtype": server.dtype,
        "mask": batching_mask(layer.window)}
    if layer.sink:
        base["sink"] = True
    if layer.softcap:
        base["score_mod"] = {"kind": "softcap", "cap": float(layer.softcap)}
    ragged = {**base, "ragged": True, "ragged_kv": True}
    # As attention() asks: prompts, a few rows over many keys, decodes, and short prompts.
    in_parts = {**base, "num_partitions": 0}
    whole = [base, in_parts, {**in_parts, "max_q_len": 1}]
    few = most_rows_of_small_tiles(base["group"])
    if few > 1:
        whole.append({**in_parts, "max_q_len": few})
    if layer.latent:  # its prompts' and decodes' form, of keys and values of each head
        return whole
    if layer.window:  # whose cache is a ring, which is read in order
        return [ragged]
    paged = {**base, "page_size": server.page_size}
    return [*whole, ragged, {**paged, "ragged": True},
            {**paged, "num_partitions": 0, "max_q_len": 1}]

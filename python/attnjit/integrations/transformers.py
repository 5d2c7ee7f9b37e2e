# SPDX-License-Identifier: Apache-2.0
"""attnjit as an attention implementation of transformers.

    import attnjit.integrations.transformers
    attnjit.integrations.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="attnjit")

Masks are not materialised: transformers' mask function is traced into the kernel, with the
sequence's offsets given at launch, so that a model needs one kernel for prompts and decodes alike.
Only a 4-D mask of the caller's own is read as it is.

Continuous batching (generate_batch) runs with attn_implementation="paged|attnjit", and fastest with
continuous_batching_config=continuous_batching_config() and warmup=False.
"""
from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers import masking_utils

from .. import Mask, Scalar, UnsupportedError, attention, paged_attention
from .. import mask as trace
from ..masks import as_mask
from ._transformers_layers import batching_mask

NAME = "attnjit"
PAGED_NAME = "paged|attnjit"  # as continuous batching names an implementation


def register() -> None:
    """Adds "attnjit" and "paged|attnjit" to transformers' attention and mask functions."""
    AttentionInterface.register(NAME, attention_forward)
    AttentionInterface.register(PAGED_NAME, paged_attention_forward)
    AttentionMaskInterface.register(NAME, attention_mask)


def continuous_batching_config(**options: Any) -> Any:
    """transformers' ContinuousBatchingConfig for "paged|attnjit": steps are prepared while the GPU
    works, and replayed as graphs.

    By default transformers has both for implementations of its own alone. Keys are padded to one
    size, so that few graphs are captured: a layer reads them by its pages, whatever the padding.
    Give generate_batch warmup=False: its warm-up attends to the whole cache.
    """
    from transformers import ContinuousBatchingConfig

    return ContinuousBatchingConfig(**{"use_cuda_graph": True, "use_async_batching": True,
                                       "kv_padding_interval_size": 1 << 18, **options})


def attention_mask(batch_size: int, q_length: int, kv_length: int, q_offset: int = 0,
                   kv_offset: int = 0,
                   mask_function: Any = masking_utils.causal_mask_function,
                   attention_mask: Optional[torch.Tensor] = None, **_: Any) -> Mask:
    """The mask of a forward pass, as transformers' mask interface asks for it."""
    padding = None
    if attention_mask is not None:
        padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
        if bool(padding[:, kv_offset:kv_offset + kv_length].all()):
            padding = None
    # transformers counts positions from the sequence's first token, a spec's q_idx so that the
    # last row stands at the last key.
    rows_on = int(q_offset) - (kv_length - q_length)
    if (mask_function is masking_utils.causal_mask_function and padding is None and not rows_on
            and not kv_offset):
        return as_mask("causal")
    if padding is not None:
        mask_function = masking_utils.and_masks(mask_function,
                                                masking_utils.padding_mask_function(padding))
    if rows_on or kv_offset:
        mask_function = masking_utils.add_offsets_to_mask_function(
            mask_function, Scalar(rows_on), Scalar(kv_offset))
    return trace(mask_function, q_idx="end", name="transformers")


def attention_forward(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor,
                      value: torch.Tensor, attention_mask: Any, scaling: Optional[float] = None,
                      dropout: float = 0.0, softcap: Optional[float] = None,
                      s_aux: Optional[torch.Tensor] = None, is_causal: Optional[bool] = None,
                      **_: Any) -> Tuple[torch.Tensor, None]:
    """Attention of a layer: query [batch, heads, rows, depth]; the result has rows before heads."""
    if dropout:
        raise UnsupportedError("attnjit has no dropout", code="unsupported", field="dropout",
                               hint="call model.eval()")
    mask = attention_mask
    if mask is None:
        # Causal hides nothing from a decode's row, and its kernel is in the manifest.
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        mask = "causal" if causal else None
    elif isinstance(mask, torch.Tensor):
        if mask.dim() != 4:
            raise UnsupportedError(
                f"a mask with {mask.dim()} dimensions is not served", code="unsupported",
                field="attention_mask",
                hint="give the model a 2-D attention_mask; a layer, an attnjit.Mask or a 4-D mask")
        mask = mask[..., :key.shape[2]]  # a cache of fixed size has more keys than it holds
    out = attention(query, key, value, mask=mask, layout="bhsd", scale=scaling,
                    score_mod=_score_mod(softcap), sink=_sink(s_aux))
    return out.transpose(1, 2), None  # whose memory has rows before heads


def paged_attention_forward(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor,
                            value: torch.Tensor, attention_mask: Any,
                            scaling: Optional[float] = None, softcap: Optional[float] = None,
                            s_aux: Optional[torch.Tensor] = None, cache: Any = None,
                            cu_seq_lens_q: Any = None, cu_seq_lens_k: Any = None,
                            max_seqlen_q: int = 0, max_seqlen_k: Any = 0, read_index: Any = None,
                            write_index: Any = None, **_: Any) -> Tuple[torch.Tensor, None]:
    """Attention of a layer in continuous batching: [1, heads, rows, depth] of all requests.

    Layers that see all keys read them where they lie in the cache. Those with a window, whose
    cache is a ring, and prompts that have nothing in the cache, have them side by side.
    """
    if cache is None:
        raise UnsupportedError(f"{PAGED_NAME} runs in continuous batching alone",
                               code="unsupported", field="cache", hint=f"use {NAME} elsewhere")
    window = cache.sliding_windows[module.layer_idx]  # 1: none, which not all modules say
    if isinstance(cu_seq_lens_k, dict):
        kind = "sliding_attention" if window > 1 else "full_attention"
        cu_seq_lens_k, max_seqlen_k = cu_seq_lens_k[kind], max_seqlen_k[kind]
    group, index = cache.layer_index_to_group_indices[module.layer_idx]
    rows = query[0].transpose(0, 1)
    options = {"mask": batching_mask(window),
               "score_mod": _score_mod(softcap), "scale": scaling, "sink": _sink(s_aux),
               "max_kv_len": max_seqlen_k}
    if window > 1 or not read_index[group].numel():
        key, value = cache.update(key_states=key, value_states=value, layer_idx=module.layer_idx,
                                  read_index=read_index, write_index=write_index)
        out = attention(rows, key, value, q_offsets=cu_seq_lens_q, kv_offsets=cu_seq_lens_k,
                        max_q_len=max_seqlen_q, **options)
        return out.unsqueeze(0), None
    keys, values = cache.key_cache[index], cache.value_cache[index]
    keys.index_copy_(0, write_index[group], key[0].transpose(0, 1))
    values.index_copy_(0, write_index[group], value[0].transpose(0, 1))
    table, lens = _pages(cache, group, index, read_index[group], cu_seq_lens_k, max_seqlen_k)
    if max_seqlen_q > 1 or rows.shape[0] != lens.shape[0]:
        options.update(q_offsets=cu_seq_lens_q, max_q_len=max_seqlen_q)
    out = paged_attention(rows, _blocks(keys, cache), _blocks(values, cache), table, lens,
                          **options)
    return out.unsqueeze(0), None


def _blocks(tensor: torch.Tensor, cache: Any) -> torch.Tensor:
    """A cache of single rows as one of blocks."""
    return tensor.view(-1, cache.block_size, *tensor.shape[1:])


def _pages(cache: Any, group: int, index: int, read_index: torch.Tensor, cu_seq_lens: torch.Tensor,
           longest: int) -> Tuple[torch.Tensor, torch.Tensor]:
    """The page table of a step's requests, and how many keys each has.

    `read_index` has the place of each key in the cache, and a block's keys lie one behind another.
    The layers of a group share the table. NOTE: its first layer makes it in each step, so that a
    graph that captures the step makes it, too.
    """
    tables: Dict[int, Tuple[torch.Tensor, torch.Tensor]] = vars(cache).setdefault(
        "attnjit_tables", {})
    if index == 0:
        begins = torch.arange(0, longest, cache.block_size, device=read_index.device)
        places = (cu_seq_lens[:-1, None] + begins).clamp_(max=read_index.numel() - 1)
        table = read_index[places].div_(cache.block_size, rounding_mode="floor").int()
        tables[group] = table, cu_seq_lens.diff()
    return tables[group]


def _score_mod(softcap: Optional[float]) -> Optional[Dict[str, Any]]:
    return {"kind": "softcap", "cap": float(softcap)} if softcap else None


def _sink(s_aux: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    return None if s_aux is None else s_aux.float()

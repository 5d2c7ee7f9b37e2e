# SPDX-License-Identifier: Apache-2.0
"""attnjit as an attention implementation of transformers.

    import attnjit.integrations.transformers
    attnjit.integrations.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="attnjit")

Masks are not materialised: transformers' mask function is traced into the kernel, with the
sequence's offsets given at launch, so that a model needs one kernel for prompts and decodes alike.
"""
from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers import masking_utils

from .. import Mask, Scalar, UnsupportedError, attention
from .. import mask as trace
from ..masks import as_mask

NAME = "attnjit"


def register() -> None:
    """Adds "attnjit" to transformers' attention and mask functions."""
    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, attention_mask)


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
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        mask = "causal" if causal and query.shape[2] > 1 else None
    elif not isinstance(mask, Mask):
        raise UnsupportedError(
            f"a mask that is a {type(mask).__name__} is not served", code="unsupported",
            field="attention_mask",
            hint="give the model a 2-D attention_mask, or an attnjit.Mask")
    out = attention(query, key, value, mask=mask, layout="bhsd", scale=scaling,
                    score_mod={"kind": "softcap", "cap": float(softcap)} if softcap else None,
                    sink=None if s_aux is None else s_aux.float())
    return out.transpose(1, 2), None  # whose memory has rows before heads

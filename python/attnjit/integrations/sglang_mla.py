# SPDX-License-Identifier: Apache-2.0
"""The backend of models of MLA, after the interfaces of SGLang 0.5.17 and 0.5.23.

SGLang computes prompts without a prefix by keys and values of each head; decodes, drafts, and
prompts behind a prefix are absorbed: all heads share a row of the cache.
"""
from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch

from .. import attention
from .._mla import mla_attention
from .sglang_backend import AttnjitAttnBackend, Step, refuse_unknown
from .sglang_service import launches, service


def prompts(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: Any, q_offsets: torch.Tensor,
            max_q_len: int, kv_offsets: torch.Tensor, max_kv_len: int, causal: bool,
            wants_lse: bool = False) -> Any:
    """Rows of requests over keys and values of each head that lie side by side, with the sums
    [rows, heads] where they are wanted."""
    launches["prompts"] += 1
    heads = layer.tp_q_head_num
    q, k = (one.view(-1, heads, layer.qk_head_dim) for one in (q, k))
    out = q.new_empty(q.shape[0], heads, layer.v_head_dim)
    made = attention(q, k.to(q.dtype), v.view(-1, heads, layer.v_head_dim).to(q.dtype), out=out,
                     q_offsets=q_offsets, kv_offsets=kv_offsets, max_q_len=max_q_len,
                     max_kv_len=max(1, max_kv_len), mask="causal" if causal else None,
                     scale=float(layer.scaling), lse=wants_lse, service=service())
    if wants_lse:
        return out, made[1].transpose(0, 1).contiguous()
    return out.view(q.shape[0], heads * layer.v_head_dim)


class AttnjitMLAAttnBackend(AttnjitAttnBackend):
    """One thread's steps of a model of MLA."""

    def _attend(self, q: torch.Tensor, k: Any, v: Any, layer: Any, batch: Any,
                save_kv_cache: bool, others: Dict[str, Any]) -> Any:
        q_rope, k_rope = others.pop("q_rope", None), others.pop("k_rope", None)
        refuse_unknown(layer, others)
        step = self.forward_metadata
        if save_kv_cache and k is not None:
            self._write_latent(layer, batch, k, v, k_rope)
        if layer.v_head_dim != self._asked[id(layer)].latent or layer.tp_k_head_num > 1:
            return self._prompts(q, k, v, layer, batch, step)
        rows, heads = q.shape[0], layer.tp_q_head_num
        if q_rope is not None:
            q = torch.cat([q.view(rows, heads, layer.v_head_dim),
                           q_rope.view(rows, heads, -1)], dim=-1)
        q = q.view(rows, heads, layer.qk_head_dim)
        out = q.new_empty(rows, heads, layer.v_head_dim)
        offsets = self._offsets(step)
        kind = self._kind(layer, step.tree is not None, offsets is not None)
        options = dict(latent=layer.v_head_dim, mask=kind.mask_over(step), scale=kind.scale,
                       partition_keys=self._server.partition_keys, service=service(),
                       # NOTE: a layer's k_scale is none of the cache's: SGLang's models write
                       # rows of prompts, and read prefixes, without it.
                       k_scale=self._one if self._eight_bits else None)
        cache = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
        cache = cache.view(-1, self.page_size, cache.shape[-1])
        if offsets is not None:
            launches["mla_mixed"] += 1
            mla_attention(q, cache, step.page_table, step.kv_lens, q_offsets=offsets,
                          max_q_len=max(1, step.max_q_len), out=out, **options)
        else:
            launches[f"mla_rows_{step.max_q_len}"] += 1
            shape = (step.kv_lens.shape[0], step.max_q_len, heads)
            mla_attention(q.view(*shape, -1), cache, step.page_table, step.kv_lens,
                          out=out.view(*shape, -1), **options)
        return out.view(rows, heads * layer.v_head_dim)

    def _write_latent(self, layer: Any, batch: Any, k: torch.Tensor, v: torch.Tensor,
                      k_rope: Optional[torch.Tensor]) -> None:
        if k_rope is not None:
            self.token_to_kv_pool.set_mla_kv_buffer(layer, batch.out_cache_loc, k, k_rope)
        else:
            self.token_to_kv_pool.set_kv_buffer(layer, self._loc(layer, batch, None), k, v)

    def _prompts(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layer: Any, batch: Any,
                 step: Step) -> Any:
        """Rows of requests over keys of theirs that lie side by side: this step's, or a chunk of
        those in the cache, which all of them see."""
        q_offsets, longest = self._ragged(step)
        offsets, most, causal = q_offsets, longest, True
        if batch.attn_attend_prefix_cache:
            at = batch.prefix_chunk_idx
            offsets, most = batch.prefix_chunk_cu_seq_lens[at], batch.prefix_chunk_max_seq_lens[at]
            causal = False
        elif getattr(batch, "mha_one_shot", False):
            offsets = torch.nn.functional.pad(torch.cumsum(step.kv_lens, 0, dtype=torch.int32),
                                              (1, 0))
            most = k.shape[0]
        return prompts(q, k, v, layer, q_offsets, longest, offsets.int(), int(most), causal,
                       bool(batch.mha_return_lse))

    def _ragged(self, step: Step) -> Tuple[torch.Tensor, int]:
        offsets = step.q_offsets
        if offsets is None:  # NOTE: as many rows of each
            offsets = torch.arange(step.kv_lens.shape[0] + 1, dtype=torch.int32,
                                   device=self.device) * step.max_q_len
        return offsets, step.max_q_len

# SPDX-License-Identifier: Apache-2.0
"""The backend of models of MLA whose rows see the keys of an indexer's lists (DSA), after the
interfaces of SGLang 0.5.17 and 0.5.23.

SGLang's own class has the indexer's metadata and graphs; of it the attention alone is replaced.
Rows are absorbed over their lists; prompts that SGLang takes for short see all keys before them,
by keys and values of each head.
"""
from __future__ import annotations

from typing import Any, Dict

import torch
from sglang.srt.layers.attention.dsa.dsa_topk_backend import TopkTransformMethod
from sglang.srt.layers.attention.dsa_backend import (DeepseekSparseAttnBackend,
                                                     DeepseekSparseAttnMultiStepBackend,
                                                     transform_index_page_table_decode,
                                                     transform_index_page_table_prefill)
from sglang.srt.models.deepseek_common.attention_backend_handler import (AttentionBackendRegistry,
                                                                         handle_attention_dsa)

from .._mla import mla_attention
from . import sglang_backend
from ._layers import DSV32
from .sglang_backend import ask_at_start, refuse_unknown, server_of
from .sglang_mla import prompts
from .sglang_service import launches, service

NAME = "attnjit"


class AttnjitListsAttnBackend(DeepseekSparseAttnBackend):
    """One thread's steps of a model of DSA."""

    def __init__(self, runner: Any, **more: Any) -> None:
        arch = sglang_backend._arch(runner)
        sglang_backend.refuse(runner, arch, runner.page_size)
        super().__init__(runner, **more)
        # NOTE: no name of SGLang's kernels, so that what is not replaced here raises.
        self.dsa_prefill_impl = self.dsa_decode_impl = NAME
        self.enable_auto_select_prefill_impl = False
        server = server_of(runner, arch, runner.page_size)
        self._page_size, self._dsv32 = server.page_size, server.cache == DSV32
        # NOTE: SGLang writes the cache without scales.
        self._scale = (torch.ones(1, device=self.device)
                       if server.cache == "fp8_e4m3" else None)
        # NOTE: a name without a handler has prompts' keys of each head, and no lists.
        AttentionBackendRegistry.register(NAME, handle_attention_dsa)
        ask_at_start(runner, arch, server)

    def get_topk_transform_method(self, forward_mode: Any = None) -> TopkTransformMethod:
        """Lists have slots of the pool."""
        return TopkTransformMethod.PAGED

    def forward_decode(self, q: torch.Tensor, k: Any, v: Any, layer: Any, forward_batch: Any,
                       save_kv_cache: bool = True, **others: Any) -> torch.Tensor:
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache, others)

    def forward_extend(self, q: torch.Tensor, k: Any, v: Any, layer: Any, forward_batch: Any,
                       save_kv_cache: bool = True, **others: Any) -> torch.Tensor:
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache, others)

    def _attend(self, q: torch.Tensor, k: Any, v: Any, layer: Any, batch: Any,
                save_kv_cache: bool, others: Dict[str, Any]) -> torch.Tensor:
        q_rope, k_rope = others.pop("q_rope", None), others.pop("k_rope", None)
        lists = others.pop("topk_indices", None)
        refuse_unknown(layer, others)
        latent, heads = self.kv_lora_rank, layer.tp_q_head_num
        if save_kv_cache and k is not None:
            if k_rope is None:
                k, k_rope = k[..., :latent], k[..., latent:]
            self.token_to_kv_pool.set_mla_kv_buffer(layer, batch.out_cache_loc, k, k_rope)
        dense = layer.tp_k_head_num > 1 or layer.v_head_dim != latent
        if lists is None and not (dense and self.use_mha):
            raise NotImplementedError(f"attnjit: layer {layer.layer_id} gives no lists of keys")
        if dense:
            step = self.forward_metadata
            return prompts(q, k, v, layer, step.cu_seqlens_q, step.max_seq_len_q,
                           step.cu_seqlens_k, step.max_seq_len_k, causal=True)
        rows = q.shape[0]
        if q_rope is not None:
            q = torch.cat([q.view(rows, heads, latent), q_rope.view(rows, heads, -1)], dim=-1)
        q = q.view(rows, heads, layer.head_dim)
        out = q.new_empty(rows, heads, latent)
        cache = self.token_to_kv_pool.get_key_buffer(layer.layer_id)
        cache = cache.view(torch.uint8) if self._dsv32 else cache
        launches["mla_lists"] += 1
        mla_attention(q, cache.view(-1, self._page_size, cache.shape[-1]), None, None,
                      latent=latent, topk_indices=self._slots(lists, rows, batch.forward_mode),
                      mask=None, scale=float(layer.scaling), out=out, service=service(),
                      k_scale=self._scale)
        return out.view(rows, heads * latent)

    def _slots(self, lists: torch.Tensor, rows: int, mode: Any) -> torch.Tensor:
        """The pool's slots that each row sees, and -1; a graph's padding sees none."""
        lists = self._pad_topk_indices(lists, rows)
        step = self.forward_metadata
        if self.use_fused_topk:
            slots = lists
        elif mode.is_decode_or_idle():
            slots = transform_index_page_table_decode(page_table=step.page_table_1,
                                                      topk_indices=lists, page_size=1)
        else:
            slots = transform_index_page_table_prefill(
                page_table=step.page_table_1, topk_indices=lists,
                extend_lens_cpu=step.dsa_extend_seq_lens_list, page_size=1, output_num_tokens=rows,
                page_table_is_expanded=mode.is_target_verify() or mode.is_draft_extend_v2(),
                cu_seqlens_q=step.cu_seqlens_q)
        return slots.int().contiguous()


class AttnjitListsMultiStepDraftBackend(DeepseekSparseAttnMultiStepBackend):
    """The steps in which a draft model decodes one token behind another."""

    def __init__(self, runner: Any, topk: int, steps: int, **more: Any) -> None:
        super().__init__(runner, topk, steps, **more)
        self.attn_backends = [
            AttnjitListsAttnBackend(runner, speculative_step_id=i, topk=topk,
                                    speculative_num_steps=steps, **more)
            for i in range(steps - 1)]

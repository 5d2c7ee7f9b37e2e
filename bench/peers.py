# SPDX-License-Identifier: Apache-2.0
"""FlashAttention-3 and FlashMLA from vLLM's published wheel, for the benchmarks beside them.

    pip install vllm flashinfer-python

The entry points are those of vLLM 0.33. FlashInfer, which the benchmarks call themselves, compiles
its kernels at their first use; nothing else is built. Importing this needs neither.
"""
import functools
import importlib

import torch

WHERE = {"FlashAttention-3": "vllm.vllm_flash_attn",
         "FlashMLA": "vllm.v1.attention.ops.flashmla"}


@functools.lru_cache(None)
def load(name):
    """The module of a peer; an ImportError says why there is none."""
    module = importlib.import_module(WHERE[name])
    if name == "FlashMLA":
        there, reason = module._is_flashmla_available()
    else:
        interface = module.flash_attn_interface
        there = interface.FA3_AVAILABLE
        reason = None if there else interface.FA3_UNAVAILABLE_REASON
    if not there:
        raise ImportError(reason)
    return module


def have(name):
    """Whether a peer is there; if not, the output says why."""
    try:
        load(name)
        return True
    except Exception as error:  # whatever a wheel that does not fit this torch raises
        print(f"# no {name}: {type(error).__name__}: {str(error)[:300]}")
        return False


# What of FlashAttention-3's operator no benchmark uses.
UNUSED = dict.fromkeys((
    "k_new", "v_new", "q_v", "cu_seqlens_q", "cu_seqlens_k", "cu_seqlens_k_new", "seqused_q",
    "seqused_k", "max_seqlen_q", "max_seqlen_k", "page_table", "kv_batch_idx", "leftpad_k",
    "rotary_cos", "rotary_sin", "seqlens_rotary", "scheduler_metadata", "pack_gqa", "s_aux",
    "cp_tot_seqused_k"))


def fa3_batch(q, k, v, out, causal, descale=None):
    """Rows of equal length: all [batch, rows, heads, depth]. descale: f32 [batch, kv heads], of
    e4m3. vLLM's function in Python takes ragged batches alone: this is the operator below it."""
    load("FlashAttention-3")
    torch.ops._vllm_fa3_C.fwd(
        q=q, k=k, v=v, out=out, q_descale=descale, k_descale=descale, v_descale=descale,
        softmax_scale=q.shape[-1] ** -0.5, is_causal=causal, window_size_left=-1,
        window_size_right=-1, softcap=0.0, is_rotary_interleaved=True, num_splits=1, sm_margin=0,
        cp_world_size=1, cp_rank=0, **UNUSED)


def fa3_window(window):
    """FlashAttention's keys to the left and right of a row; `window` counts the row's own."""
    return (window - 1, 0) if window else (-1, -1)


def fa3_plan(q_heads, kv_heads, depth, page, cu_q, max_q, used_k, max_k, window=None):
    """What a runtime computes once a step, outside of the layers: the `plan` of fa3_paged()."""
    return load("FlashAttention-3").get_scheduler_metadata(
        batch_size=used_k.numel(), max_seqlen_q=max_q, max_seqlen_k=max_k, num_heads_q=q_heads,
        num_heads_kv=kv_heads, headdim=depth, cache_seqlens=used_k, qkv_dtype=torch.bfloat16,
        cu_seqlens_q=cu_q, page_size=page, causal=True, window_size=fa3_window(window),
        num_splits=0)


def fa3_paged(q, k, v, out, table, cu_q, max_q, used_k, max_k, plan, window=None, sink=None):
    """Causal, ragged: q, out [rows, heads, depth]; k, v [pages, page, kv heads, depth]; sink: bf16,
    of the heads."""
    load("FlashAttention-3").flash_attn_varlen_func(
        q=q, k=k, v=v, max_seqlen_q=max_q, cu_seqlens_q=cu_q, max_seqlen_k=max_k, seqused_k=used_k,
        causal=True, window_size=list(fa3_window(window)), block_table=table, out=out,
        scheduler_metadata=plan, num_splits=0, fa_version=3, s_aux=sink)


def flashmla_plan():
    """Filled by the first call: for calls of the same shapes and lengths."""
    return load("FlashMLA").get_mla_metadata()[0]


def flashmla(q, cache, out, table, used_k, plan, scale):
    """Causal: q [batch, rows, heads, 576], cache [pages, 64, 1, 576], out [.., 512]."""
    # It takes the rows of a request for heads, and asks that of `out`, too.
    of_heads = out if out.shape[1] == 1 else out.view(out.shape[0], 1, -1, out.shape[-1])
    load("FlashMLA").flash_mla_with_kvcache(
        q=q, k_cache=cache, block_table=table, cache_seqlens=used_k, head_dim_v=out.shape[-1],
        tile_scheduler_metadata=plan, softmax_scale=scale, causal=True, out=of_heads)


def flashmla_lists(q, cache, out, lists, plan, scale):
    """The same with a list of keys for each row, [batch, rows, topk], over rows of 656 bytes."""
    load("FlashMLA").flash_mla_with_kvcache(
        q=q, k_cache=cache, block_table=None, cache_seqlens=None, head_dim_v=out.shape[-1],
        tile_scheduler_metadata=plan, softmax_scale=scale, is_fp8_kvcache=True, indices=lists,
        out=out)


def flashmla_lists_bf16(q, cache, out, lists, scale):
    """Over rows of bf16, for which FlashMLA has its sparse prefill alone."""
    rows = lists.shape[0] * lists.shape[1]
    load("FlashMLA").flash_mla_sparse_fwd(
        q.view(rows, *q.shape[2:]), cache.view(-1, 1, cache.shape[-1]), lists.view(rows, 1, -1),
        scale, d_v=out.shape[-1], out=out.view(rows, *out.shape[2:]))

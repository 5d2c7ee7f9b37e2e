# SPDX-License-Identifier: Apache-2.0
"""The backends of layers of MLA, after the interface of vLLM 0.33: over the whole cache, and over
the lists of keys that an indexer makes.

Decodes and drafts are absorbed: all heads share a row of the cache. Prompts are computed by vLLM's
backend for those (`--attention-config.mla_prefill_backend`). A cache of fp8 is e4m3, of fp8_ds_mla
the format dsv32; Q keeps 16 bits beside either.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Dict, List, Optional, Tuple

import torch
import vllm.envs as envs
from vllm.config import get_current_vllm_config_or_none
from vllm.model_executor.layers.attention.mla_attention import (
    MLACommonBackend, MLACommonDecodeMetadata, MLACommonImpl, MLACommonMetadata,
    MLACommonMetadataBuilder, QueryLenSupport)
from vllm.model_executor.layers.attention.sparse_mla_attention import (
    SparseMLACommonImpl, SparseMLACommonMetadata, SparseMLACommonMetadataBuilder)
from vllm.v1.attention.backend import (AttentionCGSupport, AttentionType, MultipleOf,
                                       max_decode_query_len)
from vllm.v1.attention.backends.mla.sparse_utils import align_blocks_to_rows, flat_kv_row_view
from vllm.v1.attention.ops.metadata import compute_token_to_req_indices

from .. import Mask
from .._mla import ROPE, mla_attention
from . import vllm_service
from ._layers import (DSV32, EIGHT_BITS, INVARIANT_LIST, SIXTEEN_BITS, Layer, Server, decode_rows, interleaved,
                      non_causal_specs, vllm_specs)
from ._specs import why_not
from .vllm_backend import (_ARCHITECTURES, _CAUSAL, _DTYPES, _LEAST_PAGE, _NO_MASK, _PREFERRED,
                           REFUSED, _arch, pages, partition_keys, rows_of_each,
                           with_arrays)
from .vllm_service import launches, raise_refused, say_start, service

_LIST_STEP = 64  # lists are of a multiple of so many keys


def _fields(arch: str, dtype: torch.dtype, head_size: int, latent: int, cache: str,
            page_size: int, **more: Any) -> Dict[str, Any]:
    """A layer's spec, as far as whether a kernel serves it depends on it."""
    fields = {"arch": arch, "num_q_heads": 16, "group": 16, "qk_depth": head_size,
              "ov_depth": latent, "qkv_dtype": _DTYPES[dtype], "mla": "decode",
              "page_size": page_size, "ragged": True, **more}
    if cache in EIGHT_BITS:
        fields.update(kv_dtype="e4m3", scales="tensor")
    elif cache == DSV32:
        fields["cache_format"] = "dsv32"
    if envs.VLLM_BATCH_INVARIANT:
        fields["partition_keys"] = 384
    return fields


def _latent_of(head_size: int) -> int:
    """The width of the latent part, by the model at hand; without one, by the usual rope part."""
    config = get_current_vllm_config_or_none()
    model = None if config is None else config.model_config
    latent = getattr(getattr(model, "hf_text_config", None), "kv_lora_rank", None)
    return latent if latent is not None and latent <= head_size else head_size - ROPE


class _Answers:
    """What vLLM asks, as far as it is the same with lists and without."""

    accept_output_buffer: bool = True
    supported_dtypes: ClassVar[List[torch.dtype]] = list(_DTYPES)

    @staticmethod
    def get_name() -> str:
        return "ATTNJIT"

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> List[Any]:
        return pages.served(kv_cache_spec, of_mla=True)

    @classmethod
    def get_preferred_block_size(cls, default_block_size: int) -> int:
        return max(_PREFERRED[1], default_block_size)

    @classmethod
    def get_supported_head_sizes(cls) -> List[int]:
        return []  # supports_combination says what is not served, and why

    @classmethod
    def is_mla(cls) -> bool:
        return True

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        return (capability.major, capability.minor) in _ARCHITECTURES


def _why_no_kernel(capability: Any, dtype: torch.dtype, head_size: int, cache: Optional[str],
                   block_size: Optional[int], **more: Any) -> Optional[str]:
    arch = _ARCHITECTURES.get((capability.major, capability.minor))
    cache = cache or "auto"
    if arch is None or dtype not in _DTYPES:
        return None  # the other questions give the reason
    if cache in SIXTEEN_BITS and SIXTEEN_BITS[cache] != _DTYPES[dtype]:
        return f"attnjit: a cache of {cache} beside a model of {dtype} is not served"
    reason = why_not(**_fields(arch, dtype, head_size, _latent_of(head_size), cache,
                               block_size or 64, **more))
    return None if reason is None else f"attnjit: {reason}"


# --- over the whole cache

class AttnjitMLABackend(_Answers, MLACommonBackend):
    """What vLLM asks of a layer of MLA that sees its whole cache."""

    supported_kv_cache_dtypes: ClassVar[List[str]] = ["auto", *SIXTEEN_BITS, *EIGHT_BITS]

    @staticmethod
    def get_impl_cls() -> type:
        return AttnjitMLAImpl

    @staticmethod
    def get_builder_cls() -> type:
        return AttnjitMLAMetadataBuilder

    @classmethod
    def supports_non_causal(cls) -> bool:
        return True

    @classmethod
    def supports_combination(cls, head_size: int, dtype: torch.dtype, kv_cache_dtype: Any,
                             block_size: Optional[int], use_mla: bool, has_sink: bool,
                             use_sparse: bool, use_mm_prefix: bool,
                             device_capability: Any) -> Optional[str]:
        if use_sparse or not use_mla:
            return None
        return _why_no_kernel(device_capability, dtype, head_size, kv_cache_dtype, block_size,
                              mask="causal")


@dataclass
class AttnjitMLADecodeMetadata(MLACommonDecodeMetadata):
    """What the layers of a step's decodes share."""

    query_start_loc: torch.Tensor
    max_query_len: int
    max_seq_len: int
    rows_each: int  #: rows that each request has; 0: they differ


class AttnjitMLAMetadataBuilder(MLACommonMetadataBuilder[MLACommonMetadata]):
    """Hands on what vLLM has of its decodes: the kernels read lengths and tables on the device."""

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH
    query_len_support: ClassVar[QueryLenSupport] = QueryLenSupport.VARLEN
    supports_non_causal_multi_token_decode: ClassVar[bool] = True
    supports_non_causal_multi_token_dcp: ClassVar[bool] = True

    def __init__(self, kv_cache_spec: Any, layer_names: List[str], vllm_config: Any,
                 device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device,
                         supports_dcp_with_varlen=True)
        speculative = vllm_config.speculative_config
        # NOTE: adaptive verification trims rows on the device.
        adaptive = bool(getattr(speculative, "enable_adaptive_verification", False))
        layers = vllm_config.compilation_config.static_forward_context
        say_start(_arch(), layers.values(), REFUSED)
        for name in layer_names:
            impl = layers[name].impl
            impl.configure(vllm_config, self.reorder_batch_threshold)
            server = _server(impl, kv_cache_spec, self.model_config, vllm_config,
                             drafts=max_decode_query_len(vllm_config) - 1, rows_differ=adaptive)
            self._decode_rows = decode_rows(server)
            vllm_service.ask(vllm_specs(_layer(impl), server, impl.dcp_rank))
            if self.non_causal_multi_token_decode:
                vllm_service.ask(non_causal_specs(_layer(impl), server))
        # Between drafts in a graph lengths and tables are read on the device. NOTE: those of ranks
        # that share a cache are not advanced.
        self.supports_draft_decode_metadata_update = self.dcp_world_size == 1

    def update_draft_decode_metadata(self, metadata: MLACommonMetadata) -> None:
        """There is nothing to update."""

    @classmethod
    def get_varlen_cudagraph_max_query_len(cls, vllm_config: Any,
                                           kv_cache_spec: Any) -> Optional[int]:
        return max_decode_query_len(vllm_config)

    def _build_decode(self, block_table_tensor: torch.Tensor, seq_lens_device: torch.Tensor,
                      max_seq_len: int, query_start_loc_cpu: torch.Tensor,
                      query_start_loc_device: torch.Tensor, num_decode_tokens: int,
                      max_query_len: int,
                      dcp_tot_seq_lens_device: Optional[torch.Tensor]) -> AttnjitMLADecodeMetadata:
        requests = seq_lens_device.shape[0]
        rows = rows_of_each(_Batch(query_start_loc_cpu, requests, num_decode_tokens,
                                   max_query_len), self._decode_rows)
        return AttnjitMLADecodeMetadata(
            block_table=block_table_tensor, seq_lens=seq_lens_device,
            dcp_tot_seq_lens=dcp_tot_seq_lens_device, query_start_loc=query_start_loc_device,
            max_query_len=int(max_query_len), max_seq_len=int(max_seq_len), rows_each=rows)


@dataclass
class _Batch:
    """The part of a batch that rows_of_each() asks about."""

    query_start_loc_cpu: torch.Tensor
    num_reqs: int
    num_actual_tokens: int
    max_query_len: int


def _cannot(alibi_slopes: Any, sliding_window: Any, logits_soft_cap: Any, attn_type: str) -> None:
    for holds, text in ((alibi_slopes is not None, "ALiBi"), (logits_soft_cap, "a softcap"),
                        (attn_type != AttentionType.DECODER, f"attention of type {attn_type}"),
                        (sliding_window is not None, "a window")):
        if holds:
            raise NotImplementedError(f"attnjit: {text} beside MLA is not served in vLLM")


def _layer(impl: Any, topk: int = 0) -> Layer:
    """What the kernels that a layer asks for depend on."""
    return Layer(impl.num_heads, impl.num_heads, impl.qk_head_dim, impl.v_head_dim,
                 latent=impl.kv_lora_rank, rope=impl.head_size - impl.kv_lora_rank, topk=topk)


def _server(impl: Any, kv_cache_spec: Any, model: Any, vllm_config: Any, **more: Any) -> Server:
    return Server(_arch() or "sm_90a", _DTYPES[model.dtype], kv_cache_spec.block_size,
                  impl.kv_cache_dtype, partition_keys=impl._partition_keys,
                  sharing=impl.dcp_world_size,
                  interleave=vllm_config.parallel_config.cp_kv_cache_interleave_size, **more)


def _said(impl: Any) -> str:
    """A layer in a line of the log."""
    cache = "" if impl.kv_cache_dtype in ("auto", *SIXTEEN_BITS) else f" of {impl.kv_cache_dtype}"
    return f"MLA of {impl.num_heads} heads of {impl.head_size}/{impl.kv_lora_rank}{cache}"


def _joined(q: Any) -> torch.Tensor:
    """Queries of both parts, [rows, heads, latent + rope]."""
    if not isinstance(q, tuple):
        return q
    return q[0] if q[1].shape[-1] == 0 else torch.cat(q, dim=-1)


class AttnjitMLAImpl(MLACommonImpl[MLACommonMetadata]):
    """The attention of a layer of MLA that sees its whole cache."""

    can_return_lse_for_decode: bool = True
    supports_dcp: bool = True
    supports_pcp: bool = False
    supports_mtp_with_cp_non_trivial_interleave_size: bool = True

    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: int,
                 alibi_slopes: Any, sliding_window: Any, kv_cache_dtype: str,
                 logits_soft_cap: Any, attn_type: str, kv_sharing_target_layer_name: Any,
                 **mla_args: Any) -> None:
        _cannot(alibi_slopes, sliding_window, logits_soft_cap, attn_type)
        super().__init__(num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window,
                         kv_cache_dtype, logits_soft_cap, attn_type, kv_sharing_target_layer_name,
                         **mla_args)
        self._eight_bits = kv_cache_dtype in EIGHT_BITS
        self.supports_quant_query_input = False  # Q keeps its 16 bits
        self._partition_keys = 0
        self._shared: Optional[Mask] = None
        config = get_current_vllm_config_or_none()
        if config is not None:
            pages.note(config.cache_config)

    def said(self) -> str:
        """The layer in a line of the log."""
        return _said(self)

    def configure(self, vllm_config: Any, rows: int) -> None:
        """What the engine's configuration says of the layer; `rows`: of a request's decode."""
        self._partition_keys = partition_keys(
            vllm_config, self.num_heads * self.dcp_world_size * self.kv_lora_rank,
            vllm_config.scheduler_config.max_num_seqs * rows)
        if self.dcp_world_size > 1:
            self._shared = Mask(interleaved(
                self.dcp_world_size, self.dcp_rank,
                vllm_config.parallel_config.cp_kv_cache_interleave_size))

    def _mask(self, causal: bool, decode: AttnjitMLADecodeMetadata) -> Mask:
        """NOTE: one row of a request sees all that a rank has, and all of it that came before."""
        if not causal:
            return _NO_MASK
        if self._shared is None or decode.max_query_len <= 1:
            return _CAUSAL if self._shared is None else _NO_MASK
        return with_arrays(self._shared, whole=decode.dcp_tot_seq_lens)

    def forward_mqa(self, q: Any, kv_c_and_k_pe_cache: torch.Tensor,
                    attn_metadata: MLACommonMetadata,
                    layer: Any) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        raise_refused()
        decode = attn_metadata.decode
        q, cache = _joined(q), kv_c_and_k_pe_cache
        rows, heads = q.shape[:2]
        out = q.new_empty(rows, heads, self.kv_lora_rank)
        wants_lse = self.need_to_return_lse_for_decode
        shared = dict(out=out, latent=self.kv_lora_rank, max_kv_len=decode.max_seq_len,
                      mask=self._mask(attn_metadata.causal, decode), scale=self.scale,
                      lse=wants_lse, partition_keys=self._partition_keys, service=service(),
                      k_scale=layer._k_scale.view(1) if self._eight_bits else None)
        each = decode.rows_each
        launches[f"mla_rows_{each}" if each else "mla_mixed"] += 1
        if each:
            shape = (rows // each, each, heads)
            shared["out"] = out.view(*shape, -1)
            made = mla_attention(q.view(*shape, -1), cache, decode.block_table, decode.seq_lens,
                                 **shared)
            sums = made[1].transpose(1, 2).reshape(rows, heads) if wants_lse else None
        else:
            made = mla_attention(q, cache, decode.block_table, decode.seq_lens,
                                 q_offsets=decode.query_start_loc,
                                 max_q_len=max(1, decode.max_query_len), **shared)
            sums = made[1].transpose(0, 1) if wants_lse else None
        return out, sums


# --- over lists of keys

class AttnjitSparseMLABackend(_Answers, MLACommonBackend):
    """What vLLM asks of a layer of MLA whose rows see the keys of lists."""

    supported_kv_cache_dtypes: ClassVar[List[str]] = ["auto", *SIXTEEN_BITS, *EIGHT_BITS, DSV32]

    @staticmethod
    def get_impl_cls() -> type:
        return AttnjitSparseMLAImpl

    @staticmethod
    def get_builder_cls() -> type:
        return AttnjitSparseMLAMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> List[Any]:
        return [MultipleOf(64)]  # of the indexer's

    @classmethod
    def customize_spec(cls, spec: Any) -> Any:
        return align_blocks_to_rows(spec)

    @classmethod
    def is_sparse(cls) -> bool:
        return True

    @classmethod
    def supports_combination(cls, head_size: int, dtype: torch.dtype, kv_cache_dtype: Any,
                             block_size: Optional[int], use_mla: bool, has_sink: bool,
                             use_sparse: bool, use_mm_prefix: bool,
                             device_capability: Any) -> Optional[str]:
        if not use_sparse:
            return None
        config = get_current_vllm_config_or_none()
        if config is not None and config.attention_config.hisparse_config is not None:
            return "attnjit: HiSparse, a cache on the host, is not served"
        if kv_cache_dtype == DSV32 and dtype is not torch.bfloat16:
            return f"attnjit: a cache of {DSV32} beside a model of {dtype} is not served"
        return _why_no_kernel(device_capability, dtype, head_size, kv_cache_dtype, block_size,
                              topk=_LIST_STEP)


@dataclass(kw_only=True)
class AttnjitSparseMLAMetadata(SparseMLACommonMetadata):
    """What a step's layers share."""


class AttnjitSparseMLAMetadataBuilder(SparseMLACommonMetadataBuilder[AttnjitSparseMLAMetadata]):
    """Hands on what vLLM has."""

    metadata_cls = AttnjitSparseMLAMetadata
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH

    def __init__(self, kv_cache_spec: Any, layer_names: List[str], vllm_config: Any,
                 device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._init_reorder_batch_threshold(1, supports_spec_as_decode=True)
        layers = vllm_config.compilation_config.static_forward_context
        say_start(_arch(), layers.values(), REFUSED)
        for name in layer_names:
            impl = layers[name].impl
            impl.configure(vllm_config)
            vllm_service.ask(vllm_specs(
                _layer(impl, impl._width),
                _server(impl, kv_cache_spec, self.model_config, vllm_config), impl.dcp_rank))
        self.supports_draft_decode_metadata_update = self.dcp_world_size == 1

    def update_draft_decode_metadata(self, metadata: AttnjitSparseMLAMetadata) -> None:
        """Which request each row is of changes between the steps that a graph of drafts serves."""
        rows = metadata.num_decode_tokens
        if rows:
            compute_token_to_req_indices(metadata.query_start_loc, metadata.req_id_per_token, rows,
                                         rows)


class AttnjitSparseMLAImpl(SparseMLACommonImpl[AttnjitSparseMLAMetadata]):
    """The attention of a layer of MLA whose rows see the keys of lists."""

    can_return_lse_for_decode: bool = True
    supports_dcp: bool = True
    supports_pcp: bool = False

    def __init__(self, num_heads: int, head_size: int, scale: float, num_kv_heads: int,
                 alibi_slopes: Any, sliding_window: Any, kv_cache_dtype: str,
                 logits_soft_cap: Any, attn_type: str, kv_sharing_target_layer_name: Any,
                 topk_indices_buffer: Optional[torch.Tensor] = None, indexer: Any = None,
                 **mla_args: Any) -> None:
        _cannot(alibi_slopes, sliding_window, logits_soft_cap, attn_type)
        super().__init__(num_heads, head_size, scale, num_kv_heads, alibi_slopes, sliding_window,
                         kv_cache_dtype, logits_soft_cap, attn_type, kv_sharing_target_layer_name,
                         indexer=indexer, topk_indices_buffer=topk_indices_buffer, **mla_args)
        if self.topk_indices_buffer is None:
            raise NotImplementedError("attnjit: a layer with lists of keys and without an indexer "
                                      "or its buffer is not served")
        self._width = self.topk_indices_buffer.shape[-1]
        if self._width % _LIST_STEP:
            raise NotImplementedError(f"attnjit: lists of {self._width} keys are not served: only "
                                      f"of a multiple of {_LIST_STEP}")
        self._eight_bits = kv_cache_dtype in EIGHT_BITS
        self._dsv32 = kv_cache_dtype == DSV32
        self.supports_quant_query_input = False
        self._partition_keys = 0

    def said(self) -> str:
        """The layer in a line of the log."""
        return f"{_said(self)}, over lists of {self._width} keys"

    def configure(self, vllm_config: Any) -> None:
        """What the engine's configuration says of the layer."""
        if envs.VLLM_BATCH_INVARIANT:
            self._partition_keys = INVARIANT_LIST

    def _forward_mqa_kernel(self, q: Any, kv_cache: torch.Tensor, topk_indices: torch.Tensor,
                            valid_counts: torch.Tensor, *, layer: Any, block_size: int,
                            is_decode: bool) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        raise_refused()
        launches["mla_lists"] += 1
        q = _joined(q)
        # NOTE: a list's index counts rows of the whole memory, blocks of other layers among them.
        rows, _ = flat_kv_row_view(kv_cache, block_size)
        if self._eight_bits:
            rows = rows.view(torch.float8_e4m3fn)
        page = block_size if rows.shape[0] % block_size == 0 else 1
        whole = rows.view(-1, page, rows.shape[-1])
        out = q.new_empty(*q.shape[:-1], self.kv_lora_rank)
        made = self._call(q, whole, topk_indices, layer, out)
        if not self.need_to_return_lse_for_decode:
            return out, None
        return out, made[1][..., 0]  # [rows, heads]

    def _call(self, q: torch.Tensor, cache: torch.Tensor, lists: torch.Tensor, layer: Any,
              out: torch.Tensor, **more: Any) -> Any:
        return mla_attention(q, cache, None, None, latent=self.kv_lora_rank, out=out, mask=None,
                             topk_indices=lists, scale=self.scale, service=service(),
                             lse=self.need_to_return_lse_for_decode,
                             partition_keys=self._partition_keys,
                             k_scale=layer._k_scale.view(1) if self._eight_bits else None, **more)

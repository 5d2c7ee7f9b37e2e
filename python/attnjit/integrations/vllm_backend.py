# SPDX-License-Identifier: Apache-2.0
"""The backend that attnjit.integrations.vllm registers, after the interface of vLLM 0.33.

vLLM writes the cache; the kernels read each layout of it through its strides. One kernel serves
batches of prompts and decodes, another one batches of decodes alone. A cache of fp8 is e4m3; Q
keeps its type beside it where a kernel takes that, and elsewhere vLLM is asked to quantise it.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Dict, List, Optional, Tuple

import torch
from vllm.v1.attention.backend import (AttentionBackend, AttentionCGSupport, AttentionImpl,
                                       AttentionMetadata, AttentionMetadataBuilder, AttentionType,
                                       CommonAttentionMetadata, MultipleOf)

from .. import Service, paged_attention
from ._specs import eight_bit_cache, sliding_window as window_mask, why_not

_ARCHITECTURES = {(9, 0): "sm_90a", (10, 0): "sm_100a", (10, 3): "sm_103a"}
_DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16"}
_EIGHT_BITS = ("fp8", "fp8_e4m3")  # of vLLM's names of a cache's types: those of e4m3
_SIXTEEN_BITS = {"float16": torch.float16, "bfloat16": torch.bfloat16}
_LEAST_PAGE = 16


def layer_options(sliding_window: Optional[int], soft_cap: Optional[float],
                  causal: bool) -> Dict[str, Any]:
    """The mask and the score modification of a layer."""
    mask: Any = "causal" if causal else None
    if sliding_window is not None and causal:
        mask = window_mask(sliding_window)
    score_mod = {"kind": "softcap", "cap": float(soft_cap)} if soft_cap else None
    return {"mask": mask, "score_mod": score_mod}


def why_no_cache(kv_cache_dtype: str, dtype: Optional[torch.dtype] = None) -> Optional[str]:
    """Why the kernels do not read such a cache, of a model of `dtype`; None: they do."""
    of_the_model = (kv_cache_dtype == "auto" or kv_cache_dtype in _SIXTEEN_BITS
                    and dtype in (None, _SIXTEEN_BITS[kv_cache_dtype]))
    if of_the_model or kv_cache_dtype in _EIGHT_BITS:
        return None
    return (f"attnjit: a cache of {kv_cache_dtype} is not served: only of the model's type, and of "
            "fp8_e4m3 with scales of tensors or of heads")


def _arch() -> Optional[str]:
    """The architecture of this process's GPU; None: one that the kernels do not serve."""
    from vllm.platforms import current_platform

    capability = current_platform.get_device_capability()
    return None if capability is None else _ARCHITECTURES.get((capability.major, capability.minor))


_services: List[Service] = []  # of this process: at most one
_refused: List[RuntimeError] = []  # what vLLM's JIT monitor raised, for the next step to raise


def service() -> Service:
    """The Service of all layers. vLLM's JIT monitor hears of its compiles."""
    if not _services or _services[0].forked:
        _services[:] = [Service(on_compile=_tell_monitor)]
    return _services[0]


def _tell_monitor(event: Dict[str, Any]) -> None:
    from vllm.utils import jit_monitor

    if not jit_monitor.is_active():  # vLLM still warms up
        return
    try:
        jit_monitor._handle_jit_event(
            backend="attnjit", event="kernel compilation", fn_name=event["key"][:12],
            detail=f"{event['arch']}, {event['compile_ms']:.0f} ms")
    except RuntimeError as error:  # NOTE: this thread compiles, and nobody would hear of it
        _refused.append(error)


class AttnjitBackend(AttentionBackend):
    """What vLLM asks before it chooses a backend for a group of layers."""

    accept_output_buffer: bool = True
    forward_includes_kv_cache_update: bool = False
    supported_dtypes: ClassVar[List[torch.dtype]] = list(_DTYPES)
    supported_kv_cache_dtypes: ClassVar[List[str]] = ["auto", *_SIXTEEN_BITS, *_EIGHT_BITS]

    @staticmethod
    def get_name() -> str:
        return "ATTNJIT"

    @staticmethod
    def get_impl_cls() -> type:
        return AttnjitImpl

    @staticmethod
    def get_builder_cls() -> type:
        return AttnjitMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> List[Any]:
        return [MultipleOf(_LEAST_PAGE)]

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        deep = head_size % 64 == 0 and head_size <= 512  # where the plan serves it
        return head_size >= 8 and (deep or (head_size % 8 == 0 and head_size <= 256))

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_non_causal(cls) -> bool:
        return True

    @classmethod
    def supports_per_head_quant_scales(cls) -> bool:
        return True

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        return (capability.major, capability.minor) in _ARCHITECTURES

    @classmethod
    def supports_combination(cls, head_size: int, dtype: torch.dtype, kv_cache_dtype: Any,
                             block_size: Optional[int], use_mla: bool, has_sink: bool,
                             use_sparse: bool, use_mm_prefix: bool,
                             device_capability: Any) -> Optional[str]:
        arch = _ARCHITECTURES.get((device_capability.major, device_capability.minor))
        if arch is None or dtype not in _DTYPES or use_mla or use_sparse or use_mm_prefix:
            return None  # the other questions give the reason
        if kv_cache_dtype is not None and why_no_cache(kv_cache_dtype, dtype) is not None:
            return why_no_cache(kv_cache_dtype, dtype)
        fields: Dict[str, Any] = dict(arch=arch, num_q_heads=8, group=4, qk_depth=head_size,
                                      page_size=block_size or _LEAST_PAGE, ragged=True,
                                      sink=has_sink, mask="causal")
        reason = why_not(**(eight_bit_cache(_DTYPES[dtype], **fields)
                            if kv_cache_dtype in _EIGHT_BITS
                            else {**fields, "qkv_dtype": _DTYPES[dtype]}))
        return None if reason is None else f"attnjit: {reason}"


@dataclass
class AttnjitMetadata(AttentionMetadata):
    """What a step's layers share."""

    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    num_actual_tokens: int
    num_reqs: int
    max_query_len: int
    max_seq_len: int
    causal: bool

    @property
    def decodes_alone(self) -> bool:
        """Whether each request has exactly one row, padding requests of a graph among them."""
        return self.max_query_len == 1 and self.num_actual_tokens == self.num_reqs


class AttnjitMetadataBuilder(AttentionMetadataBuilder[AttnjitMetadata]):
    """Hands on what vLLM has: the kernels read lengths and tables on the device."""

    # Bounds on the host and lengths on the device: a graph replays any batch within its bounds.
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.ALWAYS
    supports_update_block_table: bool = True

    def __init__(self, kv_cache_spec: Any, layer_names: List[str], vllm_config: Any,
                 device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        layers = vllm_config.compilation_config.static_forward_context
        for name in layer_names:
            layers[name].impl.prewarm(layers[name], kv_cache_spec.block_size, kv_cache_spec.dtype,
                                      vllm_config.model_config.dtype, device)

    def build(self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata,
              fast_build: bool = False) -> AttnjitMetadata:
        common = common_attn_metadata
        if not isinstance(common.causal, bool):
            raise NotImplementedError("attnjit: requests that differ in being causal are not "
                                      "served in one batch")
        return AttnjitMetadata(common.query_start_loc, common.seq_lens, common.block_table_tensor,
                               common.slot_mapping, common.num_actual_tokens, common.num_reqs,
                               common.max_query_len, common.max_seq_len, common.causal)

    def update_block_table(self, metadata: AttnjitMetadata, blk_table: torch.Tensor,
                           slot_mapping: torch.Tensor) -> AttnjitMetadata:
        from dataclasses import replace
        return replace(metadata, block_table=blk_table, slot_mapping=slot_mapping)


class AttnjitImpl(AttentionImpl[AttnjitMetadata]):
    """The attention of a layer."""

    def __init__(self, num_heads: int, head_size: int, scale: float,
                 num_kv_heads: Optional[int] = None, alibi_slopes: Optional[List[float]] = None,
                 sliding_window: Optional[int] = None, kv_cache_dtype: str = "auto",
                 logits_soft_cap: Optional[float] = None,
                 attn_type: str = AttentionType.DECODER,
                 kv_sharing_target_layer_name: Optional[str] = None,
                 sinks: Optional[torch.Tensor] = None) -> None:
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(f"attnjit: attention of type {attn_type} is not served")
        if alibi_slopes is not None:
            raise NotImplementedError("attnjit: ALiBi is not served in vLLM yet")
        if why_no_cache(kv_cache_dtype) is not None:
            raise NotImplementedError(why_no_cache(kv_cache_dtype))
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.sliding_window, self.soft_cap = sliding_window, logits_soft_cap
        self.kv_cache_dtype = kv_cache_dtype
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.sinks = sinks
        self._options = {causal: layer_options(sliding_window, logits_soft_cap, causal)
                         for causal in (True, False)}
        self._eight_bits = kv_cache_dtype in _EIGHT_BITS
        # vLLM hands Q over in e4m3 where this says so.
        self.supports_quant_query_input = (self._eight_bits
                                           and self._fields()["qkv_dtype"] == "e4m3")

    def _fields(self) -> Dict[str, Any]:
        """The layer's spec, as far as which types go together hangs on it."""
        fields = dict(arch=_arch() or "sm_90a", num_q_heads=self.num_heads,
                      group=self.num_heads // self.num_kv_heads, qk_depth=self.head_size,
                      page_size=_LEAST_PAGE, ragged=True, sink=self.sinks is not None)
        return (eight_bit_cache("bf16", **fields) if self._eight_bits
                else {**fields, "qkv_dtype": "bf16"})

    def fused_output_quant_supported(self, quant_key: Any) -> bool:
        """Whether the kernels write what vLLM would quantise after them."""
        from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8StaticTensorSym

        return (quant_key == kFp8StaticTensorSym
                and why_not(**{**self._fields(), "output_dtype": "e4m3"}) is None)

    def _halves(self, kv_cache: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """[pages, page_size, kv_heads, depth] of keys and of values, of vLLM's
        [pages, kv_heads, page_size, 2 depth] in whichever layout."""
        keys, values = kv_cache.transpose(1, 2).split(self.head_size, dim=-1)
        return keys, values

    def _caches(self, kv_cache: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """The same in the type of their elements: vLLM's own is bytes for those of fp8."""
        return self._halves(kv_cache.view(torch.float8_e4m3fn) if self._eight_bits else kv_cache)

    def _scales(self, layer: Any, query: torch.Tensor, requests: int) -> Dict[str, torch.Tensor]:
        """The scales of what is e4m3. vLLM has one number, or one for each head of K and V."""
        if not self._eight_bits:
            return {}
        scales = {"k_scale": layer._k_scale, "v_scale": layer._v_scale}
        if query.dtype is torch.float8_e4m3fn:
            scales["q_scale"] = layer._q_scale
        if all(scale.numel() == 1 for scale in scales.values()):
            return {name: scale.view(1) for name, scale in scales.items()}
        heads = {name: scale.view(-1).expand(self.num_kv_heads) for name, scale in scales.items()}
        if "q_scale" in heads:
            heads["q_scale"] = heads["q_scale"].repeat_interleave(
                self.num_heads // self.num_kv_heads)
        return {name: scale.expand(requests, -1).contiguous() for name, scale in heads.items()}

    def forward(self, layer: Any, query: torch.Tensor, key: Optional[torch.Tensor],
                value: Optional[torch.Tensor], kv_cache: torch.Tensor,
                attn_metadata: Optional[AttnjitMetadata], output: torch.Tensor,
                output_scale: Optional[torch.Tensor] = None,
                output_block_scale: Optional[torch.Tensor] = None) -> torch.Tensor:
        if output_block_scale is not None:
            raise NotImplementedError("attnjit: an output with scales of blocks is not served")
        if _refused:
            raise _refused.pop()
        if attn_metadata is None:  # vLLM measures memory
            return output.fill_(0)
        metadata, rows = attn_metadata, attn_metadata.num_actual_tokens
        keys, values = self._caches(kv_cache)
        q = query[:rows].view(rows, self.num_heads, self.head_size)
        out = output[:rows].view(rows, self.num_heads, self.head_size)
        sinks = None if self.sinks is None else self.sinks.float()
        shared = dict(out=out, service=service(), scale=self.scale, sink=sinks,
                      output_scale=output_scale, max_kv_len=metadata.max_seq_len,
                      **self._options[metadata.causal],
                      **self._scales(layer, query, metadata.num_reqs))
        if metadata.decodes_alone:
            paged_attention(q, keys, values, metadata.block_table, metadata.seq_lens, **shared)
        else:
            paged_attention(q, keys, values, metadata.block_table, metadata.seq_lens,
                            q_offsets=metadata.query_start_loc,
                            max_q_len=metadata.max_query_len, **shared)
        return output

    def do_kv_cache_update(self, layer: Any, key: torch.Tensor, value: torch.Tensor,
                           kv_cache: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Writes this step's keys and values, by vLLM's own operator."""
        from vllm.v1.attention.backends.fa_utils import reshape_and_cache_flash

        keys, values = self._halves(kv_cache)
        reshape_and_cache_flash(key, value, keys, values, slot_mapping, self.kv_cache_dtype,
                                layer._k_scale, layer._v_scale)

    def prewarm(self, layer: Any, block_size: int, cache_dtype: torch.dtype, dtype: torch.dtype,
                device: torch.device) -> None:
        """Compiles the layer's kernels in the background, by calls on one empty request."""
        keys, values = self._caches(torch.zeros(1, self.num_kv_heads, block_size,
                                                2 * self.head_size, dtype=cache_dtype,
                                                device=device))
        out = torch.zeros(1, self.num_heads, self.head_size, dtype=dtype, device=device)
        q = out.to(torch.float8_e4m3fn) if self.supports_quant_query_input else out
        table, lens = (torch.zeros(shape, dtype=torch.int32, device=device)
                       for shape in ((1, 1), (1,)))
        offsets = torch.zeros(2, dtype=torch.int32, device=device)
        sinks = None if self.sinks is None else self.sinks.float()
        shared = dict(out=out, service=service(), scale=self.scale, sink=sinks,
                      meanwhile=lambda: None, **self._options[True], **self._scales(layer, q, 1))
        paged_attention(q, keys, values, table, lens, **shared)
        paged_attention(q, keys, values, table, lens, q_offsets=offsets, max_q_len=1, **shared)

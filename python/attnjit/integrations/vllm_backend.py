# SPDX-License-Identifier: Apache-2.0
"""The backend that attnjit.integrations.vllm registers, after the interface of vLLM 0.33.

vLLM writes the cache; the kernels read each layout of it through its strides. One kernel serves
batches of prompts and decodes, another one batches whose requests have as many rows each. A cache
of fp8 is e4m3. In decodes Q keeps its type beside it where a kernel takes that, and elsewhere vLLM
is asked to quantise it; that of prompts is quantised here. Layers of MLA are served by vllm_mla.
"""
from __future__ import annotations

import copy
import weakref
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Collection, Dict, List, Optional, Tuple

import torch
import vllm.envs as envs
from vllm.config import get_current_vllm_config_or_none
from vllm.utils.torch_utils import canonicalize_singleton_dim_strides
from vllm.v1.attention.backend import (AttentionBackend, AttentionCGSupport, AttentionImpl,
                                       AttentionMetadata, AttentionMetadataBuilder, AttentionType,
                                       CommonAttentionMetadata, MultipleOf)
from vllm.v1.attention.backends.utils import fill_mm_prefix_query_ranges, get_dcp_local_seq_lens
from vllm.v1.kv_cache_interface import KVQuantMode

from .. import Mask, ScoreMod, alibi, attention, paged_attention
from . import _layers, vllm_service
from ._layers import (EIGHT_BITS, SHARED_ALONE, SIXTEEN_BITS, TOKEN_SCALES, Layer, Server, decode_rows,
                      invariant_keys, mask_of, non_causal_specs, types_of, vllm_specs)
from ._specs import eight_bit_cache, why_not
from .vllm_service import launches, raise_refused, say_start, service

_ARCHITECTURES = {(9, 0): "sm_90a", (10, 0): "sm_100a", (10, 3): "sm_103a"}
_DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16"}
_LEAST_PAGE = 16
_PREFERRED = (_LEAST_PAGE, 64)  # rows of a page of layers, and of those of MLA: a tile's
_ENCODERS = (AttentionType.ENCODER, AttentionType.ENCODER_ONLY)
#: What the start's line says, and docs/vllm.md.
REFUSED = ("caches of 8 bits but e4m3 with scales of tensors, heads or tokens, caches of 4 bits, "
           "prefill context parallelism, HiSparse, windows and sinks beside MLA or decode context "
           "parallelism")


_NO_MASK, _CAUSAL = Mask("null"), Mask("causal")


def with_arrays(mask: Mask, **arrays: torch.Tensor) -> Mask:
    """A mask over these arrays."""
    return Mask(mask.spec, arrays, None, mask.json) if mask.declared else mask


# --- what the kernels serve

def why_no_cache(kv_cache_dtype: str, dtype: Optional[torch.dtype] = None) -> Optional[str]:
    """Why the kernels do not read such a cache, of a model of `dtype`; None: they do."""
    reason = _layers.why_no_cache(kv_cache_dtype, None if dtype is None else _DTYPES.get(dtype))
    return None if reason is None else f"attnjit: {reason}"


def _arch() -> Optional[str]:
    """The architecture of this process's GPU; None: one that the kernels do not serve."""
    from vllm.platforms import current_platform

    capability = current_platform.get_device_capability()
    return None if capability is None else _ARCHITECTURES.get((capability.major, capability.minor))


def partition_keys(vllm_config: Any, elements: int, rows: int) -> int:
    """The keys of a part in batch-invariant mode (invariant_keys), else 0."""
    if not envs.VLLM_BATCH_INVARIANT:
        return 0
    return invariant_keys(elements, rows, vllm_config.model_config.max_model_len)


class _Pages:
    """The rows of the pages that kernels read.

    vLLM makes pages longer, to fit them to layers of other kinds (Mamba, other heads), by how much
    depends on all of them. There kernels read the pages that the engine was asked for, as manifests
    have them.
    """

    def __init__(self) -> None:
        self._config: Any = None  # of the cache of this process's engine
        self._asked: Tuple[int, int] = _PREFERRED

    def note(self, cache_config: Any) -> None:
        """While layers are made, which is before vLLM changes the configuration's pages."""
        given = getattr(cache_config, "user_specified_block_size", False)
        if cache_config is not self._config:
            self._asked = (cache_config.block_size,) * 2 if given else _PREFERRED
        self._config = cache_config

    def asked(self, of_mla: bool = False) -> int:
        return self._asked[of_mla]

    def served(self, kv_cache_spec: Any, of_mla: bool = False) -> List[Any]:
        """What vLLM may choose from. NOTE: pages with gaps, or other layers', behind them are not
        split."""
        rows, page = getattr(kv_cache_spec, "block_size", 0), self._asked[of_mla]
        layout = getattr(self._config, "kv_cache_layout", None) or ""
        splits = layout.startswith("L") and getattr(kv_cache_spec, "page_size_padded", None) is None
        return [page if splits and rows > page and rows % page == 0 else MultipleOf(_LEAST_PAGE)]


pages = _Pages()


class _Content:
    """Where the parts of a token's row of a head begin, in bytes, in a cache with scales of tokens:
    K, V, and a scale of each. TMA wants K and V, and rows, at multiples of 16."""

    def __init__(self, depth: int) -> None:
        self.v = -(-depth // 16) * 16
        self.scales = -(-(self.v + depth) // 4) * 4
        self.bytes = -(-(self.scales + 8) // 16) * 16


class AttnjitBackend(AttentionBackend):
    """What vLLM asks before it chooses a backend for a group of layers."""

    accept_output_buffer: bool = True
    forward_includes_kv_cache_update: bool = False
    supports_kv_cache_update_bypass: bool = True
    supported_dtypes: ClassVar[List[torch.dtype]] = list(_DTYPES)
    supported_kv_cache_dtypes: ClassVar[List[str]] = ["auto", *SIXTEEN_BITS, *EIGHT_BITS,
                                                      TOKEN_SCALES]

    @staticmethod
    def get_name() -> str:
        return "ATTNJIT"

    @classmethod
    def customize_spec(cls, spec: Any) -> Any:
        """Room for the scales of tokens, where a cache has them."""
        if (spec.state_content_bytes is not None
                or spec.kv_quant_mode != KVQuantMode.FP8_PER_TOKEN_HEAD):
            return spec
        if spec.head_size_v != spec.head_size:
            raise NotImplementedError(f"attnjit: {TOKEN_SCALES} is not served where V's depth is "
                                      "not K's")
        return replace(spec, state_content_bytes=_Content(spec.head_size).bytes)

    @staticmethod
    def get_impl_cls() -> type:
        return AttnjitImpl

    @staticmethod
    def get_builder_cls() -> type:
        return AttnjitMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> List[Any]:
        return pages.served(kv_cache_spec)

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
    def supports_rswa(cls) -> bool:
        return True

    @classmethod
    def supports_mm_prefix(cls) -> bool:
        return True

    @classmethod
    def supports_non_causal(cls) -> bool:
        return True

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True

    @classmethod
    def supports_per_head_quant_scales(cls) -> bool:
        return True

    @classmethod
    def supports_attn_type(cls, attn_type: str) -> bool:
        return attn_type in (AttentionType.DECODER, AttentionType.ENCODER_DECODER, *_ENCODERS)

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        return (capability.major, capability.minor) in _ARCHITECTURES

    @classmethod
    def supports_combination(cls, head_size: int, dtype: torch.dtype, kv_cache_dtype: Any,
                             block_size: Optional[int], use_mla: bool, has_sink: bool,
                             use_sparse: bool, use_mm_prefix: bool,
                             device_capability: Any) -> Optional[str]:
        arch = _ARCHITECTURES.get((device_capability.major, device_capability.minor))
        if arch is None or dtype not in _DTYPES or use_mla or use_sparse:
            return None  # the other questions give the reason
        if kv_cache_dtype is not None and why_no_cache(kv_cache_dtype, dtype) is not None:
            return why_no_cache(kv_cache_dtype, dtype)
        mask = mask_of(None, True, "free" if use_mm_prefix else "")
        fields: Dict[str, Any] = dict(arch=arch, num_q_heads=8, group=4, qk_depth=head_size,
                                      page_size=block_size or _LEAST_PAGE, ragged=True,
                                      sink=has_sink, mask=mask)
        if envs.VLLM_BATCH_INVARIANT:
            fields["partition_keys"] = 384
        by_token = {"kv_dtype": "e4m3", "scales": "token"} if kv_cache_dtype == TOKEN_SCALES else {}
        reason = why_not(**(eight_bit_cache(_DTYPES[dtype], **fields)
                            if kv_cache_dtype in EIGHT_BITS
                            else {**fields, "qkv_dtype": _DTYPES[dtype], **by_token}))
        return None if reason is None else f"attnjit: {reason}"


class AttnjitSelector(AttnjitBackend):
    """What the member of vLLM's enumeration names: for a layer of MLA another class serves."""

    _selected: ClassVar[type] = AttnjitBackend

    @classmethod
    def validate_configuration(cls, head_size: int, *args: Any, **more: Any) -> List[str]:
        names = ("dtype", "kv_cache_dtype", "block_size", "use_mla", "has_sink", "use_sparse")
        asked = {**dict(zip(names, args)), **more}
        selected: type = AttnjitBackend
        if asked.get("use_mla"):
            from .vllm_mla import AttnjitMLABackend, AttnjitSparseMLABackend

            selected = AttnjitSparseMLABackend if asked.get("use_sparse") else AttnjitMLABackend
        AttnjitSelector._selected = selected
        return selected.validate_configuration(head_size, *args, **more)

    @classmethod
    def full_cls_name(cls) -> Tuple[str, str]:
        """NOTE: vLLM finds the class by it, right after it has validated a layer's wishes."""
        return AttnjitSelector._selected.full_cls_name()


# --- what a step's layers share

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
    causal: Any  #: a bool, or i32 of each request
    rows_each: int = 0  #: rows that each request has; 0: they differ, or are no decode's
    #: Of each row the first and last key of its image, or -1. NOTE: Gemma 4 takes it away by this
    #: name from the layers that do not see images whole.
    mm_prefix_query_range_tensor: Optional[torch.Tensor] = None
    prefix_lens: Optional[torch.Tensor] = None  #: of each request its prompt's
    context_lens: Optional[torch.Tensor] = None  #: of each request the keys of this rank's cache
    max_context_len: int = 0


def rows_of_each(common: CommonAttentionMetadata, served: Collection[int]) -> int:
    """The rows that each request has, where they are as many, and among `served`; else 0.

    Requests that pad a graph come last and have none; their keys are none, too.
    """
    rows = int(common.max_query_len)
    if rows not in served or common.num_actual_tokens != common.num_reqs * rows:
        return 0
    starts = common.query_start_loc_cpu[:common.num_reqs + 1].tolist()
    last = starts[-1]
    alike = last % rows == 0 and all(start == min(i * rows, last)
                                     for i, start in enumerate(starts))
    return rows if alike else 0


def server_of(vllm_config: Any, page_size: int) -> Server:
    """The engine's options, as far as all layers' kernels depend on them."""
    speculative = getattr(vllm_config, "speculative_config", None)
    # NOTE: adaptive verification trims rows on the device.
    return Server(_arch() or "sm_90a", _DTYPES[vllm_config.model_config.dtype], page_size,
                  drafts=getattr(speculative, "num_speculative_tokens", None) or 0,
                  rows_differ=bool(getattr(speculative, "enable_adaptive_verification", False)))


class AttnjitMetadataBuilder(AttentionMetadataBuilder[AttnjitMetadata]):
    """Hands on what vLLM has: the kernels read lengths and tables on the device."""

    # Bounds on the host and lengths on the device: a graph replays any batch within its bounds.
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.ALWAYS

    def __init__(self, kv_cache_spec: Any, layer_names: List[str], vllm_config: Any,
                 device: torch.device) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        layers = vllm_config.compilation_config.static_forward_context
        server = server_of(vllm_config, getattr(kv_cache_spec, "block_size", _LEAST_PAGE))
        # In batch-invariant mode one kernel gives a row the same bits in any batch.
        self._decode_rows = () if envs.VLLM_BATCH_INVARIANT else decode_rows(server)
        model, scheduler = vllm_config.model_config, getattr(vllm_config, "scheduler_config", None)
        self._image = None
        if getattr(model, "is_mm_prefix_lm", False):
            self._image = torch.empty((scheduler.max_num_batched_tokens, 2), dtype=torch.int32,
                                      device=device)
        self._prefix_lens = None
        if getattr(model, "rswa_window", None) is not None:
            self._prefix_lens = torch.zeros(scheduler.max_num_seqs, dtype=torch.int32,
                                            device=device)
        self._world, self._rank = _context_parallel(kv_cache_spec)
        self._context_lens = None
        if self._world > 1:
            self._interleave = vllm_config.parallel_config.cp_kv_cache_interleave_size
            self._context_lens = torch.zeros(scheduler.max_num_seqs, dtype=torch.int32,
                                             device=device)
        diffuses = getattr(vllm_config, "diffusion_config", None) is not None
        if diffuses and self._world > 1:
            raise NotImplementedError("attnjit: decode context parallelism does not serve requests "
                                      "that differ in being causal (diffusion)")
        say_start(_arch(), layers.values(), REFUSED)
        for name in layer_names:
            impl = layers[name].impl
            impl.configure(vllm_config)
            asked = impl.asked(layers[name], server)
            vllm_service.ask(vllm_specs(*asked))
            if impl.sees_ahead or getattr(kv_cache_spec, "non_causal", False):
                vllm_service.ask(non_causal_specs(*asked))
            if diffuses:
                vllm_service.ask(non_causal_specs(*asked, by_request=True))
        self._sinks = _Sinks([layers[name].impl for name in layer_names])
        # What a step is built of beside lengths and tables does not change between drafts' steps.
        self.supports_draft_decode_metadata_update = self._world == 1 and self._prefix_lens is None
        # NOTE: vLLM would hand on the metadata of another microbatch.
        self.supports_update_block_table = not vllm_config.parallel_config.use_ubatching

    @classmethod
    def get_cudagraph_support(cls, vllm_config: Any, kv_cache_spec: Any) -> AttentionCGSupport:
        if getattr(vllm_config.model_config, "is_mm_prefix_lm", False):
            # NOTE: a graph has no mask of images. One row sees nothing ahead; but an image that
            # reaches over a window is seen behind it.
            layers = vllm_config.compilation_config.static_forward_context.values()
            over = any(getattr(layer, "sliding_window", None) is not None
                       and not getattr(layer, "mm_prefix_clamp_sliding_window", False)
                       for layer in layers)
            return (AttentionCGSupport.NEVER if over
                    else AttentionCGSupport.UNIFORM_SINGLE_TOKEN_DECODE)
        return cls._cudagraph_support

    def build(self, common_prefix_len: int, common_attn_metadata: CommonAttentionMetadata,
              fast_build: bool = False) -> AttnjitMetadata:
        common = common_attn_metadata
        causal = common.causal
        self._sinks.convert()
        if isinstance(causal, torch.Tensor) and causal.dtype is not torch.int32:
            raise ValueError(f"attnjit: requests' causal flags are of {causal.dtype}, not int32")
        made = AttnjitMetadata(
            common.query_start_loc, common.seq_lens, common.block_table_tensor, common.slot_mapping,
            int(common.num_actual_tokens), int(common.num_reqs), int(common.max_query_len),
            int(common.max_seq_len), causal,
            # NOTE: one kernel serves requests that differ in being causal.
            0 if isinstance(causal, torch.Tensor) else rows_of_each(common, self._decode_rows))
        if self._image is not None and common.mm_req_doc_ranges is not None:
            # NOTE: of each step its own, as the step before may not have been copied yet.
            staged = torch.empty((made.num_actual_tokens, 2), dtype=torch.int32, device="cpu",
                                 pin_memory=self.device.type == "cuda")
            rows = fill_mm_prefix_query_ranges(
                staged.numpy(), common.mm_req_doc_ranges, common.query_start_loc_cpu,
                common.seq_lens_cpu_upper_bound)
            if rows > 0:
                made.mm_prefix_query_range_tensor = self._image[:rows].copy_(
                    staged[:rows], non_blocking=True)
        if self._prefix_lens is not None and common.rswa_prefix_lens is not None:
            made.prefix_lens = self._prefix_lens[:made.num_reqs]
            made.prefix_lens.copy_(common.rswa_prefix_lens[:made.num_reqs], non_blocking=True)
        if self._context_lens is not None:
            rows = common.query_start_loc[1:] - common.query_start_loc[:-1]
            made.context_lens = self._context_lens[:made.num_reqs]
            made.context_lens.copy_(get_dcp_local_seq_lens(
                common.seq_lens - rows, self._world, self._rank, self._interleave))
            whole = self._world * self._interleave
            made.max_context_len = -(-made.max_seq_len // whole) * self._interleave
        return made

    def update_block_table(self, metadata: AttnjitMetadata, blk_table: torch.Tensor,
                           slot_mapping: torch.Tensor) -> AttnjitMetadata:
        self._sinks.convert()
        moved = copy.copy(metadata)  # NOTE: vLLM's own builders around this one add to it
        moved.block_table, moved.slot_mapping = blk_table, slot_mapping
        return moved

    def build_for_cudagraph_capture(
            self, common_attn_metadata: CommonAttentionMetadata) -> AttnjitMetadata:
        """NOTE: a graph that serves mixed batches, too, has a batch of one request with as many
        rows as tokens, and is replayed with fewer."""
        made = self.build(0, common_attn_metadata)
        if not self.vllm_config.compilation_config.cudagraph_mode.separate_routine() and (
                made.rows_each > 1):
            made.rows_each = 0
        return made

    def update_draft_decode_metadata(self, metadata: AttnjitMetadata) -> None:
        """Between drafts in a graph: lengths and tables are read on the device."""
        self._sinks.convert()


class _Sinks:
    """The sinks of a group of layers, which the kernels read in f32.

    NOTE: they are converted before each step, and not once: weights may be loaded again. One kernel
    outside of the graph does it for all layers.
    """

    def __init__(self, impls: List[Any]) -> None:
        others = [impl for impl in impls
                  if impl.sinks is not None and impl.sinks.dtype is not torch.float32]
        for impl in others:  # NOTE: builders of microbatches share them
            if impl.sinks_f32 is impl.sinks:
                impl.sinks_f32 = impl.sinks.float()
        self._given = [impl.sinks for impl in others]
        self._made = [impl.sinks_f32 for impl in others]

    def convert(self) -> None:
        if self._made:
            torch._foreach_copy_(self._made, self._given)


def _context_parallel(kv_cache_spec: Any) -> Tuple[int, int]:
    """The ranks that share a cache, and which one this is."""
    from vllm.distributed.parallel_state import get_dcp_world_size_and_rank

    return get_dcp_world_size_and_rank(getattr(kv_cache_spec, "dcp_sharded", False))


# --- a layer

class AttnjitImpl(AttentionImpl[AttnjitMetadata]):
    """The attention of a layer."""

    can_return_lse_for_decode: bool = True
    supports_dcp: bool = True

    def __init__(self, num_heads: int, head_size: int, scale: float,
                 num_kv_heads: Optional[int] = None, alibi_slopes: Optional[List[float]] = None,
                 sliding_window: Optional[int] = None, kv_cache_dtype: str = "auto",
                 logits_soft_cap: Optional[float] = None,
                 attn_type: str = AttentionType.DECODER,
                 kv_sharing_target_layer_name: Optional[str] = None,
                 sinks: Optional[torch.Tensor] = None) -> None:
        if why_no_cache(kv_cache_dtype) is not None:
            raise NotImplementedError(why_no_cache(kv_cache_dtype))
        if alibi_slopes is not None and logits_soft_cap:
            raise NotImplementedError("attnjit: ALiBi beside a cap of the scores is not served")
        if self.dcp_world_size > 1 and (sliding_window is not None or sinks is not None
                                        or alibi_slopes is not None):
            raise NotImplementedError(f"attnjit: {SHARED_ALONE}")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.sliding_window, self.soft_cap = sliding_window, logits_soft_cap
        self.kv_cache_dtype, self.attn_type = kv_cache_dtype, attn_type
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        self.sinks, self.sinks_f32 = sinks, sinks  #: the second are the builder's
        self._encodes = attn_type in _ENCODERS
        self._eight_bits = kv_cache_dtype in EIGHT_BITS and not self._encodes
        self._by_token = kv_cache_dtype == TOKEN_SCALES and not self._encodes
        self._slopes = (None if alibi_slopes is None
                        else torch.tensor(alibi_slopes, dtype=torch.float32))
        self._score_mod = (ScoreMod({"kind": "softcap", "cap": float(logits_soft_cap)})
                           if logits_soft_cap else None)
        self._masks: Dict[Any, Mask] = {}
        self._cache: Any = None  # a weak reference to what the views are of
        self._views: Tuple[Any, ...] = ()  # keys, values, scales of tokens
        self._partition_keys, self._prefix_window, self._images = 0, None, False
        self._quantises = False  # Q of prompts, here; decodes have it in 16 bits
        self._all_to_all = False  # how ranks that share a cache add up their parts
        self.sees_ahead = False  #: of drafts that are made at once: rows see those behind them
        # vLLM hands Q over in e4m3 where this says so.
        self.supports_quant_query_input = (self._eight_bits
                                           and self._types()["qkv_dtype"] == "e4m3")
        self._ask_soon()

    def _ask_soon(self) -> None:
        """Has the kernels compiled while vLLM loads weights and compiles its graphs, where they are
        known this early. What is not, the builder asks for: it knows the cache's pages and its
        scales, and which rows are of images."""
        config = get_current_vllm_config_or_none()
        model = None if config is None else config.model_config
        if model is None:
            return
        pages.note(config.cache_config)
        self.sees_ahead = config.attention_config.use_non_causal
        if model.is_hybrid or self._eight_bits or self._by_token or self.dcp_world_size > 1 or (
                self.attn_type != AttentionType.DECODER):
            return
        if envs.VLLM_BATCH_INVARIANT or getattr(model, "is_mm_prefix_lm", False) or (
                getattr(model, "rswa_window", None) is not None):
            return
        server = server_of(config, pages.asked())
        vllm_service.ask(vllm_specs(*self.asked(None, server)))

    def said(self) -> str:
        """The layer in a line of the log."""
        more = [text for holds, text in (
            (self.sliding_window is not None, f"windows of {self.sliding_window}"),
            (self.sinks is not None, "sinks"), (self.soft_cap, f"a softcap of {self.soft_cap}"),
            (self._slopes is not None, "ALiBi"), (self._eight_bits, "a cache of e4m3"),
            (self._by_token, "a cache of e4m3 with scales of tokens"),
            (self.attn_type != AttentionType.DECODER, str(self.attn_type))) if holds]
        return (f"{self.num_heads}/{self.num_kv_heads} heads of {self.head_size}"
                + "".join(f", {one}" for one in more))

    def configure(self, vllm_config: Any) -> None:
        """What the engine's configuration says of the layer, once it is whole."""
        model, scheduler = vllm_config.model_config, getattr(vllm_config, "scheduler_config", None)
        self._prefix_window = getattr(model, "rswa_window", None)
        self._images = bool(getattr(model, "is_mm_prefix_lm", False))
        if envs.VLLM_BATCH_INVARIANT:
            self._partition_keys = partition_keys(vllm_config, self.num_heads * self.head_size,
                                                  scheduler.max_num_batched_tokens)
        self._all_to_all = vllm_config.parallel_config.dcp_comm_backend == "a2a"
        self._quantises = (self._eight_bits and not self.supports_quant_query_input
                           and self._types(prompts=True)["qkv_dtype"] == "e4m3")

    def asked(self, layer: Any, server: Server) -> Tuple[Layer, Server]:
        """What the kernels that the layer asks for depend on."""
        decodes = self.attn_type == AttentionType.DECODER
        clamped = getattr(layer, "mm_prefix_clamp_sliding_window", False) and self.sliding_window
        heads = (self._eight_bits and layer is not None
                 and any(one.numel() > 1 for one in (layer._k_scale, layer._v_scale)))
        return Layer(
            self.num_heads, self.num_kv_heads, self.head_size,
            getattr(layer, "head_size_v", self.head_size), self.sliding_window or 0,
            self.soft_cap or 0.0, self.sinks is not None, self._slopes is not None,
            both_ways=self._encodes, cross=self.attn_type == AttentionType.ENCODER_DECODER,
            images=("window" if clamped else "free") if decodes and self._images else "",
            prefix_window=self._prefix_window or 0,
        ), replace(server, cache=self.kv_cache_dtype, head_scales=heads,
                   partition_keys=self._partition_keys, sharing=self.dcp_world_size)

    def _types(self, prompts: bool = False) -> Dict[str, Any]:
        """Which types go together in the layer's kernels."""
        server = Server(_arch() or "sm_90a", "bf16", _LEAST_PAGE)
        return types_of(*self.asked(None, server), prompts)

    def fused_output_quant_supported(self, quant_key: Any) -> bool:
        """Whether the kernels write what vLLM would quantise after them."""
        from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8StaticTensorSym

        if quant_key != kFp8StaticTensorSym or self.dcp_world_size > 1 or self._encodes:
            return False
        layer, server = self.asked(None, Server(_arch() or "sm_90a", "bf16", _LEAST_PAGE))
        return all(why_not(**{**spec, "output_dtype": "e4m3"}) is None
                   for spec in vllm_specs(layer, server))

    def _halves(self, kv_cache: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """[pages, page_size, kv_heads, depth] of keys and of values, of vLLM's
        [pages, kv_heads, page_size, depth of both] in whichever layout."""
        rows = kv_cache.transpose(1, 2)
        if self._by_token:
            begin = _Content(self.head_size).v
            return rows[..., :self.head_size], rows[..., begin:begin + self.head_size]
        keys, values = rows.split([self.head_size, kv_cache.shape[-1] - self.head_size], dim=-1)
        return keys, values

    def _caches(self, kv_cache: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        """The same in the type of their elements: vLLM's own is bytes for those of fp8."""
        if self._cache is None or self._cache() is not kv_cache:
            # NOTE: views must not keep the memory of a cache that vLLM has dropped: that of its
            # measurements, or of an engine that is gone. Views of `own` do not keep `kv_cache`.
            own = kv_cache.detach()
            of_8_bits = self._eight_bits or self._by_token
            typed = own.view(torch.float8_e4m3fn) if of_8_bits else own
            keys, values = map(canonicalize_singleton_dim_strides, self._halves(typed))
            self._cache = weakref.ref(kv_cache, self._drop_views)
            self._views = keys, values, self._token_scales(own)
        return self._views[0], self._views[1]

    def _drop_views(self, dropped: Any) -> None:
        if self._cache is dropped:
            self._cache, self._views = None, ()

    def _token_scales(self, kv_cache: torch.Tensor) -> Dict[str, torch.Tensor]:
        """Those of K and of V, [pages, page_size, kv_heads], where the cache has them."""
        if not self._by_token:
            return {}
        begin = _Content(self.head_size).scales
        both = kv_cache.transpose(1, 2)[..., begin:begin + 8].view(torch.float32)
        return {"k_scale": both[..., 0], "v_scale": both[..., 1]}

    def _scales(self, layer: Any, query: torch.Tensor, requests: int) -> Dict[str, torch.Tensor]:
        """The scales of what is e4m3. vLLM has one number, or one for each head of K and V."""
        if self._by_token:
            return self._views[2]
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

    def _quantised(self, layer: Any, q: torch.Tensor) -> torch.Tensor:
        """Q in e4m3, as vLLM's own backend has it in each step."""
        from vllm import _custom_ops

        scale = layer._q_scale
        if scale.numel() == 1:
            return _custom_ops.scaled_fp8_quant(q.reshape(len(q), -1), scale)[0].view(q.shape)
        of_heads = scale.view(-1).repeat_interleave(self.num_heads // self.num_kv_heads)
        return (q / of_heads[:, None]).clamp(-448, 448).to(torch.float8_e4m3fn)

    def _mask(self, layer: Any, step: AttnjitMetadata) -> Mask:
        """The mask of a step, over the step's arrays."""
        each = isinstance(step.causal, torch.Tensor)
        image, ranges = None, step.mm_prefix_query_range_tensor
        if ranges is not None and step.causal is True and not self._encodes:
            clamped = (self.sliding_window is not None
                       and getattr(layer, "mm_prefix_clamp_sliding_window", False))
            image = "window" if clamped else "free"
        prefix = self._prefix_window if step.prefix_lens is not None else None
        kind = ("each" if each else bool(step.causal), image, prefix)
        if kind not in self._masks:
            self._masks[kind] = Mask(mask_of(self.sliding_window, kind[0], image or "",
                                             prefix or 0))
        mask = self._masks[kind]
        if not mask.declared:
            return mask
        arrays = {"causal": step.causal, "image": ranges, "prefix": step.prefix_lens}
        return with_arrays(mask, **{one["name"]: arrays[one["name"]] for one in mask.declared})

    def _modification(self, device: torch.device) -> Optional[ScoreMod]:
        """The score modification; ALiBi's slopes follow the layer to its device."""
        if self._slopes is not None and (self._score_mod is None
                                         or self._slopes.device != device):
            self._slopes = self._slopes.to(device)
            self._score_mod = alibi(self._slopes)
        return self._score_mod

    def forward(self, layer: Any, query: torch.Tensor, key: Optional[torch.Tensor],
                value: Optional[torch.Tensor], kv_cache: torch.Tensor,
                attn_metadata: Optional[AttnjitMetadata], output: torch.Tensor,
                output_scale: Optional[torch.Tensor] = None,
                output_block_scale: Optional[torch.Tensor] = None) -> torch.Tensor:
        if output_block_scale is not None:
            raise NotImplementedError("attnjit: an output with scales of blocks is not served")
        raise_refused()
        if attn_metadata is None:  # vLLM measures memory
            return output.fill_(0)
        step, rows = attn_metadata, attn_metadata.num_actual_tokens
        q = query[:rows].view(rows, self.num_heads, self.head_size)
        out = output[:rows].view(rows, self.num_heads, -1)
        shared = dict(out=out, service=service(), scale=self.scale, sink=self.sinks_f32,
                      score_mod=self._modification(query.device), output_scale=output_scale)
        if self._encodes:
            self._encode(q, key[:rows], value[:rows], step, shared)
        elif self.dcp_world_size > 1:
            self._share_context(layer, q, key[:rows], value[:rows], kv_cache, step, shared)
        else:
            self._attend(layer, q, kv_cache, step, shared)
        return output

    def _attend(self, layer: Any, q: torch.Tensor, kv_cache: torch.Tensor, step: AttnjitMetadata,
                shared: Dict[str, Any]) -> None:
        keys, values = self._caches(kv_cache)
        shared.update(max_kv_len=step.max_seq_len, mask=self._mask(layer, step),
                      partition_keys=self._partition_keys)
        # NOTE: images are of rows that lie one behind another.
        each = step.rows_each and step.mm_prefix_query_range_tensor is None
        if not each and self._quantises:
            q = self._quantised(layer, q)
        shared.update(self._scales(layer, q, step.num_reqs))
        if each:
            launches[f"rows_{step.rows_each}"] += 1
            if step.rows_each > 1:
                q, shared["out"] = (x.view(step.num_reqs, step.rows_each, *x.shape[1:])
                                    for x in (q, shared["out"]))
            paged_attention(q, keys, values, step.block_table, step.seq_lens, **shared)
        else:
            launches["mixed"] += 1
            paged_attention(q, keys, values, step.block_table, step.seq_lens,
                            q_offsets=step.query_start_loc, max_q_len=step.max_query_len, **shared)

    def _encode(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, step: AttnjitMetadata,
                shared: Dict[str, Any]) -> None:
        """Rows that see their own request's, without a cache."""
        if False not in self._masks:
            self._masks[False] = Mask(mask_of(self.sliding_window, False))
        offsets = step.query_start_loc
        launches["encoder"] += 1
        attention(q, k.view(len(q), self.num_kv_heads, -1), v.view(len(q), self.num_kv_heads, -1),
                  q_offsets=offsets, kv_offsets=offsets, max_q_len=step.max_query_len,
                  max_kv_len=step.max_query_len, mask=self._masks[False], **shared)

    def _share_context(self, layer: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                       kv_cache: torch.Tensor, step: AttnjitMetadata,
                       shared: Dict[str, Any]) -> None:
        """Decode context parallelism: each rank has a part of the cache of what came before this
        step, and all of this step's keys."""
        from vllm.distributed.parallel_state import get_dcp_group
        from vllm.v1.attention.ops.merge_attn_states import merge_attn_states

        out, offsets = shared.pop("out"), step.query_start_loc
        keys, values = self._caches(kv_cache)
        launches["context"] += 1
        launches["new_rows"] += 1
        group = get_dcp_group()
        of_all = group.all_gather(q.contiguous(), dim=1)
        context, sums = paged_attention(
            of_all, keys, values, step.block_table, step.context_lens, q_offsets=offsets,
            max_q_len=step.max_query_len, max_kv_len=step.max_context_len, mask=_NO_MASK, lse=True,
            partition_keys=self._partition_keys, out=torch.empty(
                (*of_all.shape[:-1], out.shape[-1]), dtype=out.dtype, device=out.device),
            **{**shared, **self._scales(layer, of_all, step.num_reqs)})
        context, sums = self._combine()(context, sums.transpose(0, 1), group, return_lse=True)
        k, v = (x.view(len(q), self.num_kv_heads, -1) for x in (k, v))
        new, new_sums = attention(
            q, k, v, q_offsets=offsets, kv_offsets=offsets, max_q_len=step.max_query_len,
            max_kv_len=step.max_query_len, mask=Mask(mask_of(None, step.causal)), lse=True,
            out=torch.empty_like(out), **shared)
        merge_attn_states(out, context, sums.transpose(0, 1).contiguous(), new, new_sums)

    def _combine(self) -> Any:
        from vllm.v1.attention.ops.dcp import cp_lse_ag_out_rs, dcp_a2a_lse_reduce

        return dcp_a2a_lse_reduce if self._all_to_all else cp_lse_ag_out_rs

    def do_kv_cache_update(self, layer: Any, key: torch.Tensor, value: torch.Tensor,
                           kv_cache: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Writes this step's keys and values, by vLLM's own operator."""
        if self._encodes:
            return
        if self._by_token:
            from vllm.v1.attention.ops.triton_reshape_and_cache_flash import (
                triton_reshape_and_cache_flash_per_token_head_quant)

            keys, values = self._caches(kv_cache)
            scales = self._views[2]
            triton_reshape_and_cache_flash_per_token_head_quant(
                key, value, keys, values, scales["k_scale"], scales["v_scale"], slot_mapping,
                kv_quant_mode=KVQuantMode.FP8_PER_TOKEN_HEAD)
            return
        from vllm.v1.attention.backends.fa_utils import reshape_and_cache_flash

        keys, values = self._halves(kv_cache)
        reshape_and_cache_flash(key, value, keys, values, slot_mapping, self.kv_cache_dtype,
                                layer._k_scale, layer._v_scale)

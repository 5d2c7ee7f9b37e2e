# SPDX-License-Identifier: Apache-2.0
"""The backend that attnjit.integrations.sglang registers, after the interface of SGLang 0.5.23.

SGLang's pools hold the cache, and their own functions write it; the kernels read pages of it by
tables that are made on the device. One kernel serves prompts, chunks and decodes in one batch,
another one batches of decodes alone. Beside a cache of e4m3, Q keeps its type where a kernel takes
that, and is rounded to e4m3 elsewhere, as SGLang's own backends do.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

from .. import AttnjitError, paged_attention
from .._device import architecture
from ._specs import eight_bit_cache, sliding_window, why_not as why_no_kernel

_DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def why_not(runner: Any, arch: Optional[str]) -> List[str]:
    """What of a model and its server's options the kernels do not serve; none: all of it."""
    config = runner.model_config
    reasons = [text for holds, text in (
        (arch is None, "attnjit serves GPUs of sm_90, sm_100 and sm_103"),
        (runner.use_mla_backend, "MLA models are not served in SGLang yet"),
        (config.is_encoder_decoder, "cross attention is not served"),
        (runner.spec_algorithm.is_speculative(), "speculative decoding is not served yet"),
        (runner.dtype not in _DTYPES, f"models of {runner.dtype} are not served: only of "
         "float16 and bfloat16"),
        (runner.kv_cache_dtype not in (runner.dtype, torch.float8_e4m3fn)
         or getattr(runner, "kv_cache_dtype_str", "auto") == "mxfp8",
         f"a cache of {_cache_name(runner)} is not served: only of the model's {runner.dtype}, and "
         "of fp8_e4m3 with a scale for each tensor"),
        (getattr(getattr(runner, "kv_index_translator", None), "is_translating", False),
         "the unified memory pool is not served"),
    ) if holds]
    if reasons:
        return reasons
    reason = why_no_kernel(**_fields(runner, arch))
    return [] if reason is None else [reason]


def _cache_name(runner: Any) -> str:
    return ("mxfp8" if getattr(runner, "kv_cache_dtype_str", "auto") == "mxfp8"
            else str(runner.kv_cache_dtype))


def _fields(runner: Any, arch: Optional[str]) -> Dict[str, Any]:
    """The spec of a model, as far as whether a kernel serves it hangs on it."""
    config = runner.model_config
    fields = {"arch": arch, "num_q_heads": 8, "group": 4, "qk_depth": config.head_dim,
              "ov_depth": getattr(config, "v_head_dim", None) or config.head_dim,
              "page_size": runner.page_size, "ragged": True, "mask": "causal"}
    dtype = _DTYPES[runner.dtype]
    return (eight_bit_cache(dtype, **fields) if runner.kv_cache_dtype is torch.float8_e4m3fn
            else {**fields, "qkv_dtype": dtype})


def layer_options(layer: Any, chunk: Optional[int]) -> Dict[str, Any]:
    """The mask, the score modification and the scale of a layer; NotImplementedError: not served.

    `chunk` is the attention chunk of models whose layers may look at their own chunk alone.
    """
    for holds, text in (
            (layer.is_cross_attention, "cross attention"),
            (layer.attn_type == AttentionType.DECODER_BIDIRECTIONAL, "bidirectional image tokens"),
            (layer.pos_encoding_mode != "NONE", f"positions of kind {layer.pos_encoding_mode}"),
            (layer.logit_cap and layer.logit_capping_method != "tanh",
             f"a cap by {layer.logit_capping_method}"),
            ((layer.xai_temperature_len or -1) > 0, "a temperature that grows with the length")):
        if holds:
            raise NotImplementedError(f"attnjit: layer {layer.layer_id}: {text} is not served")
    mask: Any = "causal"
    if layer.attn_type == AttentionType.ENCODER_ONLY:
        mask = None
    elif layer.use_irope and chunk:
        mask = {"kind": "and", "of": [{"kind": "causal"}, {"kind": "chunked", "chunk": int(chunk)}]}
    elif layer.sliding_window_size is not None and layer.sliding_window_size >= 0:
        # NOTE: SGLang counts the keys before a row, a spec the row's own key, too.
        mask = sliding_window(int(layer.sliding_window_size) + 1)
    cap = float(layer.logit_cap or 0.0)
    return {"mask": mask, "score_mod": {"kind": "softcap", "cap": cap} if cap > 0 else None,
            "scale": float(layer.scaling)}


@dataclass
class Metadata:
    """What a step's layers share."""

    kv_lens: torch.Tensor
    page_table: torch.Tensor
    window_table: Optional[torch.Tensor]  #: of the layers whose cache is the windows' pool
    q_offsets: Optional[torch.Tensor] = None  #: None: each request has one row
    max_q_len: int = 1
    window_loc: Optional[torch.Tensor] = None  #: where this step's rows go in the windows' pool


class AttnjitAttnBackend(AttentionBackend):
    """One thread's steps: SGLang makes a backend for each model runner."""

    needs_cpu_seq_lens: bool = False  # lengths and tables are read on the device

    def __init__(self, runner: Any) -> None:
        super().__init__()
        reasons = why_not(runner, _arch(runner))
        if reasons:
            raise ValueError("the attnjit attention backend cannot serve this: "
                             + "; ".join(reasons))
        self.device, self.page_size = runner.device, runner.page_size
        self.req_to_token = runner.req_to_token_pool.req_to_token
        self.token_to_kv_pool = runner.token_to_kv_pool
        self.max_pages = -(-self.req_to_token.shape[1] // self.page_size)
        self.chunk = getattr(runner, "attention_chunk_size", None)
        self.has_windows = (isinstance(self.token_to_kv_pool, SWAKVPool)
                            and self.token_to_kv_pool.swa_layer_nums > 0)
        self.forward_metadata: Optional[Metadata] = None
        self._eight_bits = runner.kv_cache_dtype is torch.float8_e4m3fn
        self._rounds_q = _fields(runner, _arch(runner))["qkv_dtype"] == "e4m3"
        self._one = torch.ones(1, device=self.device)  # the scale of what has none
        self._scales_by_layer: Dict[int, Tuple[Any, Any, torch.Tensor, torch.Tensor]] = {}
        self._graphs: Dict[int, Metadata] = {}  # by the number of requests
        self._options: Dict[int, Dict[str, Any]] = {}  # by layer
        self._prewarm(runner)

    # --- what a step's layers share

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Before a step that runs eagerly."""
        batch = forward_batch
        made = self._memory(batch.batch_size, torch.empty)
        if not batch.forward_mode.is_decode_or_idle():
            if not batch.forward_mode.is_extend() or batch.forward_mode.is_dllm_extend():
                raise NotImplementedError(f"attnjit: {batch.forward_mode!r} is not served")
            made.max_q_len = max(map(int, batch.extend_seq_lens_cpu), default=0)
            made.q_offsets = torch.nn.functional.pad(
                torch.cumsum(batch.extend_seq_lens, 0, dtype=torch.int32), (1, 0))
        self._fill(made, batch)
        self.forward_metadata = made

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """The memory that captured decodes read, whatever the number of their requests."""
        # NOTE: zeros: requests that pad a graph read page 0.
        self._static = self._memory(max_bs, torch.zeros)
        self._graphs.clear()

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Before a decode is captured or replayed: its requests are the first of the memory's."""
        count = forward_batch.batch_size
        if not forward_batch.forward_mode.is_decode_or_idle():
            raise NotImplementedError("attnjit: graphs of decodes alone are served, not of "
                                      f"{forward_batch.forward_mode!r}")
        if in_capture or count not in self._graphs:
            static = self._static
            window = None if static.window_table is None else static.window_table[:count]
            self._graphs[count] = Metadata(static.kv_lens[:count], static.page_table[:count],
                                           window)
        self.forward_metadata = self._graphs[count]

    def init_forward_metadata_in_graph(self, forward_batch: Any) -> None:
        """What a captured decode does before its layers: nothing here reads from the device."""
        self._fill(self.forward_metadata, forward_batch)

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return 1

    def _memory(self, count: int, make: Callable[..., torch.Tensor]) -> Metadata:
        def table() -> torch.Tensor:
            return make((count, self.max_pages), dtype=torch.int32, device=self.device)

        return Metadata(make(count, dtype=torch.int32, device=self.device), table(),
                        table() if self.has_windows else None)

    def _fill(self, metadata: Metadata, batch: Any) -> None:
        """Lengths and page tables of a batch, made on the device."""
        count = metadata.kv_lens.shape[0]
        if count == 0:
            return
        metadata.kv_lens.copy_(batch.seq_lens[:count])
        pool = self.token_to_kv_pool if self.has_windows else None
        fill_page_tables(self.req_to_token, batch.req_pool_indices[:count], metadata.kv_lens,
                         self.page_size, metadata.page_table, metadata.window_table,
                         None if pool is None else pool.full_to_swa_index_mapping)
        if pool is not None and batch.out_cache_loc is not None:
            metadata.window_loc = pool.translate_loc_from_full_to_swa(batch.out_cache_loc)

    # --- a layer

    def forward_decode(self, q: torch.Tensor, k: Any, v: Any, layer: Any, forward_batch: Any,
                       save_kv_cache: bool = True, **others: Any) -> torch.Tensor:
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache, others)

    def forward_extend(self, q: torch.Tensor, k: Any, v: Any, layer: Any, forward_batch: Any,
                       save_kv_cache: bool = True, **others: Any) -> torch.Tensor:
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache, others)

    def _attend(self, q: torch.Tensor, k: Any, v: Any, layer: Any, batch: Any,
                save_kv_cache: bool, others: Dict[str, Any]) -> torch.Tensor:
        step = self.forward_metadata
        sinks = others.pop("sinks", None)
        for name, value in others.items():
            if value is not None and value is not False:
                raise NotImplementedError(f"attnjit: layer {layer.layer_id} gives {name}, which "
                                          "is not served")
        if layer.layer_id not in self._options:
            self._options[layer.layer_id] = layer_options(layer, self.chunk)
        pool = self.token_to_kv_pool
        if save_kv_cache and k is not None:
            window_loc = step.window_loc
            if window_loc is not None:  # NOTE: where graphs pad prompts, the batch's is cut
                window_loc = window_loc[:batch.out_cache_loc.shape[0]]
            written = (k, v)
            if self._eight_bits:  # a scale that is there divides k, or v, in place
                written = (k, v, layer.k_scale, layer.v_scale)
            pool.set_kv_buffer(layer, KVWriteLoc.for_batch(batch, swa_loc=window_loc), *written)
        keys, values = (self._pages(one, layer) for one in pool.get_kv_buffer(layer.layer_id))
        windowed = self.has_windows and pool.layers_mapping[layer.layer_id][1]
        rows, heads = q.shape[0], layer.tp_q_head_num
        q = q.view(rows, heads, layer.qk_head_dim)
        out = q.new_empty(rows, heads, layer.v_head_dim)
        options = dict(out=out, sink=None if sinks is None else sinks.float(),
                       **self._options[layer.layer_id], **self._scales(layer))
        if self._rounds_q:
            q = q.to(torch.float8_e4m3fn)
        if step.q_offsets is not None:
            options.update(q_offsets=step.q_offsets, max_q_len=step.max_q_len)
        paged_attention(q, keys, values, step.window_table if windowed else step.page_table,
                        step.kv_lens, **options)
        return out.view(rows, heads * layer.v_head_dim)

    def _scales(self, layer: Any) -> Dict[str, torch.Tensor]:
        """The scales of a cache of e4m3, of which a layer may have none; and that of Q, rounded."""
        if not self._eight_bits:
            return {}
        known = self._scales_by_layer.get(layer.layer_id)
        if known is None or known[0] is not layer.k_scale or known[1] is not layer.v_scale:
            # NOTE: kept, because models set plain numbers too, which a graph could not read.
            known = (layer.k_scale, layer.v_scale, self._scale(layer.k_scale),
                     self._scale(layer.v_scale))
            self._scales_by_layer[layer.layer_id] = known
        scales = {"k_scale": known[2], "v_scale": known[3]}
        return {**scales, "q_scale": self._one} if self._rounds_q else scales

    def _scale(self, given: Any) -> torch.Tensor:
        if given is None:
            return self._one
        return torch.as_tensor(given, dtype=torch.float32, device=self.device).detach().view(1)

    def _pages(self, buffer: torch.Tensor, layer: Any) -> torch.Tensor:
        """[pages, page_size, heads, depth] of a pool's buffer of rows, or of pages of heads."""
        if buffer.dim() == 4:
            return buffer.transpose(1, 2)
        return buffer.view(-1, self.page_size, *buffer.shape[1:])

    def _prewarm(self, runner: Any) -> None:
        """Compiles the kernels of the model's layers in the background, by calls on empty requests.
        """
        done = set()
        for parent in runner.model.modules():
            sinks = getattr(parent, "sinks", None)
            for layer in parent.children():
                if not isinstance(layer, RadixAttention):
                    continue
                try:
                    options = layer_options(layer, self.chunk)
                except NotImplementedError:
                    continue  # the layer says so when it runs
                shape = (layer.tp_q_head_num, layer.tp_k_head_num, layer.qk_head_dim,
                         layer.v_head_dim)
                kind = str(options), sinks is None, shape
                scales = self._scales(layer)  # of each layer: a graph is to find them made
                if kind not in done:
                    done.add(kind)
                    self._prewarm_layer(runner, shape, sinks, {**options, **scales})

    def _prewarm_layer(self, runner: Any, shape: Tuple[int, int, int, int], sinks: Any,
                       options: Dict[str, Any]) -> None:
        def zeros(*shape: int, dtype: torch.dtype = runner.kv_cache_dtype) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        heads, kv_heads, depth, v_depth = shape
        step = self._memory(1, torch.zeros)
        of_q = torch.float8_e4m3fn if self._rounds_q else runner.dtype
        tensors = (zeros(1, heads, depth, dtype=of_q), zeros(1, self.page_size, kv_heads, depth),
                   zeros(1, self.page_size, kv_heads, v_depth), step.page_table, step.kv_lens)
        shared = dict(out=zeros(1, heads, v_depth, dtype=runner.dtype),
                      sink=None if sinks is None else torch.zeros(heads, device=self.device),
                      meanwhile=lambda: None, **options)
        offsets = torch.zeros(2, dtype=torch.int32, device=self.device)
        paged_attention(*tensors, **shared)
        paged_attention(*tensors, q_offsets=offsets, max_q_len=1, **shared)


def fill_page_tables(req_to_token: torch.Tensor, requests: torch.Tensor, kv_lens: torch.Tensor,
                     page_size: int, table: torch.Tensor, window_table: Optional[torch.Tensor],
                     to_window: Optional[torch.Tensor]) -> None:
    """Writes the pages of each request, without a word from the device to the host.

    On a GPU by the kernel of SGLang, which stops at a request's last page. NOTE: it takes pages of
    a power of two alone; elsewhere all columns are computed, past the last page of anything.
    """
    if table.is_cuda and 4096 % page_size == 0:
        from sglang.kernels.ops.attention.trtllm_mha_page_table import build_trtllm_mha_page_table

        build_trtllm_mha_page_table(req_to_token=req_to_token, req_pool_indices=requests,
                                    cache_seqlens=kv_lens, page_table=table, page_size=page_size,
                                    swa_page_table=window_table, full_to_swa=to_window)
        return
    slots = req_to_token[:, ::page_size].index_select(0, requests.long())
    table.copy_(slots.div(page_size, rounding_mode="floor"))
    if window_table is not None:
        slots = to_window[slots.long().clamp_(0, to_window.shape[0] - 1)]
        window_table.copy_(slots.clamp_(min=0).div(page_size, rounding_mode="floor"))


def _arch(runner: Any) -> Optional[str]:
    """The architecture of the runner's GPU; None: one that the kernels do not serve."""
    try:
        return architecture(getattr(runner, "gpu_id", 0) or 0)
    except AttnjitError:
        return None

# SPDX-License-Identifier: Apache-2.0
"""The backend that attnjit.integrations.sglang registers, after the interfaces of SGLang 0.5.17 and
0.5.23.

SGLang's pools hold the cache, and their own functions write it; the kernels read pages of it by
tables that are made on the device. One kernel serves prompts, chunks and decodes in one batch,
others batches whose requests have as many rows each: decodes, and drafts that are verified. Beside
a cache of e4m3, Q keeps its type where a kernel takes that, and is rounded to e4m3 elsewhere, as
SGLang's own backends do. Models of MLA are served by sglang_mla.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from sglang.srt.configs.model_config import is_deepseek_dsa
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.runtime_context import get_exec, get_parallel, get_schedule, get_spec

from .. import AttnjitError, Mask, ScoreMod, paged_attention
from .._device import architecture
from . import sglang_service
from ._layers import DSV32, MOST_ROWS, Layer, Server, invariant_keys, mask_of
from ._sglang_layers import sglang_mask, sglang_specs, sglang_types, tree_mask, why_no_lists
from ._specs import why_not as why_no_kernel
from .sglang_service import launches, say_start, service
from .sglang_tables import fill_page_tables, image_ranges, tree_bits

_DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16"}
#: What the start's line says, and docs/sglang.md.
REFUSED = ("lists of keys but DSA's, decoders that see both ways, relative biases, caches of 8 bits "
           "but e4m3 with scales of tensors, caches of 4 bits, context parallelism")


# --- what the kernels serve

def why_not(runner: Any, arch: Optional[str], page_size: int) -> List[str]:
    """What of a model and its server's options the kernels do not serve; none: all of it."""
    config, arguments = runner.model_config, runner.server_args
    reasons = [text for holds, text in (
        (arch is None, "attnjit serves GPUs of sm_90, sm_100 and sm_103"),
        (config.is_encoder_decoder and runner.page_size > 1,
         "cross attention is served with --page-size 1"),
        (runner.dtype not in _DTYPES, f"models of {runner.dtype} are not served: only of "
         "float16 and bfloat16"),
        (runner.kv_cache_dtype not in (runner.dtype, torch.float8_e4m3fn)
         or getattr(runner, "kv_cache_dtype_str", "auto") == "mxfp8",
         f"a cache of {_cache_name(runner)} is not served: only of the model's {runner.dtype}, and "
         "of fp8_e4m3 with a scale for each tensor"),
        (getattr(getattr(runner, "kv_index_translator", None), "is_translating", False),
         "the unified memory pool is not served"),
        (getattr(arguments, "dcp_size", 1) > 1 or getattr(arguments, "attn_cp_size", 1) > 1
         or getattr(arguments, "enable_prefill_cp", False), "context parallelism is not served"),
        (getattr(arguments, "dllm_algorithm", None) is not None,
         "language models that diffuse (--dllm-algorithm) are not served"),
    ) if holds]
    if not reasons and _lists_anything(runner):
        reasons = [text for text in (_why_no_indexer(runner),
                                     why_no_lists(server_of(runner, arch, page_size))) if text]
    if reasons:
        return reasons
    for layer in _layers_of(runner):
        reason = _why_no_layer(layer)
        if reason is None:
            server = server_of(runner, arch, page_size)
            for spec in sglang_specs(layer_of(layer, runner, _sinks_of(runner, layer)), server):
                reason = reason or why_no_kernel(**spec)
        if reason is not None:
            return [f"layer {layer.layer_id}: {reason}"]
    return []


def refuse(runner: Any, arch: Optional[str], page_size: int) -> None:
    """Raises ValueError where the kernels do not serve all of a model and its server's options."""
    reasons = why_not(runner, arch, page_size)
    if reasons:
        raise ValueError("the attnjit attention backend cannot serve this: " + "; ".join(reasons))


def _lists_anything(runner: Any) -> bool:
    """Whether an indexer lists the keys of each row."""
    config = runner.model_config
    return any(getattr(one, "index_topk", None) is not None for one in (config, config.hf_config))


def list_keys(runner: Any) -> int:
    """The most keys of a row's list (DSA); 0: rows see all keys before them."""
    config = runner.model_config.hf_config
    dsa = runner.use_mla_backend and config is not None and is_deepseek_dsa(config)
    return int(config.index_topk) if dsa else 0


def _why_no_indexer(runner: Any) -> Optional[str]:
    """Why the lists of a model's indexer are not served; None: they are."""
    if not list_keys(runner):
        return "lists of keys but those of DSA are not served"
    parallel, config = get_parallel(), runner.model_config.hf_config
    for holds, text in (
            (getattr(config, "index_kpool", 1) > 1, "of pools of keys"),
            (any((one.sliding_window_size or -1) >= 0 for one in _layers_of(runner)),
             "beside windows"),
            (getattr(runner, "hisparse_coordinator", None) is not None, "with HiSparse"),
            (parallel.dcp_enabled or parallel.attn_cp_size > 1, "with context parallelism")):
        if holds:
            return f"lists of keys {text} are not served"
    return None


def _cache_name(runner: Any) -> str:
    return ("mxfp8" if getattr(runner, "kv_cache_dtype_str", "auto") == "mxfp8"
            else str(runner.kv_cache_dtype))


def _why_no_layer(layer: Any) -> Optional[str]:
    for holds, text in (
            (layer.attn_type == AttentionType.DECODER_BIDIRECTIONAL,
             "a decoder whose tokens all see what is ahead"),
            (layer.pos_encoding_mode != "NONE", f"positions of kind {layer.pos_encoding_mode}"),
            (layer.logit_cap and layer.logit_capping_method != "tanh",
             f"a cap by {layer.logit_capping_method}"),
            ((layer.xai_temperature_len or -1) > 0, "a temperature that grows with the length")):
        if holds:
            return f"{text} is not served"
    return None


def _layers_of(runner: Any) -> List[Any]:
    """The model's layers of attention; of those that have the same kernels all. NOTE: models that
    SGLang takes from transformers have theirs in a dictionary, which no walk over modules finds."""
    beside = getattr(runner.model, "attention_instances", None) or {}
    return [*(one for one in runner.model.modules() if isinstance(one, RadixAttention)),
            *beside.values()]


def _sinks_of(runner: Any, layer: Any) -> bool:
    """Whether a layer is called with sinks, which the module that holds it has by either name."""
    for parent in runner.model.modules():
        if any(child is layer for child in parent.children()):
            return any(getattr(parent, name, None) is not None
                       for name in ("sinks", "attention_sink_bias"))
    return False


def layer_of(layer: Any, runner: Any, sinks: bool) -> Layer:
    """What the kernels that a layer asks for depend on."""
    window = 0
    if layer.sliding_window_size is not None and layer.sliding_window_size >= 0:
        # NOTE: SGLang counts the keys before a row, a spec the row's own key, too.
        window = int(layer.sliding_window_size) + 1
    chunk = getattr(runner, "attention_chunk_size", None)
    depths, latent, rope = (layer.qk_head_dim, layer.v_head_dim), 0, 0
    if runner.use_mla_backend:  # NOTE: two modules are one layer's: over the cache, and of prompts
        config = runner.model_config
        latent, rope = config.kv_lora_rank, config.qk_rope_head_dim
        if hasattr(config, "qk_nope_head_dim"):  # MiniCPM3's has none
            depths = (config.qk_nope_head_dim + rope, config.v_head_dim)
    return Layer(
        layer.tp_q_head_num, layer.tp_q_head_num if latent else layer.tp_k_head_num, *depths,
        window, float(layer.logit_cap or 0.0), sinks,
        both_ways=layer.attn_type == AttentionType.ENCODER_ONLY, cross=layer.is_cross_attention,
        latent=latent, rope=rope, topk=list_keys(runner),
        images="window" if masks_images(runner.model) else "",
        chunk=int(chunk) if layer.use_irope and chunk else 0)


def masks_images(model: Any) -> bool:
    """Whether a model writes into a step's metadata which keys rows of images see (Gemma 3, 4)."""
    return hasattr(model, "prepare_attn_masks")


def server_of(runner: Any, arch: Optional[str], page_size: int) -> Server:
    """What of a server's options kernels depend on."""
    cache = "fp8_e4m3" if runner.kv_cache_dtype is torch.float8_e4m3fn else "auto"
    if getattr(runner.token_to_kv_pool, "dsa_kv_cache_store_fp8", False):
        cache = DSV32
    drafts = (get_spec().speculative_num_draft_tokens or 0) if _speculates(runner) else 0
    return Server(arch or "sm_90a", _DTYPES[runner.dtype], page_size, cache,
                  drafts=max(0, drafts - 1), partition_keys=partition_keys(runner),
                  tree=_follows_trees(runner))


def _speculates(runner: Any) -> bool:
    algorithm = getattr(runner, "spec_algorithm", None)
    return algorithm is not None and not algorithm.is_none()


def _follows_trees(runner: Any) -> bool:
    """Whether drafts that are verified are trees: the rows of a chain see one another in order."""
    if not _speculates(runner) or getattr(runner, "is_draft_worker", False):
        return False
    return runner.spec_algorithm.is_ngram() or (get_spec().speculative_eagle_topk or 1) > 1


def partition_keys(runner: Any) -> int:
    """The keys of a part where inference is deterministic (invariant_keys), else 0."""
    if not get_exec().deterministic.enable_deterministic_inference:
        return 0
    layers = _layers_of(runner)
    elements = max((one.tp_q_head_num * one.v_head_dim for one in layers), default=1)
    # NOTE: a newer version's server_args have what was asked for, and not what became of it.
    schedule, context = get_schedule(), runner.model_config.context_len
    rows = schedule.chunked_prefill_size or 8192
    if rows < 0:  # prompts are whole
        rows = max(schedule.max_prefill_tokens, context)
    return invariant_keys(elements, rows, context)


def _arch(runner: Any) -> Optional[str]:
    """The architecture of the runner's GPU; None: one that the kernels do not serve."""
    try:
        return architecture(getattr(runner, "gpu_id", 0) or 0)
    except AttnjitError:
        return None


# --- what a step's layers share

@dataclass
class Step:
    """What a step's layers share."""

    kv_lens: torch.Tensor
    page_table: torch.Tensor
    window_table: Optional[torch.Tensor]  #: of the layers whose cache is the windows' pool
    q_offsets: Optional[torch.Tensor] = None  #: None: each request has as many rows
    max_q_len: int = 1
    tree: Optional[torch.Tensor] = None  #: which drafts see which, a bit each
    positions: Optional[torch.Tensor] = None  #: of drafts, [requests, rows]
    window_loc: Optional[torch.Tensor] = None  #: where this step's rows go in the windows' pool
    cross_lens: Optional[torch.Tensor] = None  #: of layers that see another sequence
    cross_table: Optional[torch.Tensor] = None
    custom_mask: Optional[torch.Tensor] = None  #: which keys rows see; a model of images sets it
    images: Optional[torch.Tensor] = None  #: made of it: what rows see ahead, [rows, 2]

    def first(self, count: int) -> "Step":
        """The part that so many requests have."""
        def cut(one: Optional[torch.Tensor], more: int = 0) -> Optional[torch.Tensor]:
            return None if one is None else one[:count + more]

        return Step(self.kv_lens[:count], self.page_table[:count], cut(self.window_table),
                    cut(self.q_offsets, 1), self.max_q_len, cut(self.tree), cut(self.positions),
                    None, cut(self.cross_lens), cut(self.cross_table))


class AttnjitAttnBackend(AttentionBackend):
    """One thread's steps: SGLang makes a backend for each model runner."""

    needs_cpu_seq_lens: bool = False  # lengths and tables are read on the device

    def __init__(self, runner: Any, page_size: Optional[int] = None) -> None:
        """`page_size`: in which the kernels read the pool, where it is not the pool's own."""
        super().__init__()
        arch = _arch(runner)
        self.page_size = page_size or runner.page_size
        refuse(runner, arch, self.page_size)
        self.device = runner.device
        self.req_to_token_pool = runner.req_to_token_pool  # SGLang asks for it
        self.req_to_token = self.req_to_token_pool.req_to_token
        self.token_to_kv_pool = runner.token_to_kv_pool
        self.max_context_len = runner.model_config.context_len
        self.max_pages = -(-self.req_to_token.shape[1] // self.page_size)
        self.has_windows = (isinstance(self.token_to_kv_pool, SWAKVPool)
                            and self.token_to_kv_pool.swa_layer_nums > 0)
        self.crosses = bool(runner.model_config.is_encoder_decoder)
        self.drafts = (get_spec().speculative_num_draft_tokens or 0) if _speculates(runner) else 0
        self.tree = _follows_trees(runner)
        self._is_draft_runner = bool(getattr(runner, "is_draft_worker", False))
        self.forward_metadata: Optional[Step] = None
        self._server = server_of(runner, arch, self.page_size)
        self._eight_bits = runner.kv_cache_dtype is torch.float8_e4m3fn
        self._one = torch.ones(1, device=self.device)  # the scale of what has none
        self._scales_by_layer: Dict[int, Tuple[Any, Any, torch.Tensor, torch.Tensor]] = {}
        self._graphs: Dict[Tuple[int, str], Step] = {}  # by the number of requests and the mode
        self._kinds: Dict[Tuple[int, bool, bool, bool], "Kind"] = {}  # by layer and step
        self._verify_mask: Any = None
        self._asked = ask_at_start(runner, arch, self._server)
        for layer in _layers_of(runner):
            self._scales(layer, False)  # of each layer: a graph is to find them made

    # --- steps

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Before a step that runs eagerly."""
        batch = forward_batch
        made = self._memory(batch.batch_size, torch.empty, self._mode(batch))
        self._fill(made, batch)
        self.forward_metadata = made

    def _mode(self, batch: Any) -> str:
        """Which kind of step a batch is."""
        mode = batch.forward_mode
        if mode.is_decode_or_idle():
            return "decode"
        if mode.is_target_verify():
            return "verify"
        if not mode.is_extend(include_draft_extend_v2=True) or mode.is_dllm_extend():
            raise NotImplementedError(f"attnjit: {mode!r} is not served")
        return "draft_extend" if mode.is_draft_extend_v2() else "extend"

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """The memory that captured steps read, whatever the number of their requests."""
        # NOTE: zeros: requests that pad a graph read page 0.
        self._static = self._memory(max_bs, torch.zeros, "all")
        self._graphs.clear()
        if self.drafts and not self._is_draft_runner:
            from sglang.srt.layers.attention.verify_mask import VerifyMask
            from sglang.srt.speculative.eagle_utils import TreeMaskMode

            self._verify_mask = VerifyMask(
                buffer=torch.zeros(max_bs * self.drafts ** 2, dtype=torch.bool,
                                   device=self.device),
                mode=TreeMaskMode.QLEN_ONLY, max_bs=max_bs, is_read=self.tree)

    @property
    def verify_mask(self) -> Any:
        """Where SGLang writes which drafts see which."""
        return self._verify_mask

    def update_verify_buffers_to_fill_after_draft(self, spec_info: Any,
                                                  cuda_graph_bs: Optional[int]) -> None:
        """NOTE: a step's mask is packed before the step, when it is written."""

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Before a step is captured or replayed: its requests are the first of the memory's."""
        count, mode = forward_batch.batch_size, self._mode(forward_batch)
        if in_capture or (count, mode) not in self._graphs:
            step = self._static.first(count)
            if mode in ("decode", "verify"):
                step.q_offsets = None
            if mode != "verify":
                step.tree = step.positions = None
            step.max_q_len = (1 if mode == "decode" else forward_batch.positions.numel()
                              if mode == "extend" else self._width(forward_batch))
            self._graphs[count, mode] = step
        self.forward_metadata = self._graphs[count, mode]
        self._fill_tree(self.forward_metadata, forward_batch)

    def init_forward_metadata_in_graph(self, forward_batch: Any) -> None:
        """What a captured step does before its layers: nothing here reads from the device."""
        self._fill(self.forward_metadata, forward_batch, in_graph=True)

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return 1

    def draft_extend_metadata_captured_in_graph(self) -> bool:
        return True

    def _memory(self, count: int, make: Callable[..., torch.Tensor], mode: str = "decode") -> Step:
        def table() -> torch.Tensor:
            return make((count, self.max_pages), dtype=torch.int32, device=self.device)

        made = Step(make(count, dtype=torch.int32, device=self.device), table(),
                    table() if self.has_windows else None)
        if mode not in ("decode", "verify"):
            made.q_offsets = torch.zeros(count + 1, dtype=torch.int32, device=self.device)
        if self.tree and mode in ("verify", "all"):
            words = self.drafts * -(-self.drafts // 32)
            made.tree = make((count, words), dtype=torch.int32, device=self.device)
            made.positions = make((count, self.drafts), dtype=torch.int32, device=self.device)
        if self.crosses:
            made.cross_lens = torch.zeros(count, dtype=torch.int32, device=self.device)
            made.cross_table = table()
        return made

    def _fill(self, step: Step, batch: Any, in_graph: bool = False) -> None:
        """Lengths and page tables of a batch, made on the device."""
        count = step.kv_lens.shape[0]
        if count == 0:
            return
        mode = self._mode(batch)
        if mode == "verify":
            step.max_q_len = self._width(batch)
            if not in_graph:
                self._fill_tree(step, batch)
        elif step.q_offsets is not None:
            torch.cumsum(batch.extend_seq_lens[:count], 0, dtype=torch.int32,
                         out=step.q_offsets[1:])
            if not in_graph:
                step.max_q_len = self._longest(batch)
        requests = batch.req_pool_indices[:count]
        starts = None
        if self.crosses and batch.encoder_lens is not None:
            starts = batch.encoder_lens[:count]
            fill_page_tables(self.req_to_token, requests, starts, 0, self.page_size,
                             step.cross_lens, step.cross_table)
        fill_page_tables(self.req_to_token, requests, batch.seq_lens[:count],
                         step.max_q_len if mode == "verify" else 0, self.page_size,
                         step.kv_lens, step.page_table, step.window_table, self.to_window(), starts)
        if self.has_windows and batch.out_cache_loc is not None:
            step.window_loc = self.window_loc(batch.out_cache_loc)

    def _longest(self, batch: Any) -> int:
        """The rows of the longest request."""
        if batch.extend_seq_lens_cpu is not None:
            return max(map(int, batch.extend_seq_lens_cpu), default=0)
        if batch.forward_mode.is_draft_extend_v2():
            return self._width(batch)
        return int(batch.extend_seq_lens.max())

    def _width(self, batch: Any) -> int:
        """The rows of each request of a step with drafts, where it may say so itself."""
        said = getattr(getattr(batch, "spec_info", None), "num_tokens_per_req", None) or 0
        return said if said > 0 else self.drafts

    def _fill_tree(self, step: Step, batch: Any) -> None:
        """NOTE: outside of graphs: where the mask lies, and how, changes."""
        if step.tree is None or batch.spec_info is None or batch.spec_info.custom_mask is None:
            return
        count = step.tree.shape[0]
        mask = batch.spec_info.custom_mask
        # NOTE: of a whole buffer the first requests'.
        exact = count * self.drafts ** 2
        if self._verify_mask is not None and mask.data_ptr() == self._verify_mask.buffer.data_ptr():
            mask = mask[:exact]
        if mask.numel() < exact:
            mask = torch.nn.functional.pad(mask, (0, exact - mask.numel()), value=True)
        tree_bits(mask, batch.seq_lens[:count], self.drafts, step.tree)
        step.positions.copy_(batch.positions[:count * self.drafts].view(count, self.drafts))

    def to_window(self) -> Optional[torch.Tensor]:
        """The slot in the windows' pool of each slot."""
        return self.token_to_kv_pool.full_to_swa_index_mapping if self.has_windows else None

    def window_loc(self, loc: torch.Tensor) -> torch.Tensor:
        """Where rows go in the windows' pool."""
        return self.token_to_kv_pool.translate_loc_from_full_to_swa(loc)

    # --- a layer

    @torch.compiler.disable
    def forward_decode(self, q: torch.Tensor, k: Any, v: Any, layer: Any, forward_batch: Any,
                       save_kv_cache: bool = True, **others: Any) -> torch.Tensor:
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache, others)

    @torch.compiler.disable
    def forward_extend(self, q: torch.Tensor, k: Any, v: Any, layer: Any, forward_batch: Any,
                       save_kv_cache: bool = True, **others: Any) -> torch.Tensor:
        return self._attend(q, k, v, layer, forward_batch, save_kv_cache, others)

    def _attend(self, q: torch.Tensor, k: Any, v: Any, layer: Any, batch: Any,
                save_kv_cache: bool, others: Dict[str, Any]) -> torch.Tensor:
        step = self.forward_metadata
        sinks = others.pop("sinks", None)
        refuse_unknown(layer, others)
        if save_kv_cache and k is not None:
            self._write(layer, batch, step, k, v)
        rows, heads = q.shape[0], layer.tp_q_head_num
        offsets = self._offsets(step)
        kind = self._kind(layer, step.tree is not None, offsets is not None,
                          self._sees_images(step, layer, batch, rows))
        keys, values = (self._pages(one) for one in
                        self.token_to_kv_pool.get_kv_buffer(layer.layer_id))
        windowed = (self.has_windows
                    and self.token_to_kv_pool.layers_mapping[layer.layer_id][1])
        table, lens = step.window_table if windowed else step.page_table, step.kv_lens
        if layer.is_cross_attention:
            table, lens = step.cross_table, step.cross_lens
        q = q.view(rows, heads, layer.qk_head_dim)
        out = q.new_empty(rows, heads, layer.v_head_dim, dtype=kind.dtype)
        if kind.rounds_q:
            q = q.to(torch.float8_e4m3fn)
        options = dict(mask=kind.mask_over(step), score_mod=kind.score_mod, scale=kind.scale,
                       sink=None if sinks is None else sinks.float(), service=service(),
                       **self._scales(layer, kind.rounds_q))
        whole = out
        if self._server.partition_keys:
            options["partition_keys"] = self._server.partition_keys
        if offsets is not None:
            launches["mixed"] += 1
            options.update(q_offsets=offsets, max_q_len=step.max_q_len)
        else:
            launches[f"rows_{step.max_q_len}"] += 1
            if step.max_q_len > 1:
                shape = (lens.shape[0], step.max_q_len, heads)
                q, whole = q.view(*shape, -1), out.view(*shape, -1)
        paged_attention(q, keys, values, table, lens, out=whole, **options)
        return out.view(rows, heads * layer.v_head_dim)

    def _offsets(self, step: Step) -> Optional[torch.Tensor]:
        """Where each request's rows begin; None: a kernel serves as many rows of each."""
        if step.q_offsets is not None:
            return step.q_offsets
        if step.max_q_len <= MOST_ROWS and not self._server.partition_keys:
            return None
        return torch.arange(step.kv_lens.shape[0] + 1, dtype=torch.int32,
                            device=self.device) * step.max_q_len

    def _sees_images(self, step: Step, layer: Any, batch: Any, rows: int) -> bool:
        """Whether rows of images are among a step's, of which the ranges are then made."""
        if step.custom_mask is None or not self._asked[id(layer)].images:
            return False
        if step.images is None:
            step.images = image_ranges(step.custom_mask, batch.extend_seq_lens.tolist(),
                                       batch.extend_prefix_lens.tolist(), rows)
        return True

    def _kind(self, layer: Any, tree: bool, prompts: bool, images: bool = False) -> "Kind":
        key = layer.layer_id, tree, prompts, images
        found = self._kinds.get(key)
        if found is None or found.layer is not layer:
            found = self._kinds[key] = Kind(layer, self._asked[id(layer)], self._server, *key[1:])
        return found

    def _write(self, layer: Any, batch: Any, step: Step, k: torch.Tensor, v: torch.Tensor) -> None:
        where = self._loc(layer, batch, step.window_loc)
        if self._eight_bits:  # a scale that is there divides k, or v, in place
            self.token_to_kv_pool.set_kv_buffer(layer, where, k, v, layer.k_scale, layer.v_scale)
        else:
            self.token_to_kv_pool.set_kv_buffer(layer, where, k, v)

    @staticmethod
    def _loc(layer: Any, batch: Any, window_loc: Optional[torch.Tensor]) -> KVWriteLoc:
        """Where this step's rows go."""
        if layer.is_cross_attention:
            return KVWriteLoc(batch.encoder_out_cache_loc)
        if window_loc is not None:  # NOTE: where graphs pad prompts, the batch's is cut
            window_loc = window_loc[:batch.out_cache_loc.shape[0]]
        if hasattr(KVWriteLoc, "for_batch"):
            return KVWriteLoc.for_batch(batch, swa_loc=window_loc)
        return KVWriteLoc(batch.out_cache_loc, window_loc)

    def _scales(self, layer: Any, rounds_q: bool) -> Dict[str, torch.Tensor]:
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
        return {**scales, "q_scale": self._one} if rounds_q else scales

    def _scale(self, given: Any) -> torch.Tensor:
        if given is None:
            return self._one
        return torch.as_tensor(given, dtype=torch.float32, device=self.device).detach().view(1)

    def _pages(self, buffer: torch.Tensor) -> torch.Tensor:
        """[pages, page_size, heads, depth] of a pool's buffer of rows, or of pages of heads."""
        if buffer.dim() == 4:
            return buffer.transpose(1, 2)
        return buffer.view(-1, self.page_size, *buffer.shape[1:])


# --- at start

def ask_at_start(runner: Any, arch: Optional[str], server: Server) -> Dict[int, Layer]:
    """Has the kernels of the model's layers compiled, and says what is served: each layer by its
    id()."""
    asked: Dict[int, Layer] = {}
    counted: Dict[Layer, int] = {}
    for layer in _layers_of(runner):
        one = asked[id(layer)] = layer_of(layer, runner, _sinks_of(runner, layer))
        counted[one] = counted.get(one, 0) + 1
    for one in counted:
        sglang_service.ask(sglang_specs(one, server))
    say_start(arch, counted, server, REFUSED)
    return asked


# NOTE: SGLang captures graphs of the step in which a draft model reads what was verified, and models
# write the masks of images, for backends of its own classes alone. Both ask of them what Step and
# AttnjitAttnBackend have.
TritonAttnBackend.register(AttnjitAttnBackend)


def refuse_unknown(layer: Any, others: Dict[str, Any]) -> None:
    """Raises where a layer gives what no kernel takes."""
    for name, value in others.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"attnjit: layer {layer.layer_id} gives {name}, which is not "
                                      "served")


class Kind:
    """How a layer's kernels are called."""

    def __init__(self, layer: Any, described: Layer, server: Server, tree: bool,
                 prompts: bool, images: bool) -> None:
        self.layer, self.scale = layer, float(layer.scaling)
        self.dtype = torch.float16 if server.dtype == "fp16" else torch.bfloat16
        self.rounds_q = sglang_types(described, server, prompts)["qkv_dtype"] == "e4m3"
        self.score_mod = (ScoreMod({"kind": "softcap", "cap": described.softcap})
                          if described.softcap else None)
        self.mask = Mask(tree_mask(described.window, server.drafts + 1) if tree
                         else mask_of(described.window, True, described.images) if images
                         else sglang_mask(described))

    def mask_over(self, step: Step) -> Mask:
        """The mask over a step's arrays."""
        if not self.mask.declared:
            return self.mask
        arrays = {"tree": step.tree, "at": step.positions, "image": step.images}
        return Mask(self.mask.spec, {one["name"]: arrays[one["name"]]
                                     for one in self.mask.declared}, None, self.mask.json)

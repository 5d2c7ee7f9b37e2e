# SPDX-License-Identifier: Apache-2.0
"""attention() and paged_attention(): one call, compiled at its first use."""
from __future__ import annotations

from ctypes import c_int32, c_int64, c_uint64
from typing import (Any, Callable, List, Literal, Optional, Sequence, Tuple, TypeVar, overload)

from . import _launch
from ._abi import integer, positive
from ._errors import InvalidError, UnsupportedError, refused, wrong_type
from ._launch import Tensors
from ._tensors import view
from ._types import Layout
from .masks import (HostArray, Mask, ScoreMod, as_mask, as_score_mod, with_bias,
                    with_blocks)
from .service import Service

T = TypeVar("T")  # a library's tensors

# The rows of a decode that the spec names, by those of the call: a launch of fewer has the same
# kernel.
_DECODE_ROWS = (1, 1, 2, 4, 4, 8, 8, 8, 8)
_MAX_DECODE_ROWS = 8


_nvtx: Any = None  # torch.cuda.nvtx while ranges are wanted


def nvtx_ranges(on: bool = True) -> None:
    """From now on each attention() and paged_attention() is a range for Nsight Systems.

    It is named by the mask and the shapes of q and k. What a first call compiles lies within its
    range. It needs torch.
    """
    global _nvtx
    _nvtx = None
    if on:
        from torch.cuda import nvtx
        _nvtx = nvtx


@overload
def attention(q: T, k: Any, v: Any, *, mask: Any = ..., score_mod: Any = ..., scale: Optional[float] = ..., sink: Any = ...,
              lse: Literal[False] = ..., out: Any = ..., q_scale: Any = ..., k_scale: Any = ...,
              v_scale: Any = ..., output_scale: Any = ..., bias: Any = ..., q_offsets: Any = ...,
              kv_offsets: Any = ..., kv_lens: Any = ..., max_q_len: Optional[int] = ...,
              max_kv_len: Optional[int] = ..., layout: Layout = ..., service: Optional[Service] = ...,
              stream: Optional[int] = ..., fallback: bool = ...,
              meanwhile: Optional[Callable[[], Any]] = ..., block_mask: Any = ...) -> T: ...
@overload
def attention(q: T, k: Any, v: Any, *, mask: Any = ..., score_mod: Any = ..., scale: Optional[float] = ..., sink: Any = ...,
              lse: Literal[True], out: Any = ..., q_scale: Any = ..., k_scale: Any = ...,
              v_scale: Any = ..., output_scale: Any = ..., bias: Any = ..., q_offsets: Any = ...,
              kv_offsets: Any = ..., kv_lens: Any = ..., max_q_len: Optional[int] = ...,
              max_kv_len: Optional[int] = ..., layout: Layout = ..., service: Optional[Service] = ...,
              stream: Optional[int] = ..., fallback: bool = ...,
              meanwhile: Optional[Callable[[], Any]] = ..., block_mask: Any = ...) -> Tuple[T, T]: ...
def attention(q: Any, k: Any, v: Any, *, mask: Any = None, score_mod: Any = None,
              scale: Optional[float] = None, sink: Any = None, lse: bool = False, out: Any = None,
              q_scale: Any = None, k_scale: Any = None, v_scale: Any = None,
              output_scale: Any = None, bias: Any = None,
              q_offsets: Any = None, kv_offsets: Any = None, kv_lens: Any = None,
              max_q_len: Optional[int] = None, max_kv_len: Optional[int] = None,
              layout: Layout = "bshd", service: Optional[Service] = None,
              stream: Optional[int] = None, fallback: bool = False,
              meanwhile: Optional[Callable[[], Any]] = None, block_mask: Any = None) -> Any:
    """softmax(score_mod(scale * q k^T) where mask) v

    Args:
        q: [batch, q_len, heads, depth]; with q_offsets [total_q, heads, depth].
        k, v: [batch, kv_len, kv_heads, depth]; with kv_offsets [total_kv, kv_heads, depth].
            kv_heads divides the heads of q. All three are bf16, fp16 or float8_e4m3fn; or k and v
            are float8_e4m3fn, and q is bf16 or fp16. They are on one GPU, with any strides but a
            contiguous last dimension; torch tensors, or whatever has DLPack.
        mask: None, "causal", an object of a spec, or what attnjit.mask returns. A function is
            traced at each call: attnjit.mask(function) once is faster. Positions of "causal" and
            other names are aligned at the end. Or a tensor [batch or 1, heads or 1, q_len or 1,
            kv_len], leading ones left out: bool or uint8, where a key is seen, or numbers that are
            added to the modified scores. `&` joins one with other masks, and attnjit.bit_mask makes
            one of bits.
        score_mod: None, "alibi", an object of a spec, or what attnjit.score_mod and attnjit.alibi
            return.
        scale: of the scores; None: 1 / sqrt(depth).
        sink: f32 [heads]: a logit per head, which counts in the denominator alone.
        lse: also return the natural logarithm of the sum of exponentials.
        out: where the result is written; None: a new torch tensor.
        q_scale, k_scale, v_scale: of float8_e4m3fn elements, f32: one number each, or [batch,
            heads of that tensor], or the tensor's shape without its depth: a number for each row of
            a head, in memory with rows before heads; of pages with any strides, K's and V's alike.
            Scores are scale * q_scale * k_scale * q k^T. Where q is of another type than k and v,
            there is no q_scale.
        output_scale: f32, one number: the result is float8_e4m3fn, and was divided by it.
        bias: a tensor of numbers as `mask` takes one, beside a mask of another kind.
        q_offsets, kv_offsets: i32 [batch + 1]: where each sequence begins in q, and in k and v.
        kv_lens: i32 [batch]: the keys of each sequence, with q_offsets and without kv_offsets.
        max_q_len, max_kv_len: bounds on the sequences' lengths, with offsets; None: all rows.
        layout: "bshd", or "bhsd" where heads come before rows, as in torch's attention.
        service: whose cache and options count; None: one for the process.
        stream: a CUstream; None: torch's current one, or the default stream. Of torch make it
            current instead, so that torch knows what its memory is used for.
        fallback: while the kernel of custom code is being compiled in the background, one that
            interprets the code serves, which computes the same, slower; fallback_served() says
            whether it did. There is one for each shape and type, which is at hand after the first
            such call, or after a prewarm (docs/fleet.md); a `service` compiles it with
            compile_fallbacks=1 alone.
        meanwhile: called, and its result returned, while the kernel is being compiled in the
            background, and none of `fallback` is at hand; None: wait for it.
        block_mask: FlexAttention's BlockMask: which blocks of 128 rows and keys are hidden, seen
            whole, or asked about: of `mask`, or where that is None of the BlockMask's mask_mod.
            Its mask_mod is traced at each call: mask=attnjit.block_mask(..) once is faster.

    Returns:
        out [batch, q_len, heads, v's depth] or [total_q, heads, v's depth], with the dimensions of
        `layout`, and rows before heads in memory; with lse a pair of it and f32 [batch, heads,
        q_len] or [heads, total_q].
    """
    if layout not in ("bshd", "bhsd"):
        raise refused(f'layout is {layout!r}; allowed: "bshd", "bhsd"', "layout")
    if stream is not None:
        integer("stream", stream, c_uint64)
    # NOTE: as view() says of most; each call of it takes a tenth of a microsecond.
    if not (hasattr(q, "data_ptr") and hasattr(k, "data_ptr") and hasattr(v, "data_ptr")):
        q, k, v = view(q, stream, "q"), view(k, stream, "k"), view(v, stream, "v")
    q_shape, k_shape = q.shape, k.shape
    if (len(q_shape) != (4 if q_offsets is None else 3)
            or len(k_shape) != (4 if kv_offsets is None else 3) or len(v.shape) != len(k_shape)):
        _refuse_dimensions(("q", q, 4 if q_offsets is None else 3),
                           ("k", k, 4 if kv_offsets is None else 3),
                           ("v", v, 4 if kv_offsets is None else 3))
    if q_offsets is not None:
        layout = "bshd"  # there is no batch, and heads come after rows
    rows = -2 if layout == "bhsd" else -3
    if block_mask is not None:
        mask = with_blocks(block_mask, mask, bias)
    elif bias is not None:
        mask = with_bias(mask, bias)
    q_bound = q_shape[rows] if max_q_len is None else _bound("max_q_len", max_q_len)
    more = ""
    if q_offsets is not None:
        more = _parts_of_ragged(q)
    elif kv_offsets is None and _launch.is_torch(q):
        heads = -3 if layout == "bhsd" else -2
        more = _fields_of_few_rows(q_bound, q_shape[heads], k_shape[heads])
    done = _call(q, k, v, out, layout, mask, score_mod, more, scale, sink, lse, None, kv_lens,
                 q_offsets, kv_offsets, (q_scale, k_scale, v_scale, output_scale), q_bound,
                 k_shape[rows] if max_kv_len is None else _bound("max_kv_len", max_kv_len), service, stream, fallback,
                 meanwhile)
    if done is None:
        return meanwhile()  # type: ignore[misc]
    return done[0] if done[1] is None else done


@overload
def paged_attention(q: T, k_cache: Any, v_cache: Any, page_table: Any, kv_lens: Any, *,
                    q_offsets: Any = ...,
                    max_q_len: Optional[int] = ..., max_kv_len: Optional[int] = ...,
                    mask: Any = ..., score_mod: Any = ..., scale: Optional[float] = ...,
                    sink: Any = ..., lse: Literal[False] = ..., out: Any = ..., q_scale: Any = ...,
                    k_scale: Any = ..., v_scale: Any = ..., output_scale: Any = ...,
                    bias: Any = ..., num_partitions: Optional[int] = ...,
                    partition_keys: int = ..., service: Optional[Service] = ...,
                    stream: Optional[int] = ..., fallback: bool = ...,
                    meanwhile: Optional[Callable[[], Any]] = ...) -> T: ...
@overload
def paged_attention(q: T, k_cache: Any, v_cache: Any, page_table: Any, kv_lens: Any, *,
                    q_offsets: Any = ...,
                    max_q_len: Optional[int] = ..., max_kv_len: Optional[int] = ...,
                    mask: Any = ..., score_mod: Any = ..., scale: Optional[float] = ...,
                    sink: Any = ..., lse: Literal[True], out: Any = ..., q_scale: Any = ...,
                    k_scale: Any = ..., v_scale: Any = ..., output_scale: Any = ...,
                    bias: Any = ..., num_partitions: Optional[int] = ...,
                    partition_keys: int = ..., service: Optional[Service] = ...,
                    stream: Optional[int] = ..., fallback: bool = ...,
                    meanwhile: Optional[Callable[[], Any]] = ...) -> Tuple[T, T]: ...
def paged_attention(q: Any, k_cache: Any, v_cache: Any, page_table: Any, kv_lens: Any, *,
                    q_offsets: Any = None, max_q_len: Optional[int] = None,
                    max_kv_len: Optional[int] = None, mask: Any = None, score_mod: Any = None,
                    scale: Optional[float] = None, sink: Any = None, lse: bool = False,
                    out: Any = None, q_scale: Any = None, k_scale: Any = None,
                    v_scale: Any = None, output_scale: Any = None, bias: Any = None,
                    num_partitions: Optional[int] = None, partition_keys: int = 0,
                    service: Optional[Service] = None, stream: Optional[int] = None,
                    fallback: bool = False,
                    meanwhile: Optional[Callable[[], Any]] = None) -> Any:
    """Attention over a paged cache of keys and values; what attention() does not say is here.

    Args:
        q: [total_q, heads, depth] with q_offsets; without, [batch, q_len, heads, depth], or
            [batch, heads, depth] for one row of each sequence.
        k_cache, v_cache: [pages, page_size, kv_heads, depth], with any strides: views of a cache
            whose layout is another one are right (docs/serving.md).
        page_table: i32 [batch, max_pages]; entries past a sequence's keys are not read.
        kv_lens: i32 [batch]: the keys of each sequence, this call's among them.
        max_q_len, max_kv_len: bounds; None: the rows of q, and what page_table can hold.
        num_partitions: parts that the keys are split into; None: as many as fill the GPU for
            decodes and with q_offsets, one otherwise.
        partition_keys: n: parts of n keys, so that a row's bits do not depend on the batch.
    """
    if stream is not None:
        integer("stream", stream, c_uint64)
    k, v, table = k_cache, v_cache, page_table
    if not (hasattr(q, "data_ptr") and hasattr(k, "data_ptr") and hasattr(v, "data_ptr")
            and hasattr(table, "data_ptr")):
        q, k, v = view(q, stream, "q"), view(k, stream, "k_cache"), view(v, stream, "v_cache")
        table = view(table, stream, "page_table")
    shape, k_shape, table_shape = q.shape, k.shape, table.shape
    if (len(k_shape) != 4 or len(v.shape) != 4 or len(table_shape) != 2
            or len(shape) != 3 and (len(shape) != 4 or q_offsets is not None)):
        _refuse_dimensions(("q", q, 3 if q_offsets is not None else 4), ("k_cache", k, 4), ("v_cache", v, 4),
                           ("page_table", table, 2))
    layout = "bhd" if q_offsets is None and len(shape) == 3 else "bshd"
    if bias is not None:
        mask = with_bias(mask, bias)
    q_bound = (_bound("max_q_len", max_q_len) if max_q_len is not None else 1 if layout == "bhd"
               else shape[-3])
    kv_bound = (table_shape[1] * k_shape[1] if max_kv_len is None
                else _bound("max_kv_len", max_kv_len))
    more = ""
    decode = q_offsets is None and q_bound <= _MAX_DECODE_ROWS
    if decode:
        more = f',"max_q_len":{_DECODE_ROWS[q_bound]}'
    if partition_keys:
        more += f',"partition_keys":{integer("partition_keys", partition_keys, c_int32)}'
    elif num_partitions is not None or decode:
        parts = 0 if num_partitions is None else integer("num_partitions", num_partitions, c_int32)
        more += f',"num_partitions":{parts}'
    elif q_offsets is not None:
        more += _parts_of_ragged(q)
    done = _call(q, k, v, out, layout, mask, score_mod, more, scale, sink, lse, table, kv_lens,
                 q_offsets, None, (q_scale, k_scale, v_scale, output_scale), q_bound, kv_bound,
                 service, stream, fallback, meanwhile)
    if done is None:
        return meanwhile()  # type: ignore[misc]
    return done[0] if done[1] is None else done


def most_rows_of_small_tiles(group: int) -> int:
    """The most rows of a sequence that attention() computes in tiles of few rows; an SM has two.

    Such a tile has 64 rows, of all heads of a group.
    """
    return 64 // group


def _fields_of_few_rows(rows: Any, heads: int, kv_heads: int) -> str:
    """What a spec says where one tile of few rows has all rows of a group's heads."""
    most = 1
    if rows > 1:
        most = most_rows_of_small_tiles(heads // kv_heads) if 0 < kv_heads <= heads else 0
    return f',"max_q_len":{most},"num_partitions":0' if rows <= most else ""


def _parts_of_ragged(q: Any) -> str:
    """What a spec says of them: they need memory, for which only torch is asked."""
    return "" if _launch.is_torch(q) else ',"num_partitions":1'


def _bound(name: str, given: Any) -> Any:
    """A bound on lengths, which torch.compile may give as a symbol."""
    if type(given) is int or hasattr(given, "node"):
        if 0 <= given < 1 << 31:
            return given
        raise refused(f"{name} is {given}; allowed: 0 to {(1 << 31) - 1}", name)
    return _bound(name, integer(name, given, c_int64))


def _refuse_dimensions(*tensors: Tuple[str, Any, int]) -> None:
    for name, tensor, wanted in tensors:
        if len(tensor.shape) != wanted:
            raise refused(f"{name} {tuple(tensor.shape)} has {len(tensor.shape)} dimensions; this "
                          f"call needs {wanted}", name)


def _call(q: Any, k: Any, v: Any, out: Any, layout: str, mask: Any, score_mod: Any, more: str,
          scale: Optional[float], sink: Any, lse: bool, page_table: Any, kv_lens: Any,
          q_offsets: Any, kv_offsets: Any, scales: Tuple[Any, Any, Any, Any], q_len: int,
          kv_len: int, service: Optional[Service], stream: Optional[int], fallback: bool,
          meanwhile: Optional[Callable[[], Any]]) -> Optional[Tuple[Any, Any]]:
    """(out, lse or None), or None where `meanwhile` is to be called."""
    shown = mask if isinstance(mask, Mask) else as_mask(mask)
    modified = score_mod if isinstance(score_mod, ScoreMod) else as_score_mod(score_mod)
    arrays: Sequence[Any] = ()
    numbers: Sequence[int] = ()
    if shown.declared or modified.declared:
        modified = modified.renamed(shown.params)
        arrays, numbers = _params(q, shown, modified)
    backend: Any = _plain
    if hasattr(q, "new_empty"):
        import attnjit._torch as backend  # NOTE: a third of the time of `from . import`
    backend.refuse_gradients(q, k, v, sink, shown.tensor, modified.tensor, *arrays)
    result = backend.empty_out(q, v, layout, scales[3] is not None) if out is None else out
    sums = None
    if lse:
        *batch, rows, heads = q.shape[:-1]
        sums = backend.empty_f32(q, (*batch, heads, rows) if layout == "bshd" else q.shape[:-1])
    tensors = (q, k, v, result if hasattr(result, "data_ptr") else view(result, stream, "out"), sums,
               None if sink is None else view(sink, stream, "sink"), page_table,
               kv_lens if kv_lens is None or hasattr(kv_lens, "data_ptr")
               else view(kv_lens, stream, "kv_lens"),
               None if q_offsets is None else view(q_offsets, stream, "q_offsets"),
               None if kv_offsets is None else view(kv_offsets, stream, "kv_offsets"),
               *(scales if all(one is None for one in scales) else
                 [None if one is None else view(one, stream) for one in scales]),
               shown.tensor, modified.tensor, shown.blocks)
    if shown.blocks is not None:
        more += ',"mask_map":true'
    fields = _launch.fields_text(shown.json, modified.json, more)
    try:
        number = 0 if service is None else service.number
    except AttributeError:
        raise wrong_type(f"service is of {type(service).__name__}; allowed: attnjit.Service",
                         "service") from None
    if scale is not None and not (type(scale) is float and 0.0 < scale < 3e38):
        scale = positive("scale", scale)
    if meanwhile is not None:
        if not _launch.prepare(Tensors(*tensors).rows_first(layout), fields, number,
                               backend.stream(q, stream), q_len, kv_len, fallback):
            return None
    ranges = _nvtx
    if ranges is not None:
        name = shown.spec if isinstance(shown.spec, str) else shown.spec.get("name",
                                                                             shown.spec["kind"])
        ranges.range_push(f"attnjit {name} q{list(q.shape)} k{list(k.shape)}")
    try:
        backend.launch(tensors, arrays, numbers, fields, number, stream, q_len, kv_len,
                       0.0 if scale is None else scale, layout, bool(fallback))
    finally:
        if ranges is not None:
            ranges.range_pop()
    return result, sums


def _params(q: Any, mask: Mask, score_mod: ScoreMod) -> Tuple[List[Any], List[int]]:
    """The arrays and the numbers of both, in the order in which the spec declares them."""
    arrays: List[Any] = []
    numbers: List[int] = []
    for owner in (mask, score_mod):
        for param in owner.declared:
            name = param["name"]
            if owner is score_mod and name in mask.params:
                continue  # both have it, with one value
            if name not in owner.params:
                raise InvalidError(f"no value is given for the parameter {name}",
                                   field=owner.field, hint="attnjit.Mask and attnjit.ScoreMod take "
                                   "values beside the object of a spec")
            value = owner.params[name]
            if isinstance(value, HostArray):
                value = value.on(q)
            if param["type"] in ("i32", "u32"):
                numbers.append(value)
                continue
            array = view(value, name=name)
            arrays.append(array)
    return arrays, numbers


class _plain:
    """Calls on tensors of other libraries than torch: the caller gives `out`, and no lse."""

    @staticmethod
    def refuse_gradients(*tensors: Any) -> None:
        """Nothing: another library does not say what it would differentiate."""

    @staticmethod
    def empty_out(q: Any, v: Any, layout: str, scaled: bool) -> Any:
        if q.device.type != "cuda":
            raise _launch.not_on_gpu(q)
        raise wrong_type("`out` must be given: only torch tensors are made here", "out")

    @staticmethod
    def empty_f32(q: Any, shape: Tuple[int, ...]) -> Any:
        if q.device.type != "cuda":
            raise _launch.not_on_gpu(q)
        raise UnsupportedError("lse=True needs torch tensors", code="unsupported", field="lse",
                               hint="use attnjit.Service, whose launches take your own lse")

    @staticmethod
    def stream(q: Any, stream: Optional[int]) -> int:
        return stream or 0

    @staticmethod
    def launch(tensors: Sequence[Any], arrays: Sequence[Any], numbers: Sequence[int], fields: str,
               number: int, stream: Optional[int], q_len: int, kv_len: int, scale: float,
               layout: str, fallback: bool) -> None:
        _launch.launch(tensors, arrays, numbers, fields, number, stream or 0, q_len, kv_len, scale,
                       layout, fallback)

# SPDX-License-Identifier: Apache-2.0
"""attention() and paged_attention(): one call, compiled at its first use."""
from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple, Union

from . import _launch
from ._errors import UnsupportedError
from ._launch import Tensors
from ._tensors import view
from .masks import HostArray, Mask, ScoreMod, as_mask, as_score_mod
from .service import Service

# Rows of a decode that the specs name: a launch of fewer has the same kernel.
_DECODE_ROWS = (1, 2, 4, 8)


def attention(q: Any, k: Any, v: Any, *, mask: Any = None, score_mod: Any = None,
              scale: Optional[float] = None, sink: Any = None, lse: bool = False, out: Any = None,
              q_offsets: Any = None, kv_offsets: Any = None, kv_lens: Any = None,
              max_q_len: Optional[int] = None, max_kv_len: Optional[int] = None,
              layout: str = "bshd", service: Optional[Service] = None,
              stream: Optional[int] = None,
              meanwhile: Optional[Callable[[], Any]] = None) -> Any:
    """softmax(score_mod(scale * q k^T) where mask) v

    Args:
        q: [batch, q_len, heads, depth]; with q_offsets [total_q, heads, depth].
        k, v: [batch, kv_len, kv_heads, depth]; with kv_offsets [total_kv, kv_heads, depth].
            kv_heads divides the heads of q. bf16 or fp16, on one GPU, with any strides but for a
            contiguous last dimension; torch tensors, or whatever has DLPack.
        mask: None, "causal", an object of a spec, or what attnjit.mask returns. A function is
            traced at each call: attnjit.mask(function) once is faster. Positions of "causal" and
            other names are aligned at the end.
        score_mod: None, "alibi", an object of a spec, or what attnjit.score_mod returns.
        scale: of the scores; None: 1 / sqrt(depth).
        sink: f32 [heads]: a logit per head, which counts in the denominator alone.
        lse: also return the natural logarithm of the sum of exponentials.
        out: where the result is written; None: a new torch tensor.
        q_offsets, kv_offsets: i32 [batch + 1]: where each sequence begins in q, and in k and v.
        kv_lens: i32 [batch]: the keys of each sequence, with q_offsets and without kv_offsets.
        max_q_len, max_kv_len: bounds on the sequences' lengths, with offsets; None: all rows.
        layout: "bshd", or "bhsd" where heads come before rows, as in torch's attention.
        service: whose cache and options count; None: one for the process.
        stream: a CUstream; None: torch's current one, or the default stream. Of torch make it
            current instead, so that torch knows what its memory is used for.
        meanwhile: called, and its result returned, while the kernel is being compiled in the
            background; None: wait for it.

    Returns:
        out [batch, q_len, heads, v's depth] or [total_q, heads, v's depth]; with lse a pair of it
        and f32 [batch, heads, q_len] or [heads, total_q].
    """
    if layout not in ("bshd", "bhsd"):
        raise ValueError(f'layout is {layout!r}; allowed: "bshd", "bhsd"')
    ragged = q_offsets is not None
    q, k, v, out = (None if one is None else view(one, stream) for one in (q, k, v, out))
    swap = layout == "bhsd" and not ragged
    if swap:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        out = None if out is None else out.transpose(1, 2)
    kv_bound = k.shape[-3] if max_kv_len is None else max_kv_len
    q_bound = q.shape[-3] if max_q_len is None else max_q_len
    result = _call(q, k, v, out, mask, score_mod, "", scale, sink, lse, None, kv_lens, q_offsets,
                   kv_offsets, q_bound, kv_bound, service, stream, meanwhile)
    if not swap or not isinstance(result, _Result):
        return result.plain() if isinstance(result, _Result) else result
    return _Result(result.out.transpose(1, 2), result.lse).plain()


def paged_attention(q: Any, k_cache: Any, v_cache: Any, page_table: Any, kv_lens: Any, *,
                    q_offsets: Any = None, max_q_len: Optional[int] = None,
                    max_kv_len: Optional[int] = None, mask: Any = "causal", score_mod: Any = None,
                    scale: Optional[float] = None, sink: Any = None, lse: bool = False,
                    out: Any = None, num_partitions: Optional[int] = None,
                    partition_keys: int = 0, service: Optional[Service] = None,
                    stream: Optional[int] = None,
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
            decodes, one otherwise.
        partition_keys: n: parts of n keys, so that a row's bits do not depend on the batch.
    """
    q, k, v, out = (None if one is None else view(one, stream)
                    for one in (q, k_cache, v_cache, out))
    table = view(page_table, stream)
    one_row = q_offsets is None and len(q.shape) == 3
    if one_row:
        q, out = q.unsqueeze(1), None if out is None else out.unsqueeze(1)
    q_bound = q.shape[-3] if max_q_len is None else max_q_len
    kv_bound = table.shape[1] * k.shape[1] if max_kv_len is None else max_kv_len
    more = ""
    decode = q_offsets is None and q_bound <= _DECODE_ROWS[-1]
    if decode:
        more += f',"max_q_len":{next(rows for rows in _DECODE_ROWS if q_bound <= rows)}'
    if partition_keys:
        more += f',"partition_keys":{partition_keys}'
    elif num_partitions is not None or decode:
        more += f',"num_partitions":{0 if num_partitions is None else num_partitions}'
    result = _call(q, k, v, out, mask, score_mod, more, scale, sink, lse, table, kv_lens,
                   q_offsets, None, q_bound, kv_bound, service, stream, meanwhile)
    if not isinstance(result, _Result):
        return result
    if one_row:
        result = _Result(result.out.squeeze(1),
                         None if result.lse is None else result.lse.squeeze(2))
    return result.plain()


class _Result:
    """What a call computed."""

    def __init__(self, out: Any, lse: Any) -> None:
        self.out, self.lse = out, lse

    def plain(self) -> Any:
        return self.out if self.lse is None else (self.out, self.lse)


def _call(q: Any, k: Any, v: Any, out: Any, mask: Any, score_mod: Any, more: str,
          scale: Optional[float], sink: Any, lse: bool, page_table: Any, kv_lens: Any,
          q_offsets: Any, kv_offsets: Any, q_len: int, kv_len: int, service: Optional[Service],
          stream: Optional[int], meanwhile: Optional[Callable[[], Any]]) -> Any:
    shown = mask if isinstance(mask, Mask) else as_mask(mask)
    modified = score_mod if isinstance(score_mod, ScoreMod) else as_score_mod(score_mod)
    if shown.params and modified.params:
        modified = modified.renamed(shown.params)
    arrays, numbers = _params(q, shown, modified)
    is_torch = hasattr(q, "new_empty")
    if is_torch:
        from . import _torch as backend
        backend.refuse_gradients(q, k, v)
    else:
        backend = _plain
    rows = (*q.shape[:-1], v.shape[-1])
    if out is None:
        out = backend.empty(q, rows)
    heads_first = ((q.shape[1], q.shape[0]) if q_offsets is not None
                   else (q.shape[0], q.shape[2], q.shape[1]))
    sums = backend.empty_f32(q, heads_first) if lse else None
    others = [None if one is None else view(one, stream)
              for one in (sink, page_table, kv_lens, q_offsets, kv_offsets)]
    fields = _launch.fields_text(shown.json, modified.json, more)
    number = 0 if service is None else service.number
    if meanwhile is not None and not _launch.prepare(
            Tensors(q, k, v, out, sums, *others), fields, number, backend.stream(q, stream)):
        return meanwhile()
    backend.launch(q, k, v, out, sums, others, arrays, numbers, fields, number, stream, q_len,
                   kv_len, 0.0 if scale is None else float(scale))
    return _Result(out, sums)


def _params(q: Any, mask: Mask, score_mod: ScoreMod) -> Tuple[List[Any], List[int]]:
    """The arrays and the numbers of both, in the order in which the spec declares them."""
    if not mask.params and not score_mod.params:
        return [], []
    arrays: List[Any] = []
    numbers: List[int] = []
    for param in _launch.declared_params({"mask": mask.spec, "score_mod": score_mod.spec}):
        owner: Union[Mask, ScoreMod] = mask if param["name"] in mask.params else score_mod
        value = owner.params[param["name"]]
        if isinstance(value, HostArray):
            value = value.on(q)
        if param["type"] == "i32":
            numbers.append(value)
            continue
        array = view(value)
        if array.device != q.device:  # NOTE: the kernel would read another device's memory
            raise TypeError(f"the array {param['name']} of the {owner.field} lies on another device "
                            "than q")
        arrays.append(array)
    return arrays, numbers


class _plain:
    """Calls on tensors of other libraries than torch: the caller gives `out`, and no lse."""

    @staticmethod
    def empty(q: Any, shape: Tuple[int, ...]) -> Any:
        raise TypeError("`out` must be given: only torch tensors are made here")

    @staticmethod
    def empty_f32(q: Any, shape: Tuple[int, ...]) -> Any:
        raise UnsupportedError("lse=True needs torch tensors", code="unsupported", field="lse",
                               hint="use attnjit.Service, whose launches take your own lse")

    @staticmethod
    def stream(q: Any, stream: Optional[int]) -> int:
        return stream or 0

    @staticmethod
    def launch(q: Any, k: Any, v: Any, out: Any, lse: Any, others: List[Any], arrays: List[Any],
               numbers: List[int], fields: str, number: int, stream: Optional[int], q_len: int,
               kv_len: int, scale: float) -> None:
        _launch.launch(Tensors(q, k, v, out, lse, *others), arrays, numbers, fields, number,
                       stream or 0, q_len, kv_len, scale)

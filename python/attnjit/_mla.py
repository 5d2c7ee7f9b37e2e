# SPDX-License-Identifier: Apache-2.0
"""mla_attention(): absorbed MLA over a paged cache of latent rows, compiled at its first use."""
from __future__ import annotations

import json
from ctypes import byref, c_int32, c_int64
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from . import _launch
from ._abi import LaunchArgs, positive
from ._attention import _DECODE_ROWS, _MAX_DECODE_ROWS, _bound, _params, _plain
from ._device import architecture
from ._errors import InvalidError, refused, wrong_type
from ._tensors import SPEC_DTYPES, dtype_name, is_packed, overlaps, view
from .masks import Mask, as_mask, as_score_mod, declared_params
from .service import SERVICES, Service

ROPE = 64  #: elements with positions, the last ones of a row of 576 or 320
DSV32_BYTES = 656  #: of a row of the cache in the format dsv32


def mla_attention(q: Any, cache: Any, page_table: Any, kv_lens: Any, *,
                  latent: Optional[int] = None, q_offsets: Any = None,
                  max_q_len: Optional[int] = None, max_kv_len: Optional[int] = None,
                  topk_indices: Any = None, mask: Any = None,
                  scale: Optional[float] = None, sink: Any = None,
                  lse: bool = False, out: Any = None, k_scale: Any = None,
                  num_partitions: Optional[int] = None, partition_keys: int = 0,
                  service: Optional[Service] = None, stream: Optional[int] = None,
                  meanwhile: Optional[Callable[[], Any]] = None) -> Any:
    """Attention of absorbed queries over a paged cache of latent rows, which all heads share.

    Args:
        q: bf16 or fp16 [total_q, heads, latent + rope] with q_offsets; without, [batch, q_len,
            heads, latent + rope], or [batch, heads, latent + rope] for one row of each sequence.
        cache: [pages, page_size, latent + rope] of q's type or of float8_e4m3fn, or uint8 [pages,
            page_size, 656] in the format dsv32 (docs/spec.md). Its last dimension is contiguous.
        page_table: i32 [batch, max_pages]; None beside topk_indices.
        kv_lens: i32 [batch]: the keys of each sequence, this call's among them; None beside
            topk_indices.
        latent: elements of a row that are V, too; None: all but the last 64.
        topk_indices: i32 [rows of q, n]: the rows of the cache that each row of q sees, as page *
            page_size + row, and -1 for none. There is no mask beside it.
        k_scale: f32, one number, or [batch, 1]: of a cache of float8_e4m3fn.

    The others are those of paged_attention().

    Returns:
        out, as q with a depth of latent; with lse a pair of it and f32 [heads, total_q] or [batch,
        heads, q_len].
    """
    q, cache = view(q, stream), view(cache, stream)
    rows = q if q_offsets is not None or len(q.shape) == 4 else q.unsqueeze(1)
    pages = cache if len(cache.shape) == 4 else cache.unsqueeze(2)
    depth = q.shape[-1]
    latent = depth - ROPE if latent is None else latent
    shown = mask if isinstance(mask, Mask) else as_mask(mask)
    arrays: Sequence[Any] = ()
    numbers: Sequence[int] = ()
    if shown.declared:
        arrays, numbers = _params(q, shown, as_score_mod(None))
    backend: Any = _plain
    if hasattr(q, "new_empty"):
        import attnjit._torch as backend
    backend.refuse_gradients(q, cache, sink, shown.tensor, *arrays)
    result = out
    if result is None:
        if backend is _plain:
            raise TypeError("`out` must be given: only torch tensors are made here")
        result = q.new_empty((*q.shape[:-1], latent))
    written = view(result, stream)
    if len(written.shape) != len(rows.shape):
        written = written.unsqueeze(1)
    sums = None
    if lse:
        *batch, count, heads = rows.shape[:-1]
        sums = backend.empty_f32(q, (*batch, heads, count))
    q_bound = rows.shape[-3] if max_q_len is None else _bound("max_q_len", max_q_len)
    kv_bound = (_bound("max_kv_len", max_kv_len) if max_kv_len is not None
                else 0 if page_table is None
                else page_table.shape[1] * pages.shape[1])
    more = fields_of(None if q_offsets is not None else q_bound, num_partitions, partition_keys,
                     0 if topk_indices is None else topk_indices.shape[-1])
    fields = _launch.fields_text(shown.json, as_score_mod(None).json, more)
    call = _Call(rows, pages, written, sums, sink, page_table, kv_lens, q_offsets, topk_indices,
                 k_scale, latent)
    number = 0 if service is None else service.number
    queue = backend.stream(q, stream)
    launcher = _find(call, fields, number, queue, q_bound, meanwhile is None)
    if launcher is None:
        return meanwhile()  # type: ignore[misc]
    launcher.launch(call, arrays, numbers, q_bound, kv_bound,
                    0.0 if scale is None else positive("scale", scale))
    return result if sums is None else (result, sums)


def fields_of(q_len: Optional[int], num_partitions: Optional[int], partition_keys: int,
              topk: int) -> str:
    """What of a spec depends on a call's bounds, as members of JSON; `q_len` None: ragged."""
    more = ',"mla":"decode"'
    if q_len is not None and q_len <= _MAX_DECODE_ROWS:
        more += f',"max_q_len":{_DECODE_ROWS[q_len]}'
    if partition_keys:
        more += f',"partition_keys":{partition_keys}'
    else:
        more += f',"num_partitions":{num_partitions or 0}'
    return more + (f',"topk":{topk}' if topk else "")


class _Call:
    """The tensors of a call: q, out [batch, q_len, heads, depth] or ragged, pages of one head."""

    __slots__ = ("q", "cache", "out", "lse", "sink", "page_table", "kv_lens", "q_offsets",
                 "topk_indices", "k_scale", "latent")

    q: Any
    cache: Any
    out: Any
    lse: Any
    sink: Any
    page_table: Any
    kv_lens: Any
    q_offsets: Any
    topk_indices: Any
    k_scale: Any
    latent: int

    def __init__(self, *values: Any) -> None:
        for name, value in zip(self.__slots__, values):
            setattr(self, name, value)

    def scattered(self) -> Tuple[str, ...]:
        """The tensors that a launch reads packed, or nearly, and that are not: of torch, copies serve."""
        def copies(name: str, fits: Callable[[Any], bool]) -> bool:
            tensor = getattr(self, name)
            return tensor is not None and hasattr(tensor, "contiguous") and not fits(tensor)

        return (*(name for name in ("page_table", "kv_lens", "q_offsets", "sink")
                  if copies(name, _launch.has_rows)),
                *(name for name in ("topk_indices", "k_scale") if copies(name, is_packed)))

    def gathered(self, names: Sequence[str], stream: int) -> "_Call":
        """The same with copies of those tensors, made on the stream."""
        if not names:
            return self
        return _Call(*(_launch.packed_on(getattr(self, name), stream) if name in names else getattr(self, name)
                       for name in self.__slots__))

    def geometry(self) -> Tuple[Any, ...]:
        """All that the checks and the arguments, except for pointers, depend on."""
        shapes: Tuple[Any, ...] = tuple(None if one is None else (one.shape, one.stride(), one.dtype, one.device)
                       for one in (self.q, self.cache, self.out, self.page_table, self.kv_lens,
                                   self.q_offsets, self.topk_indices, self.k_scale, self.sink))
        return shapes + (self.lse is None, self.latent)


def spec_of(call: _Call, fields: str, arch: str) -> Dict[str, Any]:
    """The spec of a call."""
    q, cache = call.q, call.cache
    kind, of_cache = dtype_name(q.dtype), dtype_name(cache.dtype)
    dsv32 = of_cache == "uint8" and cache.shape[-1] == DSV32_BYTES
    if kind not in ("bfloat16", "float16") or not (dsv32 or of_cache in (kind, "float8_e4m3fn")):
        raise wrong_type(f"q and cache are of {kind} and {of_cache} with rows of {cache.shape[-1]}; "
                         "allowed: q of bfloat16 or float16, and a cache of the same, of "
                         f"float8_e4m3fn, or of uint8 with rows of {DSV32_BYTES} bytes", "cache")
    spec: Dict[str, Any] = {
        "arch": arch, "num_q_heads": q.shape[-2], "group": q.shape[-2], "qk_depth": q.shape[-1],
        "ov_depth": call.latent, "qkv_dtype": SPEC_DTYPES[kind],
        "output_dtype": SPEC_DTYPES.get(dtype_name(call.out.dtype), ""),
        "page_size": cache.shape[1]}
    if dsv32:
        spec["cache_format"] = "dsv32"
    elif of_cache != kind:
        spec["kv_dtype"] = SPEC_DTYPES[of_cache]
    for field, given in (("ragged", call.q_offsets), ("sink", call.sink), ("return_lse", call.lse)):
        if given is not None:
            spec[field] = True
    if call.k_scale is not None:
        spec["scales"] = "head" if len(call.k_scale.shape) == 2 else "tensor"
    spec.update(json.loads("{" + fields + "}"))
    return spec


def check(call: _Call, max_q_len: int) -> None:
    """Refuses tensors that do not fit: the kernels read and write where their arguments say."""
    q, cache, out = call.q, call.cache, call.out
    ragged = call.q_offsets is not None
    if len(q.shape) != (3 if ragged else 4) or len(cache.shape) != 4 or cache.shape[2] != 1:
        allowed = "[total_q, heads, depth]" if ragged else "[batch, q_len, heads, depth]"
        raise refused(f"q {tuple(q.shape)} and cache {tuple(cache.shape)} do not fit: "
                      f"{allowed} and [pages, page_size, 1, depth]", "q")
    if dtype_name(cache.dtype) != "uint8" and cache.shape[-1] != q.shape[-1]:
        raise refused(f"the rows of cache have {cache.shape[-1]} elements, those of q "
                      f"{q.shape[-1]}", "cache")
    if tuple(out.shape) != (*q.shape[:-1], call.latent):
        raise refused(f"out {tuple(out.shape)} must have the shape "
                      f"{(*q.shape[:-1], call.latent)}", "out")
    if overlaps(out):
        raise refused(f"out with strides {tuple(out.stride())} lies over itself, as what was "
                      "expanded: it cannot be written", "out", "give memory of its own")
    if not ragged and max_q_len > q.shape[1]:
        raise refused(f"max_q_len is {max_q_len}, and there are {q.shape[1]} rows", "max_q_len")
    batch = call.q_offsets.shape[0] - 1 if ragged else q.shape[0]
    listed = call.topk_indices is not None
    for name, tensor, shape in (("page_table", call.page_table, (batch, 1)),
                                ("kv_lens", call.kv_lens, (batch,))):
        if (tensor is None) != listed:
            raise InvalidError("is given beside topk_indices, which name the keys" if listed
                               else "is missing: only topk_indices stand for it", field=name)
        _launch._check_vector(name, tensor, "int32", shape)
    _launch._check_vector("q_offsets", call.q_offsets, "int32", (batch + 1,))
    _launch._check_vector("sink", call.sink, "float32", (q.shape[-2],))
    if listed:
        rows = q.shape[0] if ragged else q.shape[0] * q.shape[1]
        topk = call.topk_indices
        if (dtype_name(topk.dtype) != "int32" or len(topk.shape) != 2 or topk.shape[0] < rows
                or tuple(topk.stride()) != (topk.shape[1], 1)):
            raise refused(f"topk_indices {tuple(topk.shape)} of {dtype_name(topk.dtype)} must be packed "
                          f"int32 [{rows}, n]",
                          "topk_indices")
    if (call.k_scale is not None) and dtype_name(cache.dtype) != "float8_e4m3fn":
        raise refused("k_scale is of a cache of float8_e4m3fn", "k_scale")
    if call.k_scale is not None:
        shape = tuple(call.k_scale.shape)
        if (dtype_name(call.k_scale.dtype) != "float32" or shape not in ((), (1,), (batch, 1))
                or not is_packed(call.k_scale)):
            raise refused(f"k_scale {shape} of {dtype_name(call.k_scale.dtype)} must be packed float32 "
                          f"(1,) or ({batch}, 1)", "k_scale")
    for name in ("cache", "out", "lse", "sink", "page_table", "kv_lens", "q_offsets",
                 "topk_indices", "k_scale"):
        tensor = getattr(call, name)
        if tensor is not None and tensor.device != q.device:
            raise wrong_type(f"{name} lies on {tensor.device}, q on {q.device}", name)
    for name, tensor in (("q", q), ("cache", cache), ("out", out)):
        if tensor.stride()[-1] != 1:
            raise refused(f"the last dimension of {name} must be contiguous", name)


class _Launcher(_launch.Launcher):
    """The launches of one kernel of absorbed MLA on one stream, from one thread."""

    def launch(self, call: Any, params: Sequence[Any], numbers: Sequence[int],  # type: ignore
               q_len: int, kv_len: int, scale: float) -> None:
        geometry = (call.geometry(), q_len, kv_len, scale)
        args: LaunchArgs = self.args
        if geometry != self.geometry:
            self.geometry = None
            self.scattered = call.scattered()
            call = call.gathered(self.scattered, args.stream or 0)
            check(call, q_len)
            self._reshape(call, q_len, kv_len, scale)
            self.geometry = geometry
        else:
            call = call.gathered(self.scattered, args.stream or 0)
        for name, tensor in (("q", call.q), ("k", call.cache), ("v", call.cache), ("o", call.out),
                             ("lse", call.lse), ("sink", call.sink), ("page_table", call.page_table),
                             ("kv_lens", call.kv_lens), ("q_offsets", call.q_offsets),
                             ("topk_indices", call.topk_indices), ("k_scale", call.k_scale)):
            setattr(args, name, 0 if tensor is None else tensor.data_ptr())
        if self._declared:
            self.check_params(params, numbers, call.q.device)
            if self.scattered_params:
                params = [_launch.packed_on(one, args.stream or 0) for one in params]
            self._set_params(params, numbers)
        workspace = self._workspace(call.q) if self._needed else None
        kernel, arguments, state = self._arguments
        error = self._launch(kernel, arguments, state)
        if error:
            self._library.check(error)
        del workspace  # NOTE: only now: the stream orders its next use after this launch

    def _reshape(self, call: _Call, q_len: int, kv_len: int, scale: float) -> None:
        args, q, cache = self.args, call.q, call.cache
        ragged = call.q_offsets is not None
        args.batch = call.q_offsets.shape[0] - 1 if ragged else q.shape[0]
        args.q_len, args.kv_len, args.scale = q_len, kv_len, scale
        args.total_q = min(q.shape[0], args.batch * q_len) if ragged else 0
        args.num_pages = cache.shape[0]
        args.max_pages = 0 if call.page_table is None else _launch._row_stride(call.page_table)
        for strides, tensor in ((args.q_strides, q), (args.k_strides, cache),
                                (args.v_strides, cache), (args.o_strides, call.out)):
            strides.batch, strides.row, strides.head = _launch._strides(tensor)
        # NOTE: there is one head, whose stride says nothing; views of a cache have any.
        for strides in (args.k_strides, args.v_strides):
            strides.head = strides.row
        needed, zero_bytes = c_int64(), c_int32()
        self._library.check(self._library.workspace(self._kernel.pointer, byref(args),
                                                    byref(needed), byref(zero_bytes)))
        self._needed, self._zero_bytes = needed.value, zero_bytes.value


def _find(call: _Call, fields: str, number: int, stream: int, q_len: int,
          wait: bool) -> Optional[_Launcher]:
    """The launcher of a call; without `wait` None while its kernel is being compiled."""
    q, cache = call.q, call.cache
    key = ("mla", fields, number, stream, q.device.index, q.dtype, cache.dtype, call.out.dtype,
           q.shape[-2:], cache.shape[1], cache.shape[-1], call.latent, call.lse is None,
           call.sink is None, call.q_offsets is None,
           None if call.k_scale is None else len(call.k_scale.shape) == 2)
    found = _launch._local.launchers.get(key)
    if found is not None:
        return found  # type: ignore[return-value]
    check(call.gathered(call.scattered(), stream), q_len)
    service = _launch.default_service() if number == 0 else SERVICES.get(number)
    if service is None:
        raise InvalidError("the Service of this call is closed", field="service")
    index = _launch.gpu_of(q)
    if (number, index) not in _launch._architectures:
        _launch._architectures[number, index] = architecture(index, service.driver_path)
    fields_of_spec = spec_of(call, fields, _launch._architectures[number, index])
    spec = service.prepare(fields_of_spec)
    kernel = service.get(spec, stream=stream) if wait else service.try_get(spec)
    if kernel is None:
        return None
    made = _Launcher(service, spec, kernel, declared_params(fields_of_spec.get("mask"), None),
                     stream)
    _launch._local.launchers[key] = made
    return made

# SPDX-License-Identifier: Apache-2.0
"""From tensors to a launch: finds the kernel of a call, fills its arguments, launches it.

A call that has the geometry of the last one of its mask writes its pointers and launches. Any other
is checked, and its launcher is looked up or made. Launchers belong to the thread that made them.
"""
from __future__ import annotations

import json
import os
import struct
import sys
import threading
from ctypes import byref, c_int32, c_int64, c_void_p, sizeof
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ._abi import (MASK_MAPS, PARAM_TYPES, STRIDE_ZERO, TILE_COUNTERS_BYTES, LaunchArgs, Param,
                   integer, new)
from ._device import architecture, sm_count
from ._errors import InvalidError, UnsupportedError, refused, wrong_type
from ._tensors import SPEC_DTYPES, dtype_name, is_packed, overlaps
from .masks import BLOCK_ARRAYS, declared_params
from .service import SERVICES, Kernel, Service, Spec, param_type

_lock = threading.Lock()
_default: List[Service] = []  # at most one
_architectures: Dict[Tuple[int, int], str] = {}


# Neighbours in attnjit_launch_args that are written at once: a tenth of the time that one
# assignment for each of them takes. The pointers from `q` to `q_offsets` change with each launch,
# and what stands from `batch` to `scale` with the geometry.
_MOST = (1 << 31) - 1  # of a number of entries
_POINTERS, _SHAPES = struct.Struct("=9Q"), struct.Struct("=6i12qf")
_POINTERS_OFFSET, _SHAPES_OFFSET = LaunchArgs.q.offset, LaunchArgs.batch.offset
assert _POINTERS_OFFSET + _POINTERS.size == LaunchArgs.q_scale.offset
assert _SHAPES_OFFSET + _SHAPES.size == LaunchArgs.cap.offset


class _Local(threading.local):
    def __init__(self) -> None:
        self.launchers: Dict[Tuple[Any, ...], "Launcher"] = {}  # by what decides the kernel
        self.recent: Dict[Tuple[Any, ...], "Launcher"] = {}  # the last one by mask, Service and stream
        self.waiting: Dict[Tuple[Any, ...], "_Waiting"] = {}  # by the keys that `launchers` lacks
        self.in_parts: Dict[Tuple[Any, ...], "_InParts"] = {}  # by the same keys, of dense kernels
        # Workspaces by device and stream; their tile counters are zero after each launch. NOTE: the
        # thread's own: another thread's attention may come between an attention and its merge.
        self.kept: Dict[Tuple[Any, int], Any] = {}
        self.fell_back = False  # in the last call


_local = _Local()


def _forget_after_fork() -> None:
    """A child of fork() has neither CUDA nor the threads of its parent's Services."""
    global _lock, _local
    _lock, _local = threading.Lock(), _Local()
    _default.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


def default_service() -> Service:
    """The Service of calls that name none, made at its first use."""
    with _lock:
        if not _default:
            _default.append(Service(compile_fallbacks=1))
        return _default[0]


class Tensors(NamedTuple):
    """The tensors of a call; `q`, `k`, `v` and `out` have four dimensions, or three: ragged."""

    q: Any
    k: Any
    v: Any
    out: Any
    lse: Any = None
    sink: Any = None
    page_table: Any = None
    kv_lens: Any = None
    q_offsets: Any = None
    kv_offsets: Any = None
    q_scale: Any = None  # all three, or none; of e4m3 k and v alone those two
    k_scale: Any = None
    v_scale: Any = None
    output_scale: Any = None  # where out is e4m3
    mask: Any = None
    slopes: Any = None
    blocks: Any = None  # of a mask: kv_num_blocks, kv_indices, and those of full blocks or not

    def rows_first(self, layout: str) -> "Tensors":
        """The same as "bshd", or as they are: of "bhsd", and of "bhd", which has one row each."""
        if layout == "bhsd":
            return self._replace(q=self.q.transpose(1, 2), k=self.k.transpose(1, 2),
                                 v=self.v.transpose(1, 2), out=self.out.transpose(1, 2),
                                 **{name: scale.transpose(1, 2) for name, scale in
                                    (("q_scale", self.q_scale), ("k_scale", self.k_scale),
                                     ("v_scale", self.v_scale))
                                    if scale is not None and len(scale.shape) == 3})
        if layout == "bhd":
            scale, of_rows = self.q_scale, self.k_scale is not None and len(self.k_scale.shape) == 3
            return self._replace(q=self.q.unsqueeze(1), out=self.out.unsqueeze(1),
                                 q_scale=scale.unsqueeze(1) if of_rows and scale is not None
                                 else scale)
        return self

    def scales(self) -> Optional[str]:
        """Who has scales of its own, in a spec's words."""
        if self.k_scale is None:
            return None
        # Where q is of 16 bits it has none.
        given = [scale.shape for scale in (self.q_scale, self.k_scale) if scale is not None]
        dimensions = len(given[0])
        if dimensions < 2:
            return "tensor"
        if self.q_offsets is None:
            return "head" if dimensions == 2 else "token"
        # NOTE: of a ragged batch both have two. Where they fit either, they are of heads.
        batch = self.q_offsets.shape[0] - 1
        of_heads = all(len(shape) == 2 and shape[0] == batch for shape in given)
        return "head" if of_heads else "token"

    def strided_scales(self) -> bool:
        """Whether k and v have scales of a page's tokens, with the same strides: those a launch
        says."""
        k, v = self.k_scale, self.v_scale
        return (self.page_table is not None and k is not None and v is not None
                and len(k.shape) == 3 and tuple(k.stride()) == tuple(v.stride()))


_KEPT_BYTES = 64 << 20  # larger workspaces are asked for with each launch


class Launcher:
    """The launches of one kernel on one stream, from one thread."""

    def __init__(self, service: Service, spec: Spec, kernel: Kernel, declared: Sequence[Dict[str, str]],
                 stream: int, stands_in: bool = False) -> None:
        self.stands_in = stands_in  #: for the call's own kernel, which is being compiled
        self._library, self._launch = service._library, service._library.launch
        self._kernel, self._spec, self._state = kernel, spec, service.launch_state()
        self._declared = declared
        self._needed = self._zero_bytes = 0  # of the workspace, and of them those to be zero
        self.geometry: Optional[Tuple[Any, ...]] = None  #: of the last launch: what `args` was filled for
        self.scattered: Tuple[str, ...] = ()  #: of the last launch: the tensors that are copied
        self.scattered_params = False  #: the same: whether its arrays are
        self.args = args = new(LaunchArgs, stream=stream)
        self._params = (Param * max(1, len(declared)))()
        self._names = [one["name"].encode() for one in declared]
        for param, one, name in zip(self._params, declared, self._names):
            param.struct_size, param.name = sizeof(Param), name
            param.type = PARAM_TYPES[one["type"]]
        args.params, args.num_params = self._params, len(declared)
        # What attnjit_launch is called with, each time.
        self._arguments = c_void_p(kernel.pointer), byref(args), c_void_p(self._state.pointer)

    def reshape(self, tensors: Tensors, q_len: int, kv_len: int, scale: float) -> None:
        """Fills all of `args` but the pointers, for tensors of the shapes of these."""
        q, k, table, offsets = tensors.q, tensors.k, tensors.page_table, tensors.q_offsets
        ragged, paged = offsets is not None, table is not None
        batch = offsets.shape[0] - 1 if ragged else q.shape[0]
        # NOTE: tensors may have more rows than the sequences can, as what pads graphs has.
        _SHAPES.pack_into(
            self.args, _SHAPES_OFFSET, batch, q_len, kv_len,
            min(q.shape[0], batch * q_len) if ragged else 0, k.shape[0] if paged else 0,
            _row_stride(table) if paged else 0, *_strides(q), *_strides(k), *_strides(tensors.v),
            *_strides(tensors.out), scale)
        self.args.total_kv = (0 if tensors.kv_offsets is None
                              else min(k.shape[0], batch * kv_len))
        if tensors.mask is not None:
            entries, strides = _mask_layout(tensors.mask)
            self.args.mask_batch, self.args.mask_heads, self.args.mask_rows = entries
            own = self.args.mask_strides
            own.batch, own.head, own.row = strides
        if tensors.strided_scales():
            scales = self.args.kv_scale_strides
            scales.batch, scales.row, scales.head = (stride or STRIDE_ZERO for stride
                                                     in tensors.k_scale.stride())
        if tensors.blocks is not None:
            self.args.full_kv_num_blocks = self.args.full_kv_indices = 0  # unless they are given
            self.args.mask_map = MASK_MAPS.index("read")
            (self.args.map_batch, self.args.map_heads, self.args.map_q_blocks,
             self.args.map_kv_blocks) = tensors.blocks[1].shape
            self._set_blocks(tensors.blocks)
        needed, zero_bytes = c_int64(), c_int32()
        self._library.check(self._library.workspace(self._kernel.pointer, byref(self.args),
                                                    byref(needed), byref(zero_bytes)))
        self._needed, self._zero_bytes = needed.value, zero_bytes.value

    def _set_blocks(self, blocks: Sequence[Any]) -> None:
        for name, array in zip(BLOCK_ARRAYS, blocks):
            setattr(self.args, name, array.data_ptr())

    def may_launch(self, q: Any) -> bool:
        """Whether there is somebody to ask for the memory that it needs beside its tensors."""
        return not self._needed or is_torch(q)

    def launch(self, tensors: Sequence[Any], params: Sequence[Any],
               numbers: Sequence[int]) -> None:
        """Launches over tensors of the geometry of the last one."""
        (q, k, v, out, lse, sink, page_table, kv_lens, q_offsets, kv_offsets, q_scale, k_scale,
         v_scale, output_scale, mask, slopes, blocks) = tensors
        _POINTERS.pack_into(
            self.args, _POINTERS_OFFSET, q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(),
            0 if lse is None else lse.data_ptr(), 0 if sink is None else sink.data_ptr(),
            0 if page_table is None else page_table.data_ptr(),
            0 if kv_lens is None else kv_lens.data_ptr(),
            0 if q_offsets is None else q_offsets.data_ptr())
        if kv_offsets is not None:
            self.args.kv_offsets = kv_offsets.data_ptr()
        if q_scale is not None:
            self.args.q_scale = q_scale.data_ptr()
        if k_scale is not None:
            self.args.k_scale, self.args.v_scale = k_scale.data_ptr(), v_scale.data_ptr()
        if output_scale is not None:
            self.args.output_scale = output_scale.data_ptr()
        if mask is not None:
            self.args.mask = mask.data_ptr()
        if slopes is not None:
            self.args.slopes = slopes.data_ptr()
        if blocks is not None:
            self._set_blocks(blocks)
        if self._declared:
            self._set_params(params, numbers)
        workspace = self._workspace(q) if self._needed else None
        kernel, args, state = self._arguments
        error = self._launch(kernel, args, state)
        if error:
            self._library.check(error)
        del workspace  # NOTE: only now: the stream orders its next use after this launch

    def check_params(self, params: Sequence[Any], numbers: Sequence[int], device: Any) -> None:
        """Refuses values that are not as the spec declares its parameters."""
        arrays = [one for one in self._declared if one["type"] not in ("i32", "u32")]
        if len(params) != len(arrays) or len(numbers) != len(self._declared) - len(arrays):
            raise refused(f"{len(params)} arrays and {len(numbers)} numbers are given for the "
                          f"parameters {', '.join(one['name'] for one in self._declared) or 'none'}",
                          "params")
        self.scattered_params = False
        for array, one in zip(params, arrays):
            name, kind, wanted = f"the array {one['name']}", param_type(array), one["type"]
            # NOTE: torch does little with uint32, so that words of bits are often int32.
            if kind != wanted and kind != wanted.replace("u32", "i32"):
                raise wrong_type(f"{name} is {kind}; declared is {wanted}", "params")
            if array.device != device:  # NOTE: the kernel would read another device's memory
                raise wrong_type(f"{name} lies on another device ({array.device}) than q ({device})",
                                 "params", "make it on q's device")
            if not is_packed(array):
                if not is_torch(array):
                    raise refused(f"{name} {tuple(array.shape)} with strides "
                                  f"{tuple(array.stride())} must be contiguous", "params",
                                  "give a copy without gaps")
                self.scattered_params = True

    def _set_params(self, params: Sequence[Any], numbers: Sequence[int]) -> None:
        arrays, scalars = iter(params), iter(numbers)
        for param, one in zip(self._params, self._declared):
            if one["type"] in ("i32", "u32"):
                param.i32 = next(scalars)
                continue
            tensor = next(arrays)
            param.pointer = tensor.data_ptr()
            for axis, extent in enumerate(tensor.shape):
                if extent > _MOST:
                    raise refused(f"the array {one['name']} {tuple(tensor.shape)} has more than "
                                  f"{_MOST} entries in a row", "params")
                param.extent[axis] = extent

    def _workspace(self, q: Any) -> Any:
        """Device memory for tile counters, partial results and maps. A graph that captures the
        launch keeps it."""
        if not is_torch(q):
            if self._needed <= TILE_COUNTERS_BYTES:
                return None  # no tile counters: the work is dealt before the launch begins
            raise UnsupportedError(f"the launch needs {self._needed} bytes beside its tensors, "
                                   "which only torch is asked for", code="unsupported",
                                   field="workspace",
                                   hint="parts of the keys need it (num_partitions=1 has "
                                        "none), and masks over arrays; or use attnjit.Service")
        torch = sys.modules["torch"]
        # NOTE: not in a graph, which may run beside another one of the same stream.
        # And records of waits are not zero again.
        keeps = (self._needed <= _KEPT_BYTES and self._zero_bytes <= TILE_COUNTERS_BYTES
                 and not (q.is_cuda and torch.cuda.is_current_stream_capturing()))
        key = q.device, self.args.stream
        memory = _local.kept.get(key) if keeps else None
        if memory is None or memory.numel() < self._needed:
            memory = torch.empty(self._needed, dtype=torch.uint8, device=q.device)
            zero_bytes = TILE_COUNTERS_BYTES if keeps else self._zero_bytes
            if zero_bytes:
                memory[:zero_bytes].zero_()
            if keeps:
                _local.kept[key] = memory
        self.args.workspace, self.args.workspace_bytes = memory.data_ptr(), self._needed
        return memory


class _Waiting:
    """A call whose own kernel is being compiled, and what launches meanwhile."""

    def __init__(self, service: Service, spec: Spec, declared: Sequence[Dict[str, str]]) -> None:
        self.service, self.spec, self.declared = service, spec, declared
        self._meanwhile: Dict[Optional[int], Launcher] = {}  # by the kernel's address

    def launcher(self, kernel: Kernel, stream: int) -> Launcher:
        found = self._meanwhile.get(kernel.pointer)
        if found is None:
            found = Launcher(self.service, self.spec, kernel, self.declared, stream, True)
            self._meanwhile[kernel.pointer] = found
        return found


def is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def _strides(tensor: Any) -> Tuple[int, int, int]:
    """From entry to entry of the batch, from row to row, and from head to head."""
    *strides, _ = [stride or STRIDE_ZERO for stride in tensor.stride()]
    return tuple(strides) if len(strides) == 3 else (0, *strides)  # type: ignore[return-value]


def _mask_layout(mask: Any) -> Tuple[List[int], List[int]]:
    """Of batches, heads and rows: how many a mask has, 1 for all, and from one to the next."""
    missing = 4 - len(mask.shape)
    strides = [0] * missing + list(mask.stride())[:-1]
    shape = [1] * missing + list(mask.shape)[:-1]
    # What is expanded is one for all.
    return [extent if stride else 1 for extent, stride in zip(shape, strides)], strides


def has_rows(tensor: Any) -> bool:
    """Whether a vector, or each row of a table, lies in one piece, and the rows one after another."""
    shape, stride = tensor.shape, tensor.stride()
    return (not shape or ((stride[-1] == 1 or shape[-1] <= 1)
                          and (len(shape) != 2 or _row_stride(tensor) >= shape[1])))


# The members of Tensors that a launch can express packed alone, or nearly: of torch, others are
# copied for each launch.
_ROWS = ("page_table", "kv_lens", "q_offsets", "kv_offsets", "sink", "slopes")
_PACKED = ("q_scale", "k_scale", "v_scale", "output_scale")


def _scattered(tensors: Tensors) -> Tuple[str, ...]:
    """Those that have to be copied, and that torch copies."""
    def copies(tensor: Any, fits: Callable[[Any], bool]) -> bool:
        return tensor is not None and hasattr(tensor, "contiguous") and not fits(tensor)

    mask, blocks, strided = tensors.mask, tensors.blocks, tensors.strided_scales()
    return (*(name for name in _ROWS if copies(getattr(tensors, name), has_rows)),
            *(name for name in _PACKED if copies(getattr(tensors, name), is_packed)
              and not (strided and name in ("k_scale", "v_scale"))),
            *(["mask"] if copies(mask, lambda one: not one.shape or one.stride()[-1] == 1
                                 or one.shape[-1] == 1) else ()),
            *(["blocks"] if blocks is not None and any(copies(one, is_packed) for one in blocks)
              else ()))


def _gathered(tensors: Tensors, names: Sequence[str], stream: int) -> Tensors:
    """The same with copies of those members."""
    return tensors._replace(**{
        name: tuple(packed_on(one, stream) for one in getattr(tensors, name)) if name == "blocks"
        else packed_on(getattr(tensors, name), stream) for name in names})


def packed_on(tensor: Any, stream: int) -> Any:
    """A torch tensor without gaps, copied on a launch's stream, which orders what comes before and
    after."""
    torch, device = sys.modules["torch"], tensor.device
    if device.type != "cuda" or torch._C._cuda_getCurrentRawStream(device.index or 0) == stream:
        return tensor.contiguous()
    with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=device)):
        return tensor.contiguous()


def _row_stride(table: Any) -> int:
    """From row to row of a table: attnjit_launch_args.max_pages, which may exceed its columns."""
    return table.stride()[0] if table.shape[0] > 1 else table.shape[1]  # type: ignore[no-any-return]


def fields_text(mask: str, score_mod: str, more: str = "") -> str:
    """The part of a spec that its tensors do not say, as the members of a JSON object."""
    return f'"mask":{mask},"score_mod":{score_mod}{more}'


# What the fields of a call with a materialized mask, and with given slopes, hold: json.dumps wrote
# them, and within a string a quote has a backslash.
_MATERIALIZED, _SLOPES = '"kind": "materialized"', '"slopes": true'


def spec_of(tensors: Tensors, fields: str, arch: str) -> Dict[str, Any]:
    """The spec of a call."""
    q, k, v = tensors.q, tensors.k, tensors.v
    name = dtype_name(q.dtype)
    of_kv = dtype_name(k.dtype)
    upcast = of_kv == "float8_e4m3fn" and name in ("bfloat16", "float16")
    if name not in SPEC_DTYPES or dtype_name(v.dtype) != of_kv or not (of_kv == name or upcast):
        raise wrong_type(f"q, k and v are of {name}, {of_kv} and {dtype_name(v.dtype)}; allowed: "
                         f"one of {', '.join(SPEC_DTYPES)} for all, or k and v of float8_e4m3fn "
                         "beside q of bfloat16 or float16", "k" if of_kv != name else "q")
    spec: Dict[str, Any] = {
        "arch": arch, "num_q_heads": q.shape[-2], "group": q.shape[-2] // k.shape[-2],
        "qk_depth": q.shape[-1], "ov_depth": v.shape[-1], "qkv_dtype": SPEC_DTYPES[name],
        "output_dtype": SPEC_DTYPES.get(dtype_name(tensors.out.dtype), "")}
    if upcast:
        spec["kv_dtype"] = SPEC_DTYPES[of_kv]
    if tensors.page_table is not None:
        spec["page_size"] = k.shape[1]
    for field, given in (("ragged", tensors.q_offsets), ("ragged_kv", tensors.kv_offsets),
                         ("sink", tensors.sink), ("return_lse", tensors.lse)):
        if given is not None:
            spec[field] = True
    if tensors.k_scale is not None:
        spec["scales"] = tensors.scales()
    spec.update(json.loads("{" + fields + "}"))
    return spec


def check(tensors: Tensors, fields: str, q_len: int, kv_len: int) -> None:
    """Refuses tensors that do not fit: the kernels read and write where their arguments say."""
    (q, k, v, out, lse, sink, table, kv_lens, q_offsets, kv_offsets, *scales, output_scale, mask,
     slopes, blocks) = tensors
    ragged, paged, ragged_kv = q_offsets is not None, table is not None, kv_offsets is not None
    for name, tensor, dimensions in (("q", q, 3 if ragged else 4), ("k", k, 3 if ragged_kv else 4),
                                     ("v", v, 3 if ragged_kv else 4)):
        if len(tensor.shape) != dimensions:
            raise refused(f"{name} {tuple(tensor.shape)} has {len(tensor.shape)} dimensions; "
                          f"this call needs {dimensions}", name)
    if (k.shape[-2] == 0 or q.shape[-2] % k.shape[-2] or k.shape[:-1] != v.shape[:-1]
            or q.shape[-1] != k.shape[-1]):
        raise refused(f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)} do not fit: "
                      "their heads, the depths of q and k, or the rows of k and v", "k")
    wanted = (*q.shape[:-1], v.shape[-1])
    if tuple(out.shape) != wanted:
        raise refused(f"out {tuple(out.shape)} must have the shape {wanted}", "out")
    batch = q_offsets.shape[0] - 1 if ragged else q.shape[0]
    for name, rows in (("k and v", None if paged or ragged_kv else k.shape[0]),
                       ("kv_offsets", kv_offsets.shape[0] - 1 if ragged_kv else None)):
        if rows is not None and rows != batch:
            raise refused(f"{name} are of {rows} sequences, q of {batch}", name.split()[0])
    for name, bound, rows in (("max_q_len", q_len, None if ragged else q.shape[1]),
                              ("max_kv_len", kv_len, None if paged or ragged_kv else k.shape[1])):
        if type(bound) is not int or bound > _MOST:
            integer(name, bound, c_int32)
        if bound < 0 or rows is not None and bound > rows:
            raise refused(f"{name} is {bound}, and there are {rows or 0} rows", name)
    for name, tensor, shape in (("page_table", table, (batch, 1)), ("kv_lens", kv_lens, (batch,)),
                                ("q_offsets", q_offsets, (batch + 1,)),
                                ("kv_offsets", kv_offsets, (batch + 1,))):
        _check_vector(name, tensor, "int32", shape)
    for name, count in (("batch", batch), ("k", k.shape[0]), ("q", q.shape[0]),
                        ("page_table", 0 if table is None else max(table.shape[1],
                                                                   _row_stride(table)))):
        if count > _MOST:
            raise refused(f"{name} has {count} entries, or as many in a row; at most {_MOST} are "
                          "allowed", name)
    if lse is not None:
        *outer, rows, heads = q.shape[:-1]
        # NOTE: of one row each it may lack that row.
        wanted = (*outer, heads, rows)
        if dtype_name(lse.dtype) != "float32":
            raise wrong_type(f"lse is of {dtype_name(lse.dtype)}; it must be of float32", "lse")
        if tuple(lse.shape) not in (wanted, wanted[:-1] if rows == 1 else wanted):
            raise refused(f"lse {tuple(lse.shape)} must have the shape {wanted}", "lse")
        if not is_packed(lse):
            raise refused(f"lse must be contiguous; its strides are {tuple(lse.stride())}", "lse",
                          "give memory of its own")
    _check_vector("sink", sink, "float32", (q.shape[-2],))
    _check_vector("slopes", slopes, "float32", (q.shape[-2],))
    _check_scales(scales, tensors, batch, (q.shape, k.shape, v.shape),
                  dtype_name(k.dtype) == dtype_name(q.dtype))
    _check_output_scale(output_scale, dtype_name(out.dtype))
    for name, tensor, member in (("mask", mask, _MATERIALIZED), ("slopes", slopes, _SLOPES)):
        if (member in fields) != (tensor is not None):
            raise InvalidError(f"the call has {'no' if tensor is None else 'a'} tensor {name}, and "
                               f"its spec says {fields}", field=name,
                               hint="give the tensor itself as mask, or attnjit.alibi(slopes)")
    if mask is not None:
        bits = '"dtype": "bits"' in fields
        _check_mask(mask, (batch, q.shape[-2], q_len), (kv_len + 7) // 8 if bits else kv_len)
    _check_blocks(blocks)
    device = q.device
    if any(one is not None and one.device != device for one in (*tensors[:-1], *(blocks or ()))):
        for name, tensor in (*zip(tensors._fields, tensors[:-1]), *zip(BLOCK_ARRAYS, blocks or ())):
            if tensor is not None and tensor.device != device:
                raise wrong_type(f"{name} lies on {tensor.device}, q on {device}", name,
                                 f"{name}.to(q.device)")
    for name, tensor in (("q", q), ("k", k), ("v", v), ("out", out)):
        if tensor.stride()[-1] != 1 and tensor.shape[-1] != 1:
            raise refused(f"the last dimension of {name} must be contiguous; its strides are "
                          f"{tuple(tensor.stride())}", name,
                          "" if name == "out" else f"{name}.contiguous()")
    for name, tensor in (("out", out), ("lse", lse)):
        if tensor is not None and overlaps(tensor):
            raise refused(f"{name} {tuple(tensor.shape)} with strides {tuple(tensor.stride())} "
                          "lies over itself, as what was expanded: it cannot be written", name,
                          "give memory of its own")


def _check_scales(scales: Sequence[Any], tensors: Tensors, batch: int,
                  shapes: Sequence[Sequence[int]], of_q: bool) -> None:
    """Refuses scales that do not fit tensors of these shapes, or have gaps where a launch cannot
    say so.

    `of_q`: q has one where k and v have; it has none where it is of another type.
    """
    if all(scale is None for scale in scales):
        return
    if any(scale is None for scale in scales[1:]) or (scales[0] is not None) != of_q:
        raise refused("q_scale, k_scale and v_scale are given together or not at all" if of_q
                      else "k_scale and v_scale are given together or not at all, and no "
                      "q_scale: q is not of their type", "q_scale")
    kind, strided = tensors.scales(), tensors.strided_scales()
    for name, scale, of in zip(("q_scale", "k_scale", "v_scale"), scales, shapes):
        if scale is None:
            continue
        if dtype_name(scale.dtype) != "float32":
            raise wrong_type(f"{name} is of {dtype_name(scale.dtype)}; it must be of float32", name)
        wanted = {"tensor": (1,), "head": (batch, of[-2])}.get(kind or "", tuple(of[:-1]))
        shape = tuple(scale.shape)
        if shape != wanted and not (kind == "tensor" and shape == ()):
            raise refused(f"{name} {shape} must have the shape {wanted}", name)
        if not is_packed(scale) and not (strided and name != "q_scale"):
            raise refused(f"{name} must be contiguous, with rows before heads", name)


def _check_output_scale(scale: Any, out: str) -> None:
    """Refuses a scale that `out`, of that type, does not take, or the lack of one."""
    if (scale is not None) != (out == "float8_e4m3fn"):
        raise refused(f"out is of {out}, and output_scale is "
                      f"{'missing' if scale is None else 'given'}; "
                      "out of float8_e4m3fn has one, and nothing else has", "output_scale")
    if scale is None:
        return
    if dtype_name(scale.dtype) != "float32":
        raise wrong_type(f"output_scale is of {dtype_name(scale.dtype)}; it must be of float32",
                         "output_scale")
    if tuple(scale.shape) not in ((), (1,)):
        raise refused(f"output_scale {tuple(scale.shape)} must have the shape (1,)", "output_scale")


def _check_mask(mask: Any, most: Tuple[int, int, int], needed: int) -> None:
    """Refuses a mask that has neither one nor all batches, heads and rows, or too short rows."""
    shape = tuple(mask.shape)
    if len(shape) not in (2, 3, 4):
        raise refused(f"mask {shape} has {len(shape)} dimensions; allowed: 2 to 4", "mask")
    (batch, heads, rows), _ = _mask_layout(mask)
    if (batch not in (1, most[0]) or heads not in (1, most[1]) or not (rows == 1 or rows >= most[2])
            or shape[-1] < needed):
        raise refused(f"mask {shape} must have the shape ({most[0]} or 1, {most[1]} or 1, "
                      f"{most[2]} or 1, {needed})", "mask")
    if mask.stride()[-1] != 1 and shape[-1] != 1:
        raise refused("the last dimension of mask must be contiguous", "mask")


def _check_blocks(blocks: Optional[Sequence[Any]]) -> None:
    """Refuses lists of blocks that are no lists: which extents fit a launch the library says."""
    for name, array in zip(BLOCK_ARRAYS, blocks or ()):
        if dtype_name(array.dtype) != "int32":
            raise wrong_type(f"{name} is of {dtype_name(array.dtype)}; it must be of int32", name)
        wanted = tuple(blocks[1].shape)[:4 if "indices" in name else 3]  # type: ignore[index]
        if len(blocks[1].shape) != 4 or tuple(array.shape) != wanted:  # type: ignore[index]
            raise refused(f"{name} {tuple(array.shape)} must have the shape {wanted}, of "
                          "[batch, heads, q_blocks, kv_blocks]", name)
        if not is_packed(array):
            raise refused(f"{name} must be contiguous", name)


def _check_vector(name: str, tensor: Any, dtype: str, least: Tuple[int, ...]) -> None:
    """Refuses an argument of another type, of fewer entries, or with gaps within a row."""
    if tensor is None:
        return
    if dtype_name(tensor.dtype) != dtype:
        raise wrong_type(f"{name} is of {dtype_name(tensor.dtype)}; it must be of {dtype}", name,
                         f"{name}.to(torch.{dtype})")
    shape, stride = tuple(tensor.shape), tensor.stride()
    if len(shape) != len(least) or any(have < need for have, need in zip(shape, least)):
        raise refused(f"{name} {shape} must have at least the shape {least}", name)
    if not has_rows(tensor):
        raise refused(f"{name} must be contiguous in its rows; its strides are {tuple(stride)}",
                      name)


def _facts(tensors: Tensors, number: int, stream: int) -> Tuple[Any, ...]:
    """What decides a call's launcher beside its fields. NOTE: all that spec_of looks at: what it
    would refuse must not find another call's."""
    q, k, v, out, lse, sink, page_table, _, q_offsets, kv_offsets, _, k_scale, *_ = tensors
    return (number, stream, q.device.index, q.dtype, k.dtype, v.dtype, out.dtype,
            q.shape[-2:], k.shape[-2:], v.shape[-2:], 0 if page_table is None else k.shape[1],
            lse is None, sink is None, q_offsets is None, kv_offsets is None,
            None if k_scale is None else tensors.scales())


class _InParts:
    """Whether launches of a dense kernel gain by parts of their keys."""

    def __init__(self, service: Service, spec: Spec, sms: int) -> None:
        self._library, self._ask = service._library, service._library.spec_partitions
        self._spec, self._pointer, self._sms = spec, spec.pointer, sms
        self._parts = c_int32()
        self._reference = byref(self._parts)

    def pay(self, batch: int, q_len: int, kv_len: int) -> bool:
        error = self._ask(self._pointer, batch, q_len, kv_len, 0, self._sms, self._reference)
        if error:
            self._library.check(error)
        return self._parts.value > 1


# Dense launches of more rows fill the GPU, those of fewer keys have no parts, and those of about as
# many rows as keys that have fewer of both together are not looked at: few of them gain.
_MOST_ROWS_IN_PARTS, _LEAST_KEYS_IN_PARTS, _LEAST_SCORES_IN_PARTS = 1 << 17, 1024, 1 << 29
_MASKS_IN_PARTS = ('"mask":"causal",', '"mask":"null",')  # what others hide is not known
_IN_PARTS = ',"num_partitions":0'


def in_parts(tensors: Tensors, fields: str, facts: Tuple[Any, ...], q_len: int,
             kv_len: int) -> str:
    """The fields of a call that says nothing of parts: with as many as the launch chooses where
    one of these shapes has several. A kernel that always has one is faster where it needs no more.
    """
    if kv_len < _LEAST_KEYS_IN_PARTS:
        return fields
    q = tensors.q
    rows = q.shape[0] * q.shape[-2] * q_len
    if (rows > _MOST_ROWS_IN_PARTS
            or (kv_len < 4 * q_len and rows * kv_len < _LEAST_SCORES_IN_PARTS)
            or tensors.page_table is not None or tensors.q_offsets is not None
            or tensors.kv_offsets is not None or not fields.startswith(_MASKS_IN_PARTS)
            or "num_partitions" in fields or "mask_map" in fields or not is_torch(q)):
        return fields
    found = _local.in_parts.get((fields, facts))
    if found is None:
        waiting = _prepared(_service_of(facts[0]), tensors, fields + _IN_PARTS, facts[0])
        found = _local.in_parts[fields, facts] = _InParts(
            waiting.service, waiting.spec, sm_count(gpu_of(q), waiting.service.driver_path))
    return fields + _IN_PARTS if found.pay(q.shape[0], q_len, kv_len) else fields


def launcher(tensors: Tensors, fields: str, facts: Tuple[Any, ...], wait: bool = True,
             fallback: bool = False) -> Optional[Launcher]:
    """The launcher of a call. With `wait` False: None while its kernel is being compiled.

    `fallback`: meanwhile that of a kernel that computes the same serves, if one is at hand.
    """
    key = (fields, facts)
    found = _local.launchers.get(key)
    return found if found is not None else _make(
        key, tensors, fields, facts[0], facts[1], wait, fallback)


def _service_of(number: int) -> Service:
    service = default_service() if number == 0 else SERVICES.get(number)
    if service is None:
        raise InvalidError("the Service of this call is closed", field="service")
    return service


def _make(key: Tuple[Any, ...], tensors: Tensors, fields: str, number: int, stream: int, wait: bool,
          fallback: bool) -> Optional[Launcher]:
    service = _service_of(number)
    waiting = _local.waiting.get(key)
    if waiting is None:
        waiting = _prepared(service, tensors, fields, number)
    kernel = None
    if fallback:
        kernel, stands_in = service.get_or_fallback(waiting.spec, stream)
        if stands_in:
            _local.waiting[key] = waiting
            return waiting.launcher(kernel, stream)  # type: ignore[arg-type]
    if kernel is None:
        kernel = (service.get(waiting.spec, stream=stream) if wait
                  else service.try_get(waiting.spec))
    if kernel is None:
        return None
    _local.waiting.pop(key, None)
    made = Launcher(service, waiting.spec, kernel, waiting.declared, stream)
    _local.launchers[key] = made
    return made


def _prepared(service: Service, tensors: Tensors, fields: str, number: int) -> _Waiting:
    index = gpu_of(tensors.q)
    if (number, index) not in _architectures:
        _architectures[number, index] = architecture(index, service.driver_path)
    fields_of_spec = spec_of(tensors, fields, _architectures[number, index])
    return _Waiting(service, service.prepare(fields_of_spec), declared_params(
        fields_of_spec.get("mask"), fields_of_spec.get("score_mod")))


def gpu_of(tensor: Any) -> int:
    """The ordinal of the GPU that a tensor lies on."""
    device = tensor.device
    if device.type != "cuda":
        raise not_on_gpu(tensor)
    return device.index or 0


def not_on_gpu(q: Any) -> InvalidError:
    """The error of a call whose q lies elsewhere."""
    kind = q.device.type
    return wrong_type(f"q lies on {'the CPU' if kind == 'cpu' else 'no GPU'} (its device is {kind}); "
                      "attnjit's kernels run on NVIDIA GPUs, and read tensors that lie there", "q",
                      'q.to("cuda") where there is such a GPU; attnjit.reference() computes the '
                      "same on the CPU")


def prepare(tensors: Tensors, fields: str, number: int, stream: int, q_len: int, kv_len: int,
            fallback: bool = False) -> bool:
    """Whether the call's kernel is loaded, or with `fallback` another one that serves; where its
    own is not, its compile is queued."""
    _local.fell_back = False
    scattered = _scattered(tensors)
    if scattered:
        tensors = _gathered(tensors, scattered, stream)
    check(tensors, fields, q_len, kv_len)
    facts = _facts(tensors, number, stream)
    fields = in_parts(tensors, fields, facts, q_len, kv_len)
    found = launcher(tensors, fields, facts, False, fallback)
    if found is not None and found.stands_in:  # NOTE: launch() asks the same
        found.reshape(tensors, q_len, kv_len, 0.0)  # of any scale the memory is the same
        if not found.may_launch(tensors.q):
            found = launcher(tensors, fields, facts, False)
    return found is not None


def fallback_served() -> bool:
    """Whether this thread's last attention() or paged_attention() was served by another kernel than
    its own: by one that interprets the code of its mask or score modification (`fallback=True`).

    A CUDA graph that captured such a launch goes on to replay it.
    """
    return _local.fell_back


def launch(tensors: Sequence[Any], params: Sequence[Any], numbers: Sequence[int], fields: str,
           number: int, stream: int, q_len: int, kv_len: int, scale: float,
           layout: str = "bshd", fallback: bool = False) -> None:
    """Enqueues a call on the stream; `tensors` are the members of Tensors, in their order.

    `layout` is one of Tensors.rows_first, `fallback` as launcher() has it.
    """
    (q, k, v, out, lse, sink, page_table, kv_lens, q_offsets, kv_offsets, q_scale, k_scale,
     v_scale, output_scale, mask, slopes, blocks) = tensors
    # NOTE: all that spec_of, check and Launcher.reshape look at, of each tensor of the call.
    geometry = (
        q.shape, k.shape, v.shape, out.shape, q.stride(), k.stride(), v.stride(), out.stride(),
        q.dtype, k.dtype, v.dtype, out.dtype, q.device, k.device, v.device, out.device,
        layout, q_len, kv_len, scale,
        None if lse is None else (lse.shape, lse.stride(), lse.dtype, lse.device),
        None if sink is None else (sink.shape, sink.stride(), sink.dtype, sink.device),
        None if page_table is None else (page_table.shape, page_table.stride(), page_table.dtype, page_table.device),
        None if kv_lens is None else (kv_lens.shape, kv_lens.stride(), kv_lens.dtype, kv_lens.device),
        None if q_offsets is None else (q_offsets.shape, q_offsets.stride(), q_offsets.dtype, q_offsets.device),
        None if kv_offsets is None else (kv_offsets.shape, kv_offsets.stride(), kv_offsets.dtype, kv_offsets.device),
        None if q_scale is None else (q_scale.shape, q_scale.stride(), q_scale.dtype, q_scale.device),
        None if k_scale is None else (k_scale.shape, k_scale.stride(), k_scale.dtype, k_scale.device),
        None if v_scale is None else (v_scale.shape, v_scale.stride(), v_scale.dtype, v_scale.device),
        None if output_scale is None else (output_scale.shape, output_scale.stride(), output_scale.dtype, output_scale.device),
        None if mask is None else (mask.shape, mask.stride(), mask.dtype, mask.device),
        None if slopes is None else (slopes.shape, slopes.stride(), slopes.dtype, slopes.device),
        None if blocks is None else [(one.shape, one.stride(), one.dtype, one.device)
                                     for one in blocks],
        None if not params else [(len(one.shape), one.dtype, one.device, is_packed(one))
                                 for one in params])
    site = (fields, number, stream)
    found = _local.recent.get(site)
    if found is None or found.geometry != geometry:
        _local.fell_back = False
        named = Tensors(*tensors).rows_first(layout)
        scattered = _scattered(named)
        if scattered:
            tensors = named = _gathered(named, scattered, stream)
        check(named, fields, q_len, kv_len)
        facts = _facts(named, number, stream)
        fields = in_parts(named, fields, facts, q_len, kv_len)
        for may_fall_back in (fallback, False):
            found = launcher(named, fields, facts, fallback=may_fall_back)
            assert found is not None  # it was waited for
            found.geometry = None
            found.check_params(params, numbers, q.device)
            found.reshape(named, q_len, kv_len, scale)
            if not found.stands_in or found.may_launch(q):
                break
        assert found is not None
        found.scattered = scattered
        # NOTE: not what stands in: the next call is to ask for its own kernel again.
        if not found.stands_in:
            found.geometry, _local.recent[site] = geometry, found
    elif found.scattered:
        tensors = _gathered(Tensors(*tensors).rows_first(layout), found.scattered, stream)
    if found.scattered_params:
        params = [packed_on(one, stream) for one in params]
    _local.fell_back = found.stands_in
    found.launch(tensors, params, numbers)

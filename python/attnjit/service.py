# SPDX-License-Identifier: Apache-2.0
"""Service: kernels on demand, for callers that want control over specs, waits and launches.

    service = attnjit.Service()
    spec = service.prepare({"arch": "sm_90a", "num_q_heads": 32, "group": 4, "qk_depth": 128,
                            "mask": "causal"})
    kernel = service.get(spec)              # compiled, or found in the cache; loaded
    state = service.launch_state()          # one per stream, or also per kernel
    service.launch(kernel, state, q=q, k=k, v=v, o=o, stream=stream)

Any thread may use a Service; a launch state belongs to one thread at a time.
"""
from __future__ import annotations

import ctypes
import itertools
import json
import math
import os
import sys
import weakref
from ctypes import (byref, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64,
                    c_void_p)
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Type, Union

from . import _abi
from ._abi import STRIDE_ZERO, LaunchArgs, Library, Param, Strides, integer, new, number, put
from ._errors import InvalidError, InvalidTypeError, refused, wrong_type
from ._nvrtc import nvrtc_path
from ._tensors import SPEC_DTYPES, dtype_name, is_packed, overlaps, view

# level ("debug", "info", "warning", "error"), text
Log = Callable[[str, str], None]
# What of a compile that ended: key, arch, compile_ms, registers, spill_bytes, cubin_bytes, and
# message, which is empty unless it failed.
OnCompile = Callable[[Dict[str, Any]], None]
_LEVELS = ("debug", "info", "warning", "error")


# Those that live, by their numbers: an operator's arguments hold a number, and no Service.
SERVICES: "weakref.WeakValueDictionary[int, Service]" = weakref.WeakValueDictionary()
_numbers = itertools.count(1)
CLOSED = -1


def _no_pickle(one: Any) -> InvalidError:
    return wrong_type(f"a {type(one).__name__} of attnjit belongs to its process, and cannot be "
                      "pickled", "pickle", "make another one there, from the same spec")


class _Handle:
    """A handle of the C ABI, freed with its owner."""

    def __init__(self, pointer: Optional[int], free: Callable[[int], None]) -> None:
        self.pointer = pointer
        self._free = free

    # NOTE: two objects would free one handle; an address means nothing in another process.
    def __copy__(self) -> "_Handle":
        return self

    def __deepcopy__(self, memo: Dict[int, Any]) -> "_Handle":
        return self

    def __reduce__(self) -> Any:
        raise _no_pickle(self)

    def close(self) -> None:
        """Frees it now. A second call does nothing."""
        pointer, self.pointer = getattr(self, "pointer", None), None
        if pointer is not None:
            self._free(pointer)

    __del__ = close


class Spec(_Handle):
    """A spec that a Service validated, planned and hashed. Its copies are itself."""

    key: str = ""  #: 64 hex digits: what the cache files its kernel under
    fields: Mapping[str, Any] = {}  #: as they were given


class LaunchState(_Handle):
    """What a launch keeps from one call to the next: encoded tensor maps, packed arguments."""


class Kernel:
    """A loaded kernel. It lives as long as its Service, which it keeps alive."""

    __slots__ = ("_pointer", "service", "fields")

    def __init__(self, pointer: Optional[int], service: "Service",
                 fields: Optional[Mapping[str, Any]] = None) -> None:
        self._pointer, self.service = pointer, service
        self.fields = fields or {}  #: of its spec

    def __copy__(self) -> "Kernel":
        return self

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Kernel":
        return self

    def __reduce__(self) -> Any:
        raise _no_pickle(self)

    @property
    def pointer(self) -> int:
        """Of the C ABI; it is gone with the Service."""
        if self.service.number == CLOSED:
            raise InvalidError("its Service is closed, and its kernels are gone", field="kernel")
        return self._pointer or 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self._pointer == other._pointer

    def __hash__(self) -> int:
        return hash(self._pointer)


def _pointer(given: Any, kind: Type[Any], maker: str) -> Optional[int]:
    if not isinstance(given, kind):
        raise wrong_type(f"{type(given).__name__} is no {kind.__name__}: give what {maker} "
                         "returned", kind.__name__.lower())
    if given.pointer is None:
        raise InvalidError("it is closed", field=kind.__name__.lower())
    return int(given.pointer)


def _of_spec(spec: Spec) -> Optional[int]:
    return _pointer(spec, Spec, "prepare()")


def _of_kernel(kernel: Kernel) -> Optional[int]:
    return _pointer(kernel, Kernel, "get()")


def _of_state(state: LaunchState) -> Optional[int]:
    return _pointer(state, LaunchState, "launch_state()")


def _of_args(args: Any) -> LaunchArgs:
    if not isinstance(args, LaunchArgs):
        raise wrong_type(f"{type(args).__name__} is no LaunchArgs: give what launch_args() returned",
                         "args")
    return args


def _stream(stream: Any) -> Optional[int]:
    return None if stream is None else integer("stream", stream, c_uint64)


def _milliseconds(seconds: Any) -> int:
    if seconds == math.inf:
        return -1
    found = number("timeout", seconds)
    if not 0 <= found < 1e15:
        raise refused(f"timeout is {seconds}; allowed: 0 and more seconds", "timeout")
    return int(found * 1000)


def _strides(name: str, tensor: Any) -> Strides:
    """Of [batch, rows, heads, depth]: those of the first three, as a launch has them."""
    *strides, one = tensor.stride()
    if one != 1 and tensor.shape[3] != 1:
        raise refused(f"{name}: the last dimension must be contiguous; its strides are "
                      f"{tuple(tensor.stride())}", name, f"{name}.contiguous()")
    if name == "o" and overlaps(tensor):
        raise refused(f"o {tuple(tensor.shape)} with strides {tuple(tensor.stride())} lies over "
                      "itself, as what was expanded: it cannot be written", name,
                      "give memory of its own")
    return Strides(*(stride or STRIDE_ZERO for stride in strides))


def _has_rows(table: Any) -> bool:
    shape, stride = table.shape, table.stride()
    return len(shape) == 2 and (stride[1] == 1 or shape[1] == 1) and (
        shape[0] == 1 or stride[0] >= shape[1])


# The element types of what else a launch is given.
_TYPES = {**dict.fromkeys(("page_table", "kv_lens", "q_offsets", "kv_offsets", "kv_num_blocks",
                           "kv_indices", "full_kv_num_blocks", "full_kv_indices", "topk_indices"),
                          "int32"),
          **dict.fromkeys(("lse", "sink", "slopes", "q_scale", "k_scale", "v_scale",
                           "output_scale", "pairs_lse"), "float32")}


def _check_tensors(kernel: Kernel, args: LaunchArgs) -> None:
    """Refuses tensors that are not what the kernel's spec says; of addresses nothing is known."""
    _of_kernel(kernel)
    spec, tensors = kernel.fields, getattr(args, "tensors", {})
    if not tensors or "num_q_heads" not in spec:
        return
    q = tensors["q"]
    for name, tensor in tensors.items():
        where, of_q = getattr(tensor, "device", None), getattr(q, "device", None)
        if of_q is not None and (of_q.type != "cuda" or where != of_q):
            raise wrong_type(f"{name} lies on {where}, and q on {of_q}; all lie on one NVIDIA GPU",
                             name)
        wanted = _TYPES.get(name)
        if wanted is not None and dtype_name(tensor.dtype) != wanted:
            raise wrong_type(f"{name} is of {dtype_name(tensor.dtype)}; it must be of {wanted}", name)
    if spec.get("cache_format", "plain") != "plain" or spec.get("merge"):
        return  # bytes; and pairs, which the library counts
    of_q = spec.get("qkv_dtype", "bf16")
    of_kv = spec.get("kv_dtype", of_q)
    of_o = spec.get("output_dtype", "bf16" if of_q == "e4m3" else of_q)
    heads, qk_depth = spec["num_q_heads"], spec["qk_depth"]
    kv_heads = heads // spec.get("group", 1)
    mla = spec.get("mla", "none")
    ov_depth = spec.get("ov_depth", qk_depth - 64 if mla != "none" else qk_depth)
    if "q_rope" in tensors or args.q_rope:
        qk_depth -= 64
    if mla == "decode":
        kv_heads = 1
        tensors = {name: one for name, one in tensors.items() if name != "v"}  # a part of k's rows
    for name, element, shape in (("q", of_q, (heads, qk_depth)), ("k", of_kv, (kv_heads, qk_depth)),
                                 ("v", of_kv, (kv_heads, ov_depth)), ("o", of_o, (heads, ov_depth))):
        tensor = tensors.get(name)
        if tensor is None:
            continue
        if SPEC_DTYPES.get(dtype_name(tensor.dtype)) != element:
            raise wrong_type(f"{name} is of {dtype_name(tensor.dtype)}; the spec says {element}",
                             name)
        given = tuple(tensor.shape[2:])
        if given != shape:
            raise refused(f"{name} {tuple(tensor.shape)} has {given[0]} heads of depth {given[1]}; "
                          f"the spec says {shape[0]} of {shape[1]}", name)
    k, v, o = tensors["k"], tensors.get("v", tensors["k"]), tensors["o"]
    if o.shape[:2] != q.shape[:2]:
        raise refused(f"o {tuple(o.shape)} has other rows than q {tuple(q.shape)}", "o")
    if v.shape[:2] != k.shape[:2]:
        raise refused(f"v {tuple(v.shape)} has other rows than k {tuple(k.shape)}", "v")
    page_size = spec.get("page_size", 0)
    if page_size and k.shape[1] != page_size:
        raise refused(f"k {tuple(k.shape)} has pages of {k.shape[1]} rows; the spec says "
                      f"{page_size}", "k")
    rows = q.shape[0] * q.shape[1]
    for name, most, has in (
            ("q_len" if not spec.get("ragged") else "total_q",
             args.q_len if not spec.get("ragged") else args.total_q,
             q.shape[1] if not spec.get("ragged") else rows),
            ("batch", 0 if spec.get("ragged") else args.batch, q.shape[0]),
            ("num_pages", args.num_pages if page_size else 0, k.shape[0]),
            ("total_kv", args.total_kv if spec.get("ragged_kv") else 0, k.shape[0] * k.shape[1]),
            ("kv_len", 0 if page_size or spec.get("ragged_kv") else args.kv_len, k.shape[1]),
            ("batch", 0 if page_size or spec.get("ragged_kv") else args.batch, k.shape[0])):
        if most > has:
            raise refused(f"{name} is {most}, and the tensors have {has}", name)
    for name, least in (("kv_lens", args.batch), ("q_offsets", args.batch + 1),
                        ("kv_offsets", args.batch + 1), ("sink", heads), ("slopes", heads),
                        ("lse", heads * (args.total_q if spec.get("ragged")
                                         else args.batch * args.q_len))):
        if name in tensors and math.prod(tensors[name].shape) < least:
            raise refused(f"{name} {tuple(tensors[name].shape)} must have {least} entries", name)
    table = tensors.get("page_table")
    if table is not None and (table.shape[0] < args.batch
                              or args.batch > 1 and table.stride()[0] != args.max_pages):
        raise refused(f"page_table {tuple(table.shape)} with strides {tuple(table.stride())} has "
                      f"other rows than batch {args.batch}, with max_pages {args.max_pages} from "
                      "one to the next", "page_table")


# What a Service takes by name: the fields of attnjit_service_options, except for those that Python
# passes in another way.
_OPTIONS = [name for name in _abi.fields_of(_abi.ServiceOptions)
            if not name.startswith(("struct_size", "reserved", "log", "on_compile"))]
# What launch_args takes by name. c_uint64 is an address: of a tensor, or as an int.
_LAUNCH_FIELDS = {name: kind for name, kind in _abi.fields_of(LaunchArgs).items()
                  if kind in (c_uint64, c_int32, c_int64, c_float)
                  and not name.startswith("reserved")
                  and name not in ("struct_size", "num_params", "num_scalars", "mask_map", "q", "k", "v", "o")}


class Service:
    """Plans, compiles, caches and loads kernels. Two of them share nothing.

    Args:
        library: the path of libattnjit; None: the one that this package carries.
        log: a function of level and text, called from any thread; None: standard error.
        on_compile: called after each compile, with a dict; from any thread, and not for what a
            cache had. It must not wait for the Service.
        options: the fields of attnjit_service_options by their names, e.g. cache_layers,
            forbid_compile, compile_threads, nvrtc_path, tuning.
    """

    def __init__(self, library: Optional[str] = None, *, log: Optional[Log] = None,
                 on_compile: Optional[OnCompile] = None,
                 **options: Union[str, "os.PathLike[str]", int, None]) -> None:
        for name in options:
            if name not in _OPTIONS:
                raise wrong_type(f"Service() has no option {name!r}; there are "
                                 f"{', '.join(_OPTIONS)}, log and on_compile", name)
        self._library = Library(os.fspath(library) if isinstance(library, os.PathLike)
                                else library or _abi.library_path())
        self._process = os.getpid()
        driver = options.get("driver_path")
        self.driver_path = None if driver is None else str(driver)  #: of libcuda; None: the system's
        if options.get("nvrtc_path") is None:
            options["nvrtc_path"] = nvrtc_path()
        given = new(_abi.ServiceOptions)
        for name, value in options.items():
            if value is not None:
                put(given, name, value)
        for name, function in (("log", log), ("on_compile", on_compile)):
            if function is not None and not callable(function):
                raise wrong_type(f"{name}: is of {type(function).__name__}; allowed: a function",
                                 name)
        if log is not None:
            given.log = _abi.LogFunction(_log_to(log))
        if on_compile is not None:
            given.on_compile = _abi.CompileFunction(_event_to(on_compile))
        # NOTE: kept alive: the library calls them.
        self._called = given.log, given.on_compile
        pointer = self._library.create("service_create", byref(given))
        self._service = _Handle(pointer.value, self._library.service_destroy)
        self.number = next(_numbers)
        SERVICES[self.number] = self

    def close(self) -> None:
        """Ends the Service within 2 s; its kernels are gone afterwards."""
        self.number = CLOSED  # NOTE: what threads remember of it by its number is not found again
        self._service.close()

    def __copy__(self) -> "Service":
        return self

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Service":
        return self

    def __reduce__(self) -> Any:
        raise _no_pickle(self)

    @property
    def _pointer(self) -> int:
        pointer = self._service.pointer
        if pointer is None:
            raise InvalidError("it is closed", field="service")
        return pointer

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def forked(self) -> bool:
        """True in a child of the process that made it: make another one there."""
        return self._process != os.getpid()

    def version(self) -> Tuple[str, int]:
        """The library's version, and that of its C ABI."""
        return self._library.version().decode(), self._library.abi_version()

    def statistics(self) -> Dict[str, float]:
        """Counts of hits, compiles, failures and waits, by the names of attnjit_statistics."""
        out = new(_abi.Statistics)
        self._library.check(self._library.service_statistics(self._pointer, byref(out)))
        return {name: getattr(out, name) for name in list(_abi.fields_of(_abi.Statistics))[1:]}

    def flush(self, timeout: float = 2.0) -> bool:
        """Waits, for `timeout` seconds at most (math.inf: without limit), until the remote cache has
        what was compiled."""
        done = c_int32()
        timeout_ms = _milliseconds(timeout)
        self._library.check(self._library.service_flush(self._pointer, timeout_ms,
                                                        byref(done)))
        return bool(done.value)

    def prometheus(self) -> str:
        """The statistics as Prometheus's text format, for a /metrics endpoint."""
        length = c_size_t()
        text = ctypes.create_string_buffer(1 << 16)
        while True:
            self._library.check(self._library.service_prometheus(self._pointer, text,
                                                                 len(text), byref(length)))
            if length.value < len(text):
                return text.value.decode()
            text = ctypes.create_string_buffer(2 * length.value)

    def prepare(self, spec: Union[str, Mapping[str, object]]) -> Spec:
        """A spec, as a dict or as JSON text (docs/spec.md), validated, planned and hashed."""
        if not isinstance(spec, (str, Mapping)):
            raise wrong_type(f"a spec is of {type(spec).__name__}; allowed: a dict, or JSON text",
                             "spec")
        try:
            text = (spec if isinstance(spec, str) else json.dumps(dict(spec))).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise wrong_type(f"the spec is no JSON: {error}", "spec") from None
        pointer = self._library.create("spec_prepare", self._pointer, text, len(text))
        prepared = Spec(pointer.value, self._library.spec_free)
        prepared.fields = json.loads(text)
        prepared.key = self._library.spec_key(prepared.pointer).decode()
        return prepared

    def key(self, spec: Spec) -> str:
        """What the cache files the kernel under: 64 hex digits."""
        _of_spec(spec)
        return spec.key

    def compile(self, spec: Spec, timeout_ms: int = -1, want_ptx: bool = False) -> Dict[str, Any]:
        """The image: its cubin, and what the compiler says of it. Needs no GPU."""
        pointer = self._library.create("compile", self._pointer, _of_spec(spec),
                                       integer("timeout_ms", timeout_ms, c_int64), int(bool(want_ptx)))
        image = _Handle(pointer.value, self._library.image_free)
        info = new(_abi.ImageInfo)
        self._library.check(self._library.image_get_info(image.pointer, byref(info)))
        result = {"cubin": ctypes.string_at(info.cubin, info.cubin_bytes),
                  "ptx": info.ptx.decode(), "outcome": _abi.OUTCOMES[info.outcome],
                  "nvrtc_version": info.nvrtc_version.decode()}
        for name in ("registers", "spill_bytes", "stack_bytes", "static_smem_bytes", "compile_ms",
                     "total_ms"):
            result[name] = getattr(info, name)
        image.close()
        return result

    def get(self, spec: Spec, timeout_ms: int = -1, stream: Optional[int] = None) -> Kernel:
        """The loaded kernel, compiled if need be; `stream` tells whether a capture is going on."""
        pointer = self._library.create("get", self._pointer, _of_spec(spec),
                                       integer("timeout_ms", timeout_ms, c_int64), _stream(stream))
        return Kernel(pointer.value, self, spec.fields)

    def find(self, spec: Spec) -> Optional[Kernel]:
        """The kernel if it is loaded, else None. Never blocks."""
        pointer = self._library.find(self._pointer, _of_spec(spec))
        return Kernel(pointer, self, spec.fields) if pointer else None

    def try_get(self, spec: Spec) -> Optional[Kernel]:
        """The kernel, or None and a compile in the background. Never blocks."""
        pointer = self._library.create("try_get", self._pointer, _of_spec(spec))
        return Kernel(pointer.value, self, spec.fields) if pointer.value else None

    def get_or_fallback(self, spec: Spec,
                        stream: Optional[int] = None) -> Tuple[Optional[Kernel], bool]:
        """As try_get; but while the kernel is compiled, one that computes the same serves if it is
        at hand. The second value is True for such a kernel."""
        pointer, fallback = c_void_p(), c_int32()
        self._library.check(self._library.get_or_fallback(
            self._pointer, _of_spec(spec), _stream(stream), byref(pointer), byref(fallback)))
        kernel = Kernel(pointer.value, self, spec.fields) if pointer.value else None
        return kernel, bool(fallback.value)

    def prepare_kernel(self, kernel: Kernel, stream: Optional[int] = None) -> None:
        """Loads the kernel into the stream's context, so that launches there can be captured."""
        self._library.check(self._library.kernel_prepare(_of_kernel(kernel), _stream(stream)))

    def launch_state(self) -> LaunchState:
        """The state of the launches of one kernel on one stream."""
        pointer = self._library.create("launch_state_create")
        return LaunchState(pointer.value, self._library.launch_state_free)

    def launch_args(self, *, q: Any, k: Any, v: Any, o: Any,
                    params: Optional[Mapping[str, Any]] = None, scalars: Sequence[float] = (),
                    stream: Optional[int] = None, mask_map: str = "none",
                    **fields: Any) -> LaunchArgs:
        """The arguments of a launch.

        q, o [batch, q_len, heads, depth] and k, v [batch, kv_len, heads, depth] are torch tensors
        or whatever has DLPack, with any strides but a contiguous last dimension.

        Args:
            params: values of the spec's parameters by their names: int, float or tensors.
            scalars: the numbers of the spec's masks in preorder, then of its score modification.
            fields: further tensors (lse, sink, page_table, mask, slopes, ..) and numbers (batch,
                q_len, kv_len, scale, ..) by the names of attnjit_launch_args.
            mask_map: "write" or "read", where the launch is given a map of the mask: kv_num_blocks,
                kv_indices, full_kv_num_blocks and full_kv_indices, as a BlockMask of FlexAttention
                with blocks of 128 has them, and its bits, kv_bits and block_bits (docs/masks.md).
        """
        args: LaunchArgs = new(LaunchArgs, stream=_stream(stream))
        if mask_map not in _abi.MASK_MAPS:
            raise InvalidError(f"is {mask_map!r}; allowed: {', '.join(_abi.MASK_MAPS)}",
                               field="mask_map")
        args.mask_map = _abi.MASK_MAPS.index(mask_map)
        args.keep_alive = [(q, k, v, o, fields, params)]
        args.tensors = {}
        for name, given in (("q", q), ("k", k), ("v", v), ("o", o)):
            tensor = view(given, stream, name)
            args.keep_alive.append(tensor)
            args.tensors[name] = tensor
            if len(tensor.shape) != 4:
                raise InvalidError(f"has {len(tensor.shape)} dimensions; allowed: [batch, rows, "
                                   "heads, depth]", field=name)
            setattr(args, name, tensor.data_ptr())
            setattr(args, name + "_strides", _strides(name, tensor))
            if name == "q":
                args.batch, args.q_len = tensor.shape[:2]
            elif name == "k":
                args.kv_len = tensor.shape[1]
        for name, value in fields.items():
            if name not in _LAUNCH_FIELDS:
                raise wrong_type(f"a launch has no argument {name!r}; there are q, k, v, o, params, "
                                 f"scalars, mask_map, {', '.join(_LAUNCH_FIELDS)}", name)
            if value is None:
                continue
            if _LAUNCH_FIELDS[name] is c_uint64 and not isinstance(value, int):
                value = view(value, stream, name)
                args.keep_alive.append(value)
                args.tensors[name] = value
                if name in ("kv_indices", "mask", "q_rope", "k_rope") and len(value.shape) != 4:
                    raise InvalidError(f"has {len(value.shape)} dimensions; allowed: 4", field=name)
                if name == "kv_indices":
                    (args.map_batch, args.map_heads, args.map_q_blocks,
                     args.map_kv_blocks) = value.shape
                if name == "block_bits":
                    args.bit_blocks = value.shape[0] if value.shape else 0
                if name == "mask":
                    args.mask_batch, args.mask_heads, args.mask_rows = value.shape[:3]
                    strides = _strides(name, value)
                    args.mask_strides = Strides(strides.batch, strides.head, strides.row)
                elif name in ("q_rope", "k_rope"):
                    setattr(args, name + "_strides", _strides(name, value))
                elif not (_has_rows(value) if name == "page_table" else is_packed(value)):
                    raise refused(f"{name} {tuple(value.shape)} with strides "
                                  f"{tuple(value.stride())} must be contiguous", name,
                                  f"{name}.contiguous()")
                value = value.data_ptr()
            put(args, name, value)
        try:
            args.scalars, args.num_scalars = (c_double * len(scalars))(*scalars), len(scalars)
        except (TypeError, OverflowError) as error:
            raise wrong_type(f"scalars: {error}; allowed: a sequence of numbers",
                             "scalars") from None
        if params:
            if not isinstance(params, Mapping):
                raise wrong_type(f"params: is of {type(params).__name__}; allowed: a dict of names",
                                 "params")
            args.params, args.num_params = param_array(params, stream, args.keep_alive), len(params)
        return args

    def workspace(self, kernel: Kernel, args: LaunchArgs) -> Tuple[int, int]:
        """The bytes of device memory that such launches need beside their tensors, and how many of
        the first of them must be zero before the first launch (kernels leave the first 256 zero;
        those of debug_waits want a buffer of their own)."""
        needed, zero_bytes = c_int64(), c_int32()
        self._library.check(self._library.workspace(_of_kernel(kernel), byref(_of_args(args)), byref(needed),
                                                    byref(zero_bytes)))
        return needed.value, zero_bytes.value

    def mask_map_shape(self, kernel: Kernel, args: LaunchArgs) -> Tuple[int, int, int, int]:
        """The shape of kv_indices in the map of the mask that such a launch makes; kv_num_blocks
        lacks the last extent."""
        extents = (c_int32 * 4)()
        self._library.check(self._library.mask_map_shape(_of_kernel(kernel), byref(_of_args(args)), extents))
        return tuple(extents)

    def mask_map_bits(self, kernel: Kernel, args: LaunchArgs) -> int:
        """How many blocks that map has bits of at most: block_bits is [as many, 128, 4] of 32-bit
        integers, and kv_bits has the shape of kv_indices. 0: the map has no bits."""
        blocks = c_int32()
        self._library.check(self._library.mask_map_bits(_of_kernel(kernel), byref(_of_args(args)), byref(blocks)))
        return blocks.value

    def launch(self, kernel: Kernel, state: LaunchState, **tensors: Any) -> None:
        """Enqueues the kernel; the arguments are those of launch_args."""
        args = self.launch_args(**tensors)
        _check_tensors(kernel, args)
        self._library.check(self._library.launch(_of_kernel(kernel), byref(args), _of_state(state)))

    def prepare_launch(self, kernel: Kernel, state: LaunchState,
                       args: LaunchArgs) -> Callable[[], None]:
        """A function without arguments that launches: for loops that launch the same again, and end
        before the Service does."""
        function, check = self._library.launch, self._library.check
        _check_tensors(kernel, _of_args(args))

        def launch(kernel: Any = c_void_p(_of_kernel(kernel)), pointer: Any = byref(args),
                   state_pointer: Any = c_void_p(_of_state(state)),
                   keep_alive: Any = (args, state, kernel)) -> None:
            error = function(kernel, pointer, state_pointer)
            if error:
                check(error)

        return launch


def param_array(params: Mapping[str, Any], stream: Optional[int], keep_alive: List[Any]) -> Any:
    """The array of attnjit_param for values by their names."""
    array = (Param * len(params))()
    for out, (name, value) in zip(array, params.items()):
        out.struct_size, out.name = ctypes.sizeof(Param), name.encode()
        if isinstance(value, float):
            out.type, out.f32 = _abi.PARAM_TYPES["f32"], value
        elif isinstance(value, int):
            kind = "i32" if value < 1 << 31 else "u32"
            out.type = _abi.PARAM_TYPES[kind]
            out.i32 = integer(f"params: {name}", value, c_int32 if kind == "i32" else c_uint32)
        else:
            tensor = view(value, stream)
            keep_alive.append(tensor)
            out.type = _abi.PARAM_TYPES[param_type(tensor)]
            out.pointer = tensor.data_ptr()
            out.extent[:len(tensor.shape)] = list(tensor.shape)
    keep_alive.append(array)
    return array


def param_type(tensor: Any) -> str:
    """The type in a spec of an array that is a parameter, e.g. "i32[]"."""
    element = {"int32": "i32", "uint32": "u32", "float32": "f32",
               "bfloat16": "bf16"}.get(dtype_name(tensor.dtype))
    kind = f"{element}{'[]' * len(tensor.shape)}"
    if kind not in _abi.PARAM_TYPES:
        kinds = ", ".join(name for name in _abi.PARAM_TYPES if "[" in name)
        raise TypeError(f"an array of {dtype_name(tensor.dtype)} with {len(tensor.shape)} "
                        f"dimensions is no parameter; allowed: {kinds}")
    return kind


def _event_to(on_compile: OnCompile) -> Callable[..., None]:
    def call(_: Any, event: Any) -> None:
        try:
            fields = ((name, getattr(event.contents, name))
                      for name in list(_abi.fields_of(_abi.CompileEvent))[1:]
                      if name not in ("reserved", "failed"))
            on_compile({name: value.decode("utf-8", "replace") if isinstance(value, bytes)
                        else value for name, value in fields})
        except Exception as error:  # NOTE: nothing may be thrown into the library
            print(f"attnjit: on_compile failed: {error!r}", file=sys.stderr)

    return call


def _log_to(log: Log) -> Callable[..., None]:
    def write(_: Any, level: int, text: int, length: int) -> None:
        try:
            log(_LEVELS[level], ctypes.string_at(text, length).decode("utf-8", "replace"))
        except Exception as error:  # NOTE: nothing may be thrown into the library
            print(f"attnjit: the log function failed: {error!r}", file=sys.stderr)

    return write

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
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple, Union

from . import _abi
from ._abi import LaunchArgs, Library, Param, Strides, integer, new, put
from ._errors import InvalidError
from ._nvrtc import nvrtc_path
from ._tensors import dtype_name, view

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


class _Handle:
    """A handle of the C ABI, freed with its owner."""

    def __init__(self, pointer: int, free: Callable[[int], None]) -> None:
        self.pointer: Optional[int] = pointer
        self._free = free

    def close(self) -> None:
        """Frees it now. A second call does nothing."""
        pointer, self.pointer = getattr(self, "pointer", None), None
        if pointer is not None:
            self._free(pointer)

    __del__ = close


class Spec(_Handle):
    """A spec that a Service validated, planned and hashed."""

    key: str = ""  #: 64 hex digits: what the cache files its kernel under


class LaunchState(_Handle):
    """What a launch keeps from one call to the next: encoded tensor maps, packed arguments."""


class Kernel:
    """A loaded kernel. It lives as long as its Service, which it keeps alive."""

    __slots__ = ("_pointer", "service")

    def __init__(self, pointer: int, service: "Service") -> None:
        self._pointer, self.service = pointer, service

    @property
    def pointer(self) -> int:
        """Of the C ABI; it is gone with the Service."""
        if self.service.number == CLOSED:
            raise InvalidError("its Service is closed, and its kernels are gone", field="kernel")
        return self._pointer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kernel) and self._pointer == other._pointer

    def __hash__(self) -> int:
        return hash(self._pointer)


def _pointer(given: Any, kind: type, maker: str) -> Optional[int]:
    if not isinstance(given, kind):
        raise TypeError(f"{type(given).__name__} is no {kind.__name__}: give what {maker} returned")
    return given.pointer


def _of_spec(spec: Spec) -> Optional[int]:
    return _pointer(spec, Spec, "prepare()")


def _of_kernel(kernel: Kernel) -> Optional[int]:
    return _pointer(kernel, Kernel, "get()")


def _of_state(state: LaunchState) -> Optional[int]:
    return _pointer(state, LaunchState, "launch_state()")


# What a Service is told by name: the fields of attnjit_service_options, but for those that Python
# passes in another way.
_OPTIONS = [name for name, *_ in _abi.ServiceOptions._fields_
            if not name.startswith(("struct_size", "reserved", "log", "on_compile"))]
# What launch_args is told by name. c_uint64 is an address: of a tensor, or as an int.
_LAUNCH_FIELDS = {name: kind for name, kind in LaunchArgs._fields_
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
                raise TypeError(f"Service() has no option {name!r}; there are "
                                f"{', '.join(_OPTIONS)}, log and on_compile")
        self._library = Library(library or _abi.library_path())
        self._process = os.getpid()
        self.driver_path = options.get("driver_path")  #: of libcuda; None: the system's
        if options.get("nvrtc_path") is None:
            options["nvrtc_path"] = nvrtc_path()
        given = new(_abi.ServiceOptions)
        for name, value in options.items():
            if value is not None:
                put(given, name, value)
        for name, function in (("log", log), ("on_compile", on_compile)):
            if function is not None and not callable(function):
                raise TypeError(f"{name}: is of {type(function).__name__}; allowed: a function")
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
        self._library.check(self._library.service_statistics(self._service.pointer, byref(out)))
        return {name: getattr(out, name) for name, _ in _abi.Statistics._fields_[1:]}

    def flush(self, timeout: float = 2.0) -> bool:
        """Waits, for `timeout` seconds at most (math.inf: without limit), until the remote cache has
        what was compiled."""
        done = c_int32()
        timeout_ms = -1 if timeout == math.inf else int(timeout * 1000)
        self._library.check(self._library.service_flush(self._service.pointer, timeout_ms,
                                                        byref(done)))
        return bool(done.value)

    def prometheus(self) -> str:
        """The statistics as Prometheus's text format, for a /metrics endpoint."""
        length = c_size_t()
        text = ctypes.create_string_buffer(1 << 16)
        while True:
            self._library.check(self._library.service_prometheus(self._service.pointer, text,
                                                                 len(text), byref(length)))
            if length.value < len(text):
                return text.value.decode()
            text = ctypes.create_string_buffer(2 * length.value)

    def prepare(self, spec: Union[str, Mapping[str, Any]]) -> Spec:
        """A spec, as a dict or as JSON text (docs/spec.md), validated, planned and hashed."""
        text = (spec if isinstance(spec, str) else json.dumps(spec)).encode()
        pointer = self._library.create("spec_prepare", self._service.pointer, text, len(text))
        prepared = Spec(pointer.value, self._library.spec_free)
        prepared.key = self._library.spec_key(prepared.pointer).decode()
        return prepared

    def key(self, spec: Spec) -> str:
        """What the cache files the kernel under: 64 hex digits."""
        return spec.key

    def compile(self, spec: Spec, timeout_ms: int = -1, want_ptx: bool = False) -> Dict[str, Any]:
        """The image: its cubin, and what the compiler says of it. Needs no GPU."""
        pointer = self._library.create("compile", self._service.pointer, _of_spec(spec), timeout_ms,
                                       int(want_ptx))
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
        pointer = self._library.create("get", self._service.pointer, _of_spec(spec), timeout_ms,
                                       stream)
        return Kernel(pointer.value, self)

    def find(self, spec: Spec) -> Optional[Kernel]:
        """The kernel if it is loaded, else None. Never blocks."""
        pointer = self._library.find(self._service.pointer, _of_spec(spec))
        return Kernel(pointer, self) if pointer else None

    def try_get(self, spec: Spec) -> Optional[Kernel]:
        """The kernel, or None and a compile in the background. Never blocks."""
        pointer = self._library.create("try_get", self._service.pointer, _of_spec(spec))
        return Kernel(pointer.value, self) if pointer.value else None

    def get_or_fallback(self, spec: Spec,
                        stream: Optional[int] = None) -> Tuple[Optional[Kernel], bool]:
        """As try_get; but while the kernel is compiled, one that computes the same serves if it is
        at hand. The second value is True for such a kernel."""
        pointer, fallback = c_void_p(), c_int32()
        self._library.check(self._library.get_or_fallback(
            self._service.pointer, _of_spec(spec), stream, byref(pointer), byref(fallback)))
        kernel = Kernel(pointer.value, self) if pointer.value else None
        return kernel, bool(fallback.value)

    def prepare_kernel(self, kernel: Kernel, stream: Optional[int] = None) -> None:
        """Loads the kernel into the stream's context, so that launches there can be captured."""
        self._library.check(self._library.kernel_prepare(_of_kernel(kernel), stream))

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
        or whatever has DLPack, with any strides but for a contiguous last dimension.

        Args:
            params: values of the spec's parameters by their names: int, float or tensors.
            scalars: the numbers of the spec's masks in preorder, then of its score modification.
            fields: further tensors (lse, sink, page_table, mask, slopes, ..) and numbers (batch,
                q_len, kv_len, scale, ..) by the names of attnjit_launch_args.
            mask_map: "write" or "read", where the launch is given a map of the mask: kv_num_blocks,
                kv_indices, full_kv_num_blocks and full_kv_indices, as a BlockMask of FlexAttention
                with blocks of 128 has them, and its bits, kv_bits and block_bits (docs/masks.md).
        """
        args = new(LaunchArgs, stream=stream)
        if mask_map not in _abi.MASK_MAPS:
            raise InvalidError(f"is {mask_map!r}; allowed: {', '.join(_abi.MASK_MAPS)}",
                               field="mask_map")
        args.mask_map = _abi.MASK_MAPS.index(mask_map)
        args.keep_alive = [(q, k, v, o, fields, params)]
        for name, given in (("q", q), ("k", k), ("v", v), ("o", o)):
            tensor = view(given, stream)
            args.keep_alive.append(tensor)
            if len(tensor.shape) != 4:
                raise InvalidError(f"has {len(tensor.shape)} dimensions; allowed: [batch, rows, "
                                   "heads, depth]", field=name)
            batch, row, head, one = tensor.stride()
            if one != 1 and tensor.shape[3] != 1:
                raise ValueError(name + ": the last dimension must be contiguous")
            setattr(args, name, tensor.data_ptr())
            setattr(args, name + "_strides", Strides(batch, row, head))
            if name == "q":
                args.batch, args.q_len = tensor.shape[:2]
            elif name == "k":
                args.kv_len = tensor.shape[1]
        for name, value in fields.items():
            if name not in _LAUNCH_FIELDS:
                raise TypeError(f"a launch has no argument {name!r}; there are q, k, v, o, params, "
                                f"scalars, mask_map, {', '.join(_LAUNCH_FIELDS)}")
            if value is None:
                continue
            if _LAUNCH_FIELDS[name] is c_uint64 and not isinstance(value, int):
                value = view(value, stream)
                args.keep_alive.append(value)
                if name == "kv_indices":
                    (args.map_batch, args.map_heads, args.map_q_blocks,
                     args.map_kv_blocks) = value.shape
                if name == "block_bits":
                    args.bit_blocks = value.shape[0]
                if name == "mask":
                    args.mask_batch, args.mask_heads, args.mask_rows = value.shape[:3]
                    batch, head, row, one = value.stride()
                    if one != 1 and value.shape[3] != 1:
                        raise ValueError("mask: the last dimension must be contiguous")
                    args.mask_strides = Strides(batch, row, head)
                if name in ("q_rope", "k_rope"):
                    batch, row, head, one = value.stride()
                    if one != 1 and value.shape[3] != 1:
                        raise ValueError(name + ": the last dimension must be contiguous")
                    setattr(args, name + "_strides", Strides(batch, row, head))
                value = value.data_ptr()
            put(args, name, value)
        args.scalars, args.num_scalars = (c_double * len(scalars))(*scalars), len(scalars)
        if params:
            args.params, args.num_params = param_array(params, stream, args.keep_alive), len(params)
        return args

    def workspace(self, kernel: Kernel, args: LaunchArgs) -> Tuple[int, int]:
        """The bytes of device memory that such launches need beside their tensors, and how many of
        the first of them must be zero before the first launch (kernels leave the first 256 zero;
        those of debug_waits want a buffer of their own)."""
        needed, zero_bytes = c_int64(), c_int32()
        self._library.check(self._library.workspace(_of_kernel(kernel), byref(args), byref(needed),
                                                    byref(zero_bytes)))
        return needed.value, zero_bytes.value

    def mask_map_shape(self, kernel: Kernel, args: LaunchArgs) -> Tuple[int, int, int, int]:
        """The shape of kv_indices in the map of the mask that such a launch makes; kv_num_blocks
        lacks the last extent."""
        extents = (c_int32 * 4)()
        self._library.check(self._library.mask_map_shape(_of_kernel(kernel), byref(args), extents))
        return tuple(extents)

    def mask_map_bits(self, kernel: Kernel, args: LaunchArgs) -> int:
        """How many blocks that map has bits of at most: block_bits is [as many, 128, 4] of 32-bit
        integers, and kv_bits has the shape of kv_indices. 0: the map has no bits."""
        blocks = c_int32()
        self._library.check(self._library.mask_map_bits(_of_kernel(kernel), byref(args), byref(blocks)))
        return blocks.value

    def launch(self, kernel: Kernel, state: LaunchState, **tensors: Any) -> None:
        """Enqueues the kernel; the arguments are those of launch_args."""
        args = self.launch_args(**tensors)
        self._library.check(self._library.launch(_of_kernel(kernel), byref(args), _of_state(state)))

    def prepare_launch(self, kernel: Kernel, state: LaunchState,
                       args: LaunchArgs) -> Callable[[], None]:
        """A function without arguments that launches: for loops that launch the same again, and end
        before the Service does."""
        function, check = self._library.launch, self._library.check

        def launch(kernel: Any = c_void_p(_of_kernel(kernel)), pointer: Any = byref(args),
                   state_pointer: Any = c_void_p(_of_state(state)),
                   keep_alive: Any = (args, state, kernel)) -> None:
            error = function(kernel, pointer, state_pointer)
            if error:
                check(error)

        return launch


def param_array(params: Mapping[str, Any], stream: Optional[int], keep_alive: list) -> Any:
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
                      for name, _ in _abi.CompileEvent._fields_[1:]
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

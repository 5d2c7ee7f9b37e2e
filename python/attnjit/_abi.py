# SPDX-License-Identifier: Apache-2.0
"""The C ABI of attnjit.h through ctypes: its structs and functions, each said once.

tests/python/abi_test.py compares this file with include/attnjit/attnjit.h.
"""
from __future__ import annotations

import ctypes
import math
import operator
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_double, c_float, c_int32,
                    c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof)
from typing import Any, ClassVar, Dict, List, Optional, Tuple

from ._errors import (AttnjitError, InvalidError, MissingError, error_class, refused, wrong_type)

#: Of a struct.
Fields = List[Tuple[str, Any]]
LogFunction = CFUNCTYPE(None, c_void_p, c_int32, c_void_p, c_size_t)


class CompileEvent(Structure):
    _fields_ = [("struct_size", c_size_t), ("key", c_char_p), ("arch", c_char_p),
                ("compile_ms", c_double), ("failed", c_int32), ("registers", c_int32),
                ("spill_bytes", c_int32), ("reserved", c_int32), ("cubin_bytes", c_int64),
                ("message", c_char_p)]


CompileFunction = CFUNCTYPE(None, c_void_p, POINTER(CompileEvent))


class ServiceOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("cache_layers", c_char_p), ("no_disk_cache", c_int32),
                ("forbid_compile", c_int32), ("compile_in_helper", c_int32),
                ("compile_threads", c_int32), ("any_build", c_int32), ("reserved", c_int32),
                ("cache_max_bytes", c_int64), ("failure_ttl_s", c_int64), ("nvrtc_path", c_char_p),
                ("driver_path", c_char_p), ("helper_path", c_char_p),
                ("templates_folder", c_char_p), ("log", LogFunction), ("log_context", c_void_p),
                ("tuning", c_char_p), ("accept_unconfined_helper", c_int32),
                ("reserved2", c_int32), ("remote", c_char_p), ("remote_budget_ms", c_int64),
                ("on_compile", CompileFunction), ("on_compile_context", c_void_p),
                ("compile_fallbacks", c_int32), ("nvtx_ranges", c_int32)]


class Statistics(Structure):
    _fields_: ClassVar[Fields] = [("struct_size", c_size_t), *[
        (name, c_uint64) for name in ("memory_hits", "disk_hits", "remote_hits", "compiles",
                                      "failures", "waits", "quarantined", "queued")],
        ("compile_ms_total", c_double), ("fallbacks", c_uint64)]


class Strides(Structure):
    _fields_ = [("batch", c_int64), ("row", c_int64), ("head", c_int64)]


# A stride of 0: zeros for all three of a tensor mean packed. (ATTNJIT_STRIDE_ZERO)
STRIDE_ZERO = -1 << 63


class Param(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("type", c_int32), ("i32", c_int32),
                ("f32", c_float), ("extent", c_int32 * 3), ("pointer", c_uint64)]


# attnjit_param.type by the type's name in a spec.
PARAM_TYPES = {name: number for number, name in enumerate(
    ("i32", "f32", "i32[]", "f32[]", "i32[][]", "u32", "u32[]", "u32[][]", "f32[][]", "bf16[]",
     "bf16[][]", "i32[][][]", "u32[][][]", "f32[][][]"))}


class LaunchArgs(Structure):
    _fields_: ClassVar[Fields] = [("struct_size", c_size_t)] + [
        (name, c_uint64) for name in ("q", "k", "v", "o", "lse", "sink", "page_table", "kv_lens",
                                      "q_offsets", "q_scale", "k_scale", "v_scale", "mask")
    ] + [(name, c_int32) for name in ("batch", "q_len", "kv_len", "total_q", "num_pages",
                                      "max_pages")] + [
        (name, Strides) for name in ("q_strides", "k_strides", "v_strides", "o_strides")
    ] + [("scale", c_float), ("cap", c_float), ("window", c_int32), ("chunk", c_int32),
         ("more_windows", c_int32 * 7), ("more_chunks", c_int32 * 7), ("params", POINTER(Param)),
         ("num_params", c_size_t), ("workspace", c_uint64), ("workspace_bytes", c_int64),
         ("stream", c_void_p), ("scalars", POINTER(c_double)), ("num_scalars", c_size_t),
         ("kv_offsets", c_uint64), ("pairs_o", c_uint64), ("pairs_lse", c_uint64),
         ("total_kv", c_int32), ("num_pairs", c_int32), ("overlap", c_int32),
         ("reserved", c_int32), ("kv_num_blocks", c_uint64), ("kv_indices", c_uint64),
         ("full_kv_num_blocks", c_uint64), ("full_kv_indices", c_uint64), ("mask_map", c_int32),
         ("map_batch", c_int32), ("map_heads", c_int32), ("map_q_blocks", c_int32),
         ("map_kv_blocks", c_int32), ("reserved2", c_int32), ("slopes", c_uint64),
         ("mask_batch", c_int32), ("mask_heads", c_int32), ("mask_rows", c_int32),
         ("reserved3", c_int32), ("mask_strides", Strides), ("output_scale", c_uint64),
         ("topk_indices", c_uint64), ("kv_bits", c_uint64), ("block_bits", c_uint64),
         ("bit_blocks", c_int32), ("reserved4", c_int32), ("q_rope", c_uint64),
         ("k_rope", c_uint64), ("q_rope_strides", Strides), ("k_rope_strides", Strides),
         ("kv_scale_strides", Strides)]


# attnjit_launch_args.mask_map
MASK_MAPS = ("none", "write", "read")

# What kernels leave zero of a workspace.
TILE_COUNTERS_BYTES = 256


class ImageInfo(Structure):
    _fields_ = [("struct_size", c_size_t), ("cubin", c_void_p), ("cubin_bytes", c_size_t),
                ("ptx", c_char_p), ("ptx_bytes", c_size_t), ("outcome", c_int32),
                ("registers", c_int32), ("spill_bytes", c_int32), ("stack_bytes", c_int32),
                ("static_smem_bytes", c_int32), ("reserved", c_int32), ("compile_ms", c_double),
                ("total_ms", c_double), ("nvrtc_version", c_char_p)]


# attnjit_image_info.outcome
OUTCOMES = ("memory", "disk", "remote", "compiled")

_AXES = {"[][][]": "_CUBE", "[][]": "_MATRIX", "[]": "_ARRAY", "": ""}


def _param_enumerator(name: str) -> str:
    scalar, bracket, axes = name.partition("[")
    return f"PARAM_{scalar.upper()}{_AXES[bracket + axes]}"


# The header's enumerators without ATTNJIT_, except for those of errors, which are classes here.
ENUMERATORS = {
    "TILE_COUNTERS_BYTES": TILE_COUNTERS_BYTES,
    **{_param_enumerator(name): number for name, number in PARAM_TYPES.items()},
    **{f"MASK_MAP_{name.upper()}": number for number, name in enumerate(MASK_MAPS)},
    **{f"OUTCOME_{name.upper()}": number for number, name in enumerate(OUTCOMES)},
}

# The C name of each struct.
STRUCTS = {"attnjit_compile_event": CompileEvent, "attnjit_service_options": ServiceOptions,
           "attnjit_statistics": Statistics, "attnjit_strides": Strides, "attnjit_param": Param, "attnjit_launch_args": LaunchArgs,
           "attnjit_image_info": ImageInfo}

# name without attnjit_: (result, arguments). A function that can fail has the result _ERROR.
_ERROR = c_void_p
FUNCTIONS = {
    "version": (c_char_p, []),
    "abi_version": (c_uint32, []),
    "error_code": (c_int32, [c_void_p]),
    "error_code_name": (c_char_p, [c_void_p]),
    "error_message": (c_char_p, [c_void_p]),
    "error_field": (c_char_p, [c_void_p]),
    "error_hint": (c_char_p, [c_void_p]),
    "error_line": (c_int32, [c_void_p]),
    "error_column": (c_int32, [c_void_p]),
    "error_text": (c_char_p, [c_void_p]),
    "error_count_others": (c_size_t, [c_void_p]),
    "error_other": (c_void_p, [c_void_p, c_size_t]),
    "error_free": (None, [c_void_p]),
    "service_create": (_ERROR, [POINTER(ServiceOptions), POINTER(c_void_p)]),
    "service_destroy": (None, [c_void_p]),
    "service_statistics": (_ERROR, [c_void_p, POINTER(Statistics)]),
    "service_prometheus": (_ERROR, [c_void_p, c_char_p, c_size_t, POINTER(c_size_t)]),
    "service_flush": (_ERROR, [c_void_p, c_int64, POINTER(c_int32)]),
    "spec_prepare": (_ERROR, [c_void_p, c_char_p, c_size_t, POINTER(c_void_p)]),
    "spec_key": (c_char_p, [c_void_p]),
    "spec_free": (None, [c_void_p]),
    "spec_partitions": (_ERROR, [c_void_p, c_int32, c_int32, c_int32, c_int32, c_int32,
                                 POINTER(c_int32)]),
    "get": (_ERROR, [c_void_p, c_void_p, c_int64, c_void_p, POINTER(c_void_p)]),
    "find": (c_void_p, [c_void_p, c_void_p]),
    "try_get": (_ERROR, [c_void_p, c_void_p, POINTER(c_void_p)]),
    "get_or_fallback": (_ERROR, [c_void_p, c_void_p, c_void_p, POINTER(c_void_p),
                                 POINTER(c_int32)]),
    "kernel_prepare": (_ERROR, [c_void_p, c_void_p]),
    "compile": (_ERROR, [c_void_p, c_void_p, c_int64, c_int32, POINTER(c_void_p)]),
    "image_get_info": (_ERROR, [c_void_p, POINTER(ImageInfo)]),
    "image_free": (None, [c_void_p]),
    "launch_state_create": (_ERROR, [POINTER(c_void_p)]),
    "launch_state_reset": (None, [c_void_p]),
    "launch_state_free": (None, [c_void_p]),
    "workspace": (_ERROR, [c_void_p, POINTER(LaunchArgs), POINTER(c_int64), POINTER(c_int32)]),
    "mask_map_shape": (_ERROR, [c_void_p, POINTER(LaunchArgs), POINTER(c_int32)]),
    "mask_map_bits": (_ERROR, [c_void_p, POINTER(LaunchArgs), POINTER(c_int32)]),
    "launch": (_ERROR, [c_void_p, POINTER(LaunchArgs), c_void_p]),
}

_MOST_F32 = 3.4028234663852886e38
_FOLDER = os.path.dirname(os.path.abspath(__file__))


def library_path() -> str:
    """The library that this package carries."""
    return os.path.join(_FOLDER, "libattnjit.so")


def command_path() -> str:
    """The attnjit command that this package carries."""
    return os.path.join(_FOLDER, "attnjit")


class Library:
    """A loaded libattnjit: its functions by their names without attnjit_.

    Any thread may use it: it holds no state of its own.
    """

    def __init__(self, path: str) -> None:
        try:
            loaded = ctypes.CDLL(path)
            functions = [getattr(loaded, "attnjit_" + name) for name in FUNCTIONS]
        except (OSError, AttributeError) as error:
            raise MissingError(f"{path} cannot be used: {error}", code="environment",
                               field="library", hint="install the wheel again, or give the path "
                               "of this version's libattnjit.so as `library`") from None
        self.path = path
        for function, (name, (result, arguments)) in zip(functions, FUNCTIONS.items()):
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:  # only for names that the constructor did not set
        raise AttributeError(f"libattnjit has no function {name}")

    def check(self, error: Optional[int]) -> None:
        """Raises what a function that can fail returned, and frees it."""
        if error:
            exception = self._exception(error)
            self.error_free(error)
            raise exception

    def create(self, name: str, *arguments: Any) -> c_void_p:
        """The handle that a function writes through its last argument."""
        result = c_void_p()
        self.check(getattr(self, name)(*arguments, byref(result)))
        return result

    def _exception(self, error: int, text: Optional[str] = None) -> AttnjitError:
        def read(part: str) -> str:
            text: bytes = getattr(self, "error_" + part)(error)
            return text.decode("utf-8", "replace")

        code = read("code_name")
        return error_class(code)(
            read("text"), code=code, message=read("message"), field=read("field"),
            hint=read("hint"), line=self.error_line(error), column=self.error_column(error),
            others=[self._exception(self.error_other(error, i))
                    for i in range(self.error_count_others(error))])


def new(struct: type, **fields: Any) -> Any:
    """A struct of the C ABI with its size filled in."""
    return struct(sizeof(struct), **fields)


def fields_of(struct: type) -> Dict[str, Any]:
    """The C types of a struct's fields, by their names."""
    return {field[0]: field[1] for field in struct._fields_}  # type: ignore[attr-defined]


def put(struct: Structure, name: str, value: Any, kind: Any = None) -> None:
    """Sets a field to what a caller gave, if its C type (`kind`; None: the field's) can hold it.

    NOTE: ctypes alone takes an int for the address of a text, ends a text at its first NUL, keeps
    the low bits of an int that is too long, and sets an attribute where there is no such field.
    """
    kind = kind or fields_of(type(struct))[name]
    if kind is c_char_p:
        value = _text(name, value)
    elif kind in (c_int32, c_uint32, c_int64, c_uint64):
        value = integer(name, value, kind)
    elif kind is c_float:
        value = number(name, value)
    setattr(struct, name, value)


def number(name: str, value: Any) -> float:
    """The value as a float, that an f32 can hold."""
    try:
        if isinstance(value, (str, bytes, bool)):
            raise TypeError
        found = float(value)
    except (TypeError, ValueError):
        raise wrong_type(f"{name}: is of {type(value).__name__}; allowed: a number",
                         name) from None
    except OverflowError:
        found = math.inf
    if not math.isfinite(found) or abs(found) > _MOST_F32:
        raise refused(f"{name}: is {value!r}; allowed: a finite number of f32", name)
    return found


def positive(name: str, value: Any) -> float:
    """The same of a factor: 0 stands for the default of a launch."""
    found = number(name, value)
    if not found > 0:
        raise refused(f"{name} is {found}; it must be positive", name)
    return found


def integer(name: str, value: Any, kind: Any) -> int:
    """The value as an int that a C type can hold."""
    try:
        number = operator.index(value)
    except Exception:  # NOTE: of a tensor it may fail in any way
        raise wrong_type(f"{name}: is of {type(value).__name__}; allowed: an int", name) from None
    if kind(number).value != number:
        bits, signed = 8 * sizeof(kind), kind(-1).value < 0
        raise InvalidError(f"is {number}; allowed: an int of {bits} bits"
                           f"{'' if signed else ', not negative'}", field=name)
    return number


def _text(name: str, value: Any) -> bytes:
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise wrong_type(f"{name}: is of {type(value).__name__}; allowed: a str, or a path", name)
    try:
        text = os.fsencode(value)
    except UnicodeEncodeError:
        raise InvalidError(f"is {value!r}, which no file system takes", field=name) from None
    if b"\0" in text:
        raise InvalidError("holds a NUL", field=name)
    return text

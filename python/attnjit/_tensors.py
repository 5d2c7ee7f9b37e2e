# SPDX-License-Identifier: Apache-2.0
"""Tensors of any library as what a launch needs: address, shape, strides, element type.

torch tensors are used as they are (data_ptr(), shape, stride(), dtype, device); everything else
comes through DLPack.
"""
from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any, Optional, Tuple

from ._errors import refused, wrong_type

# The element types of specs by torch's names.
SPEC_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float8_e4m3fn": "e4m3", "float32": "f32"}

# DLPack's type codes and widths.
_DLPACK_DTYPES = {(0, 32): "int32", (0, 64): "int64", (1, 8): "uint8", (1, 32): "uint32",
                  (2, 16): "float16", (2, 32): "float32", (2, 64): "float64", (4, 16): "bfloat16",
                  (6, 8): "bool", (10, 8): "float8_e4m3fn"}


class _DLTensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32),
                ("ndim", c_int32), ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16),
                ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


class Device:
    """Where a tensor lies: as much of torch.device as the launches use."""

    __slots__ = ("type", "index")
    _TYPES = {1: "cpu", 2: "cuda", 3: "cuda", 13: "cuda"}  # pinned and managed memory as well

    def __init__(self, kind: int, index: int) -> None:
        self.type, self.index = self._TYPES.get(kind, f"DLPack device {kind}"), index

    def __repr__(self) -> str:
        return f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return (self.type, self.index) == (getattr(other, "type", None),
                                           getattr(other, "index", None))

    def __hash__(self) -> int:
        return hash((self.type, self.index))


class DLPackView:
    """A tensor that came through DLPack; it keeps the memory alive."""

    def __init__(self, capsule: Any) -> None:
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]
        self._owner = capsule  # NOTE: never renamed: its own destructor frees the tensor
        tensor = _DLTensor.from_address(get(capsule, b"dltensor"))
        self.shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        if tensor.strides:
            self._strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
        else:
            self._strides = packed_strides(self.shape)
        self._pointer: int = (tensor.data or 0) + tensor.byte_offset
        self.dtype = _DLPACK_DTYPES.get((tensor.code, tensor.bits) if tensor.lanes == 1 else (0, 0),
                                        f"DLPack type {tensor.code}, {tensor.bits} bits")
        self.device = Device(tensor.device_type, tensor.device_id)

    def data_ptr(self) -> int:
        return self._pointer

    def transpose(self, first: int, second: int) -> "DLPackView":
        """The same memory with two dimensions exchanged."""
        def exchanged(values: Tuple[int, ...]) -> Tuple[int, ...]:
            out = list(values)
            out[first], out[second] = out[second], out[first]
            return tuple(out)

        return self._like(exchanged(self.shape), exchanged(self._strides))

    def unsqueeze(self, at: int) -> "DLPackView":
        """The same memory with one more dimension, of one entry."""
        return self._like((*self.shape[:at], 1, *self.shape[at:]),
                          (*self._strides[:at], 0, *self._strides[at:]))

    def _like(self, shape: Tuple[int, ...], strides: Tuple[int, ...]) -> "DLPackView":
        other = DLPackView.__new__(DLPackView)
        other.__dict__.update(self.__dict__)
        other.shape, other._strides = shape, strides
        return other

    def stride(self) -> Tuple[int, ...]:
        return self._strides


def packed_strides(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """The strides of a tensor without gaps."""
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return tuple(strides[:len(shape)])


def view(tensor: Any, stream: Optional[int] = None, name: str = "") -> Any:
    """The tensor with data_ptr(), shape, stride(), dtype and device.

    A DLPack producer is given the stream, so that what it still computes comes before the launch.
    """
    if hasattr(tensor, "data_ptr"):
        return tensor
    if not hasattr(tensor, "__dlpack__"):
        raise wrong_type(f"{type(tensor).__name__} is no tensor: it has neither data_ptr() nor "
                         "__dlpack__()", name)
    try:
        kind = tensor.__dlpack_device__()[0]
        on_gpu = Device._TYPES.get(int(kind)) == "cuda"
        # NOTE: 1 is the legacy default stream in DLPack, which has no 0.
        return DLPackView(tensor.__dlpack__(stream=stream or 1) if on_gpu else tensor.__dlpack__())
    except Exception as error:  # NOTE: each library has its own, e.g. for what is read-only
        raise wrong_type(f"{type(tensor).__name__} gives no tensor through DLPack: {error}",
                         name) from error


def is_packed(tensor: Any) -> bool:
    """Whether it has no gaps: the stride of a dimension of one element is not looked at."""
    if hasattr(tensor, "is_contiguous"):
        return bool(tensor.is_contiguous())
    shape = tuple(tensor.shape)
    return 0 in shape or all(extent == 1 or stride == packed for extent, stride, packed in zip(
        shape, tensor.stride(), packed_strides(shape)))


def overlaps(tensor: Any) -> bool:
    """Whether some of its elements, in a regular view, lie over one another."""
    covered = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape)):
        if extent == 1:
            continue
        if stride < covered:
            return 0 not in tensor.shape
        covered += stride * (extent - 1)
    return False


def packed(tensor: Any, name: str) -> Any:
    """The same without gaps: itself, or a copy, which only torch is asked for."""
    if is_packed(tensor):
        return tensor
    if not hasattr(tensor, "contiguous"):
        raise refused(f"{name} {tuple(tensor.shape)} with strides {tuple(tensor.stride())} must be "
                      "contiguous", name, "give a copy without gaps; of torch's tensors one is made")
    return tensor.contiguous()


def dtype_name(dtype: Any) -> str:
    """The name of an element type as torch has it, e.g. "bfloat16"."""
    return str(dtype).rpartition(".")[2]

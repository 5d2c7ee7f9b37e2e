# SPDX-License-Identifier: Apache-2.0
"""What a GPU is, asked of the CUDA driver without torch."""
from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_int32, c_uint64, c_void_p
from typing import List, Optional

from ._errors import MissingError, UnsupportedError

_ARCHITECTURES = {(9, 0): "sm_90a", (10, 0): "sm_100a", (10, 3): "sm_103a"}
# CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR, and CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_MAJOR, _MINOR, _SMS = 75, 76, 16


def architecture(index: int, driver_path: Optional[str] = None) -> str:
    """The architecture that kernels for the GPU are compiled for, e.g. "sm_90a"."""
    major, minor = _attributes(index, driver_path, _MAJOR, _MINOR)
    if (major, minor) not in _ARCHITECTURES:
        raise UnsupportedError(f"GPU {index} has compute capability {major}.{minor}",
                               code="unsupported", field="arch",
                               hint="attnjit serves " + ", ".join(_ARCHITECTURES.values()))
    return _ARCHITECTURES[major, minor]


def sm_count(index: int, driver_path: Optional[str] = None) -> int:
    """The SMs that the GPU has."""
    return _attributes(index, driver_path, _SMS)[0]


def _attributes(index: int, driver_path: Optional[str], *attributes: int) -> List[int]:
    try:
        driver = ctypes.CDLL(driver_path or "libcuda.so.1")
    except OSError as error:
        raise MissingError(f"no CUDA driver: {error}", code="environment", field="driver",
                           hint="install NVIDIA's driver; see attnjit doctor") from None

    def call(name: bytes, *arguments: object) -> None:
        address, status = c_void_p(), c_int32()
        code = driver.cuGetProcAddress_v2(name, byref(address), 12000, c_uint64(0), byref(status))
        code = code or ctypes.CFUNCTYPE(c_int)(address.value or 0)(*arguments)
        if code:
            raise MissingError(f"{name.decode()} failed with code {code}", code="environment",
                               field="driver", hint="see nvidia-smi")

    device, values = c_int(), [c_int() for _ in attributes]
    call(b"cuInit", 0)
    call(b"cuDeviceGet", byref(device), index)
    for value, attribute in zip(values, attributes):
        call(b"cuDeviceGetAttribute", byref(value), attribute, device)
    return [value.value for value in values]

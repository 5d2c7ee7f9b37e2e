# SPDX-License-Identifier: Apache-2.0
"""The architecture of a GPU, asked of the CUDA driver without torch."""
from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_int32, c_uint64, c_void_p
from typing import Optional

from ._errors import MissingError, UnsupportedError

_ARCHITECTURES = {(9, 0): "sm_90a", (10, 0): "sm_100a", (10, 3): "sm_103a"}
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


def architecture(index: int, driver_path: Optional[str] = None) -> str:
    """The architecture that kernels for the GPU are compiled for, e.g. "sm_90a"."""
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

    device, major, minor = c_int(), c_int(), c_int()
    call(b"cuInit", 0)
    call(b"cuDeviceGet", byref(device), index)
    call(b"cuDeviceGetAttribute", byref(major), _MAJOR, device)
    call(b"cuDeviceGetAttribute", byref(minor), _MINOR, device)
    capability = (major.value, minor.value)
    if capability not in _ARCHITECTURES:
        raise UnsupportedError(f"GPU {index} has compute capability {capability[0]}."
                               f"{capability[1]}", code="unsupported", field="arch",
                               hint="attnjit serves " + ", ".join(_ARCHITECTURES.values()))
    return _ARCHITECTURES[capability]

# SPDX-License-Identifier: Apache-2.0
"""A GPU that is not there, for the tests of launches: the fake libcuda, and tensors on it."""
import ctypes
import math
from ctypes import byref, c_char_p, c_int32, c_uint64, c_void_p

import attnjit
from attnjit._tensors import Device, packed_strides


class Tensor:
    """As much of a tensor as attnjit uses."""

    def __init__(self, pointer, shape, dtype="bfloat16", strides=None, device=Device(2, 0)):
        self.pointer, self.shape, self.dtype = pointer, tuple(shape), dtype
        self.strides, self.device = strides or packed_strides(self.shape), device

    def data_ptr(self):
        return self.pointer

    def stride(self):
        return self.strides

    def transpose(self, a, b):
        order = list(range(len(self.shape)))
        order[a], order[b] = b, a
        return Tensor(self.pointer, [self.shape[i] for i in order], self.dtype,
                      tuple(self.strides[i] for i in order), self.device)

    def unsqueeze(self, at):
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(at, 1)
        strides.insert(at, 0)
        return Tensor(self.pointer, shape, self.dtype, tuple(strides), self.device)

    def reshape(self, extent):
        assert extent == -1
        return Tensor(self.pointer, [math.prod(self.shape)], self.dtype, None, self.device)

    def __getitem__(self, index):
        raise AssertionError("a trace replaces what a function indexes")


class Gpu:
    """The fake libcuda at a path, with its primary context current."""

    def __init__(self, path):
        self.path, self._cuda = path, ctypes.CDLL(path)
        self._cuda.attnjit_fake_report.restype = c_char_p
        context = c_void_p()
        self._call(b"cuInit", 0)
        self._call(b"cuDevicePrimaryCtxRetain", byref(context), 0)
        self._call(b"cuCtxSetCurrent", context)

    def _call(self, name, *arguments):
        address, status = c_void_p(), c_int32()
        assert self._cuda.cuGetProcAddress_v2(name, byref(address), 12000, c_uint64(0),
                                              byref(status)) == 0
        assert ctypes.CFUNCTYPE(c_int32)(address.value)(*arguments) == 0, name

    def report(self):
        """(launches, encoded tensor maps): [(kernel, stream)], {address: (dims, strides)}"""
        launches, maps = [], {}
        for line in self._cuda.attnjit_fake_report().decode().splitlines():
            kind, *words = line.split()
            if kind == "launch":
                launches.append((words[0], int(words[1])))
            else:
                slash = words.index("/")
                maps[int(words[0])] = (tuple(map(int, words[1:slash])),
                                       tuple(map(int, words[slash + 1:])))
        return launches, maps


def fails(call, kind, *texts):
    """Asserts that a call raises an exception that says these things; returns it."""
    try:
        result = call()
    except kind as error:
        for text in texts:
            assert text in str(error), f"{error} does not say {text!r}"
        return error
    raise AssertionError(f"no {kind.__name__}, but {result!r}")


def have_nvrtc():
    """Whether kernels can be compiled here."""
    with attnjit.Service(no_disk_cache=1) as service:
        try:
            service.compile(service.prepare({"arch": "sm_90a", "num_q_heads": 1, "qk_depth": 64}))
        except attnjit.MissingError:
            return False
    return True

# SPDX-License-Identifier: Apache-2.0
"""Tells vLLM, in each process whose PYTHONPATH names this folder, that there are two H200s: NVML and
Triton's driver are answered for. Whatever would run on the GPUs fails."""
import importlib.abc
import importlib.machinery
import sys


class _Memory:
    total, free, used = 143771 << 20, 143000 << 20, 1 << 20


_ANSWERS = {"nvmlInit": None, "nvmlShutdown": None, "nvmlDeviceGetCount": 2,
            "nvmlDeviceGetHandleByIndex": 0, "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetName": "NVIDIA H200", "nvmlDeviceGetUUID": "GPU-0",
            "nvmlDeviceGetMemoryInfo": _Memory, "nvmlSystemGetDriverVersion": "580.0"}


def _nvml(module):
    for function, answer in _ANSWERS.items():
        setattr(module, function, lambda *a, answer=answer, **k: answer)


class _NoUtilities:
    """Of Triton's driver: they would be compiled, and linked with CUDA's."""


def _triton(module):
    module.CudaDriver.is_active = staticmethod(lambda: True)
    module.CudaUtils = _NoUtilities


def _cuda(module):
    module._cuda_device_count_stateless = lambda *_: 2


_CHANGES = {"vllm.third_party.pynvml": _nvml, "triton.backends.nvidia.driver": _triton,
            "vllm.platforms.cuda": _cuda}


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in _CHANGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def executed(module):
            execute(module)
            _CHANGES[name](module)

        spec.loader.exec_module = executed
        return spec


sys.meta_path.insert(0, _Finder())

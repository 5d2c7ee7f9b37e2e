# SPDX-License-Identifier: Apache-2.0
"""From tensors to a launch: finds the kernel of a call, fills its arguments, launches it.

What a call needs beside its tensors is looked up by one key, so that a call whose kernel is loaded
fills a struct and launches. Launchers belong to the thread that made them.
"""
from __future__ import annotations

import json
import os
import struct
import sys
import threading
from ctypes import byref, c_int32, c_int64, sizeof
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ._abi import PARAM_TYPES, LaunchArgs, Param, new
from ._device import architecture
from ._errors import UnsupportedError
from ._tensors import SPEC_DTYPES, dtype_name
from .service import SERVICES, Kernel, Service, Spec

_lock = threading.Lock()
_default: List[Service] = []  # at most one
_architectures: Dict[Tuple[int, int], str] = {}


# The members of attnjit_launch_args from `q` to `scale`, written at once: a tenth of the time that
# one assignment for each of them takes.
_HEAD = struct.Struct("=13Q6i12qf")
_HEAD_OFFSET = LaunchArgs.q.offset
assert _HEAD_OFFSET + _HEAD.size == LaunchArgs.cap.offset


class _Local(threading.local):
    def __init__(self) -> None:
        self.launchers: Dict[Tuple, "Launcher"] = {}


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
            _default.append(Service())
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


class Launcher:
    """The launches of one kernel on one stream, from one thread."""

    def __init__(self, service: Service, spec: Spec, kernel: Kernel, declared: Sequence[Dict],
                 has_workspace: bool, stream: int) -> None:
        self._library = service._library
        self._kernel, self._spec, self._state = kernel, spec, service.launch_state()
        self._declared, self._has_workspace = declared, has_workspace
        self.args = args = new(LaunchArgs, stream=stream)
        self._params = (Param * max(1, len(declared)))()
        self._names = [one["name"].encode() for one in declared]
        for param, one, name in zip(self._params, declared, self._names):
            param.struct_size, param.name = sizeof(Param), name
            param.type = PARAM_TYPES[one["type"]]
        args.params, args.num_params = self._params, len(declared)
        self._reference, self._state_pointer = byref(args), self._state.pointer

    def launch(self, tensors: Tensors, params: Sequence[Any], numbers: Sequence[int], q_len: int,
               kv_len: int, scale: float) -> None:
        q, k, v, out, lse, sink, page_table, kv_lens, q_offsets, kv_offsets = tensors
        rows = q.shape[0]
        ragged = q_offsets is not None
        paged = page_table is not None
        _HEAD.pack_into(
            self.args, _HEAD_OFFSET, q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(),
            0 if lse is None else lse.data_ptr(), 0 if sink is None else sink.data_ptr(),
            page_table.data_ptr() if paged else 0, 0 if kv_lens is None else kv_lens.data_ptr(),
            q_offsets.data_ptr() if ragged else 0, 0, 0, 0, 0,
            q_offsets.shape[0] - 1 if ragged else rows, q_len, kv_len, rows if ragged else 0,
            k.shape[0] if paged else 0, page_table.shape[1] if paged else 0,
            *_strides(q), *_strides(k), *_strides(v), *_strides(out), scale)
        if kv_offsets is not None:
            self.args.kv_offsets, self.args.total_kv = kv_offsets.data_ptr(), k.shape[0]
        if self._declared:
            self._set_params(params, numbers)
        workspace = self._workspace(q) if self._has_workspace else None
        error = self._library.launch(self._kernel.pointer, self._reference, self._state_pointer)
        if error:
            self._library.check(error)
        del workspace  # NOTE: only now: the stream orders its next use after this launch

    def _set_params(self, params: Sequence[Any], numbers: Sequence[int]) -> None:
        arrays, scalars = iter(params), iter(numbers)
        for param, one in zip(self._params, self._declared):
            if one["type"] == "i32":
                param.i32 = next(scalars)
                continue
            tensor = next(arrays)
            param.pointer = tensor.data_ptr()
            for axis, extent in enumerate(tensor.shape):
                param.extent[axis] = extent

    def _workspace(self, q: Any) -> Any:
        """Device memory for partial results. A graph that captures the launch keeps it."""
        needed, zeroed = c_int64(), c_int32()
        self._library.check(self._library.workspace(self._kernel.pointer, self._reference,
                                                    byref(needed), byref(zeroed)))
        if not needed.value:
            return None
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(q, torch.Tensor):
            raise UnsupportedError(f"the launch needs {needed.value} bytes beside its tensors, "
                                   "which only torch is asked for", code="unsupported",
                                   field="workspace",
                                   hint="give num_partitions=1, or use attnjit.Service")
        make = torch.zeros if zeroed.value else torch.empty
        memory = make(needed.value, dtype=torch.uint8, device=q.device)
        self.args.workspace, self.args.workspace_bytes = memory.data_ptr(), needed.value
        return memory


def _strides(tensor: Any) -> Tuple[int, int, int]:
    """From entry to entry of the batch, from row to row, and from head to head."""
    *strides, one = tensor.stride()
    if one != 1 and tensor.shape[-1] != 1:
        raise ValueError("the last dimension of q, k, v and out must be contiguous")
    return tuple(strides) if len(strides) == 3 else (0, *strides)


def fields_text(mask: str, score_mod: str, more: str = "") -> str:
    """The part of a spec that its tensors do not say, as the members of a JSON object."""
    return f'"mask":{mask},"score_mod":{score_mod}{more}'


def spec_of(tensors: Tensors, fields: str, arch: str) -> Dict[str, Any]:
    """The spec of a call."""
    q, k, v = tensors.q, tensors.k, tensors.v
    name = dtype_name(q.dtype)
    if name not in SPEC_DTYPES or dtype_name(k.dtype) != name or dtype_name(v.dtype) != name:
        raise TypeError(f"q, k and v are of {name}, {dtype_name(k.dtype)} and "
                        f"{dtype_name(v.dtype)}; allowed: one of {', '.join(SPEC_DTYPES)} for all")
    spec: Dict[str, Any] = {
        "arch": arch, "num_q_heads": q.shape[-2], "group": q.shape[-2] // k.shape[-2],
        "qk_depth": q.shape[-1], "ov_depth": v.shape[-1], "qkv_dtype": SPEC_DTYPES[name],
        "output_dtype": SPEC_DTYPES.get(dtype_name(tensors.out.dtype), "")}
    if q.shape[-2] % k.shape[-2] or k.shape[-2] != v.shape[-2] or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)} do not "
                         "fit: their heads, or the depths of q and k")
    if tensors.page_table is not None:
        spec["page_size"] = k.shape[1]
    for field, given in (("ragged", tensors.q_offsets), ("ragged_kv", tensors.kv_offsets),
                         ("sink", tensors.sink), ("return_lse", tensors.lse)):
        if given is not None:
            spec[field] = True
    spec.update(json.loads("{" + fields + "}"))
    return spec


def launcher(tensors: Tensors, fields: str, number: int, stream: int,
             wait: bool = True) -> Optional[Launcher]:
    """The launcher of a call. With `wait` False: None while its kernel is being compiled."""
    q, k, v, out, lse, sink, page_table, _, q_offsets, kv_offsets = tensors
    # NOTE: all that spec_of looks at: what it would refuse must not find another call's launcher.
    key = (fields, number, stream, q.device.index, q.dtype, k.dtype, v.dtype, out.dtype, q.shape[-2:],
           k.shape[-2:], v.shape[-2:], 0 if page_table is None else k.shape[1], lse is None,
           sink is None, q_offsets is None, kv_offsets is None)
    found = _local.launchers.get(key)
    return found if found is not None else _make(key, tensors, fields, number, stream, wait)


def _make(key: Tuple, tensors: Tensors, fields: str, number: int, stream: int,
          wait: bool) -> Optional[Launcher]:
    index = gpu_of(tensors.q)
    service = default_service() if number == 0 else SERVICES[number]
    if (number, index) not in _architectures:
        _architectures[number, index] = architecture(index, service.driver_path)
    fields_of_spec = spec_of(tensors, fields, _architectures[number, index])
    spec = service.prepare(fields_of_spec)
    kernel = service.get(spec, stream=stream) if wait else service.try_get(spec)
    if kernel is None:
        return None
    has_workspace = (fields_of_spec.get("num_partitions", 1) != 1
                     or fields_of_spec.get("partition_keys", 0) != 0)
    made = Launcher(service, spec, kernel, declared_params(fields_of_spec), has_workspace, stream)
    _local.launchers[key] = made
    return made


def gpu_of(tensor: Any) -> int:
    """The ordinal of the GPU that a tensor lies on."""
    device = tensor.device
    if device.type != "cuda":
        raise TypeError(f"q lies on {device.type}; attnjit's kernels run on NVIDIA GPUs")
    return device.index or 0


def declared_params(spec: Dict[str, Any]) -> List[Dict]:
    """The parameters of a spec's custom code, each once, in the order in which it names them."""
    found: Dict[str, Dict] = {}

    def collect(node: Any) -> None:
        if isinstance(node, dict):
            for param in node.get("params", ()):
                found.setdefault(param["name"], param)
            for part in node.get("of", ()):
                collect(part)

    collect(spec.get("mask"))
    collect(spec.get("score_mod"))
    return list(found.values())


def prepare(tensors: Tensors, fields: str, number: int, stream: int) -> bool:
    """Whether the call's kernel is loaded; where it is not, its compile is queued."""
    return launcher(tensors, fields, number, stream, wait=False) is not None


def launch(tensors: Tensors, params: Sequence[Any], numbers: Sequence[int], fields: str,
           number: int, stream: int, q_len: int, kv_len: int, scale: float) -> None:
    """Enqueues a call on the stream."""
    found = launcher(tensors, fields, number, stream)
    assert found is not None  # it was waited for
    found.launch(tensors, params, numbers, q_len, kv_len, scale)

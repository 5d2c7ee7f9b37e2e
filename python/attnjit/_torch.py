# SPDX-License-Identifier: Apache-2.0
"""The operator attnjit::launch of torch: what attention() calls, eagerly and in compiled graphs.

It writes its results into tensors that it is given, so that its shape function has nothing to say,
and CUDA graphs capture it as any launch: nothing is loaded or compiled once the kernel is there.
"""
from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple

import torch

from . import _launch
from ._errors import UnsupportedError
from ._launch import Tensors

# NOTE: what most calls leave out comes last: torch hands neither side what equals its default, and
# each argument costs a third of a microsecond.
_SCHEMA = ("launch(Tensor q, Tensor k, Tensor v, Tensor(a!) out, str fields, SymInt q_len, "
           "SymInt kv_len, float scale=0., Tensor(b!)? lse=None, Tensor? sink=None, "
           "Tensor? page_table=None, Tensor? kv_lens=None, Tensor? q_offsets=None, "
           "Tensor? kv_offsets=None, Tensor? q_scale=None, Tensor? k_scale=None, "
           "Tensor? v_scale=None, Tensor? output_scale=None, Tensor? mask=None, "
           "Tensor? slopes=None, Tensor[]? blocks=None, Tensor[]? params=None, "
           "SymInt[] numbers=[], int service=0, int? stream=None, bool fallback=False) -> ()")
_library = torch.library.Library("attnjit", "DEF")  # NOTE: the operator lives as long as this
_library.define(_SCHEMA)


def stream(q: torch.Tensor, given: Optional[int]) -> int:
    """The stream of a call: torch's current one unless it is given."""
    if not q.is_cuda:  # NOTE: before CUDA is asked for anything: this torch may have none
        raise _launch.not_on_gpu(q)
    if given is not None:
        return given
    return int(torch._C._cuda_getCurrentRawStream(q.device.index or 0))


def _launch_tensors(q: Any, k: Any, v: Any, out: Any, fields: str, q_len: int, kv_len: int,
                    scale: float = 0.0, lse: Any = None, sink: Any = None, page_table: Any = None,
                    kv_lens: Any = None, q_offsets: Any = None, kv_offsets: Any = None,
                    q_scale: Any = None, k_scale: Any = None, v_scale: Any = None,
                    output_scale: Any = None, mask: Any = None, slopes: Any = None,
                    blocks: Optional[Sequence[Any]] = None,
                    params: Optional[Sequence[Any]] = None, numbers: Sequence[int] = (),
                    service: int = 0, given: Optional[int] = None,
                    fallback: bool = False) -> None:
    _launch.launch((q, k, v, out, lse, sink, page_table, kv_lens, q_offsets, kv_offsets, q_scale,
                    k_scale, v_scale, output_scale, mask, slopes, blocks),
                   params or (), numbers, fields, service, stream(q, given), q_len, kv_len, scale,
                   fallback=fallback)


def _launch_shape(*_: Any) -> None:
    """Nothing is returned: out and lse have their shapes before."""


_library.impl("launch", _launch_tensors, "CompositeExplicitAutograd")
torch.library.register_fake("attnjit::launch", _launch_shape, lib=_library)
operator = torch.ops.attnjit.launch.default


def launch(tensors: Sequence[Any], params: Sequence[Any], numbers: Sequence[int], fields: str,
           service: int, given: Optional[int], q_len: int, kv_len: int, scale: float,
           layout: str, fallback: bool) -> None:
    """Calls the operator, or at once what it does where nobody watches the calls of operators."""
    q = tensors[0]
    if (torch.compiler.is_compiling() or type(q) is not torch.Tensor
            or torch._C._len_torch_dispatch_stack()):
        q, k, v, out, lse, *others = Tensors(*tensors).rows_first(layout)
        operator(q, k, v, out, fields, q_len, kv_len, scale, lse, *others, params or None, numbers,
                 service, given, fallback)
    else:
        _launch.launch(tensors, params, numbers, fields, service, stream(q, given), q_len, kv_len,
                       scale, layout, fallback)


def empty_out(q: torch.Tensor, v: torch.Tensor, layout: str, scaled: bool) -> torch.Tensor:
    """A tensor for the result: rows before heads in memory, in any layout; bf16 for e4m3.

    `scaled`: the result is e4m3, with an output_scale.
    """
    shape, depth = q.shape, v.shape[-1]
    dtype = (torch.float8_e4m3fn if scaled
             else torch.bfloat16 if q.dtype is torch.float8_e4m3fn else q.dtype)
    # NOTE: empty_like takes half of the time of new_empty and new_empty_strided.
    like_q = depth == shape[-1] and dtype is q.dtype
    if layout != "bhsd":
        if like_q:
            return torch.empty_like(q, memory_format=torch.contiguous_format)
        return q.new_empty((*shape[:-1], depth), dtype=dtype)
    batch, heads, rows, _ = shape
    strides = rows * heads * depth, depth, heads * depth, 1
    if like_q and q.stride() == strides:
        return torch.empty_like(q)  # which keeps the strides
    return q.new_empty_strided((batch, heads, rows, depth), strides, dtype=dtype)


def empty_f32(q: torch.Tensor, shape: Tuple[int, ...]) -> torch.Tensor:
    return q.new_empty(shape, dtype=torch.float32)


def refuse_gradients(*tensors: Any) -> None:
    """attnjit has no backward pass, and a result without a gradient must not pass for one."""
    if not torch.is_grad_enabled():
        return
    for tensor in tensors:
        if tensor is not None and getattr(tensor, "requires_grad", False):
            raise UnsupportedError("attnjit computes no gradients", code="unsupported",
                                   field="requires_grad",
                                   hint="call it under torch.no_grad(), or detach what requires one "
                                        "of q, k, v, the sinks, the mask and what the functions name")

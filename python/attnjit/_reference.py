# SPDX-License-Identifier: Apache-2.0
"""reference(): what attention() and paged_attention() mean, in float64 on the CPU."""
from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Literal, Optional, Tuple, TypeVar, Union, overload

from . import _host
from ._abi import positive
from ._errors import refused, wrong_type
from ._launch import Tensors
from ._tensors import SPEC_DTYPES, dtype_name
from ._types import Layout
from .masks import as_mask, as_score_mod, with_bias, with_blocks

T = TypeVar("T")

# Tensors of a call by their names, beside q, k and v.
_TENSORS = ("sink", "page_table", "kv_lens", "q_offsets", "kv_offsets", "q_scale", "k_scale",
            "v_scale", "output_scale")


@overload
def reference(q: T, k: Any, v: Any, *, mask: Any = ..., score_mod: Any = ...,
              scale: Optional[float] = ..., sink: Any = ..., lse: Literal[False] = ...,
              q_scale: Any = ..., k_scale: Any = ..., v_scale: Any = ..., output_scale: Any = ...,
              bias: Any = ..., block_mask: Any = ..., q_offsets: Any = ..., kv_offsets: Any = ...,
              kv_lens: Any = ..., page_table: Any = ..., layout: Layout = ...) -> T: ...
@overload
def reference(q: T, k: Any, v: Any, *, lse: Literal[True], mask: Any = ..., score_mod: Any = ...,
              scale: Optional[float] = ..., sink: Any = ..., q_scale: Any = ...,
              k_scale: Any = ..., v_scale: Any = ..., output_scale: Any = ..., bias: Any = ...,
              block_mask: Any = ..., q_offsets: Any = ..., kv_offsets: Any = ...,
              kv_lens: Any = ..., page_table: Any = ..., layout: Layout = ...) -> Tuple[T, T]: ...
def reference(q: Any, k: Any, v: Any, *, mask: Any = None, score_mod: Any = None,
              scale: Optional[float] = None, sink: Any = None, lse: bool = False,
              q_scale: Any = None, k_scale: Any = None, v_scale: Any = None,
              output_scale: Any = None, bias: Any = None, block_mask: Any = None,
              q_offsets: Any = None, kv_offsets: Any = None, kv_lens: Any = None,
              page_table: Any = None, layout: Layout = "bshd") -> Any:
    """softmax(score_mod(scale * q k^T) where mask) v in float64 on the CPU. No GPU is needed.

    It is what `attnjit verify` compares kernels with: the arguments are those of attention(), and
    with `page_table` those of paged_attention(). Bounds on lengths are not needed. For absorbed MLA
    give a cache [pages, page_size, 1, latent + rope] as k, and its first `latent` elements as v.

    Args:
        q, k, v: as attention() or paged_attention() takes them, but of numpy or of torch on any
            device, with any strides, and also of float32 and float64. They are not rounded.
        scale, sink, q_scale, k_scale, v_scale, output_scale: as attention() takes them. They are
            rounded to float32, which is what a launch is given.
        page_table: i32 [batch, max_pages]: k and v are a cache [pages, page_size, kv_heads, depth].
        mask, score_mod, lse, bias, block_mask, q_offsets, kv_offsets, kv_lens, layout: as
            attention() takes them. Trusted code has no reference.

    Returns:
        out in float64 with the dimensions of attention()'s, of numpy, or of torch where q is, on
        q's device; with lse a pair of it and the logarithm of the sum of exponentials. A row that
        sees no key is 0, and its lse is -inf.

    Raises:
        InvalidError: tensors do not fit one another, or an index lies outside.
        UnsupportedError: the mask or the score modification is trusted code. Lists of keys
            (topk_indices) and the format dsv32 of a cache are not taken.
    """
    if layout not in ("bshd", "bhsd"):
        raise refused(f'layout is {layout!r}; allowed: "bshd", "bhsd"', "layout")
    if page_table is not None and layout != "bshd":
        raise refused("layout is 'bhsd' beside page_table; a cache has one layout", "layout")
    if block_mask is not None:
        mask = with_blocks(block_mask, _packed(mask), _packed(bias))
    elif bias is not None:
        mask = with_bias(_packed(mask), _packed(bias))
    shown = as_mask(_packed(mask))
    modified = as_score_mod(score_mod).renamed(shown.params)
    given = dict(zip(_TENSORS, (sink, page_table, kv_lens, q_offsets, kv_offsets, q_scale, k_scale,
                                v_scale, output_scale)))
    call: Dict[str, Any] = {name: _host.on_host(tensor, name) for name, tensor in
                            {"q": q, "k": k, "v": v, **given}.items() if tensor is not None}
    order: str = layout if q_offsets is None else "bshd"
    if page_table is not None and q_offsets is None and len(call["q"].shape) == 3:
        order = "bhd"
    _rows_first(call, order)
    spec = _spec_of(call)
    spec.update(mask=shown.spec, score_mod=modified.spec, return_lse=True)
    with _host.Inputs(shown, modified) as inputs:
        inputs.add_mask(shown)
        if modified.tensor is not None:
            inputs.add("slopes", modified.tensor)
        for name, tensor in call.items():
            inputs.add(name, tensor)
        results = os.path.join(inputs.path, "results")
        words = ["reference", "--spec", "-", "--inputs", inputs.path, "-o", results, *inputs.flags]
        if scale is not None:
            words += ["--scale", repr(positive("scale", scale))]
        answer = _host.run_command(words, json.dumps(spec))
        out, sums = (_host.read_doubles(os.path.join(results, f"{name}.npy"))
                     for name in ("o", "lse"))
    result = _array(out, answer["o_shape"], q)
    if order == "bhsd":
        result = result.transpose(1, 2) if _host.is_torch(result) else result.swapaxes(1, 2)
    if order == "bhd":
        result = result[:, 0]
    return (result, _array(sums, answer["lse_shape"], q)) if lse else result


def _packed(mask: Any) -> Any:
    """A mask that is an array of numpy, in memory of its own: DLPack has no expanded one."""
    if type(mask).__module__ == "numpy" and hasattr(mask, "dtype"):
        import numpy
        kind = numpy.uint8 if mask.dtype == numpy.bool_ else (
            numpy.float32 if mask.dtype == numpy.float64 else mask.dtype)
        return numpy.array(mask, dtype=kind, order="C")
    return mask


def _rows_first(call: Dict[str, Any], order: str) -> None:
    """Brings what has heads before rows into the order of a launch."""
    names: List[str] = []
    if order == "bhsd":
        names = ["q", "k", "v", *(name for name in ("q_scale", "k_scale", "v_scale")
                                  if name in call and len(call[name].shape) == 3)]
    for name in names:
        one = call[name]
        if len(one.shape) < 3:
            raise refused(f"{name} {tuple(one.shape)} has {len(one.shape)} dimensions; this call "
                          "needs 4", name)
        call[name] = (one.transpose(1, 2) if _host.is_torch(one) else one.swapaxes(1, 2))
    if order == "bhd":
        for name in ("q", "q_scale"):
            of_row = name == "q" or len(call["k_scale"].shape if "k_scale" in call else ()) == 3
            if name in call and of_row:
                call[name] = call[name][:, None]


def _spec_of(call: Dict[str, Any]) -> Dict[str, Any]:
    """The spec of a call, without its mask and score modification."""
    q, k, v = call["q"], call["k"], call["v"]
    for name in ("q", "k", "v"):
        dtype = dtype_name(call[name].dtype)
        if dtype not in (*SPEC_DTYPES, "float64"):
            raise wrong_type(f"{name} is of {dtype}; allowed: {', '.join(SPEC_DTYPES)}, float64",
                             name)
    ragged, ragged_kv, paged = ("q_offsets" in call, "kv_offsets" in call, "page_table" in call)
    for name, tensor, wanted in (("q", q, 3 if ragged else 4), ("k", k, 3 if ragged_kv else 4),
                                 ("v", v, 3 if ragged_kv else 4)):
        if len(tensor.shape) != wanted:
            raise refused(f"{name} {tuple(tensor.shape)} has {len(tensor.shape)} dimensions; this "
                          f"call needs {wanted}", name)
    heads, kv_heads = int(q.shape[-2]), int(k.shape[-2])
    if kv_heads == 0 or heads % kv_heads:
        raise refused(f"q has {heads} heads and k {kv_heads}, which do not divide them", "k")
    scales = Tensors(q, k, v, None, q_offsets=call.get("q_offsets"), q_scale=call.get("q_scale"),
                     k_scale=call.get("k_scale"), v_scale=call.get("v_scale")).scales()
    spec: Dict[str, Any] = {
        "num_q_heads": heads, "group": heads // kv_heads, "qk_depth": int(q.shape[-1]),
        "ov_depth": int(v.shape[-1]), "output_dtype": "e4m3" if "output_scale" in call else "bf16"}
    if scales is not None:
        spec["scales"] = scales
        spec["qkv_dtype"] = "e4m3" if "q_scale" in call else "bf16"
        spec["kv_dtype"] = "e4m3"
    elif "output_scale" in call:
        spec["qkv_dtype"] = "e4m3"
    for name in ("q_scale", "k_scale", "v_scale", "output_scale"):
        if name in call and not call[name].shape:
            call[name] = call[name].reshape(1)
    if paged:
        spec["page_size"] = int(k.shape[1])
    for field, given in (("ragged", ragged), ("ragged_kv", ragged_kv), ("sink", "sink" in call)):
        if given:
            spec[field] = True
    return spec


def _array(data: bytearray, shape: Union[List[int], Tuple[int, ...]], like: Any) -> Any:
    """Doubles as an array of numpy, or of torch on the device of `like` where that is torch's."""
    if _host.is_torch(like):
        import torch
        if not data:  # of which torch makes no tensor
            return torch.empty(shape, dtype=torch.float64, device=like.device)
        return torch.frombuffer(data, dtype=torch.float64).reshape(shape).to(like.device)
    import numpy
    return numpy.ndarray(shape, dtype=numpy.float64, buffer=data or None)

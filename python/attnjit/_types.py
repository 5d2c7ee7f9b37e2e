# SPDX-License-Identifier: Apache-2.0
"""The names and objects of attnjit's arguments and results, for type checkers."""
from __future__ import annotations

from typing import Any, List, Literal, Optional, Sequence, TypedDict, Union

Arch = Literal["native", "sm_90a", "sm_100a", "sm_103a"]
Dtype = Literal["bf16", "fp16", "e4m3"]
Layout = Literal["bshd", "bhsd"]
Backend = Literal["auto", "gpu", "emulator"]
EmulatorModel = Literal["silicon", "isa"]
Config = Literal["auto", "fa4", "mla", "depth512", "sm90"]
Input = Literal["normal", "large", "rising", "falling", "spike", "raised", "small", "zero", "far",
                "stray"]
#: One length for all sequences, or one for each.
Lengths = Union[int, Sequence[int]]


class SpecFields(TypedDict, total=False):
    """The fields of a spec (docs/spec.md). Only num_q_heads and qk_depth are required."""

    arch: Arch
    num_q_heads: int
    group: int
    qk_depth: int
    ov_depth: int
    qkv_dtype: Dtype
    kv_dtype: Dtype
    output_dtype: Literal["bf16", "fp16", "e4m3", "f32"]
    rope_dtype: Dtype
    rope_gmem_dtype: Dtype
    scales: Literal["none", "tensor", "head", "token"]
    scale_dtype: Literal["f32", "bf16", "fp16"]
    mla: Literal["none", "prefill", "decode"]
    cache_format: Literal["plain", "dsv32"]
    v_layout: Literal["row", "transposed"]
    page_size: int
    ragged: bool
    ragged_kv: bool
    kv_lens_exclude_new: bool
    sink: bool
    return_lse: bool
    lse_includes_sink: bool
    merge: bool
    accumulate: bool
    num_partitions: int
    partition_keys: int
    topk: int
    mask: Any  # a name, an object, or what attnjit.mask takes and returns
    score_mod: Any
    max_q_len: int
    max_seq_len: int
    interpreted: bool
    swizzle_bytes: Literal[32, 64, 128]
    num_qo: Literal[1, 2]
    pair_cta: bool
    debug_waits: bool
    mask_map: bool


class Numbers(TypedDict, total=False):
    """What the masks and the score modification of a spec may leave to the launch."""

    window: int
    chunk: int
    cap: float


class Verification(TypedDict):
    """What verify() found (docs/command-line.md)."""

    backend: str
    device: str
    passed: bool
    reason: Optional[str]
    max_abs_err: Optional[float]
    rel_err: Optional[float]
    max_row_err: Optional[float]
    lse_max_abs_err: Optional[float]
    tolerance: float
    findings: List[str]
    key: str
    arch: str
    outcome: str
    batch: int
    q_len: List[int]
    kv_len: List[int]
    seed: int
    input: str
    kernel_ms: Optional[float]
    reference_ms: float
    model: Optional[str]
    waivers: List[str]


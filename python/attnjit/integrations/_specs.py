# SPDX-License-Identifier: Apache-2.0
"""What the integrations share: how a layer's spec is said, and which specs kernels serve."""
from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Dict, Optional

from .. import AttnjitError, Service

SMALL_WINDOW = 256  # of manifests, too (src/spec/kinds.h): tests/python/windows_test.py


def sliding_window(window: int) -> Dict[str, Any]:
    """The mask of a layer whose rows see so many keys, as manifests have it: small windows are
    compiled in, so that a prewarmed kernel serves the layer."""
    mask: Dict[str, Any] = {"kind": "sliding_window", "window": int(window)}
    return {**mask, "constant": True} if window <= SMALL_WINDOW else mask


def why_not(**fields: Any) -> Optional[str]:
    """Why no kernel serves a spec; None: one does."""
    return _why_not(json.dumps(fields, sort_keys=True))


@lru_cache(maxsize=1024)
def _why_not(spec: str) -> Optional[str]:  # the layers of a model ask the same
    with Service(no_disk_cache=1) as service:
        try:
            service.prepare(spec).close()
        except AttnjitError as error:
            return error.message
    return None


def eight_bit_cache(dtype: str, **fields: Any) -> Dict[str, Any]:
    """The spec of a model of `dtype`, "bf16" or "fp16", over a cache of e4m3.

    On Hopper Q keeps its type where a kernel takes that. On Blackwell it is e4m3: products of
    16 bits take 1.6 times the cycles of a decode there, by the clock (docs/sm100.md).
    """
    shared = {**fields, "scales": "tensor"}
    wide = {**shared, "qkv_dtype": dtype, "kv_dtype": "e4m3"}
    if fields["arch"] == "sm_90a" and why_not(**wide) is None:
        return wide
    return {"output_dtype": dtype, **shared, "qkv_dtype": "e4m3"}

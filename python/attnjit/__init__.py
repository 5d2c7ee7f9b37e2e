# SPDX-License-Identifier: Apache-2.0
"""attnjit: attention kernels on demand for NVIDIA Hopper and Blackwell GPUs.

    out = attnjit.attention(q, k, v, mask="causal")

Importing it needs neither torch nor numpy, and opens no library.
"""
from ._attention import attention, nvtx_ranges, paged_attention
from ._errors import (AttnjitError, CaptureError, CompileError, DeadlineError, InvalidError,
                      InvalidTypeError, MissingError, TraceError, UnsupportedError)
from ._host import Picture, ScorePicture, plan, verify
from ._launch import fallback_served
from ._mla import mla_attention
from ._reference import reference
from ._types import Numbers, SpecFields, Verification
from ._version import __version__
from .masks import Mask, Scalar, ScoreMod, alibi, bit_mask, block_mask, mask, score_mod
from .service import Kernel, LaunchState, Service, Spec

__all__ = ["AttnjitError", "CaptureError", "CompileError", "DeadlineError", "InvalidError",
           "InvalidTypeError", "Kernel", "LaunchState", "Mask", "MissingError", "Numbers", "Picture",
           "Scalar", "ScoreMod", "ScorePicture", "Service", "Spec", "SpecFields", "TraceError",
           "UnsupportedError", "Verification", "__version__", "alibi", "attention", "bit_mask", "block_mask",
           "fallback_served", "mask", "mla_attention", "nvtx_ranges", "paged_attention", "plan",
           "reference", "score_mod", "verify"]

# SPDX-License-Identifier: Apache-2.0
"""attnjit: attention kernels on demand for NVIDIA Hopper and Blackwell GPUs.

    out = attnjit.attention(q, k, v, mask="causal")

Importing it needs neither torch nor numpy, and opens no library.
"""
from ._errors import (AttnjitError, CaptureError, CompileError, DeadlineError, InvalidError,
                      MissingError, TraceError, UnsupportedError)
from ._version import __version__
from .service import Kernel, LaunchState, Service, Spec

__all__ = ["AttnjitError", "CaptureError", "CompileError", "DeadlineError", "InvalidError",
           "Kernel", "LaunchState", "MissingError", "Service", "Spec", "TraceError",
           "UnsupportedError", "__version__"]

# SPDX-License-Identifier: Apache-2.0
"""NVRTC from its wheel, wherever Python finds that wheel."""
from __future__ import annotations

import importlib.util
import os
from typing import Optional

# Folders of the wheels of CUDA 13 and of CUDA 12, with their library.
_PLACES = (("cu13", "libnvrtc.so.13"), ("cuda_nvrtc", "libnvrtc.so.12"))


def _in_toolkit(home: str) -> bool:
    return any(os.path.exists(os.path.join(home, folder, name))
               for folder in ("lib64", "lib")
               for name in ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"))


def nvrtc_path() -> Optional[str]:
    """The NVRTC wheel's library, or None: the native search (CUDA_HOME, the toolkit) decides then.

    NOTE: the native search also looks beside this package, but not in the other site-packages of
    an environment that sees the system's.
    """
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if os.environ.get("ATTNJIT_NVRTC") or (home and _in_toolkit(home)):
        return None
    spec = importlib.util.find_spec("nvidia")
    for wheel, name in _PLACES:
        for folder in (spec and spec.submodule_search_locations) or ():
            path = os.path.join(folder, wheel, "lib", name)
            if os.path.exists(path):
                return path
    return None

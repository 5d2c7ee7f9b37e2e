# SPDX-License-Identifier: Apache-2.0
"""Names between attnjit and the servers that it serves in, for what must not import them."""
from __future__ import annotations

from typing import Dict, NamedTuple, Tuple


class Server(NamedTuple):
    """A package that runs attnjit as a plug-in."""

    groups: Tuple[str, ...]  #: of entry points, each of which is to name attnjit
    tested: Tuple[str, ...]  #: versions after whose interfaces the backend was made
    only: str  #: of the environment: which plug-ins are loaded


SERVERS: Dict[str, Server] = {
    "vllm": Server(("vllm.general_plugins", "vllm.platform_plugins"), ("0.33",), "VLLM_PLUGINS"),
    "sglang": Server(("sglang.srt.plugins",), ("0.5.17", "0.5.23"), "SGLANG_PLUGINS")}

# SPDX-License-Identifier: Apache-2.0
"""The Service of a process of SGLang: what it counts is shown by the server's /metrics, and what it
serves is said once, at start."""
from __future__ import annotations

import json
import logging
import os
from collections import Counter
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set

from .. import Service, __version__
from . import _recorded
from ._environment import cache_place, forbids_compiles, launches_text
from ._layers import Layer, Server
from ._metrics import Reporter, reporter_of

logger = logging.getLogger("sglang.attnjit")

_services: List[Service] = []  # of this process: at most one
_reporters: List[Optional[Reporter]] = []
launches: "Counter[str]" = Counter()  #: by the kernel's name; those of a graph count once
_asked: Set[str] = set()
_said: List[int] = []  # the process that has said what it serves


def service() -> Service:
    """The Service of all layers."""
    if not _services or _services[0].forked:
        _asked.clear()
        _services[:] = [_recorded.made(forbid_compile=int(forbids_compiles()))]
        _reporters[:] = [reporter_of(counters, _labels)]
    return _services[0]


def ask(specs: Iterable[Dict[str, Any]]) -> None:
    """Has kernels compiled in the background that no cache has; where that is forbidden, raises."""
    for spec in specs:
        text = json.dumps(spec, sort_keys=True)
        if text not in _asked:
            _recorded.ask(service(), text)
            _asked.add(text)


def counters() -> str:
    """The counters of this process, in Prometheus's text format."""
    return _services[0].prometheus() + launches_text(launches)


def _labels() -> Dict[str, str]:
    import torch

    ready = torch.distributed.is_available() and torch.distributed.is_initialized()
    return {"rank": str(torch.distributed.get_rank() if ready else 0)}


def say_start(arch: Optional[str], layers: Mapping[Layer, int], server: Server,
              refused: str) -> None:
    """One line in SGLang's log: which version serves what, from where, and what it does not serve.
    """
    if os.getpid() in _said:
        return
    _said.append(os.getpid())
    logger.info("attnjit %s serves %s on %s, kernels from %s%s; it does not serve %s", __version__,
                "; ".join(f"{count} layers of {_text(kind, server)}"
                          for kind, count in layers.items()),
                arch or "a GPU that it does not know", cache_place(),
                ", and compiles none" if forbids_compiles() else "", refused)


def _text(layer: Layer, server: Server) -> str:
    """A kind of layer in a line of the log."""
    heads = (f"MLA of {layer.q_heads} heads of {layer.qk_depth}/{layer.ov_depth}" if layer.latent
             else f"{layer.q_heads}/{layer.kv_heads} heads of {layer.qk_depth}")
    return heads + "".join(f", {text}" for holds, text in (
        (layer.window, f"windows of {layer.window}"), (layer.sink, "sinks"),
        (layer.chunk, f"chunks of {layer.chunk}"), (layer.softcap, f"a softcap of {layer.softcap}"),
        (layer.both_ways, "encoder"), (layer.cross, "cross attention"),
        (layer.topk, f"lists of {layer.topk} keys"),
        (server.cache != "auto", "a cache of e4m3")) if holds)

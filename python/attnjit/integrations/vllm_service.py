# SPDX-License-Identifier: Apache-2.0
"""The Service of a process of vLLM: what it compiles is reported to vLLM's JIT monitor, what it counts
is shown by the server's /metrics, and what it serves is said once, at start."""
from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any, Dict, Iterable, List, Optional, Set

from vllm.logger import init_logger

from .. import Service, __version__
from . import _recorded
from ._environment import cache_place, forbids_compiles, launches_text
from ._metrics import Reporter, reporter_of

# NOTE: of vLLM's names, by which its configuration of logs knows who may speak.
logger = init_logger("vllm.attnjit")

_services: List[Service] = []  # of this process: at most one
_reporters: List[Optional[Reporter]] = []
_refused: List[RuntimeError] = []  # what vLLM's JIT monitor raised, for the next step to raise
launches: "Counter[str]" = Counter()  #: by the kernel's name; those of a graph count once


def service() -> Service:
    """The Service of all layers."""
    if not _services or _services[0].forked:
        _asked.clear()
        _services[:] = [_recorded.made(on_compile=_tell_monitor, forbid_compile=int(forbids_compiles()))]
        _reporters[:] = [reporter_of(counters, _labels)]
    return _services[0]


_asked: Set[str] = set()


def ask(specs: Iterable[Dict[str, Any]]) -> None:
    """Has kernels compiled in the background that no cache has; of specs that none serves it raises
    why."""
    for spec in specs:
        text = json.dumps(spec, sort_keys=True)
        if text not in _asked:
            _recorded.ask(service(), text)
            _asked.add(text)


def _tell_monitor(event: Dict[str, Any]) -> None:
    from vllm.utils import jit_monitor

    if not jit_monitor.is_active():  # vLLM still warms up
        return
    try:
        jit_monitor._handle_jit_event(
            backend="attnjit", event="kernel compilation", fn_name=event["key"][:12],
            detail=f"{event['arch']}, {event['compile_ms']:.0f} ms")
    except RuntimeError as error:  # NOTE: this thread compiles, and nobody would hear of it
        _refused.append(error)


def raise_refused() -> None:
    """Raises what vLLM's JIT monitor made of a compile."""
    if _refused:
        raise _refused.pop()


def counters() -> str:
    """The counters of this process, in Prometheus's text format."""
    return _services[0].prometheus() + launches_text(launches)


def _labels() -> Dict[str, str]:
    from vllm.distributed import parallel_state

    group = parallel_state._WORLD
    return {"rank": str(0 if group is None else group.rank)}


_said: List[int] = []  # the process that has said what it serves


def say_start(arch: Optional[str], layers: Iterable[Any], refused: str) -> None:
    """One line in vLLM's log: which version serves what, from where, and what it does not serve."""
    if os.getpid() in _said:
        return
    _said.append(os.getpid())
    kinds = Counter(layer.impl.said() for layer in layers
                    if hasattr(getattr(layer, "impl", None), "said"))
    logger.info("attnjit %s serves %s on %s, kernels from %s%s; it does not serve %s", __version__,
                "; ".join(f"{count} layers of {kind}" for kind, count in kinds.items()),
                arch or "a GPU that it does not know", cache_place(),
                ", and compiles none" if forbids_compiles() else "",
                refused)

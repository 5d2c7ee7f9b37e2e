# SPDX-License-Identifier: Apache-2.0
"""attnjit as an attention backend of vLLM: `vllm serve MODEL --attention-backend ATTNJIT`.

The wheel names register() under vllm.general_plugins, which each process of vLLM calls once it
runs, and register_early() under vllm.platform_plugins, which it calls while it is imported.
"""
from __future__ import annotations

from typing import Any, Callable, Tuple

from ._metrics import expose

NAME = "ATTNJIT"


def register() -> None:
    """Adds the backend to vLLM's list, and its counters to /metrics. It may be called several
    times."""
    member()
    expose()


def register_early() -> None:
    """Adds the backend before any configuration names it, and returns that there is no platform.

    NOTE: vLLM makes an AttentionConfig of its arguments before it loads general plug-ins.
    """
    member()


def member() -> Any:
    """The backend in vLLM's enumeration, to which it is added where it is missing."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    if NAME not in AttentionBackendEnum.__members__:
        register_backend(NAME, "attnjit.integrations.vllm_backend.AttnjitSelector")
    found = AttentionBackendEnum[NAME]
    # NOTE: a spawned engine or worker reads its configuration before it has loaded plug-ins.
    found.__reduce_ex__ = _reduce
    return found


def _reduce(_protocol: Any) -> Tuple[Callable[[], Any], Tuple[()]]:
    """How the member is pickled: by what adds it in the process that reads it."""
    return member, ()

# SPDX-License-Identifier: Apache-2.0
"""attnjit as an attention backend of vLLM: `vllm serve MODEL --attention-backend ATTNJIT`.

The wheel names register() under vllm.general_plugins, so that every process of vLLM calls it.
"""
from __future__ import annotations

NAME = "ATTNJIT"


def register() -> None:
    """Adds the backend to vLLM's list. It may be called several times."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    if NAME not in AttentionBackendEnum.__members__:
        register_backend(NAME, "attnjit.integrations.vllm_backend.AttnjitBackend")

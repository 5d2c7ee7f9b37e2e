# SPDX-License-Identifier: Apache-2.0
"""attnjit as an attention backend of SGLang: `--attention-backend attnjit`.

The wheel names register() under sglang.srt.plugins, so that every process of SGLang calls it.
"""
from __future__ import annotations

from typing import Any

NAME = "attnjit"


def register() -> None:
    """Adds the backend to SGLang's lists. It may be called several times."""
    from sglang.srt.arg_groups import choices

    if NAME not in choices.ATTENTION_BACKEND_CHOICES:
        choices.add_attention_backend_choices([NAME])
    from sglang.srt.layers.attention.attention_registry import register_attention_backend

    register_attention_backend(NAME)(create)


def create(runner: Any) -> Any:
    """The backend of a model runner; ValueError says all that it does not serve."""
    from .sglang_backend import AttnjitAttnBackend

    return AttnjitAttnBackend(runner)

# SPDX-License-Identifier: Apache-2.0
"""What the integrations read in a server's environment, and how they write what they counted."""
from __future__ import annotations

import os
from typing import Mapping

FORBID = "ATTNJIT_FORBID_COMPILE"  #: of the environment: a kernel that no cache has is an error


def forbids_compiles() -> bool:
    """Whether the environment forbids to compile."""
    return os.environ.get(FORBID, "0") not in ("", "0")


def cache_place() -> str:
    """Where kernels lie, as cache/README.md has it."""
    if "ATTNJIT_CACHE_DIR" in os.environ:
        return os.environ["ATTNJIT_CACHE_DIR"] or "memory alone"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(home, "attnjit")


def launches_text(launches: Mapping[str, int]) -> str:
    """Launches by the kernel's name, in Prometheus's text format."""
    lines = ["# HELP attnjit_launches_total Launches; those of a graph count once.",
             "# TYPE attnjit_launches_total counter"]
    lines += [f'attnjit_launches_total{{kernel="{name}"}} {count}'
              for name, count in sorted(launches.items())]
    return "\n".join(lines) + "\n"

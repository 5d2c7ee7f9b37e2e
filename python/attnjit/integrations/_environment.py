# SPDX-License-Identifier: Apache-2.0
"""What the integrations read in a server's environment, and how they write what they counted."""
from __future__ import annotations

import os
from typing import Mapping

FORBID = "ATTNJIT_FORBID_COMPILE"  #: of the environment: a kernel that no cache has is an error
METRICS = "ATTNJIT_METRICS_DIR"  #: where processes of a server leave their counters
RECORD = "ATTNJIT_RECORD_KEYS"  #: a file to which each kernel that is asked for is written
#: What src/base/environment.cpp reads; tests/python/doctor_for_test.py compares the two.
LIBRARY = ("ATTNJIT_CACHE_DIR", "ATTNJIT_LEASE", "ATTNJIT_LOG_LEVEL", "ATTNJIT_NVRTC",
           "ATTNJIT_NVRTC_POLICY", "ATTNJIT_REMOTE", "ATTNJIT_SIGN_KEY", "ATTNJIT_TEMPLATES",
           "ATTNJIT_TRUST")
VARIABLES = (*LIBRARY, FORBID, METRICS, RECORD)


def forbids_compiles() -> bool:
    """Whether the environment forbids to compile."""
    return os.environ.get(FORBID, "").strip().lower() not in ("", "0", "false", "no", "off")


def cache_place() -> str:
    """Where kernels lie, as cache/README.md has it."""
    given, home = os.environ.get("ATTNJIT_CACHE_DIR"), os.environ.get("HOME")
    root = os.environ.get("XDG_CACHE_HOME") or (os.path.join(home, ".cache") if home else "")
    own = os.path.join(root, "attnjit") if root else ""
    layers = [one for one in given.split(":") if one] if given else [own] if own else []
    return ":".join(layers) or "memory alone"


def launches_text(launches: Mapping[str, int]) -> str:
    """Launches by the kernel's name, in Prometheus's text format."""
    lines = ["# HELP attnjit_launches_total Launches; those of a graph count once.",
             "# TYPE attnjit_launches_total counter"]
    lines += [f'attnjit_launches_total{{kernel="{name}"}} {count}'
              for name, count in sorted(launches.items())]
    return "\n".join(lines) + "\n"

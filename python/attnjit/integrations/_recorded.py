# SPDX-License-Identifier: Apache-2.0
"""The Service of a server's process, which tests have record the kernels that it is asked for: to the
file that ATTNJIT_RECORD_KEYS names, a line of JSON each, with how long that took."""
from __future__ import annotations

import json
import os
import time
from typing import Any, Optional

from .. import Kernel, Service, Spec
from ._environment import RECORD, forbids_compiles


def made(**options: Any) -> Service:
    """A Service of these options."""
    return (_Recorded if os.environ.get(RECORD) else Service)(**options)


def ask(service: Service, text: str) -> None:
    """Has a kernel compiled in the background that no cache has. Where compiles are forbidden, that
    no cache has it is an error now, and not when the first request needs it."""
    spec = service.prepare(text)
    if forbids_compiles():
        service.compile(spec)
    service.try_get(spec)


class _Recorded(Service):
    def _timed(self, event: str, call: Any, spec: Any, *arguments: Any, **more: Any) -> Any:
        began = time.perf_counter()
        found = call(spec, *arguments, **more)
        prepared = found if event == "prepare" else spec
        line = {"event": event, "key": prepared.key, "process": os.getpid(),
                "ms": round(1e3 * (time.perf_counter() - began), 3)}
        if event == "prepare":
            line["spec"] = dict(prepared.fields)
        with open(os.environ[RECORD], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return found

    def prepare(self, spec: Any) -> Spec:
        return self._timed("prepare", super().prepare, spec)

    def get(self, spec: Spec, *arguments: Any, **more: Any) -> Kernel:
        return self._timed("get", super().get, spec, *arguments, **more)

    def try_get(self, spec: Spec) -> Optional[Kernel]:
        return self._timed("try_get", super().try_get, spec)

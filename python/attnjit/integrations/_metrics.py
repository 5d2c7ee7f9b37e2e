# SPDX-License-Identifier: Apache-2.0
"""attnjit's counters on a server's own /metrics: the process that answers it launches no kernels.

expose() names a folder, which processes that are started later know from their environment. Each
one with a Service writes its counters there (Reporter), and a collector of prometheus_client reads
them. Where the server has several answering processes, prometheus_client's own folder is written.
"""
from __future__ import annotations

import atexit
import importlib.util
import os
import pathlib
import secrets
import shutil
import tempfile
import threading
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from ._environment import METRICS

SECONDS = 2.0  #: between two reports


def expose() -> None:
    """Adds the counters of the processes that this one starts to prometheus_client's registry. It
    may be called several times, and in processes that were started: there it does nothing."""
    if METRICS in os.environ or importlib.util.find_spec("prometheus_client") is None:
        return
    from prometheus_client import REGISTRY

    folder = os.path.join(tempfile.gettempdir(), f"attnjit-metrics-{secrets.token_hex(8)}")
    os.environ[METRICS] = folder
    REGISTRY.register(Collector(folder))
    atexit.register(_remove, folder, os.getpid())


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # NOTE: not a child of fork()
        shutil.rmtree(folder, ignore_errors=True)


class Collector:
    """What the processes of a folder reported, each sample with its rank and process."""

    def __init__(self, folder: str) -> None:
        self._folder = pathlib.Path(folder)

    def describe(self) -> Tuple[()]:
        """NOTE: without it a registry would collect at once."""
        return ()

    def collect(self) -> Iterator[Any]:
        found: Dict[str, Any] = {}
        for path in sorted(self._folder.glob("*.prom")):
            try:
                text = path.read_text(encoding="utf-8")
            except OSError:  # the server ends
                continue
            for family in _families(text):
                merged = found.setdefault(family.name, family)
                if merged is not family:
                    merged.samples += family.samples
        yield from found.values()


def _families(text: str) -> Iterator[Any]:
    from prometheus_client.parser import text_string_to_metric_families

    return text_string_to_metric_families(text)


def labelled(text: str, labels: Dict[str, str]) -> str:
    """Prometheus's text with more labels on each sample."""
    more = ",".join(f'{name}="{value}"' for name, value in labels.items())
    lines = []
    for line in text.splitlines():
        if line and line[0] != "#":
            name, value = line.rsplit(" ", 1)
            if name.endswith("}"):
                line = f"{name[:-1]},{more}}} {value}"
            else:
                line = f"{name}{{{more}}} {value}"
        lines.append(line)
    return "\n".join(lines) + "\n"


class Reporter(threading.Thread):
    """Reports what `read` returns, in Prometheus's text format, for as long as the process lives.

    `labels` gives the labels of its samples at each report: ranks are known late.
    """

    def __init__(self, read: Callable[[], str], labels: Callable[[], Dict[str, str]]) -> None:
        super().__init__(name="attnjit-metrics", daemon=True)
        self._read, self._labels, self._stop = read, labels, threading.Event()
        self._last: Dict[Tuple[str, Tuple], float] = {}

    def run(self) -> None:
        while not self._stop.wait(SECONDS):
            try:
                self.report()
            except Exception:  # NOTE: a full disk must not end a server
                continue

    def stop(self) -> None:
        """Ends it, after a last report."""
        self._stop.set()

    def report(self) -> None:
        labels = {**self._labels(), "process": str(os.getpid())}
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            self._count(labels)
        elif METRICS in os.environ:
            self._write(pathlib.Path(os.environ[METRICS]), labels)

    def _write(self, folder: pathlib.Path, labels: Dict[str, str]) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{os.getpid()}.prom"
        new = path.with_suffix(".new")
        new.write_text(labelled(self._read(), labels), encoding="utf-8")
        new.replace(path)

    def _count(self, labels: Dict[str, str]) -> None:
        """The same through prometheus_client, whose files each answering process reads."""
        for family in _families(self._read()):
            for sample in family.samples:
                names = {**sample.labels, **labels}
                key = (sample.name, tuple(sorted(names.items())))
                if sample.name not in _counters:
                    _counters[sample.name] = _made(family, list(names))
                child = _counters[sample.name].labels(**names)
                if family.type == "counter":
                    child.inc(max(0.0, sample.value - self._last.get(key, 0.0)))
                    self._last[key] = sample.value
                else:
                    child.set(sample.value)


_counters: Dict[str, Any] = {}  # of prometheus_client, which knows each name once


def _made(family: Any, names: Any) -> Any:
    from prometheus_client import Counter, Gauge

    if family.type == "counter":
        return Counter(family.name, family.documentation, names)
    return Gauge(family.name, family.documentation, names, multiprocess_mode="livesum")


def reporter_of(read: Callable[[], str],
                labels: Callable[[], Dict[str, str]]) -> Optional[Reporter]:
    """A Reporter that runs, where somebody reads; else None."""
    if METRICS not in os.environ and "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return None
    made = Reporter(read, labels)
    made.start()
    return made

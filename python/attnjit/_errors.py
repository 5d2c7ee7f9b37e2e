# SPDX-License-Identifier: Apache-2.0
"""The exceptions of attnjit: what the library's typed errors are in Python."""
from __future__ import annotations

from typing import Dict, Sequence, Type


class AttnjitError(RuntimeError):
    """What failed, which field or line, and what to do.

    Attributes:
        code: the kind of error: "invalid", "unsupported", "environment", "compile_failed", ..
        message: what failed.
        field: the spec field, argument or file concerned; "" if there is none.
        hint: what to do about it; may be "".
        line, column: the place in a snippet or a JSON text, from 1 on; 0: none.
        others: further problems of the same request.
    """

    def __init__(self, text: str, *, code: str = "invalid", message: str = "", field: str = "",
                 hint: str = "", line: int = 0, column: int = 0,
                 others: Sequence["AttnjitError"] = ()) -> None:
        whole = text if message else (f"{field}: " if field else "") + text + (
            f"; {hint}" if hint else "")  # as the library writes it
        super().__init__(whole)
        self.code, self.message, self.field, self.hint = code, message or text, field, hint
        self.line, self.column, self.others = line, column, tuple(others)


class InvalidError(AttnjitError, ValueError):
    """The input is wrong."""


class InvalidTypeError(InvalidError, TypeError):
    """An argument has a wrong type, or element type, or lies on a wrong device."""


class UnsupportedError(AttnjitError, NotImplementedError):
    """The input is valid, but no kernel serves it."""


class MissingError(AttnjitError):
    """NVRTC, the driver or a GPU is missing or too old: see `attnjit doctor`."""


class CompileError(AttnjitError):
    """The compiler rejected the kernel."""


class DeadlineError(AttnjitError):
    """The deadline passed; the compile goes on, and serves the next call."""


class CaptureError(AttnjitError):
    """A stream captures, and the call would have to load a kernel: prepare it before."""


class TraceError(AttnjitError, TypeError):
    """A Python function that cannot become an expression; `filename` and `line` say where."""

    def __init__(self, text: str, *, filename: str = "", line: int = 0, source: str = "",
                 hint: str = "") -> None:
        where = f" ({filename}, line {line}: {source})" if line else ""
        super().__init__(text + where + (f"; {hint}" if hint else ""), message=text, hint=hint,
                         line=line)
        self.filename, self.source = filename, source


_CLASSES: Dict[str, Type[AttnjitError]] = {
    "invalid": InvalidError, "unsupported": UnsupportedError, "environment": MissingError,
    "compile_failed": CompileError, "timeout": DeadlineError,
    "capture_in_progress": CaptureError}


def refused(text: str, field: str, hint: str = "", kind: Type[InvalidError] = InvalidError
            ) -> InvalidError:
    """The error of an argument, whose text names it."""
    return kind(text + (f"; {hint}" if hint else ""), message=text, field=field, hint=hint)


def wrong_type(text: str, field: str, hint: str = "") -> InvalidError:
    """The same, of its type or device."""
    return refused(text, field, hint, InvalidTypeError)


def error_class(code: str) -> Type[AttnjitError]:
    """The exception for a code of the library."""
    return _CLASSES.get(code, AttnjitError)

"""Finds the lines of the program that made a call, and the operation of the call, both from the stack."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SHOWN = 4
"""The most lines of a stack that are shown: enough for the caller and, usually, the loop around it."""

_PACKAGE = __name__.partition(".")[0]
_PLUGIN = f"{_PACKAGE}.pytest_plugin"
_CARRIERS = tuple(f"{_PACKAGE}.{name}" for name in ("wire", "trace", "client"))
"""The packages that make calls only for their callers."""
_STORES = "transports."
"""The stores behind our file-level verbs, which also make calls only for their callers."""

_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

_KEY = "operation of hpss"
"""The key of the mark in the local variables of an operation's outermost frame. No variable of a program can have this
name. The mark lives only as long as the frame."""


class _Mark:
    """The identity of one operation."""


_whole: list[_Mark] = []


@contextmanager
def one_operation() -> Iterator[None]:
    """Count all calls in the context as one operation."""
    _whole.append(_Mark())
    try:
        yield
    finally:
        _whole.pop()


class Operations:
    """Detects where one operation ends and the next begins."""

    def __init__(self) -> None:
        self._last: weakref.ref[_Mark] | None = None

    def begins(self) -> bool:
        """Return True if the current call begins a new operation."""
        current = _whole[0] if _whole else _mark_of(_outermost())
        if self._last is not None and self._last() is current:
            return False
        self._last = weakref.ref(current)
        return True


def call_site() -> str:
    """Return the lines of code that made the current call, the innermost first, without lines of libraries."""
    here = os.getcwd() + os.sep
    lines: list[str] = []
    for frame in _stack():
        path = frame.f_code.co_filename
        if _is_ours(frame) or _module(frame).startswith(_STORES):
            skipped = _module(frame).startswith((*_CARRIERS, _STORES))
        else:
            skipped = path.startswith(("<", *_folders())) or any(folder in path for folder in _INSTALLED)
        if not skipped:
            lines.append(f"{path.removeprefix(here)}:{frame.f_lineno} in {frame.f_code.co_name}")
        if len(lines) == SHOWN:
            break
    return " < ".join(lines)


@functools.cache
def _folders() -> tuple[str, ...]:
    """Return the folders of Python's own modules and of the programs of its environment."""
    import sysconfig  # It takes a millisecond, which a command that makes no needless call goes without.

    return (os.path.dirname(os.__file__) + os.sep, sysconfig.get_path("scripts") + os.sep)


def _stack() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _outermost() -> FrameType:
    """Return the frame of the outermost call into this package."""
    found = sys._getframe(1)
    for frame in _stack():
        if _is_ours(frame):
            found = frame
    return found


def _mark_of(frame: FrameType) -> _Mark:
    mark = frame.f_locals.setdefault(_KEY, _Mark())
    assert isinstance(mark, _Mark)
    return mark


def _module(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__", "")
    return name if isinstance(name, str) else ""


def _is_ours(frame: FrameType) -> bool:
    """Return True if a frame runs code of this package or of its plugin for Breezy, whose module is in Breezy's
    package."""
    name = _module(frame)
    return name == "breezy.plugins.hpss" or (name.startswith(f"{_PACKAGE}.") and name != _PLUGIN)

"""Whose call it is: the lines of the program that made it, and the operation it belongs to, both read off the stack."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SHOWN = 4
"""Lines shown of a stack: who asked for it, and whose loop that may be."""

_PACKAGE = __name__.partition(".")[0]
_PLUGIN = f"{_PACKAGE}.pytest_plugin"
_CARRIERS = tuple(f"{_PACKAGE}.{name}" for name in ("wire", "trace", "client"))
"""Which make no calls of their own accord."""
_STORES = "transports."
"""Nor do these, which our file-level verbs are behind."""

_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

_KEY = "operation of hpss"
"""The key under which the frame of an operation keeps its mark: among its variables, though no variable can have that
name, so that the mark lives as long as the frame runs and nothing else lives any longer for it."""


class _Mark:
    """One operation."""


_whole: list[_Mark] = []


@contextmanager
def one_operation() -> Iterator[None]:
    """Make a block one operation, whoever calls what in it."""
    _whole.append(_Mark())
    try:
        yield
    finally:
        _whole.pop()


class Operations:
    """Tells one operation from the next."""

    def __init__(self) -> None:
        self._last: weakref.ref[_Mark] | None = None

    def begins(self) -> bool:
        """True if what is being done belongs to another operation than at the last call."""
        current = _whole[0] if _whole else _mark_of(_outermost())
        if self._last is not None and self._last() is current:
            return False
        self._last = weakref.ref(current)
        return True


def call_site() -> str:
    """The lines that made the call being made, the innermost first; those of libraries left out."""
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
    """The folders of Python's own modules and of the programs of its environment."""
    import sysconfig  # It takes a millisecond, which a command that makes no needless call goes without.

    return (os.path.dirname(os.__file__) + os.sep, sysconfig.get_path("scripts") + os.sep)


def _stack() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _outermost() -> FrameType:
    """The call into this package from outside that is being run."""
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
    """True if it runs this package's code, or that of Breezy's plugin, which has a name of Breezy's."""
    name = _module(frame)
    return name == "breezy.plugins.hpss" or (name.startswith(f"{_PACKAGE}.") and name != _PLUGIN)

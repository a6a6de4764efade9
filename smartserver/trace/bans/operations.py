"""Whose call it is: the lines of the program that made it, and the operation it belongs to, both read off the stack."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SHOWN = 4
"""Lines shown of a stack: who asked for it, and whose loop that may be."""

_PACKAGE = __name__.partition(".")[0]
_PLUGIN = f"{_PACKAGE}.pytest_plugin"
_CARRIERS = tuple(f"{_PACKAGE}.{name}" for name in ("wire", "trace", "client"))
"""Which make no calls of their own accord."""

_FOLDERS = (os.path.dirname(os.__file__) + os.sep, sysconfig.get_path("scripts") + os.sep)
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")

_whole: list[object] = []


@contextmanager
def one_operation() -> Iterator[None]:
    """What the block does is one operation, whoever calls what in it."""
    _whole.append(object())
    try:
        yield
    finally:
        _whole.pop()


class Operations:
    """Tells one operation from the next."""

    def __init__(self) -> None:
        self._last: object = None
        """A frame itself: of one that is gone the next may have the address."""

    def begins(self) -> bool:
        """Whether what is being done belongs to another operation than at the last call."""
        current = _whole[0] if _whole else _outermost()
        if current is self._last:
            return False
        self._last = current
        return True


def call_site() -> str:
    """The lines that made the call being made, the innermost first; those of libraries left out."""
    here = os.getcwd() + os.sep
    lines: list[str] = []
    for frame in _stack():
        path = frame.f_code.co_filename
        if _is_ours(frame):
            skipped = _module(frame).startswith(_CARRIERS)
        else:
            skipped = path.startswith(("<", *_FOLDERS)) or any(folder in path for folder in _INSTALLED)
        if not skipped:
            lines.append(f"{path.removeprefix(here)}:{frame.f_lineno} in {frame.f_code.co_name}")
        if len(lines) == SHOWN:
            break
    return " < ".join(lines)


def _stack() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _outermost() -> FrameType | None:
    """The call into this package from outside that is being run."""
    found = None
    for frame in _stack():
        if _is_ours(frame):
            found = frame
    return found


def _module(frame: FrameType) -> str:
    name = frame.f_globals.get("__name__", "")
    return name if isinstance(name, str) else ""


def _is_ours(frame: FrameType) -> bool:
    """Whether it runs this package's code, or that of Breezy's plugin, which has a name of Breezy's."""
    name = _module(frame)
    return name == "breezy.plugins.hpss" or (name.startswith(f"{_PACKAGE}.") and name != _PLUGIN)

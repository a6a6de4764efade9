"""Call sites: the lines of the program under test that are being run, without lines of tools and libraries."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from types import FrameType
from typing import NamedTuple

KEPT_SITES = 12
"""The most call sites kept of one stack, from the innermost: enough to include a loop above the line that sends."""

_NETEM = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Include the scripts, since the bottom of the stack is `bin/pytest`.
_TOOLS = tuple(path + os.sep for path in (os.path.dirname(os.__file__), sysconfig.get_path("scripts")))
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class CallSite(NamedTuple):
    """A line that is being run."""

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        """Return `tests/test_pull.py:12 in test_pull`, relative to the working directory if the file is below it."""
        here = os.getcwd() + os.sep
        return f"{self.path.removeprefix(here)}:{self.line} in {self.function}"


CallSites = tuple[CallSite, ...]
"""A stack, the innermost call first."""


@functools.cache
def of_a_library(path: str) -> bool:
    """Tell whether a file belongs to Python or to an installed package."""
    return path.startswith(("<frozen ", *_TOOLS)) or any(folder in path for folder in _INSTALLED)


def call_sites() -> CallSites:
    """Return the lines of the program under test that are being run now, or lines of libraries if there are none."""
    own: list[CallSite] = []
    others: list[CallSite] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(own) < KEPT_SITES:
        path = frame.f_code.co_filename
        if not path.startswith(_NETEM):
            kept = others if of_a_library(path) else own
            kept.append(CallSite(path, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(own or others[:KEPT_SITES])


def show(sites: CallSites) -> str:
    """Return call sites as one line: `client.py:5 in get < test_pull.py:12 in test_pull`."""
    return " < ".join(map(str, sites))

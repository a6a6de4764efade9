"""Call sites: the lines of the program under test that are being run, without those of tools and libraries."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from types import FrameType
from typing import NamedTuple

KEPT_SITES = 12
"""Call sites kept of one stack, from the innermost: the line of a loop lies above the client's own layers."""

_NETEM = os.path.dirname(os.path.abspath(__file__)) + os.sep
# The scripts too: the bottom of the stack is `bin/pytest`.
_TOOLS = tuple(path + os.sep for path in (os.path.dirname(os.__file__), sysconfig.get_path("scripts")))
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class CallSite(NamedTuple):
    """A line that was being run."""

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        """`tests/test_pull.py:12 in test_pull`, from the working directory where the file is below it."""
        here = os.getcwd() + os.sep
        return f"{self.path.removeprefix(here)}:{self.line} in {self.function}"


CallSites = tuple[CallSite, ...]
"""A stack, the innermost first: each was called from the next."""


@functools.cache
def of_a_library(path: str) -> bool:
    """True if a file is Python's own or an installed package's."""
    return path.startswith(("<frozen ", *_TOOLS)) or any(folder in path for folder in _INSTALLED)


def call_sites() -> CallSites:
    """The lines that the program under test is at now; if none of its lines is being run, those of the libraries."""
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
    """One line: `client.py:5 in get < test_pull.py:12 in test_pull`."""
    return " < ".join(map(str, sites))

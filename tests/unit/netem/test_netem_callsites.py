from __future__ import annotations

import os
import sys
import threading

import pytest

from netem.callsites import KEPT_SITES, CallSite, CallSites, call_sites, of_a_library

HERE = os.path.abspath(__file__)


def test_where_nothing_else_is_left_the_library_is_said() -> None:
    """No line of a program is on that stack."""
    found: list[CallSites] = []
    code = compile("found.append(call_sites())", "<frozen looking>", "exec")
    thread = threading.Thread(target=exec, args=(code, {"found": found, "call_sites": call_sites}))
    thread.start()
    thread.join()
    assert found[0][0] == CallSite("<frozen looking>", 1, "<module>")
    assert {os.path.basename(site.path) for site in found[0][1:]} == {"threading.py"}


def test_a_deep_stack_is_cut_at_its_outer_end() -> None:
    def deeper(count: int) -> CallSites:
        return deeper(count - 1) if count else call_sites()

    found = deeper(50)
    assert len(found) == KEPT_SITES
    assert {site.function for site in found} == {"deeper"}


@pytest.mark.parametrize(
    ("path", "library"),
    [
        (os.__file__, True),
        (pytest.__file__, True),
        (os.path.join(os.path.dirname(sys.executable), "pytest"), True),
        ("<frozen importlib._bootstrap>", True),
        ("/usr/lib/python3/dist-packages/x.py", True),
        (HERE, False),
        ("<string>", False),
        ("<stdin>", False),
    ],
)
def test_what_is_a_library(path: str, library: bool) -> None:
    assert of_a_library(path) is library

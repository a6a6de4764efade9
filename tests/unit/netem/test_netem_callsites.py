from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from netem.callsites import KEPT_SITES, CallSite, CallSites, call_sites, of_a_library, show

HERE = os.path.abspath(__file__)


def inner() -> CallSites:
    return call_sites()


def line_of(text: str) -> int:
    """The line of this file that ends so."""
    return 1 + [line.endswith(text) for line in Path(HERE).read_text().splitlines()].index(True)


def test_the_innermost_is_first_and_tools_are_left_out() -> None:
    found = inner()  # here
    assert found == (
        CallSite(HERE, line_of("return call_sites()"), "inner"),
        CallSite(HERE, line_of("found = inner()  # here"), "test_the_innermost_is_first_and_tools_are_left_out"),
    )


def test_libraries_between_are_left_out() -> None:
    found: list[CallSites] = []

    class Copied:
        def __copy__(self) -> Copied:
            found.append(inner())
            return self

    copy.copy(Copied())
    assert [site.function for site in found[0]] == ["inner", "__copy__", "test_libraries_between_are_left_out"]


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


def test_paths_are_shown_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    within = CallSite(str(tmp_path / "a" / "b.py"), 3, "f")
    assert show((within, CallSite("/elsewhere/c.py", 4, "g"))) == "a/b.py:3 in f < /elsewhere/c.py:4 in g"
    assert show(()) == ""


def test_a_program_given_on_the_command_line() -> None:
    script = "from netem.callsites import *\nprint(show(call_sites()))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "<string>:2 in <module>\n"

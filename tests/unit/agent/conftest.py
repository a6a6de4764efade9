"""A folder for sockets, and programs that hand over a command: in Python, and in C without the Python program."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents import RUN_HERE, of_its_own
from needs import require

from smartserver.agent.compiled import OPTIONS, OURS, compile_to


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    with of_its_own() as its:
        yield its


@pytest.fixture(scope="session")
def compiled_alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program of git's in C that ends with `RUN_HERE` where it would run the Python program."""
    return _compiled(tmp_path_factory.mktemp("compiled") / "git-remote-hpss")


@pytest.fixture(scope="session")
def our_compiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same in place of `smartserver`."""
    return _compiled(tmp_path_factory.mktemp("compiled") / OURS)


@pytest.fixture(scope="session")
def hasty_compiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same for git, with a second for the worker to end after a signal."""
    return _compiled(tmp_path_factory.mktemp("compiled") / "git-remote-hpss", "-DTIME_TO_END=1")


@pytest.fixture(params=["python", "c"])
def program(request: pytest.FixtureRequest) -> list[str]:
    """The words of a program that has a command handed over, and ends with its status, or with `RUN_HERE`."""
    if request.param == "c":
        return [request.getfixturevalue("compiled_alone"), "origin", "hpss://host/"]
    code = (
        "import os, sys; from smartserver.agent.thin import hand_over\n"
        "status = hand_over([b'origin', b'hpss://host/'], os.environb)\n"
        f"sys.exit({RUN_HERE} if status is None else status)\n"
    )
    return [sys.executable, "-c", code]


def _compiled(path: Path, *options: str) -> str:
    require("C compiler")
    code = f"-DCODE=\"import sys; sys.exit({RUN_HERE} if sys.argv[2:] != ['--help'] else 0)\""
    compile_to([str(path)], {**os.environ, "CC": "cc"}, (*OPTIONS, *options, "-UCODE", code))
    return str(path)

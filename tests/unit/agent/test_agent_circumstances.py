"""agent.circumstances: what is read of a process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import needs

from smartserver.agent import circumstances as read
from smartserver.agent.circumstances import Circumstances, _unit
from smartserver.agent.peer import open_process

pytestmark = pytest.mark.sockets


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """They wait for the end of their input."""
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for each in made:
        each.communicate()


def circumstances(process: int, environment: dict[bytes, bytes]) -> Circumstances:
    folder = open_process(str(process))
    try:
        return read.circumstances(folder, environment)
    finally:
        os.close(folder)


def of(made: list[subprocess.Popen[bytes]], *before: str) -> Circumstances:
    """The circumstances of a new process, once the program before it has become it."""
    made.append(subprocess.Popen([*before, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    process = made[-1]
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"x")
    process.stdin.flush()
    process.stdout.read(1)
    return circumstances(process.pid, {})


def test_a_process_that_another_starts_has_the_same(processes: list[subprocess.Popen[bytes]]) -> None:
    mask = os.umask(0o027)
    try:
        there = of(processes)
    finally:
        os.umask(mask)
    assert there == Circumstances(circumstances(os.getpid(), {}).facts, 0o027)


@pytest.mark.parametrize(
    "before",
    [
        ["nice", "-n", "1"],
        ["choom", "-n", "900", "--"],
        ["chrt", "--batch", "0"],
        ["prlimit", "--nofile=200:200"],
        ["setpriv", "--no-new-privs"],
        pytest.param(["unshare", "--user"], marks=needs("user namespaces")),
    ],
    ids=lambda words: words[0],
)
def test_what_makes_it_another(processes: list[subprocess.Popen[bytes]], before: list[str]) -> None:
    there = of(processes, *before)
    assert there.facts != circumstances(os.getpid(), {}).facts


@pytest.mark.parametrize("name", ["LC_ALL", "LANG", "PYTHONUTF8"])
def test_what_python_makes_of_words_is_one_of_them(name: str) -> None:
    here = os.getpid()
    assert circumstances(here, {name.encode(): b"C"}) != circumstances(here, {})


@pytest.mark.parametrize("name", ["GIT_DIR", "PYTHONUNBUFFERED", "LANGUAGE"])
def test_what_says_nothing_of_the_process_is_none(name: str) -> None:
    here = os.getpid()
    assert circumstances(here, {name.encode(): b"C"}) == circumstances(here, {})


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (b"0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope", b"app.slice"),
        (b"0::/user.slice/user-1000.slice/session-3.scope", b"user-1000.slice"),
        (b"0::/system.slice/fetch.service", b"fetch.service"),
        (b"4:memory:/", b""),
    ],
)
def test_a_terminals_own_control_group_is_none(line: bytes, kept: bytes) -> None:
    assert _unit(line).rpartition(b"/")[2] == kept


def test_a_process_that_is_gone_has_none() -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    folder = open_process(str(process.pid))
    process.communicate()
    with pytest.raises(OSError, match="No such"):
        read.circumstances(folder, {})
    os.close(folder)


def test_proc_is_read_as_it_is_written() -> None:
    """The program's name may hold what else ends it."""
    name = Path("/proc/self/comm")
    before = name.read_text()
    expected = circumstances(os.getpid(), {})
    name.write_text("a) b (c 1")
    try:
        assert circumstances(os.getpid(), {}) == expected
    finally:
        name.write_text(before.rstrip())

"""^C at random moments of a push, and while git writes fetched objects: no output, no files left behind, and the next
command works. `tests/interop/test_git_interrupt.py` tries each moment of a fetch."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from processes import group, read, state
from serving import (
    NOISE,
    PATIENCE,
    Done,
    Server,
    User,
    finish,
    server_refs,
    wait_until,
    write_history,
)

pytestmark = [pytest.mark.sockets, pytest.mark.interop]

INTERRUPTS = 4
SEED = 7


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, User]]:
    """A server, and a user with histories; `large` is more than one process inserts alone."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "root").mkdir()
    user = User(folder / "user")
    write_history(user, "bulky", 20, seed="bulky", size=300_000)
    write_history(user, "large", 700, seed="large", size=200)
    with Server(folder / "root") as server:
        for name in ("bulky", "large"):
            user.git("push", "-q", server.url(name), "main", folder=name).worked()
        yield server, user


def begins(pid: int) -> bool:
    """Tell whether a process is a Python that still starts: Python itself prints an error on a ^C at that moment."""
    if b"git-remote-hpss" not in read(pid, "cmdline"):
        return False
    caught = re.search(rb"SigCgt:\s+(\w+)", read(pid, "status"))
    if caught is None or not int(caught[1], 16) >> (signal.SIGINT - 1) & 1:
        return False
    return b"msgspec" not in read(pid, "maps")


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Send SIGINT to a whole process group, as a terminal does. All are stopped first, to see that none just starts."""
    while members := group(process.pid):
        os.killpg(process.pid, signal.SIGSTOP)
        # One that waits for its stopped child (D) cannot run either.
        wait_until(lambda members=members: all(state(each) in "TDZX" for each in members), "they hold still")  # type: ignore[misc]
        ready = not any(map(begins, group(process.pid)))
        if ready:
            os.killpg(process.pid, signal.SIGINT)
        os.killpg(process.pid, signal.SIGCONT)
        if ready:
            return
        time.sleep(0.001)


def interrupted(start: Callable[[], subprocess.Popen[bytes]], after: float) -> Done:
    """Interrupt a command after some seconds, wait until all its processes have ended, and return its results."""
    process = start()
    time.sleep(after)
    interrupt(process)
    asked = time.monotonic()
    done = finish(process)
    wait_until(lambda: not group(process.pid), "all processes of the command are gone")
    assert time.monotonic() - asked < PATIENCE / 4, "it took its time to end"
    assert done.status in (0, -signal.SIGINT, 1, 128), done
    assert not NOISE.search(done.err), done
    assert "fatal: hpss" not in done.err or done.status == 0, done
    return done


def check_clean(user: User, folder: str) -> None:
    """Check that a repository is whole, and has no unused files."""
    checked = user.git("fsck", "--strict", "--no-dangling", "--no-progress", folder=folder).worked()
    assert [line for line in (checked.out + checked.err).splitlines() if not line.startswith("notice: ")] == []
    git_dir = user.home / folder / user.git("rev-parse", "--git-dir", folder=folder).worked().out.strip()
    # Between making the lock of its index and noting that it did, git leaves it behind: nothing of ours makes one.
    names = [path.name for path in git_dir.rglob("*") if path.name != "index.lock"]
    assert [name for name in names if name.startswith("tmp_") or name.endswith((".lock", ".keep"))] == []


def test_push(served: tuple[Server, User]) -> None:
    """The moments are random, one in each part of the time that a push takes."""
    server, user = served
    chance, began = random.Random(SEED), time.monotonic()
    finish(user.start("push", server.url("measured"), "main", folder="large")).worked()
    whole, tip = time.monotonic() - began, user.tip("large")
    for turn in range(INTERRUPTS):
        path, after = f"pushed-{turn}", chance.uniform(turn, turn + 1) * whole / INTERRUPTS
        interrupted(partial(user.start, "push", server.url(path), "main", folder="large"), after)
        assert server_refs(server.root, path) in ({}, {"refs/heads/main": tip}), (SEED, turn, after)
        check_clean(user, "large")
        user.git("push", server.url(path), "main", folder="large").worked()
        assert server_refs(server.root, path) == {"refs/heads/main": tip}


def test_fetch_while_git_writes_objects(served: tuple[Server, User], tmp_path: Path) -> None:
    """Git itself leaves a part of an object behind on an interrupt at that moment."""
    server, owner = served
    user = User(tmp_path / "user")
    user.git("init", "-q", "r").worked()

    def writes(process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, "git was not seen to write objects"
        return any(b"unpack-objects" in read(pid, "cmdline") for pid in group(process.pid))

    for turn in range(4):
        process = user.start("fetch", server.url("bulky"), "main", folder="r")
        wait_until(lambda process=process: writes(process), "git writes objects")  # type: ignore[misc]
        time.sleep(0.01 * turn)
        interrupt(process)
        assert not NOISE.search(finish(process).err)
        wait_until(lambda process=process: not group(process.pid), "it is gone")  # type: ignore[misc]
        check_clean(user, "r")
    user.git("fetch", server.url("bulky"), "main", folder="r").worked()
    assert user.tip("r", "FETCH_HEAD") == owner.tip("bulky")
    check_clean(user, "r")

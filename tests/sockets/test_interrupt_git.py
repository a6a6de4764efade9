"""^C at random moments of a push, a fetch and a clone: silence, nothing left behind, and the next command works."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from serving import (
    NOISE,
    PATIENCE,
    Done,
    Server,
    User,
    command_line,
    finish,
    group,
    lanes,
    server_refs,
    shares,
    wait_until,
    write_history,
)

pytestmark = [pytest.mark.sockets, pytest.mark.interop]

INTERRUPTS = 4
LANES = 4
SEED = 7


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, User]]:
    """A server, and somebody who has histories: `large` is more than one process is given to insert."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "root").mkdir()
    user = User(folder / "user")
    write_history(user, "small", 8, seed="small", size=30_000)
    write_history(user, "bulky", 20, seed="bulky", size=300_000)
    write_history(user, "large", 700, seed="large", size=200)
    with Server(folder / "root") as server:
        for name in ("small", "bulky", "large"):
            user.git("push", "-q", server.url(name), "main", folder=name).worked()
        yield server, user


def begins(pid: int) -> bool:
    """Whether a process is a Python that still starts: ^C makes Python itself complain then, before it runs ours."""
    try:
        process = Path(f"/proc/{pid}")
        if b"git-remote-hpss" not in command_line(pid):
            return False
        caught = next(line for line in process.joinpath("status").read_text().splitlines() if line.startswith("SigCgt"))
        if not int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1:
            return False
        return "msgspec" not in process.joinpath("maps").read_text()
    except (OSError, StopIteration):
        return False


def is_still(pid: int) -> bool:
    """Whether a process that was told to stop runs no more; one that waits for its stopped child (D) cannot either."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "TDZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Send SIGINT to a whole process group, as a terminal does; all are held still to see that none just begins."""
    while members := group(process.pid):
        os.killpg(process.pid, signal.SIGSTOP)
        wait_until(lambda members=members: all(map(is_still, members)), "they hold still")  # type: ignore[misc]
        ready = not any(map(begins, group(process.pid)))
        if ready:
            os.killpg(process.pid, signal.SIGINT)
        os.killpg(process.pid, signal.SIGCONT)
        if ready:
            return
        time.sleep(0.001)


def interrupted(start: Callable[[], subprocess.Popen[bytes]], after: float) -> Done:
    """What a command did that was interrupted after some seconds, once all its processes are gone."""
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
    """A repository is whole, and holds nothing that is in nobody's use."""
    checked = user.git("fsck", "--strict", "--no-dangling", "--no-progress", folder=folder).worked()
    assert [line for line in (checked.out + checked.err).splitlines() if not line.startswith("notice: ")] == []
    git_dir = user.home / folder / user.git("rev-parse", "--git-dir", folder=folder).worked().out.strip()
    # Between making the lock of its index and noting that it did, git leaves it behind: nothing of ours makes one.
    names = [path.name for path in git_dir.rglob("*") if path.name != "index.lock"]
    assert [name for name in names if name.startswith("tmp_") or name.endswith((".lock", ".keep"))] == []


def measured(start_command: Callable[[], subprocess.Popen[bytes]]) -> float:
    start = time.monotonic()
    finish(start_command()).worked()
    return time.monotonic() - start


def each_lane(work: Callable[[int, random.Random, list[int]], None], name: str) -> None:
    """Deal the interrupts out, each lane with chances of its own."""

    def lane(number: int) -> None:
        seed = f"{SEED}/{name}/{number}"
        try:
            work(number, random.Random(seed), shares(range(INTERRUPTS), LANES)[number])
        except BaseException as wrong:
            wrong.add_note(f"seed {seed}")
            raise

    lanes(LANES, lane)


def test_push(served: tuple[Server, User], tmp_path: Path) -> None:
    server, owner = served

    def work(lane: int, chance: random.Random, turns: list[int]) -> None:
        shutil.copytree(owner.home, tmp_path / f"user{lane}", ignore=shutil.ignore_patterns("bulky"))
        user = User(tmp_path / f"user{lane}")
        whole = measured(lambda: user.start("push", server.url(f"measured-{lane}"), "main", folder="large"))
        for turn in turns:
            folder = "small" if turn % 4 else "large"
            path = f"pushed-{turn}"
            after = chance.uniform(0, 0.4 * whole if turn % 4 else 1.1 * whole)
            interrupted(lambda f=folder, p=path: user.start("push", server.url(p), "main", folder=f), after)  # type: ignore[misc]
            tip = user.tip(folder)
            assert server_refs(server.root, path) in ({}, {"refs/heads/main": tip})
            check_clean(user, folder)
            user.git("push", server.url(path), "main", folder=folder).worked()
            assert server_refs(server.root, path) == {"refs/heads/main": tip}

    each_lane(work, "push")


def test_fetch_while_git_writes_objects(served: tuple[Server, User], tmp_path: Path) -> None:
    """Git itself leaves half an object behind when it is interrupted then."""
    server, owner = served
    user = User(tmp_path / "user")
    user.git("init", "-q", "r").worked()

    def writes(process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, "git was not seen to write objects"
        return any(b"unpack-objects" in command_line(pid) for pid in group(process.pid))

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


def test_clone(served: tuple[Server, User], tmp_path: Path) -> None:
    server, owner = served

    def work(lane: int, chance: random.Random, turns: list[int]) -> None:
        user = User(tmp_path / f"user{lane}")
        whole = measured(lambda: user.start("clone", "-q", server.url("large"), "measured"))
        for turn in turns:
            name = "small" if turn % 4 else "large"
            after = chance.uniform(0, 0.4 * whole if turn % 4 else 1.1 * whole)
            done = interrupted(lambda name=name: user.start("clone", server.url(name), "c"), after)  # type: ignore[misc]
            assert done.status or (user.home / "c").exists()
            if (user.home / "c").exists():
                # Git takes a clone away that is not whole, and leaves one that it was checking out.
                assert user.tip("c", "refs/remotes/origin/main") == owner.tip(name)
                check_clean(user, "c")
                user.git("reset", "-q", "--hard", folder="c").worked()
                shutil.rmtree(user.home / "c")
            user.git("clone", server.url(name), "c").worked()
            assert user.tip("c") == owner.tip(name)
            check_clean(user, "c")
            shutil.rmtree(user.home / "c")

    each_lane(work, "clone")

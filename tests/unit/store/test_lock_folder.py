"""store.lock_folder: one writer at a time, who says who he is; others wait, are told, and break nothing by guess."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable

import pytest
from builders import MAIN, Lockless, Stepwise
from root_cases import make, push, tip

from smartserver.errors import Unsupported
from smartserver.store import lock_folder
from smartserver.store.lock_folder import HELD, NOBODY, WHO, Holder, LockFolder, decode
from smartserver.store.swap import LockBroken, RootFile
from transports.base import Transport
from transports.decorators.faulty import FaultMode, FaultyTransport
from transports.errors import Locked, NoSuchFile, TransportError, TransportFailed
from transports.local import LocalTransport
from transports.memory import MemoryTransport


@pytest.fixture
def folder(storage: Transport) -> Transport:
    storage.make_directory("project")
    storage.make_directory("project/lock")
    storage.put("project/root", [b"the root"])
    return storage.child("project")


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between looks, on a clock that they alone move."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(time, "monotonic", lambda: sum(pauses))
    return pauses


def lock_of(folder: Transport) -> LockFolder:
    return LockFolder(folder, "", os.urandom)


def test_who_holds_it_says_who_he_is_and_has_the_root(folder: Transport) -> None:
    lock = lock_of(folder)
    assert lock.holder() is None
    with lock.hold(0) as root:
        assert root == b"the root"
        holder = lock_of(folder).holder()
        assert holder is not None
        assert (holder.pid, holder.host) == (os.getpid(), os.uname().nodename)
        assert re.fullmatch(r"\S+ \(process \d+ on \S+\) since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", str(holder))
    assert lock.holder() is None
    assert folder.list_directory("lock") == []


def test_a_repository_without_a_root_has_none(folder: Transport) -> None:
    folder.delete("root")
    with lock_of(folder).hold(0) as root:
        assert root is None


def test_the_others_wait_with_growing_pauses_and_are_told_who(folder: Transport, slept: list[float]) -> None:
    with lock_of(folder).hold(0):
        holder = lock_of(folder).holder()
        with pytest.raises(Locked) as raised, lock_of(folder).hold(20):
            raise AssertionError("held what another holds")
    assert (raised.value.path, raised.value.seconds, raised.value.holder) == ("lock", 20, str(holder))
    assert "smartserver break-lock" in str(raised.value)
    assert sum(slept) == pytest.approx(20)
    assert slept[0] <= lock_folder.FIRST_PAUSE
    assert max(slept) <= lock_folder.LONGEST_PAUSE
    assert folder.list_directory("lock") == []


def test_who_waits_has_it_once_it_is_free(folder: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lock_of(folder).hold(0)
    first.__enter__()
    looks: list[float] = []

    def let_go(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            first.__exit__(None, None, None)

    monkeypatch.setattr(time, "sleep", let_go)
    with lock_of(folder).hold(30) as root:
        assert root == b"the root"
    assert len(looks) == 3


def test_threads_have_it_one_at_a_time(tmp_path: object) -> None:
    folder = LocalTransport(str(tmp_path))
    folder.make_directory("lock")
    inside: list[int] = []

    def work() -> None:
        for _ in range(10):
            with lock_of(folder).hold(60):
                inside.append(1)
                assert sum(inside) == 1
                inside.append(-1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(inside) == 80
    assert folder.list_directory("lock") == []


@pytest.mark.parametrize("missing", ["lock", ""])
def test_without_the_folder_there_is_no_repository(missing: str) -> None:
    storage = MemoryTransport()
    if missing == "lock":
        storage.make_directory("project")
    with pytest.raises(NoSuchFile), lock_of(storage.child("project")).hold(0):
        raise AssertionError("held what is not there")


@pytest.mark.parametrize("mode", ["fail", "tear", "lose", "die"])
def test_a_store_that_fails_at_any_call(mode: FaultMode, slept: list[float]) -> None:
    """The lock is held or it is not; who could not let go of it does so before he takes it again."""
    for fail_at in range(1, 20):
        storage = MemoryTransport()
        storage.make_directory("lock")
        faulty = FaultyTransport(storage, fail_at=fail_at, mode=mode)
        lock = lock_of(faulty)
        with contextlib.suppress(TransportFailed), lock.hold(1):
            assert (storage.list_directory(HELD), storage.list_directory("lock")) == ([WHO], ["held"])
        if faulty.calls < fail_at:
            break
        if mode != "die":
            with lock.hold(0):
                assert storage.exists(HELD)
            assert not storage.exists(HELD)
    assert fail_at > 5
    assert slept == [] or mode != "die"


def test_a_broken_lock_is_nobodys(folder: Transport) -> None:
    first = lock_of(folder).hold(0)
    first.__enter__()
    holder = lock_of(folder).holder()
    assert holder is not None
    folder.put(f"{HELD}/root.0123", [b"half of a root"])
    assert lock_of(folder).break_lock(holder) is None
    assert folder.list_directory("lock") == []
    with pytest.raises(NoSuchFile):
        lock_of(folder).break_lock(holder)
    with lock_of(folder).hold(0):
        other = lock_of(folder).holder()
        assert lock_of(folder).break_lock(holder) == other


def test_who_had_it_long_does_not_let_go_of_anothers(folder: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    first = lock_of(folder).hold(0)
    first.__enter__()
    holder = lock_of(folder).holder()
    assert holder is not None
    lock_of(folder).break_lock(holder)
    with lock_of(folder).hold(0):
        other = lock_of(folder).holder()
        monkeypatch.setattr(lock_folder, "LONG", 0.0)
        first.__exit__(None, None, None)
        assert lock_of(folder).holder() == other


def test_what_dead_writers_left_that_waited_is_swept_by_age(folder: Transport) -> None:
    for name in ("0123", "4567"):
        folder.make_directory(f"lock/{name}")
    folder.put(f"lock/0123/{WHO}", [b"user joe\n"])
    lock = lock_of(folder)
    with lock.hold(0):
        assert lock.sweep(lambda modified: False) == 0
        assert lock.sweep(lambda modified: True) == 2
        assert folder.list_directory("lock") == ["held"]


@pytest.mark.parametrize(
    ("content", "who"),
    [
        (None, NOBODY),
        (b"", NOBODY),
        (
            b"user joe\nhost a b\npid 7\nsince 1700000000000\nnonce 00ff\nmore x\n",
            ("joe", "a b", 7, 1700000000000, "00ff"),
        ),
        (b"user \x1b[2Jjoe\npid -1\nsince \xc2\xb2\n", ("?[2Jjoe", "a machine", 0, 0, "")),
        (b"\xff\xfe\nuser " + b"j" * 9999, ("j" * 4088, "a machine", 0, 0, "")),
    ],
)
def test_what_is_said_of_a_holder(content: bytes | None, who: tuple[object, ...]) -> None:
    assert decode(content) == who
    assert decode(Holder(*who).encode()) == who


def test_a_time_that_is_none() -> None:
    assert str(NOBODY._replace(since=10**18)).endswith("since a time nobody knows")


# -- in the swap


@pytest.fixture
def lockless() -> Transport:
    inner = MemoryTransport()
    make(Lockless(inner), {MAIN: tip(1)}, "a")
    return inner


def test_every_writer_takes_the_lock_folder(lockless: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose store can lock files; readers take none."""
    monkeypatch.setattr("smartserver.store.swap.LOCK_WAIT", 0.0)
    remote, local = RootFile(Lockless(lockless), "a"), RootFile(lockless, "a")
    for one, other in ((remote, local), (local, remote)):
        with one.swapping():
            with pytest.raises(Locked, match=r"a/lock.*is held by"):
                push(other, {MAIN: tip(2)}, 1)
            assert other.read().version
    push(local, {MAIN: tip(2)}, 1)
    assert push(remote, {MAIN: tip(3)}, 2).version == 3
    assert lockless.list_directory("a/lock") == []


def test_a_file_repository_is_not_changed_without_its_lock() -> None:
    inner = MemoryTransport()
    make(inner, {MAIN: tip(1)}, "a")
    file = RootFile(Lockless(inner), "a")
    assert file.read().version == 1
    with pytest.raises(Unsupported, match=r"swap=file.*this side speaks swap=folder"):
        push(file, {MAIN: tip(2)}, 1)


class Interrupted(Stepwise):
    """Does something just before its n-th call."""

    def __init__(self, inner: Transport, at: int, act: Callable[[], None]) -> None:
        super().__init__(inner)
        self._at, self._act = at, act

    def before(self, call: str, path: str) -> None:
        self._at -= 1
        if self._at == 0:
            self._act()

    @property
    def over(self) -> bool:
        return self._at > 0


def test_one_whose_lock_was_broken_changes_nothing() -> None:
    """At whatever call of his: another has pushed meanwhile, and that stays; what he was told was done stays too."""
    broken = at = 0
    over = False
    while not over:
        at += 1
        inner = MemoryTransport()
        make(Lockless(inner), {MAIN: tip(1)}, "a")
        other = RootFile(inner, "a", randomness=os.urandom)

        def act(other: RootFile = other) -> None:
            nonlocal broken
            holder = other.lock_folder.holder()
            if holder is not None:
                other.lock_folder.break_lock(holder)
                broken += 1
            push(other, {b"refs/heads/other": tip(7)}, 7)

        slow = Interrupted(Lockless(inner), at, act)
        error: TransportError | None = None
        try:
            push(RootFile(slow, "a"), {b"refs/heads/slow": tip(8)}, 8)
        except LockBroken as wrong:
            error = wrong
        over = slow.over
        if over:
            break
        root = other.read()
        told = [change.key for entry in root.log for change in entry.changes]
        wanted = [MAIN, b"refs/heads/other", *([] if error else [b"refs/heads/slow"])]
        assert sorted(told) == sorted(wanted), (at, error)
        assert inner.list_directory("a/lock") == []
    assert broken > 3
    assert at > 10

"""store.lock_folder: one writer at a time, who says who he is; others wait, are told, and break nothing by guess."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Sequence

import pytest
from builders import MAIN, Lockless, Stepwise
from faulty_transport import FaultMode, FaultyTransport
from root_cases import NOW, entry, make, push, tip

from smartserver.errors import AccessDenied, OutcomeUnknown, Unsupported
from smartserver.store import lock_folder
from smartserver.store.document import REFS
from smartserver.store.lock_folder import HELD, WHO, Holder, LockFolder, decode
from smartserver.store.publish.folder import LockBroken
from smartserver.store.root import RootView, next_root
from smartserver.store.swap import RootFile, Swap
from transports.base import Step, Transport
from transports.decorators.passing import PassingTransport
from transports.errors import (
    DirectoryNotEmpty,
    Locked,
    NoSuchFile,
    NotSupported,
    PermissionDenied,
    TransportError,
    TransportFailed,
)
from transports.local import LocalTransport
from transports.memory import MemoryTransport
from transports.steps import Delete, Put, Rename


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
    with lock.hold(0) as held:
        assert held.root == b"the root"
        holder = lock_of(folder).holder()
        assert holder is not None
        assert (holder.pid, holder.host) == (os.getpid(), os.uname().nodename)
        assert re.fullmatch(r"\S+ \(process \d+ on \S+\) since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", str(holder))
    assert lock.holder() is None
    assert folder.list_directory("lock") == []


def test_a_repository_without_a_root_has_none(folder: Transport) -> None:
    folder.delete("root")
    with lock_of(folder).hold(0) as held:
        assert held.root is None


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
    with lock_of(folder).hold(30) as held:
        assert held.root == b"the root"
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
            (nonce,) = storage.list_directory(HELD)
            assert (storage.list_directory(f"{HELD}/{nonce}"), storage.list_directory("lock")) == ([WHO], ["held"])
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
    folder.put(f"{HELD}/{holder.nonce}/root.0123", [b"half of a root"])
    lock_of(folder).break_lock(holder)
    assert folder.list_directory("lock") == []
    with pytest.raises(NoSuchFile):
        lock_of(folder).break_lock(holder)
    with lock_of(folder).hold(0):
        other = lock_of(folder).holder()
        with pytest.raises(NoSuchFile):
            lock_of(folder).break_lock(holder)
        assert lock_of(folder).holder() == other


def test_nobody_lets_go_of_anothers(folder: Transport) -> None:
    first = lock_of(folder).hold(0)
    first.__enter__()
    holder = lock_of(folder).holder()
    assert holder is not None
    lock_of(folder).break_lock(holder)
    with lock_of(folder).hold(0):
        other = lock_of(folder).holder()
        first.__exit__(None, None, None)
        assert lock_of(folder).holder() == other
        assert folder.list_directory("lock") == ["held"]
    assert folder.list_directory("lock") == []


class Answers(Stepwise):
    """A store whose `perform` is told when it is asked, may do all of it, and raises what it is to raise."""

    def __init__(self, inner: Transport, *outcomes: tuple[bool, BaseException | None]) -> None:
        """`outcomes`: of each `perform`, whether it is done and what it raises; those after them are as they are."""
        super().__init__(inner)
        self.outcomes = list(outcomes)
        self.asked: list[Sequence[Step]] = []

    def perform(self, steps: Sequence[Step]) -> None:
        self.asked.append(steps)
        done, error = self.outcomes.pop(0) if self.outcomes else (True, None)
        if done:
            super().perform(steps)
        if error is not None:
            raise error


LOST = TransportFailed("", "the connection is lost")


def test_what_flew_with_it_is_not_presumed_done(folder: Transport) -> None:
    """The connection is lost after what is in the lock's own folder came to be, and before the pack did."""

    class Torn(Answers):
        def perform(self, steps: Sequence[Step]) -> None:
            if any(step.path == "pack" for step in steps):
                self.inner.perform([step for step in steps if step.path != "pack" and not isinstance(step, Rename)])
                raise LOST
            super().perform(steps)

    with pytest.raises(TransportFailed, match="lost"), lock_of(Torn(folder)).hold(0, [Put("pack", b"p")]):
        raise AssertionError("held without what was to be done before")
    assert folder.list_directory("lock") == []


def test_who_is_refused_knows_what_flew_with_it_done(folder: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    other = lock_of(folder).hold(0)
    other.__enter__()
    monkeypatch.setattr(time, "sleep", lambda _: other.__exit__(None, None, None))
    with lock_of(folder).hold(30, [Put("pack", b"p")]) as held:
        assert held.root == b"the root"
    assert folder.get("pack") == b"p"


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), LOST])
def test_who_is_interrupted_while_he_takes_it_has_it_not(folder: Transport, error: BaseException, done: bool) -> None:
    """Nor where the look whose it is fails, or is interrupted."""
    for outcomes in ([(done, error)], [(done, LOST), (False, error)]):
        lock = lock_of(Answers(folder, *outcomes))
        with contextlib.suppress(KeyboardInterrupt, TransportFailed), lock.hold(0):
            pass
        assert folder.list_directory("lock") == []


@pytest.mark.parametrize("done", [True, False])
def test_who_is_interrupted_while_he_lets_go_does_so_all_the_same(folder: Transport, done: bool) -> None:
    lock = lock_of(Answers(folder, (True, None), (done, KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt), lock.hold(0):
        pass
    assert folder.list_directory("lock") == []


def test_who_is_interrupted_twice_while_he_lets_go_does_so_before_he_takes_it_again(folder: Transport) -> None:
    lock = lock_of(Answers(folder, (True, None), (False, KeyboardInterrupt()), (False, KeyboardInterrupt())))
    with pytest.raises(KeyboardInterrupt), lock.hold(0):
        pass
    assert lock.holder() is not None
    with lock.hold(0):
        assert len(folder.list_directory(HELD)) == 1
    assert folder.list_directory("lock") == []


def test_what_could_not_be_removed_is_once_the_lock_is_taken_again(folder: Transport) -> None:
    """It is known whose it is: no need to wait until it is old."""

    class Torn(Answers):
        def perform(self, steps: Sequence[Step]) -> None:
            if len(self.asked) in (1, 2):
                self.inner.perform(steps[:1])
            super().perform(steps)

    lost = [(False, LOST), (False, LOST), (False, LOST)]
    lock = lock_of(Torn(folder, (True, None), *lost))
    with lock.hold(0):
        pass
    assert lock.holder() is None
    assert folder.list_directory("lock") != []
    with lock.hold(0):
        assert folder.list_directory("lock") == ["held"]
    assert folder.list_directory("lock") == []


class Late(Answers):
    """The rename whose answer was lost is done once its writer has looked, and tries again."""

    def perform(self, steps: Sequence[Step]) -> None:
        if len(self.asked) == 2:
            nonce = next(name for name in self.inner.list_directory("lock") if name != "held")
            self.inner.rename(f"lock/{nonce}", HELD)
        if not self.asked:
            self.inner.perform(steps[:-2])
        super().perform(steps)


def test_a_rename_that_was_done_late_is_found(folder: Transport) -> None:
    with lock_of(Late(folder, (False, LOST))).hold(0) as held:
        assert held.root == b"the root"
    assert folder.list_directory("lock") == []


def test_a_lock_that_was_broken_before_its_holder_knew_of_it(folder: Transport) -> None:
    """That is no repository which is gone."""

    class Broken(Late):
        def rename(self, source: str, target: str) -> None:
            holder = lock_of(folder).holder()
            if holder is not None:
                lock_of(folder).break_lock(holder)
            super().rename(source, target)

    with pytest.raises(TransportFailed, match="broken before"), lock_of(Broken(folder, (False, LOST))).hold(0):
        raise AssertionError("held what was broken")
    assert folder.list_directory("lock") == []


def test_a_store_that_replaces_no_folder(folder: Transport) -> None:
    """What is left of `held` when a writer died as he let go is removed."""

    class Strict(Stepwise):
        def rename(self, source: str, target: str) -> None:
            if self.inner.exists(target):
                raise DirectoryNotEmpty(target)
            super().rename(source, target)

    folder.make_directory(HELD)
    assert lock_of(folder).holder() is None
    with lock_of(Strict(folder)).hold(0) as held:
        assert held.root == b"the root"
    assert folder.list_directory("lock") == []


def test_what_dead_writers_left_that_waited_is_swept_by_age(folder: Transport) -> None:
    for name in ("0123", "4567"):
        folder.make_directory(f"lock/{name}")
    folder.put(f"lock/0123/{WHO}", [b"user joe\n"])
    lock = lock_of(folder)
    with lock.hold(0):
        assert lock.sweep(folder.list_directory("lock"), lambda modified: False) == 0
        assert lock.sweep(folder.list_directory("lock"), lambda modified: True) == 2
        assert folder.list_directory("lock") == ["held"]


@pytest.mark.parametrize(
    ("content", "who"),
    [
        (None, ("", "", 0, 0)),
        (b"", ("", "", 0, 0)),
        (b"user joe\nhost a b\npid 7\nsince 1700000000000\nmore x\n", ("joe", "a b", 7, 1700000000000)),
        (b"user \x1b[2Jjoe\npid -1\nsince \xc2\xb2\n", ("?[2Jjoe", "", 0, 0)),
        (b"\xff\xfe\nuser " + b"j" * 9999, ("j" * 4088, "", 0, 0)),
    ],
)
def test_what_is_said_of_a_holder(content: bytes | None, who: tuple[str, str, int, int]) -> None:
    assert decode(content, "00ff") == (*who, "00ff")
    assert decode(Holder(*who, "00ff").encode(), "00ff") == (*who, "00ff")


@pytest.mark.parametrize(
    ("holder", "text"),
    [
        (Holder("", "", 0, 0, "00ff"), "somebody who left no name"),
        (Holder("joe", "", 0, 0, "00ff"), "joe"),
        (Holder("joe", "a", 0, 0, "00ff"), "joe (on a)"),
        (Holder("joe", "", 7, 10**18, "00ff"), "joe (process 7) since a time nobody knows"),
        (Holder("joe", "a", 7, 1000, "00ff"), "joe (process 7 on a) since 1970-01-01 00:00:01 UTC"),
    ],
)
def test_what_is_not_known_of_a_holder_is_not_said(holder: Holder, text: str) -> None:
    assert str(holder) == text


def test_a_folder_without_a_word_is_held(folder: Transport) -> None:
    folder.make_directory(HELD)
    folder.make_directory(f"{HELD}/0123456789abcdef")
    with pytest.raises(Locked, match="held by somebody who left no name, and"), lock_of(folder).hold(0):
        raise AssertionError("held what another holds")
    holder = lock_of(folder).holder()
    assert holder is not None
    lock_of(folder).break_lock(holder)
    assert folder.list_directory("lock") == []


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


class NoDeletes(PassingTransport):
    """A link that does not send a request with a `delete` in it."""

    def perform(self, steps: Sequence[Step]) -> None:
        if any(isinstance(step, Delete) for step in steps):
            raise AccessDenied("delete", "not here")
        self.inner.perform(steps)


def test_a_request_that_is_refused_as_the_lock_is_let_go_of_leaves_no_lock(lockless: Transport) -> None:
    """Its rename is sent alone."""
    file = RootFile(NoDeletes(Lockless(lockless)), "a")
    with pytest.raises(AccessDenied):
        push(file, {MAIN: tip(2)}, 1)
    assert file.read().version == 2
    with pytest.raises(AccessDenied), file.swapping():
        pass
    assert file.publisher.holder() is None
    assert push(RootFile(lockless, "a"), {MAIN: tip(3)}, 2).version == 3


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


def test_one_whose_lock_was_broken_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """At whatever call of his: another has pushed meanwhile, and a third has the lock when he goes on. What they were
    told was done stays, and the third keeps the lock."""
    monkeypatch.setattr("smartserver.store.swap.LOCK_WAIT", 0.0)
    broken = at = 0
    over = False
    while not over:
        at += 1
        inner = MemoryTransport()
        make(Lockless(inner), {MAIN: tip(1)}, "a")
        other = RootFile(inner, "a", randomness=os.urandom)
        other.read()
        third = contextlib.ExitStack()
        swaps: list[Swap] = []

        def act(other: RootFile = other, third: contextlib.ExitStack = third, swaps: list[Swap] = swaps) -> None:
            nonlocal broken
            holder = other.publisher.holder()
            if holder is not None:
                other.publisher.break_lock(holder)
                broken += 1
            push(other, {b"refs/heads/other": tip(7)}, 7)
            swaps.append(third.enter_context(other.swapping()))

        slow = Interrupted(Lockless(inner), at, act)
        error: TransportError | None = None
        try:
            push(RootFile(slow, "a"), {b"refs/heads/slow": tip(8)}, 8)
        except (LockBroken, Locked) as wrong:
            error = wrong
        over = slow.over
        if over:
            break
        with third:
            view = RootView(swaps[0].current, other.folder)
            swaps[0].replace(*next_root(view, now=NOW, refs={b"refs/heads/third": tip(9)}, log=entry(9)).finish())
        root = other.read()
        told = [change.key for entry in root.log for change in entry.changes if change.table == REFS]
        wanted = [MAIN, b"refs/heads/other", b"refs/heads/third", *([] if error else [b"refs/heads/slow"])]
        assert sorted(told) == sorted(wanted), (at, error)
        assert inner.list_directory("a/lock") == []
    assert broken > 3
    assert at > 10


@pytest.mark.parametrize("error", [PermissionDenied("a/root"), NotSupported("rename over a file")])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_rename_that_is_refused_for_certain_changes_nothing(when: str, error: TransportError) -> None:
    """Where the old root is there still; what is refused later has an unknown outcome."""

    class Refusing(Stepwise):
        def rename(self, source: str, target: str) -> None:
            if when == "before" and target == "root":
                raise error
            super().rename(source, target)

        def sync_directory(self, path: str) -> None:
            if when == "after" and not path:
                raise error
            super().sync_directory(path)

    inner = MemoryTransport()
    make(Lockless(inner), {MAIN: tip(1)}, "a")
    before = inner.get("a/root")
    with pytest.raises(type(error) if when == "before" else OutcomeUnknown):
        push(RootFile(Refusing(Lockless(inner)), "a"), {MAIN: tip(2)}, 1)
    assert (inner.get("a/root") == before) == (when == "before")
    assert inner.list_directory("a/lock") == []

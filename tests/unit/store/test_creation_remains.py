"""store.creation, store.remains: no repository is made over what is left of one, and nothing of that is deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from builders import MAIN, Clock, History, Repeatable, create, push, request_id, upload
from faulty_transport import FaultyTransport

from smartserver.errors import CorruptFile, InvalidPath, OutcomeUnknown
from smartserver.store.remains import describe_place
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports.base import Transport, WriteFile
from transports.decorators.passing import PassingTransport
from transports.errors import TransportError
from transports.memory import Aftermath, MemoryTransport

DAYS = 3 * 24 * 3600.0


def files(transport: Transport, path: str) -> dict[str, bytes]:
    """Every file below a folder."""
    found = {}
    for name in transport.list_directory(path):
        below = f"{path}/{name}"
        try:
            found.update(files(transport, below))
        except TransportError:
            found[below] = transport.get(below)
    return found


@pytest.mark.parametrize("pushes", [1, 2])
@pytest.mark.parametrize("lost", ["root", "format"])
def test_a_repository_that_lost_a_file_is_not_replaced(lost: str, pushes: int) -> None:
    clock = Clock()
    storage, history = MemoryTransport(clock=clock), History()
    repository = PackRepository(storage, "project", clock=clock, randomness=Repeatable())
    line = history.line(4)
    for tip in (1, 3)[:pushes]:
        push(repository, history, line[: tip + 1], {MAIN: line[tip]})
    before = storage.get(f"project/{lost}")
    storage.delete(f"project/{lost}")
    left = files(storage, "project")
    other = PackRepository(storage, "project", clock=clock, randomness=Repeatable(1))
    clock.now += DAYS
    with pytest.raises(InvalidPath, match=r"'packs' files and no 'root'|a root and no 'format'"):
        push(other, history, line[:1], {MAIN: line[0]})
    with pytest.raises(CorruptFile, match="it is gone, and there is"):
        other.collect_garbage_files()
    assert files(storage, "project") == left
    storage.put(f"project/{lost}", [before])
    assert PackRepository(storage, "project").snapshot().state.refs()[MAIN][0].id == line[2 * pushes - 1]
    assert other.verify().problems == ()


@pytest.mark.parametrize("power", [None, *Aftermath])
def test_a_creation_that_was_cut_short_is_taken_over(power: Aftermath | None) -> None:
    """Wherever that was, and whether the power went too: no pack is there without a root."""
    done, fail_at = False, 0
    while not done:
        fail_at += 1
        done = cut_short(fail_at, power)
    assert fail_at > 20


def cut_short(fail_at: int, power: Aftermath | None) -> bool:
    """Die at one call of a creation with a push, and do both again; whether there were fewer calls."""
    history, clock = History(), Clock()
    line = history.line(2)
    storage = MemoryTransport(clock=clock)
    faulty = FaultyTransport(storage, fail_at=fail_at, mode="die")
    with contextlib.suppress(TransportError, OutcomeUnknown):
        push(PackRepository(faulty, "a/b", clock=clock, randomness=Repeatable()), history, line, {MAIN: line[1]})
    left = storage if power is None else storage.crash(power, fail_at)
    assert describe_place(left, "a/b") == ""
    again = PackRepository(left, "a/b", clock=clock, randomness=Repeatable(7))
    if not again.exists():
        push(again, history, line, {MAIN: line[1]})
    assert again.snapshot().state.refs()[MAIN][0].id == line[1]
    again.collect_garbage_files()
    assert again.verify().problems == ()
    return faulty.calls < fail_at


class Interposed(PassingTransport):
    """Does something else just before one of its calls, once."""

    def __init__(self, inner: Transport, call: str, path: str, act: Callable[[], object], *, prefix: str = "") -> None:
        super().__init__(inner, prefix=prefix)
        self._when, self._act = (call, path), act

    def wrap(self, inner: Transport, prefix: str) -> Interposed:
        return Interposed(inner, *self._when, self._once, prefix=prefix)

    def _once(self) -> None:
        act, self._act = self._act, lambda: None
        act()

    def _before(self, call: str, path: str) -> None:
        if (call, path) == self._when:
            self._once()

    def lock(self, path: str, wait: float | None = None) -> AbstractContextManager[None]:
        self._before("lock", path)
        return self.inner.lock(path, wait)

    def create(self, path: str) -> WriteFile:
        self._before("create", path.partition(".")[0])
        return self.inner.create(path)

    def sync_directory(self, path: str) -> None:
        self._before("sync_directory", path)
        self.inner.sync_directory(path)

    def rename(self, source: str, target: str) -> None:
        if ("renamed", target) == self._when:
            self.inner.rename(source, target)
            self._once()
        else:
            self.inner.rename(source, target)


class Stopped(Exception):
    """The moment at which the power goes."""


def stop() -> None:
    raise Stopped


@pytest.mark.parametrize("power", Aftermath)
@pytest.mark.parametrize("seed", range(4))
def test_who_finds_a_tombstone_waits_until_it_is_durable(power: Aftermath, seed: int) -> None:
    """Of two that make a repository the second publishes nothing before the first has synced."""
    history, clock, storage = History(), Clock(), MemoryTransport()
    line = history.line(2)
    left: list[MemoryTransport] = []

    def second() -> None:
        with contextlib.suppress(Stopped):
            to_the_lock = PackRepository(Interposed(storage, "lock", "lock", stop), "a", randomness=Repeatable(5))
            push(to_the_lock, history, line, {MAIN: line[1]})
        left.append(storage.crash(power, seed))
        raise Stopped

    first = Interposed(storage, "renamed", "root", second)
    with pytest.raises(Stopped):
        push(PackRepository(first, "a", clock=clock, randomness=Repeatable()), history, line, {MAIN: line[1]})
    (after,) = left
    assert describe_place(after, "a") == ""
    push(PackRepository(after, "a", clock=clock, randomness=Repeatable(9)), history, line, {MAIN: line[1]})


def test_a_creation_that_failed_is_in_nobodys_way() -> None:
    """Its tombstone is no repository: there may be others below, and then it can be made no more."""
    history, storage = History(), MemoryTransport()
    line = history.line(2)
    with pytest.raises(Stopped):
        push(PackRepository(Interposed(storage, "sync_directory", "team/packs", stop), "team"), history, line)
    assert storage.exists("team/root")
    push(PackRepository(storage, "team/project", randomness=Repeatable(3)), history, line, {MAIN: line[1]})
    with pytest.raises(InvalidPath, match="a repository is below it at 'project'"):
        push(PackRepository(storage, "team", randomness=Repeatable(4)), history, line, {MAIN: line[1]})


@pytest.mark.parametrize(("call", "path"), [("lock", "lock"), ("create", "format"), ("create", "root")])
@pytest.mark.parametrize("empty_folder", [False, True])
def test_one_that_is_given_up_takes_nothing_from_another(call: str, path: str, empty_folder: bool) -> None:
    """One has a body in quarantine and is given up at any moment of another's that has none."""
    history, storage = History(), MemoryTransport()
    if empty_folder:
        storage.make_directory("a")
    line = history.line(2)
    given_up = upload(PackRepository(storage, "a", randomness=Repeatable()), history.body(line), 2)
    other = PackRepository(Interposed(storage, call, path, given_up.abandon), "a", randomness=Repeatable(4))
    assert other.commit(request_id(), 0, "user", made).changed
    assert storage.list_directory("a") == ["format", "incoming", "lock", "log", "packs", "root", "tables"]
    push(PackRepository(storage, "a", randomness=Repeatable(5)), history, line, {MAIN: line[1]})


def made(transaction: Transaction) -> bytes:
    create(transaction)
    return b""

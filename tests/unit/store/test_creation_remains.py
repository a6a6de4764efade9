"""store.creation: no repository is made over the rest of one, and nothing of that is deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from builders import MAIN, Clock, Far, History, Repeatable, Stepwise, create, push, refs_of, request_id, upload
from faulty_transport import FaultyTransport
from memory_transport import Aftermath, MemoryTransport

from smartserver.errors import InvalidPath, OutcomeUnknown
from smartserver.store.format import LINE
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports.base import Transport
from transports.errors import TransportError

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


def test_a_repository_that_lost_its_format_is_not_replaced() -> None:
    clock = Clock()
    storage, history = MemoryTransport(clock=clock), History()
    repository = PackRepository(storage, "project", clock=clock, randomness=Repeatable())
    line = history.line(2)
    push(repository, history, line, {MAIN: line[1]})
    storage.delete("project/format")
    left = files(storage, "project")
    other = PackRepository(storage, "project", clock=clock, randomness=Repeatable(1))
    clock.now += DAYS
    with pytest.raises(InvalidPath, match="'packs' files and no 'format': restore that file"):
        push(other, history, line[:1], {MAIN: line[0]})
    assert other.collect_garbage_files() == 0
    assert files(storage, "project") == left
    storage.put("project/format", [LINE])
    assert refs_of(PackRepository(storage, "project")) == {MAIN: line[1]}
    assert other.verify().problems == ()


@pytest.mark.parametrize("way", [lambda store: store, Far])
@pytest.mark.parametrize("power", [None, *Aftermath])
def test_a_creation_that_was_cut_short_is_taken_over(
    power: Aftermath | None, way: Callable[[Transport], Transport]
) -> None:
    """Wherever that was, and whether the power went too: no pack is there without a `format`."""
    done, fail_at = False, 0
    while not done:
        fail_at += 1
        done = cut_short(fail_at, power, way)
    assert fail_at > 20


def cut_short(fail_at: int, power: Aftermath | None, way: Callable[[Transport], Transport]) -> bool:
    """Die at one call of a creation with a push, and do both again; whether there were fewer calls."""
    history, clock = History(), Clock()
    line = history.line(2)
    storage = MemoryTransport(clock=clock)
    faulty = FaultyTransport(storage, fail_at=fail_at, mode="die")
    with contextlib.suppress(TransportError, OutcomeUnknown):
        push(PackRepository(way(faulty), "a/b", clock=clock, randomness=Repeatable()), history, line, {MAIN: line[1]})
    left = storage if power is None else storage.crash(power, fail_at)
    assert PackRepository(left, "a/b").describe_place() == ""
    again = PackRepository(left, "a/b", clock=clock, randomness=Repeatable(7))
    if not again.exists():
        push(again, history, line, {MAIN: line[1]})
    assert again.snapshot().state.refs()[MAIN][0].id == line[1]
    again.collect_garbage_files()
    assert again.verify().problems == ()
    return faulty.calls < fail_at


class Interposed(Stepwise):
    """Does something just before a call of that name on a path that ends so, once."""

    def __init__(self, inner: Transport, call: str, path: str, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._when, self._act = (call, path), [act]

    def before(self, call: str, path: str) -> None:
        if call == self._when[0] and path.endswith(self._when[1]) and self._act:
            self._act.pop()()


class Stopped(Exception):
    """The moment at which the power goes."""


def stop() -> None:
    raise Stopped


def test_a_creation_that_failed_is_in_nobodys_way() -> None:
    """Its place is no repository: there may be others below, and then it can be made no more."""
    history, storage = History(), MemoryTransport()
    line = history.line(2)
    with pytest.raises(Stopped):
        push(PackRepository(Interposed(storage, "sync_directory", "team/packs", stop), "team"), history, line)
    assert storage.exists("team/format")
    push(PackRepository(storage, "team/project", randomness=Repeatable(3)), history, line, {MAIN: line[1]})
    with pytest.raises(InvalidPath, match="a repository is below it at 'project'"):
        push(PackRepository(storage, "team", randomness=Repeatable(4)), history, line, {MAIN: line[1]})


@pytest.mark.parametrize(
    ("call", "path"), [("list_directory", "a"), ("sync_directory", "a"), ("link", "log/0000000002")]
)
def test_one_that_is_given_up_takes_nothing_from_another(call: str, path: str) -> None:
    """One has a body in quarantine and is given up at any moment of another's that has none."""
    history, storage = History(), MemoryTransport()
    line = history.line(2)
    given_up = upload(PackRepository(storage, "a", randomness=Repeatable()), history.body(line), 2)
    other = PackRepository(Interposed(storage, call, path, given_up.abandon), "a", randomness=Repeatable(4))
    assert other.commit(request_id(), 0, "user", made).changed
    assert storage.list_directory("a/packs") == storage.list_directory("a/incoming") == []
    push(PackRepository(storage, "a", randomness=Repeatable(5)), history, line, {MAIN: line[1]})


def made(transaction: Transaction) -> bytes:
    create(transaction)
    return b""

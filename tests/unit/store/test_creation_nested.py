"""store.creation: of two creations at once, one in the other, at most one makes a repository."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from functools import partial

import pytest
from builders import MAIN, Clock, Far, History, Repeatable, check_whole, create, push, refs_of, request_id
from changes import change
from interrupted import Interrupted, call_number
from memory_transport import MemoryTransport

from smartserver.errors import InvalidPath, NestedRepository
from smartserver.store.checkpoint import clean_log, make_checkpoint
from smartserver.store.creation import Creation
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports.base import Transport
from transports.errors import TransportError

OUTER = "a"


def made(storage: Transport, path: str, history: History, seed: int = 0) -> bool:
    """Tell whether a creation succeeds."""
    line = history.line(1, None, path)
    repository = PackRepository(storage, path, randomness=Repeatable(seed))
    with contextlib.suppress(InvalidPath, NestedRepository):
        push(repository, history, line, {MAIN: line[0]})
        return True
    return False


def live(storage: Transport, path: str) -> bool:
    with contextlib.suppress(TransportError):
        return PackRepository(storage, path).begin().exists
    return False


def deleted(storage: Transport, path: str) -> None:
    """Leave a deleted repository at a place."""
    assert made(storage, path, History(), 9)
    PackRepository(storage, path, randomness=Repeatable(8)).delete(b"", 0, "user")


def half_made(storage: Transport) -> None:
    """Leave a place without a repository, and an upload that was cut short, at the inner place."""
    Creation(storage, "a/b", Repeatable(7), time.time).perform([])
    storage.put("a/b/incoming/upload.pack", [b"half"])


BEFORE: dict[str, Callable[[Transport], object]] = {
    "nothing": lambda storage: None,
    "an empty folder": lambda storage: storage.make_directory(OUTER),
    "a deleted one": partial(deleted, path=OUTER),
    "a deleted one inside": partial(deleted, path="a/b"),
    "a half-made one inside": half_made,
}
CASES = [
    ("nothing", "a/b", True, False),
    ("a deleted one", "a/b", False, False),
    ("a deleted one inside", "a/b", False, False),
    ("a deleted one inside", "a/b/c", False, False),
    ("a half-made one inside", "a/b", True, False),
    pytest.param("a deleted one inside", "a/b", True, True, marks=pytest.mark.long),
    pytest.param("nothing", "a/b/c", True, False, marks=pytest.mark.long),
    pytest.param("an empty folder", "a/b", True, False, marks=pytest.mark.long),
    pytest.param("nothing", "a/b", False, True, marks=pytest.mark.long),
]


@pytest.mark.parametrize("outer_first", [True, False], ids=["outer first", "inner first"])
@pytest.mark.parametrize(("before", "inner", "links", "far"), CASES)
def test_one_of_two_is_refused_at_any_moment(
    before: str, inner: str, links: bool, far: bool, outer_first: bool
) -> None:
    """The whole second creation comes before each call of the first. `far`: the first works behind a link."""
    one, other = (OUTER, inner) if outer_first else (inner, OUTER)
    for at in itertools.count(1):
        storage, history = MemoryTransport(links=links), History()
        BEFORE[before](storage)
        came: list[bool] = []

        def second(storage: Transport = storage, history: History = history, came: list[bool] = came) -> None:
            came.append(made(storage, other, history, 5))

        watched = Interrupted(storage, call_number(at), second)
        first = made(Far(watched) if far else watched, one, history)
        found = [live(storage, OUTER), live(storage, inner)]
        where = f"before call {at}"
        assert sum(found) == 1, where
        assert sorted([first, *came]) == ([False, True] if came else [True]), where
        check_whole(PackRepository(storage, OUTER if found[0] else inner), history)
        if watched.acts:
            break
    assert at > 20


def test_a_change_that_turns_into_a_creation_looks_below() -> None:
    """It was planned on the repository that is deleted meanwhile, and one is made below."""
    storage, history = MemoryTransport(), History()
    assert made(storage, OUTER, history, 1)

    def meanwhile() -> None:
        PackRepository(storage, OUTER, randomness=Repeatable(2)).delete(request_id(), 0, "user")
        assert made(storage, "a/b", history, 3)

    def recreate(transaction: Transaction) -> None:
        create(transaction)
        transaction.set_setting("description", b"new")

    busy = Interrupted(storage, lambda call, path: call == "link" and path.startswith("a/log/"), meanwhile)
    repository = PackRepository(busy, OUTER, randomness=Repeatable(4))
    with pytest.raises(InvalidPath, match="a repository is below it at 'b'"):
        change(repository, recreate)
    assert [live(storage, OUTER), live(storage, "a/b")] == [False, True]


@pytest.mark.parametrize("far", [False, True])
def test_one_that_was_stopped_for_days_follows_what_came_meanwhile(far: bool) -> None:
    """The first records of the other are deleted by then, so their numbers are free again."""
    clock, history = Clock(), History()
    storage = MemoryTransport(clock=clock)
    storage.make_directory(OUTER)

    def meanwhile() -> None:
        other, last = PackRepository(storage, OUTER, randomness=Repeatable(2), clock=clock), None
        for number in range(30):
            (last,) = history.line(1, last, f"{number}")
            push(other, history, [last], {MAIN: last})
            clock.now += 3600
            head = other.log.look()
            other.log.checkpointed(make_checkpoint(other.folder, head.state, other.randomness))
            clean_log(other.folder, other.randomness)

    watched = Interrupted(storage, lambda call, path: call == "make_directory" and path.startswith("a/"), meanwhile)
    stopped = PackRepository(Far(watched) if far else watched, OUTER, randomness=Repeatable(4), clock=clock)
    (own,) = history.line(1, None, "own")
    push(stopped, history, [own], {b"refs/heads/own": own})
    assert not storage.exists("a/log/0000000002")
    assert set(refs_of(PackRepository(storage, OUTER))) == {MAIN, b"refs/heads/own"}

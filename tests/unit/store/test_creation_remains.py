"""store.creation: no repository is made over what is left of one, and nothing of that is deleted."""

from __future__ import annotations

import contextlib

import pytest
from builders import MAIN, Clock, History, Repeatable, push

from smartserver.errors import CorruptFile, InvalidPath, OutcomeUnknown
from smartserver.store.creation import instead
from smartserver.store.repository import PackRepository
from transports.base import Transport
from transports.decorators.faulty import FaultyTransport
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
    with pytest.raises(CorruptFile, match="the folder holds"):
        other.collect_garbage_files()
    assert files(storage, "project") == left
    storage.put(f"project/{lost}", [before])
    assert PackRepository(storage, "project").snapshot().view.refs()[MAIN][0].id == line[2 * pushes - 1]
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
    assert instead(left, "a/b") == ""
    again = PackRepository(left, "a/b", clock=clock, randomness=Repeatable(7))
    if not again.exists():
        push(again, history, line, {MAIN: line[1]})
    assert again.snapshot().view.refs()[MAIN][0].id == line[1]
    again.collect_garbage_files()
    assert again.verify().problems == ()
    return faulty.calls < fail_at

"""store.verify.mend: what is stored on a client's word is named, and mended in as many requests as it takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from builders import MAIN, History, create, push
from bzr_builders import TRUNK, BzrHistory
from memory_transport import MemoryTransport

from smartserver.records.model import Tip
from smartserver.store import verify as module
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.store.verify import mend

V1 = b"refs/tags/v1"


def store(repository: PackRepository, change: Callable[[Transaction], None], patch: pytest.MonkeyPatch) -> None:
    """Make a change as an earlier release did, which proved nothing."""

    def plan(transaction: Transaction) -> bytes:
        change(transaction)
        return b""

    with patch.context() as inner:
        inner.setattr(Transaction, "prove_tips", lambda self: None)
        assert repository.commit(b"r" * 16, 0, "eve", plan).changed


def mended(repository: PackRepository) -> list[str]:
    """Mend all of it; the lines of each request but the last one."""
    said: list[str] = []
    left = True

    def plan(transaction: Transaction) -> bytes:
        nonlocal left
        lines, left = mend(transaction)
        said.extend(lines)
        return b""

    number = 0
    while left:
        number += 1
        repository.commit(b"%016d" % number, 0, "admin", plan)
    return said


@pytest.fixture
def repository(history: History) -> PackRepository:
    repository = PackRepository(MemoryTransport(), "project")
    line = history.line(2)
    tag = history.tag(line[0])
    push(repository, history, [*line, tag], {MAIN: line[1], V1: tag}, first=create)
    return repository


def test_attributes_are_proved_anew(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = list(history.parents)
    right = dict(repository.snapshot().state.refs().items())

    def claims(transaction: Transaction) -> None:
        transaction.set_ref(V1, (Tip(line[2], line[1]),))
        transaction.set_ref(MAIN, (Tip(line[1], b"x" * 3000, closed=True),))

    store(repository, claims, monkeypatch)
    problems = repository.verify().problems
    assert [each.partition(" has ")[0] for each in problems] == [
        "log: the ref refs/heads/main",
        "log: the ref refs/tags/v1",
    ]
    assert all(each.endswith("(smartserver verify --mend puts it right)") and len(each) < 400 for each in problems)
    assert len(mended(repository)) == 2
    assert dict(repository.snapshot().state.refs().items()) == right
    assert (mended(repository), repository.verify().problems) == ([], ())


def test_numbers_are_counted_from_the_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that others were counted from was claimed, too."""
    history, repository = BzrHistory(), PackRepository(MemoryTransport(), "project")
    line = history.line(6)
    history.push(repository, line[:4], {TRUNK: Tip(line[3])})
    store(repository, lambda made: made.set_ref(TRUNK, (Tip(line[3], b"2"),)), monkeypatch)
    history.push(repository, line[4:], {TRUNK: Tip(line[5]), b"old": Tip(line[4])})
    assert len(mended(repository)) == 2
    assert [value[0].attributes for value in repository.snapshot().state.refs().values()] == [b"5", b"6"]


@pytest.mark.parametrize("most", [1, 2, 100])
def test_maps_lose_what_they_cannot_have(
    repository: PackRepository, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(module, "MOST", most)

    def claims(transaction: Transaction) -> None:
        for key in (b"a", b"b", b"c"):
            transaction.set_map("junk", "ids", key, b"value")
        transaction.set_map("tags", "ids", b"of no ref", b"value")
        transaction.set_map("tags", "ids", MAIN + b"\0v1", b"value")
        transaction.set_map("notes", "opaque", b"note", b"value")
        transaction.declared |= {"notes": "ids", "empty": "opaque"}

    store(repository, claims, monkeypatch)
    said = mended(repository)
    assert said.count("the map 'notes' is declared ids; it is opaque") == 1
    assert {each for each in said if "none of" in each} == {
        f"the map {name!r} is none of git sha1" for name in ("empty", "junk")
    }
    counts = {1: ["1 of 3", "1 of 2", "1"], 2: ["2 of 3", "1"], 100: ["3"]}[most]
    begun = [each.partition(", as ")[0] for each in said]
    assert [each for each in begun if each.startswith("the map 'junk' has")] == [
        f"the map 'junk' has entries that it cannot have: {count}" for count in counts
    ]
    view = repository.snapshot().state
    assert {name: dict(entries.items()) for name, entries in view.maps.items()} == {
        "tags": {MAIN + b"\0v1": b"value"},
        "notes": {b"note": b"value"},
    }
    assert (view.map_kind("notes"), repository.verify().problems) == ("opaque", ())

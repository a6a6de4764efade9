from __future__ import annotations

import random

import pytest
from bzr_builders import TRUNK, BzrHistory
from calls import calls_of
from lines import Lines
from memory_transport import MemoryTransport

from smartserver.records.model import Tip
from smartserver.store.allowance import Allowance
from smartserver.store.content import SnapshotView
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.vcs.bzr.left_hand import MAX_DIGITS, count_lines, left_hand, number_in


@pytest.fixture
def moment() -> SnapshotView:
    history, repository = BzrHistory(), PackRepository(MemoryTransport(), "project")
    line = history.line(5)
    grafted = history.commit({b"f": b"grafted"}, [line[4]], [b"ghost"], ghost_first=True)
    later = history.commit({b"f": b"later"}, [grafted])
    history.push(repository, history.parents, {TRUNK: Tip(later)})
    transaction = repository.begin()
    return SnapshotView(transaction.refs, transaction.map, repository.snapshot(), Allowance())


def test_where_it_ends(moment: SnapshotView) -> None:
    assert list(left_hand(moment, 4)) == [4, 3, 2, 1, 0]
    assert list(left_hand(moment, 6)) == [6, 5]


def test_it_is_walked_as_far_as_it_is_read(moment: SnapshotView, monkeypatch: pytest.MonkeyPatch) -> None:
    walked = calls_of(monkeypatch, Snapshot, "first_parent", lambda _, ordinal: ordinal)
    line = left_hand(moment, 4)
    assert (next(line), walked) == (4, [])
    assert (next(line), next(line), walked) == (3, 2, [4, 3])


@pytest.mark.parametrize(
    ("attributes", "number"),
    [(b"7", 7), (b"", 0), (b"new", 0), (b"-1", 0), (b"9" * MAX_DIGITS, 10**MAX_DIGITS - 1), (b"9" * 3000, 0)],
)
def test_the_number_that_attributes_say(attributes: bytes, number: int) -> None:
    assert number_in(attributes) == number


ROW = {b"%d" % number: b"%d" % (number - 1) if number > 1 else None for number in range(1, 101)}


def test_numbers_are_the_lengths_of_lines() -> None:
    parents = {**ROW, b"side": b"7", b"graft": b"ghost", b"later": b"graft"}
    assert count_lines(Lines(parents), [b"100", b"side", b"later", b"none", b"1"]) == [100, 8, 2, 0, 1]


@pytest.mark.parametrize(
    ("known", "most"),
    [
        ([Tip(b"99", b"99")], 1),  # A push on top.
        ([Tip(b"90", b"90")], 10),
        ([Tip(b"100", b"100")], 0),
        ([Tip(b"side", b"8"), Tip(b"99", b"99")], 3),
    ],
)
def test_a_number_is_counted_from_the_nearest_one_that_is_proved(known: list[Tip], most: int) -> None:
    lines = Lines({**ROW, b"side": b"7"}, known)
    assert count_lines(lines, [b"100"]) == [100]
    assert lines.steps <= most


def test_a_branch_begun_a_little_below_a_tip_is_counted_from_there() -> None:
    lines = Lines({**ROW, b"topic": b"95"}, [Tip(b"100", b"100")])
    assert count_lines(lines, [b"topic"]) == [96]
    assert lines.steps <= 6


@pytest.mark.parametrize("claimed", [b"101", b"9" * 15, b"9" * 3000, b"", b"x", b"0"])
def test_a_stored_number_that_cannot_be_is_none(claimed: bytes) -> None:
    assert count_lines(Lines(ROW, [Tip(b"100", claimed)]), [b"100"]) == [100]


@pytest.mark.parametrize("seed", range(20))
def test_any_proved_tips_give_the_same_numbers(seed: int) -> None:
    chance = random.Random(seed)
    parents: dict[bytes, bytes | None] = {}
    for number in range(60):
        ends = number == 0 or chance.random() < 0.05
        parents[b"%d" % number] = None if ends else b"%d" % chance.randrange(max(0, number - 9), number)
    names = list(parents)
    numbers = dict(zip(names, count_lines(Lines(parents), names), strict=True))
    for name, parent in parents.items():
        assert numbers[name] == (1 if parent is None else numbers[parent] + 1), seed
    tips = chance.sample(names, 8)
    known = [Tip(name, b"%d" % numbers[name]) for name in chance.sample(names, 6)]
    assert count_lines(Lines(parents, known), tips) == [numbers[tip] for tip in tips], seed

from __future__ import annotations

import itertools
from functools import partial

import pytest
from log_builders import begin_log, contents, judge
from memory_transport import MemoryTransport

from smartserver.store import checkpoint
from smartserver.store.checkpoint import FEW, FLOOR_AGE, MANY, SHARE, Since, clean_log, is_due, make_checkpoint
from smartserver.store.format import LOG
from smartserver.store.log import Log


class Site:
    """A log, its store and its clock."""

    def __init__(self) -> None:
        self.now = 1e9
        self.store = MemoryTransport(clock=lambda: self.now)
        begin_log(self.store)
        self._names = itertools.count()
        self.log = Log(self.store, "r", self.name)

    def name(self, size: int) -> bytes:
        return next(self._names).to_bytes(size, "big")

    def carry_out(self, *numbers: int) -> None:
        for number in numbers:
            self.log.append(self.log.look(), partial(judge, number))

    def checkpoint(self) -> None:
        make_checkpoint(self.store, self.log.look().state, self.name)

    def clean(self) -> int:
        return clean_log(self.store, self.name)

    @property
    def records(self) -> list[int]:
        return [int(name) for name in self.store.list_directory(LOG)]

    @property
    def checkpoints(self) -> list[int]:
        return [int(name.partition("-")[0]) for name in self.store.list_directory("checkpoints")]


@pytest.mark.parametrize(
    ("records", "size", "checkpoint", "due"),
    [
        (FEW - 1, 10**9, 0, False),
        (FEW, 100, 100 * SHARE, True),
        (FEW, 100, 100 * SHARE + 1, False),
        (MANY, 0, 10**9, True),
    ],
)
def test_when_a_checkpoint_is_due(records: int, size: int, checkpoint: int, due: bool) -> None:
    assert is_due(Since(records, size, checkpoint=checkpoint)) == due


def test_records_are_deleted_below_an_old_checkpoint_that_is_not_the_newest() -> None:
    site = Site()
    site.carry_out(1, 2)
    site.checkpoint()
    assert site.clean() == 0
    site.now += FLOOR_AGE + 1
    assert site.clean() == 0, "the newest may rot"
    site.carry_out(3)
    site.checkpoint()
    site.carry_out(4)
    assert site.clean() == 2
    assert (site.records, site.checkpoints) == ([3, 4, 5], [3, 4])
    site.carry_out(5)
    site.checkpoint()
    assert site.clean() == 0, "that of record 4 is not an hour old"
    site.now += FLOOR_AGE
    site.checkpoint()  # The same again, whose file tells the time.
    assert site.clean() == 1
    assert (site.records, site.checkpoints) == ([4, 5, 6], [4, 6])
    assert contents(Log(site.store, "r", site.name).look().state) == [1, 2, 3, 4, 5]
    assert site.store.list_directory("incoming") == []


@pytest.mark.parametrize("harm", ["damaged", "of another log"])
def test_nothing_is_deleted_below_what_is_no_floor(harm: str) -> None:
    site = Site()
    site.carry_out(1)
    site.checkpoint()
    path = f"checkpoints/{site.store.list_directory('checkpoints')[0]}"
    content = site.store.get(path)
    site.store.delete(path)
    if harm == "damaged":
        site.store.put(path, [content[:-1]])
    else:
        site.store.put(f"{path[:-32]}{'ab' * 16}", [content])
    site.now += 2 * FLOOR_AGE
    site.carry_out(2)
    site.checkpoint()
    assert site.clean() == 0
    assert site.records == [1, 2, 3]


def test_two_at_once_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    site.carry_out(*range(1, 9))
    site.checkpoint()
    site.now += FLOOR_AGE
    site.carry_out(9)
    site.checkpoint()
    floor = checkpoint._floor

    def another_first(*arguments: object) -> int | None:
        monkeypatch.setattr(checkpoint, "_floor", floor)
        site.clean()
        return floor(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint, "_floor", another_first)
    assert site.clean() == 0
    assert site.records == [9, 10]

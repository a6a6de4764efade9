"""The store and a second implementation, written from the specification alone, say the same of one repository."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from builders import MAIN, Clock, History, Repeatable, check_whole, push, request_id
from changes import change
from second_store import SecondStore, State

from smartserver.records.model import Tip
from smartserver.store import history
from smartserver.store.checkpoint import clean_log, decode_checkpoint, encode_checkpoint, make_checkpoint
from smartserver.store.record import Change, Entry
from smartserver.store.repository import PackRepository
from smartserver.store.state import encode_value, following
from smartserver.store.transaction import Transaction
from transports.local import LocalTransport

STEPS = 40


class Site:
    """One repository, and both."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.clock, self.history = Clock(), History()
        self.ours = PackRepository(LocalTransport(folder), clock=self.clock, randomness=Repeatable(seed))
        self.tip: bytes | None = None
        self.push()
        self.theirs = SecondStore(folder)

    def push(self) -> None:
        (self.tip,) = self.history.line(1, self.tip, f"{self.chance.random()}")
        push(self.ours, self.history, [self.tip], {MAIN: self.tip, self.name(): self.tip})

    def name(self) -> bytes:
        return b"refs/heads/\xff%d" % self.chance.randrange(5)

    def remove(self) -> None:
        push(self.ours, self.history, [], {self.name(): None})

    def configure(self) -> None:
        def configured(transaction: Transaction) -> None:
            transaction.set_setting("HEAD", self.name())
            transaction.set_map("notes", "opaque", self.name(), b"%d" % self.chance.randrange(3))

        change(self.ours, configured)

    def recreate(self) -> None:
        self.ours.delete(request_id(), 0, "user")
        self.tip = None
        self.push()

    def repack(self) -> None:
        """Somebody pushes meanwhile: that pack is behind the joined one."""
        pushes = [self.push]

        def look(*_progress: int) -> None:
            while pushes:
                pushes.pop()()

        self.ours.repack(look)

    def collect(self) -> None:
        self.clock.now += 25 * 3600
        self.ours.collect_garbage_files()

    def checkpoint(self) -> None:
        make_checkpoint(self.ours.folder, self.ours.log.look().state, self.ours.randomness)

    def clean(self) -> None:
        """With an hour between the last two checkpoints, by their files."""
        self.checkpoint()
        self.push()
        self.checkpoint()
        clean_log(self.ours.folder, self.ours.randomness)

    def together(self) -> None:
        """Two requests in one record, of which the second sees the first; a map is declared, or gone."""
        assert self.tip is not None
        state, name, value = self.ours.log.look().state, self.name(), encode_value((Tip(self.tip),))
        rows = [Change("maps", b"signatures", None, b"opaque"), Change("map/signatures", b"key", None, b"value")]
        if state.map_kind("signatures"):
            rows = [Change(each.table, each.key, each.new, None) for each in reversed(rows)]
        first = Change("refs", name, state.table("refs").get(name), b""), rows[0]
        second = Change("refs", name, b"", value), rows[1]
        entries = [Entry(request_id(), "two", b"", changes) for changes in (first, second)]
        self.ours.log.append(self.ours.log.look(), lambda state: following(state, self.clock.now, entries))

    def check(self) -> None:
        """Record by record, all at once, and from a checkpoint: each comes to the same state."""
        content = encode_checkpoint(self.ours.log.look().state)
        assert encode_checkpoint(PackRepository(LocalTransport(self.folder)).log.look().state) == content
        assert encode_checkpoint(decode_checkpoint(content, "")) == content
        self.theirs.state = self.theirs.look(self.theirs.state)
        for said in (self.theirs.state, SecondStore(self.folder).state, State.parse(content)):
            assert said.checkpoint() == content


@pytest.mark.parametrize("seed", range(4))
def test_both_say_the_same(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smartserver.store.checkpoint.FLOOR_AGE", -1.0)
    site = Site(tmp_path, seed)
    events = [
        *[site.push] * 5, site.remove, *[site.configure] * 3, site.recreate, site.repack, site.collect,
        *[site.clean] * 2, *[site.together] * 3,
    ]  # fmt: skip
    for _ in range(STEPS):
        site.chance.choice(events)()
        site.check()
    check_whole(PackRepository(LocalTransport(tmp_path), clock=site.clock), site.history)
    names = sorted((tmp_path / "log").iterdir())
    assert int(names[0].name) > 1, "the log was cleaned"


def test_both_forget_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 1,000 entries, over more than a day."""
    site = Site(tmp_path, 9)
    for number in range(history.KEPT_ENTRIES + 20):
        site.clock.now += 100
        push(site.ours, site.history, [], {b"refs/tags/1": site.tip if number % 2 else None})
    site.check()
    assert site.theirs.state.horizon != [0, 0, 0]

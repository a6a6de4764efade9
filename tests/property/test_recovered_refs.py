"""Random pushes, forced moves and deletions, and a record that is gone; or an older log put back, and pushes on top.
After a recovery what each ref was to be is there, under its name or as a recovered one."""

from __future__ import annotations

import random

import pytest
from builders import Clock, History, Repeatable, push, refs_of
from memory_transport import MemoryTransport

from smartserver.store import recovery
from smartserver.store.lost import find
from smartserver.store.record import record_path
from smartserver.store.repository import PackRepository

NAMES = [b"refs/heads/b%d" % number for number in range(4)]


class Pushing:
    """One client, and what it made."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.storage = MemoryTransport(self.clock)
        self.history = History()

    def repository(self) -> PackRepository:
        return PackRepository(self.storage, clock=self.clock, randomness=Repeatable(self.chance.randrange(1 << 30)))

    def commit(self, *parents: bytes) -> bytes:
        number = len(self.history.parents)
        return self.history.commit({f"f{number % 5}": b"text %d\n" % number * 20}, parents, f"c{number}")

    def step(self, *, pushes_only: bool = False) -> bytes:
        """Delete a ref, force it elsewhere or move it forward; which one."""
        repository, name, kind = self.repository(), self.chance.choice(NAMES), self.chance.random()
        refs = refs_of(repository)
        if kind < 0.15 and name in refs and not pushes_only:
            push(repository, self.history, [], {name: None})
            return name
        at = [refs[name]] if name in refs else []
        if kind < 0.45 and refs:
            elsewhere = self.chance.choice(sorted(refs.values()))
            at = list(self.history.parents[elsewhere]) or [elsewhere]
        tip = self.commit(*at)
        push(repository, self.history, [tip], {name: tip})
        if self.chance.random() < 0.1 and not pushes_only:
            repository.repack()
        return name

    def reached(self) -> set[bytes]:
        return self.history.ancestors(refs_of(self.repository()).values())


@pytest.mark.parametrize("gap", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_no_ref_is_lost_with_records(seed: int, gap: bool) -> None:
    """A record is gone: its change is in its pack. Or all new ones are: only what brought revisions is in packs."""
    client = Pushing(seed)
    first = client.commit()
    push(client.repository(), client.history, [first], {NAMES[0]: first})
    for _ in range(3):
        before, saved = refs_of(client.repository()), client.repository().snapshot().state.version
        tip = client.commit(*before.values())
        push(client.repository(), client.history, [tip], {NAMES[1]: tip})
        for _ in range(client.chance.randrange(1, 12)):
            client.step(pushes_only=not gap)
        lost = refs_of(client.repository())
        newest = saved + 1 if gap else client.repository().snapshot().state.version
        for number in range(saved + 1, newest + 1):
            client.storage.delete(record_path(number))
        moved = set() if gap else {client.step() for _ in range(client.chance.randrange(5))}
        since, repository = refs_of(client.repository()), client.repository()
        findings = find(client.storage)
        assert recovery.restore(repository, findings, findings.changes) == len(findings.changes)
        now, reached = refs_of(repository), client.reached()
        for name in NAMES:
            if name not in moved:
                assert now.get(name) == lost.get(name)
            elif name in since:
                assert since[name] in reached
            if name in lost and (lost[name] != before.get(name) or name not in moved):
                assert lost[name] in reached
        assert repository.verify().problems == ()
        assert not find(client.storage)

"""Copies of a repository are put back below servers that run, or copied over it: every server shows what there is then.

To put back is to replace the whole folder: then the repository is what it was. What is copied over a living one undoes
nothing, since no file is ever replaced.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from builders import MAIN, Clock, History, Repeatable, check_whole, push, refs_of, request_id
from memory_transport import MemoryTransport

from smartserver.store.checkpoint import FLOOR_AGE, clean_log, make_checkpoint
from smartserver.store.format import FOLDERS, FORMAT, INCOMING
from smartserver.store.repository import PackRepository

Refs = dict[bytes, bytes] | None
"""None: there is no repository."""

STEPS = 40


class Site:
    """A repository, the servers that serve it, and what it should be."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = Clock()
        self.storage = MemoryTransport(self.clock, links=seed % 2 == 0)
        self.history = History()
        self.line = self.history.line(1)
        self.refs: Refs = None
        self.copies: list[tuple[dict[str, bytes], Refs]] = []
        self.servers = [self.server(number) for number in range(3)]
        self.change()

    def server(self, seed: int) -> PackRepository:
        return PackRepository(self.storage, clock=self.clock, randomness=Repeatable(seed))

    @property
    def some(self) -> PackRepository:
        return self.chance.choice(self.servers)

    # -- what may happen

    def change(self) -> None:
        """A push, or the repository made again."""
        tip = (self.refs or {}).get(MAIN)
        (new,) = self.history.line(1, tip, f"{self.chance.random()}")
        name = self.chance.choice((MAIN, b"refs/heads/side"))
        push(self.some, self.history, [new], {name: new})
        self.refs = {**(self.refs or {}), name: new}

    def remove_ref(self) -> None:
        if self.refs:
            name = self.chance.choice(sorted(self.refs))
            push(self.some, self.history, [], {name: None})
            del self.refs[name]

    def delete(self) -> None:
        if self.refs is not None:
            self.some.delete(request_id(), 0, "user")
            self.refs = None

    def repack(self) -> None:
        if self.refs is not None:
            self.some.repack()

    def clean(self) -> None:
        server = self.some
        make_checkpoint(self.storage, server.log.look().state, server.randomness)
        self.clock.now += FLOOR_AGE
        clean_log(self.storage, server.randomness)

    def collect(self) -> None:
        self.clock.now += 24 * 3600
        self.some.collect_garbage_files()

    def restart(self) -> None:
        self.servers[self.chance.randrange(3)] = self.server(self.chance.randrange(1 << 30))

    def copy(self) -> None:
        self.copies.append((self.files(), None if self.refs is None else dict(self.refs)))

    def put_back(self) -> None:
        if self.copies:
            copy, self.refs = self.copies.pop(self.chance.randrange(len(self.copies)))
            for path in self.files():
                self.storage.withdraw(path, "old")
            self.add(copy)
            self.refs = None if self.refs is None else dict(self.refs)
            self.copies.clear()  # They may be of the line that is gone.

    def copy_over(self) -> None:
        if self.copies:
            self.add(self.chance.choice(self.copies)[0])

    # -- what is there

    def files(self) -> dict[str, bytes]:
        """Every file but uploads; of a record that is a folder, the file in it."""
        folders = [folder for folder in FOLDERS if folder != INCOMING]
        names = [f"{folder}/{name}" for folder in folders for name in self.storage.list_directory(folder)]
        return {path: self.storage.get_published(path) for path in (FORMAT, *names)}

    def add(self, files: dict[str, bytes]) -> None:
        for path, content in files.items():
            if not self.storage.exists(path):
                self.storage.put(path, [content])

    def check(self, what: str) -> None:
        for server in (*self.servers, self.server(9)):
            assert (refs_of(server) if server.exists() else None) == self.refs, what
        if self.refs is not None:
            check_whole(self.some, self.history)


@pytest.mark.parametrize("seed", range(12))
def test_random_histories(seed: int) -> None:
    site = Site(seed)
    events: list[Callable[[], None]] = [
        *[site.change] * 6, site.remove_ref, site.delete, site.repack, *[site.clean] * 2, site.collect, site.restart,
        *[site.copy] * 3, *[site.put_back] * 2, *[site.copy_over] * 2,
    ]  # fmt: skip
    done = []
    for _ in range(STEPS):
        event = site.chance.choice(events)
        event()
        done.append(event.__name__)
        site.check(f"seed {seed}: {' '.join(done)}")

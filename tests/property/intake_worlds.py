"""Histories at random, sound and hostile."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import ClassVar

from smartserver.records.check import make_check
from smartserver.records.delta import compress
from smartserver.records.model import BaseTag, Entry, Parent, RecordName
from smartserver.records.segment import encode_segment
from smartserver.records.system import System


class World(ABC):
    """Revisions at random, and segments that bring them."""

    system: ClassVar[System]
    odd: ClassVar[tuple[float, ...]] = (0.0, 0.003, 0.02)
    """How often something is odd in a sound history, in another one, and in an odd one."""
    again = 0.05
    """The share of records that are sent though an ancestor brought them."""

    def __init__(self, seed: int, oddness: float) -> None:
        self.chance = random.Random(seed)
        self.oddness = oddness
        self.texts: dict[RecordName, tuple[bytes, bytes]] = {}
        """Meta and text of each record."""
        self.parents: dict[bytes, list[bytes]] = {}
        self.named: dict[bytes, list[RecordName]] = {}
        """By its revision, all records that a tree needs."""
        self.sent: dict[bytes, set[RecordName]] = {}
        """By revision, what it and its ancestors brought."""

    def is_odd(self) -> bool:
        return self.chance.random() < self.oddness

    def some_parents(self, most: int) -> list[bytes]:
        return self.chance.sample([*self.parents], min(len(self.parents), self.chance.choice([0, 1, 1, 1, 1, 2, most])))

    @abstractmethod
    def commit(self) -> bytes:
        """Add a revision, and return its id."""

    def names(self, revision: bytes, known: set[RecordName]) -> list[RecordName]:
        """Return the records that the segment of a revision has: those that its ancestors did not bring, mostly."""
        return [
            name
            for name in dict.fromkeys(self.named[revision])
            if name in self.texts and (name not in known or self.chance.random() < self.again)
        ]

    def may_rest(self, name: RecordName, base: RecordName) -> bool:
        """Tell whether a record may have the other one as its base."""
        return name[0] == base[0]

    def segment(self, revision: bytes) -> bytes:
        """Return the segment of a revision; each record is on some base."""
        parents, kinds = self.parents[revision], self.system.kinds
        known = set[RecordName]().union(*[self.sent[parent] for parent in parents if parent in self.sent])
        names = self.names(revision, known)
        if self.is_odd():
            names.pop(self.chance.randrange(len(names)))
        if self.is_odd():
            names.append(self.chance.choice(sorted(self.texts.keys() - set(names)) or names[:1]))
        names = list(dict.fromkeys(names))
        entries, bodies = [], []
        for at, (kind, key) in enumerate(names):
            meta, text = self.texts[kind, key]
            if self.is_odd():
                text += b"another"  # Two texts of one key, if it came before or comes again.
            usable = [each for each in sorted({*known, *names[:at]}) if self.may_rest((kind, key), each)]
            base = self.chance.choice(usable)[1] if usable and self.chance.random() < 0.8 and kinds[kind].base else b""
            if self.is_odd() and kinds[kind].base:
                others = sorted(each[1] for each in self.texts if each[0] == kind)
                base = self.chance.choice([b"", self.chance.randbytes(20), self.chance.choice(others)])
            encoding, frame = compress(text, self.texts[kind, base][1] if (kind, base) in self.texts else b"")
            if base == key or not encoding:
                base = b""
                encoding, frame = compress(text)
            if self.is_odd() and frame:
                frame = frame[:-1] + bytes((frame[-1] ^ 1,))
            if self.is_odd():
                meta = self.chance.choice([meta[:-1], meta + b"\0", bytes(20), meta[20:] + meta[:20]])
            check = make_check(kinds[kind], key, meta, text)
            if self.is_odd():
                check = check[::-1]
            tag = BaseTag.FULL_KEY if base and encoding else BaseTag.NONE
            length = len(text) + self.is_odd()
            entry = Entry(kind, encoding, key, meta, tag, base if tag else b"", length, len(frame), check)
            entries.append(entry if encoding else entry._replace(length=len(frame)))
            bodies.append(frame)
        self.sent[revision] = known | set(names)
        named = [Parent(parent) for parent in parents]
        if self.is_odd() and named:
            named[0] = self.chance.choice([Parent(named[0].id, True), Parent(self.chance.randbytes(20))])
        return encode_segment(revision, named, entries, bodies, kinds)

    def history(self) -> list[bytes]:
        """Return the segments of a new history."""
        return [self.segment(self.commit()) for _ in range(self.chance.randrange(2, 25))]

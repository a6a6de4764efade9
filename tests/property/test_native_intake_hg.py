"""Histories of Mercurial's, sound and hostile, pushed to a server that proves them natively and to one that does it in
Python: both end in the same pack with the same index, or in the same error.
"""

from __future__ import annotations

import hashlib
import os
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from needs import needs
from twin_pushes import push_both_ways

from smartserver.records.delta import compress
from smartserver.records.model import BaseTag, Entry, Parent, RecordName
from smartserver.records.segment import encode_segment
from smartserver.vcs.hg.kinds import CHANGESET, FILE, KINDS, MANIFEST, NULL, file_key, meta_of, parents_of
from smartserver.vcs.hg.system import HgSystem

pytestmark = needs("native parts")

SYSTEM = HgSystem()
PLAIN = [b"a", b"a.b", b"a/b", b"ab", b"b", b"lib/x", b"lib.c", b"README", b".hgtags", b"z/.hg"]
ODD = [
    b".hg/x",
    b".HG",
    b".hg./y",
    b"a//b",
    b"/a",
    b"a/",
    b"a/../b",
    b"./a",
    b"..",
    b"x\ry",
    b"",
    b".hgsub/..a",
    b"...",
]
FLAGS = [b"", b"", b"x", b"l"]
ODD_FLAGS = [b"q", b"xl", b" ", b"X"]
DATES = [b"1200000000 -3600", b"0 0", b"-5 0 branch:stable", b"1 0 branch:x\0rebase_source:" + b"1" * 40]
ODD_DATES = [
    b"1.5 0", b"x 0", b"1", b"1 ", b"1 zone", b"1e999 0", b"1_0 0", b"1 0 close:1", b"1 0 a:\\0b:c", b"1 0 a:\\",
    b"1 0 a",
    b"1 0 a:\\xzz", b"1 0 a:\\x41", b"1 0 a:\\\\x", b"1 0 \0\0a:b", b"1 0 a:\\\0b:c", b"1 0 x:close:1", b"- 0", b"1 0 ",
    b"12345678901234567890 0",
]  # fmt: skip
ODD_TEXTS = [
    b"\1\ncensored: 1\n\1\n", b"\1\ncopy: a\ncopyrev: " + b"a" * 40 + b"\n\1\nx", b"\1\ncopy: a\n", b"\1\nx\n\1\n",
    b"\1\ncopy: a\ncopyrev: 12\n\1\n", b"\1\n\1\n", b"\1\ncopyrev: 12\n\1\n", b"\1\n\n\ncopy: a\n\1\n", b"",
    b"\1\ncopyrev: " + b"A" * 40 + b"\ncopy: \n\1\n", b"\1\ncopy: a\ncopyrev: " + b"g" * 40 + b"\n\1\n",
]  # fmt: skip


class World:
    """Changesets at random, and segments that bring them."""

    def __init__(self, seed: int, oddness: float) -> None:
        self.chance = random.Random(seed)
        self.oddness = oddness
        self.texts: dict[RecordName, tuple[bytes, bytes]] = {}
        """Meta and text of each record."""
        self.manifests: dict[bytes, dict[bytes, tuple[bytes, bytes]]] = {NULL: {}}
        """By its node, the node and flag of each path."""
        self.commits: dict[bytes, tuple[list[bytes], bytes]] = {}
        """Parents and manifest."""

    def is_odd(self) -> bool:
        return self.chance.random() < self.oddness

    def put(self, kind: int, meta: bytes, text: bytes, path: bytes = b"") -> bytes:
        """The node of a record."""
        node = hashlib.sha1(b"".join(sorted(parents_of(meta))) + text).digest()
        self.texts.setdefault((kind, file_key(path, node) if kind == FILE else node), (meta, text))
        return node

    def meta(self, *parents: bytes) -> bytes:
        first, second = [*dict.fromkeys(each for each in parents if each != NULL), NULL, NULL][:2]
        if self.is_odd():
            first, second = second, first
        if self.is_odd():
            first = self.chance.randbytes(20)
        return meta_of(first, second)

    def file(self, path: bytes, before: list[bytes]) -> bytes:
        lines = [b"line %d\n" % self.chance.randrange(9) for _ in range(self.chance.randrange(30))]
        text = b"".join(lines)
        if self.is_odd():
            text = self.chance.choice(ODD_TEXTS)
        elif not before and self.chance.random() < 0.3:
            text = b"\1\ncopy: a\ncopyrev: %b\n\1\n%b" % (self.chance.randbytes(20).hex().encode(), text)
        return self.put(FILE, self.meta(*before), text, path)

    def manifest(self, before: list[bytes]) -> bytes:
        below = [self.manifests.get(node, {}) for node in before]
        entries = dict(below[0]) if below else {}
        for _ in range(self.chance.randrange(1, 5)):
            path = self.chance.choice(ODD if self.is_odd() else PLAIN)
            if self.chance.random() < 0.2:
                entries.pop(path, None)
                continue
            node = self.file(path, [each[path][0] for each in below if path in each][:2])
            entries[path] = (NULL if self.is_odd() else node), self.chance.choice(ODD_FLAGS if self.is_odd() else FLAGS)
        lines = [b"%b\0%b%b\n" % (path, node.hex().encode(), flag) for path, (node, flag) in sorted(entries.items())]
        if self.is_odd():
            self.chance.shuffle(lines)
        if self.is_odd() and lines:
            lines.insert(self.chance.randrange(len(lines)), self.chance.choice([*lines, b"\n", b"x\n"]))
        if self.is_odd() and lines:
            lines[-1] = self.chance.choice([lines[-1][:-1], lines[-1].upper(), lines[-1][:-3] + b"\n"])
        node = self.put(MANIFEST, self.meta(*before), b"".join(lines))
        self.manifests[node] = entries
        return node

    def commit(self) -> bytes:
        parents = self.chance.sample([*self.commits], min(len(self.commits), self.chance.choice([0, 1, 1, 1, 1, 2])))
        manifest = self.manifest(
            [each for each in dict.fromkeys(self.commits[each][1] for each in parents) if each != NULL]
        )
        if self.is_odd():
            manifest = self.chance.choice([NULL, self.chance.randbytes(20)])
        named = manifest.hex().encode()
        lines = [
            named,
            b"A U Thor <a@example.org>",
            self.chance.choice(ODD_DATES if self.is_odd() else DATES),
            b"a",
            b"",
            b"%d" % len(self.commits),
        ]
        if self.is_odd():
            del lines[self.chance.randrange(len(lines))]
        if self.is_odd():
            lines[0] = self.chance.choice([named.upper(), named[:-1], b"g" * 40])
        node = self.put(CHANGESET, self.meta(*parents), b"\n".join(lines))
        self.commits[node] = parents, manifest
        return node

    def segment(self, commit: bytes, sent: dict[bytes, set[RecordName]]) -> bytes:
        """The segment of a changeset: what its ancestors did not bring, mostly; each record on some base."""
        parents, manifest = self.commits[commit]
        known = set[RecordName]().union(*[sent[parent] for parent in parents if parent in sent])
        names = [(CHANGESET, commit), (MANIFEST, manifest)]
        names += [(FILE, file_key(path, node)) for path, (node, _) in self.manifests.get(manifest, {}).items()]
        names = [
            name
            for name in dict.fromkeys(names)
            if name in self.texts and (name not in known or self.chance.random() < 0.05)
        ]
        if self.is_odd():
            names.pop(self.chance.randrange(len(names)))
        entries, bodies = [], []
        for at, (kind, key) in enumerate(names):
            meta, text = self.texts[kind, key]
            usable = sorted(each for each in {*known, *names[:at]} if each[0] == kind)
            base = self.chance.choice(usable)[1] if usable and self.chance.random() < 0.8 else b""
            if self.is_odd():
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
            tag = BaseTag.FULL_KEY if base and encoding else BaseTag.NONE
            length = len(text) + self.is_odd()
            entry = Entry(kind, encoding, key, meta, tag, base if tag else b"", length, len(frame), b"")
            entries.append(entry if encoding else entry._replace(length=len(frame)))
            bodies.append(frame)
        sent[commit] = known | set(names)
        named = [Parent(parent) for parent in parents]
        if self.is_odd() and named:
            named[0] = self.chance.choice([Parent(named[0].id, True), Parent(self.chance.randbytes(20))])
        return encode_segment(commit, named, entries, bodies, KINDS)


def history(seed: int, oddness: float) -> tuple[World, list[bytes]]:
    """A world, and the segments of its changesets."""
    world = World(seed, oddness)
    sent: dict[bytes, set[RecordName]] = {}
    return world, [world.segment(world.commit(), sent) for _ in range(world.chance.randrange(2, 25))]


EXAMPLES = int(os.environ.get("EXAMPLES", "150"))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([0.0, 0.0, 0.003, 0.02]), st.lists(st.integers(1, 3000), max_size=3))
def test_histories(seed: int, oddness: float, pieces: list[int]) -> None:
    world, segments = history(seed, oddness)
    stored = world.chance.choice([0, 0, len(segments) // 2])
    push_both_ways(SYSTEM, segments, pieces, stored, is_plain=not oddness)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 4))
def test_changed_bytes(seed: int, flips: int) -> None:
    world, segments = history(seed, 0.0)
    at = world.chance.randrange(len(segments))
    changed = bytearray(segments[at])
    for _ in range(flips):
        place = world.chance.randrange(1, len(changed))
        changed[place] = world.chance.choice([changed[place] ^ 1 << world.chance.randrange(8), 0, 1, 127, 128, 255])
    segments[at] = bytes(changed)
    push_both_ways(SYSTEM, segments, [], 0)

"""Histories of any kind, sound and hostile, pushed to a server that proves them natively and to one that does it in
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
from smartserver.records.model import BaseTag, Entry, Parent
from smartserver.records.segment import encode_segment
from smartserver.vcs.git.system import GIT as SYSTEMS

pytestmark = needs("native parts")

SYSTEM = SYSTEMS["git sha1"]
KINDS = SYSTEM.kinds
COMMIT, TREE, BLOB, TAG = (bytes((number,)) for number in range(1, 5))
NAMES = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob", TAG: b"tag"}
PLAIN = [b"a", b"a.b", b"a-b", b"ab", b"b", b"lib", b"lib.c", b"README", b"z"]
ODD = [
    b".gitignore", b".gitmodules", b".gitattributes", b".GitModules", b".git", b".GIT", b".", b"..", b"a/b", b"git~1",
    b".git ", b".mailmap", b"\xe2\x80\x8c.git", b"a\\b", b".gitx", b".g", b"gi7eba~1",
]  # fmt: skip
MODES = [b"100644", b"100755", b"40000", b"120000", b"160000"]
ODD_MODES = [b"100664", b"040000", b"100600", b"0100644", b"7", b"1234567"]
WHO = b"A U Thor <a@example.org> 1200000000 +0100"
ODD_WHO = [
    b"A <a@b> 01 +0100", b"<a@b> 1 +0000", b"A a@b 1 +0000", b"A <a@b>1 +0000", b"A <a@b> 1 +000", b"A<a@b> 1 +0000",
    b"A <a@b> 12345678901234567890123 +0000", b"", b"A <a\0b> 1 +0000", b" <a@b> 0 -0000",
]  # fmt: skip


class World:
    """Objects at random, and segments that bring them."""

    def __init__(self, seed: int, oddness: float) -> None:
        self.chance = random.Random(seed)
        self.oddness = oddness
        self.texts: dict[bytes, tuple[bytes, bytes]] = {}
        """Meta and text of each object."""
        self.trees: list[bytes] = []
        self.commits: list[bytes] = []

    def is_odd(self) -> bool:
        return self.chance.random() < self.oddness

    def put(self, meta: bytes, text: bytes) -> bytes:
        key = hashlib.sha1(b"%s %d\0%s" % (NAMES[meta], len(text), text)).digest()
        self.texts.setdefault(key, (meta, text))
        return key

    def blob(self) -> bytes:
        lines = [b"line %d\n" % self.chance.randrange(9) for _ in range(self.chance.randrange(40))]
        return self.put(BLOB, b"".join(lines))

    def tree(self, depth: int = 0) -> bytes:
        """A new tree, mostly an old one with some entries changed."""
        before = self.chance.choice(self.trees) if self.trees and self.chance.random() < 0.7 else None
        entries = dict(self._entries(before)) if before else {}
        for _ in range(self.chance.randrange(1, 5)):
            name = self.chance.choice(ODD if self.is_odd() else PLAIN)
            mode = self.chance.choice(ODD_MODES if self.is_odd() else MODES)
            if self.chance.random() < 0.2:
                entries.pop(name, None)
            elif mode == b"40000" and depth < 2:
                entries[name] = mode, self.tree(depth + 1)
            elif mode == b"160000" or self.is_odd():
                entries[name] = mode, bytes(20) if self.is_odd() else self.chance.randbytes(20)
            else:
                entries[name] = self.chance.choice(MODES[:2] + MODES[3:4]) if mode == b"40000" else mode, self.blob()
        rows = [(name + b"/" * (mode == b"40000"), mode, name, key) for name, (mode, key) in entries.items()]
        rows.sort()
        if self.is_odd():
            self.chance.shuffle(rows)
        if self.is_odd() and rows:
            rows.append(rows[-1])
        key = self.put(TREE, b"".join(b"%s %s\0%s" % row[1:] for row in rows))
        self.trees.append(key)
        return key

    def _entries(self, tree: bytes) -> list[tuple[bytes, tuple[bytes, bytes]]]:
        text, at, found = self.texts[tree][1], 0, []
        while at < len(text):
            space, nul = text.index(b" ", at), text.index(b"\0", at)
            found.append((text[space + 1 : nul], (text[at:space], text[nul + 1 : nul + 21])))
            at = nul + 21
        return found

    def commit(self) -> bytes:
        parents = self.chance.sample(self.commits, min(len(self.commits), self.chance.choice([0, 1, 1, 1, 1, 2, 3])))
        tree = self.tree() if not self.is_odd() else self.chance.choice([self.blob(), self.chance.randbytes(20)])
        who = [self.chance.choice(ODD_WHO) if self.is_odd() else WHO for _ in range(2)]
        lines = [b"tree " + tree.hex().encode(), *[b"parent " + parent.hex().encode() for parent in parents]]
        lines += [b"author " + who[0], b"committer " + who[1], b"", b"message %d" % len(self.commits)]
        if self.is_odd():
            lines[self.chance.randrange(len(lines))] = b"x"
        key = self.put(COMMIT, b"\n".join(lines) + b"\n")
        self.commits.append(key)
        self.parents = getattr(self, "parents", {}) | {key: parents}
        return key

    def segment(self, commit: bytes, sent: dict[bytes, set[bytes]]) -> bytes:
        """The segment of a commit: what its ancestors did not bring, mostly; each record on some base."""
        known = set[bytes]().union(*[sent[parent] for parent in self.parents[commit] if parent in sent])
        keys = [commit]
        todo = [bytes.fromhex(self.texts[commit][1][5:45].decode())] if self.texts[commit][1][:5] == b"tree " else []
        while todo:
            key = todo.pop()
            if key in keys or key not in self.texts or (key in known and self.chance.random() < 0.95):
                continue
            keys.append(key)
            if self.texts[key][0] == TREE:
                todo += [entry for _, (_, entry) in self._entries(key)]
        if self.is_odd():
            keys.pop(self.chance.randrange(len(keys)))
        entries, bodies = [], []
        for at, key in enumerate(keys):
            meta, text = self.texts[key]
            bases = [each for each in [*known, *keys[:at]] if self.texts[each][0] == meta or self.is_odd()]
            base = self.chance.choice(sorted(bases)) if bases and self.chance.random() < 0.8 else b""
            if self.is_odd():
                base = self.chance.choice([b"", self.chance.randbytes(20), self.chance.choice(sorted(self.texts))])
            encoding, frame = compress(text, self.texts[base][1] if base in self.texts else b"")
            if base == key or not encoding:
                base = b""
                encoding, frame = compress(text)
            if self.is_odd() and frame:
                frame = frame[:-1] + bytes((frame[-1] ^ 1,))
            tag = BaseTag.FULL_KEY if base and encoding else BaseTag.NONE
            length = len(text) + self.is_odd()
            entry = Entry(0, encoding, key, meta, tag, base if tag else b"", length, len(frame), b"")
            entries.append(entry if encoding else entry._replace(length=len(frame)))
            bodies.append(frame)
        sent[commit] = known | set(keys)
        named = [Parent(parent) for parent in self.parents[commit]]
        if self.is_odd() and named:
            named[0] = self.chance.choice([Parent(named[0].id, True), Parent(self.chance.randbytes(20))])
        return encode_segment(commit, named, entries, bodies, KINDS)


def history(seed: int, oddness: float) -> tuple[World, list[bytes]]:
    """A world, and the segments of its commits."""
    world = World(seed, oddness)
    sent: dict[bytes, set[bytes]] = {}
    return world, [world.segment(world.commit(), sent) for _ in range(world.chance.randrange(2, 25))]


EXAMPLES = int(os.environ.get("EXAMPLES", "150"))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([0.0, 0.0, 0.003, 0.02]), st.lists(st.integers(1, 3000), max_size=3))
def test_histories(seed: int, oddness: float, pieces: list[int]) -> None:
    world, segments = history(seed, oddness)
    push_both_ways(SYSTEM, segments, pieces, world.chance.choice([0, 0, len(segments) // 2]), is_plain=not oddness)


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

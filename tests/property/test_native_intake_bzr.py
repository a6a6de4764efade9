"""Histories of Breezy's, sound and hostile, pushed to a server that proves them natively and to one that does it in
Python: both end in the same pack with the same index, or in the same error.
"""

from __future__ import annotations

import hashlib
import os
import random

from bzr_maps import entry, leaf, write
from hypothesis import given, settings
from hypothesis import strategies as st
from needs import needs
from twin_pushes import push_both_ways

from smartserver.records.check import make_check
from smartserver.records.delta import compress
from smartserver.records.model import BaseTag, Entry, Parent, RecordName
from smartserver.records.segment import encode_segment
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, KINDS, REVISION, SIGNATURE, TEXT
from smartserver.vcs.bzr.system import BzrSystem

pytestmark = needs("native parts")

SYSTEM = BzrSystem()
FILES = [b"a-id", b"a-id2", b"b", b"b-1", b"c-id", b"dir-1", b"x", b"x-y", b"zz"]
EDITS = [b"\0", b"\n", b"1", b"a", b":", b"Y", b"e", b"", b"\0\n", b"file: ", b"sha1:", b"4\ndir: x\n\n\ny\n"]


def string(text: bytes) -> bytes:
    return b"%d:%b" % (len(text), text)


class World:
    """Revisions at random, and segments that bring them."""

    def __init__(self, seed: int, oddness: float) -> None:
        self.chance = random.Random(seed)
        self.oddness = oddness
        self.most = self.chance.choice([2, 3, 100])
        """Items of a leaf."""
        self.texts: dict[RecordName, tuple[bytes, bytes]] = {}
        """Meta and text of each record."""
        self.trees: dict[bytes, dict[bytes, tuple[str, bytes]]] = {}
        """By its revision, the kind of each file and the revision that changed it last."""
        self.named: dict[bytes, list[RecordName]] = {}
        """By its revision, all records that a tree needs."""
        self.parents: dict[bytes, list[bytes]] = {}

    def is_odd(self) -> bool:
        return self.chance.random() < self.oddness

    def spoiled(self, text: bytes) -> bytes:
        """A text, or one that is a little different."""
        while self.is_odd():
            at = self.chance.randrange(len(text) + 1)
            text = text[:at] + self.chance.choice(EDITS) + text[at + self.chance.randrange(3) :]
            if self.is_odd():
                lines = text.split(b"\n")
                self.chance.shuffle(lines)
                text = b"\n".join(lines)
        return text

    def put(self, kind: int, key: bytes, text: bytes, meta: bytes = b"") -> RecordName:
        if self.is_odd():
            meta = self.chance.choice([b"x", b"x\0", b"x\0y", b"\0"])
        self.texts.setdefault((kind, key), (meta, text))
        return kind, key

    def page(self, text: bytes) -> bytes:
        text = self.spoiled(text)
        key = b"sha1:" + hashlib.sha1(text).hexdigest().encode()
        self.put(CHK, key, text)
        return key

    def commit(self) -> bytes:
        revision = b"joe@example.org-%d" % len(self.trees)
        before = self.chance.sample([*self.trees], min(len(self.trees), self.chance.choice([0, 1, 1, 1, 1, 2])))
        tree = dict(self.trees[before[0]]) if before else {}
        names: list[RecordName] = []
        for _ in range(self.chance.randrange(1, 4)):
            file_id = self.chance.choice(FILES)
            if self.chance.random() < 0.2:
                tree.pop(file_id, None)
                continue
            kind = self.chance.choice(["file", "file", "file", "dir", "symlink"])
            tree[file_id] = kind, revision
            text = b"".join([b"line %d\n" % self.chance.randrange(9) for _ in range(self.chance.randrange(30))])
            meta = b"\0".join([self.trees[each][file_id][1] for each in before if file_id in self.trees[each]])
            self.put(TEXT, file_id + b"\0" + revision, text if kind == "file" else b"", meta)
        names += [(TEXT, file_id + b"\0" + last) for file_id, (_, last) in tree.items()]
        pages: dict[bytes, bytes] = {}
        items = {file_id: entry(file_id, last, kind=kind) for file_id, (kind, last) in tree.items()}
        by_id = write(pages, items, self.most)
        if self.is_odd():
            pages[by_id] = pages[by_id] if self.is_odd() else leaf(items)
        by_name = leaf({b"root\0name of " + file_id: file_id for file_id in tree}, parts=2)
        # A page that is another one has another key, by which none of those above names it.
        for key, text in pages.items():
            made = self.page(text)
            by_id = made if key == by_id else by_id
            names.append((CHK, made))
        names.append((CHK, self.page(by_name)))
        inventory = b"chkinventory:\nsearch_key_name: hash-255-way\nroot_id: root\nparent_id_basename_to_file_id: %b\n"
        inventory = inventory % names[-1][1] + b"revision_id: %b\nid_to_entry: %b\n" % (revision, by_id)
        names.append(self.put(INVENTORY, revision, self.spoiled(inventory), b"\0".join(before)))
        zone = self.chance.choice([b"", b"l8:timezonei0ee", b"l8:timezonei-3600ee", b"l8:timezonei19800ee"])
        if self.is_odd():
            zone = self.chance.choice([b"l8:timezonei-0ee", b"l8:timezonei01ee", b"l8:timezoneiee", zone + zone])
        properties = self.chance.choice([b"d", b"d11:branch-nick1:t", b"d1:a0:1:b0:"])
        if self.is_odd():
            properties = self.chance.choice([b"d1:b0:1:a0:", b"d1:a0:1:a0:", b"d1:a", b"d01:a0:", b"l"])
        own = [
            b"ll6:formati10ee", b"l9:committer7:Joe <j>e", zone, b"l10:properties", properties, b"ee",
            b"l9:timestamp14:1000000000.000e", b"l11:revision-id", string(revision), b"e",
            b"l10:parent-idsl", *map(string, before), b"ee", b"l14:inventory-sha140:", b"0" * 40, b"e",
            b"l7:message", string(b"message\n" * self.chance.randrange(3)), b"ee",
        ]  # fmt: skip
        if self.is_odd():
            own.insert(self.chance.randrange(len(own)), own.pop(self.chance.randrange(len(own))))
        names.append(self.put(REVISION, revision, self.spoiled(b"".join(own))))
        if self.chance.random() < 0.2:
            names.append(self.put(SIGNATURE, revision, b"signed"))
        self.trees[revision], self.parents[revision] = tree, before
        self.named[revision] = names[::-1]
        return revision

    def segment(self, revision: bytes, sent: dict[bytes, set[RecordName]]) -> bytes:
        """The segment of a revision: what its ancestors did not bring, mostly; each record on some base."""
        parents = self.parents[revision]
        known = set[RecordName]().union(*[sent[parent] for parent in parents if parent in sent])
        again = 0.05 if self.oddness else 0
        names = [
            name
            for name in dict.fromkeys(self.named[revision])
            if name in self.texts and (name not in known or self.chance.random() < again)
        ]
        if self.is_odd():
            names.pop(self.chance.randrange(len(names)))
        if self.is_odd():
            names.append(self.chance.choice(sorted(self.texts.keys() - set(names)) or names[:1]))
        names = list(dict.fromkeys(names))
        entries, bodies = [], []
        for at, (kind, key) in enumerate(names):
            meta, text = self.texts[kind, key]
            if self.is_odd() and kind != CHK:
                text += b"another"  # Two texts of one key, if it came before or comes again.
            usable = sorted(each for each in {*known, *names[:at]} if each[0] == kind)
            base = self.chance.choice(usable)[1] if usable and self.chance.random() < 0.8 and KINDS[kind].base else b""
            if self.is_odd() and KINDS[kind].base:
                others = sorted(each[1] for each in self.texts if each[0] == kind)
                base = self.chance.choice([b"", self.chance.randbytes(20), self.chance.choice(others)])
            encoding, frame = compress(text, self.texts[kind, base][1] if (kind, base) in self.texts else b"")
            if base == key or not encoding:
                base = b""
                encoding, frame = compress(text)
            check = make_check(KINDS[kind], key, meta, text)
            if self.is_odd():
                check = check[::-1]
            if self.is_odd() and frame:
                frame = frame[:-1] + bytes((frame[-1] ^ 1,))
            tag = BaseTag.FULL_KEY if base and encoding else BaseTag.NONE
            length = len(text) + self.is_odd()
            made = Entry(kind, encoding, key, meta, tag, base if tag else b"", length, len(frame), check)
            entries.append(made if encoding else made._replace(length=len(frame)))
            bodies.append(frame)
        sent[revision] = known | set(names)
        named = [Parent(parent) for parent in parents]
        if self.is_odd() and named:
            named[0] = self.chance.choice([Parent(named[0].id, True), Parent(self.chance.randbytes(20))])
        return encode_segment(revision, named, entries, bodies, KINDS)


def history(seed: int, oddness: float) -> tuple[World, list[bytes]]:
    """A world, and the segments of its revisions."""
    world = World(seed, oddness)
    sent: dict[bytes, set[RecordName]] = {}
    return world, [world.segment(world.commit(), sent) for _ in range(world.chance.randrange(2, 25))]


EXAMPLES = int(os.environ.get("EXAMPLES", "150"))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([0.0, 0.0, 0.002, 0.01]), st.lists(st.integers(1, 3000), max_size=3))
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

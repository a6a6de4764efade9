"""Histories of Mercurial\'s at random."""

from __future__ import annotations

import hashlib

from intake_worlds import World

from smartserver.vcs.hg.kinds import CHANGESET, FILE, MANIFEST, NULL, file_key, meta_of, parents_of
from smartserver.vcs.hg.system import HgSystem

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


class HgWorld(World):
    """Changesets, with their manifests and files."""

    system = HgSystem()

    def __init__(self, seed: int, oddness: float) -> None:
        super().__init__(seed, oddness)
        self.manifests: dict[bytes, dict[bytes, tuple[bytes, bytes]]] = {NULL: {}}
        """By its node, the node and flag of each path."""
        self.manifest_of: dict[bytes, bytes] = {}

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
        parents = self.some_parents(2)
        before = dict.fromkeys(self.manifest_of[each] for each in parents)
        manifest = self.manifest([each for each in before if each != NULL])
        if self.is_odd():
            manifest = self.chance.choice([NULL, self.chance.randbytes(20)])
        named = manifest.hex().encode()
        lines = [
            named,
            b"A U Thor <a@example.org>",
            self.chance.choice(ODD_DATES if self.is_odd() else DATES),
            b"a",
            b"",
            b"%d" % len(self.parents),
        ]
        if self.is_odd():
            del lines[self.chance.randrange(len(lines))]
        if self.is_odd():
            lines[0] = self.chance.choice([named.upper(), named[:-1], b"g" * 40])
        node = self.put(CHANGESET, self.meta(*parents), b"\n".join(lines))
        self.parents[node], self.manifest_of[node] = parents, manifest
        files = self.manifests.get(manifest, {})
        self.named[node] = [(CHANGESET, node), (MANIFEST, manifest)]
        self.named[node] += [(FILE, file_key(path, each)) for path, (each, _) in files.items()]
        return node

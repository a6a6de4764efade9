"""Histories of git\'s at random."""

from __future__ import annotations

import hashlib

from intake_worlds import World

from smartserver.records.model import RecordName
from smartserver.vcs.git.system import GIT as SYSTEMS

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


class GitWorld(World):
    """Objects, all of one kind."""

    system = SYSTEMS["git sha1"]

    def __init__(self, seed: int, oddness: float) -> None:
        super().__init__(seed, oddness)
        self.trees: list[bytes] = []

    def put(self, meta: bytes, text: bytes) -> bytes:
        key = hashlib.sha1(b"%s %d\0%s" % (NAMES[meta], len(text), text)).digest()
        self.texts.setdefault((0, key), (meta, text))
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
        text, at, found = self.texts[0, tree][1], 0, []
        while at < len(text):
            space, nul = text.index(b" ", at), text.index(b"\0", at)
            found.append((text[space + 1 : nul], (text[at:space], text[nul + 1 : nul + 21])))
            at = nul + 21
        return found

    def commit(self) -> bytes:
        parents = self.some_parents(3)
        tree = self.tree() if not self.is_odd() else self.chance.choice([self.blob(), self.chance.randbytes(20)])
        who = [self.chance.choice(ODD_WHO) if self.is_odd() else WHO for _ in range(2)]
        lines = [b"tree " + tree.hex().encode(), *[b"parent " + parent.hex().encode() for parent in parents]]
        lines += [b"author " + who[0], b"committer " + who[1], b"", b"message %d" % len(self.parents)]
        if self.is_odd():
            lines[self.chance.randrange(len(lines))] = b"x"
        key = self.put(COMMIT, b"\n".join(lines) + b"\n")
        self.parents[key] = parents
        return key

    def names(self, revision: bytes, known: set[RecordName]) -> list[RecordName]:
        text = self.texts[0, revision][1]
        found: list[RecordName] = [(0, revision)]
        todo = [bytes.fromhex(text[5:45].decode())] if text[:5] == b"tree " else []
        while todo:
            name = 0, todo.pop()
            if name in found or name not in self.texts or (name in known and self.chance.random() < 0.95):
                continue
            found.append(name)
            if self.texts[name][0] == TREE:
                todo += [entry for _, (_, entry) in self._entries(name[1])]
        return found

    def may_rest(self, name: RecordName, base: RecordName) -> bool:
        return self.texts[name][0] == self.texts[base][0] or self.is_odd()

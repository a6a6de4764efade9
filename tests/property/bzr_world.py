"""Histories of Breezy\'s at random."""

from __future__ import annotations

import hashlib

from bzr_maps import entry, leaf, write
from intake_worlds import World

from smartserver.records.model import RecordName
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, SIGNATURE, TEXT
from smartserver.vcs.bzr.system import BzrSystem

FILES = [b"a-id", b"a-id2", b"b", b"b-1", b"c-id", b"dir-1", b"x", b"x-y", b"zz"]
EDITS = [b"\0", b"\n", b"1", b"a", b":", b"Y", b"e", b"", b"\0\n", b"file: ", b"sha1:", b"4\ndir: x\n\n\ny\n"]


def string(text: bytes) -> bytes:
    return b"%d:%b" % (len(text), text)


class BzrWorld(World):
    """Revisions, with their inventories and the pages of those."""

    system = BzrSystem()
    odd = (0.0, 0.002, 0.01)

    def __init__(self, seed: int, oddness: float) -> None:
        super().__init__(seed, oddness)
        self.again = 0.05 if oddness else 0
        self.most = self.chance.choice([2, 3, 100])
        """Items of a leaf."""
        self.trees: dict[bytes, dict[bytes, tuple[str, bytes]]] = {}
        """By its revision, the kind of each file and the revision that changed it last."""

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
        before = self.some_parents(2)
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

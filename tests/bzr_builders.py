"""Small real histories of `bzr 2a` in memory, as segments, and the pushes that bring them; Breezy is not imported."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from builders import ancestors, bring

from smartserver.records.bases import NewRecord, SegmentWriter
from smartserver.records.model import Key, Parent, Record, Tip
from smartserver.records.system import system_of
from smartserver.store.repository import PackRepository
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, SIGNATURE, TEXT

BZR = "bzr 2a"
KINDS = system_of(BZR).kinds
TRUNK = b"trunk"
ROOT = b"root-id"


class BzrHistory:
    """Revisions of files in folders; each of the two maps of a tree is one page."""

    def __init__(self) -> None:
        self.records: dict[tuple[int, Key], Record] = {}
        self.introduced: dict[bytes, list[tuple[int, Key]]] = {}
        self.trees: dict[bytes, dict[bytes, bytes]] = {}
        """By revision: path -> text of each file."""
        self.parents: dict[bytes, tuple[Parent, ...]] = {}
        """Parents by revision, in the order in which revisions were made: parents first."""
        self._changed: dict[bytes, dict[bytes, bytes]] = {}
        """By revision: path -> the revision that changed it last."""
        self._reach: dict[bytes, frozenset[tuple[int, Key]]] = {}
        self._writer = SegmentWriter(KINDS, bulk=False, texts=lambda kind, key: self.records[kind, key].text)

    def commit(
        self,
        files: Mapping[bytes, bytes],
        parents: Sequence[bytes] = (),
        ghosts: Sequence[bytes] = (),
        *,
        ghost_first: bool = False,
        signed: bool = False,
    ) -> bytes:
        """Add a revision with exactly these files, and return its id."""
        revision = b"joe@example.org-%d" % (len(self.parents) + 1)
        here, gone = [Parent(each) for each in parents], [Parent(each, absent=True) for each in ghosts]
        self.parents[revision] = (*gone, *here) if ghost_first else (*here, *gone)
        changed = self._changed[revision] = {}
        items = {ROOT: b"dir: root-id\n\n\n%b\n" % self._last(revision, b"", None, parents, changed)}
        names: dict[bytes, bytes] = {b"\0": ROOT}
        for path in sorted({*files, *_folders(files)}):
            text = files.get(path)
            folder, _, name = path.rpartition(b"/")
            last = self._last(revision, path, text, parents, changed)
            common = b"%b\n%b\n%b\n%b\n" % (_id(path), _id(folder), name, last)
            if text is None:
                items[_id(path)] = b"dir: " + common
            else:
                sha1 = hashlib.sha1(text).hexdigest().encode()
                items[_id(path)] = b"file: " + common + b"%b\n%d\nN\n" % (sha1, len(text))
            names[_id(folder) + b"\0" + name] = _id(path)
        added = self.introduced[revision] = []
        by_id, by_name = _page(items, 1), _page({key: value + b"\n" for key, value in names.items()}, 2)
        inventory = inventory_text(revision, ROOT, by_id.key, by_name.key)
        parent_ids = [parent.id for parent in self.parents[revision]]
        own = [Record(REVISION, revision, b"", revision_text(revision, parent_ids, len(self.parents)))]
        if signed:
            own.append(Record(SIGNATURE, revision, b"", b"signed: " + revision))
        for record in (*own, Record(INVENTORY, revision, b"", inventory), by_id, by_name):
            place = (record.kind, record.key)
            self.records[place] = record
            if place not in added and not any(place in self._reach[parent] for parent in parents):
                added.append(place)
        added += [(TEXT, _id(path) + b"\0" + revision) for path, last in changed.items() if last == revision]
        self._reach[revision] = frozenset(added).union(*[self._reach[parent] for parent in parents])
        self.trees[revision] = dict(files)
        return revision

    def line(self, count: int) -> list[bytes]:
        """Add revisions in a row, each changing a line of one of three files."""
        made: list[bytes] = []
        files = {b"README": b"a project\n", b"src/a.py": b"print()\n", b"src/deep/b.py": b"pass\n"}
        for number in range(count):
            files = {**files, b"src/a.py": files[b"src/a.py"] + b"line %d\n" % number}
            made.append(self.commit(files, made[-1:], signed=number == 2))
        return made

    def text(self, path: bytes, revision: bytes) -> Key:
        """Return the key of a path's text in a revision."""
        return _id(path) + b"\0" + self._changed[revision][path]

    def ancestors(self, tips: Iterable[bytes]) -> set[bytes]:
        """Return the members of `tips` that this history has, and all their ancestors."""
        return ancestors(tips, {each: [parent.id for parent in named] for each, named in self.parents.items()})

    def segment(self, revision: bytes) -> bytes:
        """Return the segment of a revision."""
        records = [self.records[place] for place in self.introduced[revision]]
        items = [NewRecord(record.kind, record.key, record.meta, record.text) for record in records]
        return self._writer.segment(revision, self.parents[revision], items)

    def push(self, repository: PackRepository, revisions: Iterable[bytes], refs: Mapping[bytes, Tip]) -> None:
        """Push these revisions and refs."""
        bring(repository, BZR, [self.segment(revision) for revision in revisions], refs)

    def _last(
        self, revision: bytes, path: bytes, text: bytes | None, parents: Sequence[bytes], changed: dict[bytes, bytes]
    ) -> bytes:
        """Return the revision that changed a path last. If that is this revision, add the text."""
        before = dict.fromkeys(
            [self._changed[each][path] for each in parents if path in self._changed[each]],
        )
        last = next(iter(before), revision)
        same = len(before) == 1 and self.records[TEXT, _id(path) + b"\0" + last].text == (text or b"")
        changed[path] = last if same else revision
        if not same:
            key = _id(path) + b"\0" + revision
            self.records[TEXT, key] = Record(TEXT, key, b"\0".join(before), text or b"")
        return changed[path]


def inventory_text(revision: bytes, root: bytes, by_id: Key, by_name: Key) -> bytes:
    """Return the text of an inventory whose maps have these pages."""
    inventory = b"chkinventory:\nsearch_key_name: hash-255-way\nroot_id: %b\n" % root
    inventory += b"parent_id_basename_to_file_id: %b\nrevision_id: %b\n" % (by_name, revision)
    return inventory + b"id_to_entry: %b\n" % by_id


def revision_text(
    revision: bytes, parents: Iterable[bytes], number: int, timestamp: bytes = b"1000000000.000"
) -> bytes:
    """Return the text of the `number`-th revision."""
    fields = (
        (b"format", b"i10e"),
        (b"committer", _string(b"Joe <joe@example.org>")),
        (b"timezone", b"i0e"),
        (b"properties", b"de"),
        (b"timestamp", _string(timestamp)),
        (b"revision-id", _string(revision)),
        (b"parent-ids", b"l%be" % b"".join(map(_string, parents))),
        (b"inventory-sha1", _string(b"0" * 40)),
        (b"message", _string(b"revision %d" % number)),
    )
    return b"l%be" % b"".join(b"l%b%be" % (_string(name), value) for name, value in fields)


def _id(path: bytes) -> bytes:
    return path.replace(b"/", b"-") + b"-id" if path else ROOT


def _folders(files: Iterable[bytes]) -> set[bytes]:
    parts = [path.split(b"/") for path in files]
    return {b"/".join(each[:depth]) for each in parts for depth in range(1, len(each))}


def _string(text: bytes) -> bytes:
    return b"%d:%b" % (len(text), text)


def _page(items: Mapping[bytes, bytes], parts: int) -> Record:
    lines = b"".join(b"%b\0%d\n%b" % (key, items[key].count(b"\n"), items[key]) for key in sorted(items))
    text = b"chkleaf:\n65536\n%d\n%d\n\n%b" % (parts, len(items), lines)
    return Record(CHK, b"sha1:" + hashlib.sha1(text).hexdigest().encode(), b"", text)

"""Which records make up a tree of `bzr 2a`, or a part of one, and the earlier texts of a file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from smartserver.errors import shown
from smartserver.records.charge import Charge, free
from smartserver.records.model import Key, Record, RevisionId
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, TEXT
from smartserver.vcs.bzr.pages import ENTRY_PARTS, Entry, is_node, read_entry, read_leaf, read_node
from smartserver.vcs.bzr.revision import read_inventory
from smartserver.vcs.bzr.tree import BzrTree

Read = Callable[[int, Key], Record | None]
"""The record of a kind and key, None where there is none."""


def tree(
    read: Read,
    revision: RevisionId,
    paths: Sequence[bytes] | None,
    seen: set[Key],
    also: Collection[bytes] = (),
    bringers: set[RevisionId] | None = None,
    charge: Charge = free,
) -> Iterator[tuple[int, Key]]:
    """The inventory, the pages of both maps, or those that lead to the paths, and the texts of the files there.
    `charge`: as of `BzrTree`."""
    found = read(INVENTORY, revision)
    if found is None:
        return
    yield INVENTORY, revision
    inventory = read_inventory(found.text)
    page = functools.partial(page_of, read)
    entries: dict[bytes, Entry] = {}
    if paths is None or b"" in paths:  # The root is everything, and by name, too.
        for root in (inventory.id_to_entry, inventory.by_name):
            for key in _pages(page, root, seen, entries):
                yield CHK, key
    else:
        at = BzrTree(inventory, page, charge=charge)
        moved = [path for each in also if (path := at.path_of(each)) is not None]
        folders: set[bytes] = set()
        for path in dict.fromkeys([*paths, *moved]):
            folder = at.find(b"")
            for name in path.split(b"/"):
                if folder is None or folder.kind != "dir":
                    break
                # Breezy looks at all there is in a folder to find what it looks for.
                if folder.file_id not in folders:
                    folders.add(folder.file_id)
                    for child in at.children(folder.file_id).values():
                        at.entry(child)
                folder = at.child(folder.file_id, name)
            entries.update((entry.text_key, entry) for _, entry in at.walk(path))
        for key in at.pages:
            yield CHK, key
    if bringers is not None:
        bringers.update([entry.revision for entry in entries.values()])
    files = [entry for entry in entries.values() if entry.kind == "file"]
    # What ends alike is mostly alike, and compresses well side by side.
    files.sort(key=lambda entry: (entry.name.rpartition(b".")[::-1], entry.file_id))
    for key in dict.fromkeys(entry.text_key for entry in files):
        yield TEXT, key


def named(read: Read, revision: RevisionId, paths: Sequence[bytes], charge: Charge = free) -> set[bytes]:
    """The ids of what lies there; `charge`: as of `BzrTree`."""
    found = read(INVENTORY, revision)
    if found is None:
        return set()
    at = BzrTree(read_inventory(found.text), functools.partial(page_of, read), charge=charge)
    return {entry.file_id for path in paths if (entry := at.find(path)) is not None}


def changed(read: Read, one: RevisionId, other: RevisionId | None) -> set[Key]:
    """The texts in which two trees differ."""
    files: tuple[set[Key], set[Key]] = set(), set()
    for side, items in apart(read, one, other):
        files[side].update(entry.text_key for entry in map(read_entry, items.values()) if entry.kind == "file")
    return files[0] ^ files[1]


def apart(read: Read, one: RevisionId, other: RevisionId | None) -> Iterator[tuple[int, Mapping[bytes, bytes]]]:
    """The leaves that two trees do not share: of each whose it is, 0 or 1, and the entries by file id, as written.

    An entry that comes for one tree alone may be in both: the same page may lie deeper in the other's map.
    """
    found = [None if revision is None else read(INVENTORY, revision) for revision in (one, other)]
    mine, theirs = [set() if each is None else {read_inventory(each.text).id_to_entry} for each in found]
    seen: set[Key] = set()
    while mine or theirs:
        seen |= mine | theirs
        below: tuple[set[Key], set[Key]] = set(), set()
        for side, keys in ((0, mine - theirs), (1, theirs - mine)):
            for key in keys:
                text = page_of(read, key)
                if is_node(text):
                    below[side].update(read_node(text).children.values())
                else:
                    yield side, _items(text)
        mine, theirs = below[0] - seen, below[1] - seen


def bringer(key: Key) -> RevisionId:
    """The second part of a text's key."""
    return key.partition(b"\0")[2]


def versions(read: Read, key: Key) -> Iterator[tuple[RevisionId, Key]]:
    """The texts a file's text comes from: the revision that brought it, and its key; the text itself first."""
    file_id = key.partition(b"\0")[0]
    todo, seen = [key], {key}
    while todo:
        key = todo.pop()
        found = read(TEXT, key)
        if found is None:
            continue  # A ghost's.
        yield bringer(key), key
        for parent in found.meta.split(b"\0") if found.meta else ():
            before = file_id + b"\0" + parent
            if before not in seen:
                seen.add(before)
                todo.append(before)


class HadTrees:
    """Trees that a reader has; however many others are compared with them, each page of theirs is read once."""

    def __init__(self, read: Read, charge: Charge = free) -> None:
        """`charge`: told of each page and file of theirs that is gone through again."""
        self._charge = charge
        self._roots: set[Key] = set()
        self._read = read
        self._known: dict[Key, tuple[Collection[Key], set[Key]]] = {}

    def add(self, revision: RevisionId) -> None:
        """Take in a revision's."""
        found = self._read(INVENTORY, revision)
        if found is not None:
            inventory = read_inventory(found.text)
            self._roots |= {inventory.id_to_entry, inventory.by_name}

    def shared(self, revision: RevisionId) -> tuple[set[Key], set[Key]]:
        """Pages of theirs at which a walk of a revision's may stop, and the texts of files that lie elsewhere."""
        found = self._read(INVENTORY, revision) if self._roots else None
        pages: set[Key] = set()
        texts: set[Key] = set()
        if found is None:
            return pages, texts
        inventory = read_inventory(found.text)
        mine, theirs = {inventory.id_to_entry, inventory.by_name}, self._roots
        seen: set[Key] = set()
        while mine or theirs:
            pages |= theirs
            seen |= mine | theirs
            below = {child for key in mine - theirs for child in _below(page_of(self._read, key))[0]}
            at_theirs = [self._page(key) for key in theirs - mine]
            texts.update(*[of_page for _, of_page in at_theirs])
            mine, theirs = below - seen, {child for children, _ in at_theirs for child in children} - seen
        return pages, texts

    def _page(self, key: Key) -> tuple[Collection[Key], set[Key]]:
        known = self._known.get(key)
        if known is None:
            children, files = _below(page_of(self._read, key))
            known = self._known[key] = children, {entry.text_key for entry in files}
        self._charge(1 + len(known[0]) + len(known[1]))
        return known


def _pages(page: Callable[[Key], bytes], root: Key, seen: set[Key], entries: dict[bytes, Entry]) -> Iterator[Key]:
    """Every page below a root that is not in `seen`; what leaves of `id_to_entry` have goes to `entries`."""
    todo = [] if root in seen else [root]
    seen.add(root)
    while todo:
        key = todo.pop()
        yield key
        text = page(key)
        if is_node(text):
            below = [child for child in read_node(text).children.values() if child not in seen]
            seen.update(below)
            todo += below
            continue
        entries.update((entry.text_key, entry) for entry in _entries(text))


def _below(text: bytes) -> tuple[Collection[Key], list[Entry]]:
    """The pages below a page, and the files that a leaf has."""
    if is_node(text):
        return read_node(text).children.values(), []
    return (), _files(text)


def _files(text: bytes) -> list[Entry]:
    """The files that a leaf has."""
    return [entry for entry in _entries(text) if entry.kind == "file"]


def _entries(text: bytes) -> list[Entry]:
    """The entries that a leaf has; one of `by_name` has none."""
    return list(map(read_entry, _items(text).values()))


def _items(text: bytes) -> Mapping[bytes, bytes]:
    """The same by file id, as they are written."""
    leaf = read_leaf(text)
    return leaf.items if leaf.parts == ENTRY_PARTS else {}


def page_of(read: Read, key: Key) -> bytes:
    """The text of a page.

    Raises:
        ValueError: it is missing.
    """
    found = read(CHK, key)
    if found is None:
        raise ValueError(f"the page {shown(key)} is missing")
    return found.text

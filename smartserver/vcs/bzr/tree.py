"""Reads the tree that an inventory of `bzr 2a` describes. A call reads only the pages that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from smartserver.errors import shown
from smartserver.records.charge import Charge, free, steps_of
from smartserver.records.model import Key, Record, RevisionId
from smartserver.vcs.bzr.kinds import CHK, INVENTORY
from smartserver.vcs.bzr.pages import (
    ENTRY_PARTS,
    NAME_PARTS,
    InternalNode,
    InventoryEntry,
    Leaf,
    is_node,
    read_entry,
    read_leaf,
    read_node,
    search_key,
)
from smartserver.vcs.bzr.revision import Inventory, read_inventory

ITEMS: Final = 16
"""The number of items of a leaf that count as one step."""

Read = Callable[[int, Key], Record | None]
"""A function that returns the record of a kind and key, or None."""


class BzrTree:
    """The tree of one revision. `page` returns the text of the `chk` record of a key.

    Finding a path descends `by_name` once for each of its names, and `id_to_entry` once; a descent reads one to three
    pages. The whole tree is read from `id_to_entry` alone.
    """

    def __init__(
        self,
        inventory: Inventory,
        page: Callable[[Key], bytes],
        kept: dict[Key, InternalNode | Leaf] | None = None,
        charge: Charge = free,
    ) -> None:
        """`kept`: pages that were read before, perhaps for other trees that share them. This tree adds the pages that
        it reads. `charge`: is called with the steps for each page that is read, for the items of leaves, and for each
        path that is built."""
        self._inventory = inventory
        self._page = page
        self._kept = {} if kept is None else kept
        self._charge = charge

    def entry(self, file_id: bytes) -> InventoryEntry | None:
        """Return the entry of a file id, or None.

        Raises:
            ValueError: a page cannot be read, or is not one of its map.
        """
        value = self._get(self._inventory.id_to_entry, ENTRY_PARTS, search_key(file_id), file_id)
        return None if value is None else entry_of(file_id, value)

    def find(self, path: bytes) -> InventoryEntry | None:
        """Return the entry at a path, or None; the empty path names the root.

        Raises:
            ValueError: a page cannot be read, or is not one of its map.
        """
        file_id = self._inventory.root_id
        for name in path.split(b"/") if path else ():
            found = self._child(file_id, name)
            if found is None:
                return None
            file_id = found
        return self.entry(file_id)

    def path_of(self, file_id: bytes) -> bytes | None:
        """Return the path of a file id; None if the tree does not have it."""
        names: list[bytes] = []
        seen: set[bytes] = set()
        while file_id != self._inventory.root_id:
            entry = self.entry(file_id)
            if entry is None and not seen:
                return None
            if entry is None or file_id in seen:
                raise ValueError(f"the entry of {file_id!r} is missing, or in itself")
            seen.add(file_id)
            names.append(entry.name)
            file_id = entry.parent_id
        return b"/".join(reversed(names))

    def children(self, file_id: bytes) -> dict[bytes, bytes]:
        """Return the entries of a folder: name to file id, sorted by name."""
        start, found = file_id + b"\0", dict[bytes, bytes]()
        for leaf in self._leaves(self._inventory.by_name, NAME_PARTS, search_key(file_id) + b"\0", keep=True):
            self._charge(len(leaf.items) // ITEMS)
            found.update((key[len(start) :], child) for key, child in leaf.items.items() if key.startswith(start))
        return dict(sorted(found.items()))

    def entries(self) -> Iterator[InventoryEntry]:
        """Yield every entry of the tree, in no particular order.

        Raises:
            ValueError: a page cannot be read, or is not one of its map.
        """
        for leaf in self._leaves(self._inventory.id_to_entry, ENTRY_PARTS, b"", keep=False):
            for file_id, value in leaf.items.items():
                yield entry_of(file_id, value)

    def walk(self, path: bytes = b"") -> Iterator[tuple[bytes, InventoryEntry]]:
        """Yield the entry at a path and all entries below it, each folder before its entries. Yield nothing if the path
        does not exist."""
        if path:
            top = self.find(path)
            yield from () if top is None else self._walk(path, top)
            return
        below: dict[bytes, list[InventoryEntry]] = {}
        seen: set[bytes] = set()
        for entry in self.entries():
            if entry.file_id in seen:
                raise ValueError(f"there are two entries of {entry.file_id!r}")
            seen.add(entry.file_id)
            below.setdefault(entry.parent_id, []).append(entry)
        todo = [(b"", entry) for entry in below.get(b"", ()) if entry.file_id == self._inventory.root_id]
        while todo:  # Each entry is in one folder, and the root in none: no walk goes round.
            place, entry = todo.pop()
            yield place, entry
            inside = sorted(below.get(entry.file_id, ()), key=lambda child: child.name, reverse=True)
            todo += [(self._join(place, child.name), child) for child in inside]

    def _walk(self, path: bytes, top: InventoryEntry) -> Iterator[tuple[bytes, InventoryEntry]]:
        seen = {top.file_id}
        todo = [(path, top)]
        while todo:
            place, entry = todo.pop()
            yield place, entry
            inside = self.children(entry.file_id) if entry.kind == "dir" else {}
            for name, file_id in reversed(inside.items()):
                child = self.entry(file_id)
                if child is None or file_id in seen:
                    raise ValueError(f"the entry of {file_id!r} is missing, or in two places")
                seen.add(file_id)
                todo.append((self._join(place, name), child))

    def _join(self, folder: bytes, name: bytes) -> bytes:
        path = folder + b"/" + name if folder else name
        self._charge(steps_of(path))
        return path

    def _child(self, folder: bytes, name: bytes) -> bytes | None:
        key = folder + b"\0" + name
        return self._get(self._inventory.by_name, NAME_PARTS, search_key(folder, name), key)

    def _get(self, root: Key, parts: int, searched: bytes, key: bytes) -> bytes | None:
        for leaf in self._leaves(root, parts, searched, keep=True):
            if key in leaf.items:
                return leaf.items[key]
        return None

    def _leaves(self, root: Key, parts: int, start: bytes, *, keep: bool) -> Iterator[Leaf]:
        """Yield the leaves that may have keys whose search keys begin with `start`."""
        seen: set[Key] = set()
        todo = [(root, b"")]
        while todo:
            key, reached = todo.pop()
            page = self._read(key, keep)
            if page.parts != parts or key in seen:
                raise ValueError(f"the page {key!r} is not one of its map, or in it twice")
            seen.add(key)
            if isinstance(page, Leaf):
                yield page
                continue
            prefix, children = page.prefix, page.children
            if not prefix.startswith(reached):
                raise ValueError(f"the page {key!r} is not in its place in its map")
            if len(start) > len(prefix):
                place = start[len(prefix) : len(prefix) + 1]
                if start.startswith(prefix) and place in children:
                    todo.append((children[place], prefix + place))
            elif prefix.startswith(start):
                todo += [(child, prefix + place) for place, child in children.items()]

    def _read(self, key: Key, keep: bool) -> InternalNode | Leaf:
        self._charge(1)
        found = self._kept.get(key)
        if found is None:
            text = self._page(key)
            found = read_node(text) if is_node(text) else read_leaf(text)
            if keep:
                self._kept[key] = found
        return found


def entry_of(file_id: bytes, value: bytes) -> InventoryEntry:
    """Parse the entry that is the value of a file id, and check its own id."""
    entry = read_entry(value)
    if entry.file_id != file_id:
        raise ValueError(f"the entry of {file_id!r} has the id {entry.file_id!r}")
    return entry


def page_of(read: Read, key: Key) -> bytes:
    """Return the text of a page."""
    found = read(CHK, key)
    if found is None:
        raise ValueError(f"the page {shown(key)} is missing")
    return found.text


def differing_leaves(read: Read, one: RevisionId, other: RevisionId) -> Iterator[tuple[int, Mapping[bytes, bytes]]]:
    """Yield the leaves that two trees do not share: the side, 0 or 1, and the encoded entries by file id.

    An entry that is yielded for one side only may be in both trees, because a page may be deeper in the other tree's
    map.
    """
    found = [read(INVENTORY, revision) for revision in (one, other)]
    mine, theirs = [set() if record is None else {read_inventory(record.text).id_to_entry} for record in found]
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
                    leaf = read_leaf(text)
                    yield side, leaf.items if leaf.parts == ENTRY_PARTS else {}
        mine, theirs = below[0] - seen, below[1] - seen

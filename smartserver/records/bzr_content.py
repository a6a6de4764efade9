"""Which records make up a tree of `bzr 2a`, or a part of one, and the earlier texts of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from smartserver.errors import shown
from smartserver.records.bzr import ENTRY_PARTS, Entry, is_node, read_entry, read_inventory, read_leaf, read_node
from smartserver.records.bzr_tree import BzrTree
from smartserver.records.check_bzr import CHK, INVENTORY, REVISION, SIGNATURE, TEXT
from smartserver.records.model import Key, Record, RevisionId

Read = Callable[[int, Key], Record | None]
"""The record of a kind and key, None where there is none."""

Place = tuple[int, Key]
"""A record's kind and key."""


class BzrContent:
    """The trees of format 2a; see `records.content.Content`."""

    described = (REVISION, SIGNATURE)
    text = TEXT

    def tree(self, read: Read, revision: RevisionId, paths: Sequence[bytes] | None) -> Iterator[Place]:
        """The inventory, the pages of both maps, or those that lead to the paths, and the texts of the files there."""
        found = read(INVENTORY, revision)
        if found is None:
            return
        yield INVENTORY, revision
        inventory = read_inventory(found.text)

        def page(key: Key) -> bytes:
            found = read(CHK, key)
            if found is None:
                raise ValueError(f"the page {shown(key)} is missing")
            return found.text

        files: list[Entry] = []
        if paths is None:
            for root in (inventory.id_to_entry, inventory.by_name):
                for key in _pages(page, root, files):
                    yield CHK, key
        else:
            tree = BzrTree(inventory, page)
            for path in paths:
                parts = path.split(b"/") if path else []
                for depth in range(len(parts)):
                    tree.find(b"/".join(parts[:depth]))  # Clients look at the folders on the way.
                files += [entry for _, entry in tree.walk(path) if entry.kind == "file"]
            for key in tree.pages:
                yield CHK, key
        # What ends alike is mostly alike, and compresses well side by side.
        for entry in sorted(files, key=lambda entry: (entry.name.rpartition(b".")[::-1], entry.file_id)):
            yield TEXT, entry.text_key

    def versions(self, read: Read, key: Key) -> Iterator[tuple[RevisionId, Key]]:
        """The texts a file's text comes from: the revision that brought it, and its key; the text itself first."""
        file_id = key.partition(b"\0")[0]
        todo, seen = [key], {key}
        while todo:
            key = todo.pop()
            found = read(TEXT, key)
            if found is None:
                continue  # A ghost's.
            yield key.partition(b"\0")[2], key
            for parent in found.meta.split(b"\0") if found.meta else ():
                before = file_id + b"\0" + parent
                if before not in seen:
                    seen.add(before)
                    todo.append(before)


def _pages(page: Callable[[Key], bytes], root: Key, files: list[Entry]) -> Iterator[Key]:
    """Every page below a root; the files that leaves of `id_to_entry` have are added to `files`."""
    todo, seen = [root], {root}
    while todo:
        key = todo.pop()
        yield key
        text = page(key)
        if is_node(text):
            below = [child for child in read_node(text).children.values() if child not in seen]
            seen.update(below)
            todo += below
            continue
        leaf = read_leaf(text)
        if leaf.parts == ENTRY_PARTS:
            files += [entry for entry in map(read_entry, leaf.items.values()) if entry.kind == "file"]

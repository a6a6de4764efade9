from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import pytest
from bzr_samples import FIRST, SECOND

from smartserver.records.model import Key
from smartserver.vcs.bzr.pages import search_key
from smartserver.vcs.bzr.revision import Inventory, read_inventory
from smartserver.vcs.bzr.tree import BzrTree

PAGES = {record.key: record.text for record in FIRST + SECOND if record.kind == 3}


class Maps:
    """Pages made as Breezy makes them, but with at most `limit` items in a leaf."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.pages: dict[Key, bytes] = {}

    def inventory(self, entries: Mapping[bytes, tuple[bytes, bytes]]) -> Inventory:
        """File id -> folder's id and name; what is a folder to none is a file."""
        folders = {parent for parent, _ in entries.values()}
        values = {
            file_id: b"dir: %b\n%b\n%b\nr1" % (file_id, *place)
            if file_id in folders or place == (b"", b"")
            else b"file: %b\n%b\n%b\nr1\n%040x\n7\nN" % (file_id, *place, 7)
            for file_id, place in entries.items()
        }
        by_name = {place: file_id for file_id, place in entries.items()}
        entry_map = {(file_id,): value for file_id, value in values.items()}
        return Inventory(b"r1", b"root", self.build(1, entry_map), self.build(2, by_name))

    def build(self, parts: int, items: Mapping[Any, bytes]) -> Key:
        """The page of a map, or of a part of it."""
        keys = {key: search_key(*key) for key in items}
        if len(items) <= self.limit or len(set(keys.values())) == 1:
            lines = [
                b"%b\0%d\n%b\n" % (b"\0".join(key), items[key].count(b"\n") + 1, items[key]) for key in sorted(items)
            ]
            return self.put(b"chkleaf:\n65536\n%d\n%d\n\n%b" % (parts, len(items), b"".join(lines)))
        depth = next(at for at in range(9) if len({key[: at + 1] for key in keys.values()}) > 1)
        below: dict[bytes, dict[Any, bytes]] = {}
        for key, value in items.items():
            below.setdefault(keys[key][depth : depth + 1], {})[key] = value
        lines = [b"%b\0%b\n" % (place, self.build(parts, inside)) for place, inside in sorted(below.items())]
        prefix = next(iter(keys.values()))[:depth]
        return self.put(b"chknode:\n65536\n%d\n%d\n%b\n%b" % (parts, len(items), prefix, b"".join(lines)))

    def put(self, text: bytes) -> Key:
        key = b"sha1:" + hashlib.sha1(text).hexdigest().encode()
        self.pages[key] = text
        return key


def large(limit: int) -> tuple[Maps, Inventory, dict[bytes, bytes]]:
    """Maps of 40 folders in each other with 20 files each; path -> file id."""
    entries, paths = {b"root": (b"", b"")}, {b"": b"root"}
    folder, path = b"root", b""
    for depth in range(40):
        for number in range(20):
            file_id = b"file-%d-%d" % (depth, number)
            entries[file_id] = (folder, b"f%d" % number)
            paths[path + b"f%d" % number] = file_id
        entries[b"folder-%d" % depth] = (folder, b"down")
        paths[path + b"down"] = folder = b"folder-%d" % depth
        path += b"down/"
    maps = Maps(limit)
    return maps, maps.inventory(entries), paths


def test_a_folder_that_is_in_itself_is_nowhere() -> None:
    maps = Maps(9)
    inventory = maps.inventory({b"root": (b"", b""), b"a": (b"b", b"a"), b"b": (b"a", b"b"), b"c": (b"gone", b"c")})
    tree = BzrTree(inventory, maps.pages.__getitem__)
    for file_id in (b"a", b"c"):
        with pytest.raises(ValueError, match="is missing, or in itself"):
            tree.path_of(file_id)


@pytest.mark.parametrize("limit", [1, 3, 50, 1000])
def test_maps_of_any_shape(limit: int) -> None:
    maps, inventory, paths = large(limit)
    tree = BzrTree(inventory, maps.pages.__getitem__)
    for path, file_id in paths.items():
        found = tree.find(path)
        assert found is not None
        assert (found.file_id, found.name) == (file_id, path.rpartition(b"/")[2])
    assert tree.find(b"down/f20") is None
    assert {path: entry.file_id for path, entry in tree.walk()} == paths
    below = [(path, entry.file_id) for path, entry in tree.walk(b"down/down")]
    assert below == sorted((path, paths[path]) for path in paths if (path + b"/").startswith(b"down/down/"))
    assert len(tree.children(b"folder-3")) == 21


def test_only_the_pages_of_a_question_are_read() -> None:
    maps, inventory, _ = large(3)
    read: list[Key] = []

    def page(key: Key) -> bytes:
        read.append(key)
        return maps.pages[key]

    tree = BzrTree(inventory, page)
    for _ in range(2):
        assert tree.find(b"down/f7") is not None
        assert 0 < len(set(read)) == len(read) <= 10
    assert len(maps.pages) > 500


def test_a_page_of_the_other_map() -> None:
    inventory = read_inventory(SECOND[1].text)
    turned = inventory._replace(id_to_entry=inventory.by_name, by_name=inventory.id_to_entry)
    tree = BzrTree(turned, PAGES.__getitem__)
    for ask in (lambda: tree.find(b"lib"), lambda: tree.find(b""), lambda: list(tree.walk())):
        with pytest.raises(ValueError, match="is not one of its map"):
            ask()


def node(prefix: bytes, children: Mapping[bytes, Key]) -> bytes:
    return b"chknode:\n65536\n1\n9\n%b\n" % prefix + b"".join(b"%b\0%b\n" % child for child in children.items())


def test_pages_that_lead_astray() -> None:
    """A peer's pages may be anything that has its hash: a walk of them ends all the same."""
    maps = Maps(9)
    leaf = maps.build(1, {(b"a",): b"dir: a\n\n\nr1"})
    twice = maps.put(node(b"", {b"a": leaf, b"b": leaf}))
    below = maps.put(node(b"ab", {b"c": leaf}))
    misplaced = maps.put(node(b"", {b"x": below}))
    for root in (twice, misplaced):
        tree = BzrTree(Inventory(b"r1", b"a", root, leaf), maps.pages.__getitem__)
        with pytest.raises(ValueError, match=r"in it twice|not in its place"):
            list(tree.entries())


@pytest.mark.parametrize(
    "values",
    [
        {b"a": b"dir: b\n\n\nr1"},
        {b"a": b"dir: a\n\n\nr1", b"x": b"dir: a\na\nx\nr1"},
    ],
)
def test_an_entry_under_another_id(values: dict[bytes, bytes]) -> None:
    maps = Maps(9)
    root = maps.build(1, {(key,): value for key, value in values.items()})
    with pytest.raises(ValueError, match="has the id"):
        list(BzrTree(Inventory(b"r1", b"a", root, root), maps.pages.__getitem__).walk())


def test_folders_in_each_other() -> None:
    maps = Maps(9)
    entries = maps.build(1, {(b"root",): b"dir: root\na\nr\nr1", (b"a",): b"dir: a\nroot\na\nr1"})
    names = maps.build(2, {(b"root", b"a"): b"a", (b"a", b"r"): b"root"})
    tree = BzrTree(Inventory(b"r1", b"root", entries, names), maps.pages.__getitem__)
    assert list(tree.walk()) == []
    with pytest.raises(ValueError, match="in two places"):
        list(tree.walk(b"a"))


def test_an_entry_in_two_leaves() -> None:
    maps = Maps(9)
    leaves = [maps.build(1, {(b"a",): b"dir: a\n%b\nx\nr1" % parent}) for parent in (b"", b"a")]
    root = maps.put(node(b"", dict(zip((b"a", b"b"), leaves, strict=True))))
    with pytest.raises(ValueError, match="two entries"):
        list(BzrTree(Inventory(b"r1", b"a", root, root), maps.pages.__getitem__).walk())


def test_each_page_is_charged_whether_it_is_read_or_at_hand() -> None:
    maps, inventory, _ = large(5)
    charged: list[int] = []
    tree = BzrTree(inventory, maps.pages.__getitem__, charge=charged.append)
    assert tree.find(b"nowhere") is None
    once = sum(charged)
    for _ in range(9):
        tree.find(b"nowhere")
    assert sum(charged) == 10 * once > 0


def test_paths_are_charged_for_their_bytes() -> None:
    """All paths of 50 folders in each other with names of 200 bytes take 255,000 bytes."""
    maps = Maps(1000)
    name = b"n" * 200
    entries = {b"root": (b"", b""), b"0": (b"root", name)}
    entries.update({b"%d" % number: (b"%d" % (number - 1), name) for number in range(1, 50)})
    for path in (b"", name):
        charged: list[int] = []
        tree = BzrTree(maps.inventory(entries), maps.pages.__getitem__, charge=charged.append)
        assert len(list(tree.walk(path))) >= 50
        assert sum(charged) > 250_000 // 64


def test_a_leaf_that_is_gone_through_for_each_folder_is_charged_for_its_items() -> None:
    maps = Maps(1000)
    entries = {b"root": (b"", b""), **{b"%d" % number: (b"root", b"f%d" % number) for number in range(640)}}
    charged: list[int] = []
    tree = BzrTree(maps.inventory(entries), maps.pages.__getitem__, charge=charged.append)
    assert len(tree.children(b"root")) == 640
    assert tree.children(b"5") == {}
    assert sum(charged) >= 2 * 640 // 16

from __future__ import annotations

from collections.abc import Mapping

import pytest
from bzr_maps import key_of, write
from bzr_samples import FIRST, SECOND

from smartserver.records.model import Key
from smartserver.vcs.bzr.revision import Inventory, read_inventory
from smartserver.vcs.bzr.tree import BzrTree

PAGES = {record.key: record.text for record in FIRST + SECOND if record.kind == 3}


class Maps:
    """Pages as Breezy makes them, but with at most `limit` items in a leaf. Breezy's own are read in `interop`."""

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
        by_name = {b"\0".join(place): file_id for file_id, place in entries.items()}
        return Inventory(b"r1", b"root", self.build(1, values), self.build(2, by_name))

    def build(self, parts: int, items: Mapping[bytes, bytes]) -> Key:
        """The root page of a map."""
        return write(self.pages, items, self.limit, parts=parts)

    def put(self, text: bytes) -> Key:
        self.pages[key_of(text)] = text
        return key_of(text)


def large(limit: int) -> tuple[Maps, Inventory]:
    """Maps of 40 folders in each other with 20 files each."""
    entries = {b"root": (b"", b"")}
    folder = b"root"
    for depth in range(40):
        entries.update({b"file-%d-%d" % (depth, number): (folder, b"f%d" % number) for number in range(20)})
        entries[b"folder-%d" % depth] = (folder, b"down")
        folder = b"folder-%d" % depth
    maps = Maps(limit)
    return maps, maps.inventory(entries)


def test_a_folder_that_is_in_itself_is_nowhere() -> None:
    maps = Maps(9)
    inventory = maps.inventory({b"root": (b"", b""), b"a": (b"b", b"a"), b"b": (b"a", b"b"), b"c": (b"gone", b"c")})
    tree = BzrTree(inventory, maps.pages.__getitem__)
    for file_id in (b"a", b"c"):
        with pytest.raises(ValueError, match="is missing, or in itself"):
            tree.path_of(file_id)


def test_only_the_pages_of_a_question_are_read() -> None:
    maps, inventory = large(3)
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
    leaf = maps.build(1, {b"a": b"dir: a\n\n\nr1"})
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
    root = maps.build(1, values)
    with pytest.raises(ValueError, match="has the id"):
        list(BzrTree(Inventory(b"r1", b"a", root, root), maps.pages.__getitem__).walk())


def test_folders_in_each_other() -> None:
    maps = Maps(9)
    entries = maps.build(1, {b"root": b"dir: root\na\nr\nr1", b"a": b"dir: a\nroot\na\nr1"})
    names = maps.build(2, {b"root\0a": b"a", b"a\0r": b"root"})
    tree = BzrTree(Inventory(b"r1", b"root", entries, names), maps.pages.__getitem__)
    assert list(tree.walk()) == []
    with pytest.raises(ValueError, match="in two places"):
        list(tree.walk(b"a"))


def test_an_entry_in_two_leaves() -> None:
    maps = Maps(9)
    leaves = [maps.build(1, {b"a": b"dir: a\n%b\nx\nr1" % parent}) for parent in (b"", b"a")]
    root = maps.put(node(b"", dict(zip((b"a", b"b"), leaves, strict=True))))
    with pytest.raises(ValueError, match="two entries"):
        list(BzrTree(Inventory(b"r1", b"a", root, root), maps.pages.__getitem__).walk())


def test_each_page_is_charged_whether_it_is_read_or_at_hand() -> None:
    maps, inventory = large(5)
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

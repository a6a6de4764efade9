"""vcs.bzr.tree, vcs.bzr.trees: a tree is read from its pages, and what is new in it is what no parent reaches."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence

import pytest
from bzr_maps import entry, key_of, leaf, write
from bzr_samples import FIRST, SECOND

from smartserver.records.model import Key
from smartserver.vcs.bzr.pages import is_node, read_node
from smartserver.vcs.bzr.revision import Inventory, read_inventory
from smartserver.vcs.bzr.tree import BzrTree
from smartserver.vcs.bzr.trees import Difference, MapPage, TreeEntry, differing, rows

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


Items = dict[bytes, bytes]


class Store:
    """Pages, and how often they were asked for."""

    def __init__(self) -> None:
        self.pages: dict[bytes, bytes] = {}
        self.rounds = 0

    def compare(self, new: bytes, olds: Sequence[bytes], *, entries: bool = True) -> Difference:
        read: dict[bytes, MapPage] = {}
        found = Difference(read)
        for keys in found.compare(new, olds, entries=entries):
            assert not read.keys() & set(keys)
            read.update({key: MapPage(self.pages[key]) for key in keys})
            self.rounds += 1
        return found

    def reach(self, root: bytes) -> set[bytes]:
        found = {root}
        page = self.pages[root]
        if is_node(page):
            for key in read_node(page).children.values():
                found |= self.reach(key)
        return found

    def texts(self, root: bytes) -> set[tuple[bytes, bytes]]:
        leaves = [self.pages[key] for key in self.reach(root) if not is_node(self.pages[key])]
        return {(row[0], row[3]) for page in leaves for row in rows(page)}


def check(store: Store, new: bytes, olds: Sequence[bytes]) -> None:
    found = store.compare(new, olds)
    before = set[bytes]().union(*[store.reach(old) for old in olds])
    assert {page.key for page in found.pages} == store.reach(new) - before
    assert len({page.key for page in found.pages}) == len(found.pages)
    texts = set[tuple[bytes, bytes]]().union(*[store.texts(old) for old in olds])
    named = {(text.entry.file_id, text.entry.revision) for text in found.texts}
    assert named == store.texts(new) - texts
    near = [store.reach(old) for old in olds[:2]]
    older: dict[bytes, set[bytes]] = {}
    for file_id, revision in [row for old in olds[:2] for row in store.texts(old)]:
        older.setdefault(file_id, set()).add(revision)
    for page in found.pages:
        assert len(page.candidates) <= 2
        assert all(any(key in pages for pages in near) for key in page.candidates)
    for text in found.texts:
        assert set(text.candidates) == older.get(text.entry.file_id, set())


def changed(chance: random.Random, items: Items, number: int) -> Items:
    """The items with some more, fewer and others."""
    made = dict(items)
    for _ in range(chance.choice((0, 1, 1, 2, 30))):
        what = chance.random()
        if what < 0.4 or not made:
            file_id = b"file-%x" % chance.getrandbits(16)
        else:
            file_id = chance.choice(sorted(made))
        if what > 0.8 and made:
            made.pop(file_id)
        else:
            kind = chance.choice(("file", "file", "file", "dir", "symlink"))
            made[file_id] = entry(file_id, b"rev-%d" % number, kind=kind)
    return made


@pytest.mark.parametrize("seed", range(8))
def test_what_is_new_is_what_no_parent_reaches(seed: int) -> None:
    chance = random.Random(seed)
    store = Store()
    items: list[Items] = [{}]
    for number in range(1, 60):
        made = changed(chance, chance.choice(items[-5:]), number)
        if chance.random() < 0.3:
            made |= {key: value for key, value in chance.choice(items).items() if chance.random() < 0.3}
        items.append(made)
    # Pages of differing sizes: what is a leaf in one tree is many in the other.
    roots = [write(store.pages, each, chance.choice((2, 2, 5, 5, 40))) for each in items]
    for _ in range(40):
        new, *olds = chance.sample(roots, chance.choice((1, 2, 2, 3, 4)))
        check(store, new, olds)


def test_a_map_of_names_has_no_texts() -> None:
    store = Store()
    roots = [write(store.pages, {b"%x" % n: b"value %d" % n for n in range(count)}, 3) for count in (20, 21)]
    found = store.compare(roots[1], roots[:1], entries=False)
    assert found.pages
    assert found.texts == []


def test_a_map_that_is_the_same_is_not_read() -> None:
    store = Store()
    assert store.compare(b"sha1:1", [b"sha1:0", b"sha1:1"]).pages == []
    assert store.rounds == 0


def test_pages_are_asked_for_together() -> None:
    """A tree of a thousand pages whose leaves all changed takes a question a level, not one a page."""
    store = Store()
    roots = [
        write(store.pages, {b"file-%d" % n: entry(b"file-%d" % n, b"rev-%d" % revision) for n in range(3000)}, 4)
        for revision in (1, 2)
    ]
    check(store, roots[1], roots[:1])
    assert len(store.pages) > 1000
    assert store.rounds < 8


def test_a_broken_page_is_refused() -> None:
    store = Store()
    store.pages[b"sha1:1"] = b"chknode:\n1\n1\n1\n\nno child\n"
    with pytest.raises(ValueError, match="cannot be read as a page of pages"):
        store.compare(b"sha1:1", [])
    store.pages[b"sha1:1"] = b"no page"
    with pytest.raises(ValueError, match="cannot be read as a leaf"):
        store.compare(b"sha1:1", [], entries=False)


def test_what_is_no_leaf() -> None:
    for page in (b"", b"chkinventory:\n", b"chkleaf:\n1\n", b"chknode:\n1\n1\n1\n\nc\0sha1:1\n"):
        with pytest.raises(ValueError, match="cannot be read as a leaf"):
            rows(page)
        with pytest.raises(ValueError, match="cannot be read as a leaf"):
            differing(leaf({}), page)


def test_a_leaf_of_all_kinds_of_entries() -> None:
    items = {
        b"id-dir": entry(b"id-dir", b"r1", kind="dir"),
        b"id-file": entry(b"id-file", b"r2", name="naïve: x".encode(), text=b"text"),
        b"id-link": entry(b"id-link", b"r3", kind="symlink"),
    }
    page = leaf(items)
    assert b"\nid-\n" in page
    found = [TreeEntry._make(row) for row in rows(page)]
    assert found[0] == (b"id-dir", b"root", b"name of id-dir", b"r1", b"", b"")
    assert found[1] == (
        *(b"id-file", b"root", "naïve: x".encode(), b"r2"),
        *(hashlib.sha1(b"text").hexdigest().encode(), b"4"),
    )
    assert found[2].revision == b"r3"
    assert key_of(page).startswith(b"sha1:")


def test_a_leaf_that_has_not_what_it_says() -> None:
    page = leaf({b"a": entry(b"a", b"r1"), b"b": entry(b"b", b"r2")})
    for wrong in (page[:-60], page.replace(b"\n2\n", b"\n3\n", 1), leaf({b"x": b"file: "}), leaf({b"x": b"odd: x"})):
        with pytest.raises(ValueError, match="cannot be read as a leaf: it says"):
            rows(wrong)


@pytest.mark.parametrize("seed", range(20))
def test_what_differs_of_two_leaves(seed: int) -> None:
    chance = random.Random(seed)
    kinds = ("file", "dir", "symlink")
    items = {
        b"id%d" % n: entry(b"id%d" % n, b"r%d" % chance.randrange(9), kind=chance.choice(kinds)) for n in range(60)
    }
    for _ in range(30):
        other = dict(items)
        for key in chance.sample(sorted(items), min(len(items), chance.choice((0, 1, 1, 2, 20)))):
            if chance.random() < 0.5:
                del other[key]
            else:
                other[key] = entry(key, b"r%d" % chance.randrange(9), kind=chance.choice(kinds))
        one, two = leaf(items), leaf(other)
        new, old = differing(two, one)
        assert set(new) - set(old) == set(rows(two)) - set(rows(one))
        assert set(old) - set(new) == set(rows(one)) - set(rows(two))
        items = other

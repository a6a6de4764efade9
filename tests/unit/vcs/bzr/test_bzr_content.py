"""vcs.bzr.content: odd trees, texts and headers of Breezy's histories; others are in `interop/test_brz_browse.py`.

vcs.bzr.tree, vcs.bzr.trees: a tree is read from its pages, and what is new in it is what no parent reaches."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest
from builders import joined
from bzr_builders import inventory_text, revision_text
from bzr_maps import entry, key_of, leaf, write
from bzr_samples import FIRST, SECOND
from calls import calls_of
from charging import Charged

from smartserver.errors import MissingRevision, NoSuchPart
from smartserver.records.browse import ChangedPath, Contents
from smartserver.records.content import ReadScope
from smartserver.records.model import Key, Record, Tip
from smartserver.vcs.bzr import content
from smartserver.vcs.bzr.content import MAX_NAMED, BzrContents
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, TEXT
from smartserver.vcs.bzr.pages import is_node, read_node
from smartserver.vcs.bzr.revision import Inventory, read_inventory
from smartserver.vcs.bzr.system import BzrSystem
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


ONE, TWO = b"joe@example.org-1", b"joe@example.org-2"
GHOST = b"ghost@example.org-1"


class Item(NamedTuple):
    """A node at a path. A folder has a slash as its text, a link is at its target, a tree at its revision."""

    file_id: bytes
    text: bytes = b""
    kind: str = "file"
    executable: bool = False


Tree = Mapping[bytes, Item]


class Stored(Charged):
    """A repository with the two sample revisions, to which others are added; `most`: entries on a page."""

    def __init__(self, most: int = 100) -> None:
        super().__init__()
        self.most = most
        self.records = {(record.kind, record.key): record for record in (*FIRST, *SECOND)}
        self.order = [ONE, TWO]
        self.before: dict[bytes, Sequence[bytes]] = {TWO: (ONE, GHOST)}
        self.tags: dict[bytes, bytes] = {}
        self._last: dict[bytes, dict[bytes, tuple[object, bytes]]] = {}
        """The entries of each revision by file id: the text, and the revision that changed it last."""

    def commit(self, tree: Tree, *parents: bytes, timestamp: bytes = b"1000000000.750") -> bytes:
        """Add a revision with this tree; its id."""
        revision = b"r\xc3\xa9v-%d" % len(self.order)
        ids = {path: item.file_id for path, item in tree.items()} | {b"": b"root"}
        known = self._last.get(parents[0], {}) if parents else {}
        mine = self._last[revision] = {}
        entries, names = {}, {}
        for path, item in {b"": Item(b"root", kind="dir"), **tree}.items():
            folder, _, name = path.rpartition(b"/")
            above = ids.get(folder, b"absent-id") if path else b""
            said = (above, name, item)
            last = known[item.file_id][1] if known.get(item.file_id, (None,))[0] == said else revision
            mine[item.file_id] = (said, last)
            value = b"%b: %b\n%b\n%b\n%b" % (item.kind.encode(), item.file_id, above, name, last)
            if item.kind == "file":
                sha1 = hashlib.sha1(item.text).hexdigest().encode()
                value += b"\n%b\n%d\n%b" % (sha1, len(item.text), b"NY"[item.executable :][:1])
                self._put(TEXT, item.file_id + b"\0" + last, item.text)
            elif item.kind != "dir":
                value += b"\n" + item.text
            entries[item.file_id], names[above + b"\0" + name] = value, item.file_id
        pages: dict[bytes, bytes] = {}
        by_name = leaf(names, parts=2)
        by_id = write(pages, entries, self.most)
        for page in (by_name, *pages.values()):
            self._put(CHK, key_of(page), page)
        self._put(INVENTORY, revision, inventory_text(revision, b"root", by_id, key_of(by_name)))
        self._put(REVISION, revision, revision_text(revision, parents, len(self.order), timestamp))
        self.order.append(revision)
        self.before[revision] = parents
        return revision

    def _put(self, kind: int, key: Key, text: bytes) -> None:
        self.records[kind, key] = Record(kind, key, b"", text)

    def map(self, name: str) -> Mapping[bytes, bytes]:
        assert name == "tags"
        return self.tags

    def first_parent(self, ordinal: int) -> int | None:
        return next(map(self.ordinal, self.before.get(self.order[ordinal], ())), None)


def contents(stored: Stored, branch: bytes = b"") -> Contents:
    return BzrSystem().contents(stored, ReadScope(ref=branch))


# -- trees

TREE: Tree = {
    b"doc": Item(b"doc-id", kind="dir"),
    b"doc/link": Item(b"link-id", b"../\xc3\xbc", kind="symlink"),
    b"doc/deep": Item(b"deep-id", kind="dir"),
    b"doc/deep/run": Item(b"run-id", b"#!/bin/sh\n", executable=True),
    b"doc.txt": Item(b"txt-id"),
    b"lib": Item(b"lib-id", b"joe@example.org-7", kind="tree"),
    b"\xc3\xbc": Item(b"u-id", b"text\n"),
}


def test_what_is_damaged() -> None:
    stored = Stored()
    revision = stored.commit(TREE)
    here = contents(stored)
    (node,) = here.nodes(revision, b"doc.txt", deep=False)
    del stored.records[TEXT, b"txt-id\0" + revision]
    with pytest.raises(ValueError, match=r"the text .* is missing"):
        joined(here.text(node))
    for ask in (lambda: here.header(GHOST), lambda: next(here.nodes(GHOST, b"", deep=True))):
        with pytest.raises(MissingRevision):
            ask()
    for place in [place for place in stored.records if place[0] == CHK]:
        del stored.records[place]
    for deep in (False, True):
        with pytest.raises(ValueError, match=r"the page .* is missing"):
            next(contents(stored).nodes(revision, b"", deep=deep))


def test_a_name_without_an_entry() -> None:
    stored = Stored()
    page = next(record for record in FIRST if record.kind == CHK and b"\nroot-id\0README" in record.text)
    stored.records[CHK, page.key] = page._replace(text=page.text.replace(b"readme-id", b"absent-id"))
    with pytest.raises(ValueError, match="the entry of b'absent-id' is missing"):
        list(contents(stored).nodes(ONE, b"", deep=False))


# -- headers


@pytest.mark.parametrize("timestamp", [b"", b"nan", b"inf", b"1e9", b"1.5.5", b"1" * 16, b" 1", b"1_0"])
def test_a_time_that_cannot_be_read(timestamp: bytes) -> None:
    stored = Stored()
    with pytest.raises(ValueError, match=r"the time .* cannot be read"):
        contents(stored).header(stored.commit({}, timestamp=timestamp))


# -- states and changes


def changes(old: Tree, new: Tree) -> list[tuple[str, bytes]]:
    stored = Stored(2)
    first = stored.commit(old)
    return [(each.action, each.path) for each in contents(stored).changes(stored.commit(new, first))]


def test_another_file_of_the_same_content_is_no_change() -> None:
    """A path is what a log shows, and nothing of it is different."""
    assert changes(TREE, {**TREE, b"doc.txt": Item(b"other-id")}) == []
    assert changes(TREE, {**TREE, b"doc.txt": Item(b"other-id", kind="dir")}) == [("M", b"doc.txt")]
    assert changes(TREE, {**TREE, b"lib": TREE[b"lib"]._replace(kind="symlink")}) == [("M", b"lib")]


def test_an_entry_whose_folder_is_missing() -> None:
    with pytest.raises(ValueError, match="the folder of b'x-id' is missing"):
        changes(TREE, {**TREE, b"absent/x": Item(b"x-id")})


def test_a_merge_is_compared_with_the_first_parent_and_a_ghost_is_none() -> None:
    stored = Stored()
    first = stored.commit({b"a": Item(b"a-id")})
    second = stored.commit({b"b": Item(b"b-id")})
    merge = stored.commit({b"a": Item(b"a-id"), b"b": Item(b"b-id")}, first, second)
    of_ghost = stored.commit({b"a": Item(b"a-id")}, GHOST, first)
    here = contents(stored)
    assert list(here.changes(merge)) == [ChangedPath("A", b"b")]
    assert list(here.changes(of_ghost)) == [ChangedPath("A", b"a")]


def test_pages_that_revisions_share_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Stored(4)
    tree = {b"f%02d" % number: Item(b"id-%d" % number) for number in range(64)}
    first = stored.commit(tree)
    second = stored.commit({**tree, b"f00": Item(b"id-0", b"new\n")}, first)

    def count(*revisions: bytes) -> int:
        here, read = contents(stored), calls_of(monkeypatch, stored, "record")
        for revision in revisions:
            here.state(revision, b"f00")
            here.state(revision, b"f33")
        return len(read)

    once = count(first)
    assert count(first, second) < 2 * once
    monkeypatch.setattr(content, "KEPT_BYTES", -1)
    assert count(first, second) == 2 * count(first) > 2 * once


def grown(chance: random.Random, tree: Mapping[bytes, Item], number: int, do: str = "add") -> dict[bytes, Item]:
    """The tree with a node added, edited, moved or removed; with a folder goes all that is in it."""
    folder = chance.choice([b"", *[path + b"/" for path, item in tree.items() if item.kind == "dir"]])
    path = chance.choice(list(tree))
    item, inside = tree[path], {each for each in tree if (each + b"/").startswith(path + b"/")}
    match do:
        case "edit" if item.kind == "file" and chance.random() < 0.3:
            return {**tree, path: item._replace(executable=not item.executable)}
        case "edit" if item.kind != "dir":
            return {**tree, path: item._replace(text=b"more" + item.text)}
        case "move" if not folder.startswith(path + b"/"):
            moved = folder + path.rpartition(b"/")[2]
            return {moved + each[len(path) :] if each in inside else each: item for each, item in tree.items()}
        case "remove" if len(inside) < len(tree):
            return {each: item for each, item in tree.items() if each not in inside}
        case "add":
            kind = chance.choice(("file", "file", "file", "dir", "dir", "symlink", "tree"))
            return {**tree, folder + b"f%d" % number: Item(b"id-%d" % number, b"text" * (kind != "dir"), kind)}
    return dict(tree)


@pytest.mark.parametrize("seed", range(20))
def test_changes_of_any_trees(seed: int) -> None:
    """Whatever the shape of the pages."""
    chance = random.Random(seed)
    stored = Stored(chance.choice((1, 1, 2, 8)))
    here = contents(stored)
    numbers, old = itertools.count(), {b"f": Item(b"f-id")}
    for number in itertools.islice(numbers, chance.choice((2, 20, 40))):
        old = grown(chance, old, number)
    before = stored.commit(old)
    for _ in range(8):
        new = old
        for number in itertools.islice(numbers, chance.choice((0, 1, 2, 5))):
            new = grown(chance, new, number, chance.choice(("add", "edit", "move", "remove")))
        revision = stored.commit(new, before)
        assert {node.path for node in here.nodes(revision, b"", deep=True)} == {b"", *new}
        expected = [
            ChangedPath("A" if path not in old else "D" if path not in new else "M", path)
            for path in sorted(old.keys() | new.keys())
            if path not in old or path not in new or old[path][1:] != new[path][1:]
        ]
        assert list(here.changes(revision)) == expected
        assert (here.state(revision, b"") == here.state(before, b"")) == (not expected)
        old, before = new, revision


# -- names


def served() -> Stored:
    """Two revisions on trunk, one of them with a tag, and a branch beside it."""
    stored = Stored()
    stored.branches = {b"trunk": (Tip(TWO, attributes=b"2"),), b"topic": (Tip(ONE, attributes=b"1"),)}
    stored.tags = {b"trunk\0v1": ONE, b"trunk\0002": ONE, b"trunk\0009": ONE, b"topic\0v2": TWO, b"trunk\0lost": GHOST}
    return stored


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("3", "no revision 3"),
        ("0", "no revision 0"),
        ("-3", "no revision -3"),
        ("revno:9", "no revision 9"),
        ("revno:v1", "unknown revision 'revno:v1': no number"),
        ("v2", "'v2': no number, tag or id in the branch trunk, and no other branch"),
        ("tag:topic", "unknown revision 'tag:topic'"),
        ("tag:", "unknown revision"),
        ("revid:v1", "unknown revision 'revid:v1'"),
        ("revid:", "unknown revision"),
        (GHOST.decode(), "unknown revision"),
        ("1" * 40, "unknown revision"),
    ],
)
def test_names_of_nothing(name: str, why: str) -> None:
    with pytest.raises(NoSuchPart, match=why):
        contents(served()).find(name)


def test_which_branch_is_meant() -> None:
    stored = Stored()
    with pytest.raises(NoSuchPart, match=r"^there is no branch yet$"):
        contents(stored).find("")
    stored.branches = {b"one": (Tip(ONE),)}
    assert contents(stored).find("") == ONE
    stored.branches[b"two"] = (Tip(TWO),)
    assert contents(stored).find("two") == contents(stored, b"two").find("") == TWO
    assert contents(stored).find("revid:" + ONE.decode()) == ONE
    why = "give a branch, as URL/one; there are one, two$"
    for name, begin in (("", "^"), ("1", "unknown revision '1': "), ("three", "unknown revision 'three': ")):
        with pytest.raises(NoSuchPart, match=begin + why):
            contents(stored).find(name)
    stored.branches[b"."] = (Tip(TWO),)
    assert contents(stored).find("") == TWO
    many = Stored()
    many.branches = {b"%02d" % number: (Tip(ONE),) for number in range(MAX_NAMED + 2)}
    with pytest.raises(NoSuchPart, match="08, 09 and 2 more"):
        BzrContents(many, b"absent").find("")

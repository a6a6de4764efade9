"""vcs.bzr.content: odd trees, texts and headers of Breezy's histories; others are in `interop/test_brz_browse.py`."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest
from builders import joined
from bzr_builders import inventory_text, revision_text
from bzr_maps import key_of, leaf, write
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
from smartserver.vcs.bzr.system import BzrSystem

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

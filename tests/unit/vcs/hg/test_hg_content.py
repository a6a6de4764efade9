"""vcs.hg.content: odd trees, texts and headers of Mercurial's histories; others are in `interop/test_hg_browse.py`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from builders import joined
from charging import Charged

from smartserver.errors import MissingRevision, NoSuchPart
from smartserver.records.browse import ChangedPath, Contents, Node, NodeType
from smartserver.records.content import ReadScope, Text
from smartserver.records.model import Record, Tip
from smartserver.store.parts import PART
from smartserver.vcs.hg.content import MAX_METADATA, MAX_SECONDS
from smartserver.vcs.hg.kinds import CHANGESET, FILE, MANIFEST, NULL, file_key, meta_of, node_of
from smartserver.vcs.hg.system import HgSystem

FILES = {
    b"a.txt": (b"beside the folder a\n", b""),
    b"a/b": (b"in it\n", b""),
    b"a/deep/er/run": (b"#!/bin/sh\n", b"x"),
    b"a/link": (b"../z", b"l"),
    b"a0": (b"behind it\n", b""),
    b"\xfcber/x": (b"\1\ncopy: a0\ncopyrev: " + b"0" * 40 + b"\n\1\ntext\n", b""),
    b"z": (b"", b""),
}
Files = Mapping[bytes, tuple[bytes, bytes]]


class Stored(Charged):
    """A repository that changesets are added to, with the branches and bookmarks that a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.bookmarks: dict[bytes, bytes] = {}

    def commit(
        self, files: Files, *parents: bytes, date: bytes = b"1000000000 -5400 branch:x", message: bytes = b"message"
    ) -> bytes:
        """Add a changeset with these files; its node."""
        meta = meta_of(*(*parents, NULL, NULL)[:2])
        lines = [b"%b\0%b%b\n" % (path, self._add(FILE, text, path).hex().encode(), flag)
                 for path, (text, flag) in sorted(files.items())]  # fmt: skip
        manifest = self._add(MANIFEST, b"".join(lines)) if lines else NULL
        text = b"%b\nJos\xc3\xa9 <jo@example.org>\n%b\na/b\n\n%b" % (manifest.hex().encode(), date, message)
        node = self._add(CHANGESET, text, meta=meta)
        self.order.append(node)
        return node

    def _add(self, kind: int, text: bytes, path: bytes = b"", meta: bytes = b"") -> bytes:
        node = node_of(meta, text)
        key = file_key(path, node) if path else node
        self.records[kind, key] = Record(kind, key, meta, text)
        return node

    def map(self, name: str) -> Mapping[bytes, bytes]:
        return self.bookmarks if name == "bookmarks" else {}


def contents(stored: Stored, branch: bytes = b"") -> Contents:
    return HgSystem().contents(stored, ReadScope(ref=branch))


def listed(files: Files, path: bytes = b"", *, deep: bool = True) -> list[tuple[bytes, NodeType]]:
    stored = Stored()
    node = stored.commit(files)
    return [(each.path, each.type) for each in contents(stored).nodes(node, path, deep=deep)]


FOLDER, FILE_, LINK = NodeType.FOLDER, NodeType.FILE, NodeType.LINK


def test_a_folder_after_one_that_lies_deeper() -> None:
    files = dict.fromkeys([b"a-b/c", b"a/b/c/d", b"a/bb/c", b"aa/b/c"], (b"", b""))
    folders = [path for path, type_ in listed(files) if type_ is FOLDER]
    assert folders == [b"", b"a-b", b"a", b"a/b", b"a/b/c", b"a/bb", b"aa", b"aa/b"]


def test_an_empty_tree() -> None:
    assert listed({}) == [(b"", FOLDER)]
    stored = Stored()
    nothing = stored.commit({}, stored.commit(FILES))
    assert list(contents(stored).changes(nothing)) == [ChangedPath("D", path) for path in sorted(FILES)]


def test_a_text_that_looks_like_metadata() -> None:
    stored = Stored()
    node = stored.commit({b"f": (b"\1\n\1\n\1\nmine\n\1\n", b""), b"g": (b"\1\nno end", b"")})
    here = contents(stored)
    first, second = list(here.nodes(node, b"", deep=True))[1:]
    assert joined(here.text(first)) == b"\1\nmine\n\1\n"
    with pytest.raises(ValueError, match="have no end"):
        joined(here.text(second))


def test_of_metadata_without_end_only_the_begin_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Stored()
    node = stored.commit({b"f": (b"", b"")})
    parts = itertools.chain((b"\1", b"\n"), itertools.repeat(bytes(PART), 64))
    monkeypatch.setattr(stored, "text", lambda *_: Text(b"", 2 + 64 * PART, parts))
    here = contents(stored)
    (file,) = here.nodes(node, b"f", deep=False)
    before = stored.allowance.steps
    with pytest.raises(ValueError, match="have no end"):
        here.text(file)
    read = MAX_METADATA // PART
    assert (len(list(parts)), stored.allowance.steps - before) == (64 - read, read + 1)


def test_a_version_that_is_null_is_empty() -> None:
    stored = Stored()
    manifest = b"f\0" + b"0" * 40 + b"\n"
    node = stored.commit(FILES)
    old = next(record for record in stored.records.values() if record.kind == MANIFEST)
    stored.records[MANIFEST, old.key] = old._replace(text=manifest)
    here = contents(stored)
    (_, found) = here.nodes(node, b"", deep=True)
    assert (found, joined(here.text(found))) == (Node(b"f", FILE_, None), b"")


def test_what_is_damaged() -> None:
    stored = Stored()
    node = stored.commit(FILES)
    here = contents(stored)
    (found,) = here.nodes(node, b"z", deep=False)
    del stored.records[FILE, found.place[1] if found.place else b""]
    with pytest.raises(ValueError, match="is missing"):
        joined(here.text(found))
    manifest = next(key for kind, key in stored.records if kind == MANIFEST)
    for text, why in ((b"z\n", "cannot be read"), (b"z", "has no end"), (b"z\0\na\0\n", "not sorted")):
        stored.records[MANIFEST, manifest] = Record(MANIFEST, manifest, b"", text)
        with pytest.raises(ValueError, match=why):
            list(here.nodes(node, b"", deep=True))
    del stored.records[MANIFEST, manifest]
    with pytest.raises(ValueError, match="is missing"):
        next(here.nodes(node, b"", deep=True))
    for ask in (lambda: here.header(NULL), lambda: next(here.nodes(NULL, b"", deep=True))):
        with pytest.raises(MissingRevision):
            ask()


@pytest.mark.parametrize(
    ("date", "seconds", "zone"),
    [
        (b"0 90", 0, -1),
        (b"0 -90", 0, 1),
        (b"0 59", 0, 0),
        (b"1" + b"0" * 30 + b" -1" + b"0" * 30, MAX_SECONDS, MAX_SECONDS),
        (b"-1" + b"0" * 30 + b" 0", -MAX_SECONDS, 0),
    ],
)
def test_odd_dates(date: bytes, seconds: int, zone: int) -> None:
    stored = Stored()
    header = contents(stored).header(stored.commit({}, date=date))
    assert header is not None
    assert (header.seconds, header.zone) == (seconds, zone)


def test_what_a_clone_checks_out() -> None:
    stored = Stored()
    with pytest.raises(NoSuchPart, match="the repository has no changeset yet"):
        contents(stored).find("")
    one, two, three = (stored.commit({}, message=message) for message in (b"1", b"2", b"3"))
    stored.branches = {b"old": (Tip(two), Tip(three))}
    assert contents(stored).find("") == three
    stored.branches |= {b"default": (Tip(two, closed=True), Tip(one))}
    assert contents(stored).find("") == one
    assert contents(stored, b"old").find("") == three
    assert contents(stored, b"doc").find("") == one
    stored.bookmarks = {b"@": two}
    assert contents(stored).find("") == two
    assert contents(stored, b"old").find("") == three
    stored.bookmarks = {b"@": b"\xee" * 20}
    assert contents(stored).find("") == one


def test_folders_that_files_beside_each_other_lie_in_are_said_once() -> None:
    """Whatever their number: the way to them is not gone again for each."""
    deep = b"/".join([b"d"] * 200)
    files = {b"%b/%c/f" % (deep, letter): (b"", b"") for letter in b"abc"}
    found = [path for path, _ in listed(files, b"d/d")]
    above = [b"/".join([b"d"] * count) for count in range(2, 201)]
    assert found == [*above, *[deep + end for end in (b"/a", b"/a/f", b"/b", b"/b/f", b"/c", b"/c/f")]]

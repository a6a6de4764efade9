"""vcs.hg.reading, vcs.hg.markers: names become changesets as in Mercurial; which markers matter to which.

vcs.hg.content: odd trees, texts and headers of Mercurial's histories; others are in `interop/test_hg_browse.py`."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from builders import joined
from charging import Charged
from mercurial import obsolete

from smartserver.errors import MissingRevision, NoSuchPart, Unsupported
from smartserver.records.browse import ChangedPath, Contents, Node, NodeType
from smartserver.records.content import ReadScope, Text
from smartserver.records.model import Key, Record, RefValue, Tip
from smartserver.store.parts import PART
from smartserver.vcs.hg import reading
from smartserver.vcs.hg.content import MAX_METADATA, MAX_SECONDS
from smartserver.vcs.hg.kinds import CHANGESET, FILE, MANIFEST, NULL, file_key, meta_of, node_of
from smartserver.vcs.hg.markers import WHOLE, Marker, decode_selector, encode_selector, key_of, parse, relevant
from smartserver.vcs.hg.reading import newest_open, read
from smartserver.vcs.hg.selector import (
    BOOKMARK,
    BRANCH,
    FRAGMENT,
    GRAPH,
    MAX_NAMES,
    RevisionNames,
    decode,
    decode_found,
    encode,
)
from smartserver.vcs.hg.system import HgSystem


def marker(
    predecessor: bytes, *successors: bytes, parents: tuple[bytes, ...] | None = None, flags: int = 0, user: bytes = b"u"
) -> bytes:
    """A marker as Mercurial encodes it."""
    made = (predecessor, successors, flags, ((b"operation", b"amend"), (b"user", user)), (1.5, 3600), parents)
    return b"".join(obsolete.encodemarkers([made], False, 1))


FIRST, SECOND, THIRD, FOURTH = (bytes.fromhex(start.ljust(40, "0")) for start in ("ab1", "ab2", "123", "9c"))
MISSING = b"\xee" * 20
KNOWN = (bytes(range(16)), 7, 9)


class Named(Charged):
    """Four changesets in a row but for the last, which is on another branch and has the first as parent."""

    def __init__(self, hgtags: Mapping[bytes, bytes] = {}, markers: Sequence[bytes] = ()) -> None:
        super().__init__()
        self.markers = {key_of(each): each for each in markers}
        self.news: Sequence[bytes] = ()
        """Keys of markers that came after KNOWN."""
        self.evolution = b"yes"
        self.order = [FIRST, SECOND, THIRD, FOURTH]
        self.above: dict[int, Sequence[int]] = {0: (), 1: (0,), 2: (1,), 3: (0,)}
        for node, text in hgtags.items():
            self._add(node, text)

    def _add(self, node: bytes, hgtags: bytes) -> None:
        manifest, version = node[:-1] + b"m", node[:-1] + b"f"
        lines = b".a\0" + NULL.hex().encode() + b"\n.hgtags\0" + version.hex().encode() + b"\nz\0" + b"0" * 40 + b"\n"
        self.records[CHANGESET, node] = Record(CHANGESET, node, b"", manifest.hex().encode() + b"\nu\n0 0\n\nm")
        self.records[MANIFEST, manifest] = Record(MANIFEST, manifest, b"", lines)
        key = file_key(b".hgtags", version)
        self.records[FILE, key] = Record(FILE, key, b"", hgtags)

    def refs(self) -> Mapping[bytes, RefValue]:
        return {b"default": (Tip(THIRD),), b"old": (Tip(FOURTH, closed=True), Tip(SECOND)), b"12": (Tip(FIRST),)}

    def map(self, name: str) -> Mapping[bytes, bytes]:
        return {"bookmarks": {b"mark": SECOND, b"lost": MISSING}, "obsolete": self.markers}.get(name, {})

    def changed(self, name: str, known: tuple[bytes, int, int]) -> Sequence[bytes] | None:
        return self.news if known == KNOWN else None

    def setting(self, name: str) -> bytes | None:
        return self.evolution if name == "evolution" else None

    def first_parent(self, ordinal: int) -> int | None:
        return next(iter(self.above[ordinal]), None)

    def reached(self, wants: Sequence[int], haves: Sequence[int], absent: Sequence[int] = ()) -> Sequence[int]:
        def below(ordinals: Sequence[int]) -> set[int]:
            return set(ordinals).union(*[below(self.above[each]) for each in ordinals])

        return sorted(below(wants) - below(haves))

    def text(self, kind: int, key: Key) -> Text | None:
        raise AssertionError("a name needs no file")

    def length(self, kind: int, key: Key) -> int | None:
        raise AssertionError("nothing needs that")


def find(named: Named, *names: bytes) -> dict[bytes, bytes]:
    asked = RevisionNames(names, is_all=False)
    found = HgSystem().read(named, encode(asked), ReadScope())
    assert found.heads is None
    return decode_found(asked, found.said)


@pytest.mark.parametrize(
    ("name", "node"),
    [
        (b"tip", FOURTH),
        (b"0", FIRST),
        (b"2", THIRD),
        (b"-1", FOURTH),
        (b"-4", FIRST),
        (b"mark", SECOND),
        (b"default", THIRD),
        (b"old", SECOND),
        (THIRD.hex().encode(), THIRD),
        (b"ab2", SECOND),
        (b"9", FOURTH),
        (b"12", FIRST),
        (b"123", THIRD),
    ],
)
def test_names(name: bytes, node: bytes) -> None:
    assert find(Named(), name) == {name: node}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (b"ab", "ambiguous identifier 'ab'"),
        (b"4", "unknown revision '4'"),
        (b"-5", "unknown revision '-5'"),
        (b"-0", "unknown revision '-0'"),
        (b"02", "unknown revision '02'"),
        (b"nothing", "unknown revision 'nothing'"),
        (b"lost", "unknown revision 'lost'"),
        (MISSING.hex().encode(), "unknown revision"),
        (BRANCH + b"none", "unknown branch 'none'"),
    ],
)
def test_names_of_nothing(name: bytes, why: str) -> None:
    with pytest.raises(NoSuchPart, match=why):
        find(Named(), name)


def test_null() -> None:
    assert find(Named(), b"null", NULL.hex().encode()) == {}


def line(node: bytes, tag: bytes) -> bytes:
    return node.hex().encode() + b" " + tag + b"\n"


def test_tags_of_all_heads() -> None:
    """The last line of a file counts, of two heads the one that knows the other's; a tag may be removed."""
    old = line(FIRST, b"one") + line(FIRST, b"two words") + line(FIRST, b"gone") + line(NULL, b"gone")
    new = line(FIRST, b"one") + line(SECOND, b"one") + b"no line of a tag\n"
    for first, second in ((old, new), (new, old)):
        named = Named({THIRD: first, FOURTH: second})
        assert find(named, b"one", b"two words") == {b"one": SECOND, b"two words": FIRST}
        with pytest.raises(NoSuchPart, match="unknown revision 'gone'"):
            find(named, b"gone")


def test_a_tag_that_moved_often() -> None:
    """The head with the longer history counts, if two know each other's, in time that grows with it."""
    longer = line(FIRST, b"one") * 100_000 + line(SECOND, b"one")
    shorter = line(SECOND, b"one") * 50_000 + line(FIRST, b"one")
    for first, second in ((longer, shorter), (shorter, longer)):
        assert find(Named({THIRD: first, FOURTH: second}), b"one") == {b"one": SECOND}


def test_history_of_names_and_branches() -> None:
    plan = read(Named(), encode(RevisionNames([b"mark", BRANCH + b"old", b"tip"])), ReadScope())
    assert plan.heads == [SECOND, FOURTH]
    assert plan.said == SECOND + NULL + FOURTH
    again = read(Named(), encode(RevisionNames([b"mark", BRANCH + b"old", b"tip", b"mark", b"mark"])), ReadScope())
    assert (again.heads, again.said) == (plan.heads, plan.said + SECOND + SECOND)


def test_what_comes_after_a_url_is_a_branch_or_another_name() -> None:
    plan = read(Named(), encode(RevisionNames([FRAGMENT + b"old", FRAGMENT + b"mark"])), ReadScope())
    assert plan.said == NULL + SECOND
    assert find(Named(), FRAGMENT + b"mark") == {b"mark": SECOND}


def test_a_bookmark_alone() -> None:
    """A tag or a branch of that name does not count."""
    plan = read(Named(), encode(RevisionNames([BOOKMARK + b"mark", BOOKMARK + b"old", BOOKMARK + b"tip"])), ReadScope())
    assert plan.heads == [SECOND]
    assert plan.said == SECOND + NULL + NULL
    with pytest.raises(NoSuchPart, match="unknown revision 'lost'"):
        find(Named(), BOOKMARK + b"lost")


@pytest.mark.parametrize("selector", [b"", b"x", GRAPH, b"n" + b"\0" * MAX_NAMES])
def test_what_is_no_selector_of_names(selector: bytes) -> None:
    with pytest.raises(Unsupported, match="a selector of another release"):
        decode(selector)


def test_a_graph() -> None:
    plan = read(Named(), GRAPH, ReadScope([THIRD, FOURTH], [SECOND, MISSING]))
    assert [*(plan.pieces or ())] == [(2, ()), (3, ())]


def test_the_newest_open_head() -> None:
    named = Named()
    assert newest_open(named, (Tip(FOURTH, closed=True), Tip(FIRST), Tip(SECOND))) == SECOND
    assert newest_open(named, (Tip(FOURTH, closed=True), Tip(FIRST, closed=True))) == FOURTH


ONE, TWO, OTHER = marker(MISSING, SECOND), marker(b"\xdd" * 20, MISSING), marker(b"\xcc" * 20, FOURTH)
"""The second matters to what the first matters to."""

EARLY = marker(FIRST, b"\xbb" * 20)
"""It matters to a changeset that has not come yet."""


@pytest.mark.parametrize(
    ("known", "news", "names", "expected"),
    [
        (None, [], [], {ONE, TWO, OTHER, EARLY}),
        (None, [], [b"old"], {ONE, TWO, OTHER}),
        (None, [], [b"12"], set()),
        (None, [], [b"mark"], {ONE, TWO}),
        (KNOWN, [], [], set()),
        (KNOWN, [TWO, OTHER], [], {TWO, OTHER}),
        (KNOWN, [EARLY], [], {EARLY}),
        (KNOWN, [EARLY, TWO], [b"mark"], {TWO}),
        (KNOWN, [TWO, OTHER], [b"mark"], {TWO}),
    ],
)
def test_markers(
    known: tuple[bytes, int, int] | None, news: list[bytes], names: list[bytes], expected: set[bytes]
) -> None:
    named = Named(markers=[ONE, TWO, OTHER, EARLY])
    named.news = [key_of(each) for each in news]
    asked = encode(RevisionNames([BRANCH + name if name == b"old" else name for name in names])) if names else b""
    every = [tip.id for value in named.refs().values() for tip in value]
    found = HgSystem().read(named, encode_selector(known, asked), ReadScope(wants=[] if names else every))
    said = found.said[20 * len(names) :]
    assert {each for each in (ONE, TWO, OTHER, EARLY) if each in said} == expected
    assert len(said) == sum(map(len, expected))
    assert found.heads == every or names
    named.evolution = b"no"
    assert len(HgSystem().read(named, encode_selector(known, asked), ReadScope()).said) == 20 * len(names)


def test_a_selector_within_another() -> None:
    selector = b""
    for _ in range(5000):
        selector = encode_selector(None, selector)
    with pytest.raises(Unsupported):
        read(Named(), selector, ReadScope())


def test_all_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    named = Named(markers=sorted([ONE, TWO, OTHER], key=key_of))
    assert pages(named) == [named.markers]
    monkeypatch.setattr(reading, "PAGE", len(key_of(ONE)) + len(ONE) + 1)
    found = pages(named)
    assert [len(page) for page in found] == [2, 1]
    assert found[0] | found[1] == named.markers


def pages(named: Named) -> list[dict[bytes, bytes]]:
    found: list[dict[bytes, bytes]] = []
    is_all = False
    while not is_all:
        after = max(found[-1]) if found else b""
        page, is_all = msgspec.msgpack.decode(read(named, WHOLE + after, ReadScope()).said)
        found.append(page)
    return found


def test_markers_and_tags_are_charged() -> None:
    """A request of a hundred bytes goes through all of them."""
    named = Named({THIRD: b"%b v1\n" % FIRST.hex().encode() * 500}, markers=[ONE, TWO, OTHER, EARLY])
    for selector in (encode_selector(None, b""), WHOLE):
        before = named.allowance.steps
        HgSystem().read(named, selector, ReadScope(wants=[THIRD]))
        assert named.allowance.steps - before == 4
    find(named, b"v1")
    assert named.allowance.steps - before - 4 >= 500


A, B, C, D, E = (bytes([n]) * 20 for n in (0xA1, 0xB2, 0xC3, 0xD4, 0xE5))


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (marker(A, B), Marker(A, (B,), ())),
        (marker(A, B, C), Marker(A, (B, C), ())),
        (marker(A), Marker(A, (), ())),
        (marker(A, parents=(B, C)), Marker(A, (), (B, C))),
        (marker(A, parents=()), Marker(A, (), ())),
        (marker(A, B, parents=(C,), flags=1), Marker(A, (B,), (C,))),
    ],
)
def test_what_a_marker_says(encoded: bytes, expected: Marker) -> None:
    assert parse(encoded) == expected
    assert key_of(encoded).startswith(A.hex().encode())
    assert len(key_of(encoded)) == 2 * (20 + 8)


def test_what_is_no_marker() -> None:
    whole = marker(A, B, parents=(C,))
    long = b"".join(obsolete.encodemarkers([(A + bytes(12), (), 2, (), (0.0, 0), None)], False, 1))
    nan = whole[:4] + struct.pack(">d", math.nan) + whole[12:]
    for wrong in (*(whole[:end] for end in range(len(whole))), whole + b"x", long, marker(A, A), marker(A, NULL), nan):
        with pytest.raises(ValueError, match="marker"):
            parse(wrong)


def test_two_markers_of_one_changeset_have_two_keys() -> None:
    assert key_of(marker(A, B)) != key_of(marker(A, B, user=b"v"))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({D}, "ABCD"),  # The chain that leads to a successor.
        ({C}, "ABC"),
        ({A}, ""),  # Of what is replaced the marker does not matter.
        ({E}, "E"),  # A marker without successors matters to the changeset and its parents.
        ({B, E}, "ABE"),
    ],
)
def test_what_matters(wanted: set[bytes], expected: str) -> None:
    named = {"AB": marker(A, B), "BC": marker(B, C), "CD": marker(C, D), "E": marker(b"f" * 20, parents=(E,))}
    entries = {key_of(each): each for each in named.values()}
    found = relevant(entries, lambda node: node in wanted)
    chain = [pair for pair in ("AB", "BC", "CD") if pair in expected]
    assert found == {key_of(named[name]) for name in [*chain, *(["E"] if "E" in expected else [])]}


def test_a_changeset_without_successors_matters_to_itself() -> None:
    made = marker(A)
    assert relevant({key_of(made): made}, lambda node: node == A) == {key_of(made)}


def test_the_selector() -> None:
    known = (bytes(range(16)), 300, 65535)
    assert decode_selector(encode_selector(known, b"hname")) == (known, b"hname")
    assert decode_selector(encode_selector(None, b"")) == ((bytes(16), 0, 0), b"")
    with pytest.raises(Unsupported):
        decode_selector(b"o123")


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

"""vcs.hg.reading, vcs.hg.system: names become changesets as Mercurial itself finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from smartserver.errors import NoSuchPart
from smartserver.records.content import ReadScope
from smartserver.records.model import Key, Record, RefValue, Tip
from smartserver.vcs.hg.kinds import CHANGESET, FILE, MANIFEST, NULL, file_key
from smartserver.vcs.hg.reading import newest_open, read
from smartserver.vcs.hg.selector import BOOKMARK, BRANCH, FRAGMENT, GRAPH, Names, decode_found, encode
from smartserver.vcs.hg.system import HgSystem

FIRST, SECOND, THIRD, FOURTH = (bytes.fromhex(start.ljust(40, "0")) for start in ("ab1", "ab2", "123", "9c"))
MISSING = b"\xee" * 20


class Stored:
    """Four changesets in a row but for the last, which is on another branch and has the first as parent."""

    def __init__(self, hgtags: Mapping[bytes, bytes] = {}) -> None:
        self.order = [FIRST, SECOND, THIRD, FOURTH]
        self.above: dict[int, Sequence[int]] = {0: (), 1: (0,), 2: (1,), 3: (0,)}
        self.records: dict[tuple[int, Key], Record] = {}
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
        return {b"mark": SECOND, b"lost": MISSING} if name == "bookmarks" else {}

    def ordinal(self, revision: bytes) -> int | None:
        return self.order.index(revision) if revision in self.order else None

    def revision(self, ordinal: int) -> bytes:
        return self.order[ordinal]

    def parents(self, ordinal: int) -> Sequence[int]:
        return self.above[ordinal]

    def first_parent(self, ordinal: int) -> int | None:
        return next(iter(self.above[ordinal]), None)

    def reached(self, wants: Sequence[int], haves: Sequence[int], absent: Sequence[int]) -> Sequence[int]:
        def below(ordinals: Sequence[int]) -> set[int]:
            return set(ordinals).union(*[below(self.above[each]) for each in ordinals])

        return sorted(below(wants) - below(haves))

    def record(self, kind: int, key: Key) -> Record | None:
        return self.records.get((kind, key))


def find(stored: Stored, *names: bytes) -> dict[bytes, bytes]:
    asked = Names(names, is_all=False)
    found = HgSystem().read(stored, encode(asked), ReadScope())
    assert found.heads is None
    return decode_found(asked, found.said)


@pytest.mark.parametrize(
    ("name", "node"),
    [
        (b"tip", FOURTH),
        (b"0", FIRST),
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
    assert find(Stored(), name) == {name: node}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (b"ab", "ambiguous identifier 'ab'"),
        (b"2", "the number 2: numbers differ"),
        (b"-1", "the number -1: numbers differ"),
        (b"nothing", "unknown revision 'nothing'"),
        (b"lost", "unknown revision 'lost'"),
        (MISSING.hex().encode(), "unknown revision"),
        (BRANCH + b"none", "unknown branch 'none'"),
    ],
)
def test_names_of_nothing(name: bytes, why: str) -> None:
    with pytest.raises(NoSuchPart, match=why):
        find(Stored(), name)


def test_null() -> None:
    assert find(Stored(), b"null", NULL.hex().encode()) == {}


def line(node: bytes, tag: bytes) -> bytes:
    return node.hex().encode() + b" " + tag + b"\n"


def test_tags_of_all_heads() -> None:
    """The last line of a file counts, of two heads the one that knows the other's; a tag may be removed."""
    old = line(FIRST, b"one") + line(FIRST, b"two words") + line(FIRST, b"gone") + line(NULL, b"gone")
    new = line(FIRST, b"one") + line(SECOND, b"one") + b"no line of a tag\n"
    for first, second in ((old, new), (new, old)):
        stored = Stored({THIRD: first, FOURTH: second})
        assert find(stored, b"one", b"two words") == {b"one": SECOND, b"two words": FIRST}
        with pytest.raises(NoSuchPart, match="unknown revision 'gone'"):
            find(stored, b"gone")


def test_history_of_names_and_branches() -> None:
    plan = read(Stored(), encode(Names([b"mark", BRANCH + b"old", b"tip"])), ReadScope())
    assert plan.heads == [SECOND, FOURTH]
    assert plan.said == SECOND + NULL + FOURTH


def test_what_comes_after_a_url_is_a_branch_or_another_name() -> None:
    plan = read(Stored(), encode(Names([FRAGMENT + b"old", FRAGMENT + b"mark"])), ReadScope())
    assert plan.said == NULL + SECOND
    assert find(Stored(), FRAGMENT + b"mark") == {b"mark": SECOND}


def test_a_bookmark_alone() -> None:
    """A tag or a branch of that name does not count."""
    plan = read(Stored(), encode(Names([BOOKMARK + b"mark", BOOKMARK + b"old", BOOKMARK + b"tip"])), ReadScope())
    assert plan.heads == [SECOND]
    assert plan.said == SECOND + NULL + NULL
    with pytest.raises(NoSuchPart, match="unknown revision 'lost'"):
        find(Stored(), BOOKMARK + b"lost")


def test_a_graph() -> None:
    plan = read(Stored(), GRAPH, ReadScope([THIRD, FOURTH], [SECOND, MISSING]))
    assert plan.pieces is not None
    assert list(plan.pieces) == [(2, ()), (3, ())]


def test_the_newest_open_head() -> None:
    stored = Stored()
    assert newest_open(stored, (Tip(FOURTH, closed=True), Tip(FIRST), Tip(SECOND))) == SECOND
    assert newest_open(stored, (Tip(FOURTH, closed=True), Tip(FIRST, closed=True))) == FOURTH

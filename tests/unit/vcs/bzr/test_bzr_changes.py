from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from bzr_samples import FIRST

from smartserver.vcs.bzr.changes import NOTHING, new_texts, node_changes
from smartserver.vcs.bzr.pages import MAX_CHILDREN, leaf_texts, read_node

NAMES = FIRST[3].text
NODE = b"chknode:\n65536\n1\n1\n\na\0sha1:%040d\n" % 0


def leaf(*ids: bytes, prefix: bytes = b"", revision: bytes = b"r1") -> bytes:
    """A leaf of folders."""
    items = [b"%b\0004\ndir: %b\n\n\n%b\n" % (each.removeprefix(prefix), each, revision) for each in ids]
    return b"chkleaf:\n65536\n1\n%d\n%b\n%b" % (len(ids), prefix, b"".join(items))


def test_what_a_leaf_says_of_texts_that_another_does_not() -> None:
    sha1 = b"%040d" % 7
    item = b"readme-id\0007\nfile: readme-id\nroot-id\nREADME\nr2\n%b\n5\nN\n" % sha1
    old = leaf(*[b"id-%02d" % number for number in range(40)])
    new = old.replace(b"\n40\n", b"\n41\n", 1).replace(b"id-20\n\n\nr1", b"id-20\n\n\nr2") + item
    found = new_texts(new, old)
    assert found is not None
    assert {b"id-20\0r2": b"", b"readme-id\0r2": sha1}.items() <= found.items() <= leaf_texts(new).items()
    assert len(found) < 10
    assert new_texts(NAMES, NAMES) == {}
    for other in (NODE, NAMES, leaf(b"id-1", prefix=b"id")):
        assert new_texts(new, other) is None
    fewer = new.replace(b"\n41\n", b"\n40\n", 1)
    for wrong in (
        new + b"x",
        new[:-1],
        new.replace(b"file: readme", b"file: other"),
        new.replace(b"\nREADME", b""),
        fewer,
    ):
        with pytest.raises(ValueError, match="cannot be read as a leaf"):
            new_texts(wrong, old)


def test_a_line_too_few_and_one_too_many() -> None:
    """The lines of the second of two items that differ do not count for the first: one between them does not differ."""
    old = leaf(b"a", b"b", b"c")
    new = old.replace(b"dir: a\n\n\nr1\n", b"dir: a\n\nr1\n").replace(b"c\0", b"r1\nc\0")
    for read in (leaf_texts, lambda page: new_texts(page, old)):
        with pytest.raises(ValueError, match="cannot be read as a leaf"):
            read(new)


def node(children: dict[int, int], parts: int = 1, prefix: bytes = b"") -> bytes:
    """A page of pages: the byte of a child's place, and a number that becomes its key."""
    lines = [b"%c\0sha1:%040d\n" % child for child in children.items()]
    return b"chknode:\n65536\n%d\n900\n%b\n%b" % (parts, prefix, b"".join(lines))


PLACES = [place for place in range(60) if place != 10]


def test_pages_of_a_page_of_pages() -> None:
    old = {place: place for place in PLACES}
    for change in ({5: 70}, {5: 70, 58: 71}, {0: 70}, {59: 70}, {100: 70}):
        found = node_changes(node(old | change), node(old))
        assert found is not None
        assert found.now == {b"sha1:%040d" % each for each in change.values()}
        assert found.before == {b"sha1:%040d" % each for each in change if each in old}
    assert node_changes(node(old), node(old)) == NOTHING


@pytest.mark.parametrize(
    "old", [node({1: 1}, parts=2), node({1: 1}, prefix=b"x"), leaf(b"a"), NODE.replace(b"chknode", b"chknod")]
)
def test_a_page_of_pages_that_must_be_read_whole(old: bytes) -> None:
    assert node_changes(node({1: 1, 2: 2}), old) is None


def test_a_page_of_pages_that_none_would_write_is_read_whole() -> None:
    """That refuses it."""
    old = node(dict.fromkeys(PLACES, 1))
    line = b"a\0sha1:%040d\n" % 1
    empty = old[: -len(line) * len(PLACES)]
    for new in (old + line * 2, old[:-1], empty, empty + line * (MAX_CHILDREN + 1)):
        assert node_changes(new, old) is None
        with pytest.raises(ValueError, match="cannot be read as a page of pages"):
            read_node(new)


@pytest.mark.parametrize("line", [b"a\0sha2:%040d\n", b"a\1sha1:%040d\n", b"a\0sha1:%039dg\n", b"\n\0sha1:%040d\n"])
def test_a_line_that_is_nowhere_in_the_old_page_is_read(line: bytes) -> None:
    old = node(dict.fromkeys(PLACES, 1))
    with pytest.raises(ValueError, match="cannot be read as a page of pages"):
        node_changes(old + line % 7, old)


def _seen(read: Callable[[bytes], set[bytes]], page: bytes) -> set[bytes] | None:
    try:
        return read(page)
    except ValueError:
        return None


def _bend(rows: list[bytes], draw: random.Random) -> bytes:
    """The rows, changed here and there: mostly what a writer may do, else what none should."""
    for _ in range(draw.randrange(1, 5)):
        at = draw.randrange(len(rows))
        other = draw.randrange(len(rows))
        match draw.randrange(9):
            case 0:
                del rows[at]
            case 1:
                rows.insert(at, rows[other])
            case 2:
                rows[at], rows[other] = rows[other], rows[at]
            case 3:
                byte = draw.randrange(len(rows[at]))
                rows[at] = rows[at][:byte] + draw.choice([b"", b"\0", b"\n", b"x", b"\n\0"]) + rows[at][byte + 1 :]
            case 4:
                cut = draw.randrange(len(rows[at]))
                rows[at] = rows[at][:cut] + rows[other][draw.randrange(len(rows[other])) :]
            case _:
                rows[at] = rows[at].replace(b"r1", b"r2").replace(b"000", b"001", 1)
        if not rows:
            break
    return b"".join(rows)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("parts", "prefix"), [(1, b""), (1, b"xyz"), (2, b""), (2, b"wxyz\0")])
def test_what_pages_are_let_pass_is_what_a_whole_look_lets_pass(parts: int, prefix: bytes, seed: int) -> None:
    draw = random.Random(f"{seed}/{parts}/{prefix!r}")
    old = node({place: place for place in PLACES}, parts, prefix)
    head = node({}, parts, prefix)
    lines = [b"%c\0sha1:%040d\n" % (place, place) for place in PLACES]
    for _ in range(100):
        new = head + _bend(list(lines), draw)

        def by_changes(new: bytes) -> set[bytes]:
            found = node_changes(new, old)
            if found is None:
                return set(read_node(new).children.values())
            return (set(read_node(old).children.values()) - found.before) | found.now

        assert _seen(by_changes, new) == _seen(lambda page: set(read_node(page).children.values()), new)

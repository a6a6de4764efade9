from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from bzr_samples import FIRST, SECOND

from smartserver.vcs.bzr.changes import NOTHING, SEARCHED, leaf_changes, new_texts, node_changes
from smartserver.vcs.bzr.pages import MAX_CHILDREN, leaf_texts, read_node

OLD, NEW, NAMES = FIRST[2].text, SECOND[2].text, FIRST[3].text
NODE = b"chknode:\n65536\n1\n1\n\na\0sha1:%040d\n" % 0


def leaf(*ids: bytes, prefix: bytes = b"", revision: bytes = b"r1") -> bytes:
    """A leaf of folders."""
    items = [b"%b\0004\ndir: %b\n\n\n%b\n" % (each.removeprefix(prefix), each, revision) for each in ids]
    return b"chkleaf:\n65536\n1\n%d\n%b\n%b" % (len(ids), prefix, b"".join(items))


def names(*ids: bytes, prefix: bytes = b"") -> bytes:
    """A leaf of names."""
    items = [b"%b\0001\n%b\n" % ((b"root\0" + each).removeprefix(prefix), each) for each in ids]
    return b"chkleaf:\n65536\n2\n%d\n%b\n%b" % (len(ids), prefix, b"".join(items))


def test_nothing_changed() -> None:
    assert leaf_changes(OLD, OLD) == NOTHING


def test_only_what_differs_is_read() -> None:
    """Items ahead and behind that no leaf could have are not seen: who compares has read the old leaf before."""
    old = (
        leaf(*[b"id-%02d" % number for number in range(40)])
        .replace(b"dir: id-03", b"nonsense")
        .replace(b"dir: id-36", b"?")
    )
    found = leaf_changes(old.replace(b"id-20\n\n\nr1", b"id-20\n\n\nr2"), old)
    assert found is not None
    assert found.now == {b"id-20\0r2"}


def test_names_refer_to_nothing() -> None:
    assert leaf_changes(NAMES, NAMES) == NOTHING
    for prefix in (b"", b"root\0", b"ro"):
        assert leaf_changes(names(b"a", b"b", b"c", prefix=prefix), names(b"a", b"c", prefix=prefix)) == NOTHING


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (NODE, OLD),
        (OLD, NODE),
        (leaf(b"id-1", b"id-2", prefix=b"id"), leaf(b"id-1", b"id-2")),
        (NAMES, OLD),
    ],
)
def test_what_must_be_read_whole(new: bytes, old: bytes) -> None:
    assert leaf_changes(new, old) is None


def test_a_leaf_with_many_new_items_is_read_whole() -> None:
    """To look for each of them in all the rest would take a time that grows with the square of the leaf."""
    kept = [b"kept-%03d" % number for number in range(100)]
    added = [b"new-%03d" % number for number in range(SEARCHED + 1)]
    assert leaf_changes(leaf(*kept, *added), leaf(*kept)) is None
    found = leaf_changes(leaf(*kept, *added[1:]), leaf(*kept))
    assert found is not None
    assert len(found.now) == SEARCHED
    # What was there before is looked for nowhere.
    assert leaf_changes(leaf(*kept, *added, revision=b"r2"), leaf(*kept, *added)) is not None


@pytest.mark.parametrize(
    "new",
    [
        b"no page",
        leaf(b"a", b"b", b"d").replace(b"\n3\n", b"\n4\n"),
        leaf(b"a", b"x", b"c").replace(b"dir: x", b"dir: y"),
        leaf(b"a", b"x", b"c").replace(b"dir: x", b"dir:x"),
        leaf(b"a", b"b", b"c") + b"x",
        leaf(b"a", b"b", b"c")[:-1],
        leaf(b"a", b"a", b"b", b"c"),
        leaf(b"a", b"b", b"c", b"a"),
        leaf(b"a", b"b", b"b", b"c").replace(b"b\0", b"b\0", 1),
        leaf(b"a", b"b", b"x", b"x", b"c"),
        leaf(b"a", b"b", b"c", revision=b"r\x002"),
        # A NUL that is not an item's counts for none, though the leaf says so.
        leaf(b"a", b"x", b"c").replace(b"dir: x\n\n\nr1", b"dir: x\n\n\nr\0001").replace(b"\n3\n", b"\n4\n"),
    ],
)
def test_what_cannot_be_read(new: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read as a leaf"):
        leaf_changes(new, leaf(b"a", b"b", b"c"))


def test_names_that_cannot_be_read() -> None:
    for new in (
        names(b"a", b"b", b"c").replace(b"\0001\nb", b"\0002\nb"),
        names(b"a", b"b", b"c").replace(b"\n3\n", b"\n2\n", 1),
        names(b"a", b"b\0", b"c"),
    ):
        with pytest.raises(ValueError, match="cannot be read as a leaf"):
            leaf_changes(new, names(b"a", b"c"))


def test_items_between_two_changes_are_left_out() -> None:
    """The items there are in the old leaf as they stand, whatever they are."""
    ids = [b"id-%02d" % number for number in range(40)]
    old = leaf(*ids).replace(b"dir: id-17", b"nonsense")
    new = old.replace(b"id-05\n\n\nr1", b"id-05\n\n\nr2").replace(b"id-30\n\n\nr1", b"id-30\n\n\nr2")
    found = leaf_changes(new, old)
    assert found is not None
    assert found.now == {b"id-05\0r2", b"id-30\0r2"}
    assert found.before == {b"id-05\0r1", b"id-30\0r1"}


@pytest.mark.parametrize("broken", [b"dir: id-17", b"nonsense"])
def test_an_item_that_is_nowhere_in_the_old_leaf_is_read(broken: bytes) -> None:
    ids = [b"id-%02d" % number for number in range(40)]
    new = leaf(*ids, revision=b"r2").replace(b"dir: id-07", broken)
    with pytest.raises(ValueError, match="cannot be read as a leaf"):
        leaf_changes(new, leaf(*ids))


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
    for read in (leaf_texts, lambda page: leaf_changes(page, old), lambda page: new_texts(page, old)):
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


IDS = [b"id-%02d" % number for number in range(30)]
FOLDER = b"%b\0004\ndir: %b\nroot\nname\nr1\n"
LINK = b"%b\0005\nsymlink: %b\nroot\nname\nr1\ntarget\n"
FILE = b"%b\0007\nfile: %b\nroot\nname\nr1\n" + b"0" * 40 + b"\n5\nN\n"
LEAVES = [(1, b""), (1, b"id"), (2, b""), (2, b"ro"), (2, b"root\0"), (2, b"root\0id")]
"""The kinds of leaves: parts of a key, and what all keys begin with."""


def _items(parts: int, prefix: bytes) -> list[bytes]:
    """A leaf's items: files, folders and links by their ids, or names."""
    if parts == 2:
        return [b"%b\0001\n%b\n" % ((b"root\0" + each).removeprefix(prefix), each) for each in IDS]
    forms = (FOLDER, FILE, LINK)
    return [forms[at % 3] % (each.removeprefix(prefix), each) for at, each in enumerate(IDS)]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("parts", "prefix"), LEAVES)
def test_what_is_let_pass_is_what_a_whole_look_lets_pass(parts: int, prefix: bytes, seed: int) -> None:
    draw = random.Random(f"{seed}/{parts}/{prefix!r}")
    items = _items(parts, prefix)
    head = b"chkleaf:\n65536\n%d\n%%d\n%b\n" % (parts, prefix)
    old = head % len(items) + b"".join(items)
    of_item = parts - prefix.count(b"\0")
    for _ in range(100):
        body = _bend(list(items), draw)
        new = head % (body.count(b"\0") // of_item + draw.choice([0, 0, 0, 0, 1])) + body

        def by_changes(new: bytes) -> set[bytes]:
            found = leaf_changes(new, old)
            assert found is not None
            return (set(leaf_texts(old)) - found.before) | found.now

        assert _seen(by_changes, new) == _seen(lambda page: set(leaf_texts(page)), new)


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

"""vcs.bzr.pages, vcs.bzr.changes: pages of Breezy's two maps, read strictly, and what differs of two."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable

import pytest
from bzr_samples import FIRST, SECOND
from needs import needs

from smartserver.records.native import native
from smartserver.vcs.bzr.changes import NOTHING, new_texts, node_changes
from smartserver.vcs.bzr.complete import page_references
from smartserver.vcs.bzr.pages import (
    MAX_CHILDREN,
    MAX_PAGE,
    SHARED_BYTES,
    InternalNode,
    InventoryEntry,
    Leaf,
    is_node,
    leaf_head,
    leaf_texts,
    read_entry,
    read_leaf,
    read_node,
    search_key,
)

ENTRIES = SECOND[2].text
NAMES = FIRST[3].text
PAGE = b"sha1:" + b"0123456789" * 4
NODE = b"chknode:\n65536\n2\n700\nab\n" + b"".join(b"%c\0%b\n" % (place, PAGE) for place in (0, 7, 255))


# ---- pages


def test_a_page_of_pages() -> None:
    assert is_node(NODE)
    assert read_node(NODE) == InternalNode(2, b"ab", {b"\0": PAGE, b"\7": PAGE, b"\xff": PAGE})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"65536", b"-1"),
        (b"\n2\n", b"\n3\n"),
        (b"\nab\n", b"\nninebytes\n"),
        (b"\7\0", b"\7\7\0"),
        (b"\7\0", b"\0\0"),
        (b"\7\0", b"\0"),
        (b"\n\7\0sha1:", b"\n\7\0sha2:"),
        (b"\xff\0" + PAGE + b"\n", b"\xff\0" + PAGE),
    ],
)
def test_no_page_of_pages(old: bytes, new: bytes) -> None:
    assert NODE.count(old) == 1
    with pytest.raises(ValueError, match="cannot be read as a page of pages"):
        read_node(NODE.replace(old, new))


def test_a_page_of_as_many_pages_as_there_are_bytes_but_newlines() -> None:
    lines = [b"%c\0%b\n" % (place, PAGE) for place in range(256) if place != 10]
    assert len(read_node(b"chknode:\n65536\n1\n255\n\n" + b"".join(lines)).children) == 255


@pytest.mark.parametrize("read", [leaf_texts, read_leaf, leaf_head])
def test_a_page_longer_than_it_may_be(read: Callable[[bytes], object]) -> None:
    """A leaf of small items is read into many times as many bytes."""
    head, rest = b"chkleaf:\n65536\n1\n1\n\na\0005\nsymlink: a\n\n\nr1\n", b"\n"
    longest = head + b"t" * (MAX_PAGE - len(head) - len(rest)) + rest
    read(longest)
    with pytest.raises(ValueError, match="cannot be read as a page: 4194305 bytes"):
        read(longest.replace(b"r1", b"r12", 1))
    with pytest.raises(ValueError, match="cannot be read as a page"):
        read_node(NODE + b"x" * MAX_PAGE)


@pytest.mark.parametrize("prefix", [b"l", b"lib-id", b"lib-id\0", b"lib-id\0run"])
def test_what_all_keys_begin_with(prefix: bytes) -> None:
    keys = [b"lib-id\0run", b"lib-id\0runner"]
    lines = b"".join(b"%b\0001\nan-id\n" % key.removeprefix(prefix) for key in keys)
    text = b"chkleaf:\n65536\n2\n2\n%b\n%b" % (prefix, lines)
    assert read_leaf(text) == Leaf(2, dict.fromkeys(keys, b"an-id"))
    assert leaf_texts(text) == {}


@pytest.mark.parametrize("prefix", [b"", b"a", b"a-file-id"])
def test_what_all_ids_begin_with(prefix: bytes) -> None:
    text = b"chkleaf:\n65536\n1\n1\n%b\n%b\0004\ndir: a-file-id\n\n\nr1\n" % (prefix, b"a-file-id".removeprefix(prefix))
    assert leaf_texts(text) == {b"a-file-id\0r1": b""}
    assert read_leaf(text).items == {b"a-file-id": b"dir: a-file-id\n\n\nr1"}


@pytest.mark.parametrize("parts", [1, 2])
def test_an_empty_leaf(parts: int) -> None:
    text = b"chkleaf:\n65536\n%d\n0\n\n" % parts
    assert leaf_texts(text) == {}
    assert read_leaf(text) == Leaf(parts, {})


@pytest.mark.parametrize("text", [ENTRIES, NAMES])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"chkleaf:", b"chkpage:"),
        (b"65536", b""),
        (b"\n5\n", b"\n4\n"),
        (b"\n5\n", b"\n6\n"),
        (b"\n5\n\n", b"\n5\n\0\0\n"),
        (b"\n5\n\n", b"\n5\nx\n"),
        (b"run", b"r\0un"),
        (b"lib-id\n", b"lib-id"),
    ],
)
def test_no_leaf(text: bytes, old: bytes, new: bytes) -> None:
    assert old in text
    wrong = text.replace(old, new, 1)
    if (text, new) == (NAMES, b"\n5\nx\n"):
        assert b"xlib-id\0run" in read_leaf(wrong).items  # Whose names these are is not said twice.
        return
    with pytest.raises(ValueError, match="cannot be read as a leaf"):
        leaf_texts(wrong)
    if new != b"\n5\nx\n":
        with pytest.raises(ValueError, match="cannot be read as a leaf"):
            read_leaf(wrong)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"lib-id\x004\ndir", b"lib-id\x005\ndir"),
        (b"dir: lib-id", b"dir:lib-id"),
        (b"dir: lib-id", b"dir: lib"),
        (b"dir: lib-id", b"tree: lib-id"),
        (b"\nlib\njoe@example.org-1\n", b"\nlib\n\n"),
        (b"\n19\nN\n", b"\n19\nno\n"),
        (b"\n19\nN\n", b"\n-19\nN\n"),
        (b"14ef6f7a", b"14EF6F7A"),
        (b"root-id\0", b"lib-id\0"),
        (b"dir: root-id", b"file: root-id"),
        (b"Y\n", b"Y"),
        (b"Y\n", b"Y\nY\n"),
    ],
)
def test_no_leaf_of_entries(old: bytes, new: bytes) -> None:
    assert ENTRIES.count(old) == 1
    with pytest.raises(ValueError, match="cannot be read as a leaf"):
        leaf_texts(ENTRIES.replace(old, new))


def test_a_key_that_comes_twice() -> None:
    item = b"a\0004\ndir: a\n\n\nr1\n"
    for read in (leaf_texts, read_leaf):
        with pytest.raises(ValueError, match="cannot be read as a leaf"):
            read(b"chkleaf:\n65536\n1\n2\n\n" + item + item.replace(b"r1", b"r2"))


@pytest.mark.parametrize("read", [leaf_texts, read_leaf])
def test_what_grows_beyond_its_bytes_is_refused(read: Callable[[bytes], object]) -> None:
    count = 40_000
    lines = b"".join(b"%d\0001\nx\n" % number for number in range(count))
    prefix = b"x" * (SHARED_BYTES // count)
    small = b"chkleaf:\n65536\n2\n%d\na\0%b\n%b" % (count, prefix[:40], lines)
    read(small)
    for said in (count, 1):  # Whatever it says of itself.
        with pytest.raises(ValueError, match="cannot be read as a leaf"):
            read(b"chkleaf:\n65536\n2\n%d\na\0%b\n%b" % (said, prefix, lines))


# ---- entries


@pytest.mark.parametrize(
    ("value", "entry"),
    [
        (b"dir: root-id\n\n\nr1", InventoryEntry("dir", b"root-id", b"", b"", b"r1")),
        (
            b"file: f-id\nroot-id\nname\nr1\n14ef6f7a874cbbe6999aa17e2cbe1e0049ff35a2\n19\nY",
            InventoryEntry(
                "file", b"f-id", b"root-id", b"name", b"r1", b"14ef6f7a874cbbe6999aa17e2cbe1e0049ff35a2", 19, True
            ),
        ),
        (
            b"symlink: s-id\nroot-id\nname\nr1\nup",
            InventoryEntry("symlink", b"s-id", b"root-id", b"name", b"r1", target=b"up"),
        ),
        (
            b"tree: t-id\nroot-id\nname\nr1\nr0",
            InventoryEntry("tree", b"t-id", b"root-id", b"name", b"r1", target=b"r0"),
        ),
    ],
)
def test_entries(value: bytes, entry: InventoryEntry) -> None:
    assert read_entry(value) == entry
    assert entry.text_key == entry.file_id + b"\0r1"
    for wrong in (value + b"\n", value[: value.rindex(b"\n")], b"x" + value, value.replace(b"-id", b"\0id")):
        with pytest.raises(ValueError, match="cannot be read as an entry"):
            read_entry(wrong)


def test_search_keys() -> None:
    assert search_key(b"a-file-id") == zlib.crc32(b"a-file-id").to_bytes(4, "big")
    assert search_key(b"a", b"b") == search_key(b"a") + b"\0" + search_key(b"b")
    newline = next(b"%d" % number for number in range(10_000) if b"\n" in zlib.crc32(b"%d" % number).to_bytes(4, "big"))
    assert search_key(newline) == re.sub(b"\n", b"_", zlib.crc32(newline).to_bytes(4, "big"))


ONE_CHILD = b"chknode:\n65536\n1\n1\n\na\0sha1:%040d\n" % 0


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
    for other in (ONE_CHILD, NAMES, leaf(b"id-1", prefix=b"id")):
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
    "old", [node({1: 1}, parts=2), node({1: 1}, prefix=b"x"), leaf(b"a"), ONE_CHILD.replace(b"chknode", b"chknod")]
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


def _rows(parts: int, prefix: bytes) -> tuple[bytes, list[bytes]]:
    """The head of a leaf that says 30 items, and its items."""
    names = [b"%c" % (65 + number) for number in range(30)]
    if parts == 2:
        items = [b"%b%b\0001\nid-%b\n" % (b"" if prefix else b"folder\0", name, name) for name in names]
    else:
        file = b"7\nfile: %b\nroot\n%b\nr1\n%040d\n5\nN\n"
        items = [b"%b\0" % name + file % (prefix + name, name, ord(name)) for name in names]
        items[3::4] = [b"%b\0004\ndir: %b\n\n%b\nr1\n" % (name, prefix + name, name) for name in names[3::4]]
    return b"chkleaf:\n65536\n%d\n30\n%b\n" % (parts, prefix), items


@needs("native parts")
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("parts", "prefix"), [(1, b""), (1, b"xyz"), (2, b""), (2, b"wxyz\0")])
@pytest.mark.parametrize("nodes", [False, True])
def test_both_forms_find_the_same_references(nodes: bool, parts: int, prefix: bytes, seed: int) -> None:
    """The native form leaves out no more than the base has, and reads no page that Python refuses. Neither reads a
    page of names that has a base."""
    draw = random.Random(f"{nodes}/{seed}/{parts}/{prefix!r}")
    if nodes:
        head, rows = node({}, parts, prefix), [b"%c\0sha1:%040d\n" % (place, place) for place in PLACES]
    else:
        head, rows = _rows(parts, prefix)
    natively = native("page_references")
    old = head + b"".join(rows)
    pages_before, texts_before = page_references(old, None)
    read = 0
    for _ in range(100):
        bent = _bend(list(rows), draw)
        new = head.replace(b"\n30\n", b"\n%d\n" % bent.count(b"\0")) + bent
        for base in (None, old):
            found = natively(new, base)
            if found is None:
                continue
            read += 1
            pages, texts = page_references(new, None if nodes or parts == 1 else base)
            assert set(found[0]) <= set(pages)
            assert found[1].items() <= texts.items()
            if base is None:
                assert (set(found[0]), found[1]) == (set(pages), texts)
            else:
                assert set(pages) - set(found[0]) <= set(pages_before)
                assert texts.items() - found[1].items() <= texts_before.items()
    assert 20 < read < 190


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

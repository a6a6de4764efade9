from __future__ import annotations

import hashlib
import random

import pytest
from brz_maps import entry, key_of, leaf, write

from smartserver.vcs import brz_pages

REVISION = (
    b"ll6:formati10eel9:committer11:Joe <j@e.x>el8:timezonei-3600eel10:propertiesd11:branch-nick5:trunkee"
    b"l9:timestamp7:1.500000el11:revision-id2:r1el10:parent-idsl2:r05:ghosteel14:inventory-sha13:abcel7:message0:ee"
).replace(b"7:1.500000", b"8:1.500000")

INVENTORY = (
    b"chkinventory:\nsearch_key_name: hash-255-way\nroot_id: root: 1\n"
    b"parent_id_basename_to_file_id: sha1:b\nrevision_id: r1\nid_to_entry: sha1:a\n"
)


def test_a_revision() -> None:
    assert brz_pages.revision(REVISION) == brz_pages.RevisionRecord(b"r1", (b"r0", b"ghost"), b"abc")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"le",
        b"i1e",
        b"l" * 5000,
        REVISION[:-1],
        REVISION + b"e",
        REVISION.replace(b"i10e", b"i9e"),
        REVISION.replace(b"l11:revision-id2:r1e", b""),
        REVISION.replace(b"revision-id2:r1", b"revision-idi1e"),
        REVISION.replace(b"l2:r05:ghoste", b"2:r0"),
        REVISION.replace(b"message0:", b"message9:"),
        REVISION.replace(b"l8:timezonei-3600ee", b"8:timezone"),
    ],
)
def test_what_is_no_revision(text: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read as a revision of format 10"):
        brz_pages.revision(text)


def test_an_inventory() -> None:
    assert brz_pages.roots(INVENTORY) == (b"sha1:a", b"sha1:b")
    assert brz_pages.roots(b"chkinventory:\nid_to_entry: sha1:a\n") == (b"sha1:a", b"")


@pytest.mark.parametrize("text", [b"", b"<inventory/>", b"chkinventory:\n", b"chkinventory:\nid_to_entry\n"])
def test_what_is_no_inventory(text: bytes) -> None:
    with pytest.raises(ValueError, match="inventory"):
        brz_pages.roots(text)


def test_pages_of_pages() -> None:
    page = b"chknode:\n65536\n1\n9\nab\nc\0sha1:1\nd\0sha1:2\n"
    assert not brz_pages.is_leaf(page)
    assert brz_pages.children(page) == {b"abc": b"sha1:1", b"abd": b"sha1:2"}
    long = {b"ab" + place: b"sha1:%040d" % n for n, place in enumerate((b"\0", b"c", b"\xff"))}
    lines = b"".join([place[1:] + b"\0" + key + b"\n" for place, key in long.items()])
    assert brz_pages.children(b"chknode:\n65536\n1\n9\na\n" + lines) == long
    lines = b"".join([place[2:] + b"\0" + key + b"\n" for place, key in long.items()])
    assert brz_pages.children(b"chknode:\n65536\n1\n9\nab\n" + lines) == long
    pages: dict[bytes, bytes] = {}
    root = write(pages, {b"%d" % n: entry(b"%d" % n, b"r") for n in range(50)}, 5)
    assert set(brz_pages.children(pages[root]).values()) <= pages.keys()


@pytest.mark.parametrize(
    "page", [b"", b"chknode:\n", b"chknode:\n1\n1\n1\n\n", b"chknode:\n1\n1\n1\n\nc\0sha1:1", b"x"]
)
def test_what_is_no_page_of_pages(page: bytes) -> None:
    with pytest.raises(ValueError, match="page"):
        brz_pages.children(page)


def test_what_is_no_page() -> None:
    with pytest.raises(ValueError, match="no page"):
        brz_pages.is_leaf(b"chkinventory:\n")
    for page in (b"chkleaf:\n1\n", b"chknode:\n1\n1\n1\n\nc\0sha1:1\n"):
        with pytest.raises(ValueError, match="no leaf"):
            brz_pages.rows(page)


def test_a_leaf_of_all_kinds_of_entries() -> None:
    items = {
        b"id-dir": entry(b"id-dir", b"r1", kind="dir"),
        b"id-file": entry(b"id-file", b"r2", name="naïve: x".encode(), text=b"text"),
        b"id-link": entry(b"id-link", b"r3", kind="symlink"),
    }
    page = leaf(items)
    assert b"\nid-\n" in page
    rows = [brz_pages.TreeEntry._make(row) for row in brz_pages.rows(page)]
    assert rows[0] == (b"id-dir", b"root", b"name of id-dir", b"r1", b"", b"")
    assert rows[1] == (
        *(b"id-file", b"root", "naïve: x".encode(), b"r2"),
        *(hashlib.sha1(b"text").hexdigest().encode(), b"4"),
    )
    assert rows[2].revision == b"r3"
    assert brz_pages.holds_entries(page)
    assert not brz_pages.holds_entries(leaf({b"root\0name": b"id-file"}, parts=2))
    assert not brz_pages.holds_entries(b"chknode:\n1\n1\n1\n\nc\0sha1:1\n")
    assert key_of(page).startswith(b"sha1:")


def test_entries_of_an_odd_form_are_read_too() -> None:
    odd = b"symlink: odd\nroot\nname\nr1\ntarget\nin two lines"
    rows = brz_pages.rows(leaf({b"odd": odd, b"plain": entry(b"plain", b"r2")}))
    assert [(row[0], row[3]) for row in rows] == [(b"odd", b"r1"), (b"plain", b"r2")]


def test_a_leaf_that_is_cut_off() -> None:
    page = leaf({b"odd": b"symlink: odd\nroot\nname\nr1\ntarget\nin two lines"})
    with pytest.raises(ValueError, match="cut off"):
        brz_pages.rows(page[:-30])
    with pytest.raises(ValueError, match="cannot be read"):
        brz_pages.rows(leaf({b"x": b"file: "}))


def test_the_sha1_a_page_names() -> None:
    items = {
        b"a": entry(b"a", b"r1", name=b"x: b", text=b"of a"),
        b"b": entry(b"b", b"r2", text=b"of b"),
        b"ab": entry(b"ab", b"r3", kind="dir"),
    }
    page = leaf(items)
    for file_id, revision, text in ((b"a", b"r1", b"of a"), (b"b", b"r2", b"of b")):
        assert brz_pages.sha1_named(page, file_id, revision) == hashlib.sha1(text).hexdigest().encode()
    assert brz_pages.sha1_named(page, b"ab", b"r3") == b""
    for file_id, revision in ((b"a", b"r2"), (b"c", b"r1"), (b"", b"r1")):
        assert brz_pages.sha1_named(page, file_id, revision) is None


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
        if chance.random() < 0.2:
            other[b"zz"] = b"symlink: zz\nroot\nname\nr1\ntarget\nin two lines"
        one, two = leaf(items), leaf(other)
        new, old = brz_pages.differing(two, one)
        assert set(new) - set(old) == set(brz_pages.rows(two)) - set(brz_pages.rows(one))
        assert set(old) - set(new) == set(brz_pages.rows(one)) - set(brz_pages.rows(two))
        items = {key: value for key, value in other.items() if key != b"zz"}

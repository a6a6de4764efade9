from __future__ import annotations

import pytest
from bzr_samples import FIRST, SECOND

from smartserver.records.bzr_changes import NOTHING, SEARCHED, leaf_changes

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


def test_one_item_changed() -> None:
    found = leaf_changes(NEW, OLD)
    assert found is not None
    assert found.now == {b"readme-id\0joe@example.org-2"}
    assert found.before == {b"readme-id\0joe@example.org-1"}


def test_nothing_changed() -> None:
    assert leaf_changes(OLD, OLD) == NOTHING


@pytest.mark.parametrize("prefix", [b"", b"id-"])
def test_items_added_and_removed(prefix: bytes) -> None:
    ids = [b"id-%02d" % number for number in range(0, 40, 2)]
    old = leaf(*ids, prefix=prefix)
    for at in (0, 1, 10, 19, 20):
        more = [*ids[:at], b"id-new", *ids[at:]]
        found = leaf_changes(leaf(*more, prefix=prefix), old)
        assert found is not None
        assert found.now == {b"id-new\0r1"}
        found = leaf_changes(old, leaf(*more, prefix=prefix))
        assert found is not None
        assert found.before == {b"id-new\0r1"}


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

"""vcs.bzr.trees: what leaves of entries hold, all of it and what differs."""

from __future__ import annotations

import hashlib
import random

import pytest
from bzr_maps import entry, key_of, leaf

from smartserver.vcs.bzr.trees import TreeEntry, differing, rows


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

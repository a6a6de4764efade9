"""vcs.bzr.meta: the parents of inventories and texts come out of a record as they went in."""

from __future__ import annotations

import pytest

from smartserver.vcs.bzr.compat import StoreKey
from smartserver.vcs.bzr.meta import NO_PARENTS, inventory_meta, inventory_parents, text_meta, text_parents


@pytest.mark.parametrize(
    ("parents", "of_revision", "meta"),
    [
        ([(b"a",)], [b"a"], b""),
        ([], [], b""),
        (None, [], b""),
        ([(b"a",), (b"b",)], [b"b", b"a"], b"a\0b"),
        ([(b"a",)], [b"a", b"b"], b"a"),
        ([(b"a",)], [], b"a"),
        ([], [b"a"], NO_PARENTS),
        (None, [b"a"], NO_PARENTS),
    ],
)
def test_an_inventorys_parents(parents: list[StoreKey] | None, of_revision: list[bytes], meta: bytes) -> None:
    assert inventory_meta(parents, of_revision) == meta
    assert inventory_parents(meta, of_revision) == tuple(parents or ())


@pytest.mark.parametrize(
    ("parents", "meta"), [(None, b""), ([], b""), ([(b"f", b"a")], b"a"), ([(b"f", b"a"), (b"f", b"b")], b"a\0b")]
)
def test_a_texts_parents(parents: list[StoreKey] | None, meta: bytes) -> None:
    assert text_meta(b"f", parents) == meta
    assert text_parents(b"f", meta) == tuple(parents or ())


def test_a_parent_of_another_file() -> None:
    with pytest.raises(ValueError, match="a text of f has a parent of other, another file"):
        text_meta(b"f", [(b"other", b"a")])

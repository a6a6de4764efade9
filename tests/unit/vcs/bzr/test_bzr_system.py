"""vcs.bzr.system, vcs.bzr.meta: what the meta of each kind may be. `interop/test_bzr_records.py` has the rest."""

from __future__ import annotations

import pytest
from bzr_samples import FIRST, SECOND

from smartserver.records.model import Record
from smartserver.vcs.bzr.compat import StoreKey
from smartserver.vcs.bzr.kinds import SIGNATURE
from smartserver.vcs.bzr.meta import NO_PARENTS, inventory_meta, inventory_parents
from smartserver.vcs.bzr.system import BzrSystem

RULES = BzrSystem()


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


@pytest.mark.parametrize("record", [FIRST[0], FIRST[2], FIRST[3], Record(SIGNATURE, b"key", b"", b"signed")])
def test_meta_that_says_nothing_is_empty(record: Record) -> None:
    with pytest.raises(ValueError, match="its meta is not empty"):
        RULES.references(*record._replace(meta=b"a"))


@pytest.mark.parametrize("record", [SECOND[1], SECOND[3]])
def test_meta_of_parents(record: Record) -> None:
    RULES.references(*record._replace(meta=b"a\0ghost"))
    for meta in (b"\0", b"a\0", b"\0a", b"a\0\0b"):
        with pytest.raises(ValueError, match="revision ids"):
            RULES.references(*record._replace(meta=meta))

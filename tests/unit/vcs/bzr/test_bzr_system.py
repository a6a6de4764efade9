from __future__ import annotations

import pytest
from bzr_samples import FIRST, FIRST_PARENTS, SECOND, SECOND_PARENTS

from smartserver.records.check import make_check, verify_record
from smartserver.records.model import Record
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, KINDS, SIGNATURE, TEXT
from smartserver.vcs.bzr.system import BzrSystem

RULES = BzrSystem()

REVISION_1, INVENTORY_1, ENTRIES_1, NAMES_1, *_ = FIRST
REVISION_2, INVENTORY_2, ENTRIES_2, README_2 = SECOND


@pytest.mark.parametrize("record", FIRST + SECOND)
def test_keys(record: Record) -> None:
    kind = KINDS[record.kind]
    verify_record(kind, record.key, record.meta, record.text, make_check(kind, *record[1:]))


def test_parents_with_a_ghost() -> None:
    assert RULES.ghosts
    assert RULES.own_parents(*REVISION_1[1:]) == tuple(parent.id for parent in FIRST_PARENTS)
    assert RULES.own_parents(*REVISION_2[1:]) == tuple(parent.id for parent in SECOND_PARENTS)


def test_a_revision_under_another_key() -> None:
    with pytest.raises(ValueError, match=r"its text is that of the revision joe@example\.org-2"):
        RULES.own_parents(REVISION_1.key, b"", REVISION_2.text)


@pytest.mark.parametrize(
    ("record", "kind", "keys"),
    [
        (REVISION_2, INVENTORY, [INVENTORY_2.key]),
        (INVENTORY_2, CHK, [ENTRIES_2.key, NAMES_1.key]),
        (
            ENTRIES_2,
            TEXT,
            [
                b"lib-id\0joe@example.org-1",
                b"link-id\0joe@example.org-1",
                b"readme-id\0joe@example.org-2",
                b"root-id\0joe@example.org-1",
                b"run-id\0joe@example.org-1",
            ],
        ),
    ],
)
def test_references(record: Record, kind: int, keys: list[bytes]) -> None:
    ((found, meta, needed),) = RULES.references(*record)
    assert (found, meta, list(needed)) == (kind, None, keys)
    assert RULES.may_refer(record.kind, record.meta)


def test_a_page_of_pages_refers_to_pages() -> None:
    pages = [b"sha1:" + b"%040x" % number for number in range(3)]
    text = b"chknode:\n65536\n1\n700\n\n\0\0%b\n0\0%b\n\xff\0%b\n" % tuple(pages)
    assert RULES.references(CHK, b"key", b"", text) == ((CHK, None, pages),)


@pytest.mark.parametrize("record", [NAMES_1, README_2, Record(SIGNATURE, b"joe@example.org-1", b"", b"signed")])
def test_no_references(record: Record) -> None:
    assert not any(keys for _, _, keys in RULES.references(*record))


def test_texts_and_signatures_refer_to_nothing() -> None:
    assert not RULES.may_refer(TEXT, b"meta")
    assert not RULES.may_refer(SIGNATURE, b"")


def test_an_inventory_under_another_key() -> None:
    with pytest.raises(ValueError, match=r"its text is the inventory of joe@example\.org-1"):
        RULES.references(INVENTORY, INVENTORY_2.key, b"", INVENTORY_1.text)


@pytest.mark.parametrize("record", [REVISION_1, ENTRIES_1, NAMES_1, Record(SIGNATURE, b"key", b"", b"signed")])
def test_meta_that_says_nothing_is_empty(record: Record) -> None:
    with pytest.raises(ValueError, match="its meta is not empty"):
        RULES.references(*record._replace(meta=b"a"))


@pytest.mark.parametrize("record", [INVENTORY_2, README_2])
def test_meta_of_parents(record: Record) -> None:
    RULES.references(*record._replace(meta=b"a\0ghost"))
    for meta in (b"\0", b"a\0", b"\0a", b"a\0\0b"):
        with pytest.raises(ValueError, match="revision ids"):
            RULES.references(*record._replace(meta=meta))

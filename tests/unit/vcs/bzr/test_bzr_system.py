"""vcs.bzr.revision, vcs.bzr.meta, vcs.bzr.system: revisions, inventories and meta, read strictly."""

from __future__ import annotations

import hashlib
import random

import pytest
from bzr_samples import FIRST, SECOND

from smartserver.records.limits import MAX_PARENTS
from smartserver.records.model import Record
from smartserver.vcs.bzr.compat import StoreKey
from smartserver.vcs.bzr.kinds import SIGNATURE
from smartserver.vcs.bzr.meta import NO_PARENTS, inventory_meta, inventory_parents
from smartserver.vcs.bzr.revision import MAX_PROPERTIES, BrzRevision, Inventory, read_inventory, read_revision
from smartserver.vcs.bzr.system import BzrSystem

REVISION, INVENTORY = (record.text for record in SECOND[:2])

# ---- revisions


def test_a_revision() -> None:
    parents = (b"joe@example.org-1", b"ghost@example.org-1")
    inventory = hashlib.sha1(INVENTORY).hexdigest().encode()
    properties = {b"branch-nick": b"t", b"bugs": b"https://example.org/7 fixed"}
    assert read_revision(REVISION) == BrzRevision(
        b"joe@example.org-2", parents, inventory, b"Joe <joe@example.org>", b"1000000001.000", 0, properties, b"Second"
    )


def test_time_zones() -> None:
    found = [read_revision(REVISION.replace(b"i0e", b"i%de" % zone)).timezone for zone in (3600, -12600)]
    assert found == [3600, -12600]
    assert read_revision(REVISION.replace(b"l8:timezonei0ee", b"")).timezone == 0


def test_a_revision_whose_fields_are_in_another_order() -> None:
    """They are as good, if never written: they are read one by one then."""
    first = b"l6:formati10ee"
    assert REVISION.count(first) == 1
    assert read_revision(b"l" + REVISION.replace(first, b"")[1:-1] + first + b"e") == read_revision(REVISION)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"ll6:format", b"dl6:format", "no list"),
        (b"i10e", b"i11e", "format 11, expected 10"),
        (b"i10e", b"i010e", "no number at byte 10"),
        (b"i10e", b"i-0e", "no number"),
        (b"i10e", b"ie", "no number"),
        (b"i10e", b"2:10", "no number"),
        (b"9:committer", b"8:committer", "to have it"),
        (b"9:committer", b"9:committor", "to have it"),
        (b"9:committer", b"09:committer", "no string"),
        (b"9:committer", b"9999999999:committer", "cut off"),
        (b"l9:committer", b"d9:committer", "no pair at byte 15"),
        (b"l8:timezonei0ee", b"l8:timezonei0ei0ee", "no end of a pair"),
        (b"l8:timezonei0ee", b"l8:timezonei0eel8:timezonei0ee", "twice"),
        (b"l7:message6:Seconde", b"", "no message"),
        (b"11:branch-nick1:t4:bugs", b"4:bugs1:t11:branch-nick", "out of order"),
        (b"11:branch-nick1:t4:bugs", b"4:bugs1:t4:bugs", "out of order"),
        (b"d11:branch-nick", b"l11:branch-nick", "no table"),
        (b"l17:joe@example.org-1", b"i1e17:joe@example.org-1", "no list"),
        (b"6:Secondee", b"6:Seconde", "no pair"),
        (b"6:Secondee", b"6:Secondee\n", "ends at byte"),
        (b"6:Secondee", b"7:Secondee", ""),
    ],
)
def test_no_revision(old: bytes, new: bytes, why: str) -> None:
    assert REVISION.count(old) == 1
    with pytest.raises(ValueError, match=f"cannot be read as a revision: .*{why}"):
        read_revision(REVISION.replace(old, new))


@pytest.mark.parametrize("seed", range(10))
def test_a_revision_as_breezy_writes_it_is_read_as_any_other(seed: int) -> None:
    """Fields in the usual order are read in a quicker way, which must let nothing pass that the other does not."""
    draw = random.Random(seed)
    for _ in range(200):
        text = bytearray(REVISION)
        for _ in range(draw.randrange(3)):
            at = draw.randrange(len(text))
            text[at : at + draw.randrange(2)] = draw.choice([b"", b"0", b"1", b":", b"e", b"i1e", b"1:x", b"d", b"l"])
        first = b"l6:formati10ee"
        usual, other = bytes(text), b"l" + bytes(text[1:-1]).replace(first, b"") + first + b"e"
        if usual.startswith(b"l" + first) and usual.endswith(b"e"):
            assert _seen(usual) == _seen(other)


def _seen(text: bytes) -> BrzRevision | None:
    try:
        return read_revision(text)
    except ValueError:
        return None


def test_a_revision_of_more_parents_or_properties_than_it_may_have() -> None:
    """Nothing is made of a text that is much more than it: 60 MB of parents took a gigabyte."""
    ghost = b"19:ghost@example.org-1"
    found = read_revision(REVISION.replace(ghost, ghost * (MAX_PARENTS - 1)))
    assert len(found.parents) == MAX_PARENTS
    with pytest.raises(ValueError, match="more than 65536 parents"):
        read_revision(REVISION.replace(ghost, ghost * MAX_PARENTS))
    own = b"11:branch-nick1:t4:bugs27:https://example.org/7 fixed"
    most = [b"6:%06d0:" % number for number in range(MAX_PROPERTIES + 1)]
    assert read_revision(REVISION.replace(own, b"".join(most[1:]))).id == b"joe@example.org-2"
    with pytest.raises(ValueError, match="more than 65536 properties"):
        read_revision(REVISION.replace(own, b"".join(most)))


# ---- inventories


def test_an_inventory() -> None:
    assert read_inventory(INVENTORY) == Inventory(b"joe@example.org-2", b"root-id", SECOND[2].key, FIRST[3].key)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"chkinventory:", b"inventory:"),
        (b"hash-255-way", b"hash-16-way"),
        (b"search_key_name: hash-255-way\n", b""),
        (b"root_id: root-id\n", b"root_id: root-id\nroot_id: root-id\n"),
        (b"root_id: root-id\n", b"revision_id: root-id\n"),
        (b"root_id: ", b"root-id: "),
        (b"root_id: ", b"root_id:"),
        (b"id_to_entry: sha1:", b"id_to_entry: sha2:"),
        (b"id_to_entry: sha1:", b"id_to_entry: sha1:0"),
        (b"id_to_entry: sha1:5", b"id_to_entry: sha1:X"),
        (b"file_id: sha1:ae", b"file_id: sha1:"),
        (b"0e3\n", b"0e3"),
        (b"0e3\n", b"0e3\n\n"),
    ],
)
def test_no_inventory(old: bytes, new: bytes) -> None:
    assert INVENTORY.count(old) == 1
    with pytest.raises(ValueError, match=r"cannot be read as an inventory|search keys are b'hash-16-way'"):
        read_inventory(INVENTORY.replace(old, new))


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

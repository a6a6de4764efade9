"""vcs.bzr.revision, vcs.bzr.meta, vcs.bzr.system: revisions, inventories and meta, read strictly; a pushed revision is
whole. vcs.bzr.compat: what it gives of Breezy, wherever this release has it."""

from __future__ import annotations

import hashlib
import random
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import breezy
import breezy.bzr  # Its own formats.
import pytest
from breezy.bzr.pack_repo import RetryWithNewPacks
from breezy.controldir import ControlDir, format_registry
from bzr_samples import FIRST, SECOND

from smartserver.records.limits import MAX_PARENTS
from smartserver.records.model import Record
from smartserver.vcs.base import VcsError
from smartserver.vcs.bzr import compat as brz_compat
from smartserver.vcs.bzr.compat import StoreKey
from smartserver.vcs.bzr.complete import References
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, SIGNATURE, TEXT
from smartserver.vcs.bzr.meta import NO_PARENTS, inventory_meta, inventory_parents
from smartserver.vcs.bzr.revision import MAX_PROPERTIES, BrzRevision, Inventory, read_inventory, read_revision
from smartserver.vcs.bzr.system import BzrSystem

PAGES = {record.key for record in FIRST + SECOND if record.kind == CHK}
TEXTS = {record.key for record in FIRST + SECOND if record.kind == TEXT}


class Here:
    """A repository that has these pages and texts."""

    def __init__(self, *keys: bytes) -> None:
        self.chk_bytes = self.texts = self
        self.keys = {tuple(key.split(b"\0")) for key in keys}

    def get_parent_map(self, keys: Any) -> dict[tuple[bytes, ...], None]:
        return dict.fromkeys(self.keys.intersection(keys))


def taken(*, kept: bool = True) -> References:
    """The references of both revisions; the second one's page rests on the first one's."""
    found = References(kept=kept)
    for record in FIRST:
        if record.kind == CHK:
            found.page(record.text, None)
    named = found.page(SECOND[2].text, FIRST[2].text)
    assert named[b"readme-id\0joe@example.org-2"] == hashlib.sha1(SECOND[-1].text).hexdigest().encode()
    for record in FIRST + SECOND:
        if record.kind == INVENTORY:
            found.inventory(record.text)
    return found


def test_all_that_is_referred_to_came_or_is_here() -> None:
    repository: Any = Here()
    taken().check(repository, PAGES, TEXTS)
    for missing in PAGES | TEXTS:
        what, named = "page" if missing in PAGES else "text", re.escape(" of ".join(missing.decode().split("\0")))
        with pytest.raises(VcsError, match=f"the pulled revisions refer to a {what} that is missing: {named}$"):
            taken().check(repository, PAGES - {missing}, TEXTS - {missing})
        there: Any = Here(missing)
        taken().check(there, PAGES - {missing}, TEXTS - {missing})


def test_nothing_is_kept_where_breezy_looks_for_it() -> None:
    found = taken(kept=False)
    head = b"chknode:\n65536\n1\n2\n\n"
    found.page(head + b"a\0sha1:%040d\n" % 1, None)
    nothing: Any = Here()
    found.check(nothing, (), ())  # Nothing that it would look for.
    with pytest.raises(ValueError, match="cannot be read as an inventory"):
        found.inventory(b"nothing")


def test_of_a_page_of_pages_only_what_differs_from_its_base_is_read() -> None:
    """Breezy keeps what a page refers to that came before; so the base's own lines are not looked at again."""
    head = b"chknode:\n65536\n1\n2\n\n"
    old = head + b"a\0sha1:%040d\nb\0sha1:%040d\n" % (1, 2)
    new = head + b"a\0sha1:%040d\nb\0sha1:%040d\n" % (1, 3)
    found = References()
    assert found.page(new, old) == {}
    for base in (None, b"a leaf, which no page of pages rests on"):
        whole = References()
        whole.page(new, base)
        for key, lacking in ((b"sha1:%040d" % 1, whole), (b"sha1:%040d" % 3, found)):
            here: Any = Here(*({b"sha1:%040d" % n for n in (1, 3)} - {key}))
            with pytest.raises(VcsError, match="the pulled revisions refer to a page"):
                lacking.check(here, (), ())
    nothing: Any = Here(b"sha1:%040d" % 3)
    found.check(nothing, (), ())


def test_what_cannot_be_read() -> None:
    with pytest.raises(ValueError, match="cannot be read as a leaf"):
        References().page(b"no page", None)
    with pytest.raises(ValueError, match="cannot be read as an inventory"):
        References().inventory(b"nothing")


KEYS = [(b"file-%d" % (number % 3), b"revision-%03d" % number) for number in range(40)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    """The texts of a repository of Breezy's, in two packs: one is a folder's and empty, the others much alike."""
    if breezy.get_global_state() is None:
        breezy.initialize()
    made = ControlDir.create(str(tmp_path), format=format_registry.make_controldir("2a")).create_repository()
    for keys in (KEYS[:25], KEYS[25:]):
        with made.lock_write():
            made.start_write_group()
            for key in keys:
                lines = [] if key == KEYS[7] else [b"line %d of %b\n" % (n, key[n % 2]) for n in range(50)]
                made.texts.add_lines(key, [KEYS[KEYS.index(key) - 3]] if key in KEYS[3:] else [], lines)
            made.commit_write_group()
    with made.lock_read():
        yield made.texts


def streamed(store: Any, keys: Iterable[tuple[bytes, ...]]) -> dict[tuple[bytes, ...], tuple[bytes, Any]]:
    """The texts that Breezy itself gives."""
    found = store.get_record_stream(keys, "unordered", True)
    return {each.key: (each.get_bytes_as("fulltext"), each.parents) for each in found if each.storage_kind != "absent"}


def read(store: Any, keys: Iterable[tuple[bytes, ...]]) -> dict[tuple[bytes, ...], tuple[bytes, Any]]:
    found = list(brz_compat.read_texts(store, keys))
    assert len({key for key, _, _ in found}) == len(found)
    return {key: (text, parents) for key, text, parents in found}


def test_texts_are_those_that_breezy_gives(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for keys in (KEYS, KEYS[20:30], [*KEYS[:2], (b"file-0", b"elsewhere")], []):
        expected = streamed(store, keys)
        assert len(expected) == len(set(keys) & set(KEYS))
        assert read(store, iter(keys)) == expected
        # Without a stream.
        with monkeypatch.context() as patch:
            patch.setattr(type(store), "get_record_stream", None)
            assert read(store, keys) == expected
            patch.setattr(brz_compat.groupcompress, "BATCH_SIZE", 1)
            assert read(store, keys) == expected


def test_texts_of_a_store_that_rests_on_others_are_breezys_to_find(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = streamed(store, KEYS)
    monkeypatch.setattr(brz_compat, "_from_blocks", None)
    monkeypatch.setattr(store, "_immediate_fallback_vfs", [store.without_fallbacks()])
    assert read(store, KEYS) == expected


@pytest.mark.parametrize(
    "wrong", [RetryWithNewPacks(None, False, (None, None, None)), zlib.error(), ValueError(), AttributeError()]
)
def test_what_cannot_be_read_breezy_is_asked_for(store: Any, wrong: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack that was joined to others meanwhile it looks for, of a damaged one it says what there is to say."""
    expected = streamed(store, KEYS)
    blocks = type(store)._get_blocks

    def some(self: Any, memos: list[Any]) -> Iterator[Any]:
        yield next(blocks(self, memos))
        monkeypatch.setattr(type(store), "_get_blocks", blocks)
        raise wrong

    monkeypatch.setattr(type(store), "_get_blocks", some)
    assert read(store, KEYS) == expected


REVISION, CHANGED_INVENTORY = (record.text for record in SECOND[:2])

# ---- revisions


def test_a_revision() -> None:
    parents = (b"joe@example.org-1", b"ghost@example.org-1")
    inventory = hashlib.sha1(CHANGED_INVENTORY).hexdigest().encode()
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
    assert read_inventory(CHANGED_INVENTORY) == Inventory(b"joe@example.org-2", b"root-id", SECOND[2].key, FIRST[3].key)


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
    assert CHANGED_INVENTORY.count(old) == 1
    with pytest.raises(ValueError, match=r"cannot be read as an inventory|search keys are b'hash-16-way'"):
        read_inventory(CHANGED_INVENTORY.replace(old, new))


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

"""vcs.bzr.system, vcs.bzr.tree on records that the real Breezy wrote: random histories with merges, ghosts and more.

A missing or altered record of a segment is reported by name.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
from breezy.bzr import inventory
from breezy.bzr.versionedfile import FulltextContentFactory
from bzr_histories import BZR, KINDS, BzrHistory, make_repository, push, quiet, upload
from memory_transport import MemoryTransport

from smartserver.errors import CorruptRecord, MissingReference
from smartserver.records.check import make_check
from smartserver.records.model import Key, Parent, Record, RevisionId
from smartserver.records.segment import decode_segment, encode_segment, frames
from smartserver.records.system import system_of
from smartserver.store.repository import PackRepository
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, SIGNATURE, TEXT
from smartserver.vcs.bzr.revision import read_inventory
from smartserver.vcs.bzr.tree import BzrTree

pytestmark = pytest.mark.interop

SEEDS = (1,)


@pytest.fixture(scope="module", params=SEEDS, ids="seed {}".format)
def repository(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A repository of Breezy's."""
    with quiet():
        made = make_repository(tmp_path_factory.mktemp("history"), request.param)
        with made.lock_read():
            yield made


@pytest.fixture(scope="module")
def history(repository: Any) -> BzrHistory:
    return BzrHistory.of(repository)


def check_stored(stored: PackRepository, history: BzrHistory) -> None:
    """Check that the repository has every record, and verifies."""
    report = stored.verify()
    assert report.problems == ()
    assert report.segments == len(history.parents)
    snapshot = stored.snapshot()
    for records in history.records.values():
        for record in records:
            location = snapshot.first(record.kind, record.key)
            assert location is not None
            assert snapshot.record(location).text == record.text


def test_the_histories_have_what_they_are_to_try(history: BzrHistory) -> None:
    records = [record for records in history.records.values() for record in records]
    assert {record.kind for record in records} == {REVISION, SIGNATURE, INVENTORY, CHK, TEXT}
    for start in (b"chknode:", b"chkleaf:\n65536\n1", b"chkleaf:\n65536\n2", b"chkinventory:"):
        assert any(record.text.startswith(start) for record in records)
    for word in (b"\nsymlink: ", b"\nY\n"):
        assert any(word in record.text for record in records if record.kind == CHK)
    parents = list(history.parents.values())
    assert any(parent.absent for named in parents for parent in named)
    assert any(len([parent for parent in named if not parent.absent]) > 1 for named in parents)
    assert any(record.meta.count(b"\0") for record in records if record.kind == TEXT)


@pytest.mark.parametrize("bases", [True, False])
def test_a_whole_history_is_proved(history: BzrHistory, bases: bool) -> None:
    stored = PackRepository(MemoryTransport())
    push(stored, list(history.segments(bases=bases)), history.tip)
    check_stored(stored, history)


def test_one_revision_at_a_time_is_proved(history: BzrHistory) -> None:
    stored = PackRepository(MemoryTransport())
    for name, segment in zip(history.parents, history.segments(), strict=True):
        push(stored, [segment], name)
    check_stored(stored, history)


def test_texts_of_ghosts_come_with_who_has_them_first(repository: Any, history: BzrHistory) -> None:
    """The history lacks some revisions in its middle, as ghosts; some of their texts come with descendants."""
    inner = {parent.id for named in history.parents.values() for parent in named} & history.parents.keys()
    ghosts = set(random.Random(7).sample(sorted(inner), 5))
    partial = BzrHistory.of(repository, ghosts)
    foreign = [
        record
        for records in partial.records.values()
        for record in records
        if record.kind == TEXT and record.key.partition(b"\0")[2] in ghosts
    ]
    assert foreign
    stored = PackRepository(MemoryTransport())
    push(stored, list(partial.segments()), partial.tip)
    check_stored(stored, partial)


def without(segment: bytes, dropped: int) -> bytes:
    """Return a segment of full texts without one of its records."""
    read = decode_segment(segment, 0, KINDS)
    kept = [number for number in range(len(read.entries)) if number != dropped]
    entries, bodies = read.entries, [bytes(frame) for frame in frames(read, segment)]
    return encode_segment(
        read.revision, read.parents, [entries[number] for number in kept], [bodies[number] for number in kept], KINDS
    )


def with_text(segment: bytes, number: int, text: bytes) -> bytes:
    """Return a segment of full texts in which one record has, under its old key, another text with a matching check."""
    read = decode_segment(segment, 0, KINDS)
    entries, bodies = list(read.entries), [bytes(frame) for frame in frames(read, segment)]
    entry = entries[number]
    check = make_check(KINDS[entry.kind], entry.key, entry.meta, text)
    entries[number] = entry._replace(encoding=0, length=len(text), frame_length=len(text), check=check)
    bodies[number] = text
    return encode_segment(read.revision, read.parents, entries, bodies, KINDS)


def test_every_record_that_lacks_is_missed(history: BzrHistory) -> None:
    chance = random.Random(8)
    stored = PackRepository(MemoryTransport())
    seen = dict.fromkeys(range(len(KINDS)), 0)
    for name, segment in zip(history.parents, history.segments(bases=False), strict=True):
        above = {
            (record.kind, record.key) for each in history.ancestors(name) - {name} for record in history.records[each]
        }
        records = list(enumerate(history.records[name]))
        for number, record in chance.sample(records, min(25, len(records))):
            altered = without(segment, number)
            if record.kind == SIGNATURE or (record.kind, record.key) in above:
                upload(stored, [altered]).abandon()
                continue
            seen[record.kind] += 1
            if record.kind == REVISION:
                with pytest.raises(CorruptRecord, match="the record that is the revision itself"):
                    upload(stored, [altered])
                continue
            with pytest.raises(MissingReference) as caught:
                upload(stored, [altered])
            assert caught.value.revision == name
            assert caught.value.missing == record.key
            shown = " ".join(part.decode() for part in record.key.split(b"\0"))
            assert str(caught.value).endswith(f"of revision {name.decode()} refers to {shown}, which is missing")
        push(stored, [segment], name)
    assert all(seen[kind] > 5 for kind in (REVISION, INVENTORY, CHK, TEXT)), seen


def test_what_says_it_is_right_and_cannot_be_read_is_refused(history: BzrHistory) -> None:
    """The check fits the altered text; only the content is wrong."""
    chance = random.Random(10)
    stored = PackRepository(MemoryTransport())
    for name, segment in zip(history.parents, history.segments(bases=False), strict=True):
        for number, record in enumerate(history.records[name]):
            if record.kind not in (REVISION, INVENTORY):
                continue
            at = chance.randrange(len(record.text))
            for text in (record.text[:at], record.text.replace(name, b"another"), record.text + b"\n"):
                with pytest.raises(CorruptRecord) as caught:
                    upload(stored, [with_text(segment, number, text)])
                assert caught.value.key == name
        push(stored, [segment], name)


def pages_of(history: BzrHistory) -> dict[Key, bytes]:
    return {record.key: record.text for records in history.records.values() for record in records if record.kind == CHK}


def entries_of(tree: Any) -> dict[bytes, tuple[Any, ...]]:
    """Return Breezy's properties of each path."""
    kinds = {"directory": "dir", "file": "file", "symlink": "symlink"}
    found = {}
    for path, entry in tree.iter_entries_by_dir():
        file = entry.kind == "file"
        found[path.encode()] = (
            kinds[entry.kind],
            entry.file_id,
            entry.parent_id or b"",
            entry.name.encode(),
            entry.revision,
            entry.text_sha1 if file else b"",
            entry.text_size if file else 0,
            entry.executable if file else False,
            entry.symlink_target.encode() if entry.kind == "symlink" else b"",
        )
    return found


def test_trees_are_read_as_breezy_reads_them(repository: Any, history: BzrHistory) -> None:
    pages = pages_of(history)
    for name, records in history.records.items():
        (text,) = (record.text for record in records if record.kind == INVENTORY)
        tree = BzrTree(read_inventory(text), pages.__getitem__)
        expected = entries_of(repository.revision_tree(name).root_inventory)
        assert {path: tuple(entry) for path, entry in tree.walk()} == expected
        for path in random.Random(11).sample(sorted(expected), 20):
            found = tree.find(path)
            assert found is not None
            assert tuple(found) == expected[path]
            below = {each for each in expected if (each + b"/").startswith(path + b"/") or not path}
            assert {each: tuple(entry) for each, entry in tree.walk(path)} == {each: expected[each] for each in below}


class Store:
    """A store of pages for Breezy's maps."""

    def __init__(self) -> None:
        self.pages: dict[Key, bytes] = {}

    def add_lines(self, _key: object, _parents: object, lines: list[bytes]) -> tuple[bytes, int, None]:
        text = b"".join(lines)
        digest = hashlib.sha1(text).hexdigest().encode()
        self.pages[b"sha1:" + digest] = text
        return digest, len(text), None

    def get_record_stream(self, keys: list[tuple[Key]], _order: str, _full: bool) -> Iterator[Any]:
        return (FulltextContentFactory(key, (), None, self.pages[key[0]]) for key in keys)


@pytest.mark.parametrize("size", [100, 2000])
def test_maps_of_small_pages(repository: Any, history: BzrHistory, size: int) -> None:
    """Breezy splits the maps as it does for hundreds of thousands of files.

    Breezy loses some entries: if it splits a page twice at once, a key may end up in a page where no reader looks.
    """
    store, tree = Store(), repository.revision_tree(history.tip)
    made = inventory.CHKInventory.from_inventory(store, tree.root_inventory, size, b"hash-255-way")
    breezys = inventory.CHKInventory.deserialise(store, made.to_lines(), (history.tip,))
    read = BzrTree(read_inventory(b"".join(made.to_lines())), store.pages.__getitem__)
    expected = entries_of(tree.root_inventory)
    kept = {entry.file_id for entry in breezys.iter_just_entries()}
    assert {entry.file_id for entry in read.entries()} == kept
    found = {path: entry for path in expected if (entry := read.find(path)) is not None}
    paths = {path: breezys.path2id(path.decode()) for path in expected}
    assert {path: entry.file_id for path, entry in found.items()} == {
        path: file_id for path, file_id in paths.items() if file_id is not None and breezys.has_id(file_id)
    }
    assert all(tuple(entry) == expected[path] for path, entry in found.items())
    assert len(kept) > len(found) > len(expected) // 2 or len(kept) == len(found) == len(expected)
    rules = system_of(BZR)
    groups = [group for page in store.pages.items() for group in rules.references(CHK, page[0], b"", page[1])]
    needed = {key for _, _, keys in groups for key in keys}
    assert {key for key in needed if not key.startswith(b"sha1:")} == {
        entry[1] + b"\0" + entry[4] for entry in expected.values() if entry[1] in kept
    }
    assert {key for key in needed if key.startswith(b"sha1:")} | {
        made.id_to_entry.key()[0],
        made.parent_id_basename_to_file_id.key()[0],
    } == store.pages.keys()


def test_own_parents_are_those_breezy_says(history: BzrHistory) -> None:
    rules = system_of(BZR)
    for name, records in history.records.items():
        (own,) = (record for record in records if record.kind == REVISION)
        assert rules.own_parents(own.key, own.meta, own.text) == tuple(parent.id for parent in history.parents[name])


def test_a_ghost_that_comes_after_all_stays_one(history: BzrHistory) -> None:
    """If a revision has a parent marked absent, that edge stays cut, even where the parent is stored."""
    first, second = list(history.parents)[:2]
    named = tuple(Parent(parent.id, True) for parent in history.parents[second])
    assert first in {parent.id for parent in named}
    partial = BzrHistory({second: named}, {second: _with_all(history, second)})
    stored = PackRepository(MemoryTransport())
    push(stored, list(partial.segments()), second)
    push(stored, list(BzrHistory({first: ()}, history.records).segments()), first)
    graph = stored.snapshot().graph
    ordinals = [graph.ordinal(name) for name in (second, first)]
    assert ordinals == [0, 1]
    assert graph.parents(0) == ()


def _with_all(history: BzrHistory, name: RevisionId) -> list[Record]:
    """Return the records that a revision introduces if none of its parents is stored."""
    own = {(record.kind, record.key): record for record in history.records[name]}
    for parent in history.ancestors(name) - {name}:
        own |= {(r.kind, r.key): r for r in history.records[parent] if r.kind in (CHK, TEXT)}
    return list(own.values())

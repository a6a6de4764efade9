"""vcs.bzr.plan, vcs.bzr.trees, vcs.bzr.insert, vcs.received, vcs.bzr.compat: what Breezy keeps comes
out of a repository of ours as it went in: random parts of random histories, pulled in random increments.

vcs.bzr.system, vcs.bzr.tree: a record that lacks is missed, and maps are read as Breezy splits them.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from breezy.bzr import inventory
from breezy.bzr.testament import StrictTestament3
from breezy.bzr.versionedfile import FulltextContentFactory
from brz_histories import KINDS, RandomHistory, Served, all_keys, contents, new_repository, quiet
from builders import creating, upload

from smartserver.errors import CorruptRecord, MissingReference
from smartserver.records.bases import NewRecord, SegmentWriter
from smartserver.records.model import Key, RecordName
from smartserver.records.segment import decode_segment
from smartserver.records.system import system_of
from smartserver.store.upload import Upload
from smartserver.vcs import received
from smartserver.vcs.bzr import insert as brz_insert
from smartserver.vcs.bzr import plan as brz_plan
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, SIGNATURE, TEXT
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.vcs.bzr.revision import read_inventory
from smartserver.vcs.bzr.tree import BzrTree

pytestmark = pytest.mark.interop

SIZE = 320
TRIALS = 10


@pytest.fixture(scope="module")
def history() -> RandomHistory:
    return RandomHistory(new_repository("memory:///source"), 7, SIZE)


@pytest.fixture(scope="module")
def served(history: RandomHistory) -> Served:
    """All of it, pushed in some increments."""
    made = Served()
    order = list(history.parents)
    pushed: list[bytes] = []
    with quiet():
        for at in (1, 30, 31, 32, 150, SIZE):
            tips = [tip for tip in order[:at] if tip not in history.ancestors(*pushed)]
            heads = [tip for tip in tips if not any(tip in history.reach[each] - {each} for each in tips)]
            assert made.push(history.repository, heads, pushed) == len(tips)
            pushed += heads
    return made


def check_equal(history: RandomHistory, target: Any, revisions: list[bytes]) -> None:
    """`target` has these revisions and nothing else, as `history` has them."""
    source = history.repository
    found = all_keys(target)
    assert found["revisions"] == found["inventories"] == {(revision,) for revision in revisions}
    assert found["texts"] == {
        (file_id, node.revision) for revision in revisions for file_id, node in history.trees[revision].items()
    }
    signed = {key for key in all_keys(source)["signatures"] if key in found["revisions"]}
    assert found["signatures"] == signed
    mine, theirs = contents(target, found), contents(source, found)
    assert len(mine) == sum(map(len, found.values()))
    for name, row in mine.items():
        assert row == theirs[name], name
    if not revisions:
        return
    with target.lock_read(), source.lock_read():
        for revision in revisions[-1:] + random.Random(len(revisions)).sample(revisions, min(4, len(revisions))):
            one, other = target.revision_tree(revision), source.revision_tree(revision)
            for place in ("id_to_entry", "parent_id_basename_to_file_id"):
                assert getattr(one.root_inventory, place).key() == getattr(other.root_inventory, place).key()
            testaments = [StrictTestament3.from_revision(each, revision).as_sha1() for each in (target, source)]
            assert testaments[0] == testaments[1]


def check_sound(history: RandomHistory, target: Any) -> None:
    """`brz check` finds nothing."""
    result = target.check(None, check_repo=True)
    absent = {parent for revision in all_keys(target)["revisions"] for parent in history.parents[revision[0]]}
    absent -= set(history.parents)
    assert set(result.ghosts) == absent
    assert not result.unreferenced_versions
    assert not result.inconsistent_parents
    assert result.missing_revision_cnt == 0


def test_the_history_has_all_there_is(history: RandomHistory) -> None:
    """Else the tests here would prove less than they say."""
    parents = history.parents.values()
    assert max(map(len, parents)) > 2
    assert any(parent not in history.parents for named in parents for parent in named)
    assert sum(not named for named in parents) > 1
    kinds = {node.kind for tree in history.trees.values() for node in tree.values()}
    assert kinds == {"file", "directory", "symlink"}
    assert any(node.executable for tree in history.trees.values() for node in tree.values())
    keys = all_keys(history.repository)
    assert len(keys["signatures"]) > 10
    pages = contents(history.repository, {"chk_bytes": keys["chk_bytes"]})
    inner = [text for _, text in pages.values() if text.startswith(b"chknode:")]
    assert any(len(text.split(b"\n", 5)[4]) > 1 for text in inner), "no page lies three deep"


def test_any_part_in_any_increments(history: RandomHistory, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(11)
    order = list(history.parents)
    for trial in range(TRIALS):
        monkeypatch.setattr(received, "CACHE", chance.choice((3_000, 64 << 20)))
        monkeypatch.setattr(brz_insert, "FORK_FROM", chance.choice((1, 8 << 20)))
        heads = chance.sample(order, chance.choice((1, 1, 2, 4)))
        wanted = history.ancestors(*heads)
        target = new_repository(f"memory:///part{trial}")
        step = chance.choice((len(wanted), len(wanted) // 2 + 1, len(wanted) // 7 + 1))
        with quiet():
            for at in range(0, len(wanted), step):
                part = wanted[at : at + step]
                assert served.pull(target, part) == len(part)
            check_equal(history, target, wanted)
            if trial < 3:
                check_sound(history, target)


@pytest.mark.parametrize(("few", "chunk", "batch", "pages"), [(0, 5, 3_000, 2_000), (10**6, 64, 1, 0)])
def test_the_ways_of_a_push_make_no_difference(
    history: RandomHistory, monkeypatch: pytest.MonkeyPatch, few: int, chunk: int, batch: int, pages: int
) -> None:
    monkeypatch.setattr(brz_plan, "FEW", few)
    monkeypatch.setattr(brz_plan, "CHUNK", chunk)
    monkeypatch.setattr(brz_plan, "BATCH", batch)
    monkeypatch.setattr(brz_plan, "_PAGES", pages)
    monkeypatch.setattr(brz_plan, "_ROOTS", 3)
    monkeypatch.setattr(brz_plan, "_CACHE", 5_000)
    served, order = Served(), list(history.parents)
    target = new_repository(f"memory:///ways{few}")
    with quiet():
        assert served.push(history.repository, order) == SIZE
        assert served.pull(target, order) == SIZE
        check_equal(history, target, order)


def test_every_record_that_lacks_is_missed(history: RandomHistory, served: Served) -> None:
    """Of a segment of full texts each of some records is left out in turn."""
    chance, stored, snapshot = random.Random(8), Served(), served.repository.snapshot()
    writer = SegmentWriter(KINDS, bulk=False, texts=lambda kind, key: b"")
    named: dict[bytes, set[RecordName]] = {}
    seen: Counter[int] = Counter()

    def sent(segment: bytes) -> Upload:
        return upload(stored.repository, segment, 1, first=creating(BrzRepository.vcs))

    for segment in served.segments(list(history.parents)[:40]):
        read = decode_segment(segment, 0, KINDS)
        name, records = read.revision, list[NewRecord]()
        for entry in read.entries:
            location = snapshot.first(entry.kind, entry.key)
            assert location is not None
            records.append(NewRecord(entry.kind, entry.key, entry.meta, snapshot.record(location).text))
        above = set[RecordName]().union(*[named[each] for each in history.reach[name] - {name}])
        named[name] = {(record.kind, record.key) for record in records}
        for record in chance.sample(records, min(25, len(records))):
            altered = writer.segment(name, read.parents, [each for each in records if each is not record])
            if record.kind == SIGNATURE or (record.kind, record.key) in above:
                sent(altered).abandon()
                continue
            seen[record.kind] += 1
            if record.kind == REVISION:
                with pytest.raises(CorruptRecord, match="the record that is the revision itself"):
                    sent(altered)
                continue
            with pytest.raises(MissingReference) as caught:
                sent(altered)
            assert (caught.value.revision, caught.value.missing) == (name, record.key)
            shown = " ".join(part.decode() for part in record.key.split(b"\0"))
            assert str(caught.value).endswith(f"of revision {name.decode()} refers to {shown}, which is missing")
        stored.bring([segment], [name])
    assert all(seen[kind] > 5 for kind in (REVISION, INVENTORY, CHK, TEXT)), seen
    assert stored.repository.verify().problems == ()


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


class Pages:
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
def test_maps_of_small_pages(size: int) -> None:
    """Breezy splits the maps as it does for hundreds of thousands of files.

    Breezy loses some entries: if it splits a page twice at once, a key may end up in a page where no reader looks.
    """
    with quiet():
        source = RandomHistory(new_repository(f"memory:///pages{size}"), 1, 3, files=300)
        (*_, tip) = source.parents
        with source.repository.lock_read():
            store, tree = Pages(), source.repository.revision_tree(tip)
            made = inventory.CHKInventory.from_inventory(store, tree.root_inventory, size, b"hash-255-way")
            expected = entries_of(tree.root_inventory)
    breezys = inventory.CHKInventory.deserialise(store, made.to_lines(), (tip,))
    read = BzrTree(read_inventory(b"".join(made.to_lines())), store.pages.__getitem__)
    kept = {entry.file_id for entry in breezys.iter_just_entries()}
    assert {entry.file_id for entry in read.entries()} == kept
    found = {path: entry for path in expected if (entry := read.find(path)) is not None}
    paths = {path: breezys.path2id(path.decode()) for path in expected}
    assert {path: entry.file_id for path, entry in found.items()} == {
        path: file_id for path, file_id in paths.items() if file_id is not None and breezys.has_id(file_id)
    }
    assert all(tuple(entry) == expected[path] for path, entry in found.items())
    assert len(kept) > len(found) > len(expected) // 2 or len(kept) == len(found) == len(expected)
    rules = system_of(BrzRepository.vcs)
    groups = [group for page in store.pages.items() for group in rules.references(CHK, page[0], b"", page[1])]
    needed = {key for _, _, keys in groups for key in keys}
    assert {key for key in needed if not key.startswith(b"sha1:")} == {
        entry[1] + b"\0" + entry[4] for entry in expected.values() if entry[1] in kept
    }
    assert {key for key in needed if key.startswith(b"sha1:")} | {
        made.id_to_entry.key()[0],
        made.parent_id_basename_to_file_id.key()[0],
    } == store.pages.keys()

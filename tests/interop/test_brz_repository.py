"""vcs.bzr.repository: the properties of a Breezy repository; and vcs.bzr.plan, vcs.bzr.insert on errors.

vcs.bzr.plan, vcs.bzr.trees, vcs.bzr.insert, vcs.received, vcs.bzr.compat: what Breezy keeps comes out of a repository
of ours as it went in: random parts of random histories, pulled in random increments.

vcs.bzr.system, vcs.bzr.tree: a record that lacks is missed, and maps are read as Breezy splits them."""

from __future__ import annotations

import hashlib
import os
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from breezy.bzr import inventory
from breezy.bzr.testament import StrictTestament3
from breezy.bzr.versionedfile import FulltextContentFactory
from brz_histories import (
    KINDS,
    ROOT,
    Node,
    RandomHistory,
    Served,
    all_keys,
    contents,
    new_repository,
    open_repository,
    quiet,
)
from builders import creating, upload

from smartserver.errors import CorruptRecord, MissingReference
from smartserver.records import limits
from smartserver.records.bases import NewRecord, SegmentWriter
from smartserver.records.delta import decompress
from smartserver.records.model import BaseTag, Key, Parent, RecordName
from smartserver.records.segment import decode_segment, encode_segment, frames
from smartserver.records.system import system_of
from smartserver.store.upload import Upload
from smartserver.vcs import received
from smartserver.vcs.base import CannotSend, VcsError, WrongContent
from smartserver.vcs.bzr import insert as brz_insert
from smartserver.vcs.bzr import plan as brz_plan
from smartserver.vcs.bzr.block import BlockText, TextRange, fill
from smartserver.vcs.bzr.compat import StoreKey, put_block
from smartserver.vcs.bzr.complete import instead_of_breezys_look, is_alone
from smartserver.vcs.bzr.insert import insert
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, SIGNATURE, TEXT
from smartserver.vcs.bzr.plan import plan
from smartserver.vcs.bzr.repository import BrzRepository, WrongFormat
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


@pytest.fixture(autouse=True)
def calm() -> Iterator[None]:
    with quiet():
        yield


def line(path: str, size: int, *, ghosts: Mapping[int, list[bytes]] = MappingProxyType({})) -> RandomHistory:
    """Make revisions `r0`, `r1` ... in a line, each with a change of one file; `ghosts`: further parents of some."""
    history = RandomHistory(new_repository(path), 1, 0)
    tree = {ROOT: Node(b"", "", "directory", b"", False, b"")}
    with history.repository.lock_write():
        history.repository.start_write_group()
        for number in range(size):
            content = b"".join(b"line %d of %d\n" % (n, n % 7) for n in range(100)) + b"edit %d\n" % number
            tree = {**tree, b"file-id": Node(ROOT, "file", "file", content, False, b"")}
            parents = [b"r%d" % (number - 1)] if number else []
            history.commit(b"r%d" % number, parents, ghosts.get(number, []), tree)
        history.repository.commit_write_group()
    return history


def names(*numbers: int) -> list[bytes]:
    return [b"r%d" % number for number in numbers]


# ---- what it is


def test_another_format_is_refused_with_what_to_do() -> None:
    old = BrzRepository(new_repository("memory:///old", "1.14"))
    with pytest.raises(WrongFormat, match=r"expected 2a: convert it with `brz upgrade --2a`"):
        old.check_format()
    with pytest.raises(WrongFormat):
        plan(old, [], [])
    with pytest.raises(WrongFormat):
        insert(old, [])


# ---- haves


def test_candidates_that_are_here_come_first_and_need_nothing_more() -> None:
    repository = BrzRepository(line("memory:///haves", 40).repository)
    assert repository.complete_haves([*names(3), b"unknown"], 256, names(39)) == names(3, 39)
    assert repository.complete_haves(names(3), 1, names(39)) == names(3)


def test_without_a_candidate_ancestors_of_the_heads_are_had() -> None:
    repository = BrzRepository(line("memory:///steps", 40).repository)
    assert repository.complete_haves([b"unknown"], 256, names(39)) == names(39, 38, 37, 35, 31, 23, 7)
    assert repository.complete_haves([], 256) == names(39, 38, 37, 35, 31, 23, 7)
    assert repository.complete_haves([], 3) == names(39, 38, 37)


def test_of_a_branch_that_went_far_on_its_own_a_16th_more_is_asked_for_at_most() -> None:
    order = names(*range(400))
    history = line("memory:///far", 400)
    haves = BrzRepository(history.repository).complete_haves([b"unknown"], 256, [order[-1]])
    had = [order.index(each) for each in haves]
    assert len(haves) < 45
    for common in range(20, 336):
        own = 399 - common
        best = max(each for each in had if each <= common)
        assert common - best <= own / 16 + 1, (common, best)


def test_nothing_is_had_of_nothing() -> None:
    assert BrzRepository(new_repository("memory:///void")).complete_haves([b"unknown"], 256, [b"null:"]) == []


def test_absent_are_the_ghosts_below_what_is_had() -> None:
    history = line("memory:///absent", 10, ghosts={3: [b"ghost-3"], 7: [b"ghost-7"]})
    repository = BrzRepository(history.repository)
    assert repository.absent(names(2)) == []
    assert repository.absent(names(5)) == [b"ghost-3"]
    assert sorted(repository.absent(names(5, 9))) == [b"ghost-3", b"ghost-7"]
    assert repository.absent([b"unknown"]) == []


# ---- plans


def test_a_plan_is_what_is_not_known_and_names_ghosts() -> None:
    history = line("memory:///graph", 6, ghosts={4: [b"ghost"]})
    repository = BrzRepository(history.repository)
    graph = plan(repository, names(5), [*names(2), b"unknown"]).graph
    assert [each.revision for each in graph] == names(3, 4, 5)
    assert graph[1].parents == (Parent(b"r3"), Parent(b"ghost", True))
    assert list(plan(repository, names(2), names(4)).graph) == []
    assert list(plan(repository, names(2), names(4)).segments()) == []


def test_one_revision_rests_on_its_parent() -> None:
    history = line("memory:///one", 40)
    (segment,) = plan(BrzRepository(history.repository), names(39), names(38)).segments()
    header = decode_segment(segment, 0, KINDS)
    assert [entry.kind for entry in header.entries] == [REVISION, INVENTORY, CHK, TEXT]
    bases_ = {entry.kind: header.base_of(entry) for entry in header.entries}
    assert bases_[INVENTORY] == b"r38"
    assert bases_[TEXT] == b"file-id\0r38"
    assert bases_[CHK].startswith(b"sha1:")
    assert len(segment) < 1000


def test_bases_can_be_left_out() -> None:
    history = line("memory:///without", 5)
    sending = plan(BrzRepository(history.repository), names(4), names(3)).without_bases([b"file-id\0r3", b"r3"])
    (segment,) = sending.segments()
    header = decode_segment(segment, 0, KINDS)
    assert {entry.kind for entry in header.entries if entry.base != BaseTag.NONE} == {CHK}


def test_what_cannot_be_sent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    history = line("memory:///refused", 3)
    repository = BrzRepository(history.repository)
    with pytest.raises(CannotSend, match="revision unknown is missing in this repository"):
        plan(repository, [b"unknown"], [])
    sending = plan(repository, names(2), [])
    monkeypatch.setattr(limits, "MAX_TAKEN", 1000)
    with pytest.raises(CannotSend, match=r"file of revision r0: it has 1\d\d\d bytes, expected no more than 1000"):
        list(sending.segments())
    monkeypatch.setattr(limits, "MAX_TAKEN", 256 << 20)
    monkeypatch.setattr(limits, "MAX_ID", 8)
    with pytest.raises(CannotSend, match=r"cannot push page sha1:.*: the key has 45 bytes, expected no more than 8"):
        list(sending.segments())


def test_a_text_that_is_missing_here_is_named() -> None:
    history = line("memory:///broken", 3)
    repository = history.repository
    read = repository.texts.get_record_stream
    repository.texts.get_record_stream = lambda keys, *rest: read([key for key in keys if key[1] != b"r1"], *rest)
    with pytest.raises(
        CannotSend, match=r"the text of file-id in r1 is missing in this repository \(run `brz check`\)"
    ):
        list(plan(BrzRepository(repository), names(2), []).segments())


def test_a_text_that_comes_from_another_file_is_named() -> None:
    repository = line("memory:///foreign", 3).repository
    read = repository.texts.get_record_stream

    def stream(keys: Iterable[StoreKey], *rest: Any) -> Iterator[Any]:
        for each in read(keys, *rest):
            if each.key == (b"file-id", b"r1"):
                each.parents = ((b"other-id", b"r0"),)
            yield each

    repository.texts.get_record_stream = stream
    with pytest.raises(CannotSend, match="cannot push revision r1: a text of file-id has a parent of other-id"):
        list(plan(BrzRepository(repository), names(2), []).segments())


def test_a_revision_whose_inventory_is_another_is_not_sent() -> None:
    history = line("memory:///other", 2)
    with history.repository.lock_write():
        history.repository.start_write_group()
        history.commit(b"bad", [b"r1"], [], history.trees[b"r1"], sha1=b"0" * 40)
        history.repository.commit_write_group()
    with pytest.raises(CannotSend, match="revision bad: its inventory is not the one its record names: brz check"):
        list(plan(BrzRepository(history.repository), [b"bad"], []).segments())


def test_a_stacked_repository_sends_what_it_is_stacked_on_has(tmp_path: Path) -> None:
    below = line(str(tmp_path / "below"), 20)
    above = new_repository(str(tmp_path / "above"))
    above.add_fallback_repository(open_repository(str(tmp_path / "below")))
    served = Served()
    assert served.push(above, names(19)) == 20
    target = new_repository(str(tmp_path / "target"))
    assert served.pull(target, names(19)) == 20
    assert all_keys(target)["revisions"] == all_keys(below.repository)["revisions"]


def test_a_pull_into_a_stacked_repository(tmp_path: Path) -> None:
    """The fallback repository has the inventories of parents that Breezy needs."""
    history = line(str(tmp_path / "source"), 20)
    served = Served()
    served.push(history.repository, names(19))
    below = new_repository(str(tmp_path / "below"))
    served.pull(below, names(15))
    above = new_repository(str(tmp_path / "above"))
    above.add_fallback_repository(open_repository(str(tmp_path / "below")))
    assert served.pull(above, names(19)) == 4
    alone = open_repository(str(tmp_path / "above"))
    assert all_keys(alone)["revisions"] == {(name,) for name in names(16, 17, 18, 19)}
    assert (b"r15",) in all_keys(alone)["inventories"]
    with above.lock_read():
        assert above.revision_tree(b"r19").get_file_text("file").endswith(b"edit 19\n")


# ---- what came is wrong


def changed(segment: bytes, kind: int, **fields: Any) -> bytes:
    """Return a segment with the text or key of its first record of a kind replaced, and the rest adapted to it."""
    header = decode_segment(segment, 0, KINDS)
    records = []
    for entry, frame in zip(header.entries, frames(header, segment), strict=True):
        assert entry.base == BaseTag.NONE
        text = decompress(entry.encoding, frame, entry.length)
        records.append(NewRecord(entry.kind, entry.key, entry.meta, text))
    first = min([n for n, record in enumerate(records) if record.kind == kind])
    records[first] = records[first]._replace(**fields)
    return SegmentWriter(KINDS, bulk=False, texts=lambda kind, key: b"").segment(
        header.revision, header.parents, records
    )


def whole(history: RandomHistory) -> list[bytes]:
    """Return segments in which no record has a base."""
    return [next(plan(BrzRepository(history.repository), names(0), []).segments())]


@pytest.fixture(params=[1, 8 << 20], ids=["worker", "inline"])
def working(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compress texts in a process of their own, which must end, or in this one; children of other tests are ignored."""
    forked: list[int] = []
    fork = os.fork

    def noted() -> int:
        forked.append(fork())
        return forked[-1]

    monkeypatch.setattr(brz_insert, "FORK_FROM", request.param)
    monkeypatch.setattr(os, "fork", noted)
    yield
    for each in forked:
        with pytest.raises(ChildProcessError):
            os.waitpid(each, os.WNOHANG)


def refused(segments: list[bytes]) -> WrongContent:
    target = new_repository("memory:///refusing")
    with pytest.raises(WrongContent) as caught:
        insert(BrzRepository(target), segments)
    assert not any(all_keys(target).values())
    transport = target._transport
    assert transport.list_dir("upload") == transport.list_dir("packs") == []
    return caught.value


@pytest.mark.usefixtures("working")
@pytest.mark.parametrize(
    ("kind", "field", "key", "why"),
    [
        (TEXT, {"text": b"something else"}, rb"file-id\0r0", "its SHA-1 differs from the one in its tree"),
        (TEXT, {"key": b"file-id\0r9"}, rb"file-id\0r9", "no page of its revision names this text"),
        (INVENTORY, {"text": b"chkinventory:\n"}, rb"r0", "its inventory is not the one its record names"),
        (CHK, {"text": b"chkleaf:\n0\n1\n0\n\n"}, rb"sha1:.*", ".*hashes to.*"),
        (REVISION, {"text": b"le"}, rb".*", ".*cannot be read as a revision.*"),
    ],
)
def test_a_record_that_is_not_the_one_that_is_named(kind: int, field: dict[str, bytes], key: bytes, why: str) -> None:
    (segment,) = whole(line("memory:///wrong", 1))
    wrong = refused([changed(segment, kind, **field)])
    assert re.fullmatch(key, wrong.key)
    assert re.fullmatch(why, wrong.why)


@pytest.mark.usefixtures("working")
def test_a_revision_that_is_another() -> None:
    history = line("memory:///wrong-revision", 2)
    (segment,) = whole(history)
    _, text = contents(history.repository, {"revisions": [(b"r1",)]})["revisions", b"r1"]
    assert refused([changed(segment, REVISION, text=text)]).why == "its record names another revision, or other parents"


@pytest.mark.usefixtures("working")
def test_a_segment_without_its_revision() -> None:
    (segment,) = whole(line("memory:///without-revision", 1))
    header = decode_segment(segment, 0, KINDS)
    cut = encode_segment(b"r0", (), header.entries[1:], [bytes(frame) for frame in frames(header, segment)][1:], KINDS)
    assert refused([cut]).why == "the server did not send its record or its inventory"


@pytest.mark.usefixtures("working")
def test_a_base_that_is_not_here() -> None:
    history = line("memory:///no-base", 5)
    (segment,) = plan(BrzRepository(history.repository), names(4), names(3)).segments()
    assert refused([segment]).why == "it is missing, but a received record needs it"


@pytest.mark.usefixtures("working")
def test_an_interrupted_pull_leaves_nothing() -> None:
    history = line("memory:///interrupted", 8)
    segments = list(plan(BrzRepository(history.repository), names(7), []).segments())

    def coming() -> Iterator[bytes]:
        yield from segments[:5]
        raise KeyboardInterrupt

    target = new_repository("memory:///interrupted-target")
    with pytest.raises(KeyboardInterrupt):
        insert(BrzRepository(target), coming())
    assert not target.is_locked()
    assert not any(all_keys(target).values())
    assert target._transport.list_dir("upload") == []
    calls: list[tuple[int, int]] = []
    done = insert(BrzRepository(target), segments, lambda done, total: calls.append((done, total)))
    assert done.revisions == 8
    assert calls[-1] == (done.objects, done.objects)
    assert [total for _, total in calls[:-1]] == [0] * 8


def test_a_worker_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(arrived: object) -> Iterator[BlockText]:
        raise OSError("no space")

    monkeypatch.setattr(brz_insert, "FORK_FROM", 1)
    monkeypatch.setattr(brz_insert._Arrived, "_texts", failing)
    target = new_repository("memory:///failing")
    with pytest.raises(VcsError, match=r"a worker process failed: OSError.*no space"):
        insert(BrzRepository(target), whole(line("memory:///fails", 1)))
    assert not any(all_keys(target).values())


def test_a_text_that_is_there_is_not_put_there_again() -> None:
    target = new_repository("memory:///twice")

    def put(*texts: bytes) -> None:
        def give(block: bytes, places: list[TextRange]) -> None:
            named = [((b"file", place.key), place.parents, place.begin, place.end) for place in places]
            put_block(target.texts, block, named)

        with target.lock_write():
            target.start_write_group()
            fill([BlockText(text, (), b"", b"the text " + text) for text in texts], give)
            target.commit_write_group()

    put(b"a", b"b")
    put(b"b", b"c")
    with target.lock_read():
        stream = target.texts.get_record_stream([(b"file", key) for key in (b"a", b"b", b"c")], "unordered", True)
        assert {each.key[1]: each.get_bytes_as("fulltext") for each in stream} == {
            key: b"the text " + key for key in (b"a", b"b", b"c")
        }
        held = [len(list(pack.text_index.iter_all_entries())) for pack in target._pack_collection.all_packs()]
        assert sorted(held) == [1, 2]


def test_breezys_look_for_what_is_missing_is_back_afterwards() -> None:
    repository = line("memory:///look", 1).repository
    assert is_alone(repository)
    collection = repository._pack_collection
    own = collection._check_new_inventories
    with instead_of_breezys_look(repository):
        assert collection._check_new_inventories() == []
    assert collection._check_new_inventories == own


# ---- signatures


def test_signatures_that_come_later() -> None:
    history = line("memory:///signed", 4)
    repository = BrzRepository(history.repository)
    before = repository.signatures(names(0, 1))
    late = {name: b"signature of " + name for name in names(0, 1) if name not in before}
    assert repository.add_signatures({**late, b"unknown": b"x"}) == len(late)
    assert repository.add_signatures(late) == 0
    assert repository.signatures([*names(0, 1), b"unknown"]) == {**before, **late}

"""vcs.bzr.repository: the properties of a Breezy repository; and vcs.bzr.plan, vcs.bzr.insert on errors."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
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

from smartserver.records import limits
from smartserver.records.bases import NewRecord, SegmentWriter
from smartserver.records.delta import decompress
from smartserver.records.model import BaseTag, Parent
from smartserver.records.segment import decode_segment, encode_segment, frames
from smartserver.vcs.base import CannotSend, VcsError, WrongContent
from smartserver.vcs.bzr import insert as brz_insert
from smartserver.vcs.bzr.block import BlockText, TextRange, fill
from smartserver.vcs.bzr.compat import StoreKey, put_block
from smartserver.vcs.bzr.complete import instead_of_breezys_look, is_alone
from smartserver.vcs.bzr.insert import insert
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, TEXT
from smartserver.vcs.bzr.plan import plan
from smartserver.vcs.bzr.repository import BrzRepository, WrongFormat

pytestmark = pytest.mark.interop


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

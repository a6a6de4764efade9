"""store.incoming, store.upload: what is taken, records that are repeated, and chains of bases, which stay short; what
landed beside an upload, and storage that fails."""

from __future__ import annotations

from collections.abc import Sequence, Set

import pytest
from builders import KINDS, MAIN, TEXTS, History, Repeatable, check_whole, create, locate, push, request_id, upload
from calls import raising
from changes import change
from counting import Counting
from incoming_uploads import FILE, altered, left_in_quarantine, raw, receive, refused
from twins import FORMS, IN_PYTHON

from smartserver.errors import ConflictingRecord, CorruptRecord, MissingParents, MissingReference, WrongTip
from smartserver.meters import HASHED, STORED, STORED_BYTES, here
from smartserver.records.check import make_check
from smartserver.records.delta import compress
from smartserver.records.model import BaseTag, Entry, Parent, Record, Tip
from smartserver.records.segment import decode_segment, encode_graph, encode_segment, frames
from smartserver.store import incoming, known_records
from smartserver.store.commit import PlanAgain
from smartserver.store.format import PACKS
from smartserver.store.incoming import MAX_STORED_DEPTH
from smartserver.store.known_records import REBASED_DEPTH
from smartserver.store.quarantine import DraftPack
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.store.upload import Upload, unreported
from transports.errors import NoSpace

pytestmark = pytest.mark.usefixtures("proving")


def test_stored_revisions_are_left_out(repository: PackRepository, history: History) -> None:
    line = history.line(6)
    push(repository, history, line[:4], {MAIN: line[3]})
    counts = Counting()
    sent = upload(repository, history.body(line[2:]), 4)
    assert sent.entry is not None
    assert sent.entry.segments == 2
    assert counts[STORED] == 2
    assert counts[STORED_BYTES] == sum(len(history.segment(each)) for each in line[2:4])
    sent.abandon()
    again = upload(repository, history.body(line[:4]), 4)
    assert again.entry is None
    assert left_in_quarantine(repository) == []
    check_whole(repository, history)


def test_an_empty_body(repository: PackRepository) -> None:
    assert upload(repository, b"", 0).entry is None
    assert upload(repository, encode_graph([]), 0, graph_first=True).entry is None


def test_a_base_anywhere_among_the_ancestors(repository: PackRepository, history: History) -> None:
    line = history.line(12)
    blobs = [history.key_at(each, FILE) for each in line]
    segments = [history.segment(each) for each in line[:6]]
    for number in range(6, 12):
        segments.append(raw(history, line[number], bases={blobs[number]: blobs[number - 6]}))
    push(repository, history, line[:3], {MAIN: line[2]})
    sent = upload(repository, b"".join(segments), 12)
    assert sent.entry is not None
    sent.abandon()


def text_segment(revision: bytes, parents: Sequence[bytes], records: Sequence[tuple[Record, bytes]]) -> bytes:
    """Records with a check of their own; each with its base's key."""
    entries, bodies = [], []
    for record, base in records:
        encoding, frame = compress(record.text)
        assert not base or encoding
        check = make_check(TEXTS[record.kind], record.key, record.meta, record.text)
        tag = BaseTag.FULL_KEY if base else BaseTag.NONE
        size, length = len(frame), len(record.text)
        entries.append(Entry(record.kind, encoding, record.key, record.meta, tag, base, length, size, check))
        bodies.append(frame)
    return encode_segment(revision, [Parent(parent) for parent in parents], entries, bodies, TEXTS)


def text_upload(repository: PackRepository, *segments: bytes) -> Upload:
    transaction = repository.begin()
    transaction.create("texts", TEXTS, {})
    sent = repository.receive(transaction)
    sent.write(b"".join(segments))
    sent.finish(len(segments), sum(map(len, segments)))
    return sent


def text_plan(transaction: Transaction) -> bytes:
    transaction.create("texts", TEXTS, {})
    transaction.check_parents()
    return b"outcome"


def test_a_key_means_one_text_where_it_may_be_a_base(repository: PackRepository) -> None:
    first = text_segment(b"a", [], [(Record(0, b"k", b"", b"one text"), b"")])
    repository.commit(request_id(), 0, "user", text_plan, text_upload(repository, first))
    same = text_segment(b"b", [b"a"], [(Record(0, b"k", b"another meta", b"one text"), b"")])
    repository.commit(request_id(), 0, "user", text_plan, text_upload(repository, same))
    other = text_segment(b"c", [b"a"], [(Record(0, b"k", b"", b"another text"), b"")])
    with pytest.raises(ConflictingRecord) as caught:
        text_upload(repository, other)
    assert caught.value.key == b"k"
    inside = text_segment(b"d", [b"a"], [(Record(0, b"new", b"", b"one"), b"")])
    within = text_segment(b"e", [b"d"], [(Record(0, b"new", b"", b"two"), b"")])
    with pytest.raises(ConflictingRecord):
        text_upload(repository, inside, within)


def test_a_key_may_mean_several_texts_where_it_is_no_base(repository: PackRepository) -> None:
    first = text_segment(b"a", [], [(Record(1, b"k", b"", b"signed once"), b"")])
    second = text_segment(b"b", [b"a"], [(Record(1, b"k", b"", b"signed twice"), b"")])
    sent = text_upload(repository, first, second)
    repository.commit(request_id(), 0, "user", text_plan, sent)
    snapshot = repository.snapshot()
    texts = [snapshot.record(location).text for location in locate(snapshot, 1, b"k")]
    assert texts == [b"signed once", b"signed twice"]
    assert repository.verify().problems == ()


@IN_PYTHON
def test_no_text_is_held_once_all_is_written(repository: PackRepository, history: History) -> None:
    """A validator refers to itself: its records would stay until the next collection, beside those of the next one."""
    body = history.body(history.line(4))
    sent = receive(repository)
    sent.write(body)
    recent = sent._validator._known.stream.recent
    assert recent._records
    sent.finish(4, len(body))
    assert not recent._records
    sent.abandon()


LINES = [b"%d: a line that stays\n" % number for number in range(40)]
OLD, NEW = b"".join(LINES), b"".join([*LINES[:7], b"a new one\n", *LINES[7:]])


@pytest.fixture
def twins(history: History) -> list[bytes]:
    """A commit and two children that make the same change."""
    first = history.commit({"src/file.txt": OLD, "README": b"a project\n"})
    files = {"src/file.txt": NEW, "README": b"a project\n"}
    return [first, *[history.commit(files, (first,), message) for message in ("one", "two")]]


@pytest.mark.parametrize("proving", FORMS[:1], indirect=True)
@pytest.mark.parametrize(("based", "hashed"), [(True, 0), (False, 1)])
def test_a_copy_of_a_file_is_not_looked_at_again(
    repository: PackRepository, history: History, twins: list[bytes], based: bool, hashed: int
) -> None:
    """The native prover does not decode the copy again, unless it has another base."""
    count = sum(len(history.introduced[each]) for each in twins)
    last = history.segment(twins[2]) if based else raw(history, twins[2])
    before = here.tally[HASHED]
    upload(repository, history.body(twins[:2]) + last, 3).abandon()
    assert here.tally[HASHED] - before == count - 1 + hashed


def test_a_damaged_copy_is_refused(repository: PackRepository, history: History, twins: list[bytes]) -> None:
    whole = history.segment(twins[2])
    segment = decode_segment(whole, 0, KINDS)
    for entry, frame in zip(segment.entries, map(bytes, frames(segment, whole)), strict=True):
        damaged = frame[:-4] + bytes((frame[-4] ^ 255,)) + frame[-3:]
        wrong = altered(history, twins[2], frame=(entry.key, damaged))
        assert refused(CorruptRecord, repository, *map(history.segment, twins[:2]), wrong).key == entry.key


def test_a_copied_tree_still_needs_what_it_refers_to(
    repository: PackRepository, history: History, twins: list[bytes]
) -> None:
    """The first child introduced the file, but is no ancestor of the second."""
    file = history.key_at(twins[1], "src/file.txt")
    wrong = altered(history, twins[2], without=file)
    error = refused(MissingReference, repository, *map(history.segment, twins[:2]), wrong)
    assert (error.revision, error.missing) == (twins[2], file)


def test_a_repeat_whose_check_is_another_is_refused(repository: PackRepository) -> None:
    """If a key proves nothing of its text, the check in the header is compared in every copy."""
    record = Record(0, b"k", b"", OLD)
    first, again = (text_segment(each, on, [(record, b"")]) for each, on in ((b"a", []), (b"b", [b"a"])))
    right = make_check(TEXTS[0], b"k", b"", OLD)
    text_upload(repository, first, again).abandon()
    with pytest.raises(CorruptRecord):
        text_upload(repository, first, again.replace(right, right[:-1] + b"?"))


def one_by_one(repository: PackRepository, history: History, line: Sequence[bytes]) -> None:
    for each in line:
        push(repository, history, [each], {MAIN: each})
        repository.repack_if_needed()


def test_pushes_one_by_one_never_get_deep(repository: PackRepository) -> None:
    history = History()
    line = history.line(MAX_STORED_DEPTH * 4)
    one_by_one(repository, history, line)
    snapshot = check_whole(repository, history)
    depths = [row.depth for pack in snapshot.packs for row in pack.index.rows()]
    assert max(depths) == MAX_STORED_DEPTH
    body = snapshot.read_ranges([(0, len(line))])
    sizes = sum(len(history.segment(each)) for each in line)
    assert body.left < sizes * 1.1
    assert len(snapshot.packs) < 20


def test_a_record_that_is_encoded_anew(repository: PackRepository) -> None:
    history = History()
    line = history.line(MAX_STORED_DEPTH + 3)
    push(repository, history, line[: MAX_STORED_DEPTH + 1], {MAIN: line[MAX_STORED_DEPTH]})
    push(repository, history, line[MAX_STORED_DEPTH + 1 :], {MAIN: line[-1]})
    snapshot = check_whole(repository, history)
    location = locate(snapshot, 0, history.key_at(line[MAX_STORED_DEPTH + 1], FILE))[0]
    # The base is the version 32 before it, as the k-ary rule says: every version until then had its predecessor.
    assert location.depth == MAX_STORED_DEPTH + 1 - 32 + 1 <= REBASED_DEPTH + 1
    assert location.lineage == MAX_STORED_DEPTH + 1
    stored = decode_segment(snapshot.read_ranges([(location.ordinal, location.ordinal + 1)]).read(1 << 20), 0, KINDS)
    sent = decode_segment(history.segment(line[MAX_STORED_DEPTH + 1]), 0, KINDS)
    assert [entry.key for entry in stored.entries] == [entry.key for entry in sent.entries]
    assert (stored.revision, stored.parents) == (sent.revision, sent.parents)
    after = locate(snapshot, 0, history.key_at(line[MAX_STORED_DEPTH + 2], FILE))[0]
    assert after.depth == location.depth + 1


def test_encoded_anew_within_one_push_and_one_segment(
    repository: PackRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each segment has a whole chain. The later records of a segment have re-encoded records as their bases."""
    monkeypatch.setattr("smartserver.store.known_records.RecentRecords.put", lambda self, record: None)
    history = History()
    lines = [b"line %d of a file that many files are like\n" % number for number in range(50)]
    files = {}
    for number in range(150):
        lines[number % 50] = b"changed for file %d\n" % number
        files[f"f{number:03}"] = b"".join(lines)
    tip = history.commit(files)
    order = [key for key, _path in history.introduced[tip]]
    segment = decode_segment(raw(history, tip, order), 0, KINDS)
    entries, bodies = [], []
    for index, (entry, frame) in enumerate(
        zip(segment.entries, frames(segment, raw(history, tip, order)), strict=True)
    ):
        body = bytes(frame)
        if index > 2:
            record, before = history.objects[entry.key], history.objects[segment.entries[index - 1].key]
            encoding, body = compress(record.text, before.text)
            entry = entry._replace(encoding=encoding, base=BaseTag.entry(index - 1), frame_length=len(body))
        entries.append(entry)
        bodies.append(body)
    content = encode_segment(tip, [], entries, bodies, KINDS)
    sent = upload(repository, content, 1)
    history._made[tip] = content
    change(repository, create, sent)
    push(repository, history, [], {MAIN: tip})
    snapshot = check_whole(repository, history)
    assert max(row.depth for row in snapshot.packs[0].index.rows()) == MAX_STORED_DEPTH


@IN_PYTHON
def test_a_chain_over_the_limit_is_begun_anew(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (incoming, known_records):
        monkeypatch.setattr(module, "MAX_CHAIN", 8 << 10)
    line = history.line(20)
    one_by_one(repository, history, line)
    snapshot = check_whole(repository, history)
    assert max(row.chain_kib for pack in snapshot.packs for row in pack.index.rows()) <= 8


def test_a_chain_through_another_branch_is_not_used(repository: PackRepository, history: History) -> None:
    """The lowest copy of a base is another branch's, at the end of a long chain: none of it is this branch's."""
    line = history.line(MAX_STORED_DEPTH + 1)
    push(repository, history, line, {MAIN: line[-1]})
    deep = history.key_at(line[-1], FILE)
    other = history.commit({"elsewhere": history.objects[deep].text}, (), "another root")
    text = history.objects[deep].text.replace(b"line", b"LINE", 1)
    child = history.commit({"elsewhere": text + b"more\n"}, (other,))
    push(repository, history, [other], {b"refs/heads/other": other})
    push(repository, history, [child], {b"refs/heads/other": child})
    snapshot = check_whole(repository, history)
    location = locate(snapshot, 0, history.key_at(child, "elsewhere"))[0]
    assert (location.depth, location.lineage) == (0, MAX_STORED_DEPTH + 1)


def test_a_near_base_that_is_too_deep_leads_to_a_farther_one(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_records, "REBASED_DEPTH", 5)
    line = history.line(MAX_STORED_DEPTH + 2)
    one_by_one(repository, history, line)
    location = locate(check_whole(repository, history), 0, history.key_at(line[-1], FILE))[0]
    assert location.depth == 1


def test_encoded_anew_in_full_where_the_base_is_of_no_use(repository: PackRepository, history: History) -> None:
    """Each text shares most with the one before it and nothing with the one 32 before it."""
    noise = Repeatable(3)
    blocks = [noise(256) for _ in range(MAX_STORED_DEPTH + 20)]
    parent: tuple[bytes, ...] = ()
    line: list[bytes] = []
    for number in range(MAX_STORED_DEPTH + 2):
        parent = (history.commit({"noise": b"".join(blocks[number : number + 8])}, parent),)
        line += parent
    push(repository, history, line, {MAIN: line[-1]})
    location = locate(check_whole(repository, history), 0, history.key_at(line[-1], "noise"))[0]
    assert location.depth == 0
    assert location.frame_length == location.length == 8 * 256


@pytest.mark.parametrize("new", [0, 1])
@pytest.mark.parametrize("again", [False, True])
def test_what_was_left_out_must_still_be_there(
    repository: PackRepository, history: History, new: int, again: bool
) -> None:
    """The revisions were stored already, all or some: they may not be acknowledged once those are gone."""
    line = history.line(4)
    push(repository, history, line[:3], {MAIN: line[2]})
    slow = upload(repository, history.body(line[: 3 + new]), 3 + new)
    assert not slow.stale(repository.snapshot())
    repository.delete(request_id(), 0, "user")
    transaction = repository.begin()
    if again:
        push(repository, History(), [], {})
        assert slow.stale(repository.snapshot())
        transaction = repository.begin()
    else:
        assert slow.stale(None)
        create(transaction)
    with pytest.raises(MissingParents) as caught:
        slow.check_again(transaction, unreported, frozenset())
    assert caught.value.revisions == line[:3]
    slow.abandon()


def test_what_is_cut_out_must_stay_too(repository: PackRepository, history: History) -> None:
    line = history.line(5)
    push(repository, history, line[:1], {MAIN: line[0]})
    slow = upload(repository, history.body(line[:4]), 4)
    push(repository, history, line[1:3], {MAIN: line[2]})
    slow.check_again(repository.begin(), unreported, frozenset())
    repository.delete(request_id(), 0, "user")
    push(repository, history, [], {})
    with pytest.raises(MissingParents) as caught:
        slow.check_again(repository.begin(), unreported, frozenset())
    assert set(caught.value.revisions) == set(line[:3])
    slow.abandon()


def test_what_was_refused_and_is_accepted_now_comes_again(repository: PackRepository, history: History) -> None:
    """The request is planned twice: what was cut out as a refused ref's is wanted after another change."""
    line = history.line(3)
    push(repository, history, line[:1], {MAIN: line[0]})
    side, other = b"refs/heads/side", history.commit({"other": b"x\n"}, line[:1])
    sent = upload(repository, history.body([line[1], other]), 2)
    plans: list[Set[bytes]] = []

    def plan(transaction: Transaction) -> bytes:
        plans.append(sent.unwanted)
        transaction.set_ref(side, (Tip(other),))
        transaction.is_partial = len(plans) < 2
        if not transaction.is_partial:
            transaction.set_ref(MAIN, (Tip(line[1]),))
        return b""

    def judge(transaction: Transaction) -> None:
        push(repository, history, [], {b"refs/heads/a": line[0]})

    with pytest.raises(MissingParents) as caught:
        repository.commit(request_id(), 0, "user", plan, sent, approve=judge)
    assert caught.value.revisions == [line[1]]
    assert plans == [frozenset(), {line[1]}]
    assert repository.snapshot().ordinal(other) is None
    assert left_in_quarantine(repository) == []


@pytest.mark.parametrize("is_moved", [False, True], ids=["judged", "on a newer state"])
def test_a_refused_ref_is_refused_again(repository: PackRepository, history: History, is_moved: bool) -> None:
    """Its tip was cut out of the pack by then, and is still known to be an annotated tag, which no branch may have."""
    first, second = history.line(2)
    push(repository, history, [first], {MAIN: first})
    tag, judged = history.tag(second), []
    sent = upload(repository, history.body([second, tag]), 2)
    facts = [sent.fact(tag)]

    def plan(transaction: Transaction) -> bytes:
        transaction.set_ref(MAIN, (Tip(second),))
        with pytest.raises(WrongTip):
            transaction.set_ref(b"refs/heads/x", (Tip(tag),))
        transaction.is_partial = True
        return b""

    def judge(transaction: Transaction) -> None:
        judged.append(transaction)
        facts.append(sent.fact(tag))
        if len(judged) == 1:
            if is_moved:
                push(repository, history, [], {b"refs/heads/a": first})
            raise PlanAgain

    with pytest.raises(PlanAgain):
        repository.commit(request_id(), 0, "user", plan, sent, approve=judge)
    repository.commit(request_id(), 0, "user", plan, sent, approve=judge)
    assert len(set(facts)) == 1 < len(facts)
    assert facts[0]
    snapshot = repository.snapshot()
    assert (snapshot.ordinal(second) is not None, snapshot.ordinal(tag)) == (True, None)


def test_a_file_that_fails_when_it_is_closed_is_deleted_all_the_same(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tip,) = history.line(1)
    push(repository, History(), [])
    sent = receive(repository)
    sent.write(history.segment(tip))
    assert len(left_in_quarantine(repository)) == 1
    monkeypatch.setattr(DraftPack, "close", raising(NoSpace("what a network file system says as late as this")))
    sent.abandon()
    assert left_in_quarantine(repository) == []


def test_a_record_that_landed_meanwhile_is_looked_at_again(repository: PackRepository, history: History) -> None:
    root = history.commit({"a": b"a"})
    push(repository, history, [root], {MAIN: root})
    left = history.commit({"a": b"a", "b": b"the same text"}, (root,))
    right = history.commit({"a": b"a", "c": b"the same text"}, (root,))
    slow = upload(repository, history.body([left]), 1)
    push(repository, history, [right], {MAIN: right})
    assert slow.stale(repository.snapshot())
    slow.abandon()


def test_nothing_new_is_never_stale(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    empty = upload(repository, history.body(line[:1]), 1)
    assert empty.entry is None
    push(repository, history, line[1:], {MAIN: line[1]})
    assert not empty.stale(repository.snapshot())
    empty.check_again(repository.begin(), unreported, frozenset())
    assert empty.quarantine is None
    empty.leave()
    assert len(repository.folder.list_directory(PACKS)) == 4

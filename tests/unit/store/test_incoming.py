from __future__ import annotations

from collections.abc import Sequence

import pytest
from builders import (
    GIT,
    KINDS,
    MAIN,
    SETTINGS,
    History,
    Repeatable,
    check_whole,
    create,
    locate,
    push,
    request_id,
    upload,
)

from smartserver.errors import (
    ConflictingRecord,
    CorruptRecord,
    LimitExceeded,
    MissingBase,
    MissingParents,
    MissingReference,
    NoSuchRepository,
    WrongParents,
)
from smartserver.records.check import make_check
from smartserver.records.delta import compress
from smartserver.records.model import BaseTag, Entry, Kind, Parent, Record
from smartserver.records.segment import decode_segment, encode_graph, encode_segment, frames
from smartserver.records.varint import encode
from smartserver.store import incoming
from smartserver.store.format import INCOMING, PACKS
from smartserver.store.incoming import MAX_STORED_DEPTH, REBASED_DEPTH, Upload
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import RepositoryTransaction
from transports.decorators.faulty import FaultyTransport
from transports.errors import CodedError, TransportFailed
from transports.memory import MemoryTransport

FILE = "src/file.txt"
TEXTS = (Kind("text", "blake2b-128", True), Kind("signature", "blake2b-128", False))


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def repository() -> PackRepository:
    return PackRepository(MemoryTransport(), "project", randomness=Repeatable())


def receive(repository: PackRepository, graph_first: bool = False) -> Upload:
    transaction = repository.begin(b"", "user")
    if not transaction.exists:
        create(transaction)
    return repository.receive(transaction, graph_first)


def send(sent: Upload, body: bytes, segments: int, size: int) -> None:
    sent.write(body)
    sent.finish(segments, size)


def left_in_quarantine(repository: PackRepository) -> list[str]:
    return repository.folder.list_directory(INCOMING) if repository.folder.exists(INCOMING) else []


def raw(
    history: History,
    revision: bytes,
    keys: Sequence[bytes] | None = None,
    parents: Sequence[Parent] | None = None,
    bases: dict[bytes, bytes] | None = None,
    frames_of: dict[bytes, bytes] | None = None,
) -> bytes:
    """A segment made by hand: any parents, any records, any full-key bases, any frames."""
    keys = [key for key, _path in history.introduced[revision]] if keys is None else keys
    entries, bodies = [], []
    for key in keys:
        record = history.objects[key]
        base = (bases or {}).get(key, b"")
        based = history.objects[base].text if base in history.objects else b"some text that is a base" * 9
        encoding, frame = compress(record.text, based if base else b"")
        if base and encoding == 0:
            encoding, frame = 1, compress(record.text * 1 + b"", based)[1]
        frame = (frames_of or {}).get(key, frame)
        tag = BaseTag.FULL_KEY if base else BaseTag.NONE
        entries.append(Entry(0, encoding, key, record.meta, tag, base, len(record.text), len(frame), b""))
        bodies.append(frame)
    if parents is None:
        parents = [Parent(parent) for parent in history.parents[revision]]
    return encode_segment(revision, parents, entries, bodies, KINDS)


def refused(repository: PackRepository, *segments: bytes) -> CodedError:
    """The one coded error a body of these segments ends in; nothing is left of it."""
    sent = receive(repository)
    body = b"".join(segments)
    with pytest.raises(CodedError) as caught:
        send(sent, body, len(segments), len(body))
    sent.abandon()
    assert left_in_quarantine(repository) == []
    return caught.value


# -- what is taken


@pytest.mark.parametrize("chunk", [1, 7, 4096])
@pytest.mark.parametrize("graph_first", [False, True])
def test_a_body_cut_anywhere(repository: PackRepository, history: History, chunk: int, graph_first: bool) -> None:
    line = history.line(4)
    body = history.body(line, graph_first=graph_first)
    sent = upload(repository, body, 4, graph_first=graph_first, chunk=chunk)
    assert sent.entry is not None
    assert (sent.entry.segments, sent.entry.records) == (4, sum(len(history.introduced[each]) for each in line))
    assert sent.graph() == [history.announced(each) for each in line]
    sent.abandon()
    assert not repository.folder.exists("")


def test_the_graph_is_known_before_the_segments(repository: PackRepository, history: History) -> None:
    line = history.line(3)
    sent = receive(repository, graph_first=True)
    graph = encode_graph([history.announced(each) for each in line])
    sent.write(graph[:-1])
    assert sent.graph() is None
    sent.write(graph[-1:])
    assert sent.graph() == [history.announced(each) for each in line]
    sent.abandon()


def test_without_announcement_the_graph_is_known_at_the_end(repository: PackRepository, history: History) -> None:
    (tip,) = history.line(1)
    sent = receive(repository)
    sent.write(history.segment(tip))
    assert sent.graph() is None
    sent.finish(1, len(history.segment(tip)))
    assert sent.graph() == [history.announced(tip)]
    sent.abandon()


def test_stored_revisions_are_left_out(repository: PackRepository, history: History) -> None:
    line = history.line(6)
    push(repository, history, line[:4], {MAIN: line[3]})
    sent = upload(repository, history.body(line[2:]), 4)
    assert sent.entry is not None
    assert sent.entry.segments == 2
    sent.abandon()
    again = upload(repository, history.body(line[:4]), 4)
    assert again.entry is None
    assert left_in_quarantine(repository) == []
    check_whole(repository, history)


def test_an_empty_body(repository: PackRepository) -> None:
    assert upload(repository, b"", 0).entry is None
    assert upload(repository, encode_graph([]), 0, graph_first=True).entry is None


def test_merges_tags_and_bare_tips(repository: PackRepository, history: History) -> None:
    line = history.line(3)
    side = history.line(2, line[0], "side")
    merge = history.commit({**history.files(side[-1]), **history.files(line[-1])}, (line[-1], side[-1]))
    octopus = history.commit(history.files(merge), (merge, line[0], side[0]))
    tag = history.tag(octopus)
    tree = next(key for key, record in history.objects.items() if record.meta == b"\x02")
    alone = history.add(b"\x03", b"a blob that only a ref names")
    revisions = [*line, *side, merge, octopus, tag, history.tag(tag, "v2"), history.tag(tree, "of-a-tree")]
    revisions += [history.bare(alone), history.bare(tree)]
    push(repository, history, revisions, {b"refs/tags/%d" % number: each for number, each in enumerate(revisions)})
    assert check_whole(repository, history).graph.count == len(revisions)


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


def test_a_text_is_decoded_again_when_it_was_forgotten(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smartserver.store.arrivals.TEXT_BYTES", 0)
    monkeypatch.setattr("smartserver.store.arrivals.RecentRecords.put", lambda self, record: None)
    line = history.line(20)
    push(repository, history, line[:10], {MAIN: line[9]})
    push(repository, history, line[10:], {MAIN: line[19]})
    check_whole(repository, history)


# -- what is refused


def test_no_repository_and_none_made(repository: PackRepository) -> None:
    with pytest.raises(NoSuchRepository):
        repository.receive(repository.begin(b"", "user"))


def test_a_missing_parent(repository: PackRepository, history: History) -> None:
    line = history.line(3)
    error = refused(repository, history.segment(line[0]), history.segment(line[2]))
    assert isinstance(error, MissingParents)
    assert error.revisions == [line[1]]


def test_a_parent_that_comes_after_its_child(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    assert isinstance(refused(repository, history.segment(line[1]), history.segment(line[0])), MissingParents)


def test_a_revision_sent_twice(repository: PackRepository, history: History) -> None:
    (tip,) = history.line(1)
    error = refused(repository, history.segment(tip), history.segment(tip))
    assert isinstance(error, CorruptRecord)
    assert "sent twice" in error.why


def test_wrong_parents(repository: PackRepository, history: History) -> None:
    line = history.line(3)
    before = [history.segment(line[0]), history.segment(line[1])]
    for parents in ([], [Parent(line[0])], [Parent(line[1]), Parent(line[0])], [Parent(line[1], absent=True)]):
        error = refused(repository, *before, raw(history, line[2], parents=parents))
        assert isinstance(error, WrongParents)
        assert error.revision == line[2]


def test_without_its_own_record(repository: PackRepository, history: History) -> None:
    (tip,) = history.line(1)
    keys = [key for key, _path in history.introduced[tip]]
    assert isinstance(refused(repository, raw(history, tip, keys[1:])), CorruptRecord)
    assert isinstance(refused(repository, raw(history, tip, [])), CorruptRecord)


def test_a_missing_blob_and_a_missing_tree(repository: PackRepository, history: History) -> None:
    (tip,) = history.line(1)
    keys = [key for key, _path in history.introduced[tip]]
    for missing in keys[1:]:
        error = refused(repository, raw(history, tip, [key for key in keys if key != missing]))
        assert isinstance(error, MissingReference)
        assert (error.revision, error.missing) == (tip, missing)


def test_a_reference_to_another_branchs_record(repository: PackRepository, history: History) -> None:
    root = history.commit({"a": b"a"})
    side = history.commit({"a": b"a", "b": b"only on the side"}, (root,))
    push(repository, history, [root, side], {MAIN: side})
    child = history.commit({"a": b"a", "c": b"only on the side"}, (root,))
    blob = history.key_at(side, "b")
    keys = [key for key, _path in history.introduced[child]]
    assert blob in keys
    error = refused(repository, raw(history, child, [key for key in keys if key != blob]))
    assert isinstance(error, MissingReference)
    assert error.missing == blob
    push(repository, history, [child], {b"refs/heads/child": child})
    assert len(locate(check_whole(repository, history), 0, blob)) == 2


def test_a_base_of_another_branch(repository: PackRepository, history: History) -> None:
    root = history.commit({"a": b"a line of text\n" * 20})
    side = history.commit({"a": b"a line of text\n" * 20 + b"side\n"}, (root,))
    push(repository, history, [root, side], {MAIN: side})
    child = history.commit({"a": b"a line of text\n" * 20 + b"child\n"}, (root,))
    grandchild = history.commit({"a": b"a line of text\n" * 20 + b"grandchild\n"}, (child,))
    blob, foreign = history.key_at(child, "a"), history.key_at(side, "a")
    unknown = b"u" * 20
    late = history.key_at(grandchild, "a")
    error = refused(
        repository,
        raw(history, child, bases={blob: foreign}),
        raw(history, grandchild, bases={late: unknown}),
    )
    assert isinstance(error, MissingBase)
    assert error.keys == [foreign, unknown]
    push(repository, history, [child, grandchild], {b"refs/heads/child": grandchild})
    check_whole(repository, history)


def test_after_a_missing_base_what_rests_on_its_record_is_not_missing(
    repository: PackRepository, history: History
) -> None:
    line = history.line(3)
    blobs = [history.key_at(each, FILE) for each in line]
    error = refused(
        repository,
        raw(history, line[0], bases={blobs[0]: b"u" * 20}),
        raw(history, line[1], bases={blobs[1]: blobs[0]}),
        raw(history, line[2], bases={blobs[2]: blobs[1]}),
    )
    assert isinstance(error, MissingBase)
    assert error.keys == [b"u" * 20]


def test_missing_bases_are_named_up_to_a_limit(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "KEYS_NAMED", 2)
    line = history.line(4)
    segments = []
    for number, each in enumerate(line):
        blob = history.key_at(each, FILE)
        segments.append(raw(history, each, bases={blob: b"%020d" % number}))
    error = refused(repository, *segments)
    assert isinstance(error, MissingBase)
    assert error.keys == [b"%020d" % 0, b"%020d" % 1]


def test_a_text_that_is_not_what_its_key_says(repository: PackRepository, history: History) -> None:
    (tip,) = history.line(1)
    blob = history.key_at(tip, FILE)
    length = len(history.objects[blob].text)
    wrong = raw(history, tip, frames_of={blob: compress(b"x" * length)[1]})
    error = refused(repository, wrong)
    assert isinstance(error, CorruptRecord)
    assert (error.revision, error.key) == (tip, blob)
    assert "hashes to" in error.why


def test_a_frame_that_is_none(repository: PackRepository, history: History) -> None:
    (tip,) = history.line(1)
    blob = history.key_at(tip, FILE)
    error = refused(repository, raw(history, tip, frames_of={blob: b"no frame at all"}))
    assert isinstance(error, CorruptRecord)
    assert error.key == blob


def test_every_flipped_byte_of_a_body_is_refused(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    body = history.body(line)
    for at in range(len(body)):
        flipped = bytearray(body)
        flipped[at] ^= 0x41
        sent = receive(repository)
        with pytest.raises(CodedError):
            send(sent, bytes(flipped), 2, len(body))
        sent.abandon()


def test_every_cut_of_a_body_is_refused(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    body = history.body(line, graph_first=True)
    for stop in range(len(body)):
        sent = receive(repository, graph_first=True)
        with pytest.raises(CorruptRecord):
            send(sent, body[:stop], 2, len(body))
        sent.abandon()
    assert left_in_quarantine(repository) == []


def test_counts_that_do_not_agree(repository: PackRepository, history: History) -> None:
    (tip,) = history.line(1)
    body = history.body([tip])
    for segments, size in ((2, len(body)), (1, len(body) + 1), (0, 0)):
        sent = receive(repository)
        sent.write(body)
        with pytest.raises(CorruptRecord, match=f"its end says {segments} segments, {size} bytes"):
            sent.finish(segments, size)
        sent.abandon()


def test_segments_that_are_not_as_announced(repository: PackRepository, history: History) -> None:
    line = history.line(3)
    announced = [history.announced(each) for each in line]
    segments = [history.segment(each) for each in line]
    cases = [
        (announced[:2], segments),
        (announced, segments[:2]),
        ([announced[0], announced[2]], segments[:2]),
        ([announced[0], announced[1]._replace(parents=(Parent(line[0], absent=True),))], segments[:2]),
        ([], segments[:1]),
    ]
    for graph, content in cases:
        sent = receive(repository, graph_first=True)
        body = encode_graph(graph) + b"".join(content)
        with pytest.raises(CorruptRecord, match="announced"):
            send(sent, body, len(content), len(body))
        sent.abandon()


def test_a_segment_over_the_limit_is_refused_by_its_length(repository: PackRepository) -> None:
    sent = receive(repository)
    with pytest.raises(LimitExceeded):
        sent.write(encode(1 << 40))


# -- other kinds


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
    transaction = repository.begin(b"", "user")
    transaction.create("texts", TEXTS, {})
    sent = repository.receive(transaction)
    sent.write(b"".join(segments))
    sent.finish(len(segments), sum(map(len, segments)))
    return sent


def text_plan(transaction: RepositoryTransaction) -> bytes:
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


def test_absent_parents_are_kept(repository: PackRepository) -> None:
    entries: list[Entry] = []
    ghostly = encode_segment(b"child", [Parent(b"ghost", absent=True)], entries, [], TEXTS)
    repository.commit(request_id(), 0, "user", text_plan, text_upload(repository, ghostly))
    ghost = text_segment(b"ghost", [], [])
    repository.commit(request_id(), 0, "user", text_plan, text_upload(repository, ghost))
    transaction = repository.begin(b"", "user")
    assert not transaction.is_ancestor(b"ghost", b"child")
    assert repository.verify().problems == ()


# -- depth


def one_by_one(repository: PackRepository, history: History, line: Sequence[bytes]) -> None:
    for each in line:
        push(repository, history, [each], {MAIN: each})
        repository.repack_if_needed()


def test_pushes_one_by_one_never_get_deep(repository: PackRepository) -> None:
    history = History()
    line = history.line(MAX_STORED_DEPTH * 4)
    one_by_one(repository, history, line)
    snapshot = check_whole(repository, history)
    depths = [depth for pack in snapshot.packs for depth in pack.index.depths]
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
    key = history.key_at(line[MAX_STORED_DEPTH + 1], FILE)
    location = snapshot.first(0, key)
    assert location is not None
    # The base is the version 32 before it, as the k-ary rule says: every version until then had its predecessor.
    assert location.depth == MAX_STORED_DEPTH + 1 - 32 + 1 <= REBASED_DEPTH + 1
    assert location.lineage == MAX_STORED_DEPTH + 1
    stored = decode_segment(snapshot.segment(location.ordinal), 0, KINDS)
    sent = decode_segment(history.segment(line[MAX_STORED_DEPTH + 1]), 0, KINDS)
    assert [entry.key for entry in stored.entries] == [entry.key for entry in sent.entries]
    assert (stored.revision, stored.parents) == (sent.revision, sent.parents)
    after = snapshot.first(0, history.key_at(line[MAX_STORED_DEPTH + 2], FILE))
    assert after is not None
    assert after.depth == location.depth + 1


def test_encoded_anew_within_one_push_and_one_segment(
    repository: PackRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole chains in single segments: the records that follow in the segment rest on what was encoded anew."""
    monkeypatch.setattr("smartserver.store.arrivals.RecentRecords.put", lambda self, record: None)
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

    def plan(transaction: RepositoryTransaction) -> bytes:
        transaction.create(GIT, KINDS, SETTINGS)
        return b""

    repository.commit(request_id(), 0, "user", plan, sent)
    push(repository, history, [], {MAIN: tip})
    snapshot = check_whole(repository, history)
    assert max(snapshot.packs[0].index.depths) == MAX_STORED_DEPTH


def test_a_chain_over_the_limit_is_begun_anew(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "MAX_CHAIN", 8 << 10)
    line = history.line(20)
    one_by_one(repository, history, line)
    snapshot = check_whole(repository, history)
    assert max(chain for pack in snapshot.packs for chain in pack.index.chains) <= 8


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
    location = snapshot.first(0, history.key_at(child, "elsewhere"))
    assert location is not None
    assert (location.depth, location.lineage) == (0, MAX_STORED_DEPTH + 1)


def test_a_near_base_that_is_too_deep_leads_to_a_farther_one(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "REBASED_DEPTH", 5)
    line = history.line(MAX_STORED_DEPTH + 2)
    one_by_one(repository, history, line)
    location = check_whole(repository, history).first(0, history.key_at(line[-1], FILE))
    assert location is not None
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
    location = check_whole(repository, history).first(0, history.key_at(line[-1], "noise"))
    assert location is not None
    assert location.depth == 0
    assert location.frame_length == location.length == 8 * 256


# -- checked again


def test_a_body_that_is_unsound_on_the_new_root(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    slow = upload(repository, history.body(line[1:]), 1)
    repository.delete(request_id(), 0, "user")
    push(repository, history, [], {})
    with pytest.raises(MissingParents):
        slow.check_again(repository.begin(b"", "user"))
    assert len(left_in_quarantine(repository)) == 1
    slow.abandon()
    assert left_in_quarantine(repository) == []


def test_storage_that_fails_when_the_pack_is_begun(history: History) -> None:
    storage = MemoryTransport()
    (tip,) = history.line(1)
    push(PackRepository(storage), History(), [])
    faulty = FaultyTransport(storage, fail_at=3)  # The folder, its lock, the pack.
    repository = PackRepository(faulty)
    with pytest.raises(TransportFailed):
        upload(repository, history.body([tip]), 1)
    assert faulty.log[2].startswith("create")
    assert storage.list_directory(INCOMING) == []


def test_what_landed_meanwhile_is_cut_out(repository: PackRepository, history: History) -> None:
    line = history.line(6)
    push(repository, history, line[:1], {MAIN: line[0]})
    slow = upload(repository, history.body(line[1:]), 5)
    push(repository, history, line[1:4], {MAIN: line[3]})
    snapshot = repository.snapshot()
    assert slow.stale(snapshot)
    slow.check_again(repository.begin(b"", "user"))
    assert not slow.stale(snapshot)
    assert slow.entry is not None
    assert slow.entry.segments == 2
    assert len(left_in_quarantine(repository)) == 1
    slow.abandon()


def test_what_lands_beside_it_changes_nothing(repository: PackRepository, history: History) -> None:
    line = history.line(3)
    side = history.line(2, line[0], "side")
    push(repository, history, line[:1], {MAIN: line[0]})
    slow = upload(repository, history.body(line[1:]), 2)
    push(repository, history, side, {b"refs/heads/side": side[1]})
    assert not slow.stale(repository.snapshot())
    slow.abandon()


def test_a_record_that_landed_meanwhile_is_looked_at_again(repository: PackRepository, history: History) -> None:
    root = history.commit({"a": b"a"})
    push(repository, history, [root], {MAIN: root})
    left = history.commit({"a": b"a", "b": b"the same text"}, (root,))
    right = history.commit({"a": b"a", "c": b"the same text"}, (root,))
    slow = upload(repository, history.body([left]), 1)
    push(repository, history, [right], {MAIN: right})
    assert slow.stale(repository.snapshot())
    slow.abandon()


def test_another_incarnation_or_epoch_is_checked_again(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    slow = upload(repository, history.body(line[1:]), 1)
    assert not slow.stale(repository.snapshot())
    repository.delete(request_id(), 0, "user")
    assert slow.stale(None)
    push(repository, history, line[:1], {MAIN: line[0]})
    assert slow.stale(repository.snapshot())
    slow.abandon()


def test_nothing_new_is_never_stale(repository: PackRepository, history: History) -> None:
    line = history.line(2)
    push(repository, history, line[:1], {MAIN: line[0]})
    empty = upload(repository, history.body(line[:1]), 1)
    assert empty.entry is None
    push(repository, history, line[1:], {MAIN: line[1]})
    assert not empty.stale(repository.snapshot())
    empty.check_again(repository.begin(b"", "user"))
    empty.publish()
    empty.leave()
    assert len(repository.folder.list_directory(PACKS)) == 4


def test_abandoning_twice_is_harmless(repository: PackRepository, history: History) -> None:
    (tip,) = history.line(1)
    sent = upload(repository, history.body([tip]), 1)
    sent.abandon()
    sent.abandon()
    assert not repository.folder.exists("")

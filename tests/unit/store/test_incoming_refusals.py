"""store.incoming: what is refused, and by what name."""

from __future__ import annotations

import pytest
from builders import MAIN, History, check_whole, locate, push
from incoming_uploads import FILE, left_in_quarantine, raw, receive, refused, send
from twins import IN_PYTHON

from smartserver.errors import (
    CorruptRecord,
    LimitExceeded,
    MissingBase,
    MissingParents,
    MissingReference,
    NoSuchRepository,
    WrongParents,
)
from smartserver.records.delta import compress, decompress
from smartserver.records.limits import BYTES_OF_RECORD, BYTES_OF_SEGMENT
from smartserver.records.model import Parent
from smartserver.records.segment import encode_graph
from smartserver.records.varint import encode
from smartserver.store import incoming, parts
from smartserver.store.repository import PackRepository
from transports.errors import CodedError

pytestmark = pytest.mark.usefixtures("proving")


def test_no_repository_and_none_made(repository: PackRepository) -> None:
    with pytest.raises(NoSuchRepository):
        repository.receive(repository.begin())


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


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_text_that_is_not_what_its_key_says(
    repository: PackRepository, history: History, in_parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tip,) = history.line(1)
    blob = history.key_at(tip, FILE)
    length = len(history.objects[blob].text)
    wrong = raw(history, tip, frames_of={blob: compress(b"x" * length)[1]})
    whole = []

    def decoded(encoding: int, frame: bytes, size: int, base: bytes) -> bytes:
        whole.append(size)
        return decompress(encoding, frame, size, base)

    monkeypatch.setattr(incoming, "decompress", decoded)
    if in_parts:  # As a large one.
        monkeypatch.setattr(parts, "ALONE", 0)
    error = refused(repository, wrong)
    assert (length in whole) is not in_parts
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
    with pytest.raises(LimitExceeded) as raised:
        sent.write(encode(1 << 40))
    assert raised.value.what == BYTES_OF_SEGMENT


@IN_PYTHON
def test_a_record_over_the_limit_is_refused_by_its_length(
    repository: PackRepository, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    tip = history.commit({"film": b"x" * 5000})
    monkeypatch.setattr(incoming, "MAX_TAKEN", 4000)  # The segment is smaller: it is compressed.
    error = refused(repository, history.segment(tip))
    assert isinstance(error, LimitExceeded)
    assert (error.what, error.value, error.limit) == (BYTES_OF_RECORD, 5000, 4000)

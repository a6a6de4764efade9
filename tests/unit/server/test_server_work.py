"""server.work, server.context: what is kept of a body, what a read tells, and what decides behind a link."""

from __future__ import annotations

import pytest
from builders import MAIN, push
from calls import raising
from dialogs import PATH, Dialog, Served, message, numbered
from session_calls import BODY, INSERT, PULL, done, known, refused, set_ref

from smartserver.errors import CorruptFile, CorruptRecord, LimitExceeded
from smartserver.records.bulk import BulkWriter
from smartserver.records.segment import encode_graph
from smartserver.records.varint import Malformed
from smartserver.server.access import Anonymous, anonymous
from smartserver.server.context import RequestContext
from smartserver.server.header import RequestFailure, check_header
from smartserver.server.progress import RequestProgress
from smartserver.server.work import RequestWork
from smartserver.store.repository import PackRepository
from smartserver.store.state import State
from smartserver.wire.events import Body, End
from smartserver.wire.limits import BULK_ALLOWANCE, MAX_BULK_RATIO
from smartserver.wire.messages import Failure, KnownVersion, RequestFlag, raw


def test_knowledge_of_what_never_was_counts_as_none(dialog: Dialog, served: Served, line: list[bytes]) -> None:
    own = known(served).incarnation
    others = [(b"", 0), (b"x" * 16, 5), (b"y" * 5000, -3), (b"z", 1 << 62)]
    for incarnation, version in [*others, *[(own, version) for version in (-1, 0, 99, 1 << 62)]]:
        state = done(dialog.ask(message(PULL, known=KnownVersion(incarnation, version)))).state
        assert state is not None
        assert state.refs == {MAIN: raw([[line[3]]])}
        assert state.since is None or incarnation == own


# -- permissions


@pytest.fixture
def reader(served: Served) -> Dialog:
    return Dialog(served.site, anonymous(Anonymous.READ, local=True))


@pytest.mark.parametrize("flags", [BODY, BODY | RequestFlag.GRAPH_FIRST, BODY | RequestFlag.CHECK_ONLY])
def test_nothing_of_a_body_is_kept_for_who_may_not_write(
    reader: Dialog, served: Served, line: list[bytes], flags: RequestFlag
) -> None:
    before = served.files()
    number = reader.begin(message(INSERT, set_ref(line[5]), flags=flags))
    reader.send(Body(number, served.history.body(line[4:5], graph_first=bool(flags & ~BODY))))
    assert refused(reader.answer(number)).code == "access-denied"
    assert served.files() == before


def test_a_refusal_comes_without_the_state_where_that_cannot_be_read(
    dialog: Dialog, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(State, "changes_since", raising(CorruptFile("project/tables/x", 0, "it is damaged")))
    answer = dialog.ask(message(set_ref(line[1])))
    assert refused(answer).code == "diverged"
    assert isinstance(answer, Failure)
    assert answer.state is None


# -- upkeep


def receiving(served: Served, tip: bytes, flags: RequestFlag) -> RequestWork:
    header = check_header(message(INSERT, set_ref(tip), flags=RequestFlag.BODY | flags, request=numbered(7)))
    work = RequestWork(served.site, RequestProgress(served.site, lambda payload: None))
    user = anonymous(Anonymous.WRITE, local=True)
    work.running = RequestContext(served.site, user, header, lambda *_: None)
    return work


def test_an_announced_graph_is_judged_before_the_segments(served: Served, line: list[bytes]) -> None:
    other = served.history.line(1, None, "other")
    made = receiving(served, other[0], RequestFlag.GRAPH_FIRST)
    graph = encode_graph([served.history.announced(other[0])])
    made.take(graph[:-1])
    with pytest.raises(RequestFailure) as refused:
        made.take(graph[-1:])
    outcomes = [each.fault.code for each in refused.value.outcomes if each.fault is not None]
    assert outcomes == ["not-done", "diverged"]
    made.abandon()


def packed(*texts: bytes) -> bytes:
    writer = BulkWriter()
    return b"".join([writer.add(text) for text in texts]) + writer.finish()


def test_a_bulk_stream_must_be_whole(served: Served, line: list[bytes]) -> None:
    plain = served.history.body(line[4:6])
    body = packed(plain)
    for came in (b"", body[:-1], packed(served.history.body(line[4:6])[:-1])):
        made = receiving(served, line[5], RequestFlag.BULK)
        made.take(came)
        with pytest.raises((Malformed, CorruptRecord)):
            made.finish(2, len(came))
        made.abandon()
    for wrong in (body + b"x", plain, body[:30] + bytes([body[30] ^ 0x55]) + body[31:]):
        made = receiving(served, line[5], RequestFlag.BULK)
        with pytest.raises((Malformed, CorruptRecord)):  # noqa: PT012
            made.take(wrong)
            made.finish(2, len(wrong))
        made.abandon()
    for segments, size in ((2, len(plain)), (1, len(body))):
        made = receiving(served, line[5], RequestFlag.BULK)
        made.take(body)
        with pytest.raises(CorruptRecord, match="its end states"):
            made.finish(segments, size)
        made.abandon()


def test_little_that_says_much_is_refused(served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is kept: nothing of a stream is worth more than its bytes can be."""
    kept = 0

    def write(upload: object, content: bytes) -> None:
        nonlocal kept
        kept += len(content)

    monkeypatch.setattr("smartserver.store.upload.Upload.write", write)
    bomb = packed(*[bytes(1 << 20)] * 64)
    assert len(bomb) * 1000 < 64 << 20
    made = receiving(served, line[5], RequestFlag.BULK)
    with pytest.raises(LimitExceeded, match="that a bulk stream became"):
        made.take(bomb)
    assert kept <= (len(bomb) + BULK_ALLOWANCE) * MAX_BULK_RATIO
    made.abandon()


def test_a_stored_revision_may_come_but_once(served: Served, line: list[bytes]) -> None:
    """A stream that says one segment a million times is small; a list of them is not."""
    made = receiving(served, line[5], RequestFlag.BULK)
    with pytest.raises(CorruptRecord, match="twice"):
        made.take(packed(*[served.history.segment(line[2])] * 2))
    made.abandon()


ATOMIC = BODY | RequestFlag.ATOMIC | RequestFlag.GRAPH_FIRST


def seen(dialog: Dialog) -> KnownVersion:
    """The state that a client learns."""
    state = done(dialog.ask(message(PULL, request=numbered(9)))).state
    assert state is not None
    return KnownVersion(state.incarnation, state.version, state.mark)


def elsewhere(served: Served) -> PackRepository:
    """The repository as another process has it."""
    return PackRepository(served.transport, PATH)


def test_what_was_seen_refuses_nothing(served: Served, dialog: Dialog, line: list[bytes]) -> None:
    """It would be no fast-forward of what the client has seen, and is one of what is there."""
    (other,) = served.history.line(1, line[2], "other")
    served.site.tidies = False
    client = seen(dialog)
    push(elsewhere(served), served.history, [], {MAIN: line[2]})
    request = message(INSERT, set_ref(other), flags=ATOMIC, known=client)
    done(dialog.ask(request, served.history.body([other], graph_first=True), 1))
    assert served.refs() == {MAIN: other}


def test_a_body_on_its_way_refuses_nothing(served: Served, dialog: Dialog, line: list[bytes]) -> None:
    """It is no fast-forward of what was there when its body began, and is one of what is there when that is whole."""
    (other,) = served.history.line(1, line[2], "other")
    served.site.tidies = False
    body = served.history.body([other])
    number = dialog.begin(message(INSERT, set_ref(other), flags=BODY, known=seen(dialog)))
    dialog.send(Body(number, body[:-10]))
    push(elsewhere(served), served.history, [], {MAIN: line[2]})
    dialog.send(Body(number, body[-10:]))
    dialog.send(End(number, 1, len(body)))
    done(dialog.answer(number))
    assert served.refs() == {MAIN: other}


def test_what_was_seen_allows_nothing(served: Served, dialog: Dialog, line: list[bytes]) -> None:
    """It would be a fast-forward of what the client has seen, and is none of what is there: which he is told."""
    served.site.tidies = False
    client = seen(dialog)
    (other,) = served.history.line(1, line[3], "other")
    push(elsewhere(served), served.history, [other], {MAIN: other})
    request = message(INSERT, set_ref(line[5]), flags=ATOMIC, known=client)
    answer = dialog.ask(request, served.history.body(line[4:6], graph_first=True), 2)
    assert isinstance(answer, Failure)
    assert [each.fault and each.fault.code for each in answer.outcomes] == ["not-done", "diverged"]
    assert answer.state is not None
    assert answer.state.version == client.version + 1
    assert served.refs() == {MAIN: other}

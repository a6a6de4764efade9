"""client.push, repository, body: what a push sends first, and what it makes of each answer, by a script."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec
import pytest
from scripted import (
    LATE,
    MADE,
    MAIN,
    NEW,
    OLD,
    OTHER,
    TIP,
    TOPIC,
    Answering,
    Planned,
    ScriptedMedium,
    Server,
    Source,
    done,
    fault_of,
    remote,
    requests,
    saying,
    segment,
    state,
)

from smartserver.client import body as client_body
from smartserver.client.body import PIECE, EmptyBody, reported, sending
from smartserver.client.medium import CannotConnect
from smartserver.client.push import PushRequest
from smartserver.client.request import BodySource
from smartserver.client.updates import Outcome, RefUpdate
from smartserver.errors import (
    KnownRevisions,
    LimitExceeded,
    MissingRevision,
    NoSuchRepository,
    OutcomeUnknown,
    RepositoryExists,
    ServerBusy,
    StaleLease,
)
from smartserver.records.bulk import BulkDecoder, read_bulk
from smartserver.records.model import GraphNode, Key, Plan, RevisionId
from smartserver.records.segment import encode_graph
from smartserver.verbs.branch_delete import BranchDeleteResult
from smartserver.verbs.branch_set_last_revision import SetLastRevisionResult
from smartserver.verbs.map_update import (
    MapUpdateRequest,
)
from smartserver.verbs.repository_create import CreateResult
from smartserver.verbs.repository_insert_pack import InsertPackResult
from smartserver.verbs.repository_pull import PullResult
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import Event, GoAway, Reply, Request
from smartserver.wire.limits import BULK_BYTES, GRAPH_FIRST_THRESHOLD
from smartserver.wire.messages import Outcome as WireOutcome
from smartserver.wire.messages import Reply as ReplyMessage
from smartserver.wire.messages import RequestFlag, Status, encode, raw
from transports.errors import CodedError


def test_the_last_plan_announces_nothing_so_that_nobody_can_defeat_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may push some of the same without a pause."""
    monkeypatch.setattr(client_body, "GRAPH_FIRST_THRESHOLD", 0)
    known = (KnownRevisions([OTHER]), state(OLD))
    server = Server([saying(known, known, known, done(InsertPackResult(1), SetLastRevisionResult([OLD])))])
    (updated,) = remote(server, state(OLD)).push(PushRequest([RefUpdate(MAIN, TIP)], Source(), NEW)).refs
    assert updated.outcome is Outcome.DONE
    heard = [event for connection in server.connections for event in connection.heard]
    flags = [msgspec.msgpack.decode(event.payload)[4] for event in heard if isinstance(event, Request)]
    assert [bool(each & RequestFlag.GRAPH_FIRST) for each in flags] == [True, True, True, False]


def test_an_absent_ref_that_is_to_be_deleted_at_a_tip_is_not_settled() -> None:
    outcomes = [
        WireOutcome(Status.DONE, msgspec.Raw(msgspec.msgpack.encode(SetLastRevisionResult([TIP])))),
        WireOutcome(Status.REFUSED, fault=fault_of(StaleLease(TOPIC, OLD, b""))),
    ]
    server = Server([saying((KnownRevisions([TIP]), state(TIP)), encode(ReplyMessage(outcomes)))])
    updated = (
        remote(server)
        .push(PushRequest([RefUpdate(MAIN, TIP), RefUpdate(TOPIC, None, expected=OLD)], Source(), NEW))
        .refs
    )
    assert [each.outcome for each in updated] == [Outcome.UNCHANGED, Outcome.REFUSED]


def test_a_repository_that_must_be_new_is_not_pushed_to() -> None:
    new = msgspec.structs.replace(NEW, exclusive=True)
    for error in (RepositoryExists("project"), KnownRevisions([OLD])):
        server = Server([saying(error)])
        with pytest.raises(type(error)):
            remote(server).push(PushRequest([RefUpdate(MAIN, TIP)], Source(), new))
        assert len(requests(server)) == 1


def test_what_is_changed_is_said_anew_where_the_remote_is_another() -> None:
    server, source = Server([saying(NoSuchRepository("project"), MADE)]), Source()
    there = remote(server, state(TIP))

    def anew() -> tuple[list[RefUpdate], list[MapUpdateRequest]]:
        assert there.knowledge.refs() == {}, "it is known what there is"
        return [RefUpdate(TOPIC, TIP)], []

    pushed = there.push(PushRequest([RefUpdate(MAIN, TIP)], source, NEW, replan=anew))
    assert [each.update.ref for each in pushed.refs] == [TOPIC]


LONG = [b"%20d" % number for number in range(40)]


class LongSource(Source):
    """A history of which each part is long."""

    def plan(self, tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Planned:
        self.haves.append(list(haves))
        return Planned([each for each in LONG if each not in self.haves[-1]])


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> LongSource:
    monkeypatch.setattr(Planned, "segments", lambda plan: [bytes(GRAPH_FIRST_THRESHOLD)] * len(plan.revisions))
    return LongSource()


def test_what_is_there_is_asked_before_a_long_push_to_where_something_is_likely(long: LongSource) -> None:
    """Each of the newest ones is asked for, then some."""
    there = done(PullResult(common=bytes([0b1000])), state=state(OTHER))
    moved = done(InsertPackResult(1), SetLastRevisionResult([OTHER]))
    server = Server([saying(there, moved)])
    (pushed,) = remote(server).push(PushRequest([RefUpdate(MAIN, LONG[-1])], long, NEW, is_likely=True)).refs
    assert pushed.outcome is Outcome.DONE
    assert requests(server) == [["Repository.pull"], ["Repository.insert_pack", "Branch.set_last_revision"]]
    assert long.haves == [[], [OTHER, LONG[-4]]]


def test_nothing_is_asked_before_a_short_push_or_one_to_a_repository_that_is_known(long: LongSource) -> None:
    server = Server([saying(done(InsertPackResult(1), SetLastRevisionResult([OLD])))])
    remote(server, state(OLD)).push(PushRequest([RefUpdate(MAIN, LONG[-1])], long, NEW, is_likely=True))
    short = Server([saying(done(CreateResult(True), SetLastRevisionResult([])))])
    remote(short).push(PushRequest([RefUpdate(MAIN, None)], EmptyBody(), NEW, is_likely=True))
    assert ["Repository.pull"] not in [*requests(server), *requests(short)]


@pytest.mark.parametrize(
    ("what", "bulk", "sent"), [(BULK_BYTES, True, 2), (BULK_BYTES, False, 1), ("records of one pack", True, 1)]
)
def test_only_a_stream_that_becomes_too_long_is_sent_again_as_it_lies(
    what: str, bulk: bool, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Planned, "segments", lambda plan: [bytes(1000)] * len(plan.revisions))
    moved = done(InsertPackResult(1), SetLastRevisionResult([OLD]))
    server, source = Server([saying(LimitExceeded(what, 3, 2), moved)]), Source()
    there = remote(server, state(OLD))
    if sent == 1:
        with pytest.raises(LimitExceeded):
            there.push(PushRequest([RefUpdate(MAIN, TIP)], source, NEW, bulk=bulk))
    else:
        (updated,) = there.push(PushRequest([RefUpdate(MAIN, TIP)], source, NEW, bulk=bulk)).refs
        assert updated.outcome is Outcome.DONE
    assert len(requests(server)) == sent


def half_done() -> bytes:
    """A reply to a deletion and two moves: the first is done, for the others something is missing."""
    outcomes = [
        WireOutcome(Status.DONE, msgspec.Raw(msgspec.msgpack.encode(BranchDeleteResult([OLD])))),
        *[WireOutcome(Status.REFUSED, fault=fault_of(MissingRevision(TIP)))] * 2,
    ]
    return encode(ReplyMessage(outcomes, state(OTHER, 7)))


def dying(medium: ScriptedMedium, event: Event) -> None:
    if isinstance(event, Request):
        medium.break_off()


@pytest.mark.parametrize(
    ("then", "error"),
    [
        (saying(ServerBusy("connections", 7)), MissingRevision),
        (CannotConnect("h", "Connection refused"), MissingRevision),
        (dying, OutcomeUnknown),
    ],
    ids=["refused", "gone", "lost"],
)
def test_what_was_done_is_told_though_the_rest_fails(then: Answering | Exception, error: type[CodedError]) -> None:
    """The repository was made anew: what is missing there goes in a second request, which may fail as any other."""

    def first(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.say(GoAway(b"restarting"), Reply(event.id, half_done()))

    server = Server([first, then])
    updates = [RefUpdate(TOPIC, None), RefUpdate(MAIN, TIP), RefUpdate(LATE, TIP)]
    deleted, *moved = remote(server, state(TIP)).push(PushRequest(updates, Source(), NEW)).refs
    assert (deleted.outcome, deleted.old) == (Outcome.DONE, OLD)
    assert [each.outcome for each in moved] == [Outcome.REFUSED] * 2
    assert [type(each.error) for each in moved] == [error] * 2
    assert server.tried > 1


def test_a_push_whose_answer_has_refs_that_are_none_says_that_it_is_unknown() -> None:
    """A question whether it could be made is not: that changed nothing."""

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            said = state(OTHER)
            said.refs[MAIN] = raw([[3]])
            medium.say(Reply(event.id, done(BranchDeleteResult([OLD]), state=said)))

    for check_only, error in ((False, OutcomeUnknown), (True, RemoteProtocolError)):
        there = remote(Server([answering]), state(OLD))
        with pytest.raises(error, match="expected tips of"):
            there.push(PushRequest([RefUpdate(MAIN, None)], Source(), check_only=check_only))


GRAPH = [GraphNode(b"%020d" % number, ()) for number in range(3)]
NOISE = random.Random(0)

LITTLE = 80 * 1024
"""Bytes: 64 KiB and what is read at once; zstd by itself holds back 128 KiB."""


class Made:
    """A plan of given segments, which counts how often they were made."""

    def __init__(self, segments: Sequence[bytes]) -> None:
        self.graph: Sequence[GraphNode] = GRAPH
        self.made = 0
        self._segments = segments

    def segments(self) -> Iterable[bytes]:
        """One after the other."""
        self.made += 1
        yield from self._segments

    def without_bases(self, keys: Collection[Key]) -> Plan:
        """Nothing here has a base."""
        raise AssertionError(keys)


def said(body: BodySource) -> bytes:
    return b"".join(piece for piece, _ in body())


SMALL = [segment(content) for content in (b"one and one and one and one " * 20, b"two", b"three")]
LARGE = [
    segment(content)
    for content in (NOISE.randbytes(GRAPH_FIRST_THRESHOLD - 4), b"over" * 100, NOISE.randbytes(3 * PIECE + 5), b"end")
]


def test_the_graph_comes_before_a_large_one_and_no_piece_is_longer_than_a_look_for_a_refusal_allows() -> None:
    plan = Made(LARGE)
    flags, body = sending(plan, bulk=False)
    assert flags == RequestFlag.GRAPH_FIRST
    pieces = list(body())
    assert b"".join(piece for piece, _ in pieces) == encode_graph(GRAPH) + b"".join(LARGE)
    assert pieces[0] == (encode_graph(GRAPH), 0)
    assert max(len(piece) for piece, _ in pieces) <= PIECE
    assert sum(ended for _, ended in pieces) == len(LARGE)
    assert plan.made == 1
    assert list(body()) == pieces


@pytest.mark.parametrize("bulk", [False, True])
def test_a_large_one_need_not_announce_its_graph(bulk: bool) -> None:
    flags, body = sending(Made(LARGE), bulk=bulk, announced=False)
    assert flags == (RequestFlag.BULK if bulk else RequestFlag.NONE)
    segments = b"".join(read_bulk([said(body)])) if bulk else said(body)
    assert segments == b"".join(LARGE)
    assert sum(ended for _, ended in body()) == len(LARGE)


def test_a_bulk_stream_holds_little_back() -> None:
    """The bytes made before are at the server while the next segment is made."""
    segments = [NOISE.randbytes(PIECE // 8) for _ in range(80)]
    made = 0

    def counted() -> Iterator[bytes]:
        nonlocal made
        for each in segments:
            yield each
            made += len(each)

    plan = Made(segments)
    plan.segments = counted  # type: ignore[method-assign]
    _, body = sending(plan, bulk=True)
    decoder = BulkDecoder()
    came = -len(encode_graph(GRAPH))
    for piece, _ in body():
        came += sum(map(len, decoder.feed(piece)))
        assert made - came <= LITTLE
    assert came == sum(map(len, segments))


@pytest.mark.parametrize("bulk", [False, True])
def test_bytes_are_reported_within_a_large_segment(bulk: bool) -> None:
    """They are reported as they are sent, however few the revisions are; all of them at the end alone."""
    plan = Made([segment(NOISE.randbytes(GRAPH_FIRST_THRESHOLD + 8 * PIECE)), *SMALL[1:]])
    told: list[tuple[int, int, int]] = []
    _, body = sending(plan, bulk=bulk)
    body = reported(body, 3, lambda *sent: told.append(sent))
    for _ in range(2):  # It may be sent again.
        told.clear()
        sizes = [0]
        for piece, _ in body():
            assert len(told) == len(sizes) - 1
            sizes.append(sizes[-1] + len(piece))
        assert len(told) > 8
        assert [size for size, _, _ in told[:-1]] == sizes[1 : len(told)]
        assert {done for _, done, _ in told[:8]} == {0}
        assert told[-1] == (sizes[-1], 3, 3)
        assert [done for _, done, _ in told].count(3) == 1

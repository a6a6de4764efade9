"""server.session: whatever a client sends, in whatever order and however cut, the server answers by the grammar and by
its errors; nothing is internal, and what was not asked for does not change."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec
import pytest
from builders import MAIN, History
from dialogs import CREATE, Dialog, Served, SteppedExecutor, message, numbered
from hypothesis import given, settings
from hypothesis import strategies as st

from smartserver.errors import error_from_wire
from smartserver.records.segment import encode_graph
from smartserver.server.access import Anonymous, anonymous
from smartserver.verbs.all import every_verb
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.repository_create import repository_create
from smartserver.verbs.repository_insert_pack import InsertPackRequest, repository_insert_pack
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.verbs.rules import Create, Rule
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.errors import LocalProtocolError
from smartserver.wire.events import Body, Cancel, End, Ping, Request
from smartserver.wire.frames import PREFACE
from smartserver.wire.messages import Call, Failure, KnownVersion, RequestFlag, named
from smartserver.wire.messages import Request as RequestMessage

HISTORY = History()
LINE = HISTORY.line(6)
SIDE = HISTORY.line(2, LINE[1], "side")
NAMES = [verb.name for verb in every_verb()]
REFS = (MAIN, b"refs/heads/topic", b"x", b".", b"", b"n" * 1025, b"\0")
IDS = (*LINE, *SIDE, b"n" * 20, b"")


def served() -> Served:
    made = Served(history=HISTORY)
    made.push(LINE[:4], {MAIN: LINE[3]})
    return made


class Strict(logging.Handler):
    """Fails a test in which the server met a bug of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            raise AssertionError(record.getMessage()) from (record.exc_info[1] if record.exc_info else None)


@pytest.fixture(autouse=True)
def _no_internal_errors() -> object:
    strict = Strict()
    logging.getLogger("smartserver").addHandler(strict)
    yield
    logging.getLogger("smartserver").removeHandler(strict)


# -- requests of any content

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.sampled_from(IDS)
    | st.binary(max_size=24)
    | st.text(max_size=8)
    | st.sampled_from([each.value for each in (*Rule, *Create)]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.binary(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
raw = values.map(lambda value: msgspec.Raw(msgspec.msgpack.encode(value)))

likely = st.one_of(
    st.tuples(
        st.sampled_from(REFS),
        st.sampled_from(IDS),
        st.sampled_from([each.value for each in Rule]),
        st.sampled_from([each.value for each in Create]),
        st.sampled_from(IDS),
        st.binary(max_size=3),
    ),
    st.tuples(
        st.sampled_from(["refs", "history"]),
        st.lists(st.sampled_from(IDS[:-1]), max_size=3),
        st.none() | st.lists(st.sampled_from([MAIN, b"refs/", b"*", b"HEAD", b"r*"]), max_size=3),
        st.lists(st.sampled_from(IDS[:-1]), max_size=2),
        st.lists(st.sampled_from(IDS[:-1]), max_size=2),
        st.none() | st.sampled_from(IDS[:-1]),
        st.lists(st.sampled_from([b"refs/", b"*", MAIN]), max_size=2),
    ),
    st.tuples(
        st.sampled_from(["tags", "notes", "a\0b"]),
        st.sampled_from(["ids", "opaque"]),
        st.lists(
            st.tuples(
                st.sampled_from([b"a", b"", b"\0"]),
                st.none() | st.sampled_from(IDS),
                st.sampled_from(["add", "equal", "set"]),
                st.none() | st.sampled_from(IDS),
            ),
            max_size=3,
        ),
        st.none() | st.sampled_from(REFS),
        st.booleans(),
    ),
    st.just(msgspec.msgpack.decode(msgspec.msgpack.encode(CREATE))),
    st.just([]),
)
arguments = st.one_of(likely, likely.flatmap(lambda whole: st.integers(0, len(whole)).map(lambda n: whole[:n])), values)
calls = st.builds(
    lambda name, given: Call(name, msgspec.Raw(msgspec.msgpack.encode(given))),
    st.sampled_from(NAMES) | st.text(max_size=5),
    arguments,
)
requests = st.builds(
    RequestMessage,
    st.sampled_from(["project", "", "project/below", "project/refs/heads/main/.file", "new", "a/../b", "packs"])
    | st.text(max_size=6),
    st.just(numbered(5)) | st.binary(max_size=17),
    st.sampled_from([0, 1, 1000, 10**15, -5]),
    st.lists(calls, max_size=4),
    st.integers(0, 31) | st.integers(-(2**31), 2**31),
    st.none() | st.builds(KnownVersion, st.binary(max_size=16), st.integers(-(2**31), 2**62)),
    st.dictionaries(st.text(max_size=4), raw, max_size=2),
)
bodies = st.one_of(
    st.binary(max_size=40),
    st.just(HISTORY.body(LINE[4:6])),
    st.just(HISTORY.body(SIDE)),
    st.just(HISTORY.body(LINE[4:6], graph_first=True)),
    st.just(encode_graph([HISTORY.announced(each) for each in LINE])),
    st.just(HISTORY.body(LINE[5:6])),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A body with some of its bytes changed, dropped or doubled."""
    body = bytearray(draw(bodies))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(0, len(body) - 1)))
        match draw(st.sampled_from(["change", "drop", "double", "cut"])):
            case "change" if body:
                body[at] = draw(st.integers(0, 255))
            case "drop":
                del body[at : at + draw(st.integers(1, 30))]
            case "double":
                body[at:at] = body[at : at + draw(st.integers(1, 30))]
            case _:
                del body[at:]
    return bytes(body)


@given(st.lists(st.tuples(requests, damaged(), st.integers(0, 4)), min_size=1, max_size=3))
@settings(max_examples=75)
def test_any_request_is_answered(asked: Sequence[tuple[RequestMessage, bytes, int]]) -> None:
    server = served()
    dialog = Dialog(server.site)
    for request, body, segments in asked:
        answer = dialog.ask(request, body, segments)
        if isinstance(answer, Failure):
            assert answer.fault.code != "internal"
            error_from_wire(answer.fault.code, named(answer.fault))
        else:
            assert len(answer.outcomes) == len(request.calls)
        assert dialog.session.idle
    assert not dialog.closed
    assert server.repository().verify().problems == ()
    assert not [path for path in server.files() if path.startswith("project/incoming/")]


@given(requests, damaged())
@settings(max_examples=50)
def test_who_may_only_read_changes_nothing(request: RequestMessage, body: bytes) -> None:
    server = served()
    before = server.files(), server.refs()
    Dialog(server.site, anonymous(Anonymous.READ, local=True)).ask(request, body, 1)
    assert (server.files(), server.refs()) == before


@given(st.binary(max_size=300))
@settings(max_examples=50)
def test_any_payload_is_answered(payload: bytes) -> None:
    dialog = Dialog(served().site)
    dialog.send(Request(1, payload))
    assert isinstance(dialog.answer(1), Failure)


@given(st.binary(max_size=200), st.booleans(), st.lists(st.integers(1, 50), max_size=5))
@settings(max_examples=50)
def test_any_bytes_leave_the_connection_or_close_it(data: bytes, opened: bool, cuts: list[int]) -> None:
    dialog = Dialog(served().site)
    rest = (PREFACE if opened else b"") + data
    for cut in [*cuts, len(rest)]:
        dialog.session.data_received(rest[:cut])
        rest = rest[cut:]
    dialog.session.eof_received()
    assert dialog.closed


# -- dialogs in any order

PULL = (repository_pull, PullRequest())
PUSH = (
    (repository_create, CREATE),
    (repository_insert_pack, InsertPackRequest()),
    (branch_set_last_revision, SetLastRevisionRequest(MAIN, LINE[5])),
)
BODY = HISTORY.body(LINE[4:6])

steps = st.lists(
    st.sampled_from(
        ["ping", "pull", "read", "push", "body", "end", "cancel", "work", "work", "pause", "resume", "PING"]
    ),
    min_size=1,
    max_size=30,
)


@given(steps, st.randoms(use_true_random=False))
@settings(max_examples=75)
def test_requests_in_any_order_get_their_answers(moves: list[str], chance: object) -> None:
    """Uploads, pulls and small requests, cancelled at any moment, the store's work done at any other."""
    server = served()
    stepped = SteppedExecutor()
    dialog = Dialog(server.site, executor=stepped)
    started: list[int] = []
    sent: dict[int, int] = {}
    ended: set[int] = set()

    def upload() -> int | None:
        open_ones = [number for number in sent if number not in ended]
        return open_ones[-1] if open_ones else None

    for move in moves:
        number = upload()
        match move:
            case "ping" | "pull" | "read":
                call = (server_ping, PingRequest()) if move == "ping" else PULL
                started.append(dialog.begin(message(call, path="" if move == "ping" else "project")))
            case "push" if number is None:
                begun = dialog.begin(message(*PUSH, request=numbered(100 + len(started)), flags=RequestFlag.BODY))
                started.append(begun)
                sent[begun] = 0
            case "body" if number is not None:
                piece = BODY[sent[number] : sent[number] + 200]
                dialog.send(Body(number, piece)) if piece else None
                sent[number] += len(piece)
            case "end" if number is not None:
                whole = sent[number] == len(BODY)
                dialog.send(End(number, 2 if whole else 0, sent[number]))
                ended.add(number)
            case "cancel" if started:
                target = started[chance.randrange(len(started))]  # type: ignore[attr-defined]
                try:
                    dialog.send(Cancel(target))
                except LocalProtocolError:
                    continue  # It has its answer, or was cancelled before.
                ended.add(target)
            case "work" if stepped.waiting:
                stepped.step()
            case "pause":
                dialog.session.pause_writing()
            case "resume":
                dialog.session.resume_writing()
            case "PING":
                dialog.send(Ping(b"?"))
    number = upload()
    if number is not None:
        dialog.send(Cancel(number))
    stepped.run_all()
    dialog.session.resume_writing()
    stepped.run_all()
    for each in started:
        answer = dialog.answer(each)
        assert answer is not None
        if isinstance(answer, Failure):
            assert answer.fault.code in ("cancelled", "corrupt-record", "missing-revision", "refused")
    assert dialog.session.idle
    assert server.refs()[MAIN] in (LINE[3], LINE[5])
    assert server.repository().verify().problems == ()
    dialog.session.eof_received()
    assert dialog.closed

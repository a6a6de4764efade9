"""server.session, server.request: the requests of one connection, one by one and several at once."""

from __future__ import annotations

import gc
import weakref

import msgspec
import pytest
from builders import MAIN
from calls import calls_of
from dialogs import Dialog, Served, SteppedExecutor, message, numbered
from session_calls import INSERT, PING, PULL, code, set_ref

from smartserver.errors import Banned
from smartserver.server import progress, request, session
from smartserver.server.work import RequestWork
from smartserver.store.stored_records import HEADER
from smartserver.store.upload import Upload
from smartserver.verbs.branch_set_last_revision import SetLastRevisionRequest, branch_set_last_revision
from smartserver.verbs.declare import AnyVerb, Arguments, Calls
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.verbs.repository_verify import VerifyRequest, repository_verify
from smartserver.wire.events import (
    Body,
    Cancel,
    End,
    Error,
    Request,
)
from smartserver.wire.limits import MAX_FRAME, MAX_REQUEST
from smartserver.wire.messages import Failure, RequestFlag, encode, named
from smartserver.wire.messages import Request as RequestMessage


def test_what_a_request_held_is_gone_with_its_answer(
    dialog: Dialog, served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when Python's collector looks for it, which keeps others waiting."""
    works = calls_of(monkeypatch, RequestWork, "__init__", lambda work, *_: weakref.ref(work))
    gc.disable()
    try:
        dialog.ask(message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY), served.history.body(line[4:6]), 2)
        dialog.ended(dialog.begin(message((repository_pull, PullRequest(haves=[line[1]])))))
        assert [work() for work in works] == [None, None]
    finally:
        gc.enable()


def test_a_request_over_the_limit_is_refused_when_it_is_over(
    dialog: Dialog, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "MAX_REQUEST", 2 * MAX_FRAME)
    assert not dialog.send(Request(1, bytes(2 * MAX_FRAME), more=True))
    assert not dialog.send(Request(1, bytes(MAX_FRAME), more=True))
    (error,) = dialog.send(Request(1, b"end"))
    assert isinstance(error, Error)
    failure = dialog.answer(1)
    assert isinstance(failure, Failure)
    assert failure.fault.code == "limit-exceeded"
    assert named(failure.fault)["value"] == 3 * MAX_FRAME + 3
    assert dialog.session.idle
    assert MAX_REQUEST == 8 << 20


@pytest.mark.parametrize("in_frame", [True, False])
def test_the_frame_and_the_flag_must_agree_on_a_body(dialog: Dialog, in_frame: bool) -> None:
    flags = RequestFlag.NONE if in_frame else RequestFlag.BODY
    calls = [PING] if in_frame else [INSERT]
    dialog.send(Request(1, encode(message(*calls, flags=flags)), body=in_frame))
    assert code(dialog.answer(1)) == "unsupported"


@pytest.mark.parametrize(("room", "writes"), [(0, 3), (1 << 20, 1)])
def test_a_short_answer_is_one_write(served: Served, monkeypatch: pytest.MonkeyPatch, room: int, writes: int) -> None:
    monkeypatch.setattr(session, "INITIAL_WINDOW", room)
    dialog = Dialog(served.site)
    written: list[bytes] = []
    monkeypatch.setattr(dialog, "write", written.append)
    dialog.begin(message(PULL))
    assert len(written) == writes


def test_reading_pauses_while_much_of_an_upload_is_unchecked(
    served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = served.history.segment(line[4])
    monkeypatch.setattr(session, "BACKLOG_HIGH", len(segment) - 20)
    monkeypatch.setattr(session, "BACKLOG_LOW", 30)
    stepped = SteppedExecutor()
    dialog = Dialog(served.site, executor=stepped)
    number = dialog.begin(message(INSERT, set_ref(line[4]), flags=RequestFlag.BODY))
    for at in range(0, len(segment), 10):
        dialog.send(Body(number, segment[at : at + 10]))
    assert dialog.paused == [True]
    dialog.send(End(number, 1, len(segment)))
    stepped.run_all()
    assert dialog.paused == [True, False]
    assert code(dialog.answer(number)) == "ok"


def padded(*calls: tuple[AnyVerb, Arguments], flags: RequestFlag = RequestFlag.NONE) -> RequestMessage:
    """A request of 100 KB."""
    note = msgspec.Raw(msgspec.msgpack.encode("x" * 100_000))
    return msgspec.structs.replace(message(*calls, flags=flags), extras={"note": note})


@pytest.mark.parametrize("large", [True, False])
def test_reading_pauses_while_requests_wait(served: Served, monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    """It pauses for their decoding and for their answers; only what is counted keeps them from filling memory."""
    monkeypatch.setattr(session, "BACKLOG_HIGH", 350_000)
    monkeypatch.setattr(session, "BACKLOG_LOW", 150_000)
    monkeypatch.setattr(session, "INITIAL_WINDOW", 0)
    monkeypatch.setattr(request, "LARGE_REQUEST", 0 if large else 1 << 20)
    stepped = SteppedExecutor()
    dialog = Dialog(served.site, executor=stepped)
    numbers = [dialog.begin(padded(PULL if number == 2 else PING)) for number in range(3)]
    assert dialog.paused == []
    numbers.append(dialog.begin(padded(PING)))
    assert dialog.paused == [True]
    assert dialog.session.pinging
    assert not dialog.session.awaiting
    dialog.session.pause_writing()  # That a body is not taken keeps nothing from being read.
    stepped.run_all()
    assert dialog.paused == [True, False]
    assert not dialog.session.pinging
    assert all(code(dialog.answer(number)) == "ok" for number in numbers)
    assert dialog.session._backlog == 0


def test_a_request_keeps_its_own_body_from_being_read_no_longer_than_to_be_decoded(
    served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "BACKLOG_HIGH", 50_000)
    stepped = SteppedExecutor()
    dialog = Dialog(served.site, executor=stepped)
    number = dialog.begin(padded(INSERT, set_ref(line[5]), flags=RequestFlag.BODY))
    assert dialog.paused == [True]
    stepped.run_all()
    assert dialog.paused == [True, False]
    body = served.history.body(line[4:6])
    dialog.send(Body(number, body), End(number, 2, len(body)))
    stepped.run_all()
    assert code(dialog.answer(number)) == "ok"


def test_a_bug_in_a_step_holds_no_bytes_and_leaves_no_upload(
    dialog: Dialog, served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = served.files()
    number = dialog.begin(message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY))
    body = served.history.body(line[4:6])
    dialog.send(Body(number, body[:-10]))
    assert served.files() != before
    monkeypatch.setattr(Upload, "write", lambda *_: 1 / 0)
    dialog.send(Body(number, body[-10:]))
    assert code(dialog.answer(number)) == "internal"
    assert dialog.session._backlog == 0
    assert served.files() == before
    dialog.send(Cancel(number))
    assert dialog.session.idle


@pytest.mark.parametrize("gone", [False, True])
def test_a_verification_ends_with_the_wish_for_it(served: Served, monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    """Cancelled, or its client gone, in the middle of it; and while it waited for its turn."""
    monkeypatch.setattr("smartserver.store.verify.CHUNK", 64)
    stepped = SteppedExecutor()
    dialog = Dialog(served.site, executor=stepped)

    def cancel() -> None:
        if gone:
            dialog.session.connection_lost()
        elif dialog.answer(1) is None:
            dialog.send(Cancel(1))

    told: list[int] = []

    def told_and_cancelled(made: progress.RequestProgress, phase: str, done: int, total: int) -> None:
        told.append(done)
        cancel()

    monkeypatch.setattr(progress.RequestProgress, "tell", told_and_cancelled)
    number = dialog.begin(message((repository_verify, VerifyRequest())))
    stepped.run_all()
    assert len(told) == 1
    assert gone or code(dialog.answer(number)) == "cancelled"

    other = Dialog(served.site, executor=stepped)
    number = other.begin(message((repository_verify, VerifyRequest())))
    other.send(Cancel(number))
    assert code(other.answer(number)) == "cancelled"
    stepped.run_all()
    assert len(told) == 1
    assert len(other.heard) == 1
    assert other.session.idle


# -- large requests


def large(line: list[bytes], calls: int = 2000) -> list[tuple[AnyVerb, Arguments]]:
    """Many calls, that the request is decoded apart."""
    made = [set_ref(line[5])] * calls
    assert len(encode(message(*made))) >= request.LARGE_REQUEST
    return made


def test_a_large_request_is_decoded_apart_and_in_order(served: Served, line: list[bytes]) -> None:
    stepped = SteppedExecutor()
    dialog = Dialog(served.site, executor=stepped)
    body = served.history.body(line[4:6])
    number = dialog.begin(message(INSERT, *large(line), flags=RequestFlag.BODY))
    dialog.send(Body(number, body[:50]), Body(number, body[50:]), End(number, 2, len(body)))
    assert len(stepped.waiting) == 1  # The decoding; what came after it waits for that.
    stepped.run_all()
    assert code(dialog.answer(number)) == "ok"
    assert served.refs() == {MAIN: line[5]}


def test_a_large_request_that_is_none_is_refused(served: Served, line: list[bytes]) -> None:
    stepped = SteppedExecutor()
    dialog = Dialog(served.site, executor=stepped)
    dialog.send(Request(1, b"\xc1" * request.LARGE_REQUEST, body=True), Body(1, b"x"))
    stepped.run_all()
    assert code(dialog.answer(1)) == "unsupported"
    dialog.send(End(1, 1, 1))
    assert dialog.session.idle


@pytest.mark.parametrize("ended", [False, True])
def test_a_large_request_cancelled_while_it_is_decoded(served: Served, line: list[bytes], ended: bool) -> None:
    stepped = SteppedExecutor()
    dialog = Dialog(served.site, executor=stepped)
    before = served.files()
    body = served.history.body(line[4:6])
    number = dialog.begin(message(INSERT, *large(line), flags=RequestFlag.BODY))
    dialog.send(Body(number, body), *([End(number, 2, len(body))] if ended else []), Cancel(number))
    assert code(dialog.answer(number)) == "cancelled"
    stepped.run_all()
    assert served.files() == before
    assert len(dialog.heard) == 1


# -- counters


def test_the_reply_says_what_was_asked_of_the_store(served: Served, line: list[bytes]) -> None:
    """Counted by hand. The repository is open: its format, packs and graph are not read again."""
    dialog = Dialog(served.site)
    dialog.ask(message(PULL))
    newest = record_size(served)

    read = dialog.ask(message((repository_pull, PullRequest(haves=[line[3]])))).counters
    # The newest record, as there is none after it.
    assert (read.files_opened, read.reads, read.bytes_read) == (1, 1, newest)
    assert (read.bytes_written, read.syncs) == (0, 0)

    wrote = dialog.ask(message((branch_set_last_revision, SetLastRevisionRequest(b"refs/heads/x", line[1])))).counters
    # The newest record as the request is read, and once another follows; that one, once it is there.
    # Between, the header of the tip's own record, once: it must be a commit. The record is synced, and its folder.
    own = record_size(served)
    header = wrote.bytes_read - 2 * newest - own
    assert (wrote.files_opened, wrote.reads) == (4, 4)
    assert 0 < header <= HEADER
    assert (wrote.bytes_written, wrote.syncs) == (own, 2)


def record_size(served: Served) -> int:
    """Bytes of the newest record."""
    return len(served.transport.get(f"project/log/{max(served.transport.list_directory('project/log'))}"))


def test_cancel_after_the_end_gets_the_final_answer(served: Served, line: list[bytes]) -> None:
    """Which is `cancelled` while the change is not made yet, and what became of it afterwards."""
    stepped = SteppedExecutor()
    dialog = Dialog(served.site, executor=stepped)
    body = served.history.body(line[4:6])

    first = dialog.begin(message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY))
    dialog.send(Body(first, body), End(first, 2, len(body)), Cancel(first))
    stepped.run_all()
    assert code(dialog.answer(first)) == "cancelled"
    assert served.refs() == {MAIN: line[3]}

    second = dialog.begin(message(INSERT, set_ref(line[5]), request=numbered(2), flags=RequestFlag.BODY))
    dialog.send(Body(second, body), End(second, 2, len(body)))
    stepped.run_all()
    assert code(dialog.answer(second)) == "ok"
    # The client had not read it when it cancelled: the two crossed, and nothing more is said.
    late = Cancel(second)
    dialog.session.data_received(bytes.fromhex("0000000007") + second.to_bytes(4, "big"))
    stepped.run_all()
    assert late.id == second
    assert len(dialog.heard) == 2
    assert served.refs() == {MAIN: line[5]}


def test_cancel_in_the_commit_changes_nothing_more(
    served: Served, line: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled between the end of the body and the plan under the lock."""
    dialog = Dialog(served.site)
    finish = RequestWork._commit

    def cancelled(work: RequestWork, *arguments: object) -> object:
        assert work.running is not None
        work.running.allowance.cancelled = True
        return finish(work, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RequestWork, "_commit", cancelled)
    request = message(INSERT, set_ref(line[5]), flags=RequestFlag.BODY)
    before = served.files()
    assert code(dialog.ask(request, served.history.body(line[4:6]), 2)) == "cancelled"
    assert served.files() == before


def test_a_request_cancelled_before_it_is_whole_is_answered(dialog: Dialog) -> None:
    dialog.send(Request(1, bytes(MAX_FRAME), more=True))
    (error,) = dialog.send(Cancel(1))
    assert isinstance(error, Error)
    assert code(dialog.answer(1)) == "cancelled"
    assert dialog.session.idle


def test_a_banned_call_is_refused_and_nothing_of_its_request_is_done(dialog: Dialog, served: Served) -> None:
    before = served.files()
    asked: list[tuple[str, list[str]]] = []

    def banned(path: str, calls: Calls) -> Banned | None:
        asked.append((path, [verb.name for verb, _ in calls]))
        return Banned("Branch.set_last_revision", "rpc:Branch.*") if len(calls) > 1 else None

    served.site.banned = banned
    tip = served.refs()[MAIN]
    number = dialog.begin(message(PING, set_ref(tip)))
    failure = dialog.answer(number)
    assert code(failure) == "banned"
    number = dialog.begin(message(INSERT, set_ref(tip), flags=RequestFlag.BODY))
    assert code(dialog.answer(number)) == "banned"
    assert dialog.send(Body(number, b"more"), End(number, 1, 4)) == []
    assert code(dialog.ask(message(PING, path=""))) == "ok"
    assert served.files() == before
    assert asked == [
        ("project", ["Server.ping", "Branch.set_last_revision"]),
        ("project", ["Repository.insert_pack", "Branch.set_last_revision"]),
        ("", ["Server.ping"]),
    ]

"""server.vfs: requests of file-level calls, done in order; their bodies; what is refused before anything is done."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from dialogs import CREATE, Dialog, Lanes, Served, message, numbered

from smartserver.errors import Cancelled
from smartserver.server import header as headers
from smartserver.server.access import Anonymous, FixedAccess, anonymous, invoking_user
from smartserver.server.context import RequestContext
from smartserver.server.executor import Lane
from smartserver.server.vfs import HELD, Contents, RequestFiles, VfsWork
from smartserver.verbs import vfs
from smartserver.verbs.declare import VERBS, AnyVerb, Arguments, Context, Permission
from smartserver.verbs.repository_create import repository_create
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.verbs.vfs import (
    MAX_CONTENT,
    BringRequest,
    GetResult,
    LookRequest,
    PathRequest,
    RangeField,
    ReadvRequest,
    ReadvResult,
    RenameRequest,
)
from smartserver.wire.events import Body, Cancel, End, Error, Reply
from smartserver.wire.limits import MAX_FILE_CALLS
from smartserver.wire.messages import Failure, RequestFlag, Status, named
from smartserver.wire.messages import Reply as ReplyMessage
from transports.base import ReadFile
from transports.errors import TransportFailed
from transports.memory import MemoryTransport

LARGE = bytes(range(256)) * 1000
AnyCall = tuple[AnyVerb, Arguments]


@pytest.fixture
def served() -> Served:
    served = Served()
    served.site.allows_vfs = True
    served.transport.make_directory("files")
    served.transport.put("files/small", [b"small"])
    served.transport.put("files/large", [LARGE])
    return served


@pytest.fixture
def dialog(served: Served) -> Dialog:
    return Dialog(served.site)


def ask(dialog: Dialog, *calls: AnyCall, body: bytes = b"", **options: Any) -> ReplyMessage | Failure:
    flags = RequestFlag.BODY if body else RequestFlag.NONE
    return dialog.ask(message(*calls, path="files", flags=flags, **options), body)


def statuses(answer: ReplyMessage | Failure) -> list[int]:
    assert isinstance(answer, ReplyMessage), answer
    return [outcome.status for outcome in answer.outcomes]


def codes(answer: ReplyMessage | Failure) -> list[str]:
    return [outcome.fault.code if outcome.fault else "done" for outcome in answer.outcomes]


def result(answer: ReplyMessage | Failure, number: int, kind: type[Any]) -> Any:
    return msgspec.msgpack.decode(answer.outcomes[number].result, type=kind)


def refused(answer: ReplyMessage | Failure) -> str:
    assert isinstance(answer, Failure), answer
    return f"{answer.fault.code}: {named(answer.fault)}"


GET: AnyCall = (vfs.get, LookRequest("small"))
PUT: AnyCall = (vfs.put, BringRequest("new", b"content"))


def test_calls_are_done_in_order(dialog: Dialog, served: Served) -> None:
    """Each sees what those before it did."""
    answer = ask(
        dialog,
        (vfs.mkdir, PathRequest("folder")),
        (vfs.put, BringRequest("folder/a", b"one ")),
        (vfs.append, BringRequest("folder/a", b"two")),
        (vfs.get, LookRequest("folder/a")),
        (vfs.rename, RenameRequest("folder/a", "small")),
        (vfs.get, LookRequest("small")),
        (vfs.rmdir, PathRequest("folder")),
        (vfs.list_dir, LookRequest("")),
    )
    assert statuses(answer) == [Status.DONE] * 8
    assert result(answer, 3, GetResult) == result(answer, 5, GetResult) == GetResult(7, b"one two")
    assert served.transport.list_directory("files") == ["large", "small"]


def test_the_first_that_fails_ends_it(dialog: Dialog, served: Served) -> None:
    answer = ask(dialog, PUT, (vfs.delete, PathRequest("absent")), (vfs.delete, PathRequest("small")), GET)
    assert statuses(answer) == [Status.DONE, Status.REFUSED, Status.NOT_DONE, Status.NOT_DONE]
    assert codes(answer) == ["done", "no-such-file", "not-done", "not-done"]
    assert served.transport.list_directory("files") == ["large", "new", "small"]


def test_large_contents_are_the_body_of_the_answer(dialog: Dialog) -> None:
    """One after the other; small ones are in the results as long as there is room."""
    answer = ask(
        dialog,
        (vfs.get, LookRequest("large")),
        GET,
        (vfs.readv, ReadvRequest("large", [RangeField(10, 5), RangeField(255_990, 90_000), RangeField(1 << 40, 3)])),
        (vfs.readv, ReadvRequest("large", [RangeField(0, 200_000), RangeField(7, 0)])),
        (vfs.readv, ReadvRequest("large")),
    )
    assert result(answer, 0, GetResult) == GetResult(256_000, None)
    assert result(answer, 1, GetResult) == GetResult(5, b"small")
    assert result(answer, 2, ReadvResult) == ReadvResult([5, 10, 0], 256_000, LARGE[10:15] + LARGE[-10:])
    assert result(answer, 3, ReadvResult) == ReadvResult([200_000, 0], 256_000, None)
    assert result(answer, 4, ReadvResult) == ReadvResult([], 256_000, b"")
    assert dialog.body(1) == LARGE + LARGE[:200_000]
    assert dialog.ended(1)


def test_small_contents_have_room_once(dialog: Dialog, served: Served) -> None:
    served.transport.put("files/half", [b"h" * (MAX_CONTENT // 2 + 1)])
    answer = ask(dialog, *[(vfs.get, LookRequest("half"))] * 2)
    assert result(answer, 0, GetResult).content is not None
    assert result(answer, 1, GetResult).content is None
    assert dialog.body(1) == b"h" * (MAX_CONTENT // 2 + 1)


def test_what_is_in_the_body_is_what_was_there(dialog: Dialog, served: Served) -> None:
    """Though a later call of the request gives the name to another file."""
    answer = ask(
        dialog,
        (vfs.get, LookRequest("large")),
        (vfs.rename, RenameRequest("small", "large")),
        (vfs.has, PathRequest("small")),
    )
    assert statuses(answer) == [Status.DONE] * 3
    assert dialog.body(1) == LARGE
    assert served.transport.get("files/large") == b"small"


def test_large_contents_come_in_the_body_of_the_request(dialog: Dialog, served: Served) -> None:
    body = LARGE * 8
    assert len(body) > HELD
    answer = ask(
        dialog,
        (vfs.put, BringRequest("a", b"", len(LARGE))),
        (vfs.put, BringRequest("b", b"begins ", 10)),
        (vfs.put, BringRequest("c", b"within")),
        (vfs.append, BringRequest("a", b"", len(body) - len(LARGE) - 10)),
        body=body,
    )
    assert statuses(answer) == [Status.DONE] * 4
    assert served.transport.get("files/a") == body[: len(LARGE)] + body[len(LARGE) + 10 :]
    assert served.transport.get("files/b") == b"begins " + body[len(LARGE) : len(LARGE) + 10]


def test_after_a_failure_the_body_is_forgotten(dialog: Dialog, served: Served) -> None:
    answer = ask(
        dialog, (vfs.put, BringRequest("small", b"", 5)), (vfs.put, BringRequest("new", b"", 5)), body=b"01234" * 2
    )
    assert codes(answer) == ["file-exists", "not-done"]
    assert served.transport.list_directory("files") == ["large", "small"]


def test_nothing_is_done_before_the_body_is_whole(dialog: Dialog, served: Served) -> None:
    """So a request that is cut off or cancelled has changed nothing."""
    before = served.files()
    calls: list[AnyCall] = [(vfs.mkdir, PathRequest("folder")), (vfs.put, BringRequest("new", b"", 10))]
    for end in (lambda number: dialog.send(Cancel(number)), lambda _: dialog.session.connection_lost()):
        number = dialog.begin(message(*calls, path="files", flags=RequestFlag.BODY))
        dialog.send(Body(number, b"01234"))
        end(number)
        assert served.files() == before
    (error,) = [event for event in dialog.heard if isinstance(event, Error)]
    assert b"cancelled" in error.payload


@pytest.mark.parametrize("body", [b"0123", b"012345"])
def test_a_body_of_another_length(dialog: Dialog, served: Served, body: bytes) -> None:
    before = served.files()
    said = refused(ask(dialog, (vfs.put, BringRequest("new", b"", 5)), body=body))
    assert f"a body of {len(body)} bytes" in said
    assert served.files() == before


def test_a_body_that_is_missing(dialog: Dialog) -> None:
    number = dialog.begin(message((vfs.put, BringRequest("new", b"", 5)), path="files", flags=RequestFlag.BODY))
    dialog.send(End(number, 0, 0))
    answer = dialog.answer(number)
    assert isinstance(answer, Failure)
    assert "a body of 0 bytes" in str(named(answer.fault))


def test_a_file_that_gets_shorter_while_it_is_sent(served: Served) -> None:
    class Shrinking(ReadFile):
        def read_at(self, offset: int, size: int) -> bytes:
            return b"ab"[offset : offset + size]

        def size(self) -> int:
            return 5

        def close(self) -> None: ...

    contents = Contents()
    contents.add("files/x", Shrinking(), [(0, 5)])
    with pytest.raises(TransportFailed, match=r"^'files/x': it became shorter"):
        contents.read(100)
    files = RequestFiles(served.site.files("files"), None, served.site.open_files)
    for ranges in ([(0, 5)], [(0, 1), (1, 2)]):  # What is in a result has its size there.
        with pytest.raises(TransportFailed, match=r"^'files/x': it became shorter"):
            files.give("files/x", Shrinking(), ranges)
    assert files.give("files/x", Shrinking(), [(1, 1), (0, 2)]) == b"bab"


def test_a_body_is_read_in_pieces() -> None:
    storage = MemoryTransport()
    storage.put("file", [LARGE])
    contents = Contents()
    assert not contents
    contents.add("files/x", storage.open_read("file"), [(5, 10), (0, 0), (100, 50)])
    contents.add("files/x", storage.open_read("file"), [(0, 3)])
    assert contents
    pieces = list(iter(lambda: contents.read(7), b""))
    assert b"".join(pieces) == LARGE[5:15] + LARGE[100:150] + LARGE[:3]
    assert {len(piece) for piece in pieces[:-1]} == {7}
    assert (contents.size, contents.segments) == (63, 0)


def test_brought_content_comes_in_pieces(served: Served) -> None:
    files = RequestFiles(served.site.files("files"), io.BytesIO(b"0123456789"), served.site.open_files)
    assert b"".join(files.brought(4)) == b"0123"
    assert b"".join(files.brought(0)) == b""
    assert b"".join(files.brought(6)) == b"456789"


def test_open_files_have_a_limit_for_each_connection_and_for_all(served: Served) -> None:
    """Whose answers nobody takes: one connection had all descriptors of the server."""
    large = (vfs.get, LookRequest("large"))
    dialogs = [Dialog(served.site) for _ in range(2)]
    served.site.open_files.most = 12
    for dialog in dialogs:
        dialog.session.open_files.most = 9
        dialog.session.pause_writing()
    begun = []
    for dialog, count in [(dialogs[0], 4), (dialogs[0], 4), (dialogs[0], 4), (dialogs[1], 4)]:
        begun.append(dialog.begin(message(*[large] * count, path="files")))
        assert served.site.open_files.count <= 12
    assert [dialog.session.open_files.count for dialog in dialogs] == [9, 3]
    dialogs[0].session.resume_writing()
    replies = [dialogs[0].answer(number) for number in begun[:3]]
    assert [codes(reply) for reply in replies if reply is not None] == [
        ["done"] * 4,
        ["done"] * 4,
        ["done", "limit-exceeded", "not-done", "not-done"],
    ]
    assert [dialog.session.open_files.count for dialog in dialogs] == [0, 3]
    dialogs[1].session.connection_lost()
    assert served.site.open_files.count == 0


def test_results_have_a_limit(dialog: Dialog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which a change cannot be over once it is made."""
    monkeypatch.setattr("smartserver.server.vfs.MAX_RESULTS", 9)
    answer = ask(dialog, GET, PUT, GET, PUT)
    assert codes(answer) == ["done", "done", "limit-exceeded", "not-done"]
    assert isinstance(answer, ReplyMessage)
    assert answer.outcomes[2].status == Status.REFUSED


# -- refused before anything is done


def test_a_repeated_change_is_not_carried_out(dialog: Dialog, served: Served) -> None:
    """Nothing remembers the first; a read is done as often as it is asked for."""
    before = served.files()
    assert refused(ask(dialog, PUT, age=1)).startswith("outcome-unknown")
    assert refused(ask(dialog, GET, PUT, age=1)).startswith("outcome-unknown")
    assert served.files() == before
    assert statuses(ask(dialog, GET, age=1)) == [Status.DONE]


def test_other_calls_are_not_mixed_with_them(dialog: Dialog, served: Served) -> None:
    before = served.files()
    for other in ((server_ping, PingRequest()), (repository_create, CREATE)):
        for calls in ((PUT, other), (other, PUT)):
            assert "file-level (VFS) calls alone or none" in refused(ask(dialog, *calls))
    assert served.files() == before


@pytest.mark.parametrize(
    "flags", [RequestFlag.ATOMIC, RequestFlag.CHECK_ONLY, RequestFlag.BELOW, RequestFlag.BULK, RequestFlag.GRAPH_FIRST]
)
def test_flags(dialog: Dialog, flags: RequestFlag) -> None:
    assert refused(dialog.ask(message(PUT, path="files", flags=flags))).startswith("unsupported")


def test_the_flag_of_a_body(dialog: Dialog) -> None:
    with_body = message(PUT, path="files", flags=RequestFlag.BODY)
    without = message((vfs.put, BringRequest("new", b"", 5)), path="files")
    for request in (with_body, without):
        assert "BODY at odds with its calls" in refused(dialog.ask(request))


def test_too_many_calls(dialog: Dialog) -> None:
    assert refused(ask(dialog, *[GET] * (MAX_FILE_CALLS + 1))).startswith("limit-exceeded")
    assert statuses(ask(dialog, *[GET] * MAX_FILE_CALLS)) == [Status.DONE] * MAX_FILE_CALLS


@pytest.mark.parametrize("path", ["..", "files/../..", ".hidden", "files\\x", "a\0"])
def test_the_path_of_the_request(dialog: Dialog, path: str) -> None:
    answer = dialog.ask(message(GET, path=path))
    assert refused(answer).startswith("invalid-path")


@pytest.mark.parametrize("body", [b"", b"01234"])
def test_who_may_not(served: Served, body: bytes) -> None:
    """Said before the body is taken."""
    before = served.files()
    call = (vfs.put, BringRequest("new", b"", 5)) if body else PUT
    users = [anonymous(policy, local=local) for policy in Anonymous for local in (True, False)]
    users.append(FixedAccess("joe", frozenset(Permission) - {Permission.VFS}, "the test says so"))
    for access in users:
        if access.permissions == frozenset(Permission):
            continue
        dialog = Dialog(served.site, access)
        number = dialog.begin(message(call, path="files", flags=RequestFlag.BODY if body else RequestFlag.NONE))
        if body:
            dialog.send(Body(number, body))
        answer = dialog.answer(number)
        assert answer is not None
        assert refused(answer).startswith("access-denied")
    assert served.files() == before


def test_reads_from_this_machine_and_from_elsewhere(served: Served) -> None:
    for policy in (Anonymous.READ, Anonymous.WRITE):
        assert statuses(ask(Dialog(served.site, anonymous(policy, local=True)), GET)) == [Status.DONE]
        said = refused(ask(Dialog(served.site, anonymous(policy, local=False)), GET))
        assert "from this machine only" in said


def work_of(served: Served, prepared: headers.RequestHeader) -> VfsWork:
    context = RequestContext(served.site, invoking_user("tester"), prepared, lambda *_: None)
    return VfsWork(context, served.site.open_files)


def test_a_cancelled_request_begins_no_call(served: Served) -> None:
    prepared = headers.check_header(message(PUT, path="files"))
    work = work_of(served, prepared)
    work._context.allowance.cancelled = True
    with pytest.raises(Cancelled):
        work.answer()
    assert not served.transport.exists("files/new")


def test_one_that_is_cancelled_half_way_says_how_far_it_came(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def cancelling(context: Context, request: BringRequest) -> vfs.NoResult:
        work._context.allowance.cancelled = True
        return vfs.put.function(context, request)

    changed = {**VERBS, "put": msgspec.structs.replace(vfs.put, function=cancelling)}
    monkeypatch.setattr(headers, "VERBS", changed)
    calls: list[AnyCall] = [PUT, (vfs.delete, PathRequest("new"))]
    prepared = headers.check_header(message(*calls, path="files"))
    work = work_of(served, prepared)
    answer = work.answer().message
    assert isinstance(answer, ReplyMessage)
    assert statuses(answer) == [Status.DONE, Status.NOT_DONE]
    assert served.transport.get("files/new") == b"content"


def test_no_room_for_the_body(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, _: int) -> None: ...

        def tell(self) -> int:
            return 0

        def write(self, _: bytes) -> int:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    monkeypatch.setattr("tempfile.SpooledTemporaryFile", Full)
    said = refused(ask(Dialog(served.site), (vfs.put, BringRequest("new", b"", 5)), body=b"01234"))
    assert "cannot keep the body of the request: No space left on device" in said


def test_a_body_that_cannot_be_read_on(dialog: Dialog, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store fails after the reply: an error ends the body."""

    def fail(contents: Contents, size: int) -> bytes:
        raise TransportFailed("large", "the disk is gone")

    monkeypatch.setattr(Contents, "read", fail)
    answer = ask(dialog, (vfs.get, LookRequest("large")))
    assert refused(answer) == "transport-failed: {'path': 'large', 'reason': 'the disk is gone'}"


def test_a_bug_in_a_call_ends_the_request_there(
    dialog: Dialog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What came before it is told."""

    def wrong(context: Context, request: LookRequest) -> GetResult:
        raise KeyError("a bug")

    monkeypatch.setattr(headers, "VERBS", {**VERBS, "get": msgspec.structs.replace(vfs.get, function=wrong)})
    assert codes(ask(dialog, PUT, GET, PUT)) == ["done", "internal", "not-done"]
    assert "a bug" in caplog.text


def test_lanes(served: Served) -> None:
    """Changes wait for the disk apart from reads."""
    lanes = Lanes()
    dialog = Dialog(served.site, executor=lanes)
    for number, call in enumerate((GET, PUT), 1):
        dialog.begin(message(call, path="files", request=numbered(number)))
        lanes.run_all()
    assert lanes.lanes == [Lane.QUICK, Lane.COMMIT]
    assert [type(event) for event in dialog.heard] == [Reply, Reply]

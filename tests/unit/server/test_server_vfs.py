"""server.vfs: requests of file-level calls, done in order; their bodies; what is refused before anything is done."""

from __future__ import annotations

from typing import Any

import pytest
from dialogs import CREATE, Dialog, Served, message

from smartserver.server.access import FixedAccess
from smartserver.server.vfs import FileRanges, RequestFiles
from smartserver.verbs import vfs
from smartserver.verbs.declare import AnyVerb, Arguments, Permission
from smartserver.verbs.repository_create import repository_create
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.verbs.vfs import BringRequest, LookRequest
from smartserver.wire.events import Body
from smartserver.wire.limits import MAX_FILE_CALLS
from smartserver.wire.messages import Failure, RequestFlag, Status, named
from smartserver.wire.messages import Reply as ReplyMessage
from transports.base import ReadFile
from transports.errors import TransportFailed

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


def refused(answer: ReplyMessage | Failure) -> str:
    assert isinstance(answer, Failure), answer
    return f"{answer.fault.code}: {named(answer.fault)}"


GET: AnyCall = (vfs.get, LookRequest("small"))
PUT: AnyCall = (vfs.put, BringRequest("new", b"content"))


@pytest.mark.parametrize("body", [b"0123", b"012345"])
def test_a_body_of_another_length(dialog: Dialog, served: Served, body: bytes) -> None:
    before = served.files()
    said = refused(ask(dialog, (vfs.put, BringRequest("new", b"", 5)), body=body))
    assert f"a body of {len(body)} bytes" in said
    assert served.files() == before


def test_a_file_that_gets_shorter_while_it_is_sent(served: Served) -> None:
    class Shrinking(ReadFile):
        def read_at(self, offset: int, size: int) -> bytes:
            return b"ab"[offset : offset + size]

        def size(self) -> int:
            return 5

        def close(self) -> None: ...

    contents = FileRanges()
    contents.add("files/x", Shrinking(), [(0, 5)])
    with pytest.raises(TransportFailed, match=r"^'files/x': it became shorter"):
        contents.read(100)
    files = RequestFiles(served.site.files("files"), None, served.site.open_files)
    for ranges in ([(0, 5)], [(0, 1), (1, 2)]):  # What is in a result has its size there.
        with pytest.raises(TransportFailed, match=r"^'files/x': it became shorter"):
            files.give("files/x", Shrinking(), ranges)
    assert files.give("files/x", Shrinking(), [(1, 1), (0, 2)]) == b"bab"


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


def test_the_flag_of_a_body(dialog: Dialog) -> None:
    with_body = message(PUT, path="files", flags=RequestFlag.BODY)
    without = message((vfs.put, BringRequest("new", b"", 5)), path="files")
    for request in (with_body, without):
        assert "BODY contradicts its calls" in refused(dialog.ask(request))


def test_too_many_calls(dialog: Dialog) -> None:
    assert refused(ask(dialog, *[GET] * (MAX_FILE_CALLS + 1))).startswith("limit-exceeded")
    assert statuses(ask(dialog, *[GET] * MAX_FILE_CALLS)) == [Status.DONE] * MAX_FILE_CALLS


def test_who_may_not(served: Served) -> None:
    """Said before the body is taken."""
    before = served.files()
    dialog = Dialog(served.site, FixedAccess("joe", frozenset(Permission) - {Permission.VFS}, "the test says so"))
    number = dialog.begin(message((vfs.put, BringRequest("new", b"", 5)), path="files", flags=RequestFlag.BODY))
    dialog.send(Body(number, b"01234"))
    answer = dialog.answer(number)
    assert answer is not None
    assert refused(answer).startswith("access-denied")
    assert served.files() == before

"""client.vfs_transport: what it sends, and what it makes of answers; its promises are in simulated/test_vfs.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest
from scripted import Answering, ScriptedMedium, Server, done, refused

from smartserver.client.url import BadUrl
from smartserver.client.vfs_transport import VfsLink, VfsTransport, from_url
from smartserver.errors import AccessDenied, NotDone
from smartserver.verbs.declare import Result
from smartserver.verbs.vfs import (
    MAX_CONTENT,
    MAX_RANGES,
    Done,
    GetResult,
    HasResult,
    NamesResult,
    ReadvResult,
    StatResult,
)
from smartserver.wire.events import Body, End, Error, Event, Reply, Request
from smartserver.wire.messages import Fault, Outcome, Status, encode
from smartserver.wire.messages import Reply as ReplyMessage
from transports.base import Transport
from transports.errors import NoSuchFile, TransportError, TransportFailed
from transports.registry import open_url
from transports.steps import Get, GetStat, MakeDirectory, Put, ReadRanges, Step


def transport(server: Server) -> VfsTransport:
    return VfsTransport(VfsLink(server.client(), "base", "vfs://test/base"))


def answers(*results: Result, body: bytes | None = None) -> Answering:
    """Say this to a whole request."""

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, End) or (isinstance(event, Request) and not event.body):
            medium.say(Reply(event.id, done(*results), body=body is not None))
            if body is not None:
                medium.say(Body(event.id, body), End(event.id, 0, len(body)))

    return answering


def sent(server: Server, connection: int = 0) -> list[tuple[str, list[object]]]:
    """The calls of the last request."""
    request = server.connections[connection].request
    return [(call.verb, msgspec.msgpack.decode(call.arguments)) for call in request.calls]


def test_what_is_small_goes_with_the_call_and_what_is_large_in_the_body() -> None:
    server = Server([answers(Done(), Done(), Done(), Done())])
    half, large = b"h" * (MAX_CONTENT // 2), b"l" * (MAX_CONTENT + 1)
    transport(server).perform([Put("a", half), Put("b", large), Put("c", half), Put("d", half)])
    assert sent(server) == [
        ("put", ["a", half]),
        ("put", ["b", b"", len(large)]),
        ("put", ["c", half]),
        ("put", ["d", b"", len(half)]),
    ]
    bodies = [event.chunk for event in server.connections[0].heard if isinstance(event, Body)]
    assert b"".join(bodies) == large + half
    assert server.connections[0].request.path == "base"


def test_contents_come_from_results_and_body() -> None:
    server = Server([answers(GetResult(3, None), ReadvResult([1, 2], 9, b"xyz"), ReadvResult([2], 9), body=b"abcde")])
    first, second, third = Get("a"), ReadRanges("b", [(0, 1), (3, 2)]), ReadRanges("c", [(0, 2)])
    transport(server).perform([first, second, third])
    assert (first.content, second.result, third.result) == (b"abc", [b"x", b"yz"], [b"de"])


@pytest.mark.parametrize(("body", "what"), [(b"ab", "1 bytes more"), (b"abcd", "got 1 bytes"), (None, "3 bytes more")])
def test_a_body_of_another_length_breaks_the_rules(body: bytes | None, what: str) -> None:
    server = Server([answers(GetResult(3), body=body)])
    with pytest.raises(TransportFailed, match=what):
        transport(server).get("a")


def read() -> Step:
    return ReadRanges("a", [(0, 2), (5, 1)])


@pytest.mark.parametrize(
    ("asked", "result", "what"),
    [
        (lambda: Get("a"), GetResult(3, b"ab"), "expected 3 bytes of a file, got 2"),
        (lambda: Get("a"), GetResult(3, b"abcd"), "expected 3 bytes of a file, got 4"),
        (lambda: Get("a"), GetResult(None, b"a"), "expected 0 bytes of a file, got 1"),
        (lambda: Get("a"), GetResult(-1), "got -1"),
        (read, ReadvResult([2], 9, b"ab"), "expected the sizes of 2 ranges of a file, got 1"),
        (read, ReadvResult([2, 1, 0], 9, b"abc"), "expected the sizes of 2 ranges of a file, got 3"),
        (read, ReadvResult([2, 2], 9, b"abcd"), "expected 0 to 1 bytes of a file, got 2"),
        (read, ReadvResult([2, -1], 9, b"a"), "expected 0 to 1 bytes of a file, got -1"),
        (read, ReadvResult([2, 1], 9, b"ab"), "expected 3 bytes of a file, got 2"),
        (lambda: GetStat("a"), StatResult("folder"), "expected one of directory, file, other, got 'folder'"),
    ],
)
def test_an_answer_to_another_question_breaks_the_rules(asked: Callable[[], Step], result: Result, what: str) -> None:
    """And the connection is not used again."""
    server = Server([answers(result), answers(HasResult(True))])
    files = transport(server)
    with pytest.raises(TransportFailed, match=what):
        files.perform([asked()])
    assert files.exists("a")
    assert [each.closed for each in server.connections] == [1, 0]


def test_steps_before_the_one_that_fails_have_their_results() -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            given = Outcome(Status.DONE, msgspec.Raw(msgspec.msgpack.encode(GetResult(1, b"x"))))
            absent = Outcome(Status.REFUSED, fault=Fault(NoSuchFile.code, {"path": "b"}))
            rest = Outcome(Status.NOT_DONE, fault=Fault(NotDone.code, {}))
            medium.say(Reply(event.id, encode(ReplyMessage([given, absent, rest]))))

    before, failing, after = Get("a"), ReadRanges("b", [(0, 1)]), Get("c")
    with pytest.raises(NoSuchFile, match="'b'"):
        transport(Server([answering])).perform([before, failing, after])
    assert before.content == b"x"
    for step in (failing, after):
        with pytest.raises(LookupError):
            step.result  # noqa: B018


def test_a_refusal_is_told_as_it_is() -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.say(Error(event.id, refused(AccessDenied("file-level (VFS) verbs", "start it with `--allow-vfs`"))))

    with pytest.raises(AccessDenied, match="--allow-vfs"):
        transport(Server([answering])).get("a")


@dataclass(eq=False, slots=True)
class Touch(Step):
    """A step of somebody else."""

    def do(self, transport: Transport) -> None:
        transport.make_directory(self.path)


def test_a_step_it_does_not_know_is_done_by_itself() -> None:
    """In its order among the others."""
    seen: list[str] = []

    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            seen.append(",".join(call.verb for call in medium.request.calls))
            medium.say(Reply(event.id, done(*[Done() for _ in medium.request.calls])))

    transport(Server([answering])).perform([MakeDirectory("a"), MakeDirectory("b"), Touch("c"), Put("d")])
    assert seen == ["mkdir,mkdir", "mkdir", "put"]


def test_many_ranges_are_several_calls() -> None:
    count = MAX_RANGES + 1
    server = Server([answers(ReadvResult([1] * MAX_RANGES, 9, b"x" * MAX_RANGES), ReadvResult([1], 9, b"y"))])
    step = ReadRanges("a", [(0, 1)] * count)
    transport(server).perform([step])
    assert step.result == [b"x"] * MAX_RANGES + [b"y"]
    assert [len(arguments[1]) for _, arguments in sent(server)] == [MAX_RANGES, 1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "result"), [("stat", StatResult(None)), ("get", GetResult(None)), ("list_directory", NamesResult(None))]
)
def test_nil_is_nothing_there(name: str, result: Result) -> None:
    with pytest.raises(NoSuchFile):
        getattr(transport(Server([answers(result)])), name)("a")


def test_it_closes_its_connection_when_nobody_has_it_any_more() -> None:
    server = Server([answers(HasResult(True))] * 2)
    one = transport(server)
    assert one.exists("a")
    child = one.child("b")
    del one
    assert child.exists("c")
    assert server.connections[0].closed == 0
    del child
    assert server.connections[0].closed == 1


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("vfs://example.org", "vfs://example.org:4155"),
        ("vfs://example.org:99/a/b/", "vfs://example.org:99/a/b"),
        ("VFS://[::1]/a%20b", "vfs://[::1]:4155/a b"),
    ],
)
def test_urls(url: str, name: str) -> None:
    opened = open_url(url)
    assert isinstance(opened, VfsTransport)
    assert opened.describe() == name
    assert opened.child("x").describe("y") == f"{name}/x/y"


@pytest.mark.parametrize("url", ["vfs:///a", "vfs://host:x/", "hpss://host/", "vfs://me@host/"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(BadUrl):
        from_url(url)


def test_nobody_there() -> None:
    with pytest.raises(TransportFailed) as caught:
        transport(Server([])).get("a")
    assert caught.value.path == ""
    assert str(caught.value) == "cannot connect to the test's server: Connection refused"


def test_what_is_written_is_not_sent_before_it_must_be() -> None:
    server = Server([answers(Done())])
    file = transport(server).create("new")
    file.write(b"abc")
    assert sent(server) == [("put", ["new"])]
    file.close()
    assert sent(server) == [("append", ["new", b"abc"])]
    file.close()
    with pytest.raises(TransportError, match="closed"):
        file.write(b"d")

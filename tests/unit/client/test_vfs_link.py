"""client.vfs_link: what it sends, and what it makes of answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scripted import ScriptedMedium, Server, refused
from vfs_scripted import answers, sent, transport

from smartserver.errors import AccessDenied
from smartserver.verbs import vfs
from smartserver.verbs.declare import Result
from smartserver.wire.events import Body, Error, Event, Request
from transports import steps
from transports.base import Step
from transports.errors import TransportFailed


def test_what_is_small_goes_with_the_call_and_what_is_large_in_the_body() -> None:
    server = Server([answers(vfs.NoResult(), vfs.NoResult(), vfs.NoResult(), vfs.NoResult())])
    half, large = b"h" * (vfs.MAX_CONTENT // 2), b"l" * (vfs.MAX_CONTENT + 1)
    transport(server).perform([steps.Put("a", half), steps.Put("b", large), steps.Put("c", half), steps.Put("d", half)])
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
    server = Server(
        [answers(vfs.GetResult(3, None), vfs.ReadvResult([1, 2], 9, b"xyz"), vfs.ReadvResult([2], 9), body=b"abcde")]
    )
    first, second, third = steps.Get("a"), steps.ReadRanges("b", [(0, 1), (3, 2)]), steps.ReadRanges("c", [(0, 2)])
    transport(server).perform([first, second, third])
    assert (first.content, second.result, third.result) == (b"abc", [b"x", b"yz"], [b"de"])


@pytest.mark.parametrize(("body", "what"), [(b"ab", "1 bytes more"), (b"abcd", "got 1 bytes"), (None, "3 bytes more")])
def test_a_body_of_another_length_breaks_the_rules(body: bytes | None, what: str) -> None:
    server = Server([answers(vfs.GetResult(3), body=body)])
    with pytest.raises(TransportFailed, match=what):
        transport(server).get("a")


def read() -> Step:
    return steps.ReadRanges("a", [(0, 2), (5, 1)])


@pytest.mark.parametrize(
    ("asked", "result", "what"),
    [
        (lambda: steps.Get("a"), vfs.GetResult(3, b"ab"), "expected 3 bytes of a file, got 2"),
        (lambda: steps.Get("a"), vfs.GetResult(3, b"abcd"), "expected 3 bytes of a file, got 4"),
        (lambda: steps.Get("a"), vfs.GetResult(None, b"a"), "expected 0 bytes of a file, got 1"),
        (lambda: steps.Get("a"), vfs.GetResult(-1), "got -1"),
        (read, vfs.ReadvResult([2], 9, b"ab"), "expected the sizes of 2 ranges of a file, got 1"),
        (read, vfs.ReadvResult([2, 1, 0], 9, b"abc"), "expected the sizes of 2 ranges of a file, got 3"),
        (read, vfs.ReadvResult([2, 2], 9, b"abcd"), "expected 0 to 1 bytes of a file, got 2"),
        (read, vfs.ReadvResult([2, -1], 9, b"a"), "expected 0 to 1 bytes of a file, got -1"),
        (read, vfs.ReadvResult([2, 1], 9, b"ab"), "expected 3 bytes of a file, got 2"),
        (lambda: steps.GetStat("a"), vfs.StatResult("folder"), "expected one of directory, file, other, got 'folder'"),
    ],
)
def test_an_answer_to_another_question_breaks_the_rules(asked: Callable[[], Step], result: Result, what: str) -> None:
    """And the connection is not used again."""
    server = Server([answers(result), answers(vfs.HasResult(True))])
    files = transport(server)
    with pytest.raises(TransportFailed, match=what):
        files.perform([asked()])
    assert files.exists("a")
    assert [each.closed for each in server.connections] == [1, 0]


def test_a_refusal_is_told_as_it_is() -> None:
    def answering(medium: ScriptedMedium, event: Event) -> None:
        if isinstance(event, Request):
            medium.say(Error(event.id, refused(AccessDenied("file-level (VFS) verbs", "start it with `--allow-vfs`"))))

    with pytest.raises(AccessDenied, match="--allow-vfs"):
        transport(Server([answering])).get("a")


def test_it_closes_its_connection_when_nobody_has_it_any_more() -> None:
    server = Server([answers(vfs.HasResult(True))] * 2)
    one = transport(server)
    assert one.exists("a")
    child = one.child("b")
    del one
    assert child.exists("c")
    assert server.connections[0].closed == 0
    del child
    assert server.connections[0].closed == 1


def test_nobody_there() -> None:
    with pytest.raises(TransportFailed) as caught:
        transport(Server([])).get("a")
    assert caught.value.path == ""
    assert str(caught.value) == "cannot connect to the test's server: Connection refused"

"""client.vfs_link, client.vfs_transport: what is made of wrong answers and URLs; promises are in `simulated`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scripted import Answering, ScriptedMedium, Server, done

from smartserver.client.url import BadUrl
from smartserver.client.vfs_link import VfsLink
from smartserver.client.vfs_transport import VfsTransport, from_url
from smartserver.verbs import vfs
from smartserver.verbs.declare import Result
from smartserver.wire.events import Body, End, Event, Reply, Request
from transports import steps
from transports.base import Step
from transports.errors import TransportFailed


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


@pytest.mark.parametrize(("body", "what"), [(b"ab", "1 more bytes"), (b"abcd", "got 1 bytes"), (None, "3 more bytes")])
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


@pytest.mark.parametrize("url", ["vfs:///a", "vfs://host:x/", "hpss://host/", "vfs://me@host/"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(BadUrl):
        from_url(url)

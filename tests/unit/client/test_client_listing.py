"""client.listing: all there is, in as many calls as that takes; an error from a server that comes to no end."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from remotes import saying
from scripted import Server, done

from smartserver.client import listing
from smartserver.client.listing import repositories
from smartserver.verbs.repository_list import ListResult, RepositoryField
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import Request


def page(*paths: str, more: bool = True) -> bytes:
    return done(ListResult([RepositoryField(path, "git sha1", 0) for path in paths], more))


def test_each_call_begins_where_the_one_before_ended() -> None:
    server = Server([saying(page("a", "a/b"), page("a-b"), page("c", more=False))])
    with server.client() as client:
        assert [each.path for each in repositories(client, "at", refs=True)] == ["a", "a/b", "a-b", "c"]
    heard = [event.payload for event in server.connections[0].heard if isinstance(event, Request)]
    asked = [msgspec.msgpack.decode(payload) for payload in heard]
    assert [(request[0], request[3][0][1][0], request[3][0][1][2]) for request in asked] == [
        ("at", "", True),
        ("at", "a/b", True),
        ("at", "a-b", True),
    ]


@pytest.mark.parametrize("pages", [[[]], [["a"], []], [["a"], ["a"]], [["b"], ["a"]], [["a/b"], ["a"]]])
def test_a_server_that_has_more_and_tells_nothing_new(pages: list[list[str]]) -> None:
    server = Server([saying(*[page(*paths) for paths in pages])])
    with server.client() as client, pytest.raises(RemoteProtocolError, match="of which it says there are more"):
        list(repositories(client, "", refs=False))


@pytest.mark.parametrize("ends", [True, False])
def test_a_server_that_has_always_more(monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    monkeypatch.setattr(listing, "MOST_ANSWERS", 3)
    server = Server([saying(page("a"), page("aa"), page("aaa", more=not ends), page("aaaa", more=False))])
    with server.client() as client, contextlib.ExitStack() as stack:
        if not ends:
            stack.enter_context(pytest.raises(RemoteProtocolError, match="3 answers name repositories"))
        assert [each.path for each in repositories(client, "", refs=False)] == ["a", "aa", "aaa"]

"""client.listing: all there is, in as many calls as that takes; an error from a server that comes to no end."""

from __future__ import annotations

import contextlib

import pytest
from remotes import saying
from scripted import Server, done

from smartserver.client import listing
from smartserver.client.listing import repositories
from smartserver.verbs.repository_list import ListResult, RepositoryField
from smartserver.wire.errors import RemoteProtocolError


def page(*paths: str, more: bool = True) -> bytes:
    return done(ListResult([RepositoryField(path, "git sha1", 0) for path in paths], more))


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

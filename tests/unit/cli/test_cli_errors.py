"""smartserver.cli.errors: what a client may raise is one line for a person; a bug is not."""

from __future__ import annotations

import pytest

from smartserver.cli.errors import CommandError, one_line
from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.request import NotOurProtocol
from smartserver.client.url import BadUrl
from smartserver.errors import NoSuchRepository
from smartserver.wire.errors import RemoteProtocolError
from transports.errors import NoSpace, TransportFailed


@pytest.mark.parametrize(
    "error",
    [
        NoSuchRepository("a"),
        NoSpace("packs/1"),
        CannotConnect("h:4155", "Connection refused"),
        ConnectionLost("no sign of life for 140 s"),
        RemoteProtocolError("expected an opening line, got b'HTTP'"),
        NotOurProtocol("the server speaks hpss version 2"),
        BadUrl("x", "it has no host"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_known_is_one_line(error: Exception) -> None:
    with pytest.raises(CommandError) as caught, one_line("hpss://h/a"):
        raise error
    assert str(caught.value) == f"hpss://h/a: {error}"
    assert caught.value.__cause__ is error
    with pytest.raises(CommandError) as caught, one_line():
        raise error
    assert str(caught.value) == str(error)


@pytest.mark.parametrize("error", [KeyError("a bug"), KeyboardInterrupt(), CommandError("said already")])
def test_anything_else_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, one_line("hpss://h/a"):
        raise error
    assert caught.value is error


def test_nothing_wrong_is_nothing() -> None:
    with one_line("a"):
        done = True
    assert done


@pytest.mark.parametrize(
    ("what", "above", "error", "said"),
    [
        ("/srv/a", "/srv/a/", TransportFailed("", "it is busy"), "/srv/a: it is busy"),
        ("/srv/a", "/srv/a/", TransportFailed("packs/x", "it is busy"), "'/srv/a/packs/x': it is busy"),
        ("/srv/a", "", TransportFailed("packs/x", "it is busy"), "/srv/a: 'packs/x': it is busy"),
        ("vfs://h/a", "", TransportFailed("", "vfs://h/a: no sign of life"), "vfs://h/a: no sign of life"),
        ("a", "", TransportFailed("", "a disk is full"), "a: a disk is full"),
        ("/srv/a/", "/srv/a/", TransportFailed("packs/x", "it is busy"), "'/srv/a/packs/x': it is busy"),
        ("/srv/a", "", TransportFailed("", "/srv/a is not there"), "/srv/a is not there"),
        ("/srv/a", "", TransportFailed("", "/srv/a"), "/srv/a"),
        # What only begins so is another place.
        ("/srv/a", "", TransportFailed("", "cannot read '/srv/abc'"), "/srv/a: cannot read '/srv/abc'"),
        ("/srv/a", "", TransportFailed("", "/srv/abc: it is busy"), "/srv/a: /srv/abc: it is busy"),
        ("/srv/a", "", TransportFailed("", "'/srv/a b': it is busy"), "/srv/a: '/srv/a b': it is busy"),
        ("/", "", TransportFailed("", "cannot read '/srv/abc'"), "/: cannot read '/srv/abc'"),
        (
            "hpss+sftp://h/srv/a?host-key=any",
            "sftp://h/srv/",
            NoSuchRepository("a"),
            "no repository at 'sftp://h/srv/a'",
        ),
    ],
)
def test_a_place_is_named_once_and_as_the_user_does(what: str, above: str, error: Exception, said: str) -> None:
    with pytest.raises(CommandError) as caught, one_line(what, above):
        raise error
    assert str(caught.value) == said

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


def test_a_place_is_named_once_and_as_the_user_does() -> None:
    for above, said in [
        ("/srv/a/", "/srv/a: it is busy"),
        ("/srv/a/", "'/srv/a/packs/x': it is busy"),
        ("", "/srv/a: 'packs/x': it is busy"),
    ]:
        with pytest.raises(CommandError) as caught, one_line("/srv/a", above):
            raise TransportFailed("packs/x" if "packs" in said else "", "it is busy")
        assert str(caught.value) == said

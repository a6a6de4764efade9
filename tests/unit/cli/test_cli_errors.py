"""smartserver.cli.errors: what a client may raise is one line for a person; a bug is not."""

from __future__ import annotations

import pytest

from smartserver.cli.errors import CommandError, one_line
from smartserver.errors import NoSuchRepository
from transports.errors import TransportFailed


@pytest.mark.parametrize("error", [KeyError("a bug"), KeyboardInterrupt(), CommandError("said already")])
def test_anything_else_passes(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, one_line("hpss://h/a"):
        raise error
    assert caught.value is error


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

"""plugins.breezy.words: what goes wrong is Breezy's own error, in its words."""

from __future__ import annotations

import pytest
from breezy import errors

from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.url import TcpLocation
from smartserver.errors import (
    A_BAZAAR_REPOSITORY,
    A_GIT_REPOSITORY,
    AccessDenied,
    NoSuchBranch,
    NoSuchRepository,
    OutcomeUnknown,
    ServerBusy,
    WrongVcs,
)
from smartserver.plugins.breezy.words import in_breezys_words
from smartserver.records.varint import Malformed
from smartserver.vcs.base import CannotSend
from smartserver.wire.errors import RemoteProtocolError
from transports.errors import NoSpace, PermissionDenied, TransportFailed

URL = "hpss://example.org/project/"
LOCATION = TcpLocation("example.org", 4155, "project")


@pytest.mark.parametrize(
    ("wrong", "expected", "said"),
    [
        (NoSuchRepository("project"), errors.NotBranchError, f'Not a branch: "{URL}".'),
        (
            NoSuchRepository("project", A_GIT_REPOSITORY),
            errors.NotBranchError,
            f'Not a branch: "{URL}": there is a git repository, which is not served: to have it served, run '
            "`git push --mirror hpss://example.org:4155/ANOTHER-PATH` in it.",
        ),
        (
            NoSuchRepository("project", A_BAZAAR_REPOSITORY),
            errors.NotBranchError,
            f'Not a branch: "{URL}": there is a Bazaar repository, which is not served: to have it served, run '
            "`brz push hpss://example.org:4155/ANOTHER-PATH` in it.",
        ),
        (NoSuchRepository("project", "a file\n"), errors.NotBranchError, f'Not a branch: "{URL}": there is a file .'),
        (NoSuchBranch(b"."), errors.NotBranchError, f'Not a branch: "{URL}": location is a repository.'),
        (NoSuchBranch(b"trunk"), errors.NotBranchError, f'Not a branch: "{URL}".'),
        (
            WrongVcs("project", "git sha1", "bzr 2a"),
            errors.NotBranchError,
            f'Not a branch: "{URL}": there is a repository of git sha1, which git clones and pushes to.',
        ),
        (
            AccessDenied("write", "read only"),
            errors.PermissionDenied,
            f'Permission denied: "{URL}": not allowed: write: read only',
        ),
        (PermissionDenied("x"), errors.PermissionDenied, f"Permission denied: \"{URL}\": permission denied: 'x'"),
        (
            CannotConnect("example.org", "refused"),
            errors.ConnectionError,
            "Connection error: cannot connect to example.org: refused ",
        ),
        (ConnectionLost("gone"), errors.ConnectionError, "Connection error: example.org:4155: gone "),
        (RemoteProtocolError("no hpss"), errors.ConnectionError, "Connection error: example.org:4155: no hpss "),
        (
            OutcomeUnknown("gone"),
            errors.ConnectionError,
            "Connection error: example.org:4155: it is unknown whether the change was made: gone ",
        ),
        (
            ServerBusy("connections", 3),
            errors.ConnectionError,
            "Connection error: example.org:4155: the server is busy: it takes no more than 3 connections at a time; "
            "try again later ",
        ),
        (
            Malformed(3, "cut off"),
            errors.ConnectionError,
            "Connection error: example.org:4155: the server's answer cannot be read: malformed at byte 3: cut off ",
        ),
        (NoSpace("x"), errors.BzrError, "example.org:4155: no space left to write 'x'"),
        (
            TransportFailed("", "cannot log in to example.org:4155: no key"),
            errors.BzrError,
            "cannot log in to example.org:4155: no key",
        ),
        (CannotSend("a text\x1b[2J is missing"), errors.BzrError, "a text [2J is missing"),
    ],
)
def test_each_error_is_one_of_breezys(wrong: Exception, expected: type[Exception], said: str) -> None:
    with pytest.raises(expected) as caught, in_breezys_words(URL, LOCATION):
        raise wrong
    assert (type(caught.value), str(caught.value)) == (expected, said)


def test_what_is_breezys_already_stays() -> None:
    with pytest.raises(errors.NoSuchTag), in_breezys_words(URL, LOCATION):
        raise errors.NoSuchTag("v1")

"""plugins.breezy.words: what goes wrong is Breezy's own error, in its words."""

from __future__ import annotations

import pytest
from breezy import errors

from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.url import TcpLocation
from smartserver.errors import (
    AccessDenied,
    NoSuchBranch,
    NoSuchRepository,
    OutcomeUnknown,
    ServerBusy,
)
from smartserver.plugins.breezy.words import in_breezys_words
from smartserver.records.varint import Malformed
from smartserver.vcs.base import CannotSend
from smartserver.wire.errors import RemoteProtocolError
from transports.errors import NoSpace, PermissionDenied, TransportFailed

URL = "hpss://example.org/project/"
LOCATION = TcpLocation("example.org", 4155, "project")

NO_BRANCH, DENIED = f'Not a branch: "{URL}"', f'Permission denied: "{URL}": '
LOST = "Connection error: example.org:4155: "
BUSY = "the server is busy: it takes no more than 3 connections at a time; try again later "


@pytest.mark.parametrize(
    ("wrong", "expected", "said"),
    [
        (NoSuchRepository("project"), errors.NotBranchError, f"{NO_BRANCH}."),
        (NoSuchRepository("project", "a file\n"), errors.NotBranchError, f"{NO_BRANCH}: there is a file ."),
        (NoSuchBranch(b"."), errors.NotBranchError, f"{NO_BRANCH}: location is a repository."),
        (NoSuchBranch(b"trunk"), errors.NotBranchError, f"{NO_BRANCH}."),
        (AccessDenied("write", "read only"), errors.PermissionDenied, f"{DENIED}not allowed to write: read only"),
        (PermissionDenied("x"), errors.PermissionDenied, f"{DENIED}permission denied: 'x'"),
        (CannotConnect("h", "refused"), errors.ConnectionError, "Connection error: cannot connect to h: refused "),
        (ConnectionLost("gone"), errors.ConnectionError, f"{LOST}gone "),
        (RemoteProtocolError("no hpss"), errors.ConnectionError, f"{LOST}no hpss "),
        (OutcomeUnknown("x"), errors.ConnectionError, f"{LOST}it is unknown whether the change was made: x "),
        (ServerBusy("connections", 3), errors.ConnectionError, f"{LOST}{BUSY}"),
        (
            Malformed(3, "cut off"),
            errors.ConnectionError,
            f"{LOST}the server's answer cannot be read: malformed at byte 3: cut off ",
        ),
        (NoSpace("x"), errors.BzrError, "example.org:4155: no space left to write 'x'"),
        (TransportFailed("", f"no {LOCATION.where}: x"), errors.BzrError, f"no {LOCATION.where}: x"),
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

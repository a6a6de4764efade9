"""smartserver.client.retry: how often a request is sent again, and after what pause."""

from __future__ import annotations

import pytest

from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.request import NotOurProtocol
from smartserver.client.retry import PAUSES, may_help, tells_of_earlier
from smartserver.errors import (
    AccessDenied,
    CorruptFile,
    DivergedBranches,
    InvalidName,
    InvalidPath,
    LimitExceeded,
    MissingBase,
    NestedRepository,
    NoSuchRepository,
    OutcomeUnknown,
    RequestRefused,
    ServerBusy,
    UnknownRemoteError,
    Unsupported,
)
from smartserver.wire.errors import NotHpss, RemoteProtocolError
from transports.errors import CodedError, Locked, NoSpace


def test_pauses_grow_and_together_give_a_server_time_to_start() -> None:
    assert list(PAUSES) == sorted(PAUSES)
    assert 1.0 <= sum(PAUSES) <= 5.0


LOST, DOUBTFUL = {"lost"}, {"lost", "doubtful"}


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (ConnectionLost("reset"), [set(), LOST, DOUBTFUL]),
        (CannotConnect("h:1", "refused"), [LOST, DOUBTFUL]),
        (RemoteProtocolError("expected a reply"), [DOUBTFUL]),
        (NotHpss("expected an opening line"), [DOUBTFUL]),
        (NotOurProtocol("version 2"), []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_when_sending_again_may_help(error: Exception, helps: list[set[str]]) -> None:
    for known in (set(), LOST, DOUBTFUL):
        assert may_help(error, lost="lost" in known, doubtful="doubtful" in known) is (known in helps), known


@pytest.mark.parametrize(
    ("error", "tells"),
    [
        (DivergedBranches(b"main", b"t"), True),
        (MissingBase([b"k"]), True),
        (NoSuchRepository("p"), True),
        (InvalidName(b"a", "why"), True),
        (RequestRefused(), True),
        (OutcomeUnknown("the log does not reach back"), True),
        (ServerBusy("connections", 7), False),
        (AccessDenied("write", "why"), False),
        (InvalidPath("p", "why"), False),
        (NestedRepository("p/q", "p"), False),
        (Unsupported("a verb", "others"), False),
        (LimitExceeded("calls", 3, 2), False),
        (CorruptFile("log/1", 0, "why"), False),
        (NoSpace("p"), False),
        (Locked("p/lock", 30), False),
        (UnknownRemoteError("of-a-later-release", ""), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, CodedError) else "",
)
def test_which_refusals_tell_what_became_of_an_earlier_sending(error: CodedError, tells: bool) -> None:
    assert tells_of_earlier(error) is tells

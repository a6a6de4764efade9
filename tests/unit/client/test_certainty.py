"""client.certainty, client.retry: what is known after each way a sending may end, and whether to send again."""

from __future__ import annotations

import pytest

from smartserver.client.certainty import Certainty
from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.request import NotOurProtocol
from smartserver.client.retry import may_help
from smartserver.wire.errors import Interrupted, NotHpss, RemoteProtocolError

UNMADE, HARDLY, PERHAPS = Certainty

UNREAD = [
    CannotConnect("h:1", "refused"),
    ConnectionLost("reset"),
    RemoteProtocolError("expected a reply"),
    NotHpss("expected an opening line"),
    NotOurProtocol("the server speaks version 2"),
]
STRANGER = NotHpss("expected an opening line")
NO_ANSWER = [ConnectionLost("reset"), RemoteProtocolError("expected a reply"), Interrupted("in the middle")]

TABLE = [
    # How the sending ended; whether it may have been read; what is known then if it was UNMADE, HARDLY, PERHAPS.
    *[(wrong, False, UNMADE, HARDLY, PERHAPS) for wrong in UNREAD],
    (STRANGER, True, HARDLY, HARDLY, PERHAPS),
    (CannotConnect("me@h", "ssh ended with status 1"), True, HARDLY, HARDLY, PERHAPS),
    *[(wrong, True, PERHAPS, PERHAPS, PERHAPS) for wrong in NO_ANSWER],
]


@pytest.mark.parametrize(
    ("wrong", "read", "unmade", "hardly", "perhaps"), TABLE, ids=[f"{type(row[0]).__name__}-{row[1]}" for row in TABLE]
)
def test_what_is_known_after(
    wrong: Exception, read: bool, unmade: Certainty, hardly: Certainty, perhaps: Certainty
) -> None:
    after = [before.after(wrong, perhaps_read=read) for before in (UNMADE, HARDLY, PERHAPS)]
    assert after == [unmade, hardly, perhaps]


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

"""client.certainty: what is known of a change after each way a sending may end, as a table."""

from __future__ import annotations

import pytest

from smartserver.client.certainty import Certainty, NoServer
from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.request import NotOurProtocol
from smartserver.errors import OutcomeUnknown
from smartserver.wire.errors import Interrupted, NotHpss, RemoteProtocolError
from transports.errors import CodedError

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


def test_what_may_have_been_made_is_doubtful() -> None:
    assert [each for each in Certainty if each.doubtful] == [HARDLY, PERHAPS]


def test_where_nobody_speaks_hpss_that_is_said_first() -> None:
    doubt = HARDLY.doubt("it looks like SSH")
    assert isinstance(doubt, NoServer)
    assert str(doubt) == (
        "it looks like SSH; if an hpss server got the request all the same, it is unknown whether the change was made"
    )
    assert CodedError.by_code[doubt.code] is OutcomeUnknown

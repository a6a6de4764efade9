"""smartserver.client.retry: how often a request is sent again, and after what pause."""

from __future__ import annotations

import pytest

from smartserver.client.medium import CannotConnect, ConnectionLost
from smartserver.client.request import NotOurProtocol
from smartserver.client.retry import PAUSES, may_help
from smartserver.wire.errors import NotHpss, RemoteProtocolError


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

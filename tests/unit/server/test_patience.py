"""server.patience: what is done when a peer asks nothing, sends nothing of what it began, or takes nothing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from smartserver.server.patience import PROBE_INTERVAL, Action, Patience
from smartserver.wire.limits import DRAIN_SECONDS, KEEP_IDLE, PING_INTERVAL

IDLE, FAREWELL = 40.0, 10.0


@dataclass
class Asking:
    """What a session says of its requests; by default one of them is carried out."""

    asked: bool = True
    idle: bool = False
    at_rest: bool = False
    awaiting: bool = False
    pinging: bool = False
    discarding: int = 0


WORKING = Asking()
RESTING = Asking(idle=True, at_rest=True)


@pytest.fixture
def patience() -> Patience:
    patience = Patience(IDLE, FAREWELL)
    patience.begins(0.0)
    return patience


def looked(patience: Patience, now: float, requests: Asking = WORKING, *, full: bool = False) -> Action:
    return patience.look(now, requests, full=full)[0]


def test_while_the_server_works_a_peer_may_be_silent(patience: Patience) -> None:
    assert looked(patience, 1000 * IDLE) is Action.WAIT


def test_the_rest_of_a_request_has_its_time_since_the_last_byte(patience: Patience) -> None:
    uploading = Asking(awaiting=True)
    patience.hears(30.0)
    assert looked(patience, 69.9, uploading) is Action.WAIT
    assert patience.look(70.0, uploading, full=False) == (
        Action.DROP,
        "nothing of the rest of a request came for 40 s",
    )


def test_an_answer_has_its_time_since_anything_was_taken(patience: Patience) -> None:
    patience.speaks(5.0, for_request=True, full=False)
    patience.hands_over(100)
    patience.leaves_untaken(6.0, 100, asked=True)
    assert patience.may_have_taken
    assert looked(patience, 44.9, full=True) is Action.WAIT
    patience.leaves_untaken(44.9, 99, asked=True)
    assert looked(patience, 84.8, full=True) is Action.WAIT
    patience.leaves_untaken(84.8, 99, asked=True)
    assert patience.look(84.9, WORKING, full=True) == (Action.ABORT, "it took nothing of its answer for 40 s")
    patience.leaves_untaken(85.0, 0, asked=True)
    assert not patience.may_have_taken
    assert looked(patience, 100.0, full=True) is Action.WAIT


@pytest.mark.parametrize(
    ("requests", "refused", "keep"),
    [
        (RESTING, False, KEEP_IDLE),
        (Asking(asked=False, idle=True), False, IDLE),
        (RESTING, True, DRAIN_SECONDS),
    ],
)
def test_a_connection_is_kept_for_a_request_to_come(requests: Asking, refused: bool, keep: float) -> None:
    patience = Patience(IDLE, FAREWELL, refused=refused)
    patience.begins(0.0)
    assert looked(patience, keep - 1, requests) is Action.WAIT
    assert patience.look(keep, requests, full=False) == (Action.GO_AWAY, f"no request for {keep:.0f} s")
    assert patience.next_look(keep) == FAREWELL
    patience.closing = True
    patience.is_taken(keep + FAREWELL - 1, asked=True)
    assert looked(patience, keep + FAREWELL - 1) is Action.WAIT
    assert looked(patience, keep + FAREWELL) is Action.END


def test_signs_of_life_are_asked_for_more_often_of_one_that_sends_no_more(patience: Patience) -> None:
    pinged = Asking(pinging=True)
    assert looked(patience, PING_INTERVAL - 1, pinged) is Action.WAIT
    assert looked(patience, PING_INTERVAL, pinged) is Action.PING
    assert looked(patience, PING_INTERVAL, pinged) is Action.WAIT
    patience.read_ended = True
    assert looked(patience, PING_INTERVAL + PROBE_INTERVAL, pinged) is Action.PING
    assert patience.next_look(0.0) == PROBE_INTERVAL


def test_a_refused_upload_has_its_time_since_it_was_seen(patience: Patience) -> None:
    first, second = Asking(discarding=1), Asking(discarding=2)
    assert looked(patience, 1.0, first) is Action.WAIT
    assert looked(patience, DRAIN_SECONDS, second) is Action.WAIT
    assert looked(patience, 2 * DRAIN_SECONDS - 1, second) is Action.WAIT
    assert patience.look(2 * DRAIN_SECONDS, second, full=False) == (
        Action.REFUSE_REST,
        f"it still came {DRAIN_SECONDS:.0f} s after that",
    )


def test_one_that_is_closing_has_its_time_since_all_was_sent_and_taken(patience: Patience) -> None:
    patience.closing = True
    assert looked(patience, IDLE - 1) is Action.WAIT
    patience.is_taken(IDLE - 1, asked=True)
    patience.sent_all = IDLE
    assert looked(patience, IDLE + DRAIN_SECONDS - 1) is Action.WAIT
    assert looked(patience, IDLE + DRAIN_SECONDS) is Action.END


def test_only_requests_and_their_answers_are_use(patience: Patience) -> None:
    patience.hears(1.0)
    patience.speaks(2.0, for_request=False, full=False)
    patience.is_taken(3.0, asked=False)
    assert patience.idle_since == 0.0
    patience.hears(4.0, of_request=True)
    assert patience.idle_since == 4.0
    patience.speaks(5.0, for_request=True, full=True)
    assert patience.idle_since == 5.0
    patience.is_taken(6.0, asked=True)
    assert patience.idle_since == 6.0
    patience.sent_all = 9.0
    assert patience.idle_since == 9.0

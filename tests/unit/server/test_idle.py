"""server.idle: what is done when a peer asks nothing, sends nothing of what it began, or takes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from smartserver.server.idle import PROBE_INTERVAL, IdleTimeouts
from smartserver.server.outbox import Outbox
from smartserver.server.session import Session
from smartserver.wire.limits import DRAIN_SECONDS, KEEP_IDLE, PING_INTERVAL

IDLE, DRAIN_TIME = 40.0, 10.0


@dataclass
class Asking:
    """A session as far as it is asked for its requests and told; by default one of them is carried out."""

    had_request: bool = True
    idle: bool = False
    at_rest: bool = False
    receiving: bool = False
    awaiting: bool = False
    pinging: bool = False
    discarding: int = 0
    told: list[str] = field(default_factory=list)

    def abort(self, why: str) -> None:
        self.told.append(f"abort: {why}")

    def drop(self, why: str) -> None:
        self.told.append(f"drop: {why}")

    def discard_no_more(self, why: str) -> None:
        self.told.append(f"refuse the rest: {why}")

    def go_away(self, why: str) -> None:
        self.told.append(f"go away: {why}")

    def ping(self) -> None:
        self.told.append("ping")


@dataclass
class Waiting:
    """A connection that waits."""

    session: Asking = field(default_factory=Asking)
    refused: bool = False
    outbox: Outbox = field(default_factory=Outbox)
    left: int = 0
    """Bytes its peer has not taken."""

    def __post_init__(self) -> None:
        self.timeouts = IdleTimeouts(
            cast("Session", self.session),
            self.outbox,
            lambda: self.left,
            idle=IDLE,
            drain_time=DRAIN_TIME,
            refused=self.refused,
        )
        self.timeouts.begin(0.0)

    def look(self, now: float) -> list[str]:
        """The words that the session is told now; `end` where the connection had its time."""
        self.session.told.clear()
        return ["end"] if self.timeouts.look(now) else self.session.told


def test_while_the_server_works_a_peer_may_be_silent() -> None:
    assert Waiting().look(1000 * IDLE) == []


@pytest.mark.parametrize(
    ("session", "refused", "keep"),
    [
        (Asking(idle=True, at_rest=True), False, KEEP_IDLE),
        (Asking(had_request=False, idle=True), False, IDLE),
        (Asking(idle=True, at_rest=True), True, DRAIN_SECONDS),
    ],
)
def test_a_connection_is_kept_for_a_request_to_come(session: Asking, refused: bool, keep: float) -> None:
    kept = Waiting(session, refused)
    assert kept.look(keep - 1) == []
    assert not kept.timeouts.leaving
    assert kept.look(keep) == [f"go away: no request for {keep:.0f} s"]
    assert kept.timeouts.leaving
    assert kept.timeouts.next_look(keep) == DRAIN_TIME
    kept.timeouts.closing = True
    kept.timeouts.note_taken(keep + DRAIN_TIME - 1)
    assert kept.look(keep + DRAIN_TIME - 1) == []
    assert kept.look(keep + DRAIN_TIME) == ["end"]


def test_signs_of_life_are_asked_for_more_often_of_one_that_sends_no_more() -> None:
    pinged = Waiting(Asking(pinging=True))
    assert pinged.look(PING_INTERVAL - 1) == []
    assert pinged.look(PING_INTERVAL) == ["ping"]
    assert pinged.look(PING_INTERVAL) == []
    pinged.timeouts.read_ended = True
    assert pinged.look(PING_INTERVAL + PROBE_INTERVAL) == ["ping"]
    assert pinged.timeouts.next_look(0.0) == PROBE_INTERVAL


def test_a_refused_upload_has_its_time_since_it_was_seen() -> None:
    refused = Waiting(Asking(discarding=1))
    assert refused.look(1.0) == []
    refused.session.discarding = 2
    assert refused.look(DRAIN_SECONDS) == []
    assert refused.look(DRAIN_SECONDS + 1) == []
    assert refused.look(2 * DRAIN_SECONDS - 1) == []
    assert refused.look(2 * DRAIN_SECONDS) == [f"refuse the rest: it still came {DRAIN_SECONDS:.0f} s after that"]


def test_one_that_is_closing_has_its_time_since_all_was_sent_and_taken() -> None:
    closing = Waiting()
    closing.timeouts.closing = True
    assert closing.look(IDLE - 1) == []
    closing.timeouts.note_taken(IDLE - 1)
    closing.timeouts.sent_all = IDLE
    assert closing.look(IDLE + DRAIN_SECONDS - 1) == []
    assert closing.look(IDLE + DRAIN_SECONDS) == ["end"]

"""smartserver.client.retry: how often a request is sent again, and after what pause."""

from __future__ import annotations

from smartserver.client.retry import PAUSES, Attempts


def test_each_pause_once_and_then_no_more() -> None:
    attempts = Attempts()
    assert [attempts.pause() for _ in range(len(PAUSES) + 2)] == [*PAUSES, None, None]


def test_pauses_grow_and_together_give_a_server_time_to_start() -> None:
    assert list(PAUSES) == sorted(PAUSES)
    assert 1.0 <= sum(PAUSES) <= 5.0


def test_requests_do_not_share_their_attempts() -> None:
    first = Attempts()
    first.pause()
    assert Attempts().pause() == PAUSES[0]

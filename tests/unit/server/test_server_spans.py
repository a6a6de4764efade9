"""server.spans: what the answer to a request tells of the server's work."""

from __future__ import annotations

from smartserver.server.spans import RequestSpans
from smartserver.spans import Part
from smartserver.wire.limits import MAX_SPANS


class Clock:
    """Seconds that pass as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_long_body_leaves_room_and_loses_nothing() -> None:
    """The pieces of a body, each after a wait, and then what comes after it."""
    clock = Clock()
    spans = RequestSpans(clock, tells=True)
    for number in range(MAX_SPANS * 10):
        spans.waited(clock())
        spans.began(Part.SERVER, "check")
        clock.now += 0.001
        spans.ended()
        clock.now += 0.002 + number * 0.0001
    spans.began(Part.DISK, "sync")
    clock.now += 0.005
    spans.ended()
    found = spans.take()
    assert len(found) <= MAX_SPANS
    assert (found[-1].part, found[-1].name, found[-1].end - found[-1].start) == ("disk", "sync", 5000)
    assert sum(each.end - each.start for each in found if each.name == "check") == MAX_SPANS * 10 * 1000
    assert max(each.end for each in found) <= round((clock() - 100) * 1e6)

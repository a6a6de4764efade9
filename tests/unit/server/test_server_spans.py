"""server.spans: what the answer to a request tells of the server's work."""

from __future__ import annotations

from smartserver.server.spans import RequestSpans
from smartserver.spans import Part
from smartserver.wire.limits import MAX_SPANS
from smartserver.wire.messages import ServerSpan


class Clock:
    """Seconds that pass as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_they_count_from_the_request_on() -> None:
    clock = Clock()
    spans = RequestSpans(clock, tells=True)
    since = clock()
    clock.now += 0.002
    spans.waited(since)
    spans.began(Part.SERVER, "commit")
    clock.now += 0.001
    spans.began(Part.DISK, "sync")
    clock.now += 0.005
    spans.ended()
    spans.ended()
    assert spans.take() == [
        ServerSpan("queued", "", 0, 2000),
        ServerSpan("disk", "sync", 3000, 8000),
        ServerSpan("server", "commit", 2000, 8000),
    ]


def test_one_that_has_not_ended_is_told_in_two() -> None:
    clock = Clock()
    spans = RequestSpans(clock, tells=True)
    spans.began(Part.SERVER, "answer")
    clock.now += 0.001
    assert spans.take() == [ServerSpan("server", "answer", 0, 1000)]
    clock.now += 0.002
    spans.ended()
    assert spans.take() == [ServerSpan("server", "answer", 1000, 3000)]


def test_the_same_in_a_row_is_one() -> None:
    clock = Clock()
    spans = RequestSpans(clock, tells=True)
    for _ in range(3):
        spans.began(Part.SERVER, "check")
        clock.now += 0.001
        spans.ended()
        clock.now += 0.00001
    assert spans.take() == [ServerSpan("server", "check", 0, 3020)]


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


def test_a_log_has_the_longest_by_name() -> None:
    clock = Clock()
    spans = RequestSpans(clock, tells=False)
    for seconds in (0.0001, 0.05, 0.05):
        spans.began(Part.SERVER, "commit")
        spans.began(Part.LOCK, "")
        clock.now += seconds
        spans.ended()
        clock.now += seconds
        spans.ended()
    spans.began(Part.DISK, "sync")
    clock.now += 0.0005
    spans.ended()
    assert spans.longest == ["commit:200.2", "lock:100.1"]

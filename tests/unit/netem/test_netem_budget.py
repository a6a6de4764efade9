from __future__ import annotations

from functools import partial

import pytest
from simulated_servers import Echo

from netem.budget import SHOWN_MESSAGES, explain, round_trips
from netem.callsites import CallSite, CallSites
from netem.counter import Counter, Message
from netem.link import Link
from netem.repeats import repeats
from netem.simulated import SimulatedNetwork, SimulatedStream


def pings(stream: SimulatedStream, times: int) -> None:
    for _ in range(times):
        stream.send(b"ping")
        stream.read(9)


def test_an_error_in_the_block_is_the_one_seen() -> None:
    net = SimulatedNetwork(Link(1.0))
    with pytest.raises(ConnectionRefusedError), round_trips(net, at_most=0):
        net.connect(None)


def test_a_long_list_is_cut() -> None:
    net = SimulatedNetwork(Link(1.0))
    pings(net.connect(Echo), SHOWN_MESSAGES)
    lines = explain(net.take()).splitlines()
    assert sum(line.startswith("  connection") for line in lines) == SHOWN_MESSAGES
    assert lines[-1] == f"  and {SHOWN_MESSAGES} messages more"


LOOP = (CallSite("/p/client.py", 5, "get"), CallSite("/p/report.py", 12, "load"))
AT = "/p/client.py:5 in get < /p/report.py:12 in load"
OTHER = (CallSite("/p/report.py", 40, "save"),)


def dialog(*asked: tuple[bytes, CallSites]) -> tuple[Message, ...]:
    """Each of these is sent and answered, one after the other."""
    counter = Counter()
    for number, (content, sites) in enumerate(asked):
        question = counter.sent(1, number, len(content), up=True, content=content, sites=partial(tuple, sites))
        answer = counter.sent(1, number, 4, up=False, content=b"same")
        assert question is not None
        assert answer is not None
        counter.delivered(question, number)
        counter.delivered(answer, number)
    return counter.counts().messages


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ([(b"abc", LOOP), (b"x", OTHER), (b"abc", LOOP)], [f"the same 3 bytes were sent 2 times from {AT}: an N+1?"]),
        (
            [(b"abc", LOOP), (b"abc", OTHER)],
            [f"the same 3 bytes were sent 2 times from {AT} and from /p/report.py:40 in save: an N+1?"],
        ),
        ([(b"abc", ()), (b"abc", ())], ["the same 3 bytes were sent 2 times: an N+1?"]),
        ([(b"x" * 5000, ()), (b"x" * 5000, ())], []),  # Only their beginnings are kept.
        (
            [(b"item %d" % n, LOOP) for n in range(5)],
            [f"5 round trips were made one after the other from {AT}: an N+1?"],
        ),
        ([(b"a", LOOP), (b"b", LOOP)], []),  # Twice is no loop.
        # Nor is the same client, called from several lines.
        ([(b"item %d" % line, (LOOP[0], CallSite("/p/report.py", line, "load"))) for line in (1, 2, 3, 4)], []),
        ([(b"a", ()), (b"b", ()), (b"c", ())], []),  # The answers are the same, and are no questions.
    ],
)
def test_what_is_pointed_at(asked: list[tuple[bytes, CallSites]], said: list[str]) -> None:
    assert repeats(dialog(*asked)) == said


def test_what_was_sent_side_by_side_is_no_loop() -> None:
    counter = Counter()
    for connection in range(1, 6):
        counter.opened(connection, 0, handshake=True)
    for connection in range(1, 6):
        counter.sent(connection, 0, 2, up=True, content=b"%02d" % connection, sites=lambda: LOOP)
    assert repeats(counter.counts().messages) == []


def test_the_most_often_repeated_comes_first() -> None:
    asked = [(b"abc", OTHER)] * 2 + [(b"item %d" % n, LOOP) for n in range(4)] + [(b"abcd", OTHER)] * 3
    assert [line.split(" from ")[0] for line in repeats(dialog(*asked))] == [
        "5 round trips were made one after the other",
        "4 round trips were made one after the other",
        "the same 4 bytes were sent 3 times",
        "the same 3 bytes were sent 2 times",
    ]

"""netem.counter, with known answers; netem.budget, netem.repeats.

A dialog is written as one line a step: `1>5` five bytes up on connection 1, delivered at once; `1<5` down; `1+` opens
with a handshake, which `1/` begins and `1=` ends; `1*` is taken as open; `1>.` and `1<.` end a stream; `1>5?` does not
arrive."""

from __future__ import annotations

from functools import partial

import pytest
from simulated_servers import Echo

from netem.budget import SHOWN_MESSAGES, explain, round_trips
from netem.callsites import CallSite, CallSites
from netem.counter import KEPT_CONTENT, KEPT_MESSAGES, Counter, Counts, Message
from netem.link import Link
from netem.repeats import repeats
from netem.simulated import SimulatedNetwork, SimulatedStream


def play(dialog: str) -> Counts:
    counter = Counter()
    ended: set[tuple[int, bool]] = set()
    for now, step in enumerate(dialog.split()):
        number, what, rest = int(step[0]), step[1], step[2:]
        up = what == ">"
        if what in "+*/=":
            if what != "=":
                counter.opened(number, now, handshake=what != "*")
            if what in "+=":
                counter.established(number, now)
            continue
        end = rest == "."
        size = 0 if end else int(rest.rstrip("?"))
        message = counter.sent(number, now, size, up=up, end=end, ended=(number, not up) in ended)
        if end:
            ended.add((number, up))
        if message is not None and not rest.endswith("?"):
            counter.delivered(message, now)
    return counter.counts()


@pytest.mark.parametrize(
    ("dialog", "rounds", "warm"),
    [
        ("", 0, 0),
        ("1*", 0, 0),
        ("1+", 1, 0),
        ("1/", 0, 0),  # nobody answered the handshake either
        ("1/ 1=", 1, 0),
        ("1/ 2/ 3/ 1= 2= 3= 1>5 2>5 1<5 2<5", 2, 1),  # side by side
        ("1/ 1= 2/ 2= 3/ 3= 1>5 2>5 1<5 2<5", 4, 1),  # one after the other
        ("1+ 1>5 1<5", 2, 1),
        ("1* 1>5 1<5", 1, 1),
        ("1* 1>5", 0, 0),  # nobody answered: no trip
        ("1* 1>5 1<5?", 0, 0),  # not to the client yet
        ("1* 1<5", 1, 1),  # server speaks first: half a trip, rounded up
        ("1+ 1<5", 2, 1),  # and the greeting comes a whole one after the connection
        ("1+ 1<5 1>5 1<5", 3, 2),
        ("1* 1>5 1>5 1>5 1<5 1<5", 1, 1),  # pipelined
        ("1* 1>5 1<5 1>5 1<5 1>5 1<5", 3, 3),  # ping-pong
        ("1* 1>5 1<5 1>5", 1, 1),  # what follows the answer is no trip unless answered
        ("1* 1>5 1>. 1<5 1<.", 1, 1),  # half-close with the request
        ("1* 1>5 1<5 1>. 1<.", 1, 1),  # a client that hangs up does not wait for the server to do so
        ("1* 1>5 1<5 1<.", 1, 1),  # the end belongs to the answer
        ("1* 1>5 1<5 1>5 1<.", 2, 2),  # "quit", answered by the end alone
        ("1* 1>5 1<5 1>. 1<5", 2, 2),  # an answer to the end of the stream
        ("1+ 2+ 1>5 2>5 1<5 2<5", 3, 1),  # opened one after the other, asked at once
        ("1+ 1>5 1<5 2+ 2>5 2<5", 4, 2),  # one after the other
        ("1+ 1>5 1<5 1>. 1<. 2+ 2>5 2<5", 4, 2),  # what the server ends after the client did weighs nothing
        ("1* 2* 1>5 1<5 2>5 2<5 1>5 1<5", 3, 3),  # a chain through two connections
    ],
)
def test_rounds(dialog: str, rounds: int, warm: int) -> None:
    counts = play(dialog)
    assert (counts.rounds, counts.rounds_without_handshake, counts.handshake_rounds) == (rounds, warm, rounds - warm)


def test_bytes_flights_and_messages() -> None:
    counts = play("1+ 1>5 1>6 1<7 1<8 1>9 1>.")
    assert (counts.bytes_up, counts.bytes_down, counts.connections) == (20, 15, 1)
    assert (counts.flights_up, counts.flights_down) == (2, 1)
    assert [(m.up, m.size, m.end, m.depth) for m in counts.messages] == [
        (True, 11, False, 3),
        (False, 15, False, 4),
        (True, 9, True, 5),
    ]


def test_an_end_alone_is_no_flight() -> None:
    counts = play("1* 1>5 1<5 1>.")
    assert (counts.flights_up, len(counts.messages)) == (1, 3)
    assert counts.messages[-1].end


def test_full_duplex_streams_that_wait_for_nothing_are_one_message_each() -> None:
    counts = play("1* " + "1>9? 1<9? " * 100)
    assert (counts.flights_up, counts.flights_down) == (1, 1)
    delivered = play("1* 1>1 1<1 " + "1>9? 1<9? " * 100)
    assert delivered.rounds == 1


def test_seconds_are_from_the_first_thing_to_the_last_answer() -> None:
    counter = Counter()
    counter.opened(1, 10**9, handshake=False)
    request = counter.sent(1, 2 * 10**9, 5, up=True)
    assert request is not None
    counter.delivered(request, 9 * 10**9)
    assert counter.counts().seconds == 0
    reply = counter.sent(1, 3 * 10**9, 5, up=False)
    assert reply is not None
    counter.delivered(reply, 4 * 10**9)
    assert counter.counts().seconds == 3


def test_used() -> None:
    assert not play("").used
    assert play("1*").used
    assert play("1>1").used
    assert play("1<1").used
    assert not play("1>.").used  # the end of an older connection is nothing done
    counter = Counter()
    counter.established(1, 3 * 10**9)
    assert counter.counts() == Counts()


def test_counts_are_a_snapshot() -> None:
    counter = Counter()
    message = counter.sent(1, 0, 5, up=True)
    assert message is not None
    before = counter.counts()
    counter.sent(1, 0, 5, up=True)
    counter.delivered(message, 7)
    assert (before.bytes_up, before.messages[0].size, before.messages[0].delivered) == (5, 5, None)
    assert counter.counts().messages[0].size == 10


def test_the_list_of_messages_is_bounded() -> None:
    counts = play("1* " + "1>1 1<1 " * KEPT_MESSAGES)
    assert (len(counts.messages), counts.omitted, counts.rounds) == (KEPT_MESSAGES, KEPT_MESSAGES, KEPT_MESSAGES)


def test_the_beginning_of_a_message_is_kept_if_it_was_told() -> None:
    counter = Counter()
    for content in (b"ab", memoryview(b"cd"), b"x" * KEPT_CONTENT, b"never"):
        counter.sent(1, 0, len(content), up=True, content=content)
    (message,) = counter.counts().messages
    assert message.content == (b"abcd" + b"x" * KEPT_CONTENT)[:KEPT_CONTENT]
    # Else it would look like the beginning.
    counter = Counter()
    counter.sent(1, 0, 5, up=True)
    counter.sent(1, 0, 2, up=True, content=b"ab")
    assert counter.counts().messages[0].content == b""


def test_who_sent_a_message_is_asked_once() -> None:
    asked: list[CallSites] = []

    def sites() -> CallSites:
        asked.append((CallSite("program.py", len(asked) + 1, "f"),))
        return asked[-1]

    counter = Counter()
    for now in range(3):
        counter.sent(1, now, 5, up=True, sites=sites)
    assert counter.counts().messages[0].sites == asked[0]
    assert len(asked) == 1


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

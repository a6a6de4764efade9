from __future__ import annotations

from functools import partial

from netem.callsites import CallSite, CallSites
from netem.counter import Counter, Message
from netem.repeats import repeats

LOOP = (CallSite("/p/client.py", 5, "get"), CallSite("/p/report.py", 12, "load"))
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


def test_the_same_bytes_again_are_pointed_at_with_their_line() -> None:
    assert repeats(dialog((b"abc", LOOP), (b"x", OTHER), (b"abc", LOOP))) == [
        "the same 3 bytes were sent 2 times from /p/client.py:5 in get < /p/report.py:12 in load: an N+1?"
    ]


def test_the_same_bytes_from_two_places() -> None:
    (line,) = repeats(dialog((b"abc", LOOP), (b"abc", OTHER)))
    assert line.endswith(
        "from /p/client.py:5 in get < /p/report.py:12 in load and from /p/report.py:40 in save: an N+1?"
    )


def test_one_line_that_asks_other_things_each_time_is_a_loop() -> None:
    assert repeats(dialog(*((b"item %d" % n, LOOP) for n in range(5)))) == [
        "5 round trips were made one after the other from /p/client.py:5 in get < /p/report.py:12 in load: an N+1?"
    ]


def test_twice_is_no_loop() -> None:
    assert repeats(dialog((b"a", LOOP), (b"b", LOOP))) == []


def test_the_same_client_called_from_several_lines_is_no_loop() -> None:
    calls = [(LOOP[0], CallSite("/p/report.py", line, "load")) for line in (1, 2, 3, 4)]
    assert repeats(dialog(*((b"item %d" % n, sites) for n, sites in enumerate(calls)))) == []


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


def test_long_messages_are_not_taken_for_the_same() -> None:
    """Only their beginnings are kept."""
    assert repeats(dialog((b"x" * 5000, ()), (b"x" * 5000, ()))) == []


def test_bytes_without_a_known_sender_are_compared_too() -> None:
    assert repeats(dialog((b"abc", ()), (b"abc", ()))) == ["the same 3 bytes were sent 2 times: an N+1?"]


def test_an_answer_is_no_question() -> None:
    assert repeats(dialog((b"a", ()), (b"b", ()), (b"c", ()))) == []

"""meters, spans, tcp_state: what is counted, who is told of which spans, and what the kernel says of a connection."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from counting import named
from needs import needs

from smartserver import meters
from smartserver.meters import (
    BYTES_READ,
    METERS,
    NOTHING,
    READS,
    Counts,
    counted,
    counted_here,
    here,
    since,
    together,
)
from smartserver.spans import Part, listening, measured, span, spans_of, spent
from smartserver.tcp_state import tcp_state


def test_each_has_a_name_of_its_own_and_says_what_it_counts() -> None:
    assert len({meter.name for meter in METERS}) == len(METERS) == len(NOTHING)
    for meter in METERS:
        assert meter.help.endswith("."), meter
        assert meter.name.replace("_", "").isalpha(), meter
        assert meter.name.islower(), meter


def test_threads_count_for_themselves_and_together() -> None:
    everything, mine = counted(), counted_here()

    def read(times: int) -> Counts:
        start = counted_here()
        for _ in range(times):
            here.tally[READS] += 1
            here.tally[BYTES_READ] += 2
        return since(counted_here(), start)

    with ThreadPoolExecutor(4) as threads:
        parts = list(threads.map(read, range(100, 500, 50)))
    assert [named(part) for part in parts] == [
        {"file_reads": times, "file_read_bytes": 2 * times} for times in range(100, 500, 50)
    ]
    total = NOTHING
    for part in parts:
        total = together(total, part)
    assert since(counted(), everything) == total
    assert counted_here() == mine


def test_a_thread_that_ends_leaves_its_list_to_the_next() -> None:
    before, lists = counted(), len(meters._tallies)

    def read() -> None:
        here.tally[READS] += 1

    for _ in range(50):
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    assert since(counted(), before)[READS] == 50
    assert len(meters._tallies) < lists + 25, "a thread may take a list before the last one has left its own"


class Heard:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def began(self, part: Part, name: str) -> None:
        self.said.append(f"{part} {name}")

    def ended(self) -> None:
        self.said.append("end")

    def measured(self, connection: socket.socket) -> None:
        self.said.append(f"socket {connection.fileno()}")


def test_one_ends_with_an_error() -> None:
    heard = Heard()
    with listening(heard), pytest.raises(ValueError, match="no"), span(Part.LOCAL, "a"):
        raise ValueError("no")
    assert heard.said == ["local a", "end"]


def test_nobody_is_told_of_what_is_before_after_and_in_other_threads() -> None:
    heard = Heard()
    with span(Part.LOCAL, "before"), listening(heard):
        other = threading.Thread(target=lambda: span(Part.LOCAL, "other").__enter__())
        other.start()
        other.join()
    with span(Part.LOCAL, "after"):
        pass
    assert heard.said == []


def test_an_inner_listener_is_told_alone() -> None:
    outer, inner = Heard(), Heard()
    with listening(outer):
        with listening(inner), span(Part.LOCAL, "a"):
            pass
        with span(Part.LOCAL, "b"):
            pass
    assert (outer.said, inner.said) == (["local b", "end"], ["local a", "end"])


def test_each_item_is_a_span_and_what_is_done_with_it_is_not() -> None:
    heard = Heard()
    with listening(heard):
        for item in spans_of(Part.LOCAL, "make", iter("ab")):
            heard.said.append(item)
    made = ["local make", "end"]
    assert heard.said == [*made, "a", *made, "b", *made]


def test_a_connection_that_ends_is_shown_to_the_listener() -> None:
    heard = Heard()
    with socket.socket() as connection:
        measured(connection)
        with listening(heard):
            measured(connection)
        assert heard.said == [f"socket {connection.fileno()}"]


def test_calls_are_spans() -> None:
    @spent(Part.LOCAL, "double")
    def double(number: int, *, plus: int = 0) -> int:
        return number * 2 + plus

    heard = Heard()
    with listening(heard):
        assert double(3, plus=1) == 7
    assert heard.said == ["local double", "end"]
    assert double.__name__ == "double"


@needs("Linux")
def test_a_connection_over_loopback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs, _ = listener.accept()
        with theirs:
            for _ in range(5):
                ours.sendall(b"a")
                assert theirs.recv(1) == b"a"
            found = tcp_state(ours)
    assert (found["packets"], found["again"], found["by_window"]) == (5, 0, 0)
    assert 500 < found["packet"] < 65_536  # The MTU of loopback.
    assert 10 <= found["window"] <= 20  # Linux begins with ten, and five packets that arrive add one each.
    assert 0 < found["least_rtt"] <= found["rtt"] < 1_000_000


@needs("Linux")
def test_what_is_no_connection_over_tcp() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert tcp_state(one) == {}

"""netem.clock, simulated, simulated_endpoint, simulated_stream, cut_everywhere: what is counted, and how connections
end or are cut."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_servers import Echo, Kept, Sink, Ticking, ask, network, read_all

from netem.clock import Clock
from netem.counter import Counts
from netem.cut_everywhere import CutPoint, Trial, cut_everywhere
from netem.effects import Corrupt, Delay, Stall
from netem.link import Link
from netem.simulated import Deadlock, SimulatedNetwork, SimulatedStream
from netem.simulated_endpoint import Endpoint
from netem.simulated_server import ServerTransport


def test_events_run_in_order_of_time_then_of_asking() -> None:
    clock, ran = Clock(), list[tuple[str, float]]()
    for name, delay in [("b", 2.0), ("a", 1.0), ("c", 2.0), ("now", 0.0)]:
        clock.call_later(delay, lambda name=name: ran.append((name, clock.now)))  # type: ignore[misc]
    clock.run()
    assert ran == [("now", 0.0), ("a", 1.0), ("b", 2.0), ("c", 2.0)]


def test_cancelled_events_do_not_run_nor_move_the_clock() -> None:
    clock = Clock()
    timer = clock.call_later(5, lambda: pytest.fail("ran"))
    timer.cancel()
    timer.cancel()
    assert not clock.step()
    assert clock.now == 0.0


def test_the_past_is_refused() -> None:
    clock = Clock()
    clock.sleep(1)
    with pytest.raises(ValueError, match="cannot call at 5 ns, it is 1000000000 ns"):
        clock.call_at(5, lambda: None)
    with pytest.raises(ValueError, match="from 0 on"):
        clock.call_later(-1, lambda: None)


def test_an_early_answer_during_an_upload() -> None:
    def refuse(sink: Sink) -> None:
        if not sink.eof and len(sink.received) > 1000 and sink.transport.pending() == 0 and not sink.lost:
            sink.transport.write(b"no")
            sink._on_data = None

    net = network(1.0, rate=100_000, buffer=64 * 1024)
    server = Kept(refuse)
    stream = net.connect(server, handshake=False)
    upload, sent = memoryview(bytes(10**7)), 0
    while True:
        readable, writable = stream.poll(True, True)
        if readable:
            assert stream.read(10) == b"no"
            break
        assert writable
        sent += stream.write_some(upload[sent : sent + 16384])
    counts = net.take()
    assert counts.rounds == 1
    assert net.clock.now == pytest.approx(1.02, abs=0.02)
    assert sent == counts.bytes_up < 1.05 * 100_000 + 64 * 1024
    assert len(server.last.received) < sent


def test_timers_are_in_the_waiting_but_not_in_the_depth() -> None:
    class Slow(Echo):
        def data_received(self, data: bytes) -> None:
            net.clock.call_later(5, lambda: self.transport.write(data))

    net = network()
    ask(net.connect(Slow, handshake=False))
    counts = net.take()
    assert (counts.rounds, counts.application_rounds) == (1, 6.0)


def test_chance_is_each_connections_own() -> None:
    net = SimulatedNetwork(Link(1.0, up=[Corrupt(1)]))
    first, again = (ask(net.connect(Echo), bytes(1000)) for _ in range(2))
    assert first != again
    assert first == ask(SimulatedNetwork(net.link).connect(Echo), bytes(1000))


def test_a_link_without_delay_counts_depth_alone() -> None:
    net = network(0)
    ask(net.connect(Echo))
    counts = net.take()
    assert (counts.rounds, counts.application_rounds, net.clock.now) == (2, None, 0.0)


def test_what_is_under_way_at_take_belongs_to_the_old_operation() -> None:
    net = network()
    stream = net.connect(Echo, handshake=False)
    stream.send(b"old")
    old = net.take()
    assert (old.bytes_up, old.rounds) == (3, 0)
    assert stream.read(9) == b"old"
    assert (net.take().bytes_down, net.counts().bytes_up) == (3, 0)
    ask(stream)
    assert net.take().rounds == 1


@given(
    steps=st.lists(
        st.one_of(
            st.just("open"),
            st.just("noise"),
            st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3000), st.integers(1, 5)), min_size=1, max_size=4),
        ),
        max_size=12,
    ),
    rtt=st.sampled_from([0.001, 0.3, 1.0]),
    delay=st.sampled_from([0.0, 0.07]),
)
def test_application_rounds_are_what_the_client_waited_for(
    steps: list[str | list[tuple[int, int, int]]], rtt: float, delay: float
) -> None:
    """Any dialog: connections opened, and turns at which several requests on several connections go out together.

    Each is one round trip, the time that passed is exactly so many, and a stream that nobody waits for costs nothing.
    """
    net = network(rtt, down=[Delay(delay)])
    streams = [net.connect(Echo, handshake=False)]
    noisy: list[SimulatedStream] = []
    expected = 0
    for step in steps:
        if isinstance(step, list):
            asked: dict[int, int] = {}
            for number, size, times in step:
                for _ in range(times):
                    streams[number % len(streams)].send(bytes(size))
                asked[number % len(streams)] = asked.get(number % len(streams), 0) + size * times
            for number, size in asked.items():
                while size:
                    size -= len(streams[number].read(size))
            expected += 1
        elif step == "open":
            streams.append(net.connect(Echo))
            expected += 1
        else:
            noisy.append(net.connect(lambda transport: Ticking(transport, net.clock, rtt / 7, 40), handshake=False))
    assert net.clock.nanoseconds == expected * net.link.round_trip
    counts = net.take()
    assert counts.application_rounds == expected
    if not noisy:
        assert counts.rounds == expected


def test_deadlock_says_who_waits_for_what() -> None:
    net = network()
    stream = net.connect(Kept())
    stream.send(b"hello")
    with pytest.raises(
        Deadlock, match=r"waits for bytes on connection 1 and nothing is left.*5 bytes up, 0 bytes down"
    ):
        stream.read(1)
    full = network(1.0, buffer=10, up=[Stall(0)]).connect(Kept())
    with pytest.raises(Deadlock, match="waits for room to write on connection 1"):
        full.send(bytes(11))


def test_a_wait_in_which_the_link_changes_is_divided_by_both() -> None:
    class Late(Echo):
        def data_received(self, data: bytes) -> None:
            net.clock.call_later(2.0, lambda: self.transport.write(data))

    net = network(1.0)
    stream = net.connect(Late, handshake=False)
    net.clock.call_later(1.5, lambda: net.change(Link(0.5)))
    ask(stream)
    assert net.clock.now == 2.75  # 0.5 s there, 2 s of a timer, 0.25 s back
    assert net.take().application_rounds == 1.5 / 1.0 + 1.25 / 0.5


def test_a_connection_with_a_link_of_its_own_is_counted_by_it() -> None:
    net = network(1.0)
    net.links.append(Link(0.1))
    ask(net.connect(Echo))
    counts = net.counts()
    assert (counts.application_rounds, counts.application_rounds_without_handshake, counts.rounds) == (2.0, 1.0, 2)
    ask(net.connect(Echo))
    counts = net.take()
    assert (counts.application_rounds, counts.application_rounds_without_handshake) == (None, None)
    assert counts.rounds == 4
    assert net.counts().application_rounds == 0.0


def test_a_change_just_after_connecting_lets_bytes_overtake_the_handshake() -> None:
    network = SimulatedNetwork(Link(rtt=1.0))
    kept = Kept(lambda sink: sink.transport.write(b"ab"))
    stream = network.connect(kept)
    network.change(Link(0))
    stream.send(b"x")
    assert stream.read(10) == b"ab"
    stream.close()
    network.clock.run()
    assert [(bytes(sink.received), sink.eof) for sink in kept.made] == [(b"x", True)]


def test_an_end_may_overtake_the_handshake_too() -> None:
    network = SimulatedNetwork(Link(rtt=1.0))
    kept = Kept()
    stream = network.connect(kept)
    network.change(Link(0))
    stream.close()
    network.clock.run()
    assert [sink.eof for sink in kept.made] == [True]


def test_a_take_in_the_middle_of_a_wait_divides_it() -> None:
    net = network(1.0)
    stream = net.connect(Echo, handshake=False)
    taken: list[Counts] = []
    net.clock.call_later(0.25, lambda: taken.append(net.take()))
    ask(stream)
    assert [counts.application_rounds for counts in (*taken, net.take())] == [0.25, 0.75]


def test_a_change_during_a_handshake_is_of_that_connection_too() -> None:
    net = network(1.0)
    net.clock.call_later(0.5, lambda: net.change(Link(0.1)))
    kept = Kept(lambda sink: sink.transport.write(b"answer"))
    stream = net.connect(kept)
    assert net.clock.now == 1.0  # the handshake is on the way already
    net.clock.sleep(0.05)
    assert len(kept.made) == 1
    begun = net.clock.now
    ask(stream, b"asking")
    assert net.clock.now - begun == pytest.approx(0.1)
    assert net.take().application_rounds_without_handshake == 1.0


def test_nothing_moves_before_the_ends_are_joined() -> None:
    net = network()
    client, server = SimulatedStream(net, 1, net.link), ServerTransport(net, 1, net.link)
    kept = Kept()(server)
    server.serve(kept)
    client.send(b"be")
    net.clock.run()
    assert not net.counts().used
    Endpoint.join(client, server)
    client.send(b"fore")
    net.clock.run()
    assert (bytes(kept.received), net.take().bytes_up, net.clock.now) == (b"before", 6, 0.5)


def test_a_client_that_closes_ends_the_server() -> None:
    net = network()
    server = Kept(on_eof=lambda sink: sink.transport.close())
    stream = net.connect(server)
    stream.send(b"bye")
    stream.close()
    stream.close()
    net.clock.run()
    assert (bytes(server.last.received), server.last.eof, server.last.lost) == (b"bye", True, [None])
    for call in (lambda: stream.read(1), lambda: stream.write_some(b"x"), stream.half_close, lambda: stream.poll()):
        with pytest.raises(ValueError, match="connection 1 is closed"):
            call()


def test_a_client_that_closes_with_unread_bytes_resets() -> None:
    net = network()
    server = Kept(lambda sink: sink.transport.write(b"answer"))
    stream = net.connect(server)
    stream.send(b"ask")
    stream.poll()
    stream.close()
    net.clock.run()
    (error,) = server.last.lost
    assert isinstance(error, ConnectionResetError)


def test_what_a_server_sends_to_a_closed_client_is_reset_and_no_trip() -> None:
    net = network()
    server = Kept(on_eof=lambda sink: sink.transport.write(b"too late"))
    stream = net.connect(server)
    stream.close()
    net.clock.run()
    assert [type(error) for error in server.last.lost] == [ConnectionResetError]
    assert net.take().rounds == 1  # the handshake


def test_a_server_that_closes_on_unread_input_resets_the_client() -> None:
    def answer(sink: Sink) -> None:
        sink.transport.write(b"no")
        sink.transport.close()

    net = network(1.0, rate=1000)
    stream = net.connect(Kept(answer))
    stream.send(bytes(3000))
    assert stream.read(9) == b"no"
    stream.poll(False, False, timeout=5.0)
    with pytest.raises(ConnectionResetError, match="it had closed the connection"):
        stream.write_some(b"x")
    with pytest.raises(ConnectionResetError):
        stream.read(1)
    assert stream.poll(True, True) == (True, True)


def test_write_after_close_is_a_bug() -> None:
    server = Kept()
    net = network()
    net.connect(server, handshake=False)
    server.last.transport.close()
    with pytest.raises(ValueError, match="write after close"):
        server.last.transport.write(b"x")


def test_abort_loses_the_connection_for_both() -> None:
    net = network()
    server = Kept(lambda sink: sink.transport.abort())
    stream = net.connect(server, handshake=False)
    stream.send(b"x")
    with pytest.raises(ConnectionResetError):
        stream.read(1)
    assert net.clock.now == 1.0
    assert [type(error) for error in server.last.lost] == [ConnectionAbortedError]
    server.last.transport.write(b"goes nowhere")
    with pytest.raises(Deadlock):
        network().connect(server).read(1)


def test_half_close_lets_the_answer_through() -> None:
    def answer(sink: Sink) -> None:
        sink.transport.write(b"%d bytes" % len(sink.received))
        sink.transport.close()

    net = network()
    server = Kept(on_eof=answer)
    stream = net.connect(server)
    stream.send(b"12345")
    stream.half_close()
    assert read_all(stream) == b"5 bytes"
    assert net.take().rounds == 2
    assert server.last.lost == [None]
    with pytest.raises(ValueError, match="write after half_close"):
        stream.write_some(b"x")


def test_poll_timeout() -> None:
    net = network()
    stream = net.connect(Echo, handshake=False)
    stream.send(b"x")
    assert stream.poll(True, False, 0.25) == (False, False)
    assert net.clock.now == 0.25
    assert stream.poll(read=False, write=False, timeout=0.25) == (False, False)
    assert stream.poll(read=True, write=False, timeout=0.5) == (True, False)
    assert net.clock.now == 1.0
    with pytest.raises(ValueError, match="poll for nothing"):
        stream.poll(False, False)


def test_the_socket_buffer_fills_at_the_rate_and_empties_with_it() -> None:
    net = network(1.0, rate=10_000, buffer=30_000)
    stream = net.connect(Kept(), handshake=False)
    assert stream.write_some(bytes(50_000)) == 30_000
    assert stream.write_some(b"x") == 0
    assert not stream.writable()
    assert stream.poll(False, True) == (False, True)
    assert net.clock.now == pytest.approx(1.0, abs=0.15)
    assert stream.write_some(bytes(50_000)) >= 10_000


def test_a_buffer_that_was_handed_over_may_be_reused() -> None:
    net = network()
    stream = net.connect(Echo)
    text = bytearray(b"abc")
    stream.write_some(memoryview(text))
    text[:] = b"xyz"
    assert stream.read(9) == b"abc"


@given(
    sizes=st.lists(st.integers(1, 1500), min_size=1, max_size=12),
    reads=st.integers(1, 3000),
    rtt=st.sampled_from([0.0, 0.1, 1.0]),
    rate=st.sampled_from([None, 1000.0, 123_456.0]),
    buffer=st.integers(1, 8000),
    window=st.integers(1, 8000),
)
def test_bytes_arrive_in_order_whatever_the_link(
    sizes: list[int], reads: int, rtt: float, rate: float | None, buffer: int, window: int
) -> None:
    net = network(rtt, rate, buffer=buffer, window=window)
    stream = net.connect(Echo)
    texts = [bytes([n]) * size for n, size in enumerate(sizes)]
    rest, got = memoryview(b"".join(texts)), b""
    while rest:
        readable, writable = stream.poll(True, True)
        if readable:
            got += stream.read(reads)
        if writable:
            rest = rest[stream.write_some(rest) :]
    stream.half_close()
    while more := stream.read(reads):
        got += more
    assert got == b"".join(texts)
    counts = net.take()
    assert (counts.bytes_up, counts.bytes_down) == (len(got), len(got))


@dataclass
class Bank:
    """A server that does something when a whole order is there, and says so; a client that sends two."""

    network: SimulatedNetwork
    done: list[bytes] = field(default_factory=list)

    def serve(self, sink: Sink) -> None:
        while b";" in sink.received:
            order, _, rest = bytes(sink.received).partition(b";")
            sink.received[:] = rest
            self.done.append(order)
            sink.transport.write(b"done")

    def order(self, *orders: bytes) -> int:
        stream = self.network.connect(Kept(self.serve))
        for order in orders:
            stream.send(order)
            stream.send(b";")
        answer = b""
        while len(answer) < 4 * len(orders):
            more = stream.read(100)
            if not more:
                raise ConnectionResetError("ended early")
            answer += more
        stream.close()
        return len(orders)


def make() -> tuple[SimulatedNetwork, Bank]:
    network = SimulatedNetwork(Link(1.0))
    return network, Bank(network)


def test_every_boundary_and_a_sample_between() -> None:
    trials: list[Trial[Bank]] = []
    places = cut_everywhere(make, lambda bank: bank.order(b"abcdef", b"ghi"), trials.append, inside=3)
    up = [place for place in places if place.up]
    down = [place for place in places if not place.up]
    assert [place.after for place in up if place.boundary] == [0, 6, 7, 10, 11]
    assert [place.after for place in down if place.boundary] == [0, 4, 8]
    assert [sum(not place.boundary for place in way) for way in (up, down)] == [3, 3]
    assert [trial.point for trial in trials] == places
    for trial in trials:
        expected = 2 if not trial.point.up or trial.point.after == 11 else trial.point.after // 7
        assert len(trial.state.done) == expected, trial.point
        whole = not trial.point.up and trial.point.after == 8
        assert (trial.result, trial.error is None) == ((2, True) if whole else (None, False))


def test_the_sample_is_the_seeds() -> None:
    def places(seed: int) -> list[CutPoint]:
        return cut_everywhere(make, lambda bank: bank.order(bytes(500)), lambda trial: None, inside=4, seed=seed)

    assert places(1) == places(1) != places(2)


def test_each_connection_of_the_operation_is_cut_and_no_other() -> None:
    def held() -> tuple[SimulatedNetwork, Bank]:
        network, bank = make()
        bank.order(b"before")
        return network, bank

    opened: list[tuple[int, bool]] = []

    def operation(bank: Bank) -> None:
        bank.order(b"one")
        bank.order(b"two")

    def check(trial: Trial[Bank]) -> None:
        opened.append((trial.point.connection, trial.error is None))
        assert (trial.state.done[1:2] == [b"one"]) or trial.point.connection == 1

    cut_everywhere(held, operation, check, inside=0)
    assert {number for number, _ in opened} == {1, 2}
    assert [fine for _, fine in opened].count(True) == 2  # Behind the last byte of each answer.


@pytest.mark.parametrize(("attempts", "fails"), [(1, False), (2, False), (3, True)])
def test_an_operation_that_tries_again(attempts: int, fails: bool) -> None:
    def operation(bank: Bank) -> int:
        for left in (2, 1, 0):
            try:
                return bank.order(b"abc")
            except ConnectionError:
                if not left:
                    raise
        raise AssertionError

    errors: list[bool] = []
    cut_everywhere(make, operation, lambda trial: errors.append(trial.error is not None), attempts=attempts)
    assert any(errors) is fails


@pytest.mark.parametrize(("inside", "expected"), [(0, 0), (3, 3), (4, 4), (9, 4), (None, 4)])
def test_a_sample_is_as_large_as_was_asked_or_all(inside: int | None, expected: int) -> None:
    """Six bytes up, two of which are where a frame ends."""
    places = cut_everywhere(
        make, lambda bank: bank.order(b"abcde"), lambda _: None, frames=lambda _: [1], inside=inside
    )
    up = [place for place in places if place.up]
    assert ([place.after for place in up if place.boundary], len(up) - 2) == ([0, 1], expected)


def test_an_exception_says_where_the_link_was_cut() -> None:
    def check(trial: Trial[Bank]) -> None:
        assert trial.point.after != 3

    with pytest.raises(AssertionError) as caught:
        cut_everywhere(make, lambda bank: bank.order(b"abcdef"), check, inside=None, seed=7)
    assert caught.value.__notes__ == ["the link was cut: connection 1, up, after 3 bytes; seed 7"]


def test_what_is_no_lost_connection_is_not_expected() -> None:
    def operation(bank: Bank) -> None:
        try:
            bank.order(b"abcdef")
        except ConnectionError:
            raise KeyError("a bug") from None

    with pytest.raises(KeyError) as caught:
        cut_everywhere(make, operation, lambda trial: None)
    assert caught.value.__notes__ == ["the link was cut: connection 1, up, after 0 bytes (a boundary); seed 0"]
    cut_everywhere(make, operation, lambda trial: None, lost=(KeyError,))


def test_an_operation_that_opens_no_connection_is_refused() -> None:
    with pytest.raises(ValueError, match="opened no connection"):
        cut_everywhere(make, lambda bank: None, lambda trial: None)


@pytest.mark.parametrize(
    ("words", "shown"), [("cut_everywhere(", "len(places) > 5"), ("class Echo", "network.clock.now == 2.0")]
)
def test_the_examples_of_the_reference_run(words: str, shown: str) -> None:
    text = (Path(__file__).parents[3] / "doc/reference/netem.md").read_text(encoding="utf-8")
    (example,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if words in block]
    names: dict[str, object] = {}
    exec(example, names)
    assert eval(shown, names)


@pytest.mark.parametrize("end", [-1, 12])
def test_a_frame_that_ends_outside_the_stream_is_refused(end: int) -> None:
    """Eleven bytes go up: nothing would ever be cut there."""
    with pytest.raises(ValueError, match=f"connection 1, up: a frame ends at {end}, of 11 bytes"):
        cut_everywhere(make, lambda bank: bank.order(b"abcdef", b"ghi"), lambda _: None, frames=lambda _: [6, end])


def test_a_trial_in_which_nothing_was_cut_fails() -> None:
    """The second time the operation sends less."""
    orders = iter([b"abcdef"])
    with pytest.raises(AssertionError, match="nothing was cut: 2 bytes came this time") as caught:
        cut_everywhere(make, lambda bank: bank.order(next(orders, b"a")), lambda _: None, inside=0)
    assert "connection 1, up, after 6 bytes" in caught.value.__notes__[0]


def test_a_direction_that_carried_nothing_is_not_cut() -> None:
    def tell(bank: Bank) -> None:
        stream = bank.network.connect(Kept())
        stream.send(b"abc")
        stream.close()
        bank.network.clock.run()

    places = cut_everywhere(make, tell, lambda _: None, inside=None)
    assert [(place.up, place.after) for place in places] == [(True, 0), (True, 1), (True, 2), (True, 3)]

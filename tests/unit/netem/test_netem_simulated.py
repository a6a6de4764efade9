from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_servers import Echo, Kept, Sink

from netem.effects import Cut, Delay, Loss, Stall
from netem.link import Link
from netem.simulated import Deadlock, ServerTransport, SimulatedNetwork, SimulatedStream


def network(rtt: float = 1.0, rate: float | None = None, **options: object) -> SimulatedNetwork:
    return SimulatedNetwork(Link(rtt, rate, **options))  # type: ignore[arg-type]


def read_all(stream: SimulatedStream) -> bytes:
    return b"".join(iter(lambda: stream.read(1 << 20), b""))


def ask(stream: SimulatedStream, text: bytes = b"ask") -> bytes:
    stream.send(text)
    answer = b""
    while len(answer) < len(text):
        answer += stream.read(100)
    return answer


# Round trips


def test_a_request_on_a_fresh_connection_is_two() -> None:
    net = network()
    assert ask(net.connect(Echo)) == b"ask"
    counts = net.take()
    assert (counts.rounds, counts.rounds_without_handshake, counts.handshake_rounds) == (2, 1, 1)
    assert (counts.application_rounds, counts.application_rounds_without_handshake) == (2.0, 1.0)
    assert (counts.connections, counts.bytes_up, counts.bytes_down, counts.seconds) == (1, 3, 3, 2.0)
    assert net.clock.now == 2.0


def test_a_held_connection_costs_one_each() -> None:
    net = network(0.3)
    stream = net.connect(Echo, handshake=False)
    for _ in range(5):
        ask(stream)
        counts = net.take()
        assert (counts.rounds, counts.application_rounds, counts.handshake_rounds) == (1, 1.0, 0)


@pytest.mark.parametrize("times", [1, 2, 7])
def test_ping_pong(times: int) -> None:
    net = network(0.1)
    stream = net.connect(Echo, handshake=False)
    for _ in range(times):
        ask(stream)
    counts = net.take()
    assert (counts.rounds, counts.application_rounds, counts.flights_up) == (times, times, times)


def test_pipelined_requests_are_one() -> None:
    net = network()
    stream = net.connect(Echo, handshake=False)
    for n in range(20):
        stream.write_some(bytes([n]))
    got = b""
    while len(got) < 20:
        got += stream.read(100)
    counts = net.take()
    assert got == bytes(range(20))
    assert (counts.rounds, counts.application_rounds, counts.flights_up, counts.flights_down) == (1, 1.0, 1, 1)


def test_two_connections_one_after_the_other_and_side_by_side() -> None:
    net = network()
    ask(net.connect(Echo))
    ask(net.connect(Echo))
    assert (net.take().rounds, net.clock.now) == (4, 4.0)
    one, two = net.connect(Echo, handshake=False), net.connect(Echo, handshake=False)
    one.send(b"a")
    two.send(b"b")
    assert one.read(9) + two.read(9) == b"ab"
    counts = net.take()
    assert (counts.rounds, counts.application_rounds, counts.connections) == (1, 1.0, 2)


def test_full_duplex_streaming_is_not_counted_as_many() -> None:
    def stream_down(sink: Sink) -> None:
        sink.transport.write(b"progress" * 100)

    net = network(1.0, rate=1e6)
    stream = net.connect(Kept(stream_down), handshake=False)
    for _ in range(100):
        stream.send(bytes(4000))
    while stream.poll(True, False, timeout=2.0)[0]:
        stream.read(1 << 20)
    counts = net.take()
    # 0.4 s of streaming both ways: a direction count would say about 100.
    assert (counts.bytes_up, counts.bytes_down // 800 >= 100) == (400_000, True)
    assert counts.rounds == 1


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


def test_the_greeting_of_a_server_takes_two_round_trips() -> None:
    class Greeter(Echo):
        def __init__(self, transport: ServerTransport) -> None:
            super().__init__(transport)
            transport.write(b"hello")

    net = network()
    assert net.connect(Greeter).read(9) == b"hello"
    counts = net.take()
    assert (counts.rounds, counts.application_rounds, net.clock.now) == (2, 2.0, 2.0)


def test_timers_are_in_the_waiting_but_not_in_the_depth() -> None:
    class Slow(Echo):
        def data_received(self, data: bytes) -> None:
            net.clock.call_later(5, lambda: self.transport.write(data))

    net = network()
    ask(net.connect(Slow, handshake=False))
    counts = net.take()
    assert (counts.rounds, counts.application_rounds) == (1, 6.0)


def test_extra_delay_makes_a_longer_round_trip() -> None:
    net = network(1.0, down=[Delay(0.5)])
    ask(net.connect(Echo))
    counts = net.take()
    assert (net.clock.now, counts.application_rounds, counts.rounds) == (3.0, 2.0, 2)


def test_a_link_without_delay_counts_depth_alone() -> None:
    net = network(0)
    ask(net.connect(Echo))
    counts = net.take()
    assert (counts.rounds, counts.application_rounds, net.clock.now) == (2, None, 0.0)


def test_take_begins_anew_and_counts_does_not() -> None:
    net = network()
    ask(net.connect(Echo))
    assert net.counts() == net.counts() == net.take()
    assert not net.take().used


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


# The stream


def test_read_gives_at_most_what_was_asked_and_then_the_end() -> None:
    stream = network().connect(Echo)
    stream.send(b"abcdef")
    stream.half_close()
    assert [stream.read(4), stream.read(4), stream.read(4), stream.read(4)] == [b"abcd", b"ef", b"", b""]


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


def test_nothing_passes_time_but_waiting() -> None:
    net = network()
    stream = net.connect(Echo)
    begun = net.clock.now
    stream.write_some(b"x")
    assert not stream.readable()
    assert stream.writable()
    assert net.clock.now == begun
    assert stream.poll(True, True) == (False, True)
    assert net.clock.now == begun
    assert stream.poll(True, False) == (True, False)
    assert net.clock.now == begun + 1.0


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


def test_nobody_listens() -> None:
    net = network()
    with pytest.raises(ConnectionRefusedError, match="nobody listens"):
        net.connect(None)
    counts = net.take()
    assert (net.clock.now, counts.rounds, counts.application_rounds) == (1.0, 1, 1.0)


def test_an_exception_in_the_server_reaches_the_waiting_client() -> None:
    def fail(_: Sink) -> None:
        raise RuntimeError("bug in the server")

    stream = network().connect(Kept(fail))
    stream.send(b"x")
    with pytest.raises(RuntimeError, match="bug in the server"):
        stream.read(1)


# Ends


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


@pytest.mark.parametrize("after", [0, 1, 5, 9])
def test_cut_upward(after: int) -> None:
    net = network(1.0, up=[Cut(after)])
    server = Kept()
    stream = net.connect(server)
    stream.send(b"0123456789")
    with pytest.raises(ConnectionResetError, match="cut"):
        stream.read(1)
    assert bytes(server.last.received) == b"0123456789"[:after]
    assert [type(error) for error in server.last.lost] == [ConnectionResetError]


@pytest.mark.parametrize("after", [0, 1, 5, 9])
def test_cut_downward(after: int) -> None:
    net = network(1.0, down=[Cut(after)])
    stream = net.connect(Echo)
    stream.send(b"0123456789")
    got = b""
    while len(got) < after:
        got += stream.read(3)
    with pytest.raises(ConnectionResetError, match="cut"):
        stream.read(3)
    assert got == b"0123456789"[:after]


def test_stall_for_a_time() -> None:
    net = network(1.0, down=[Stall(2, 10.0)])
    stream = net.connect(Echo, handshake=False)
    stream.send(b"abcd")
    assert (stream.read(9), net.clock.now) == (b"ab", 1.0)
    assert (stream.read(9), net.clock.now) == (b"cd", 11.0)


# The server's transport


def producer(size: int, piece: int, high: int) -> tuple[Kept, list[int]]:
    """A server that on its first byte sends `size` bytes, stopping at `high` pending; and the most that ever waited."""
    state = {"left": size}
    most = [0]

    def more(sink: Sink) -> None:
        while state["left"] and sink.transport.pending() < high:
            sink.transport.write(bytes(min(piece, state["left"])))
            state["left"] -= min(piece, state["left"])
            most[0] = max(most[0], sink.transport.pending())
        if not state["left"]:
            sink.transport.close()

    def begin(sink: Sink) -> None:
        sink.transport.want_more = lambda: more(sink)
        more(sink)

    return Kept(begin), most


def test_a_push_producer_over_a_slow_link() -> None:
    server, most = producer(1_000_000, 10_000, high=100_000)
    net = network(1.0, rate=1e6)
    stream = net.connect(server, handshake=False)
    stream.send(b"x")
    assert len(read_all(stream)) == 1_000_000
    assert net.clock.now == pytest.approx(2.0, abs=0.01)
    assert most[0] <= 110_000
    assert net.take().rounds == 1


def test_a_producer_waits_for_a_client_that_does_not_read() -> None:
    server, most = producer(1_000_000, 10_000, high=50_000)
    net = network(1.0, window=100_000)
    stream = net.connect(server, handshake=False)
    stream.send(b"x")
    stream.poll(False, False, timeout=60.0)
    transport = server.last.transport
    assert transport.pending() >= 50_000
    assert most[0] <= 60_000
    assert len(read_all(stream)) == 1_000_000
    assert transport.pending() == 0


def test_want_more_is_called_after_writes_and_not_from_inside_them() -> None:
    calls: list[str] = []

    def begin(sink: Sink) -> None:
        sink.transport.want_more = lambda: calls.append("more")
        sink.transport.write(b"one")
        sink.transport.write(b"two")
        calls.append("written")

    net = network()
    stream = net.connect(Kept(begin), handshake=False)
    stream.send(b"x")
    stream.read(1)
    net.clock.run()
    assert calls == ["written", "more"]


def test_want_more_waits_for_the_low_water_mark() -> None:
    asked: list[tuple[float, int]] = []

    def begin(sink: Sink) -> None:
        transport = sink.transport
        transport.low_water = 2000
        transport.want_more = lambda: asked.append((net.clock.now, transport.pending()))
        transport.write(bytes(10_000))

    net = network(1.0, rate=1000)
    stream = net.connect(Kept(begin), handshake=False)
    stream.send(b"x")
    net.clock.run()
    assert 8.5 < asked[0][0] < 10.0
    assert [pending for _, pending in asked] == sorted((pending for _, pending in asked), reverse=True)
    assert asked[0][1] < 2000
    assert asked[-1][1] == 0


# Whatever is sent arrives


@given(
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=12),
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


def test_a_run_is_the_same_each_time() -> None:
    def run() -> tuple[float, object]:
        server, _ = producer(300_000, 7000, high=50_000)
        net = network(0.3, rate=1e5)
        stream = net.connect(server)
        stream.send(b"x")
        read_all(stream)
        return net.clock.now, net.take()

    assert run() == run()


def test_the_example_of_the_reference_runs() -> None:
    text = (Path(__file__).parents[3] / "doc/reference/netem.md").read_text(encoding="utf-8")
    (example,) = [
        block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "SimulatedNetwork(Link" in block
    ]
    names: dict[str, object] = {}
    exec(example, names)
    made = names["network"]
    assert isinstance(made, SimulatedNetwork)
    assert made.clock.now == 2.0


def test_a_change_of_the_link_heals_open_connections() -> None:
    network = SimulatedNetwork(Link(rtt=1.0, up=[Stall(2)]))
    stream = network.connect(Echo)
    stream.send(b"abcd")
    assert stream.poll(timeout=5.0) == (True, False)
    assert stream.read(10) == b"ab"
    assert stream.poll(timeout=5.0) == (False, False)
    network.change(Link(rtt=0.1))
    begun = network.clock.now
    assert stream.read(10) == b"cd"
    assert network.clock.now - begun == pytest.approx(0.1)
    with pytest.raises(ValueError, match="loss is of packets"):
        network.change(Link(rtt=0.1, up=[Loss(0.5)]))

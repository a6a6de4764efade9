from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_servers import Echo, Kept, Sink, Ticking, ask, network

from netem.counter import Counts
from netem.effects import Corrupt, Delay, Stall
from netem.link import Link
from netem.simulated import Deadlock, SimulatedNetwork, SimulatedStream


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

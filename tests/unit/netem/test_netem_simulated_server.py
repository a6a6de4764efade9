"""netem.simulated_server: the server's end."""

from __future__ import annotations

from simulated_servers import Kept, Sink, network, producer, read_all


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

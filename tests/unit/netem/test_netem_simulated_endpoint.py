"""netem.simulated_endpoint: how connections end, politely and reset, and who learns of it."""

from __future__ import annotations

import pytest
from simulated_servers import Kept, Sink, network

from netem.simulated import Deadlock
from netem.simulated_endpoint import Endpoint
from netem.simulated_server import ServerTransport
from netem.simulated_stream import SimulatedStream


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

"""netem.simulated_stream: the client's end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_servers import Echo, Kept, Sink, network, read_all


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

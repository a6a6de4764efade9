"""netem.tcp_model: the windows alone, on the simulated network, and beside what a kernel did."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_servers import Sink

from netem.effects import Delay
from netem.link import Link
from netem.simulated import ServerTransport, SimulatedNetwork, SimulatedStream
from netem.tcp_model import TcpModel

KERNEL_AT_1000_MS = {
    # size: (cold, warm, idle for 5 s, the same with tcp_slow_start_after_idle=0)
    1_000: (1.00, 1.00, 1.00, 1.00),
    10_000: (1.00, 1.00, 1.00, 1.00),
    14_000: (1.01, 1.00, 1.00, 1.00),
    14_600: (2.00, 1.00, 2.00, 1.00),
    20_000: (2.00, 1.00, 2.00, 1.00),
    43_000: (2.00, 1.00, 2.00, 1.00),
    100_000: (3.01, 2.00, 3.00, 1.00),
    1_000_000: (7.01, 2.00, 4.01, 2.03),
    10_000_000: (10.04, 2.02, 4.02, 1.02),
}
"""Round trips from the first byte sent to a reply of one byte: Linux 6.18, cubic, initial window 10, segments of 1448,
between two network namespaces with a packet emulator of 1000 ms between them. Each size had one connection, which sent
it cold, at once again (warm), and again 5 s after that answer."""

KERNEL_IDLE_AT_100_MS = {1_000_000: 7.05, 10_000_000: 10.10}
"""The same, idle for 5 s, at 100 ms: sixteen timeouts and not four, so the window is the initial one again."""


class Asked(Sink):
    """Takes requests of `size`, and answers each with `answer` bytes."""

    def __init__(self, transport: ServerTransport, size: int, answer: int) -> None:
        super().__init__(transport, on_eof=lambda sink: sink.transport.close())
        self.size, self.answer = size, answer

    def data_received(self, data: bytes) -> None:
        self.received += data
        while len(self.received) >= self.size:
            del self.received[: self.size]
            self.transport.write(bytes(self.answer))


def connected(link: Link, up: int, down: int) -> tuple[SimulatedNetwork, SimulatedStream]:
    network = SimulatedNetwork(link)
    return network, network.connect(lambda transport: Asked(transport, up, down), handshake=False)


def ask(network: SimulatedNetwork, stream: SimulatedStream, up: int, down: int) -> float:
    """Application rounds of one request."""
    network.take()
    stream.send(bytes(up))
    while down:
        down -= len(stream.read(down))
    rounds = network.take().application_rounds
    assert rounds is not None
    return rounds


# Against a kernel


def test_all_cells_but_two_are_the_kernels() -> None:
    """The two err downward: the kernel's window had not grown with the last flight of the request before."""
    other: list[tuple[int, str, int, int]] = []
    for size, (cold, warm, idle, kept) in KERNEL_AT_1000_MS.items():
        for restart, last, name in ((True, idle, "idle"), (False, kept, "kept")):
            network, stream = connected(Link(1.0, tcp=TcpModel(idle_restart=restart)), size, 1)
            found = [ask(network, stream, size, 1) for _ in range(2)]
            network.clock.sleep(5.0)
            found.append(ask(network, stream, size, 1))
            for mine, theirs, which in zip(found, (cold, warm, last), ("cold", "warm", name), strict=True):
                if mine != round(theirs):
                    other.append((size, which, round(mine), round(theirs)))
    assert sorted(set(other)) == [(100_000, "warm", 1, 2), (1_000_000, "kept", 1, 2)]


@pytest.mark.parametrize("size", KERNEL_IDLE_AT_100_MS)
def test_idleness_counts_in_timeouts_not_in_seconds(size: int) -> None:
    network, stream = connected(Link(0.1, tcp=TcpModel()), size, 1)
    for _ in range(2):
        ask(network, stream, size, 1)
    network.clock.sleep(5.0)
    assert ask(network, stream, size, 1) == round(KERNEL_IDLE_AT_100_MS[size])


# The windows


@given(
    size=st.integers(1, 500_000),
    up=st.booleans(),
    model=st.builds(TcpModel, st.integers(1, 32), st.integers(200, 1448), st.booleans()),
    rtt=st.sampled_from([0.001, 0.1, 1.0]),
    delay=st.sampled_from([0.0, 0.03]),
    buffer=st.integers(300, 200_000),
)
def test_bulk_one_way_takes_what_the_closed_form_says(
    size: int, up: bool, model: TcpModel, rtt: float, delay: float, buffer: int
) -> None:
    """Without a limit of rate, in each direction, however small the socket buffer, and with unequal ways."""
    link = Link(rtt, tcp=model, up=[Delay(delay)], buffer=buffer)
    sent, answered = (size, 1) if up else (1, size)
    network, stream = connected(link, sent, answered)
    begun = network.clock.nanoseconds
    assert ask(network, stream, sent, answered) == model.rounds(size)
    assert network.clock.nanoseconds - begun == model.rounds(size) * link.round_trip


def test_each_direction_and_connection_has_its_own_window() -> None:
    network, stream = connected(Link(1.0, tcp=TcpModel(idle_restart=False)), 100_000, 100_000)
    # The answer begins when the last of the three flights is there, and takes three itself.
    assert ask(network, stream, 100_000, 100_000) == 2.5 + 2.5
    assert ask(network, stream, 100_000, 100_000) == 1
    other = network.connect(lambda transport: Asked(transport, 100_000, 1), handshake=False)
    assert ask(network, other, 100_000, 1) == 3


def test_a_window_that_was_not_used_does_not_grow() -> None:
    """Small requests on a held connection leave it where it was, however many they are."""
    network, stream = connected(Link(1.0, tcp=TcpModel()), 1000, 1)
    for _ in range(20):
        assert ask(network, stream, 1000, 1) == 1
    assert ask(network, stream, 20_000, 20) == 2


def test_looking_at_an_idle_window_does_not_change_it() -> None:
    window = TcpModel(10, 100).begin(1_000_000_000)
    window.sent(0, 1000)
    window.acknowledged(1000)
    window.sent(1, 2000)
    window.acknowledged(2000)
    assert window.size == 4000
    seconds = [(at, window.room(1 + int(at * 1e9))) for at in (1.2, 1.3, 2.4, 2.5, 9.0, 1.2)]
    assert seconds == [(1.2, 4000), (1.3, 2000), (2.4, 2000), (2.5, 1000), (9.0, 1000), (1.2, 4000)]
    window.sent(2_500_000_002, 10)
    assert window.size == 1000
    assert window.room(10**12) == 990  # Something is under way: that is no idleness.


def test_a_connection_keeps_its_window_when_its_link_changes() -> None:
    network, stream = connected(Link(1.0, tcp=TcpModel()), 43_000, 1)
    assert ask(network, stream, 43_000, 1) == 2
    network.change(Link(3.0))
    network.clock.sleep(1.0)  # With the last round trip more than one timeout of the former link, and not of this one.
    assert ask(network, stream, 43_000, 1) == 1


def test_what_waits_for_the_window_is_pending_at_the_server() -> None:
    made: list[ServerTransport] = []

    def accept(transport: ServerTransport) -> Asked:
        made.append(transport)
        return Asked(transport, 1, 50_000)

    network = SimulatedNetwork(Link(1.0, tcp=TcpModel()))
    stream = network.connect(accept, handshake=False)
    stream.send(b"x")
    network.clock.sleep(0.5)
    assert made[0].pending() == 50_000 - 14_480
    network.clock.sleep(1.0)
    assert made[0].pending() == 50_000 - 43_440


def test_the_end_of_a_stream_follows_what_waited_for_the_window() -> None:
    network = SimulatedNetwork(Link(1.0, tcp=TcpModel()))
    stream = network.connect(lambda transport: Asked(transport, 10**9, 1), handshake=False)
    stream.send(bytes(50_000))
    stream.half_close()
    assert stream.read(1) == b""
    assert network.clock.now == 3.0


def test_a_rate_and_a_window_go_together() -> None:
    """Ten seconds at the rate, one round trip, and what the link stands idle while the first flights are small."""
    network, stream = connected(Link(1.0, rate=100_000.0, tcp=TcpModel()), 1_000_000, 1)
    stream.send(bytes(1_000_000))
    stream.read(1)
    idle = sum(1 - flight * 14_480 / 100_000 for flight in (1, 2, 4))
    assert network.clock.now == pytest.approx(10 + 1 + idle, abs=0.05)


@pytest.mark.parametrize(("initial_window", "segment"), [(0, 1448), (10, 0)])
def test_a_window_that_lets_nothing_through_is_refused(initial_window: int, segment: int) -> None:
    with pytest.raises(ValueError, match="expected 1 or more"):
        TcpModel(initial_window, segment)

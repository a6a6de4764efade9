from __future__ import annotations

import pytest
from simulated_servers import Echo

from netem.link import Link
from netem.meter import doubt, fit, slope
from netem.simulated import SimulatedNetwork


def test_a_line_is_found_exactly() -> None:
    found = slope(lambda rtt: 2 * rtt + 0.3)
    assert found.rounds == pytest.approx(2)
    assert found.intercept == pytest.approx(0.3)
    assert found.residual == pytest.approx(0, abs=1e-12)


def test_the_residual_shows_what_is_no_line() -> None:
    assert slope(lambda rtt: rtt**2).residual > 0.05
    noisy = fit([(0, 1.0), (1, 2.1), (2, 2.9), (3, 4.0)])
    assert noisy.rounds == pytest.approx(0.98)
    assert noisy.residual == pytest.approx(0.09)


def test_the_rtts_take_turns() -> None:
    seen: list[float] = []

    def run(rtt: float) -> float:
        seen.append(rtt)
        return rtt

    found = slope(run, rtts=(0.1, 0.2, 0.3), repeat=2)
    assert seen == [0.1, 0.2, 0.3, 0.1, 0.2, 0.3]
    assert [x for x, _ in found.points] == seen


def test_it_agrees_with_the_simulator_and_timers_go_to_the_intercept() -> None:
    class Slow(Echo):
        def data_received(self, data: bytes) -> None:
            net.clock.call_later(0.25, lambda: self.transport.write(data))

    net = SimulatedNetwork(Link(0))

    def run(rtt: float) -> float:
        nonlocal net
        net = SimulatedNetwork(Link(rtt))
        stream = net.connect(Slow)
        for _ in range(3):
            stream.send(b"x")
            stream.read(1)
        return net.clock.now

    found = slope(run)
    assert found.rounds == pytest.approx(4)
    assert found.intercept == pytest.approx(0.75)


def test_too_little_to_see_a_line_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 3 or more"):
        slope(lambda rtt: rtt, rtts=(0.1, 0.2, 0.2))
    with pytest.raises(ValueError, match="expected 1 or more"):
        slope(lambda rtt: rtt, repeat=0)
    with pytest.raises(ValueError, match="the same RTT"):
        fit([(1, 1), (1, 2)])


@pytest.mark.parametrize(
    ("late", "off", "why"),
    [
        (0.004, 0.0, ""),
        (0.0041, 0.0, "a timer came 4.1 ms late, where 4.0 ms are the most (2% of the smallest RTT): this machine"),
        (0.0, 0.149, ""),
        (
            0.0,
            0.156,
            "a run lies 104 ms off the line, where 100 ms are the most (10% of the greatest RTT): the machine",
        ),
        (0.01, 1.0, "a timer came"),
    ],
)
def test_what_is_not_to_be_judged(late: float, off: float, why: str) -> None:
    """Of three runs, one at each RTT, the middle one is off: by a third of it the line moves."""
    found = fit([(0.2, 0.4), (0.6, 1.2 + off), (1.0, 2.0)])
    assert found.residual == pytest.approx(off * 2 / 3)
    assert doubt(found, late).startswith(why)
    assert bool(doubt(found, late)) is bool(why)

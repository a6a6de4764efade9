from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from simulated_servers import Kept, Sink

from netem.cut_everywhere import CutPoint, Trial, cut_everywhere
from netem.link import Link
from netem.simulated import SimulatedNetwork


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

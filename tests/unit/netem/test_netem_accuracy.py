from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from netem.accuracy import ECHOES, Accuracy, Lateness, lateness, measure, table


@dataclass
class Fake:
    """A millisecond late, one time in fifty ten; a gigabyte and a million exchanges a second."""

    asked: list[tuple[float, int]] = field(default_factory=list)
    name: ClassVar[str] = "a fake"

    def echo(self, rtt: float, count: int) -> Sequence[float]:
        self.asked.append((rtt, count))
        return [rtt + (0.001 if number % 50 else 0.01) for number in range(count)]

    def bulk(self, size: int) -> float:
        return size / 1e9

    def exchanges(self, count: int) -> float:
        return count / 1e6


def test_a_measurement() -> None:
    fake = Fake()
    found = measure(fake)
    assert fake.asked == [(0.01, 300), (0.1, 100), (1.0, 30)] == list(ECHOES.items())
    assert (found.name, found.bytes_per_second, found.messages_per_second) == ("a fake", 1e9, 2e6)
    for late in found.late.values():
        assert [late.p50, late.p99] == pytest.approx([0.001, 0.01])


def test_percentiles() -> None:
    assert lateness(1.0, [1.0]) == Lateness(0.0, 0.0)
    late = lateness(0.0, [float(number) for number in range(100)])
    assert late == Lateness(50.0, 99.0)
    assert lateness(0.0, [float(number) for number in range(1000, 0, -1)]) == Lateness(501.0, 991.0)


def test_the_table() -> None:
    slow = Accuracy("slow", {0.01: Lateness(0.0005, 0.0123), 1.0: Lateness(0.001, 0.002)}, 1_234_567_890.0, 26_429.3)
    exact = Accuracy("exact", {0.01: Lateness(0.0, 0.0), 1.0: Lateness(0.0, 0.0)}, 5e6, 1.0)
    assert table([slow, exact]).splitlines() == [
        "| network | late at 10 ms, p50 / p99 | late at 1000 ms, p50 / p99 | MB/s | messages/s |",
        "|---|---|---|---|---|",
        "| slow | 0.50 / 12.30 ms | 1.00 / 2.00 ms | 1,235 | 26,429 |",
        "| exact | 0.00 / 0.00 ms | 0.00 / 0.00 ms | 5 | 1 |",
    ]

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

import netem.accuracy
from netem.accuracy import BUSY, ECHOES, Accuracy, Late, measure, table, timers
from netem.lateness import Lateness


@dataclass
class Fake:
    """A millisecond late, three times in a hundred ten; a gigabyte, a million packets and exchanges a second."""

    asked: list[tuple[float, int]] = field(default_factory=list)
    name: ClassVar[str] = "a fake"

    def echo(self, rtt: float, count: int) -> Sequence[float]:
        self.asked.append((rtt, count))
        return [rtt + (0.001 if number % 33 else 0.01) for number in range(count)]

    def bulk(self, size: int) -> float:
        return size / 1e9

    def packets(self) -> int | None:
        return 400_000

    def exchanges(self, count: int) -> float:
        return count / 1e6


class Clockwork:
    """A timer that is late by what the test says."""

    p99 = 0.0

    def __enter__(self) -> Clockwork:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netem.accuracy, "Timekeeping", Clockwork)
    monkeypatch.setattr(Clockwork, "p99", 0.007)
    fake = Fake()
    found = measure(fake)
    assert fake.asked == [(0.01, 300), (0.1, 100), (1.0, 30)] == list(ECHOES.items())
    assert (found.name, found.bytes_per_second, found.messages_per_second) == ("a fake", 1e9, 2e6)
    assert found.packets_per_second == 1e6
    for late in found.late.values():
        assert [late.answers.median, late.answers.p99, late.timer] == pytest.approx([0.001, 0.01, 0.007])
        assert late.by_the_machine


@pytest.mark.parametrize(
    ("p99", "timer", "machine"),
    [
        (0.010, 0.006, True),
        (0.010, 0.004, False),  # the emulator was late by itself
        (0.0005, BUSY, False),  # nobody asks
        (0.0, 0.020, False),  # virtual time
    ],
)
def test_what_the_machine_made_late(p99: float, timer: float, machine: bool) -> None:
    assert Late(Lateness(0.0, p99, 1.0), timer).by_the_machine is machine


def made(name: str, late: dict[float, Late]) -> Accuracy:
    return Accuracy(name, late, 1.0, None, 1.0)


def test_the_timer_that_is_told_is_the_worst_where_time_passed() -> None:
    virtual = made("virtual", {0.01: Late(Lateness(), 0.9)})
    real = made("real", {0.01: Late(Lateness(0.1, 0.1, 0.1), 0.2), 1.0: Late(Lateness(0.1, 0.1, 0.1), 0.1)})
    assert timers([virtual, real]) == 0.2
    assert timers([]) == timers([virtual]) == 0.0


def test_the_table() -> None:
    late = {0.01: Late(Lateness(0.0005, 0.0123, 0.02), 0.006), 1.0: Late(Lateness(0.001, 0.002, 0.003), 0.0009)}
    slow = Accuracy("slow", late, 1_234_567_890.0, 123_456.7, 26_429.3)
    exact = Accuracy("exact", dict.fromkeys(late, Late(Lateness(), 0.0)), 5e6, None, 1.0)
    assert table([slow, exact]).splitlines() == [
        "| network | late at 10 ms, p50 / p99 | late at 1000 ms, p50 / p99 | MB/s | packets/s | messages/s |",
        "|---|---|---|---|---|---|",
        "| slow | 0.50 / 12.30 ms | 1.00 / 2.00 ms | 1,235 | 123,457 | 26,429 |",
        "| exact | 0.00 / 0.00 ms | 0.00 / 0.00 ms | 5 | - | 1 |",
    ]


def test_the_table_marks_what_the_machine_made_late() -> None:
    late = {0.01: Late(Lateness(0.0005, 0.012, 0.02), 0.006), 1.0: Late(Lateness(0.001, 0.002, 0.003), 0.0)}
    *_, row, empty, meaning = table([Accuracy("busy", late, 5e6, None, 1.0)]).splitlines()
    assert row == "| busy | 0.50 / 12.00 ms* | 1.00 / 2.00 ms | 5 | - | 1 |"
    assert (empty, meaning[0]) == ("", "*")

"""How exact an emulated link is: how late an answer comes beyond the RTT, and how much passes before it is the limit.

A network takes part by three calls (`Measured`); `netem.accuracy_sockets` has them for real sockets, wherever they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

ECHOES = {0.01: 300, 0.1: 100, 1.0: 30}
"""RTT -> exchanges: three to thirty seconds each. Of thirty, p99 is the worst."""

BULK = 400_000_000
"""Bytes of one direction: half a second at the least, on anything that runs today."""

EXCHANGES = 20_000
"""Messages there and back."""


class Measured(Protocol):
    """A network, or its absence."""

    name: ClassVar[str]

    def echo(self, rtt: float, count: int) -> Sequence[float]:
        """Seconds of each of so many exchanges of one byte, one after the other on an open connection."""

    def bulk(self, size: int) -> float:
        """Seconds that so many bytes of one direction take at RTT 0, until the sender knows that they are there."""

    def exchanges(self, count: int) -> float:
        """Seconds that so many exchanges of one byte take at RTT 0, over several connections at once."""


@dataclass(frozen=True)
class Lateness:
    """How much later than the RTT answers came, in seconds."""

    p50: float
    p99: float


@dataclass(frozen=True)
class Accuracy:
    """What was found of one network."""

    name: str
    late: dict[float, Lateness]
    """By RTT."""
    bytes_per_second: float
    messages_per_second: float
    """Each exchange is two."""


def measure(
    network: Measured, *, echoes: dict[float, int] | None = None, bulk: int = BULK, exchanges: int = EXCHANGES
) -> Accuracy:
    """Measure one network; with the usual numbers of exchanges this takes three quarters of a minute."""
    late = {rtt: lateness(rtt, network.echo(rtt, count)) for rtt, count in (echoes or ECHOES).items()}
    return Accuracy(network.name, late, bulk / network.bulk(bulk), 2 * exchanges / network.exchanges(exchanges))


def lateness(rtt: float, seconds: Sequence[float]) -> Lateness:
    """Median and 99th percentile of what these exchanges took beyond `rtt`."""
    late = sorted(each - rtt for each in seconds)
    return Lateness(late[len(late) // 2], late[len(late) * 99 // 100])


def table(found: Sequence[Accuracy]) -> str:
    """Markdown, a network a row; all have the same RTTs."""
    rtts = list(found[0].late)
    lines = [
        "| network | " + " | ".join(f"late at {rtt * 1000:g} ms, p50 / p99" for rtt in rtts) + " | MB/s | messages/s |",
        "|---" * (len(rtts) + 3) + "|",
    ]
    for each in found:
        cells = [f"{late.p50 * 1000:.2f} / {late.p99 * 1000:.2f} ms" for late in each.late.values()]
        cells += [f"{each.bytes_per_second / 1e6:,.0f}", f"{each.messages_per_second:,.0f}"]
        lines.append(f"| {each.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)

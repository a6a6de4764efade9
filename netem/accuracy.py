"""How exact an emulated link is: how late an answer comes beyond the RTT, and how much passes before it is the limit.

A network takes part by four calls (`MeasuredNetwork`); `netem.accuracy_sockets` has three of them for real sockets,
wherever they are. Other work on the machine makes answers late too: a timer of this process runs along. Where the
timer came as late as the answers, the figure is the machine's and is marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from netem.lateness import Lateness
from netem.timekeeping import Timekeeping

ECHOES = {0.01: 300, 0.1: 100, 1.0: 30}
"""RTT -> exchanges: three to thirty seconds each. Of thirty, p99 is the worst."""

BULK = 400_000_000
"""Bytes of one direction: half a second at the least, on anything that runs today."""

EXCHANGES = 20_000
"""Messages there and back."""

BUSY = 0.001
"""Seconds by which 1 timer in 100 may come late, without anybody asking whether the machine is busy."""

MACHINE = "*"
"""Marks what the machine made late."""


class MeasuredNetwork(Protocol):
    """A network, or its absence."""

    name: ClassVar[str]

    def echo(self, rtt: float, count: int) -> Sequence[float]:
        """Seconds of each of so many exchanges of one byte, one after the other on an open connection."""

    def bulk(self, size: int) -> float:
        """Seconds that so many bytes of one direction take at RTT 0, until the sender knows that they are there."""

    def packets(self) -> int | None:
        """Packets of both directions that the last `bulk` took; None where no packets are seen."""

    def exchanges(self, count: int) -> float:
        """Seconds that so many exchanges of one byte take at RTT 0, over several connections at once."""


@dataclass(frozen=True)
class Late:
    """How much later than the RTT answers came, and beside them a timer, in seconds."""

    answers: Lateness
    timer: float
    """99th percentile of a timer of this process meanwhile."""

    @property
    def by_the_machine(self) -> bool:
        """Whether the timer, which no emulator had its hands on, was at least half as late as the answers."""
        return self.timer > BUSY and 2 * self.timer >= self.answers.p99 > 0


@dataclass(frozen=True)
class Accuracy:
    """What was found of one network."""

    name: str
    late: dict[float, Late]
    """By RTT."""
    bytes_per_second: float
    packets_per_second: float | None
    """Of the same bytes, acknowledgements included, as on a wire: a train counts as what it is cut into."""
    messages_per_second: float
    """Each exchange is two."""


def measure(
    network: MeasuredNetwork, *, echoes: dict[float, int] | None = None, bulk: int = BULK, exchanges: int = EXCHANGES
) -> Accuracy:
    """Measure one network; with the usual numbers of exchanges this takes three quarters of a minute."""
    late = {rtt: _late(network, rtt, count) for rtt, count in (echoes or ECHOES).items()}
    seconds = network.bulk(bulk)
    packets = network.packets()
    return Accuracy(
        network.name,
        late,
        bulk / seconds,
        None if packets is None else packets / seconds,
        2 * exchanges / network.exchanges(exchanges),
    )


def _late(network: MeasuredNetwork, rtt: float, count: int) -> Late:
    with Timekeeping() as kept:
        seconds = network.echo(rtt, count)
    return Late(Lateness.of(each - rtt for each in seconds), kept.p99)


def table(found: Sequence[Accuracy]) -> str:
    """Markdown, a network a row; all have the same RTTs. Below, what the mark means, where there is one."""
    rtts = list(found[0].late)
    lines = [
        "| network | "
        + " | ".join(f"late at {rtt * 1000:g} ms, p50 / p99" for rtt in rtts)
        + " | MB/s | packets/s | messages/s |",
        "|---" * (len(rtts) + 4) + "|",
    ]
    for each in found:
        cells = [
            f"{late.answers.median * 1000:.2f} / {late.answers.p99 * 1000:.2f} ms{MACHINE * late.by_the_machine}"
            for late in each.late.values()
        ]
        packets = "-" if each.packets_per_second is None else f"{each.packets_per_second:,.0f}"
        cells += [f"{each.bytes_per_second / 1e6:,.0f}", packets, f"{each.messages_per_second:,.0f}"]
        lines.append(f"| {each.name} | " + " | ".join(cells) + " |")
    if any(late.by_the_machine for each in found for late in each.late.values()):
        lines += ["", f"{MACHINE} the machine's lateness, not the emulator's: a timer of this process came late, too"]
    return "\n".join(lines)


def timers(found: Sequence[Accuracy]) -> float:
    """How late, in seconds, 99 in 100 timers came at the most, beside any of these that took time.

    Virtual time takes none: beside it the timer waits for our own computing.
    """
    return max((late.timer for each in found for late in each.late.values() if late.answers.p99 > 0), default=0.0)

"""Assert the most round trips an operation may take, and say what it did when it took more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from netem.callsites import show
from netem.counter import Counts
from netem.describe import describe
from netem.repeats import repeats
from netem.units import plural

SHOWN_MESSAGES = 60
"""Messages a failure prints, at most."""


class Countable(Protocol):
    """An object that counts: any network, or another with the same method."""

    def take(self) -> Counts:
        """The counts since the last call."""


class TooManyRoundTrips(AssertionError):
    """An operation took more round trips than it may."""


class NothingCounted(AssertionError):
    """A limit was set, and nothing happened on the network: the limit could never fail."""


class BlockCounts:
    """The counts of a `round_trips` block, once it is left."""

    counts: Counts = Counts()


def check(counts: Counts, at_most: int, *, handshake: bool = True) -> None:
    """Compare an operation with its limit.

    Raises:
        TooManyRoundTrips: it took more; the message lists its messages.
        NothingCounted: it used no network.
    """
    if not counts.used:
        raise NothingCounted(
            f"at most {plural(at_most, 'round trip')} allowed, but no network was used: this cannot fail"
        )
    if (counts.rounds if handshake else counts.rounds_without_handshake) > at_most:
        which = "" if handshake else " without handshakes"
        raise TooManyRoundTrips(f"at most {plural(at_most, 'round trip')} allowed{which}; took {explain(counts)}")


def explain(counts: Counts) -> str:
    """Several lines: the numbers; what was asked again and again; then each message in order.

    Of a message: direction, depth, times, size, what it says, and who sent it, where these are known.
    """
    first = (
        f"{plural(counts.rounds, 'round trip')} ({counts.handshake_rounds} of them opening connections), "
        + ", ".join(
            [plural(counts.connections, "connection"), f"{counts.bytes_up} bytes up", f"{counts.bytes_down} bytes down"]
        )
    )
    if counts.application_rounds is not None:
        first += f", waited {counts.application_rounds:g} RTT"
    lines = [first, *(f"  {line}" for line in repeats(counts.messages))]
    begun = counts.messages[0].sent if counts.messages else 0.0
    for message in counts.messages[:SHOWN_MESSAGES]:
        arrow = "-> server" if message.up else "client <-"
        what = plural(message.size, "byte") + (" and end of stream" if message.end else "")
        came = "not delivered" if message.delivered is None else f"delivered {message.delivered - begun:.3f} s"
        said = describe(message.content)
        lines.append(
            f"  connection {message.connection}  {arrow}  depth {message.depth}"
            f"  sent {message.sent - begun:.3f} s, {came}: {what}{said and f'  {said}'}"
        )
        if message.sites:
            lines.append(f"      from {show(message.sites)}")
    rest = len(counts.messages) - SHOWN_MESSAGES
    if counts.omitted or rest > 0:
        lines.append(f"  and {plural(counts.omitted + max(0, rest), 'message')} more")
    return "\n".join(lines)


@contextmanager
def round_trips(network: Countable, *, at_most: int, handshake: bool = True) -> Iterator[BlockCounts]:
    """Fail when the block takes more than `at_most` round trips on `network`; what it did is in `.counts` afterwards.

    The counter is taken before and after, so what came before does not count. With `handshake=False` opening
    connections costs nothing.

    Raises:
        TooManyRoundTrips: it took more.
        NothingCounted: it used no network.
    """
    network.take()
    taken = BlockCounts()
    yield taken
    taken.counts = network.take()
    check(taken.counts, at_most, handshake=handshake)

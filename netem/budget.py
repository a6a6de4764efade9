"""Fail if an operation takes more round trips than its limit, and list its messages."""

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
"""The most messages that a failure prints."""


class Countable(Protocol):
    """An object that counts traffic: any network, or another object with the same method."""

    def take(self) -> Counts:
        """Return the counts since the last call, and begin a new operation."""


class TooManyRoundTrips(AssertionError):
    """An operation took more round trips than its limit."""


class NothingCounted(AssertionError):
    """An operation with a limit did not use the network, so the limit could never fail."""


class BlockCounts:
    """The counts of a `round_trips` block, which are set when the block is left."""

    counts: Counts = Counts()


def check(counts: Counts, at_most: int, *, handshake: bool = True) -> None:
    """Compare the counts of an operation with its limit. With `handshake=False` handshakes do not count.

    Raises:
        TooManyRoundTrips: the operation took more; the error lists its messages.
        NothingCounted: the operation used no network.
    """
    if not counts.used:
        raise NothingCounted(
            f"at most {plural(at_most, 'round trip')} allowed, but no network was used: this cannot fail"
        )
    if (counts.rounds if handshake else counts.rounds_without_handshake) > at_most:
        which = "" if handshake else " without handshakes"
        raise TooManyRoundTrips(f"at most {plural(at_most, 'round trip')} allowed{which}; took {explain(counts)}")


def explain(counts: Counts) -> str:
    """Return the counts as several lines: the numbers, suspected repetitions, then each message in order.

    A message has direction, depth, times and size, and if they are known a description and its call sites.
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
    """Fail if the block takes more than `at_most` round trips on `network`. `counts` of the yielded object is set at
    the end of the block.

    The counts are taken before and after the block, so earlier messages do not count. With `handshake=False`
    handshakes do not count.

    Raises:
        TooManyRoundTrips: the block took more.
        NothingCounted: the block used no network.
    """
    network.take()
    taken = BlockCounts()
    yield taken
    taken.counts = network.take()
    check(taken.counts, at_most, handshake=handshake)

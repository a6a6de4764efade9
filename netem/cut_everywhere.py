"""Run an operation once for each place at which its connection can be lost, each time on a fresh state.

    def make():                                  # the state before, and the network that the operation will use
        network = SimulatedNetwork(Link(rtt=1.0))
        return network, Account(network)

    def check(trial):                            # wherever the link was cut: all or nothing
        assert trial.state.balance() in (100, 90)
        if trial.error is None:
            assert trial.state.balance() == 90   # the acknowledged payment is there

    cut_everywhere(make, lambda account: account.pay(10), check)

First the operation runs without a cut, and the bytes that enter the link are recorded. Then each connection is cut at
every boundary (the end of each write, or of each frame that the caller's `frames` returns), and at a sample of the
bytes in between. The notes of an exception have the place of the cut.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from netem.effects import Cut
from netem.link import Link
from netem.simulated import SimulatedNetwork

INSIDE = 20
"""The most cuts between boundaries in each direction of a connection, in addition to the cuts at all boundaries."""

S = TypeVar("S")

Frames = Callable[[bytes], Iterable[int]]
"""A function that takes all bytes of one direction of a connection and returns the offsets at which frames end."""


@dataclass(frozen=True)
class CutPoint:
    """A place at which a link is cut for both ends: after `after` bytes of one direction were delivered."""

    connection: int
    """The number of the connection in the operation, from 1."""
    up: bool
    after: int
    boundary: bool
    """True if this is the start of the stream or the end of a frame or write."""

    def __str__(self) -> str:
        """Return the place as `connection 1, up, after 131 bytes (a boundary)`."""
        where = f"connection {self.connection}, {'up' if self.up else 'down'}, after {self.after} bytes"
        return f"{where} (a boundary)" if self.boundary else where

    def link(self, whole: Link) -> Link:
        """Return a copy of the link `whole` that is also cut at this place."""
        cut = Cut(self.after)
        return replace(whole, up=(*whole.up, cut)) if self.up else replace(whole, down=(*whole.down, cut))


@dataclass(frozen=True)
class Trial(Generic[S]):
    """The outcome of the operation with one cut."""

    point: CutPoint
    state: S
    """The state from `make`. New connections on its network are no longer cut."""
    result: object
    """The operation's return value; None if it raised an error."""
    error: Exception | None
    """The error that the operation raised, of the types in `lost`; None if it succeeded."""


def cut_everywhere(
    make: Callable[[], tuple[SimulatedNetwork, S]],
    operation: Callable[[S], object],
    check: Callable[[Trial[S]], object],
    *,
    lost: tuple[type[Exception], ...] = (ConnectionError,),
    attempts: int = 1,
    frames: Frames | None = None,
    inside: int | None = INSIDE,
    seed: int = 0,
) -> list[CutPoint]:
    """Run `operation` on a fresh state of `make` for each place of a cut, and `check` each trial. Return the places.

    `lost`: the errors that the operation may raise for a lost connection. `attempts`: the number of successive
    connections that are cut at the place, for an operation that retries by itself. `inside`: as `INSIDE`; None for
    every byte. The operation must open its connections itself (one that is open already is not cut), and must send the
    same bytes each time.

    Raises:
        ValueError: the operation opened no connection on the network of `make`, or a frame ends outside the bytes.
        AssertionError: a trial sent too few bytes to be cut at its place, so the operation does not repeat itself.
    """
    places = _places(*make(), operation, frames, inside, random.Random(seed))
    for place in places:
        try:
            check(_try(place, *make(), operation, lost, attempts))
        except BaseException as error:
            error.add_note(f"the link was cut: {place}; seed {seed}")
            raise
    return places


def _try(
    place: CutPoint,
    network: SimulatedNetwork,
    state: S,
    operation: Callable[[S], object],
    lost: tuple[type[Exception], ...],
    attempts: int,
) -> Trial[S]:
    whole = network.link
    network.links.extend([whole] * (place.connection - 1) + [place.link(whole)] * attempts)
    number, carried = network.opened + place.connection, 0

    def count(connection: int, up: bool, content: bytes) -> None:
        nonlocal carried
        if (connection, up) == (number, place.up):
            carried += len(content)

    network.tap = count
    result: object = None
    raised: Exception | None = None
    try:
        result = operation(state)
    except lost as error:
        raised = error
    network.links.clear()
    network.tap = None
    if carried < max(1, place.after):
        raise AssertionError(f"nothing was cut: {carried} bytes came this time, and the operation ended by itself")
    return Trial(place, state, result, raised)


def _places(
    network: SimulatedNetwork,
    state: S,
    operation: Callable[[S], object],
    frames: Frames | None,
    inside: int | None,
    chance: random.Random,
) -> list[CutPoint]:
    """Run the operation without cuts and return the places of the cuts: for each connection the upward ones, then the
    downward ones, in the order of the bytes."""
    before = network.opened
    written: dict[tuple[int, bool], list[bytes]] = {}
    network.tap = lambda number, up, content: written.setdefault((number, up), []).append(content)
    operation(state)
    network.tap = None
    if network.opened == before:
        raise ValueError("the operation opened no connection on its network: there is nothing to cut")
    places: list[CutPoint] = []
    for number, up in itertools.product(range(before + 1, network.opened + 1), (True, False)):
        pieces = written.get((number, up), [])
        size = sum(map(len, pieces))
        if not size:
            continue  # without bytes there is no cut
        ends = set(_ends(pieces, frames))
        if min(ends) < 0 or max(ends) > size:
            which = f"connection {number - before}, {'up' if up else 'down'}"
            raise ValueError(f"{which}: a frame ends at {min(ends) if min(ends) < 0 else max(ends)}, of {size} bytes")
        tried: Iterable[int] = range(size)
        if inside is not None and inside + len(ends) < size:
            tried = chance.sample(range(size), inside + len(ends))  # `len(ends)` of them may be ends
        between = list(itertools.islice((at for at in tried if at not in ends), inside))
        places += [CutPoint(number - before, up, at, at in ends) for at in sorted([*ends, *between])]
    return places


def _ends(pieces: list[bytes], frames: Frames | None) -> Iterator[int]:
    yield 0
    yield from itertools.accumulate(map(len, pieces)) if frames is None else frames(b"".join(pieces))

"""Run an operation once for each place at which its connection can be lost, each time on a fresh state.

    def make():                                  # the state before, and the network its operation will use
        network = SimulatedNetwork(Link(rtt=1.0))
        return network, Account(network)

    def check(trial):                            # whatever was cut where: before or after, and never between
        assert trial.state.balance() in (100, 90)
        if trial.error is None:
            assert trial.state.balance() == 90   # what was acknowledged is there

    cut_everywhere(make, lambda account: account.pay(10), check)

First it runs whole, and what enters the link is noted. Then the same connection is cut at every boundary (at the end
of each write, or where the caller's `frames` says), and at a sample of the bytes in between. An exception tells in its
notes where the link was cut.
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
"""Bytes in between, of each direction of each connection, at which it is cut too."""

S = TypeVar("S")

Frames = Callable[[bytes], Iterable[int]]
"""A function that gives the ends of frames in all that one direction of a connection carried."""


@dataclass(frozen=True)
class CutPoint:
    """A place at which a link is cut: for both ends, when so many bytes of one direction have come out."""

    connection: int
    """Which of those that the operation opens, from 1 on."""
    up: bool
    after: int
    boundary: bool
    """A frame or a write ends here."""

    def __str__(self) -> str:
        """`connection 1, up, after 131 bytes (a boundary)`."""
        where = f"connection {self.connection}, {'up' if self.up else 'down'}, after {self.after} bytes"
        return f"{where} (a boundary)" if self.boundary else where

    def link(self, whole: Link) -> Link:
        """The same link, cut here."""
        cut = Cut(self.after)
        return replace(whole, up=(*whole.up, cut)) if self.up else replace(whole, down=(*whole.down, cut))


@dataclass(frozen=True)
class Trial(Generic[S]):
    """The outcome of one cut."""

    point: CutPoint
    state: S
    """The state that `make` gave; its network is whole again."""
    result: object
    """The operation's return value; None where it raised."""
    error: Exception | None
    """The error that it raised, of the kinds in `lost`."""


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
    """Run `operation` on a state of `make`, cut at one place after the other, and `check` each; the places.

    `lost`: what it may raise for a lost connection. `attempts`: so many connections in a row are cut at the place, for
    an operation that tries again by itself. `inside`: so many bytes between boundaries, or None for all of them. The
    operation opens its connections itself (one that is open already is not cut), and does the same each time it is run.

    Raises:
        ValueError: the operation opened no connection on the network that `make` gave; or a frame ends outside what
            was carried.
        AssertionError: a trial carried too few bytes to be cut at its place: the operation does not do the same again.
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
    """Every place: of each connection first what goes up, then what goes down, in the order of the bytes."""
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
            continue  # no byte that a cut could wait for
        ends = set(_ends(pieces, frames))
        if min(ends) < 0 or max(ends) > size:
            which = f"connection {number - before}, {'up' if up else 'down'}"
            raise ValueError(f"{which}: a frame ends at {min(ends) if min(ends) < 0 else max(ends)}, of {size} bytes")
        tried: Iterable[int] = range(size)
        if inside is not None and inside + len(ends) < size:
            tried = chance.sample(range(size), inside + len(ends))  # of which so many may be ends
        between = list(itertools.islice((at for at in tried if at not in ends), inside))
        places += [CutPoint(number - before, up, at, at in ends) for at in sorted([*ends, *between])]
    return places


def _ends(pieces: list[bytes], frames: Frames | None) -> Iterator[int]:
    yield 0
    yield from itertools.accumulate(map(len, pieces)) if frames is None else frames(b"".join(pieces))

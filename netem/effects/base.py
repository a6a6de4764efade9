"""The base class of effects. An effect delays, drops or changes the bytes of one direction of a link.

An effect is a frozen dataclass that registers itself under a name. Its fields are its arguments, also on the command
line (`stall:1MB:5s`). `begin` starts it for one direction of one connection. Effects read no clock: they are given the
time, so that all networks share them.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from netem.units import NEVER


class Ending(enum.Enum):
    """The event that follows the bytes of a parcel in its stream."""

    MORE = "more"
    EOF = "end of stream"
    CUT = "cut"
    """The connection is lost for both ends."""


@dataclass(slots=True)
class Parcel:
    """Bytes in transit in one direction of a connection."""

    content: bytes | memoryview
    at: int
    """The time when the bytes are delivered at the remote end (ns). Effects only move it later."""
    left: int
    """The time when the bytes leave the sender's buffer (ns). From then on they are in transit and take no space
    there."""
    ending: Ending = Ending.MORE
    tag: Any = None
    """Data for the counter, which effects pass through."""

    def split(self, at: int) -> tuple[Parcel, Parcel]:
        """Return the first `at` bytes, and the rest with the ending."""
        view = memoryview(self.content)
        return replace(self, content=view[:at], ending=Ending.MORE), replace(self, content=view[at:])

    def pieces(self, size: int) -> Iterator[Parcel]:
        """Yield the parcel in pieces of at most `size` bytes."""
        rest = self
        while len(rest.content) > size:
            piece, rest = rest.split(size)
            yield piece
        yield rest

    def hold(self, until: int) -> None:
        """Keep the parcel in the sender's buffer until the time `until` (ns)."""
        self.at = max(self.at, until)
        self.left = max(self.left, until)

    @property
    def stuck(self) -> bool:
        """True if the parcel will never be delivered."""
        return self.at >= NEVER


Stage = Callable[[Parcel], Iterable[Parcel]]
"""One effect at work: a function from each parcel that enters to the parcels that leave, in order."""

EFFECTS: dict[str, type[Effect]] = {}
"""All effects by name."""

_E = TypeVar("_E", bound="type[Effect]")


class Effect(ABC):
    """One change that a link makes to the bytes of one direction."""

    name: ClassVar[str]
    arguments: ClassVar[str]
    """The form of its arguments on the command line, for the help: `BYTES[:TIME]`."""
    of_streams: ClassVar[bool] = True
    """True if the effect is possible for streams, in simulator and proxy."""
    of_packets: ClassVar[bool] = True
    """True if the effect is possible for packets, in the packet network."""
    on_the_way: ClassVar[bool] = False
    """True if the effect acts on bytes that have left the sender, and so after the rate of the link. All other effects
    act before the rate."""
    splits_trains: ClassVar[bool] = False
    """True if the effect must see packets one by one (see `packets.trains`)."""

    @abstractmethod
    def begin(self) -> Stage:
        """Return a fresh stage for one direction of one connection."""

    def begin_packets(self) -> Stage:
        """Return a new stage for one direction of a packet link. A parcel is one IP packet, and must not be split."""
        return self.begin()

    def seeded(self, stream: str) -> Effect:
        """Return the same effect with its own random numbers: an effect with a seed appends `stream` to the seed."""
        return self

    def check_streams(self) -> None:
        """Raise `ValueError` if the effect is impossible for streams."""
        if not self.of_streams:
            raise ValueError(f"the effect {self.name} is of packets, and here are streams of bytes: use `netem run`")

    def check_packets(self) -> None:
        """Raise `ValueError` if the effect is impossible for packets."""
        if not self.of_packets:
            raise ValueError(f"the effect {self.name} is of streams of bytes, and here are packets: use `netem proxy`")

    @classmethod
    @abstractmethod
    def parse(cls, *words: Any, **_: Any) -> Effect:
        """Return the effect with these arguments of the command line. An override may accept any number of
        arguments."""


def register(effect: _E) -> _E:
    """Add an effect to `EFFECTS`; for use as a class decorator. A second effect with the same name raises a
    `TypeError`."""
    owner = EFFECTS.setdefault(effect.name, effect)
    if owner is not effect:
        raise TypeError(f"effect {effect.name!r} is already {owner.__name__}")
    return effect


def parse_effect(text: str) -> Effect:
    """Return the effect of the command line's `name:argument:argument`."""
    name, *words = text.split(":")
    effect = EFFECTS.get(name)
    if effect is None:
        raise ValueError(f"no effect {name!r}; there are {', '.join(sorted(EFFECTS))}")
    try:
        return effect.parse(*words)
    except TypeError:
        raise ValueError(f"{text!r}: expected {name}:{effect.arguments}") from None

"""An effect changes when the bytes of one direction come out of the link, or whether they do.

An effect is a frozen dataclass that registers itself under a name; its fields are its arguments, on the command line
too (`stall:1MB:5s`). `begin` starts it for one direction of one connection. Effects read no clock: they are given the
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
    """The end of a stream that follows the bytes of a parcel, if one does."""

    MORE = "more"
    EOF = "end of stream"
    CUT = "cut"
    """The connection is lost for both ends."""


@dataclass(slots=True)
class Parcel:
    """Some bytes on their way through one direction of a connection."""

    content: bytes | memoryview
    at: int
    """When they come out at the remote end (ns): effects move it later, never before that of the parcel ahead."""
    left: int
    """When they have left the sender's buffer (ns). Bytes that have left are under way and take no room there."""
    ending: Ending = Ending.MORE
    tag: Any = None
    """The counter's, passed through."""

    def split(self, at: int) -> tuple[Parcel, Parcel]:
        """The first `at` bytes and the rest; what follows the bytes goes with the rest."""
        view = memoryview(self.content)
        return replace(self, content=view[:at], ending=Ending.MORE), replace(self, content=view[at:])

    def pieces(self, size: int) -> Iterator[Parcel]:
        """The same in pieces of at most `size` bytes."""
        rest = self
        while len(rest.content) > size:
            piece, rest = rest.split(size)
            yield piece
        yield rest

    def hold(self, until: int) -> None:
        """Keep it with the sender until `until`."""
        self.at = max(self.at, until)
        self.left = max(self.left, until)

    @property
    def stuck(self) -> bool:
        """It never comes out."""
        return self.at >= NEVER


Stage = Callable[[Parcel], Iterable[Parcel]]
"""One effect at work: for each parcel that enters, those that follow from it, in order."""

EFFECTS: dict[str, type[Effect]] = {}
"""Every effect by its name."""

_E = TypeVar("_E", bound="type[Effect]")


class Effect(ABC):
    """One thing a link does to one direction."""

    name: ClassVar[str]
    arguments: ClassVar[str]
    """The form in which the command line has them, for its help: `BYTES[:TIME]`."""
    of_streams: ClassVar[bool] = True
    """True if it means something where there are no packets, in simulator and proxy."""
    of_packets: ClassVar[bool] = True
    """True if it means something in the packet network."""
    on_the_way: ClassVar[bool] = False
    """True if it befalls what has left the sender: such effects act after the rate of the link, all others before."""
    splits_trains: ClassVar[bool] = False
    """True if it must see packets one by one (see `packets.trains`)."""

    @abstractmethod
    def begin(self) -> Stage:
        """A fresh stage, for one direction of one connection."""

    def begin_packets(self) -> Stage:
        """A fresh stage for one direction of a link of packets: a parcel is one IP packet, not to be cut or joined."""
        return self.begin()

    def seeded(self, stream: str) -> Effect:
        """The same, where what happens by chance is `stream`'s own; an effect with a seed appends `stream` to it."""
        return self

    def check_streams(self) -> None:
        """Refuse to work on streams where that means nothing."""
        if not self.of_streams:
            raise ValueError(f"the effect {self.name} is of packets, and here are streams of bytes: use `netem run`")

    def check_packets(self) -> None:
        """Refuse to work on packets where that means nothing."""
        if not self.of_packets:
            raise ValueError(f"the effect {self.name} is of streams of bytes, and here are packets: use `netem proxy`")

    @classmethod
    @abstractmethod
    def parse(cls, *words: Any, **_: Any) -> Effect:
        """The effect those words write (an override takes as many as it needs)."""


def register(effect: _E) -> _E:
    """Class decorator: put an effect into `EFFECTS`; a second owner of a name is a `TypeError`."""
    owner = EFFECTS.setdefault(effect.name, effect)
    if owner is not effect:
        raise TypeError(f"effect {effect.name!r} is already {owner.__name__}")
    return effect


def parse_effect(text: str) -> Effect:
    """The effect that `name:argument:argument` writes."""
    name, *words = text.split(":")
    effect = EFFECTS.get(name)
    if effect is None:
        raise ValueError(f"no effect {name!r}; there are {', '.join(sorted(EFFECTS))}")
    try:
        return effect.parse(*words)
    except TypeError:
        raise ValueError(f"{text!r}: expected {name}:{effect.arguments}") from None

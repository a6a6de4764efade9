"""plugins.breezy.sending: what a push sends is what was planned, whoever plans it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from smartserver.plugins.breezy.sending import Source
from smartserver.records.model import Announced, Key, RevisionId


class Planned:
    """A plan of two segments."""

    graph: Sequence[Announced] = (Announced(b"one", ()), Announced(b"two", ()))

    def __init__(self, bases: Collection[Key] = (b"base",)) -> None:
        self.bases = bases

    def segments(self) -> Iterator[bytes]:
        yield from (b"first", b"second")

    def without_bases(self, keys: Collection[Key]) -> Planned:
        return Planned([key for key in self.bases if key not in keys])


def test_what_is_planned_is_sent() -> None:
    asked = []

    def planning(tips: Iterable[RevisionId], haves: Iterable[RevisionId]) -> Planned:
        asked.append((list(tips), list(haves)))
        return Planned()

    plan = Source(planning).plan([b"two"], [b"zero"])
    assert asked == [([b"two"], [b"zero"])]
    assert plan.graph == Planned.graph
    assert list(plan.segments()) == [b"first", b"second"]
    assert isinstance(plan, Planned)

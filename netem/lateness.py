"""How late something came, of many times: the one place where percentiles are taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

_N = TypeVar("_N", int, float)


def quantile(ordered: Sequence[_N], percent: int) -> _N:
    """By nearest rank: the smallest of them that so many in a hundred do not exceed. `ordered` is, and is not empty."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


@dataclass(frozen=True)
class Lateness:
    """By how many seconds it was late."""

    median: float = 0.0
    p99: float = 0.0
    """99 in 100 were no later."""
    greatest: float = 0.0

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Self:
        """Of so many; of none it is all 0."""
        late = sorted(seconds)
        return cls(quantile(late, 50), quantile(late, 99), late[-1]) if late else cls()

"""`Cache`: values by key up to a limit, the least recently used dropped first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """For one thread, unlike `store.caches`. A value that costs more than the limit is not kept."""

    def __init__(self, limit: int, cost: Callable[[V], int]) -> None:
        """`limit`: the most that all values may cost together, such as bytes."""
        self.limit = limit
        self._cost = cost
        self.clear()

    def clear(self) -> None:
        """Keep none."""
        self._values: OrderedDict[K, V] = OrderedDict()
        self.size = 0
        """The cost of all its values."""

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value of a key, which is used now."""
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
        return found

    def put(self, key: K, value: V, *, spare: bool = False) -> int:
        """Keep a value in the place of the one before, which goes even where this one is over the limit. `spare`: it
        is the next to be dropped, unless it is used before (midpoint insertion).

        Returns: how many values of other keys were dropped.
        """
        values = self._values
        cost = self._cost(value)
        if (old := values.pop(key, None)) is not None:
            self.size -= self._cost(old)
        if cost > self.limit:
            return 0
        values[key] = value
        if spare:
            values.move_to_end(key, last=False)
        self.size += cost
        return self.shrink()

    def shrink(self) -> int:
        """Drop values until they cost no more than the limit; how many were dropped."""
        dropped = 0
        while self.size > self.limit:
            self.size -= self._cost(self._values.popitem(last=False)[1])
            dropped += 1
        return dropped

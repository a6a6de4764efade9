"""`Cache`: stores values by key up to a limit, and drops the least recently used first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """A cache for one thread, unlike those of `store.caches`. A value that costs more than the limit is not kept."""

    def __init__(self, limit: int, cost: Callable[[V], int]) -> None:
        """`limit`: the most that all values may cost together, such as bytes."""
        self.limit = limit
        self._cost = cost
        self.clear()

    def clear(self) -> None:
        """Drop all values."""
        self._values: OrderedDict[K, V] = OrderedDict()
        self.size = 0
        """The cost of all cached values."""

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None, and make it the most recently used."""
        found = self._values.get(key)
        if found is not None:
            self._values.move_to_end(key)
        return found

    def put(self, key: K, value: V, *, spare: bool = False) -> int:
        """Store a value. The old value of the key is dropped, even if the new value is over the limit. `spare`: True to
        make the value the next to be dropped, unless it is used before.

        Return the number of dropped values of other keys.
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
        """Drop values until the cost is within the limit. Return how many were dropped."""
        dropped = 0
        while self.size > self.limit:
            self.size -= self._cost(self._values.popitem(last=False)[1])
            dropped += 1
        return dropped

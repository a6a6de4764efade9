"""The counts of `smartserver.meters` from a moment on."""

from __future__ import annotations

from smartserver.meters import METERS, Counts, Index, counted_here, since


class Counting:
    """The counts of the current thread since this object was made."""

    def __init__(self) -> None:
        self._before = counted_here()

    def __getitem__(self, meter: Index) -> int:
        return counted_here()[meter] - self._before[meter]

    @property
    def named(self) -> dict[str, int]:
        """The counts that are not zero, by name."""
        return named(since(counted_here(), self._before))


def named(counts: Counts) -> dict[str, int]:
    """Return the counts that are not zero, by name."""
    return {meter.name: count for meter, count in zip(METERS, counts, strict=True) if count}

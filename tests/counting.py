"""What is counted (`smartserver.meters`) from a moment on."""

from __future__ import annotations

from smartserver.meters import METERS, Counts, Index, counted_here, since


class Counting:
    """Of the thread that makes it."""

    def __init__(self) -> None:
        self._before = counted_here()

    def __getitem__(self, meter: Index) -> int:
        return counted_here()[meter] - self._before[meter]

    @property
    def named(self) -> dict[str, int]:
        """All that is not zero."""
        return named(since(counted_here(), self._before))


def named(counts: Counts) -> dict[str, int]:
    """The counts that are not zero, by name."""
    return {meter.name: count for meter, count in zip(METERS, counts, strict=True) if count}

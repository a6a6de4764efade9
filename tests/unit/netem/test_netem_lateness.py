from __future__ import annotations

import pytest

from netem.lateness import Lateness, quantile


@pytest.mark.parametrize(
    ("count", "median", "p99"),
    [(1, 1, 1), (2, 1, 2), (3, 2, 3), (99, 50, 99), (100, 50, 99), (101, 51, 100), (200, 100, 198), (1000, 500, 990)],
)
def test_nearest_rank(count: int, median: int, p99: int) -> None:
    ordered = range(1, count + 1)
    assert (quantile(ordered, 50), quantile(ordered, 99), quantile(ordered, 100)) == (median, p99, count)


def test_of_any_order_and_of_none() -> None:
    assert Lateness.of([0.3, 0.1, 0.2]) == Lateness(0.2, 0.3, 0.3)
    assert Lateness.of([]) == Lateness()

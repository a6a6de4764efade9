"""bench.report: percentiles, the table, and how often progress is told."""

from __future__ import annotations

import statistics

import pytest
from bench.report import PROGRESS_INTERVAL, Progress, Report, median, percentile
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [([7.0], 50, 7), ([3, 1, 2], 50, 2), ([4, 1, 3, 2], 50, 2), (range(1, 101), 90, 90), (range(1, 101), 99, 99),
     (range(1, 101), 100, 100), (range(1, 101), 0, 1), (range(1, 501), 99, 495)],
)  # fmt: skip
def test_percentile_is_the_nearest_rank(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == expected


@given(st.lists(st.integers(-1000, 1000), min_size=1), st.floats(0, 100))
def test_a_percentile_is_a_value_with_so_many_not_above_it(values: list[int], percent: float) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(value <= found for value in values) >= len(values) * percent / 100 - 1e-9
    assert sum(value < found for value in values) <= max(0.0, len(values) * percent / 100)


@given(st.lists(st.integers(-1000, 1000), min_size=1))
def test_median_is_the_lower_one(values: list[int]) -> None:
    assert median(values) == statistics.median_low(values)


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_the_table_shows_each_figure_its_bar_and_what_is_missed() -> None:
    report = Report("a title")
    report.add("trips", "2", "4", "2", True)
    report.add("seconds", "3.0", "1.0", "2 x", False)
    report.add("bytes", "17")
    lines = report.lines()
    assert lines[0] == "a title"
    assert lines[2].split() == ["ours", "git", "bar"]
    assert lines[3].split() == ["trips", "2", "4", "2", "ok"]
    assert lines[4].split() == ["seconds", "3.0", "1.0", "2", "x", "MISSED"]
    assert lines[5].split() == ["bytes", "17"]
    assert "cores" in lines[-1]
    assert report.missed == ["seconds"]
    assert lines[3].index("2") == lines[4].index("3.0") + 2, "figures are not aligned on the right"


def test_progress_is_told_at_most_every_interval() -> None:
    now = 0.0
    said: list[str] = []
    progress = Progress(said.append, lambda: now)
    progress.step("pushing")
    for number in range(1, 31):
        now = number * PROGRESS_INTERVAL / 10
        progress.count("pushes", number, 30)
    assert said == ["pushing", "pushes: 10 of 30", "pushes: 20 of 30", "pushes: 30 of 30"]

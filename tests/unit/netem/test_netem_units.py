from __future__ import annotations

import pytest

from netem.units import nanoseconds, parse_rate, parse_size, parse_time, show_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1000ms", 1.0),
        ("1s", 1.0),
        ("0.5s", 0.5),
        ("50us", 50e-6),
        ("7ns", 7e-9),
        ("0", 0.0),
        (" 20 MS ", 0.02),
        (".5s", 0.5),
    ],
)
def test_time(text: str, seconds: float) -> None:
    assert parse_time(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("65536", 65536),
        ("64KiB", 65536),
        ("64kB", 64000),
        ("1.5MB", 1_500_000),
        ("2GiB", 2 << 30),
        ("10 b", 10),
        ("1MiB", 1 << 20),
    ],
)
def test_size(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1mbit", 125_000),
        ("1Mbit/s", 125_000),
        ("125kB/s", 125_000),
        ("10MB/s", 1e7),
        ("56kbit", 7000),
        ("1gbit", 125e6),
        ("1KiB/s", 1024),
        ("800bit", 100),
    ],
)
def test_rate(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["1000", "fast", "", "-1ms", "1 parsec", "1e3ms", "1,5s", "\u0661ms", "9999999999s", "9" * 400 + "s"]
)
def test_bad_time_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="time") as caught:
        parse_time(text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_rate_lacks_is_said() -> None:
    for text, why in (
        ("5", "'5' has no unit of rate; write for example 5kbit"),
        ("0", "'0': a rate is more than nothing"),
        ("5x", "'5x': unknown unit of rate 'x'"),
    ):
        with pytest.raises(ValueError, match=f"^{why}"):
            parse_rate(text)


@pytest.mark.parametrize("text", ["1", "x", "", "-1mbit", "1mbps", "0mbit", "9" * 400 + "mbit", "9" * 305 + "GB/s"])
def test_bad_rate_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="rate") as caught:
        parse_rate(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["x", "", "-1", "1 apple", "1mbit", "9" * 400, "9" * 305 + "GiB"])
def test_bad_size_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="size") as caught:
        parse_size(text)
    assert repr(text) in str(caught.value)


def test_nanoseconds_are_exact() -> None:
    assert nanoseconds(0.1) == 100_000_000
    assert sum([nanoseconds(0.1)] * 10) == nanoseconds(1)


@pytest.mark.parametrize("seconds", [-0.001, float("nan"), float("inf")])
def test_impossible_times_are_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="expected a time from 0 on"):
        nanoseconds(seconds)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1100, "1.1 KB"),
        (999_949, "999.9 KB"),
        (999_950, "1.0 MB"),
        (20_000_000, "20.0 MB"),
        (3_000_000_000, "3.0 GB"),
    ],
)
def test_show_size(size: int, shown: str) -> None:
    assert show_size(size) == shown

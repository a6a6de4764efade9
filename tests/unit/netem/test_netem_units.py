from __future__ import annotations

from collections.abc import Callable

import pytest

from netem.units import nanoseconds, parse_rate, parse_size, parse_time, show_size, show_status


@pytest.mark.parametrize(
    ("parse", "text", "number"),
    [
        (parse_time, "1000ms", 1.0),
        (parse_time, "0.5s", 0.5),
        (parse_time, "50us", 50e-6),
        (parse_time, "7ns", 7e-9),
        (parse_time, "0", 0.0),
        (parse_time, " 20 MS ", 0.02),
        (parse_time, ".5s", 0.5),
        (parse_size, "65536", 65536),
        (parse_size, "64kB", 64000),
        (parse_size, "1.5MB", 1_500_000),
        (parse_size, "1MiB", 1 << 20),
        (parse_size, "2GiB", 2 << 30),
        (parse_size, "10 b", 10),
        (parse_rate, "1Mbit/s", 125_000),
        (parse_rate, "125kB/s", 125_000),
        (parse_rate, "10MB/s", 1e7),
        (parse_rate, "56kbit", 7000),
        (parse_rate, "1gbit", 125e6),
        (parse_rate, "1KiB/s", 1024),
        (parse_rate, "800bit", 100),
    ],
)
def test_a_quantity(parse: Callable[[str], float], text: str, number: float) -> None:
    assert parse(text) == pytest.approx(number, rel=1e-12)


@pytest.mark.parametrize(
    ("parse", "what", "wrong"),
    [
        (
            parse_time,
            "time",
            ["1000", "fast", "", "-1ms", "1 parsec", "1e3ms", "1,5s", "\u0661ms", "9999999999s", "9" * 400 + "s"],
        ),
        (parse_rate, "rate", ["1", "x", "", "-1mbit", "1mbps", "0mbit", "9" * 400 + "mbit", "9" * 305 + "GB/s"]),
        (parse_size, "size", ["x", "", "-1", "1 apple", "1mbit", "9" * 400, "9" * 305 + "GiB"]),
    ],
)
def test_what_is_none_is_named(parse: Callable[[str], float], what: str, wrong: list[str]) -> None:
    for text in wrong:
        with pytest.raises(ValueError, match=what) as caught:
            parse(text)
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


def test_a_signal_is_named() -> None:
    assert [show_status(status) for status in (3, -11)] == ["status 3", "signal 11 (Segmentation fault)"]

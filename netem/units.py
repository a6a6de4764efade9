"""Parse and format times, sizes and rates as people write them. Each parser raises a `ValueError` that explains the
mistake. A missing unit of a time or a rate is an error."""

from __future__ import annotations

import math
import re
import signal

NANOSECONDS = 1_000_000_000
"""Nanoseconds of a second. Inside netem, times are whole nanoseconds, so sums are exact; the interface has seconds."""

NEVER = 1 << 62
"""A time in nanoseconds that is never reached."""

_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_SIZES = {
    "": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3,
}  # fmt: skip
_RATES = {
    "bit": 0.125, "kbit": 125.0, "mbit": 125e3, "gbit": 125e6,
    "bit/s": 0.125, "kbit/s": 125.0, "mbit/s": 125e3, "gbit/s": 125e6,
    "b/s": 1.0, "kb/s": 1e3, "mb/s": 1e6, "gb/s": 1e9, "kib/s": 2.0**10, "mib/s": 2.0**20, "gib/s": 2.0**30,
}  # fmt: skip
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-zA-Z/]*)\s*", re.ASCII)


def _split(text: str, what: str, example: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text)
    number = math.inf if match is None else float(match[1])
    if match is None or number == math.inf:  # of more than 308 digits
        raise ValueError(f"{text!r} is not a {what}; write for example {example}")
    return number, match[2].lower()


def parse_time(text: str) -> float:
    """Return a time such as `1000ms`, `1s`, `50us` or `0` in seconds."""
    number, unit = _split(text, "time", "1000ms or 1s")
    if not number:
        return 0.0
    if not unit:
        raise ValueError(f"{text!r} has no unit of time; write for example {text.strip()}ms")
    if unit not in _TIMES:
        raise ValueError(f"{text!r}: unknown unit of time {unit!r}; known: {', '.join(_TIMES)}")
    seconds = number * _TIMES[unit]
    try:
        nanoseconds(seconds)
    except ValueError:
        raise ValueError(f"{text!r}: too long a time; {NEVER // NANOSECONDS} s are the most") from None
    return seconds


def parse_size(text: str) -> int:
    """Return a size such as `65536`, `64KiB` or `1.5MB` in bytes."""
    number, unit = _split(text, "size", "65536 or 64KiB")
    if unit not in _SIZES:
        raise ValueError(f"{text!r}: unknown unit of size {unit!r}; known: B, kB, MB, GB, KiB, MiB, GiB")
    size = number * _SIZES[unit]
    if size == math.inf:
        raise ValueError(f"{text!r}: too great a size")
    return round(size)


def parse_rate(text: str) -> float:
    """Return a rate such as `1mbit`, `125kB/s` or `10MB/s` in bytes a second; `1mbit` is 125,000."""
    number, unit = _split(text, "rate", "1mbit or 125kB/s")
    if not number:
        raise ValueError(f"{text!r}: a rate is more than nothing; to stop a link use the effect stall")
    if not unit:
        raise ValueError(f"{text!r} has no unit of rate; write for example {text.strip()}kbit")
    if unit not in _RATES:
        raise ValueError(
            f"{text!r}: unknown unit of rate {unit!r}; known: kbit, mbit, gbit (bits), B/s, kB/s, MB/s (bytes)"
        )
    rate = number * _RATES[unit]
    if rate == math.inf:
        raise ValueError(f"{text!r}: too great a rate")
    return rate


def parse_share(text: str) -> float:
    """Return a share such as `1%` or `0.01` as a number from 0 to 1."""
    number, sign = text.strip(), text.strip().endswith("%")
    try:
        share = float(number.removesuffix("%")) / (100 if sign else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError(f"{text!r} is not a share; write for example 1% or 0.01")
    return share


def nanoseconds(seconds: float) -> int:
    """Return seconds as the nearest whole number of nanoseconds."""
    if not 0 <= seconds < NEVER / NANOSECONDS:
        raise ValueError(f"{seconds!r} seconds: expected a time from 0 on")
    return round(seconds * NANOSECONDS)


def show_size(size: int) -> str:
    """Return a size as `240 B`, `1.1 KB`, `20.0 MB`, in decimal units with one digit."""
    if size < 1000:
        return f"{size} B"
    number = float(size)
    for unit in ("KB", "MB"):
        number /= 1000
        if number < 999.95:
            return f"{number:.1f} {unit}"
    return f"{number / 1000:.1f} GB"


def show_address(address: tuple[str, int]) -> str:
    """Return an address in the syntax of the command line: `example.org:9418`, `[::1]:9418`."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def show_status(status: int) -> str:
    """Return an exit status as `status 3`, or as `signal 11 (Segmentation fault)` for -11."""
    return f"status {status}" if status >= 0 else f"signal {-status} ({signal.strsignal(-status)})"


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: `1 round trip`, `2 round trips`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

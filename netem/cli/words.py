"""What the commands share: arguments that describe a link, and how counts and complaints are printed."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from netem.counter import Counts
from netem.effects import EFFECTS, parse_effect
from netem.units import parse_rate, parse_time, plural, show_size

_T = TypeVar("_T")

INTERRUPTED = 130
"""Exit status after SIGINT or SIGTERM."""


@dataclass
class Totals:
    """What all operations did, one after the other."""

    operations: int = 0
    rounds: int = 0
    handshake_rounds: int = 0
    connections: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    flights_up: int = 0
    flights_down: int = 0
    seconds: float = 0.0

    def add(self, counts: Counts) -> None:
        """One operation more."""
        self.operations += 1
        for name in numbers(counts):
            setattr(self, name, getattr(self, name) + getattr(counts, name))


class OneLineParser(argparse.ArgumentParser):
    """A parser that complains in one line, instead of with the usage block."""

    def error(self, message: str) -> NoReturn:
        """End with status 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def argument(parse: Callable[[str], _T]) -> Callable[[str], _T]:
    """`parse` for argparse: its error message reaches the user."""

    def parsed(text: str) -> _T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `:4001` (this machine), `example.org:9418`, `[::1]:4001`.

    Raises:
        ValueError: no port, or one out of range.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address; write HOST:PORT or :PORT, PORT from 0 to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is not an address; write an IPv6 host in brackets: [{host}]:{port}")
    return host or "127.0.0.1", int(port)


def add_link(parser: argparse.ArgumentParser, *, rate: str) -> None:
    """The arguments that describe a link; `rate`: help for that one."""
    parser.add_argument(
        "--rtt", required=True, type=argument(parse_time), metavar="TIME", help="round trip, e.g. 1000ms"
    )
    parser.add_argument("--rate", type=argument(parse_rate), metavar="RATE", help=rate)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of all that happens by chance (default 0)")
    effects = ", ".join(f"{name}:{effect.arguments}" for name, effect in sorted(EFFECTS.items()))
    for direction, whose in (("up", "client"), ("down", "server")):
        parser.add_argument(
            f"--{direction}", type=argument(parse_effect), action="append", default=[], metavar="EFFECT",
            help=f"do this to what the {whose} sends; may be repeated: {effects}",
        )  # fmt: skip


def numbers(counts: Counts | Totals) -> dict[str, int | float]:
    """What is printed, by the names of the JSON form."""
    return {
        "rounds": counts.rounds,
        "handshake_rounds": counts.handshake_rounds,
        "connections": counts.connections,
        "bytes_up": counts.bytes_up,
        "bytes_down": counts.bytes_down,
        "flights_up": counts.flights_up,
        "flights_down": counts.flights_down,
        "seconds": round(counts.seconds, 6),
    }


def line(counts: Counts | Totals) -> str:
    """`2 round trips (1 handshake), 1 connection, 1.1 KB up, 240 B down, 2.011 s`."""
    return (
        f"{plural(counts.rounds, 'round trip')} ({plural(counts.handshake_rounds, 'handshake')}), "
        f"{plural(counts.connections, 'connection')}, {show_size(counts.bytes_up)} up, "
        f"{show_size(counts.bytes_down)} down, {counts.seconds:.3f} s"
    )


def reason(error: OSError) -> str:
    """What the system calls it: asyncio puts the address into `strerror`."""
    if isinstance(error, socket.gaierror) or not error.errno:
        return str(error.strerror or error)
    return os.strerror(error.errno)


def complain(text: str) -> None:
    """One line on stderr."""
    print(f"netem: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM interrupt, also where they were ignored; so does SIGHUP where it was not."""
    ends = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        ends.append(signal.SIGHUP)
    before = {number: signal.signal(number, signal.default_int_handler) for number in ends}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)

"""The output of all commands: counts, results and errors."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from typing import TextIO

from netem.counter import Counts
from netem.units import plural, show_address, show_size

SIDE_BY_SIDE = """\
Connections that are opened one after the other within a round trip count as one handshake: this machine accepts
them at once, and the proxy cannot make connect() wait. For a program that opens connections in a loop use
`netem run`."""
"""A remark in the help of the commands that use a proxy."""


@dataclass
class Totals:
    """The sums of the counts of all operations."""

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
        """Add one operation."""
        self.operations += 1
        for name in numbers(counts):
            setattr(self, name, getattr(self, name) + getattr(counts, name))


def numbers(counts: Counts | Totals) -> dict[str, int | float]:
    """Return the numbers to print, by their names in the JSON output."""
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
    """Return counts as `2 round trips (1 handshake), 1 connection, 1.1 KB up, 240 B down, 2.011 s`."""
    return (
        f"{plural(counts.rounds, 'round trip')} ({plural(counts.handshake_rounds, 'handshake')}), "
        f"{plural(counts.connections, 'connection')}, {show_size(counts.bytes_up)} up, "
        f"{show_size(counts.bytes_down)} down, {counts.seconds:.3f} s"
    )


def reason(error: OSError) -> str:
    """Return the system's own message for an error, since asyncio puts the address into `strerror`."""
    if isinstance(error, socket.gaierror) or not error.errno:
        return str(error.strerror or error)
    return os.strerror(error.errno)


def problem(error: OSError) -> str:
    """Return an error as `no/such/file: No such file or directory`, without the file if it has none."""
    what = error.strerror or str(error)
    return f"{error.filename}: {what}" if error.filename else what


def tell(text: str, out: TextIO | None = None) -> None:
    """Print a result, a line or more, on stdout.

    Raises:
        OSError: the result could not be written; the error's file name is `standard output`.
    """
    try:
        print(text, file=out or sys.stdout, flush=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error


def complain(text: str) -> None:
    """Print one line on stderr."""
    print(f"netem: {text}", file=sys.stderr, flush=True)


def cannot(what: str, address: tuple[str, int], error: OSError) -> str:
    """Return the message of a failed call on an address. `what`: `connect to` or `listen on`."""
    return f"cannot {what} {show_address(address)}: {reason(error)}"


def misses(command: str, what: str) -> int:
    """Print the error that the command line has no `what` after `--`, and return the exit status."""
    complain(f"{command}: no {what}; write it after -- (see netem {command} --help)")
    return 2

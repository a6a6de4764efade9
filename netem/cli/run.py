"""`netem run`: run any client and server across a link of real TCP, and print its counts."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import shlex
import signal
import stat
import sys
from collections.abc import Iterator
from types import FrameType
from typing import TextIO

from netem.cli.options import Commands, add_command, add_json, add_link, argument
from netem.cli.signals import ending
from netem.cli.words import complain, line, misses, numbers, problem, tell
from netem.effects import Loss
from netem.link import Link
from netem.packets.devices import check_setting
from netem.packets.errors import PacketsError, Unavailable
from netem.packets.network import CONGESTION, Packets
from netem.run import Crossing, RunError, RunResult
from netem.timeline import svg
from netem.units import NANOSECONDS, parse_share, plural

FAILED = 125
"""The exit status if the run itself failed, as in `timeout` and `env`. A client's own status is seldom the same."""
LATE = 0.02
"""If one packet in a hundred is late by more than this share of the round trip, the user is told that the machine is
too busy."""

EXAMPLES = """examples:
  netem run --rtt 600ms --server 'git daemon --export-all --base-path=/srv --reuseaddr' -- \\
      git clone git://{server}/project
      a clone across a link of 600 ms; {server} is the server's address on it
  netem run --rtt 600ms --rate 1mbit --loss 1% --svg clone.svg --server ... -- git clone git://{server}/project
      the same with 1 Mbit/s each way, and one packet in a hundred lost; a picture of it in clone.svg
  netem run --rtt 100ms --down jitter:5ms:reorder --server 'python3 -m http.server' -- curl -s http://{server}:8000/
      what the server sends is up to 10 ms late, and may come in another order
  netem run --rtt 1s --json --server ... -- ./client > cost.json
      one JSON object; what the client prints goes to stderr

Client and server run in network namespaces of their own, joined by an emulated link: TCP is the kernel's, with its
handshakes, slow start (cubic, 10 segments) and retransmission. UDP passes too, and is not counted as round trips.
There is nothing else on that network, no names (DNS) either; files and users are the machine's own. A server must not
leave its port to chance, and should listen on every address, or on {server}. Works on Linux as root, and for a user
whom the system lets make namespaces.

The client has begun when every server listens. It gets what is typed and piped into netem, and SIGINT (Ctrl-C); at its
end everything in the namespaces is killed. The exit status is the client's, 128 + N if signal N ended it, 125 if the
run failed."""


class Stopped(Exception):
    """A signal arrived while no client ran, or a second signal arrived."""


def add(commands: Commands) -> None:
    """Add the command line of `netem run`."""
    run = add_command(
        commands, "run", run_client,
        summary="run any client and server across a link of real TCP, and print what that cost",
        usage="netem run --rtt TIME --server COMMAND [OPTION ...] -- CLIENT [ARGUMENT ...]",
        description="Run a client and its server across an emulated link of real TCP, and print what it cost.",
        epilog=EXAMPLES,
    )  # fmt: skip
    add_link(run, rate="most each way, all connections together, e.g. 1mbit or 125kB/s (default: no limit)")
    run.add_argument(
        "--loss", type=argument(parse_share), metavar="PERCENT", help="lose so many packets each way, e.g. 1%%"
    )
    run.add_argument(
        "--server", required=True, action="append", metavar="COMMAND",
        help="start this first, until it listens; in words as for a shell, {server} is its address; may be repeated",
    )  # fmt: skip
    run.add_argument(
        "--set", dest="settings", type=argument(parse_setting), action="append", default=[], metavar="NAME=VALUE",
        help="a setting of the kernel's network on both sides, e.g. net.ipv4.tcp_fastopen=3; may be repeated",
    )  # fmt: skip
    add_json(run, "the cost as one JSON object to stdout, not to stderr")
    run.add_argument("--svg", metavar="FILE", help="draw the messages over time")
    run.add_argument(
        "--congestion", default=CONGESTION, metavar="NAME", help=f"TCP's congestion control (default {CONGESTION})"
    )


def run_client(arguments: argparse.Namespace) -> int:
    """Run `netem run` and return the exit status."""
    if not arguments.client:
        return misses("run", "client")
    try:
        link = make_link(arguments)
    except ValueError as error:
        complain(f"run: {error}")
        return 2
    try:
        network = Packets(link, congestion=arguments.congestion)
        run = Crossing(network, arguments.server, arguments.settings, on_waiting=complain)
        with _opened(arguments.svg) as picture:
            with _signals(run) as crossing:
                crossed = crossing.run(arguments.client, stdout=2 if arguments.json else 1)
                report(crossed, link, as_json=arguments.json)
                title = shlex.join(arguments.client)
                drawn = "" if picture is None else svg(crossed.counts, link.round_trip / NANOSECONDS, title)
            if picture is not None:  # From here on only a failed write can make the run fail.
                if stat.S_ISREG(os.fstat(picture.fileno()).st_mode):
                    picture.truncate(0)
                picture.write(drawn)
        status: int = crossed.status
        return status if status >= 0 else 128 - status
    except Stopped as stopped:
        complain("interrupted")
        return 128 + int(stopped.args[0])
    except (RunError, PacketsError, Unavailable) as error:
        complain(str(error))
    except OSError as error:
        complain(problem(error))
    return FAILED


def make_link(arguments: argparse.Namespace) -> Link:
    """Return the link that the options describe."""
    loss = [] if arguments.loss is None else [Loss(arguments.loss)]
    up, down = [*loss, *arguments.up], [*loss, *arguments.down]
    link = Link(arguments.rtt, arguments.rate, up, down, seed=arguments.seed)
    link.check_packets()
    return link


def parse_setting(text: str) -> tuple[str, str]:
    """Return name and value of `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not all(part.replace("-", "_").isidentifier() for part in name.split(".")):
        raise ValueError(f"{text!r}: expected NAME=VALUE, e.g. net.ipv4.tcp_fastopen=3")
    check_setting(name)
    return name, value


@contextlib.contextmanager
def _opened(path: str | None) -> Iterator[TextIO | None]:
    """Open the file for the picture before the command is run, and yield it. Yield None if `path` is None. If the run
    fails, the file is unchanged, or deleted if it is new."""
    if path is None:
        yield None
        return
    if os.path.islink(path) and not os.path.exists(path):
        path = os.path.realpath(path)  # The link's target is new and may be deleted, but the link stays.
    drawn = functools.partial(open, path, encoding="utf-8", errors="backslashreplace")
    try:
        file, new = drawn("x"), True
    except FileExistsError:
        file, new = drawn("a"), False
    try:
        with file:
            yield file
    except BaseException:
        if new:
            os.unlink(path)
        raise


@contextlib.contextmanager
def _signals(crossing: Crossing) -> Iterator[Crossing]:
    """Enter the crossing. The first signal that arrives while the client runs is passed on to it; any other signal
    raises `Stopped`."""
    told = False

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal told
        if crossing.running is None or told:
            raise Stopped(number)
        told = True
        crossing.running.kill(number)

    before = {number: signal.signal(number, stop) for number in ending()}
    try:
        with crossing:
            yield crossing
    finally:
        for number, action in before.items():
            signal.signal(number, action)


def costs(crossed: RunResult) -> dict[str, int | float | str]:
    """Return the fields of the JSON output."""
    counts = crossed.counts
    return {
        **numbers(counts),
        "packets_up": counts.packets_up,
        "packets_down": counts.packets_down,
        "dropped": counts.dropped,
        "repeated": counts.repeated,
        "not_tcp": counts.not_tcp,
        "wall_seconds": round(crossed.seconds, 6),
        "late_seconds": round(crossed.lateness, 6),
        "least_late_seconds": round(crossed.least_lateness, 6),
        "status": crossed.status,
    }


def report(crossed: RunResult, link: Link, *, as_json: bool, out: TextIO | None = None) -> None:
    """Print the counts as one line, and a warning if the machine was too busy, or may have been."""
    counts = crossed.counts
    trip = link.round_trip / NANOSECONDS
    if as_json:
        tell(json.dumps(costs(crossed)), out)
    else:
        took = f" ({counts.seconds / trip:.1f} RTT)" if trip else ""
        lost = f", {counts.dropped} dropped, {counts.repeated} repeated" if counts.dropped or counts.repeated else ""
        packets = f"{plural(counts.packets_up, 'packet')} up, {counts.packets_down} down{lost}"
        print(f"netem: {line(counts)}{took}, {packets}", file=out or sys.stderr, flush=True)
    if counts.not_tcp:
        were = f"{plural(counts.not_tcp, 'packet')} passed that {'are' if counts.not_tcp > 1 else 'is'} not TCP"
        complain(f"{were} (UDP, say): what they carry is in no count of round trips, nor in the seconds")
    late, least = crossed.lateness, crossed.least_lateness
    if least > LATE * trip > 0:
        complain(f"one packet in a hundred came {least * 1000:.1f} ms late: the machine is too busy to trust the times")
    elif late > LATE * trip > 0:
        complain(
            f"one packet in a hundred may have come {late * 1000:.1f} ms late: it was let out on time, but how long "
            "it lay unread is not known, for something kept the emulator from the processor"
        )

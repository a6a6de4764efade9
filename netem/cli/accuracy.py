"""`netem accuracy`: how exact the emulated links are on this machine, as a table."""

from __future__ import annotations

import argparse
import contextlib
import json
from dataclasses import asdict

from netem.accuracy import Measured, measure, table
from netem.accuracy_networks import Loopback, OneByOne, Packeted, Proxied, Simulated
from netem.accuracy_sockets import server
from netem.cli.main import INTERRUPTED
from netem.cli.options import Commands, add_command, add_json
from netem.cli.words import complain, interruptible
from netem.link import Link
from netem.packets.errors import PacketsError, Unavailable
from netem.packets.network import Packets
from netem.timekeeping import Timekeeping

MEANING = """Late is what an exchange of one byte on an open connection takes beyond the RTT, computing of both ends
included: compare with the row of no emulator. MB/s is one direction of one connection; messages are bytes there and
back on 16 connections at once; both at RTT 0. The simulated network's delays are virtual, and so exact. Packets pass
as trains of segments, or one by one where an effect (loss, a rate) has to see each. They are left out, with a line
that says why, where there can be none.

It takes two minutes. Run it alone: how late timers came meanwhile is said at the end."""


def add(commands: Commands) -> None:
    """Its command line."""
    accuracy = add_command(
        commands, "accuracy", run,
        summary="measure how exact the emulated links are on this machine",
        description="Measure how late answers come at RTTs of 10, 100 and 1000 ms, and how much passes a second.",
        epilog=MEANING,
    )  # fmt: skip
    add_json(accuracy, "a JSON list, one object a network")


def run(arguments: argparse.Namespace) -> int:
    """`netem accuracy`. The exit status."""
    found = []
    try:
        with interruptible(), contextlib.ExitStack() as opened, Timekeeping() as kept:
            address = opened.enter_context(server())
            networks: list[Measured] = [Simulated(), Loopback(address), Proxied(address)]
            try:
                packets = opened.enter_context(Packets(Link(0.0)))
                _, port = opened.enter_context(server(packets.listen()))
                networks += [Packeted(packets, port), OneByOne(packets, port)]
            except (PacketsError, Unavailable) as error:
                complain(str(error))
            for network in networks:
                complain(f"measuring: {network.name}")
                found.append(measure(network))
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    print(json.dumps([asdict(each) for each in found]) if arguments.json else table(found), flush=True)
    complain(f"timers of this process came up to {kept.late * 1000:.1f} ms late")
    return 0

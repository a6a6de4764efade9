"""`netem accuracy`: how exact the emulated links are on this machine, as a table."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from netem.accuracy import Accuracy, MeasuredNetwork, measure, table, timers
from netem.accuracy_networks import Loopback, OneByOne, OverPackets, OverProxy, Simulation
from netem.accuracy_sockets import server
from netem.cli.options import Commands, add_command, add_json
from netem.cli.signals import INTERRUPTED, interruptible
from netem.cli.words import complain, reason, tell
from netem.link import Link
from netem.packets.errors import PacketsError, Unavailable
from netem.packets.network import Packets
from netem.proxy import ProxyError

MEANING = """Late is what an exchange of one byte on an open connection takes beyond the RTT, computing of both ends
included: compare with the row of no emulator. MB/s is one direction of one connection; messages are bytes there and
back on 16 connections at once; both at RTT 0. Packets/s are those of the same bytes, where the network is one of
packets: as they would be on a wire. They pass as trains of segments, or one by one where an effect (loss, a rate) has
to see each. The simulated network's delays are virtual, and so exact. Packets are left out, with a line that says why,
where there can be none; so is a network that fails.

It takes two minutes. Run it alone: how late a timer of this process came meanwhile (99th percentile) is said at the
end, and what it shows to be the machine's lateness, and not the emulator's, is marked with a *."""


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
    """`netem accuracy`. The exit status. What was found before it was interrupted is printed."""
    found: list[Accuracy] = []
    status = 0
    try:
        with interruptible(), contextlib.ExitStack() as opened:
            for network in _networks(opened):
                complain(f"measuring: {network.name}")
                try:
                    found.append(measure(network))
                except (OSError, ProxyError, PacketsError) as error:
                    complain(f"{network.name}: {_why(error)}")
                    status = 1
    except (OSError, PacketsError) as error:  # of what the networks stand on
        complain(f"no further network: {_why(error)}")
        status = 1
    except KeyboardInterrupt:
        complain("interrupted")
        status = INTERRUPTED
    if arguments.json:
        tell(json.dumps([fields(each) for each in found]))
    elif found:
        tell(table(found))
    if found:
        complain(f"timers of this process came up to {timers(found) * 1000:.1f} ms late (99th percentile)")
    return status


def _networks(opened: contextlib.ExitStack) -> Iterator[MeasuredNetwork]:
    yield Simulation()
    address = opened.enter_context(server())
    yield from (Loopback(address), OverProxy(address))
    try:
        packets = opened.enter_context(Packets(Link(0.0)))
        _, port = opened.enter_context(server(packets.listen()))
    except Unavailable as error:
        complain(str(error))
    else:
        yield from (OverPackets(packets, port), OneByOne(packets, port))


def _why(error: Exception) -> str:
    return reason(error) if isinstance(error, OSError) else str(error)


def fields(accuracy: Accuracy) -> dict[str, Any]:
    """Those of its JSON form."""
    late = {
        rtt: {**asdict(each.answers), "timer": each.timer, "by_the_machine": each.by_the_machine}
        for rtt, each in accuracy.late.items()
    }
    return {**asdict(accuracy), "late": late}

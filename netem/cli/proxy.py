"""`netem proxy`: put an emulated link in front of a server, and print the counts of each operation."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TextIO

from netem.cli.options import Commands, add_command, add_json, add_link, add_listen, add_to
from netem.cli.words import SIDE_BY_SIDE, Totals, cannot, complain, line, numbers, tell
from netem.counter import Counts
from netem.effects import Effect
from netem.proxy import Proxy, ProxyError
from netem.units import plural, show_address

LOOK = 0.2
"""Seconds between two checks whether the proxy still works."""

EXAMPLES = f"""examples:
  netem proxy --rtt 1000ms --listen :4001 --to :4155
      a link of 1000 ms in front of the server on port 4155 of this machine; clients use port 4001
  netem proxy --rtt 600ms --rate 1mbit --listen :4001 --to example.org:9418
      the same with 1 Mbit/s each way
  netem proxy --rtt 50ms --listen :4001 --to :4155 --json
      one JSON object a line, for scripts
  netem proxy --rtt 50ms --listen :4001 --to :4155 --up cut:64KiB
      lose each connection when the client has sent 64 KiB

An operation is all that happens until the client has ended its last connection; when those are closed one line is
printed, and a total at the end (Ctrl-C). A round trip is half the longest chain of messages that had to wait for each
other, up to the last one the client got; the handshake of a connection is one.

{SIDE_BY_SIDE}"""


def add(commands: Commands) -> None:
    """Add the command line of `netem proxy`."""
    proxy = add_command(
        commands, "proxy", run,
        summary="a TCP proxy with the delay of a link, printing round trips, connections and bytes of each operation",
        description="Relay TCP connections over an emulated link and print what each operation did.",
        epilog=EXAMPLES,
    )  # fmt: skip
    add_link(proxy, rate="most each way and connection, e.g. 1mbit or 125kB/s (default: no limit)")
    add_listen(proxy)
    add_to(proxy)
    add_json(proxy, "one JSON object a line")


class Report:
    """The printed output: each operation, and the total. `gone` is called if an operation cannot be printed. A
    disconnected reader is no error."""

    def __init__(self, out: TextIO, *, as_json: bool, gone: Callable[[], None]) -> None:
        self._out = out
        self._json = as_json
        self._gone = gone
        self.totals = Totals()

    def operation(self, counts: Counts) -> None:
        """Add an operation to the total and print it as one line. If that fails, `total` reports the error."""
        self.totals.add(counts)
        try:
            tell(json.dumps(numbers(counts)) if self._json else line(counts), self._out)
        except OSError:
            self._gone()

    def total(self) -> None:
        """Print the total as the last line.

        Raises:
            OSError: the total could not be written, for another reason than a disconnected reader.
        """
        totals = self.totals
        if self._json:
            said = json.dumps({"total": True, "operations": totals.operations, **numbers(totals)})
        else:
            said = f"total of {plural(totals.operations, 'operation')}: {line(totals)}"
        with contextlib.suppress(BrokenPipeError):
            tell(said, self._out)


def run(arguments: argparse.Namespace) -> int:
    """Run `netem proxy` until a signal and return the exit status."""
    stop = threading.Event()
    report = Report(sys.stdout, as_json=arguments.json, gone=stop.set)

    up: Sequence[Effect] = arguments.up
    down: Sequence[Effect] = arguments.down
    try:
        proxy = Proxy(
            arguments.rtt, arguments.to, listen=arguments.listen, rate=arguments.rate, up=up, down=down,
            seed=arguments.seed, on_operation=report.operation,
            on_refused=lambda error: complain(cannot("connect to", arguments.to, error)),
        )  # fmt: skip
    except ValueError as error:
        complain(f"proxy: {error}")
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        proxy.start()
    except OSError as error:
        complain(cannot("listen on", arguments.listen, error))
        return 1
    except ProxyError as error:
        complain(str(error))
        return 1
    where = f"listening on {show_address((proxy.host, proxy.port))}, to {show_address(arguments.to)}"
    complain(f"{where}, RTT {arguments.rtt * 1000:g} ms")
    try:
        while not stop.wait(LOOK):
            proxy.check()
    except ProxyError as error:
        complain(str(error))
        return 1
    finally:
        proxy.close()
    report.total()
    return 0

"""`netem proxy`: puts an emulated link in front of a server, and prints what each operation did."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TextIO

from netem.cli.words import Totals, add_link, argument, complain, line, numbers, parse_address, reason
from netem.counter import Counts
from netem.effects import Effect
from netem.proxy import Proxy, ProxyError
from netem.units import plural

LOOK = 0.2
"""Seconds between looks at the proxy's health while it runs."""

EXAMPLES = """examples:
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
other, up to the last one the client got; the handshake of a connection is one."""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its command line."""
    proxy = commands.add_parser(
        "proxy",
        help="a TCP proxy with the delay of a link, printing round trips, connections and bytes of each operation",
        description="Relay TCP connections over an emulated link and print what each operation did.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    proxy.set_defaults(run=run)
    add_link(proxy, rate="most each way and connection, e.g. 1mbit or 125kB/s (default: no limit)")
    proxy.add_argument(
        "--listen", required=True, type=argument(parse_address), metavar="HOST:PORT",
        help="where clients connect; without host on 127.0.0.1, port 0: any free one",
    )  # fmt: skip
    proxy.add_argument(
        "--to", required=True, type=argument(parse_address), metavar="HOST:PORT",
        help="the server; without host 127.0.0.1",
    )  # fmt: skip
    proxy.add_argument("--json", action="store_true", help="print one JSON object a line")


class Report:
    """Prints operations and the total; a reader that went away is no error."""

    def __init__(self, out: TextIO, *, as_json: bool, gone: Callable[[], None]) -> None:
        self._out = out
        self._json = as_json
        self._gone = gone
        self.totals = Totals()

    def operation(self, counts: Counts) -> None:
        """One line."""
        self.totals.add(counts)
        self._print(json.dumps(numbers(counts)) if self._json else line(counts))

    def total(self) -> None:
        """The last line."""
        totals = self.totals
        if self._json:
            self._print(json.dumps({"total": True, "operations": totals.operations, **numbers(totals)}))
        else:
            self._print(f"total of {plural(totals.operations, 'operation')}: {line(totals)}")

    def _print(self, text: str) -> None:
        try:
            print(text, file=self._out, flush=True)
        except BrokenPipeError:
            self._gone()


def run(arguments: argparse.Namespace) -> int:
    """`netem proxy`: until a signal. The exit status."""
    stop = threading.Event()
    report = Report(sys.stdout, as_json=arguments.json, gone=stop.set)

    def refused(error: OSError) -> None:
        host, port = arguments.to
        complain(f"cannot connect to {host}:{port}: {reason(error)}")

    up: Sequence[Effect] = arguments.up
    down: Sequence[Effect] = arguments.down
    try:
        proxy = Proxy(
            arguments.rtt, arguments.to, listen=arguments.listen, rate=arguments.rate, up=up, down=down,
            seed=arguments.seed, on_operation=report.operation, on_refused=refused,
        )  # fmt: skip
    except ValueError as error:
        complain(f"proxy: {error}")
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        proxy.start()
    except OSError as error:
        complain(f"cannot listen on {arguments.listen[0]}:{arguments.listen[1]}: {reason(error)}")
        return 1
    to_host, to_port = arguments.to
    where = f"listening on {proxy.host}:{proxy.port}, to {to_host}:{to_port}"
    print(f"netem: {where}, RTT {arguments.rtt * 1000:g} ms", file=sys.stderr, flush=True)
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

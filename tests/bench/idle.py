"""Many idle connections and some active ones on one server: memory and the time of a request, with and without TLS."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

from bench import options
from bench.links import AUTHORITY, tls_options
from bench.report import Progress, Report, median, percentile
from smartserver.cli.servers import HOST, Server, Workspace, serving
from smartserver.client.call import Client
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.media.tls import TlsMedium
from smartserver.client.medium import Medium
from smartserver.client.trust import Trust
from smartserver.verbs.server_ping import PingRequest, server_ping

KB = 1000

MORE = 50
"""Descriptors and connections besides those that are measured."""


@click.command()
@options.number("--idle", 1000, "Connections that were used once.")
@options.number("--active", 100, "Connections that are used in turn.")
@options.number("-n rounds", 20, "Requests on each of those.")
def command(idle: int, active: int, rounds: int) -> None:
    """Idle and active connections to one server, with TLS and without: its memory for each, and the time of a request.

    \b
    bench idle
    bench idle --idle 5000
    """
    progress = Progress()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, idle + active + MORE), most))
    report = Report(f"{idle} idle and {active} active connections on one server, loopback", "plain")
    with Workspace("bench") as work:
        words = [*tls_options(work, HOST), "--max-connections", str(idle + active + MORE)]
        found: list[Sequence[float]] = []
        for tls in (False, True):
            progress.step("with TLS" if tls else "without TLS")
            served = work.folder / f"served-{tls}"
            served.mkdir()
            server = work.start("hpss", served, partial(_serving, served, words))
            found.append(
                _measure(server, Trust(ca=str(work.folder / AUTHORITY)) if tls else None, idle, active, rounds)
            )
    plain, secure = found
    for number, (what, unit) in enumerate(
        (("memory of the server, a connection", "KB"), ("a connection and its first request: median", "ms"),
         ("a request: median", "ms"), ("a request: p99", "ms"), ("requests a second, one after another", "/s"))
    ):  # fmt: skip
        report.add(what, f"{secure[number]:.1f} {unit}", f"{plain[number]:.1f} {unit}")
    report.finish()


def _serving(served: Path, words: Sequence[str], host: str, port: int) -> Sequence[str]:
    return serving(served, host, port, *words)


def _measure(server: Server, trust: Trust | None, idle: int, active: int, rounds: int) -> Sequence[float]:
    """The figures of one kind of connections, as the report has them."""

    def connect() -> Medium:
        return TcpMedium(*server.address) if trust is None else TlsMedium(*server.address, trust)

    def ping(client: Client) -> float:
        begun = time.perf_counter()
        client.call(server_ping, PingRequest())
        return (time.perf_counter() - begun) * 1000

    with contextlib.ExitStack() as stack:
        ping(stack.enter_context(Client(connect)))
        before = _memory(server.pid)
        clients = [stack.enter_context(Client(connect)) for _ in range(idle + active)]
        first = [ping(each) for each in clients]
        memory = (_memory(server.pid) - before) / len(clients)
        used = clients[idle:]
        begun = time.perf_counter()
        times = [ping(each) for _ in range(rounds) for each in used]
        seconds = time.perf_counter() - begun
        return memory, median(first), median(times), percentile(times, 99), len(times) / seconds


def _memory(pid: int) -> float:
    """What a process has in memory, KB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 / KB for line in status.splitlines() if line.startswith("VmRSS:"))

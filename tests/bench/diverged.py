"""A large push that has diverged, over a slow and thin link: how soon it is refused, and what was sent in vain."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import click

from bench import options
from bench.report import Report, say
from netem.proxy import Proxy
from netem.proxy_connection import KERNEL_BUFFER
from smartserver.cli.errors import CommandError
from smartserver.cli.histories import add_commit, generate
from smartserver.cli.servers import LinkCost, Server, Workspace, attempt, measured, run
from smartserver.trace.text import size
from smartserver.wire.limits import GRAPH_FIRST_THRESHOLD, NOTSENT_LOWAT

NAME = "project"
BASE_COMMITS = 20
FILE = 1_000_000
TRIPS = 2
"""The handshake and one."""

SOCKET_BUFFER = NOTSENT_LOWAT + KERNEL_BUFFER
"""Bytes of the kernel's between the client and the link: what it lets the client have unsent, and the receive buffer of
the socket at the near end of the link, which on one machine is a part of the sender's. The link itself adds few."""

LINK_BUFFER = 8 * 1448

_WRITTEN = re.compile(r"hpss: .* call\S* \(.*?\), (.*?) up, ")


class Refusal(NamedTuple):
    link: LinkCost
    written: str
    """What the client says it wrote (ours)."""


@click.command()
@options.quantity("--size content", options.SIZE, "20MB", "Content of the push.")
@options.quantity("--rtt", options.TIME, "1000ms", "Round-trip time of the link.")
@options.quantity("--rate", options.RATE, "1mbit", "Bandwidth of the link each way.")
def command(content: int, rtt: float, rate: float) -> None:
    """A large push that has diverged: it must be refused after one round trip, with little sent in vain.

    \b
    bench diverged
    bench diverged --size 2MB --rtt 300ms --rate 10mbit
    """
    with Workspace("bench") as work:
        source = work.folder / "source.git"
        generate(source, work.environment("bench"), count=BASE_COMMITS)
        ours = _refused(work, source, work.start_ours(), content, rtt, rate)
        daemon = work.start_git_daemon(NAME)
        git = None if daemon is None else _refused(work, source, daemon, content, rtt, rate)
    link = f"{rate * 8 / 1e6:g} Mbit/s, RTT {rtt * 1000:g} ms"
    report = Report(f"diverged push of {size(content)} over {link}, fresh connection")
    trips = ours.link.round_trips <= TRIPS
    report.both("trips until it was refused", lambda each: str(each.link.round_trips), ours, git, str(TRIPS), trips)
    report.both("seconds", lambda each: f"{each.link.seconds:.2f}", ours, git)
    # No client can hear of the refusal before a round trip is over; what it sends until then is what the link carries
    # in that time, and what waits for the link in the socket buffer, which nobody can take back.
    under_way = int(rtt * rate)
    bar = GRAPH_FIRST_THRESHOLD + SOCKET_BUFFER + under_way
    few = ours.link.bytes_up <= bar
    report.both("bytes that entered the link", lambda each: f"{each.link.bytes_up:,}", ours, git, f"{bar:,}", few)
    report.add("  of the bar: before the first look for an answer", f"{GRAPH_FIRST_THRESHOLD:,}")
    report.add("  of the bar: the socket buffer", f"{SOCKET_BUFFER:,}")
    report.add("  of the bar: carried in one round trip", f"{under_way:,}")
    report.add("bytes the client wrote, the kernel's buffers included", ours.written)
    report.finish()


def _refused(work: Workspace, source: Path, server: Server, content: int, rtt: float, rate: float) -> Refusal:
    label = server.scheme
    first, second = work.environment(f"{label}-1"), work.environment(f"{label}-2")
    run(["git", "push", "--quiet", server.url(NAME), "main:refs/heads/main"], source, first)
    with Proxy(rtt, server.address, rate=rate, buffer=LINK_BUFFER) as proxy:
        url = server.url(NAME, proxy.port)
        clone = work.folder / f"{label}.git"
        say(f"{label}: clone, a commit of {size(content)}, and another on the server")
        run(["git", "clone", "--quiet", "--bare", url, str(clone)], None, second)
        files = {f"file{n}": os.urandom(min(FILE, content - n * FILE)) for n in range(-(-content // FILE))}
        add_commit(clone, second, "main", files)
        other = work.folder / f"{label}-other.git"
        run(["git", "clone", "--quiet", "--bare", str(source), str(other)], None, first)
        add_commit(other, first, "main", {"other": b"other\n"})
        run(["git", "push", "--quiet", server.url(NAME), "main:refs/heads/main"], other, first)
        say(f"{label}: the diverged push, over a link of {rtt:g} s")
        return _push(clone, url, second | {"SMARTSERVER_DEBUG": "hpss"}, proxy)


def _push(clone: Path, url: str, environment: Mapping[str, str], proxy: Proxy) -> Refusal:
    command = ["git", "push", "--quiet", url, "main:refs/heads/main"]
    done, link = measured(proxy, lambda: attempt(command, clone, environment))
    if not done.returncode or ("fetch first" not in done.stderr and "non-fast-forward" not in done.stderr):
        raise CommandError(f"{url}: a diverged push was not refused: {done.stderr.strip()}")
    written = _WRITTEN.findall(done.stderr)
    return Refusal(link, written[-1] if written else "")

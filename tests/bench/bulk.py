"""Much content over a long, fast link: ours beside a bare TCP connection that carries as many bytes."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import click

from bench import options
from bench.links import across
from bench.process import Watch
from bench.report import Progress, Report
from netem.link import Link
from netem.packets.network import Packets
from smartserver.cli.histories import add_commit
from smartserver.cli.servers import Workspace, run
from smartserver.trace.text import size

LINKS = ((1.0, 2_500_000.0), (0.25, 12_500_000.0))
"""RTT and bytes a second: 20 Mbit/s by satellite twice over, 100 Mbit/s between continents."""

SHARE = 0.9
"""Of the pace of a bare connection. The rest: git and Python start, and what is done after the last byte."""

FILE = 1_000_000
CHUNK = 1 << 20
CHECK = "check"
MEMORY = 300_000_000
"""Bytes a process may have, as for a whole history: it grows until the caches of texts are full, and no further."""


@click.command()
@options.quantity("--size content", options.SIZE, "50MB", "Random bytes to push and to clone.")
@click.option(
    "--link",
    "links",
    type=(options.TIME, options.RATE),
    multiple=True,
    metavar="RTT RATE",
    help="A link, e.g. 250ms 100mbit.",
)
@options.quantity("--buffers", options.SIZE, "64MiB", "Most that a socket may hold, on both sides.")
def command(content: int, links: Sequence[tuple[float, float]], buffers: int) -> None:
    """A large push and a clone over long, fast links of real TCP: 90 % of the pace of a bare connection.

    Links by default: 1000 ms with 20 Mbit/s, 250 ms with 100 Mbit/s; three minutes for both. Client and server are in
    network namespaces (Linux, as root or where users may make namespaces), where --buffers is the most of
    net.ipv4.tcp_rmem and tcp_wmem: the system's own may be too small for such a link.

    \b
    bench bulk
    bench bulk --size 10MB --link 500ms 50mbit
    """
    progress = Progress()
    title = f"{size(content)} in files of {size(FILE)}, fresh connections; sockets of {size(buffers)}"
    report = Report(title, "bare TCP")
    with Workspace("bench") as work:
        environment = work.environment("bench", {"gc.auto": "0", "core.looseCompression": "0"})
        source = work.folder / "source.git"
        progress.step(f"making {size(content)}")
        run(["git", "init", "--quiet", "--bare", str(source)], None, environment)
        for number, at in enumerate(range(0, content, FILE)):
            add_commit(source, environment, "main", {f"file{number}": os.urandom(min(FILE, content - at))})
        limits = [(f"net.ipv4.tcp_{which}mem", f"4096 131072 {buffers}") for which in "rw"]
        for number, (rtt, rate) in enumerate(links or LINKS):
            over = f"{rate * 8 / 1e6:g} Mbit/s, {rtt * 1000:g} ms"
            clone = work.folder / f"project{number}.git"
            with across(work, Link(rtt, rate=rate), limits) as there:
                url = there.url(f"project{number}")
                for what, folder, user, words in (
                    ("push", source, environment, ("push", "--quiet", url, "main")),
                    ("clone", work.folder, work.environment("other"), ("clone", "--quiet", "--bare", url, str(clone))),
                ):
                    progress.step(f"{over}: bare connection, then {what}")
                    bare = carried(there.network, content, up=what == "push")
                    with Watch(there.server) as server:
                        ours, client = there.git(folder, user, *words)
                    figures = [f"{seconds:.2f} s, {content / seconds / 1e6:.2f} MB/s" for seconds in (ours, bare)]
                    share = f"{figures[0]} ({bare / ours:.0%})"
                    report.add(f"{what}, {over}", share, figures[1], f"{SHARE:.0%}", bare / ours >= SHARE)
                    largest = (client.largest, server.cost.largest)
                    sizes, ok = ", ".join(map(size, largest)), max(largest) <= MEMORY
                    report.add("  largest process of client, of server", sizes, "", size(MEMORY), ok)
            report.problems += _differences(source, clone, environment)
    report.finish()


def _differences(source: Path, clone: Path, environment: dict[str, str]) -> list[str]:
    tips = [run(["git", "rev-parse", "refs/heads/main"], folder, environment) for folder in (source, clone)]
    return [] if tips[0] == tips[1] else [f"the clone has main at {tips[1].strip()}, expected {tips[0].strip()}"]


def carried(network: Packets, content: int, *, up: bool) -> float:
    """Seconds from connecting until so many bytes are there, and, where this side sends them, until that is known."""
    with network.listen() as listener:

        def other_side() -> None:
            with listener.accept()[0] as accepted:
                if up:
                    _take(accepted, content)
                    accepted.sendall(b".")
                else:
                    accepted.recv(1)
                    _give(accepted, content)

        thread = threading.Thread(target=other_side, daemon=True)
        thread.start()
        begun = time.monotonic()
        with network.connect(listener.getsockname()[1]) as connection:
            if up:
                _give(connection, content)
                _take(connection, 1)
            else:
                connection.sendall(b".")
                _take(connection, content)
            seconds = time.monotonic() - begun
        thread.join()
        return seconds


def _give(connection: socket.socket, content: int) -> None:
    chunk = memoryview(bytes(CHUNK))
    while content:
        content -= connection.send(chunk[: min(content, CHUNK)])


def _take(connection: socket.socket, content: int) -> None:
    buffer = bytearray(CHUNK)
    while content:
        got = connection.recv_into(buffer)
        if not got:
            raise ConnectionError(f"the bare connection ended with {content} bytes to come")
        content -= got

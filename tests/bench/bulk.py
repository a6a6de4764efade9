"""Much content over a long, fast link: ours beside a bare TCP connection that carries as many bytes."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.link import across
from bench.process import Watch
from bench.report import Progress, Report
from netem.link import Link
from netem.packets.network import Packets
from smartserver.cli.histories import add_commit
from smartserver.cli.servers import Say, Workspace, run
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


def run_bulk(content: int, links: Sequence[tuple[float, float]], buffers: int, say: Say) -> tuple[Report, list[str]]:
    """Push and clone `content` random bytes over each link; sockets may have `buffers` bytes each way.

    Raises:
        CommandError: something failed.
    """
    progress = Progress(say)
    report = Report(
        f"{size(content)} in files of {size(FILE)}, fresh connections; sockets of {size(buffers)}", "bare TCP"
    )
    problems: list[str] = []
    with Workspace("bench") as work:
        environment = work.environment("bench", {"gc.auto": "0", "core.looseCompression": "0"})
        source = work.folder / "source.git"
        progress.step(f"making {size(content)}")
        run(["git", "init", "--quiet", "--bare", str(source)], None, environment)
        for number, at in enumerate(range(0, content, FILE)):
            add_commit(source, environment, "main", {f"file{number}": os.urandom(min(FILE, content - at))})
        limits = [(f"net.ipv4.tcp_{which}mem", f"4096 131072 {buffers}") for which in "rw"]
        for number, (rtt, rate) in enumerate(links):
            name = f"project{number}"
            over = f"{rate * 8 / 1e6:g} Mbit/s, {rtt * 1000:g} ms"
            with across(work, Link(rtt, rate=rate), limits) as there:
                progress.step(f"{over}: bare connection, there")
                up = carried(there.network, content, up=True)
                progress.step(f"{over}: push")
                with Watch(there.server) as server:
                    pushed, client = there.git(source, environment, "push", "--quiet", there.url(name), "main")
                _add(report, f"push, {over}", content, pushed, up)
                _memory(report, client.largest, server.cost.largest)
                progress.step(f"{over}: bare connection, back")
                down = carried(there.network, content, up=False)
                progress.step(f"{over}: clone")
                clone = work.folder / f"{name}.git"
                with Watch(there.server) as server:
                    words = ("clone", "--quiet", "--bare", there.url(name), str(clone))
                    cloned, client = there.git(work.folder, work.environment("other"), *words)
                _add(report, f"clone, {over}", content, cloned, down)
                _memory(report, client.largest, server.cost.largest)
            problems += _differences(source, clone, environment)
    return report, problems


def _add(report: Report, what: str, content: int, ours: float, bare: float) -> None:
    share = bare / ours
    figures = [f"{seconds:.2f} s, {content / seconds / 1e6:.2f} MB/s" for seconds in (ours, bare)]
    report.add(what, f"{figures[0]} ({share:.0%})", figures[1], f"{SHARE:.0%}", share >= SHARE)


def _memory(report: Report, client: int, server: int) -> None:
    most = max(client, server)
    report.add(
        "  largest process of client, of server", f"{size(client)}, {size(server)}", "", size(MEMORY), most <= MEMORY
    )


def _differences(source: Path, clone: Path, environment: dict[str, str]) -> list[str]:
    """Whether the clone is what was pushed."""
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

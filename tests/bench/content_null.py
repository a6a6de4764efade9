"""What answers cost our server: its processor time, for clients on loopback that throw away what comes.

A client is a process of its own. It asks once as any client of ours, and records what that sends; then it sends the
same bytes again and reads the frames of each answer into one buffer. So it needs little of the processor.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

import click

from bench import linear, options
from bench.process import MODULES, cpu_of, measure
from bench.report import Progress, Report
from smartserver.cli.errors import CommandError
from smartserver.cli.servers import Server, Workspace, run, serving
from smartserver.client.call import Client
from smartserver.client.knowledge import Knowledge
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.repository import RemoteRepository
from smartserver.client.url import parse
from smartserver.records.browse import LogSelector, TreeSelector, encode_selector
from smartserver.records.bulk import CONTENT_WINDOW_LOG, BulkWriter
from smartserver.wire.frames import HEADER, PREFACE, FrameType
from smartserver.wire.limits import MAX_FRAME

LARGE, SMALL = (2000, 64 << 10), (10_000, 5 << 10)
"""Files of a tree, and the bytes of each."""

REVISIONS = 200_000

TICK = 0.01
"""CPU seconds below which nothing is told apart."""

CLIENTS, WORKERS = 4, 2
"""Clients at once, and processes of the server that answers them."""

CACHES = ("128", linear.CACHE[1])
"""MB of the server's caches: the default, and what svn's has in `bench content`."""

LEVEL = 3
"""Of zstd: what `auto` is for a client on another machine."""

EXPORTED, COMPRESSED, LOGGED, PULLED = 140, 120, 100_000, 800
"""MB exported, without and with compression, and revisions logged in a CPU second of the server; MB pulled in a
second."""

EXPORT, LOG, PULL = "export", "log", "pull"


class Drained(NamedTuple):
    """What it cost that clients asked: CPU seconds of the server for the first time and for the others, the seconds
    and the bytes of the others."""

    first: float
    cpu: float
    seconds: float
    size: int


class Null:
    """A server with what is asked for."""

    def __init__(self, work: Workspace) -> None:
        self._work = work
        self.environment = work.environment("bench")
        self.progress = Progress()
        self.server: Server = work.start_ours()

    def restart(self, *options: str) -> None:
        """Go on with another server of the same repositories."""
        served = self.server.served
        self.server = self._work.start("hpss", served, lambda host, port: serving(served, host, port, *options))

    def push(self, name: str, changes: Iterable[linear.Files]) -> None:
        """Make a repository on the server; it is in one pack then."""
        self.progress.step(f"making {name}")
        source = self._work.folder / f"{name}.git"
        linear.write(source, self.environment, iter(changes))
        run(["git", "push", "--quiet", self.server.url(name), "main"], source, self.environment)
        run(["smartserver", "pack", str(self.server.served / name)], None, self.environment)

    def drain(self, name: str, what: str, requests: int, clients: int = 1) -> Drained:
        """Have clients ask so often, after a first time."""
        self.progress.step(f"{what} of {name}")
        before = self._cpu()
        words = [sys.executable, "-m", __spec__.name, self.server.url(name), what, str(requests)]
        pipe, environment = subprocess.PIPE, {**self.environment, **MODULES}
        processes = [
            subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, text=True) for _ in range(clients)
        ]
        told = [(process.stdin, process.stdout) for process in processes]
        for _, answers in told:
            assert answers is not None
            answers.readline()
        asked, begun = self._cpu(), time.monotonic()
        for asking, _ in told:
            assert asking is not None
            asking.write("\n")
            asking.flush()
        sizes = [int(answers.readline() or 0) for _, answers in told if answers is not None]
        seconds, cpu = time.monotonic() - begun, self._cpu() - asked
        for process in processes:
            process.communicate()
        if not all(sizes):
            raise CommandError(f"a client that asked for the {what} of {name} failed")
        return Drained(max(asked - before, TICK), max(cpu, TICK), seconds, sum(sizes))

    def _cpu(self) -> float:
        return cpu_of(self.server.pid)


class Recorder(TcpMedium):
    """A connection that records what is sent."""

    sent = b""

    def write_some(self, data: memoryview) -> int:
        """Send what fits, and record it."""
        written = super().write_some(data)
        self.sent += data[:written]
        return written


def drain(url: str, what: str, requests: int) -> None:
    """Ask once, say so, and when a line comes so often again; the bytes of those bodies."""
    location = parse(url)
    medium = Recorder(location.host, location.port)
    with Client(lambda: medium, agent="bench") as client:
        repository = RemoteRepository(client, location.path, Knowledge(None, url))
        if what == PULL:
            body = repository.pull(refs=[b"refs/heads/main"]).body
        else:
            selector = TreeSelector(deep=True, texts=True) if what == EXPORT else LogSelector(messages=False)
            repository.below = True
            body = repository.read(encode_selector(selector)).body
        size = sum(map(len, body))
    print(flush=True)
    sys.stdin.readline()
    sizes = [replay((location.host, location.port), medium.sent) for _ in range(requests)]
    assert sizes == [size] * requests
    print(sum(sizes), flush=True)


def replay(address: tuple[str, int], sent: bytes) -> int:
    """Send a recorded request on a new connection; the bytes of the body that answers it."""
    sink, size, kind = memoryview(bytearray(MAX_FRAME)), 0, 0
    with socket.create_connection(address) as connection, connection.makefile("rb") as answer:
        connection.sendall(sent)
        answer.read(len(PREFACE))
        while kind not in (FrameType.END, FrameType.ERROR):
            length, kind, _ = HEADER.unpack(answer.read(HEADER.size))
            size += answer.readinto(sink[:length]) * (kind == FrameType.BODY)
    return size


@click.command()
@options.number("--requests", 5, "Of each client.")
def command(requests: int) -> None:
    """Processor time of our server for export, log and pull, to clients on loopback that decode nothing.

    The trees and the history are made here: 180 MB of files, 200,000 revisions. Each client asks once before it
    is measured. Takes five minutes; another load on the machine falsifies what is said of a second.

    \b
    bench content-null
    """
    report = Report(f"CPU of the server, {requests} requests of a client, all asked for before", "zstd alone")
    with Workspace("bench") as work:
        null = Null(work)
        trees = {"large": LARGE, "small": SMALL}
        for name, tree in trees.items():
            null.push(name, linear.wide_tree(*tree))
        source = requests * LARGE[0] * LARGE[1] / 1e6
        for cache in CACHES:
            caches = "--memory-cache-size", cache
            null.restart(*caches)
            for name, (files, size) in trees.items():
                found = null.drain(name, EXPORT, requests)
                what = f"export, {files:,} files of {size >> 10} KB, caches of {cache} MB"
                _add(report, what, "MB", files * size / 1e6, found, requests, EXPORTED)
                report.add(f"{what}: files of a CPU second", f"{requests * files / found.cpu:,.0f}")
            null.restart(*caches, "--compression", str(LEVEL))
            found = null.drain("large", EXPORT, requests)
            what, rate = f"export, compressed (zstd {LEVEL}), caches of {cache} MB", source / found.cpu
            ours, alone = f"{rate:,.0f}", f"{_zstd_alone(LEVEL):,.0f}"
            report.add(f"{what}: MB of text in a CPU second", ours, alone, f"{COMPRESSED}", rate >= COMPRESSED)
            report.add(f"{what}: times smaller", f"{source * 1e6 / found.size:.2f}")
        for workers in (1, WORKERS):
            null.restart("--workers", str(workers))
            called = f"{CLIENTS} clients, {workers} process{'es' * (workers > 1)}"
            pulled = null.drain("large", PULL, requests, CLIENTS)
            rate = pulled.size / pulled.seconds / 1e6
            report.add(f"{PULL}, {called}: MB of a second", f"{rate:,.0f}", "", f"{PULLED:,}", rate >= PULLED)
            exported = null.drain("large", EXPORT, requests, CLIENTS)
            report.add(f"{EXPORT}, {called}: MB of a second", f"{exported.size / exported.seconds / 1e6:,.0f}")
            for asked, found in ((PULL, pulled), (EXPORT, exported)):
                report.add(f"{asked}, {called}: MB of a CPU second", f"{found.size / found.cpu / 1e6:,.0f}")
        null.restart()
        null.push("long", linear.long_history(REVISIONS))
        what = f"log -q, {REVISIONS:,} revisions"
        _add(report, what, "revisions", REVISIONS, null.drain("long", LOG, requests), requests, LOGGED)
        cost, _ = measure(["smartserver", "log", "-q", null.server.url("long")], None, null.environment)
        report.add(f"{what}: revisions of a second, to the command", f"{REVISIONS / cost.seconds:,.0f}")
    report.finish()


def _zstd_alone(level: int) -> float:
    """MB of the text of the large files that a bulk stream alone compresses in a CPU second."""
    texts = [text for files in linear.wide_tree(*LARGE) for text in files.values()]
    bulk = BulkWriter(level, CONTENT_WINDOW_LOG)
    begun = time.process_time()
    for text in texts:
        bulk.add(text)
    bulk.finish()
    return sum(map(len, texts)) / (time.process_time() - begun) / 1e6


def _add(report: Report, what: str, unit: str, amount: float, found: Drained, requests: int, bar: float) -> None:
    """What a request for so much took; judged is what was asked for before."""
    rate = requests * amount / found.cpu
    report.add(f"{what}: {unit} of a CPU second", f"{rate:,.0f}", "", f"{bar:,}", rate >= bar)
    report.add(f"{what}: {unit} of a CPU second, the first time", f"{amount / found.first:,.0f}")
    report.add(f"{what}: {unit} of a second", f"{requests * amount / found.seconds:,.0f}")


if __name__ == "__main__":
    drain(sys.argv[1], sys.argv[2], int(sys.argv[3]))

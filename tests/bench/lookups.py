"""When memcached pays: checkouts from a store that waits, beside a model of the chain of lookups.

The store is a folder, in the page cache, and each read of it waits as long as a disk or a network file system would.
The model's constants are measured before, without any wait: `doc/explanation/caches.md`.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import click
from needs import program

from bench import linear, options
from bench.report import Report, median
from bench.servers import Workspace, free_port, run
from smartserver.records.browse import TreeSelector
from smartserver.records.content import ReadScope
from smartserver.records.system import system_of
from smartserver.server.memcached import Memcached
from smartserver.store import blocks, caches
from smartserver.store.allowance import Allowance
from smartserver.store.browse import browse
from smartserver.store.caches import Common, Form, TextCache
from smartserver.store.content import SnapshotView
from smartserver.store.repository import PackRepository
from transports.base import ReadFile
from transports.decorators.passing import PassingTransport
from transports.local import LocalTransport

BOUND: Final = 0.25
"""Share by which a figure may miss its model, or `SLACK` seconds."""
SLACK: Final = 0.05
WAITS: Final = (0.0, 0.001, 0.01)
"""Seconds that a read of the store waits."""


class Waiting(PassingTransport):
    """A store whose reads take their time."""

    wait = 0.0
    reads = 0

    def open_read(self, path: str) -> ReadFile:
        return WaitingFile(super().open_read(path))


class WaitingFile(ReadFile):
    """A file of it."""

    def __init__(self, file: ReadFile) -> None:
        self._file = file

    def read_at(self, offset: int, size: int) -> bytes:
        Waiting.reads += 1
        if Waiting.wait:
            time.sleep(Waiting.wait)
        return self._file.read_at(offset, size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class Cell(NamedTuple):
    """What a read of trees took."""

    seconds: float
    reads: int
    files: int


class Lookups:
    """A repository in a store that may wait, read by servers that have nothing in memory."""

    def __init__(self, folder: Path, revisions: Sequence[str]) -> None:
        self._store = Waiting(LocalTransport(str(folder)))
        self._revisions = revisions

    def read(self, *, remote: Common | None, rows: Common | None = None) -> Cell:
        """Export trees as a server does after its start. `remote`: has texts of files, `rows`: blocks of indexes."""
        texts = TextCache(256 << 20)
        texts.remote = remote
        blocks.CACHED.clear()
        blocks.CACHED.common, blocks.CACHED._form = rows, Form(b"", bytes, bytes)
        caches.HEADERS.clear()
        Waiting.reads, begin = 0, time.perf_counter()
        files = 0
        snapshot = PackRepository(self._store, texts=texts).snapshot()
        view = SnapshotView(snapshot.state.refs, snapshot.state.map, snapshot, Allowance(limited=False))
        contents = system_of(snapshot.state.vcs).contents(view, ReadScope())
        for revision in self._revisions:
            plan = browse(view, contents, TreeSelector(revision, deep=True, texts=True), b"")
            assert plan.items is not None
            for item in plan.items:
                files += 1
                len(item)
        blocks.CACHED.common = None
        return Cell(time.perf_counter() - begin, Waiting.reads, files)


@contextmanager
def memcached() -> Iterator[Memcached]:
    """A server with room for all."""
    port = free_port()
    words = [program("memcached"), "-l", "127.0.0.1", "-p", str(port), "-U", "0", "-m", "2048", "-u", "root"]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        with closing(Memcached([("127.0.0.1", port)])) as found:
            yield found
    finally:
        process.kill()
        process.wait()


def gets(remote: Memcached, count: int = 2000) -> float:
    """Seconds of a `get` of a text of 5 KB."""
    remote.put(b"probe", bytes(5000))
    begin = time.perf_counter()
    for _ in range(count):
        assert remote.get(b"probe") is not None
    return (time.perf_counter() - begin) / count


@click.command()
@options.number("-n files", 5000, "Of a tree, 5,000 bytes each.")
@options.number("--repeat", 3, "Runs of each cell; the median counts.")
def command(files: int, repeat: int) -> None:
    """When memcached pays: checkouts from a store whose reads wait, with and without it, beside a model.

    \b
    bench lookups
    bench lookups -n 50000
    """
    with Workspace("bench") as work, memcached() as remote:
        environment = work.environment("bench")
        source, served = work.folder / "source.git", work.folder / "served"
        linear.write(source, environment, linear.wide_tree(files, 5000))
        served.mkdir()
        stream = work.folder / "stream"
        stream.write_text(run(["git", "fast-export", "main"], source, environment))
        run(["smartserver", "fast-import", str(served / "wide"), str(stream)], source, environment)
        report = Report(
            f"{files:,} files; a read of the store waits, memcached answers in "
            f"{gets(remote) * 1e6:.0f} us; medians of {repeat}",
            "the model",
        )
        cell = Lookups(served / "wide", ["main"])
        get = gets(remote)
        cell.read(remote=remote)  # Which fills it.
        plain = _cell(cell, repeat, None)
        there = _cell(cell, repeat, remote)
        for wait in WAITS:
            Waiting.wait = wait
            for name, base, other in (("without memcached", plain, None), ("with memcached", there, remote)):
                found = _cell(cell, 1 if wait > 0.005 else repeat, other)
                expected = base.seconds + base.reads * wait
                ok = abs(found.seconds - expected) <= max(BOUND * expected, SLACK)
                report.add(
                    f"checkout, {wait * 1000:g} ms, {name}, {found.reads:,} reads",
                    f"{found.seconds:.2f} s",
                    f"{expected:.2f} s",
                    f"{BOUND:.0%}",
                    ok,
                )
        Waiting.wait = 0.0
        rows = IndexRows(remote)
        cell.read(remote=remote, rows=rows)
        rows.asked = 0
        with_rows = cell.read(remote=remote, rows=rows)
        report.add(
            f"index data in memcached, too: {rows.asked:,} gets",
            f"{with_rows.seconds:.2f} s",
            f"{there.seconds + rows.asked * get:.2f} s",
            f"{BOUND:.0%}",
            abs(with_rows.seconds - there.seconds - rows.asked * get) <= max(BOUND * with_rows.seconds, SLACK),
        )
    report.finish()


class IndexRows:
    """Blocks of indexes in memcached, which no server puts there."""

    def __init__(self, remote: Memcached) -> None:
        self._remote = remote
        self.asked = 0

    def get(self, key: bytes) -> bytes | None:
        self.asked += 1
        return self._remote.get(b"rows" + key)

    def put(self, key: bytes, value: bytes) -> None:
        self._remote.put(b"rows" + key, value)


def _cell(lookups: Lookups, repeat: int, remote: Memcached | None) -> Cell:
    found = [lookups.read(remote=remote) for _ in range(repeat)]
    return Cell(median([each.seconds for each in found]), found[-1].reads, found[-1].files)

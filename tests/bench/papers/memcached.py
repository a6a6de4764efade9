"""The gain from memcached: checkouts and updates from a store that waits, with texts from the pack, from memcached and
from the memory that workers share, beside a model of the chain of lookups.

The store is a folder in the page cache, and each read of it waits as long as a read of a disk or of a network file
system would. For a page cache that is too small, all pages are dropped before. The model's constants are measured
before, without any wait: `doc/explanation/caches.md`.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Final

import click
from needs import program, require

from bench import options
from bench.papers import linear
from bench.papers.repositories import drop_pages
from bench.papers.results import Results, with_options
from bench.report import end, median, table
from bench.servers import Workspace, free_port, run
from smartserver.records.browse import TreeSelector
from smartserver.records.content import ReadScope
from smartserver.records.system import system_of
from smartserver.server.common_cache import CommonCache
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
"""The share by which a figure may differ from its model, unless it differs by less than `SLACK` seconds."""
SLACK: Final = 0.05
WAITS: Final = {"0 ms": 0.0, "1 ms": 0.001, "10 ms": 0.01, "pages dropped": 0.0}
"""Seconds that a read of the store waits."""
DROPPED: Final = "pages dropped"
SOURCES: Final = ("the pack", "memcached", "shared memory", "both")
LONGEST: Final = 150.0
"""The longest time of a cell in seconds. A cell that must take longer is not run."""
UPDATED: Final = 20
"""Revisions that an update covers."""
LENGTH: Final = 5000
PROBES, SLEEPS = 1000, 50
"""The number of reads that measure the disk, and of sleeps that measure a wait."""


class Waiting(PassingTransport):
    """A store whose reads are delayed."""

    wait = 0.0
    reads = 0

    def open_read(self, path: str) -> ReadFile:
        return WaitingFile(super().open_read(path))


class WaitingFile(ReadFile):
    """A file of a store whose reads are delayed."""

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


Made = tuple[float, float]
"""Seconds of a cell, and its reads of the store."""


class Lookups:
    """A repository in a store that may wait, read by servers that have nothing in memory of their own."""

    def __init__(self, folder: Path, remote: Memcached, shared: CommonCache) -> None:
        self.folder = folder
        self._store = Waiting(LocalTransport(str(folder)))
        self._remote = remote
        self._shared = shared

    def read(self, selectors: Sequence[TreeSelector], source: str, rows: Common | None = None) -> Made:
        """Answer requests as a server does after its start. `rows`: a cache with blocks of indexes."""
        texts = TextCache(256 << 20)
        texts.remote = self._remote if source in ("memcached", "both") else None
        texts.common = self._shared if source in ("shared memory", "both") else None
        blocks.CACHED.clear()
        blocks.CACHED.common, blocks.CACHED._form = rows, Form(b"", bytes, bytes)
        caches.HEADERS.clear()
        Waiting.reads, begin = 0, time.perf_counter()
        snapshot = PackRepository(self._store, texts=texts).snapshot()
        view = SnapshotView(snapshot.state.refs, snapshot.state.map, snapshot, Allowance(limited=False))
        contents = system_of(snapshot.state.vcs).contents(view, ReadScope())
        for selector in selectors:
            plan = browse(view, contents, selector, b"")
            assert plan.items is not None
            for item in plan.items:
                len(item)
        blocks.CACHED.common = None
        return time.perf_counter() - begin, Waiting.reads

    def cell(self, selectors: Sequence[TreeSelector], source: str, wait: str, repeat: int) -> Made:
        """Return the median seconds of some reads, and the number of reads of the store in the last one."""
        found = []
        Waiting.wait = WAITS[wait]
        for _ in range(1 if WAITS[wait] > 0.005 else repeat):
            if wait == DROPPED:
                drop_pages([self.folder])
            found.append(self.read(selectors, source))
        Waiting.wait = 0.0
        return median([seconds for seconds, _ in found]), found[-1][1]

    def expected(self, selectors: Sequence[TreeSelector], source: str, wait: str, repeat: int) -> float:
        """Return the seconds that the model predicts for a cell. Its constants are measured here: seconds and reads of
        the store without waits; and apart, the length of a wait (a sleep is longer than asked for), or of a read of the
        disk."""
        seconds, reads = self.cell(selectors, source, "0 ms", repeat)
        if wait == DROPPED:
            each, pages = self.disk()
            return seconds + min(reads, pages) * each
        begin = time.perf_counter()
        for _ in range(SLEEPS if WAITS[wait] else 0):
            time.sleep(WAITS[wait])
        return seconds + reads * (time.perf_counter() - begin) / SLEEPS

    def disk(self) -> tuple[float, float]:
        """Return the seconds of a read of the disk with no page cached, and the number of pages of the repository."""
        drop_pages([self.folder])
        largest = max((file for file in self.folder.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
        size, chance = largest.stat().st_size, random.Random(PROBES)
        with largest.open("rb", buffering=0) as file:
            begin = time.perf_counter()
            for _ in range(PROBES):
                os.pread(file.fileno(), 4096, chance.randrange(size))
        return (time.perf_counter() - begin) / PROBES, size / 4096


@contextmanager
def memcached() -> Iterator[Memcached]:
    """Start a server with room for everything."""
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
    """Return the seconds of a `get` of a text of 5 KB."""
    remote.put(b"probe", bytes(5000))
    begin = time.perf_counter()
    for _ in range(count):
        assert remote.get(b"probe") is not None
    return (time.perf_counter() - begin) / count


class IndexRows:
    """Blocks of indexes in memcached; no server puts them there."""

    def __init__(self, remote: Memcached) -> None:
        self._remote = remote
        self.asked = 0

    def get(self, key: bytes) -> bytes | None:
        self.asked += 1
        return self._remote.get(b"rows" + key)

    def put(self, key: bytes, value: bytes) -> None:
        self._remote.put(b"rows" + key, value)


def _with_rows(lookups: Lookups, remote: Memcached, selectors: Sequence[TreeSelector], repeat: int) -> list[float]:
    """Return the seconds of a checkout with blocks of indexes in memcached too, its gets, and the seconds of a get."""
    rows = IndexRows(remote)
    lookups.read(selectors, "memcached", rows)
    rows.asked = 0
    found = [lookups.read(selectors, "memcached", rows)[0] for _ in range(repeat)]
    return [median(found), rows.asked / repeat, gets(remote)]


def is_near(seconds: float, expected: float) -> bool:
    """Tell whether the model predicts a figure."""
    return abs(seconds - expected) <= max(BOUND * seconds, SLACK)


@click.command()
@options.number("-n files", 50_000, f"Of a tree, {LENGTH:,} bytes each.")
@options.number("--repeat", 3, "Runs of each cell; the median counts.")
@click.option("--wait", "waits", multiple=True, type=click.Choice(list(WAITS)), help="Only these.")
@with_options
def command(files: int, repeat: int, waits: Sequence[str], folder: Path, write: bool) -> None:
    """Measure the gain from memcached: a checkout of a tree (250 MB), and an update of the paths that 20 revisions
    changed, from a store whose reads wait or whose pages are dropped, with texts from the pack, from memcached, from
    the memory that workers share, and from both; each beside a model. A cell that must take over 150 s is not run.

    \b
    bench papers memcached
    bench papers memcached -n 3000 --wait '10 ms'
    """
    require("memcached", "fincore")
    results, name = Results(folder), f"memcached {files:,}"
    wrong, rows = [], []
    with Workspace("bench") as work, memcached() as remote:
        results.progress.step("making the repository")
        served = results.folder / work.folder.name  # On a disk, wherever temporary files are.
        work.later(partial(shutil.rmtree, served, ignore_errors=True))
        served.mkdir()
        history = linear.wide_history(files, -(-files // linear.PART) + UPDATED, LENGTH)
        git = linear.to_ours(history, served / "wide", work)
        changed = run(["git", "diff", "--name-only", f"main~{UPDATED}", "main"], git, work.environment("bench")).split()
        operations = {
            "checkout": [TreeSelector("main", deep=True, texts=True)],
            "update": [TreeSelector("main", path.encode(), texts=True) for path in changed],
        }
        lookups = Lookups(served / "wide", remote, CommonCache(files * LENGTH * 3 + (64 << 20), 1))
        lookups.read(operations["checkout"], "both")  # Which fills them.
        for (what, selectors), wait in product(operations.items(), waits or WAITS):
            shown = []
            for source in SOURCES:
                cell = f"{name}, {what}, {wait}, {source}"
                of = (selectors, source, wait, repeat)
                expected = results.find(f"{cell}, model", lambda: [lookups.expected(*of)])[0]  # noqa: B023
                if expected > LONGEST:
                    shown.append(f"not run: {expected:,.0f} s")
                    continue
                found, made = results.find(cell, partial(lookups.cell, *of))
                shown.append(f"{found:.2f} s, {made:,.0f} reads; {expected:.2f}")
                if not is_near(found, expected):
                    wrong.append(f"{what}, {wait}, {source}: {found:.2f} s, the model {expected:.2f} s")
            rows.append([f"{what}, {wait}", *shown])
        selectors = operations["checkout"]
        base = results.find(f"{name}, rows, model", partial(lookups.cell, selectors, "memcached", "0 ms", repeat))[0]
        found, asked, get = results.find(f"{name}, rows", partial(_with_rows, lookups, remote, selectors, repeat))
    expected = base + asked * get
    if not is_near(found, expected):
        wrong.append(f"index data in memcached: {found:.2f} s, the model {expected:.2f} s")
    label = f"checkout, 0 ms, {asked:.0f} blocks of indexes in memcached, too"
    rows.append([label, "", f"{found:.2f} s; {expected:.2f}", "", ""])
    text = table(["seconds; the model's", *SOURCES], rows)
    text += f"\n\nA `get` of memcached takes {get * 1e6:.0f} us; an update has {len(changed)} paths."
    results.show(name, text, write=write, by=f"memcached -n {files}")
    end(wrong)

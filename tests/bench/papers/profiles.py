"""Profiles of a process by library and function, as `perf` samples the clock: the share of decompression and hashes in
an export."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import click
from needs import require

from bench.papers.repositories import Repositories, Side, with_histories
from bench.papers.runs import LEVELS
from bench.report import table
from bench.servers import Workspace, run

OFTEN: Final = "5000"
"""Samples in a second."""

SHARES: Final[Mapping[str, str]] = {
    "hashes": r"md5|MD5|sha1|sha256|blake|crc32|XXH|libcrypto|libaprutil",
    "decompression": r"zstd|ZSTD|HUF|inflate|lz4|LZ4|_cffi\.|libz\.",
    "kernel": r"kernel|\[vdso\]",
}
"""Patterns of library and function; the first match counts. Debian's MD5 and SHA-1 in libaprutil have no names."""


def by_function(words: Sequence[str], environment: Mapping[str, str]) -> dict[tuple[str, str], float]:
    """Return the samples of a command, in per cent, by library and function."""
    with Workspace("perf") as work:
        data = str(work.folder / "perf")
        run(["perf", "record", "-q", "-F", OFTEN, "-e", "cpu-clock", "-o", data, "--", *words], None, environment)
        report = ["perf", "report", "-i", data, "--stdio", "-q", "-t", "|", "--sort", "dso,symbol"]
        found = run(report, None, environment)
    rows = re.findall(r"^ *([\d.]+)% *\|([^|]*)\|\[.\] ([^|]*)", found, re.MULTILINE)
    return {(library.strip(), function.strip()): float(share) for share, library, function in rows}


def shares(found: Mapping[tuple[str, str], float]) -> list[float]:
    """Return the shares of `SHARES`, and of everything else."""
    sums = dict.fromkeys([*SHARES, ""], 0.0)
    for place, percent in found.items():
        sums[next((name for name, like in SHARES.items() if re.search(like, " ".join(place))), "")] += percent
    return [share / 100 for share in sums.values()]


def measured(repositories: Repositories, history: str, side: Side, level: str) -> list[float]:
    """Return the processor seconds of a client in a hot export, and the shares."""
    served, made = repositories.served(history, side), repositories.memory
    with repositories.server(served, side, "fast", *LEVELS[side.name, level]) as server:
        words = side.words("export", server.url("packed"), "fast", {"made": str(made)})
        costs = [repositories.run(words, made, alone=True) for _ in range(2)]
        try:
            found = by_function(words, repositories.alone)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return [costs[-1].cpu, *shares(found)]


@click.command()
@with_histories
def command(repositories: Repositories, histories: Sequence[str], *, write: bool) -> None:
    """The shares of decompression and hashes in a client's processor time of an export, hot, with the server's
    compression off and on, ours beside svn's. Needs perf.

    \b
    bench papers client ~/src/project
    """
    require("perf")
    for history in histories:
        rows = []
        for name, level in LEVELS:
            values = repositories.results.find(
                f"client {history}, {name}, {level}",
                partial(measured, repositories, history, Side(name), level),
            )
            rows.append([f"{name}, compression {level}", f"{values[0]:.2f}", *(f"{each:.1%}" for each in values[1:])])
        head = ["", "processor, s", *SHARES, "all else"]
        repositories.results.show(f"client {history}", table(head, rows), write=write, by=f"client --history {history}")

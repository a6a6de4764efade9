"""The file operations of each command on a folder: strace's count of ours and of svn's, beside our `--stats`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Final, NamedTuple

import click
from needs import require

from bench.papers.repositories import PACKINGS, Repositories, Side, with_histories
from bench.process import measure
from bench.report import table
from bench.servers import Workspace, run

COMMANDS: Final = ("export", "log -q", "log -v", "cat", "verify", "dump")
COUNTERS: Final = (
    "files_opened_to_read", "files_opened_to_write", "file_seeks", "file_read_bytes", "file_reads",
    "file_written_bytes", "file_writes",
)  # fmt: skip
"""Our counters, in the order of `Files`."""

CALLS: Final = (
    "trace=openat,read,pread64,readv,preadv,preadv2,sendfile,copy_file_range,lseek,write,pwrite64,writev,mmap"
)
TRACED: Final = ("strace", "-ff", "-y", "-s", "0", "-e", CALLS, "-o")

_OPENED: Final = re.compile(r"^openat\(.*?, (O_[A-Z_|]+).*\) = \d+<(.*)>$", re.MULTILINE)
_READ: Final = re.compile(r"^(?:p?readv?2?|pread64)\(\d+<(.*?)>.* = (\d+)$", re.MULTILINE)
_SENT: Final = re.compile(r"^(?:sendfile\(.*?, |copy_file_range\()\d+<(.*?)>.* = (\d+)$", re.MULTILINE)
_WRITTEN: Final = re.compile(r"^(?:p?writev?|pwrite64)\(\d+<(.*?)>.* = (\d+)$", re.MULTILINE)
_SOUGHT: Final = re.compile(r"^lseek\(\d+<(.*?)>.* = \d", re.MULTILINE)
_MAPPED: Final = re.compile(r"^mmap\(NULL, (\d+), .*, \d+<(.*?)>, ", re.MULTILINE)


class Files(NamedTuple):
    """The operations on files."""

    to_read: float = 0
    to_write: float = 0
    seeks: float = 0
    read: float = 0
    reads: float = 0
    written: float = 0
    writes: float = 0
    mapped: float = 0
    """Bytes of files that were mapped, counted each time."""


def counted(text: str, inside: Sequence[str]) -> Files:
    """Count the operations on files below some folders, from a trace."""

    def sizes(*calls: re.Pattern[str]) -> list[int]:
        return [int(size) for call in calls for path, size in call.findall(text) if path.startswith(tuple(inside))]

    opened = [flags for flags, path in _OPENED.findall(text) if path.startswith(tuple(inside))]
    opened = [flags for flags in opened if "O_DIRECTORY" not in flags]
    to_write = sum("O_WRONLY" in flags or "O_RDWR" in flags for flags in opened)
    sought = sum(path.startswith(tuple(inside)) for path in _SOUGHT.findall(text))
    read, written = sizes(_READ, _SENT), sizes(_WRITTEN)
    mapped = sum(int(size) for size, path in _MAPPED.findall(text) if path.startswith(tuple(inside)))
    return Files(len(opened) - to_write, to_write, sought, sum(read), len(read), sum(written), len(written), mapped)


def traced(repositories: Repositories, history: str, side: Side, command: str, packing: str) -> Files:
    """Count a command's operations on the repository and on its output, with strace."""
    words, inside = _words(repositories, history, side, command, packing)
    with Workspace("traced") as work:
        trace = work.folder / "trace"
        repositories.run([*TRACED, str(trace), *words], repositories.memory, alone=True)
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in work.folder.glob("trace.*")]
    return Files(*map(sum, zip(*(counted(text, inside) for text in texts), strict=True)))


def told(repositories: Repositories, history: str, side: Side, command: str, packing: str) -> Files:
    """Count the same operations with `--stats`."""
    words = _words(repositories, history, side, command, packing)[0]
    said = measure([words[0], "--stats", *words[1:]], None, repositories.alone)[1]
    shutil.rmtree(repositories.memory, ignore_errors=True)
    counters = re.findall(r"^(\w+) +([\d,]+)$", said, re.MULTILINE)
    found = {name: float(value.replace(",", "")) for name, value in counters}
    return Files(*(found.get(name, 0) for name in COUNTERS))


def _words(
    repositories: Repositories, history: str, side: Side, command: str, packing: str
) -> tuple[list[str], Sequence[str]]:
    """Return a command, and the folders to count in. Our export is written beside its place."""
    place, made = str((repositories.served(history, side) / packing).resolve()), str(repositories.memory)
    git = repositories.served(history, Side("git")) / "packed"
    listed = run(["git", "ls-tree", "-r", "--name-only", "-z", "main"], git, repositories.alone).split("\0")
    names = {"made": made, "path": sorted(listed[:-1])[len(listed) // 2]}
    return side.words(command, place, "fast", names), (f"{place}/", made, f"{repositories.memory.parent}/.smartserver-")


@click.command()
@with_histories
def command(repositories: Repositories, histories: Sequence[str], *, write: bool) -> None:
    """Count the file operations of each command on a folder: opened, sought, read and written, ours beside svn's, by
    strace.

    The table also has the counts of our own --stats: only files of the repository, without those of processes that a
    command starts (`verify` starts two). Needs strace.

    \b
    bench papers io ~/src/project
    """
    require("strace")
    for history in histories:
        rows = []
        for each, packing, (name, count) in product(
            COMMANDS, PACKINGS, (("ours", traced), ("ours, --stats", told), ("f7", traced))
        ):
            side = Side(name.partition(",")[0])
            values = repositories.results.find(
                f"io {history}, {each}, {name}, {packing}",
                partial(count, repositories, history, side, each, packing),
            )
            found = Files(*values)
            shown = [f"{found.to_read:,.0f}", f"{found.to_write:,.0f}", f"{found.seeks:,.0f}"]
            shown += [f"{found.read:,.0f} in {found.reads:,.0f}", f"{found.written:,.0f} in {found.writes:,.0f}"]
            rows.append([f"`{each}`, {packing}, {name}", *shown, f"{found.mapped:,.0f}"])
        head = ["", "r/o", "r/w", "seeks", "bytes in reads", "bytes in writes", "bytes mapped"]
        repositories.results.show(f"io {history}", table(head, rows), write=write, by=f"io --history {history}")

"""Makes one pack of pulled records, with a process for each core.

A record goes to the worker that has its base, so workers share nothing, and the distance from a delta to its base
stays right when their outputs are joined. Frames are read from a spool file; all files here have no name, so that
whatever ends the process leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import BinaryIO, NamedTuple

from smartserver.records.keys import ABSENT, KeyTable
from smartserver.vcs.base import VcsError
from smartserver.vcs.child import Child
from smartserver.vcs.git.objects import ObjectReader
from smartserver.vcs.git.pack import PACK_HEAD, EntryWriter, Row, Rows, Table, hash_of, write_all
from smartserver.vcs.git.repository import GitRepository
from smartserver.vcs.signals import held

CACHE = 64 << 20
"""Bytes of text a worker keeps: at half of it a clone decodes a tenth more, at the double it gains 3 %."""

LEVEL = 1
"""zlib: level 6 takes a tenth more of all CPU and makes a clone 4 % smaller."""

_BLOCK = 1 << 20
_RECORD_COST = 3000
_FRAME_COST = 20
"""The work of a record, in bytes of text: so much each, and so much a byte of its frame."""

_GIVEN_AT = 256 << 10
"""Bytes of frames that a worker waits for at the most: it works while more of them come. Rows alone are too small to
fill the pipe's buffer."""


def unnamed_file(folder: str) -> int:
    """A descriptor of a new file without a name, on the same file system as `folder`."""
    flag = getattr(os, "O_TMPFILE", 0)
    if flag:
        with contextlib.suppress(OSError):  # Some file systems have no such files.
            return os.open(folder, os.O_RDWR | flag, 0o600)
    name = os.path.join(folder, f"tmp_spool_{os.getpid()}_{os.urandom(6).hex()}")
    with held():
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.unlink(name)
    return file


class Part(NamedTuple):
    """What one worker wrote: a file of entries, and the bytes of their `Table`."""

    entries: int
    table: bytes


class InlineWorker:
    """A worker in this process, for few records and for one core."""

    def __init__(self, repository: GitRepository, spool: int, folder: str) -> None:
        self._out = unnamed_file(folder)
        self._writer = EntryWriter(
            spool, self._out, repository.id_length, repository.objects.read, cache=CACHE, level=LEVEL
        )

    def give(self, rows: list[Row]) -> None:
        """More records."""
        self._writer.add_all(rows)

    def finish(self) -> Part:
        """Write what is left."""
        self._writer.flush()
        return Part(self._out, self._writer.table.to_bytes())

    def abandon(self) -> None:
        """Drop what was written."""
        os.close(self._out)


class ForkedWorker:
    """A worker in a process of its own, fed through a pipe. The other end of the pipe closing early ends it."""

    def __init__(self, repository: GitRepository, spool: int, folder: str, siblings: Iterable[ForkedWorker]) -> None:
        self._rows = Rows(repository.id_length)
        with contextlib.ExitStack() as undo:
            self._out = unnamed_file(folder)
            undo.callback(os.close, self._out)
            self._answer = unnamed_file(folder)
            undo.callback(os.close, self._answer)
            read, write = os.pipe()
            undo.callback(os.close, write)
            undo.callback(os.close, read)
            others = [write, *[sibling.pipe for sibling in siblings]]
            self._child = Child(self._answer, lambda: self._work(repository, spool, read, others))
            undo.pop_all()
        os.close(read)
        self._feed: BinaryIO = os.fdopen(write, "wb", _BLOCK >> 4)
        self._held = 0
        """Bytes of the frames of rows that may lie in the pipe's buffer."""

    @property
    def pipe(self) -> int:
        """The end of the pipe that this process writes to."""
        return self._feed.fileno()

    def give(self, rows: list[Row]) -> None:
        """More records.

        Raises:
            WrongContent, BaseNotHere: the worker met a record that is wrong, or rests on what is not here.
        """
        try:
            self._feed.write(b"".join(map(self._rows.pack, rows)))
            self._held += sum([row.frame_length for row in rows])
            if self._held >= _GIVEN_AT:
                self._feed.flush()
                self._held = 0
        except BrokenPipeError:
            self.finish()
            raise VcsError("a worker ended early") from None

    def finish(self) -> Part:
        """Wait until all is written.

        Raises:
            WrongContent, BaseNotHere: the worker met a record that is wrong, or rests on what is not here.
        """
        with contextlib.suppress(BrokenPipeError):
            self._feed.write(bytes(self._rows.size))
            self._feed.close()
        return Part(self._out, self._child.wait())

    def abandon(self) -> None:
        """Stop the process and wait for its end."""
        self._child.abandon()
        with contextlib.suppress(OSError, ValueError):
            self._feed.close()
        for file in (self._out, self._answer):
            with contextlib.suppress(OSError):
                os.close(file)

    def _work(self, repository: GitRepository, spool: int, read: int, others: list[int]) -> bytes:
        """What the process does; `others`: pipes of the parent, which would not end while they are open here."""
        for pipe in others:
            os.close(pipe)
        with contextlib.closing(ObjectReader(repository.start)) as objects, os.fdopen(read, "rb", _BLOCK >> 4) as rows:
            writer = EntryWriter(spool, self._out, repository.id_length, objects.read, cache=CACHE, level=LEVEL)
            while (block := rows.read(self._rows.size)) != bytes(self._rows.size):
                if len(block) != self._rows.size:
                    raise VcsError("the process that feeds this one ended")
                writer.add_all(self._rows.unpack(block))
            writer.flush()
            return writer.table.to_bytes()


class PackBuilder:
    """Deals records to workers and joins what they write to a pack."""

    def __init__(self, repository: GitRepository, spool: int, folder: str, keys: KeyTable, *, jobs: int) -> None:
        """`keys`: those of all records that are to come, as far as they were read."""
        self._width = repository.id_length
        self._workers: list[InlineWorker | ForkedWorker] = []
        self._keys = keys
        self._home = bytearray()
        """The worker of each record that was given to one, by its number in `keys`."""
        self._count = 0
        try:
            if jobs < 2:
                self._workers.append(InlineWorker(repository, spool, folder))
            else:
                for _ in range(jobs):
                    siblings = [worker for worker in self._workers if isinstance(worker, ForkedWorker)]
                    self._workers.append(ForkedWorker(repository, spool, folder, siblings))
        except BaseException:
            self.abandon()
            raise
        self._load = [0] * len(self._workers)

    def add(self, rows: Iterable[Row]) -> None:
        """More records, in the order of their keys in `keys`; their frames are in the spool already.

        Raises:
            WrongContent: one of those given so far is wrong.
        """
        shares: list[list[Row]] = [[] for _ in self._workers]
        home, find = self._home, self._keys.find
        for row in rows:
            base = find(row.base) if row.base else ABSENT
            if ABSENT < base < len(home):
                worker = home[base]
            else:
                worker = self._load.index(min(self._load))
            home.append(worker)
            self._load[worker] += _RECORD_COST + _FRAME_COST * row.frame_length
            shares[worker].append(row)
            self._count += 1
        for worker_, share in zip(self._workers, shares, strict=True):
            if share:
                worker_.give(share)

    def finish(self, out: int) -> tuple[Table, bytes]:
        """Write the pack to the file `out`; the table of its entries, and the hash it ends with.

        Raises:
            WrongContent: a record is wrong.
        """
        parts = [worker.finish() for worker in self._workers]
        table = Table(self._width)
        hashed = hash_of(self._width)()
        head = PACK_HEAD.pack(b"PACK", 2, self._count)
        hashed.update(head)
        write_all(out, head)
        at = len(head)
        for entries, rows in parts:
            table.join(rows, at)
            os.lseek(entries, 0, os.SEEK_SET)
            while block := os.read(entries, _BLOCK):
                hashed.update(block)
                write_all(out, block)
                at += len(block)
        write_all(out, hashed.digest())
        return table, hashed.digest()

    def abandon(self) -> None:
        """End all workers and drop what they wrote; also after `finish`."""
        for worker in self._workers:
            worker.abandon()
        self._workers = []

"""`PostgresLog`: a store of several servers that has logs in a table of PostgreSQL, and other files in another store.

It is a transport: records are rows, drafts of records are in memory, and every other file is in the inner store. So the
rules of the log (doc/design/0032) need not be implemented again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, auto
from itertools import groupby

from smartserver.store.postgres import Database
from transports import paths
from transports.base import BytesFile, ReadFile, Stat, Step, Transport, WriteFile
from transports.decorators.passing import PassingTransport
from transports.errors import FileExists, NoSuchFile, TransportError, TransportFailed
from transports.steps import GetPublished, GetStat, Publish

_RECORD = re.compile(r"(?:(?P<repository>.+)/)?log/(?P<number>\d{10,})")
_DRAFT = re.compile(r"(?:.+/)?incoming/[^/]+\.(?:record|\d{10})")
_LOG = re.compile(r"(?:(?P<repository>.+)/)?log")


class PostgresLog(PassingTransport):
    """The tree of `inner`, with the records of its repositories in a database."""

    def __init__(self, inner: Transport, database: Database, *, prefix: str = "") -> None:
        super().__init__(inner, prefix=prefix)
        self._database = database
        self._drafts: dict[str, bytes] = {}
        """The contents of the records that are not published yet, by the full path of their draft."""

    def wrap(self, inner: Transport, prefix: str) -> PostgresLog:
        made = PostgresLog(inner, self._database, prefix=prefix)
        made._drafts = self._drafts
        return made

    def local_folder(self) -> str | None:
        return self.inner.local_folder()  # A process that opens this folder finds the database through `CLUSTER`.

    def _record(self, path: str) -> tuple[str, int] | None:
        """Return the repository and the number of the record at a path; None if the path is not that of a record."""
        found = _RECORD.fullmatch(self.full(path))
        return None if found is None else (found["repository"] or "", int(found["number"]))

    def _draft(self, path: str) -> bytes | None:
        return self._drafts.get(self.full(path))

    def get(self, path: str) -> bytes:
        record, draft = self._record(path), self._draft(path)
        if record is None:
            return self.inner.get(path) if draft is None else draft
        repository, number = record
        content = self._database.read(repository, [number]).get(number)
        if content is None:
            raise NoSuchFile(self.full(path))
        return content

    def get_published(self, path: str) -> bytes:
        return self.inner.get_published(path) if self._record(path) is None else self.get(path)

    def open_read(self, path: str) -> ReadFile:
        if self._record(path) is None and self._draft(path) is None:
            return self.inner.open_read(path)
        return BytesFile(self.get(path))

    def open_published(self, path: str) -> ReadFile:
        return self.inner.open_published(path) if self._record(path) is None else self.open_read(path)

    def create(self, path: str) -> WriteFile:
        if _DRAFT.fullmatch(self.full(path)) is None:
            return self.inner.create(path)
        if self._draft(path) is not None:
            raise FileExists(self.full(path))
        return _DraftFile(self._drafts, self.full(path))

    def publish(self, source: str, target: str) -> None:
        if self._record(target) is None:
            self.inner.publish(source, target)
        else:
            self._publish(source, target)

    def _publish(self, source: str, target: str) -> dict[tuple[str, int], bytes]:
        """Publish a record. Return its content and, if the statement has read it, that of its predecessor, each by
        repository and number."""
        repository, _ = self._record(target) or ("", 0)
        draft = self._drafts.pop(self.full(source), None)
        content = self.inner.get(source) if draft is None else draft  # The draft of `recover` is a file.
        added = self._database.publish(repository, content, self.full(target))
        if not added:
            raise FileExists(self.full(target))
        if draft is None:
            with suppress(TransportError):  # The record is published, even if its draft stays.
                self.inner.delete(source)
        return {(repository, number): record for number, record in added.items()}

    def rename(self, source: str, target: str) -> None:
        if self._record(source) is None:
            self.inner.rename(source, target)
            return
        content = self.get(source)  # `recover` moves a record to `lost/`.
        try:
            self.inner.put(target, [content])
        except FileExists:
            if self.inner.get(target) != content:  # Else an earlier move was interrupted here.
                raise
        self.inner.sync_directory(paths.split(target)[0])
        self.delete(source)

    def withdraw(self, path: str, aside: str) -> None:
        if self._record(path) is None:
            self.inner.withdraw(path, aside)
        else:
            self.delete(path)

    def delete(self, path: str) -> None:
        record = self._record(path)
        if record is not None:
            if not self._database.delete(*record):
                raise NoSuchFile(self.full(path))
        elif self._drafts.pop(self.full(path), None) is None:
            self.inner.delete(path)

    def list_directory(self, path: str) -> list[str]:
        found = _LOG.fullmatch(self.full(path))
        numbers = [] if found is None else self._database.numbers(found["repository"] or "")
        return [f"{number:010}" for number in numbers] or self.inner.list_directory(path)

    def stat(self, path: str) -> Stat:
        record = self._record(path)
        if record is None:
            return self.inner.stat(path)
        found = self._database.stat(*record)
        if found is None:
            raise NoSuchFile(self.full(path))
        return found

    def sync_directory(self, path: str) -> None:
        if _LOG.fullmatch(self.full(path)) is None:  # Rows of the database are durable already.
            self.inner.sync_directory(path)

    def perform(self, steps: Sequence[Step]) -> None:
        """Perform neighbouring steps of the inner store together, and read neighbouring records together."""
        known: dict[tuple[str, int], bytes] = {}
        for kind, group in groupby(steps, self._kind):
            run = list(group)
            if kind is _Kind.INNER:
                self.inner.perform(run)
            elif kind is _Kind.READ:
                self._read(run, known)
            else:
                for step in run:
                    if isinstance(step, Publish) and self._record(step.target):
                        known = self._publish(step.path, step.target)
                    else:
                        step.do(self)

    def _read(self, steps: Sequence[Step], known: dict[tuple[str, int], bytes]) -> None:
        """Read records. `known`: the records that were read before in this call of `perform`, which are not read
        again."""
        wanted = {self._record(step.path) or ("", 0): step for step in steps}
        for repository in {name for name, number in wanted.keys() - known.keys()}:
            numbers = [number for name, number in wanted.keys() - known.keys() if name == repository]
            found = self._database.read(repository, numbers)
            known |= {(repository, number): content for number, content in found.items()}
        for step in steps:
            assert isinstance(step, GetPublished)
            step.settle(known.get(self._record(step.path) or ("", 0)))

    def _kind(self, step: Step) -> _Kind:
        if isinstance(step, GetPublished) and self._record(step.path) is not None:
            return _Kind.READ
        full = [self.full(path) for path in step.paths]
        rules = (_RECORD, _DRAFT) if isinstance(step, GetStat) else (_RECORD, _DRAFT, _LOG)
        own = any(rule.fullmatch(path) for rule in rules for path in full)
        return _Kind.OWN if own else _Kind.INNER


class _Kind(Enum):
    READ = auto()
    OWN = auto()
    INNER = auto()


class _DraftFile(WriteFile):
    """The draft of a record, whose content can be read once the file is closed."""

    def __init__(self, drafts: dict[str, bytes], path: str) -> None:
        self._drafts, self._path = drafts, path
        self._content = bytearray()
        self._is_open = True
        drafts[path] = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_open:
            raise TransportFailed(self._path, "it is closed")
        self._content += data

    def sync(self) -> None:
        if not self._is_open:
            raise TransportFailed(self._path, "it is closed")

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._drafts[self._path] = bytes(self._content)

"""Keeps the records of a pull in a temporary file until they are inserted. Each is checked before it is used."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

from smartserver.records.cache import Cache
from smartserver.records.check import verify_record
from smartserver.records.delta import decompress
from smartserver.records.model import Entry, Key, Kind, RevisionId, Segment
from smartserver.records.segment import decode_segment, read_length
from smartserver.records.varint import MAX_BYTES, Malformed
from smartserver.vcs.base import WrongContent

CACHE: Final = 64 << 20
"""The most bytes of texts that are cached as possible bases."""


class ReceivedRecord(NamedTuple):
    """A received record: its place in the temporary file, and its header."""

    at: int
    encoding: int
    length: int
    frame_length: int
    meta: bytes
    base: Key
    check: bytes
    base_is_local: bool
    """True if the record has a base that was not received before it. The base is then in the local repository, even if
    a copy is received later."""
    revision: RevisionId
    """The first revision that introduced the record."""


class ReceivedRecords(ABC):
    """Stores received records in a temporary file, and finds them by kind and key, in the order of their receipt. As a
    context manager, it removes the file."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self._kinds = kinds
        self._rows: list[dict[Key, ReceivedRecord]] = [{} for _ in kinds]
        self._copies: dict[tuple[int, Key], list[RevisionId]] = {}
        """For a record (kind and key) that several revisions introduced, these revisions except the first."""
        self.parents: dict[RevisionId, tuple[RevisionId, ...]] = {}
        """The parents of each received revision, in order."""
        self._cache = Cache[tuple[int, Key], bytes](CACHE, len)
        self._size = 0
        self._spool = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the temporary file."""
        self._spool.close()

    @property
    def objects(self) -> int:
        """The number of different records that were received."""
        return sum(map(len, self._rows))

    def _take(self, block: bytes) -> tuple[Segment, list[Entry]]:
        """Store a segment; segments of its revision's parents must be stored before. Return the decoded segment, and
        the entries of its records that were not received before."""
        taken = self._note(block, self._size)
        self._write(block)
        return taken

    def _write(self, block: bytes) -> None:
        self._size += len(block)
        try:
            while block:
                block = block[os.write(self._spool.fileno(), block) :]
        except OSError as error:
            error.filename = tempfile.gettempdir()  # The file has no name, but the user must know what is full.
            raise

    def _note(self, block: bytes, at: int) -> tuple[Segment, list[Entry]]:
        """Decode a segment that lies at `at` in the file, and register its records. Returns the same as `_take`."""
        segment = decode_segment(block, 0, self._kinds)
        revision = segment.revision
        self.parents[revision] = tuple([parent.id for parent in segment.parents])
        at += segment.frames_at
        new = []
        for entry in segment.entries:
            came = self._rows[entry.kind]
            if entry.key in came:
                self._copies.setdefault((entry.kind, entry.key), []).append(revision)
            else:
                base = segment.base_of(entry)
                base_is_local = bool(base) and base not in came
                place = (at, entry.encoding, entry.length, entry.frame_length)
                came[entry.key] = ReceivedRecord(*place, entry.meta, base, entry.check, base_is_local, revision)
                new.append(entry)
            at += entry.frame_length
        return segment, new

    def _note_all(self) -> None:
        """Register the records of all segments in the file."""
        at = 0
        while at < self._size:
            size = sum(read_length(os.pread(self._spool.fileno(), MAX_BYTES, at)))
            self._note(os.pread(self._spool.fileno(), size, at), at)
            at += size

    def _text(self, kind: int, key: Key) -> bytes:
        """Return the text of a record. A received record is checked against its key or header; any other is read from
        the local repository."""
        came = self._rows[kind]
        chain: list[tuple[Key, ReceivedRecord]] = []
        text = self._cache.get((kind, key))
        if text is None and key not in came:
            return self._kept(kind, key)
        while text is None:
            row = came[key]
            chain.append((key, row))
            key = row.base
            text = self._cache.get((kind, key)) if key else b""
            if text is None and row.base_is_local:
                text = self._kept(kind, key)
        while chain:
            key, row = chain.pop()
            try:
                text = self._decoded(row, text)
                verify_record(self._kinds[kind], key, row.meta, text, row.check)
            except (Malformed, ValueError) as error:
                raise WrongContent(key, str(error)) from error
            self._cache.put((kind, key), text)
        return text

    def _decoded(self, row: ReceivedRecord, base: bytes) -> bytes:
        return decompress(row.encoding, self._frame(row), row.length, base)

    def _frame(self, row: ReceivedRecord) -> bytes:
        return os.pread(self._spool.fileno(), row.frame_length, row.at)

    def _kept(self, kind: int, key: Key) -> bytes:
        text = self._local(kind, key)
        if text is None:
            raise WrongContent(key, "it is missing, but a received record needs it")
        self._cache.put((kind, key), text)
        return text

    @abstractmethod
    def _local(self, kind: int, key: Key) -> bytes | None:
        """Return the text of a record that was in the repository before the pull, or None."""

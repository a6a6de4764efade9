"""`DraftPack`: the pack in a quarantine while it is written, segment by segment, with its index.

Behind a link a small one is held in memory, and never gets a file in quarantine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from smartserver.records.model import Kind, Segment
from smartserver.store import far
from smartserver.store.blocks import Blocks
from smartserver.store.document import PackEntry
from smartserver.store.index import Index, Row
from smartserver.store.index_build import IndexBuilder
from smartserver.store.numbered import Numbering
from smartserver.store.pack import TRAILER, PackWriter, encode_header
from smartserver.store.quarantine import Quarantine
from transports.base import ReadFile, WriteFile
from transports.errors import TransportFailed

GATHERED = 64 << 10
"""Bytes of segments that are written at once to a file: most have some hundred."""


class DraftPack:
    """The pack in a quarantine while it is written."""

    def __init__(self, quarantine: Quarantine, kinds: Sequence[Kind], numbering: Numbering) -> None:
        """Begin the pack; `numbering`: as of an `IndexBuilder`.

        Raises:
            NoSpace, PermissionDenied, TransportFailed.
        """
        self.quarantine = quarantine
        self._above = quarantine.above
        self._kinds = kinds
        self._reader: ReadFile | None = None
        self.index = IndexBuilder(numbering=numbering)
        self._pending = bytearray(encode_header(kinds))
        """What is not written yet, while the pack is held in memory its header too."""
        self._most = far.AT_ONCE
        """Bytes of it at most."""
        self._file: WriteFile | None = None
        self._writer: PackWriter | None = None
        if quarantine.path:
            self._begin()

    def _begin(self) -> PackWriter:
        self.quarantine.enter()
        self._file = self._above.create(self.quarantine.pack_path)
        try:
            writer = self._writer = PackWriter(self._file, self._kinds)
        except BaseException:
            self._file.close()
            raise
        del self._pending[: writer.length]
        self._most = GATHERED
        return writer

    @property
    def length(self) -> int:
        """Bytes so far: where the next segment will lie."""
        return len(self._pending) + (0 if self._writer is None else self._writer.length)

    def add(self, content: bytes, segment: Segment, rows: Sequence[Row], bases: Sequence[int]) -> None:
        """Append a segment; `rows`, `bases`: as of `IndexBuilder.add_numbered`.

        Raises:
            LimitExceeded: more than an index holds.
            NoSpace, TransportFailed.
        """
        self.index.add_numbered(self.length, segment, rows, bases)
        self._pending += content
        if len(self._pending) >= self._most:
            self._write()

    def read(self, offset: int, size: int) -> bytes:
        """Exactly those bytes of what was added.

        Raises:
            TransportFailed: they are not there.
        """
        if self._writer is None:
            found = bytes(self._pending[offset : offset + size])
        else:
            if offset + size > self._writer.length:
                self._write()
            if self._reader is None:
                self._reader = self._above.open_read(self.quarantine.pack_path)
            found = self._reader.read_at(offset, size)
        if len(found) != size:
            why = f"{len(found)} bytes at {offset}, {size} were written"
            raise TransportFailed(self.quarantine.pack_path, why)
        return found

    def seal(self) -> PackEntry:
        """End the pack and write its index, or hold both in memory; gives what a root says of them. The pack is durable
        once its intent is written down.

        Raises:
            NoSpace, TransportFailed: it is not tried again.
        """
        if self._writer is None or self._file is None:
            content = bytes(self._pending)
            digest = blake2b(content, digest_size=TRAILER).digest()
            length = len(content) + TRAILER
            written = self.quarantine.hold(content + digest, self.index.finish(length, digest))
        else:
            self._write()
            length, digest = self._writer.finish()
            written = self.quarantine.put_index(self.index.finish(length, digest))
        segments, records = self.index.segments, self.index.records
        return PackEntry(self.quarantine.name, length, digest, written.length, written.hash, segments, records)

    @contextlib.contextmanager
    def open_index(self) -> Iterator[Index]:
        """The index of the sealed pack.

        Raises:
            CorruptFile, NoSuchFile, PermissionDenied, TransportFailed: it cannot be read back.
        """
        with contextlib.closing(self.quarantine.open_index()) as file:
            yield Index(Blocks(file, self.quarantine.index_path))

    def write_down(self, intent: bytes) -> None:
        """Append the intent to the sealed pack and make that durable, or hold it in memory with the pack.

        Raises:
            NoSpace, TransportFailed: it is not tried again.
        """
        if self._file is None:
            self.quarantine.append(intent)
        else:
            self._file.write(intent)
            self._file.sync()
            self.close()

    def close(self) -> None:
        """Close the files; closing twice is harmless."""
        if self._file is not None:
            self._file.close()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _write(self) -> None:
        writer = self._begin() if self._writer is None else self._writer
        content, self._pending = bytes(self._pending), bytearray()
        if content:
            writer.append(content)

"""`DraftPack`: the pack in a quarantine while it is written, segment by segment, with its index."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from smartserver.records.model import Kind, Segment
from smartserver.spans import Part, span
from smartserver.store.blocks import Blocks, seal
from smartserver.store.index import Index, Row
from smartserver.store.index_build import IndexBuilder
from smartserver.store.native import Prover
from smartserver.store.numbered import Numbering
from smartserver.store.pack import PackWriter
from smartserver.store.quarantine import Quarantine
from smartserver.store.record import PackEntry
from transports.errors import TransportFailed

GATHERED = 64 << 10
"""Bytes of segments that are written at once to a file: most have some hundred."""


class DraftPack:
    """The pack in a quarantine while it is written."""

    def __init__(
        self, quarantine: Quarantine, kinds: Sequence[Kind], numbering: Numbering, prover: Prover | None = None
    ) -> None:
        """Begin the pack; `numbering`: as of an `IndexBuilder`. `prover`: has what the index says, in its place."""
        self.quarantine = quarantine
        self.index: IndexBuilder | Prover = prover or IndexBuilder(numbering=numbering)
        self._pending = bytearray()
        """What is not written yet."""
        self._file = quarantine.pack
        try:
            self._writer = PackWriter(self._file, kinds)
        except BaseException:
            self._file.close()
            raise

    @property
    def length(self) -> int:
        """Bytes so far: where the next segment will lie."""
        return len(self._pending) + self._writer.length

    def add(self, content: bytes, segment: Segment, rows: Sequence[Row], bases: Sequence[int]) -> None:
        """Append a segment; `rows`, `bases`: as of `IndexBuilder.add_numbered`."""
        if isinstance(self.index, IndexBuilder):
            self.index.add_numbered(self.length, segment, rows, bases)
        else:
            self.index.note(content, self.length, rows, bases)
        self.append(content)

    def append(self, content: bytes) -> None:
        """Append a segment that the prover has."""
        if len(content) >= GATHERED:
            self.flush()
            self._writer.append(content)
            return
        self._pending += content
        if len(self._pending) >= GATHERED:
            self.flush()

    def flush(self) -> None:
        """Write what is pending."""
        content, self._pending = bytes(self._pending), bytearray()
        if content:
            self._writer.append(content)

    def read(self, offset: int, size: int) -> bytes:
        """Exactly those bytes of what was added."""
        if offset + size > self._writer.length:
            self.flush()
        found = self._file.read_at(offset, size)
        if len(found) != size:
            why = f"{len(found)} bytes at {offset}, {size} were written"
            raise TransportFailed(self.quarantine.pack_path, why)
        return found

    def seal(self) -> PackEntry:
        """End the pack and write its index, or hold both in memory; gives what a record says of them. The pack is
        durable once its trailer is written down."""
        self.flush()
        length, digest = self._writer.finish()
        if isinstance(self.index, IndexBuilder):
            pieces = self.index.finish(length, digest)
        else:
            pieces = seal([self.index.index(length, digest)])
        written = self.quarantine.put_index(pieces)
        segments, records = self.index.segments, self.index.records
        return PackEntry(self.quarantine.name, length, digest, written.length, written.hash, segments, records)

    @contextlib.contextmanager
    def open_index(self) -> Iterator[Index]:
        """The index of the sealed pack."""
        with contextlib.closing(self.quarantine.open_index()) as file:
            yield Index(Blocks(file, self.quarantine.index_path))

    def write_down(self, trailer: bytes) -> None:
        """Append the trailer to the sealed pack and make that durable, or hold it in memory with the pack."""
        self._file.write(trailer)
        with span(Part.DISK, "sync the pack"):
            self._file.sync()
        self.close()

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()

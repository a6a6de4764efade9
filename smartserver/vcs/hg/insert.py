"""Converts the received segments of a pull to Mercurial's own changegroup (version 03).

Segments go to a spool file as they are received. A changegroup has all changesets first, then all manifests, then the
files one by one. Each of its rows has one text: a changeset whole, any other text as Mercurial's delta against the
text of the first parent. Every record is checked against its key before it is given to Mercurial.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from smartserver.records.cache import Cache
from smartserver.records.delta import hunks_in
from smartserver.records.hunks import Hunk, apply_hunks, decode_hunks
from smartserver.records.model import Key, RevisionId
from smartserver.records.native import native
from smartserver.records.segment import HUNKS, ZSTD_HUNKS
from smartserver.vcs.base import WrongContent
from smartserver.vcs.child import streamed
from smartserver.vcs.collector import rare_collections
from smartserver.vcs.hg.compat import Revlog
from smartserver.vcs.hg.delta import delta, packed
from smartserver.vcs.hg.kinds import CHANGESET, FILE, KINDS, MANIFEST, NULL, Node, file_key, parents_of, path_of
from smartserver.vcs.hg.repository import HgRepository
from smartserver.vcs.received import ReceivedRecord, ReceivedRecords

FEW: Final = 5_000
"""A clone with more records than this uses a second process."""

STORES: Final = 500
"""The most files whose revlogs are kept open."""

_ROW: Final = struct.Struct(">20s20s20s20s20sH")
"""The head of a row: node, parents, base of the delta, changeset, flags."""

_END: Final = bytes(4)


class Arrived(ReceivedRecords):
    """Receives the segments of a pull, and makes the changegroup of the changesets in them."""

    def __init__(self, repository: HgRepository | None) -> None:
        """`repository`: the repository with the bases of received records. If it is None, no record has a local
        base."""
        super().__init__(KINDS)
        self._repository = repository
        self._read: tuple[ReceivedRecord | None, list[Hunk]] = None, []
        """The record whose hunks were read last, and those hunks."""
        self._stores = Cache[bytes, Revlog](STORES, lambda store: 1)
        self._is_clone = repository is None or not len(repository.changesets)
        """True if no changeset existed before. Then no revlog of a file is opened here, because Mercurial opens it."""
        writer = native("ChangegroupWriter") if self._is_clone else None
        self._writer = None if writer is None else writer(self._spool.fileno())
        """The native object that receives the records in place of this one. None if it was not built or cannot read
        them."""

    @property
    def objects(self) -> int:
        """The number of different records that were received."""
        return super().objects if self._writer is None else int(self._writer.records)

    def add(self, block: bytes) -> RevisionId:
        """Add a whole segment, and return its revision. The segments of its parents must be added first.

        Raises:
            Malformed: the segment cannot be decoded.
        """
        added = None if self._writer is None else self._writer.add(block)
        if added is not None:
            revision: RevisionId = added[0]
            self.parents[revision] = added[1]
            self._write(block)
            return revision
        self._leave_to_python()
        segment, _ = self._take(block)
        own = self._rows[CHANGESET].get(segment.revision)
        if own is None:
            raise WrongContent(segment.revision, "the server did not send its record")
        return segment.revision

    def close(self) -> None:
        """Remove the temporary file, which the native part has open, too."""
        self._writer = None
        super().close()

    def _leave_to_python(self) -> None:
        if self._writer is not None:
            self._writer = None
            self._note_all()

    def chunks(self, wanted: Collection[RevisionId]) -> Iterator[bytes]:
        """Yield the changegroup of some received changesets. Each parent must be wanted, too, or be in the repository.

        Raises:
            WrongContent: a text does not match its key, or a record is missing.
        """
        wanted = set(wanted)
        for revision in self.parents:
            if revision in wanted:
                yield self._changeset(revision)
        yield from self._after_changesets(wanted)

    def chunks_of_clone(self, segments: Iterable[bytes]) -> Iterator[bytes]:
        """Add the segments of a whole repository, and yield its changegroup. Mercurial stores the changesets while the
        rest is received.

        Raises:
            Malformed: a segment cannot be decoded.
            WrongContent: as in `chunks`.
        """
        for block in segments:
            yield self._changeset(self.add(block))
        yield from self._after_changesets(self.parents)

    def _changeset(self, revision: RevisionId) -> bytes:
        """Return the row of a changeset."""
        if self._writer is not None:
            try:
                return bytes(self._writer.changeset(revision))
            except ValueError:
                self._leave_to_python()
        row = self._rows[CHANGESET][revision]
        return b"".join(self._row(CHANGESET, revision, revision, row, revision, lambda node: node))

    def _after_changesets(self, wanted: Collection[RevisionId]) -> Iterator[bytes]:
        """Return the part of the changegroup that follows the changesets. For a long clone, another process generates
        this part while Mercurial stores it."""
        # Two processes must not read files that Mercurial has open here. In a clone it has only that of the changesets
        # open, which the other process does not read.
        chunks = self._manifests_and_files(wanted)
        return streamed(chunks) if self._is_clone and self.objects > FEW and hasattr(os, "fork") else chunks

    def _manifests_and_files(self, wanted: Collection[RevisionId]) -> Iterator[bytes]:
        made = 0
        if self._writer is not None:
            try:
                self._writer.begin(list(wanted))
                while piece := self._writer.piece():
                    made += len(piece)
                    yield piece
                return
            except ValueError:  # Python says what is wrong, or makes the rest.
                self._leave_to_python()
        for piece in self._made_in_python(wanted):
            yield piece[made:]
            made = max(0, made - len(piece))

    def _made_in_python(self, wanted: Collection[RevisionId]) -> Iterator[bytes]:
        with rare_collections():
            yield _END  # There are no more changesets.
            for key, row in self._rows[MANIFEST].items():
                link = self._link(MANIFEST, key, wanted)
                if link is not None:
                    yield from self._row(MANIFEST, key, key, row, link, lambda node: node)
            yield _END
            yield _END  # There are no manifests of folders.
            by_file: dict[bytes, list[Node]] = {}
            for key in self._rows[FILE]:
                try:
                    path = path_of(key)
                except ValueError as error:
                    raise WrongContent(key, str(error)) from error
                by_file.setdefault(path, []).append(key[-len(NULL) :])
            for path in sorted(by_file):
                yield from self._file(path, by_file[path], wanted)
            yield _END

    def _file(self, path: bytes, nodes: Iterable[Node], wanted: Collection[RevisionId]) -> Iterator[bytes]:
        begun = False
        for node in nodes:
            key = file_key(path, node)
            row = self._rows[FILE][key]
            link = self._link(FILE, key, wanted)
            if link is None or self._is_here(key):  # Another changeset has the same version.
                continue
            if not begun:
                begun = True
                yield struct.pack(">l", 4 + len(path)) + path
            yield from self._row(FILE, key, node, row, link, lambda parent: file_key(path, parent))
        if begun:
            yield _END

    def _link(self, kind: int, key: Key, wanted: Collection[RevisionId]) -> Node | None:
        """Return the first of the wanted changesets that introduced a record, or None."""
        introduced = (self._rows[kind][key].revision, *self._copies.get((kind, key), ()))
        return next((changeset for changeset in introduced if changeset in wanted), None)

    def _is_here(self, file: Key) -> bool:
        if self._is_clone:
            return False
        store = self._store(FILE, file)
        return store is not None and bool(store.hasnode(file[-len(NULL) :]))

    def _row(
        self, kind: int, key: Key, node: Node, row: ReceivedRecord, link: Node, key_of: Callable[[Node], Key]
    ) -> Iterator[bytes]:
        text = self._text(kind, key)
        first, second = parents_of(row.meta)
        # A changeset is no version of its parent: Mercurial itself sends it whole, too.
        base = NULL if kind == CHANGESET else first
        if row.encoding in (HUNKS, ZSTD_HUNKS) and base != NULL and row.base == key_of(base):
            difference = packed(self._hunks(row))
        else:
            difference = delta(text, None if base == NULL else self._text(kind, key_of(base)))
        yield struct.pack(">l", 4 + _ROW.size + len(difference))
        yield _ROW.pack(node, first, second, base, link, 0)
        yield difference

    # ---- texts

    def _decoded(self, row: ReceivedRecord, base: bytes) -> bytes:
        if row.encoding in (HUNKS, ZSTD_HUNKS):
            return apply_hunks(self._hunks(row), row.length, base)
        return super()._decoded(row, base)

    def _hunks(self, row: ReceivedRecord) -> list[Hunk]:
        if self._read[0] is not row:
            self._read = row, decode_hunks(hunks_in(row.encoding, self._frame(row)))
        return self._read[1]

    def _local(self, kind: int, key: Key) -> bytes | None:
        store, node = self._store(kind, key), key[-len(NULL) :]
        return None if store is None or not store.hasnode(node) else store.rawdata(node)

    def _store(self, kind: int, key: Key) -> Revlog | None:
        if self._repository is None:
            return None
        if kind == CHANGESET:
            found: Revlog = self._repository.changesets
            return found
        name = path_of(key) if kind == FILE else b""
        store = self._stores.get(name)
        if store is None:
            store = self._repository.file(name) if name else self._repository.manifests()
            self._stores.put(name, store)
        return store

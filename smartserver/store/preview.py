"""A preview of a repository as a push would leave it, before any record names the pack of the push.

The pack is in quarantine, and is opened there under its future name. Nothing is written, and no other request can reach
the new revisions: a refused push leaves no trace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from smartserver.errors import NoSuchPart
from smartserver.records.content import ReadScope
from smartserver.records.limits import MAX_META
from smartserver.records.model import Entry, Key, RevisionId
from smartserver.records.system import system_of
from smartserver.store.allowance import Allowance
from smartserver.store.content import SnapshotView
from smartserver.store.open_pack import index_path, pack_path
from smartserver.store.snapshot import Snapshot
from smartserver.store.state import beginning, following
from smartserver.store.stored_records import decode_header
from smartserver.store.transaction import Transaction, entry_of
from smartserver.store.upload import Upload
from transports.base import BytesFile, ReadFile, Transport
from transports.decorators.passing import PassingTransport

LONGEST_HEADER = MAX_META + (8 << 10)
"""The most bytes of a record's header: its meta, its key and its base's (at most 1,024 each), and some numbers."""


class Preview:
    """A repository in the state that a transaction would create."""

    def __init__(self, folder: Transport, transaction: Transaction, upload: Upload | None, request: bytes) -> None:
        """`folder`: the folder of the repository. `upload`: the finished upload, whose pack is not published yet."""
        stored, pack = transaction.snapshot, None if upload is None else upload.entry
        before = stored.state if stored is not None else beginning(request, 0)[1]
        entry = entry_of(transaction, before, request, "", b"", pack, request)
        self.record, self.state = following(before, 0, (entry,))
        self.entry = entry
        """The log entry that the push would add."""
        self.files: Mapping[str, str] = {}
        """The current paths of the files of the new pack, by their future paths."""
        self.contents: Mapping[str, bytes] = {}
        """The contents of the files of the new pack by their future paths, if they are in memory."""
        if upload is not None and pack is not None and upload.quarantine is not None:
            held, places = upload.quarantine.held_files, (upload.quarantine.pack_path, upload.quarantine.index_path)
            self.files = dict(zip((pack_path(pack.name), index_path(pack.name)), places, strict=True))
            self.contents = {name: held[place] for name, place in self.files.items() if place in held}
        self._new = pack
        folder = _MovedFiles(folder, self.files, self.contents)
        self.snapshot = Snapshot.open(folder, self.state, stored, brought=self.contents)

    def records_over(self, most: int) -> Iterator[tuple[RevisionId, Entry]]:
        """Yield the new records with texts of more than `most` bytes, each with the revision that introduces it."""
        if self._new is None:
            return
        pack = self.snapshot.packs[-1]
        for row in pack.index.rows():
            if row.length > most:
                revision = pack.index.revision(row.segment)
                size = min(LONGEST_HEADER, row.frame_offset - row.header_offset)
                header = pack.reader.read(row.header_offset, size)
                yield revision, decode_header(header, revision, self.state.kinds)

    def path_of(self, revision: RevisionId, place: tuple[int, Key]) -> bytes | None:
        """Return the path of a record in the tree of a revision; None if it is not found."""
        view = SnapshotView(self.state.refs, self.state.map, self.snapshot, Allowance(limited=False))
        with contextlib.suppress(NoSuchPart, ValueError):
            nodes = system_of(self.state.vcs).contents(view, ReadScope()).nodes(revision, b"", deep=True)
            return next((node.path for node in nodes if node.place == place), None)
        return None


class _MovedFiles(PassingTransport):
    """A repository's folder in which the files of the new pack can also be read at their future paths."""

    def __init__(self, inner: Transport, files: Mapping[str, str], contents: Mapping[str, bytes]) -> None:
        super().__init__(inner)
        self._files = files
        self._contents = contents

    def open_read(self, path: str) -> ReadFile:
        held = self._contents.get(path)
        return self.inner.open_read(self._files.get(path, path)) if held is None else BytesFile(held)

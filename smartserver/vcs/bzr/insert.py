"""Inserts the records of a pull into a Breezy repository: one write group, so one new pack, or nothing.

Segments go to a spool file as they are received. Then they are inserted kind by kind, and texts by file, so that each
block of the new pack holds similar texts. Only the caches are in memory. If the texts have many bytes, a second process
compresses them meanwhile. Every record is checked against its key, its header and the records that refer to it. Any
error, even after the last byte, leaves the repository as it was.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import marshal
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping

from smartserver.errors import shown
from smartserver.records.model import Key, RevisionId
from smartserver.vcs.base import InsertReport, Progress, VcsError, WrongContent
from smartserver.vcs.bzr.block import BlockText, Give, TextRange, fill
from smartserver.vcs.bzr.compat import BzrError, ContentFactory, StoreKey, put_block
from smartserver.vcs.bzr.complete import References, instead_of_breezys_look, is_alone
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, SIGNATURE, TEXT
from smartserver.vcs.bzr.meta import inventory_parents, text_parents
from smartserver.vcs.bzr.pages import is_node, leaf_texts
from smartserver.vcs.bzr.repository import BrzRepository
from smartserver.vcs.bzr.revision import read_revision
from smartserver.vcs.child import Child
from smartserver.vcs.collector import rare_collections
from smartserver.vcs.received import ReceivedRecords

FORK_FROM = 8 << 20
"""If a pull has at least this many bytes of texts, and the machine has a second core, a second process is used."""


def insert(
    repository: BrzRepository, segments: Iterable[bytes], progress: Progress = lambda done, total: None
) -> InsertReport:
    """Insert whole segments, parents first. Records of the repository may be delta bases.

    The repository is locked for writing meanwhile: the caller must hold no lock on it that is only for reading.
    """
    repository.check_format()
    breezy = repository.breezy
    arrived = _Arrived(repository, progress, looks=is_alone(breezy))
    with rare_collections(), arrived, breezy.lock_write(), contextlib.ExitStack() as undo:
        if arrived.looks:
            undo.enter_context(instead_of_breezys_look(breezy))
        sink = breezy._get_sink()
        try:
            tokens, missing = sink.insert_stream(arrived.streams(segments), breezy._format, [])
            if missing:
                # These are inventories of ghosts, which are missing everywhere, or of parents in a fallback repository.
                more = _missing(repository, missing)
                tokens, missing = sink.insert_stream(more, breezy._format, tokens)
            if missing:
                raise VcsError(f"the pull is incomplete: {shown(b' '.join(min(missing)[1:]))} is missing")
        except BzrError as error:
            raise VcsError(f"the repository refused the pulled revisions: {error}") from error
        finally:
            arrived.stop()
        sink.finished()
    progress(arrived.objects, arrived.objects)
    return InsertReport(arrived.objects, len(arrived.parents))


def _missing(repository: BrzRepository, missing: Iterable[StoreKey]) -> Iterator[tuple[str, Iterator[ContentFactory]]]:
    """Yield the records of `missing` in the repositories that this one is stacked on."""
    keys = set(missing)
    for fallback in repository.breezy._fallback_repositories:
        with fallback.lock_read():
            # Passed on as it is read: these records cannot be listed first.
            yield from fallback._get_source(repository.breezy._format).get_stream_for_missing_keys(keys)


class _Arrived(ReceivedRecords):
    """Receives the records of a pull, checks them, and puts them into Breezy's stores."""

    def __init__(self, repository: BrzRepository, progress: Progress, *, looks: bool) -> None:
        """`looks`: True if this object checks the references of the records, and Breezy does not."""
        super().__init__(repository.kinds)
        self._stores = repository.stores
        self._progress = progress
        self._named: dict[Key, bytes] = {}
        """The expected SHA-1 of a text, by its key, from a page; that of an inventory, by its revision, from the
        revision's record."""
        self._worker: Worker | None = None
        self._repository = repository.breezy
        self.looks = looks
        self._references = References(kept=looks)

    def streams(self, segments: Iterable[bytes]) -> Iterator[tuple[str, Iterator[ContentFactory]]]:
        """Put the records into Breezy's stores, and yield nothing. This is a generator, because Breezy opens its write
        group before it iterates over the streams.

        Pages come first, because they have the SHA-1 of each text.
        """
        self._put(CHK, self._pages(segments))
        self._put(REVISION, self._revisions())
        signed = self._rows[SIGNATURE]
        self._put(SIGNATURE, (BlockText(key, None, b"", self._text(SIGNATURE, key)) for key in signed))
        self._put(INVENTORY, self._inventories())
        if self._worker is None:
            self._put(TEXT, self._texts())
        else:
            self._worker.finish(functools.partial(self._put_block, TEXT))
        if self.looks:
            self._references.check(self._repository, self._rows[CHK], self._rows[TEXT])
        yield from ()

    def _put(self, kind: int, texts: Iterable[BlockText]) -> None:
        fill(texts, functools.partial(self._put_block, kind))

    def _put_block(self, kind: int, block: bytes, places: list[TextRange]) -> None:
        if kind == TEXT:
            for place in places:
                if self._named[place.key] not in (b"", place.sha1):
                    raise WrongContent(place.key, "its SHA-1 differs from the one in its tree")
        parts = 1 if kind == TEXT else 0
        put_block(
            self._stores[kind],
            block,
            [(tuple(key.split(b"\0", parts)), parents, begin, end) for key, parents, _, begin, end in places],
        )

    def stop(self) -> None:
        """Stop the second process, if it was started."""
        if self._worker is not None:
            self._worker.abandon()

    # ---- reading segments

    def _pages(self, segments: Iterable[bytes]) -> Iterator[BlockText]:
        came = [self._spool_segment(block) for block in segments]
        texts = sum([row.length for row in self._rows[TEXT].values()])
        if texts >= FORK_FROM and hasattr(os, "fork") and (os.cpu_count() or 1) > 1:
            self._worker = Worker(self._texts)
        for pages, texts_of in came:
            expected = dict.fromkeys([key for key in texts_of if key not in self._named])
            for key in pages:
                text = self._text(CHK, key)
                self._learn(self._refer(key, text), expected)
                base_key = self._rows[CHK][key].base
                yield BlockText(key, None, b"", text, base_key, self._cache.get((CHK, base_key)))
            if expected:
                # These are named by items that the page has in common with an earlier one.
                for text in [self._text(CHK, key) for key in pages]:
                    if not is_node(text):
                        self._learn(leaf_texts(text), expected)
            if expected:
                raise WrongContent(next(iter(expected)), "no page of its revision names this text")

    def _refer(self, key: Key, text: bytes) -> Mapping[Key, bytes]:
        """Collect the references of a page. Return the texts that the page names, as far as it is read, and their
        SHA-1."""
        row = self._rows[CHK][key]
        base = self._cache.get((CHK, row.base)) if row.base and not row.base_is_local else None
        try:
            return self._references.page(text, base)
        except ValueError as error:
            raise WrongContent(key, str(error)) from error

    def _learn(self, named: Mapping[Key, bytes], expected: dict[Key, None]) -> None:
        """Record the SHA-1 of each text in `named` that is `expected`, and remove it from `expected`."""
        for key, sha1 in named.items():
            if key in expected:
                self._named[key] = sha1
                del expected[key]

    def _spool_segment(self, block: bytes) -> tuple[list[Key], list[Key]]:
        """Store a segment. Return the keys of its pages that were not received before, and of all its texts."""
        segment, new = self._take(block)
        own = [entry for entry in segment.entries if entry.kind in (REVISION, SIGNATURE, INVENTORY)]
        for entry in own:
            if entry.key != segment.revision:
                raise WrongContent(entry.key, "it is in the segment of another revision")
        if not {REVISION, INVENTORY} <= {entry.kind for entry in own}:
            raise WrongContent(segment.revision, "the server did not send its record or its inventory")
        self._progress(self.objects, 0)
        pages = [entry.key for entry in new if entry.kind == CHK]
        return pages, [entry.key for entry in segment.entries if entry.kind == TEXT]

    # ---- records after the pages

    def _revisions(self) -> Iterator[BlockText]:
        for key in self._rows[REVISION]:
            parents = self.parents[key]
            text = self._text(REVISION, key)
            try:
                found = read_revision(text)
            except ValueError as error:
                raise WrongContent(key, str(error)) from error
            if found.id != key or found.parents != parents:
                raise WrongContent(key, "its record names another revision, or other parents")
            self._named[key] = found.inventory_sha1
            yield BlockText(key, _keys(parents), b"", text)

    def _inventories(self) -> Iterator[BlockText]:
        for key, row in self._rows[INVENTORY].items():
            text = self._text(INVENTORY, key)
            sha1 = hashlib.sha1(text).hexdigest().encode()
            if self._named[key] != sha1:
                raise WrongContent(key, "its inventory is not the one its record names")
            try:
                self._references.inventory(text)
            except ValueError as error:
                raise WrongContent(key, str(error)) from error
            yield BlockText(key, inventory_parents(row.meta, self.parents[key]), sha1, text)

    def _texts(self) -> Iterator[BlockText]:
        came = self._rows[TEXT]
        order = sorted(came, key=lambda key: key[: key.index(b"\0")])  # The texts of a file stay in order: bases first.
        for key in order:
            text = self._text(TEXT, key)
            sha1 = hashlib.sha1(text).hexdigest().encode()
            file_id = key[: key.index(b"\0")]
            row = came[key]
            yield BlockText(
                key, text_parents(file_id, row.meta), sha1, text, row.base, self._cache.get((TEXT, row.base))
            )

    def _local(self, kind: int, key: Key) -> bytes | None:
        name = tuple(key.split(b"\0")) if kind == TEXT else (key,)
        for record in self._stores[kind].get_record_stream([name], "unordered", True):
            if record.storage_kind != "absent":
                return record.get_bytes_as("fulltext")
        return None


def _keys(ids: Iterable[RevisionId]) -> tuple[StoreKey, ...]:
    return tuple([(revision,) for revision in ids])


class Worker:
    """A child process that calls `stream` and packs its texts into blocks, while this process does the rest.

    The worker reads only what existed when it began. This process inserts the blocks as they are. All files here have
    no name, so that a process that ends early leaves nothing behind.
    """

    def __init__(self, stream: Callable[[], Iterator[BlockText]]) -> None:
        with contextlib.ExitStack() as undo:
            self._blocks = undo.enter_context(tempfile.TemporaryFile())
            answer = undo.enter_context(tempfile.TemporaryFile(buffering=0))
            self._child = Child(answer.fileno(), lambda: self._work(stream))
            self._files = undo.pop_all()

    def finish(self, give: Give) -> None:
        """Wait until all texts are compressed, then pass the blocks to `give`."""
        self._child.wait()
        self._blocks.seek(0)
        while True:
            try:
                block, places = marshal.load(self._blocks)
            except EOFError:
                break
            give(block, [TextRange(*place) for place in places])

    def abandon(self) -> None:
        """Stop the process if it still runs, and drop its blocks."""
        self._child.abandon()
        self._files.close()

    def _work(self, stream: Callable[[], Iterator[BlockText]]) -> bytes:
        fill(stream(), self._write)
        self._blocks.flush()
        return b""

    def _write(self, block: bytes, places: list[TextRange]) -> None:
        marshal.dump((block, [tuple(place) for place in places]), self._blocks)

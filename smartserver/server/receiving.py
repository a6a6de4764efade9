"""The body of a request that changes something: its graph and segments, taken as they come into quarantine.

Whether they travel as a bulk stream is known here alone; what is taken is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from smartserver.errors import CorruptRecord, LimitExceeded, NoSuchRepository, Unsupported
from smartserver.records.bulk import BulkDecoder
from smartserver.records.model import Announced
from smartserver.records.segment import SegmentStream
from smartserver.server.asked import Asked
from smartserver.server.dispatch import Refused, decide, declared
from smartserver.store.transaction import RepositoryTransaction
from smartserver.store.upload import Upload
from smartserver.verbs.declare import Body
from smartserver.wire.limits import BULK_ALLOWANCE, BULK_BYTES, MAX_BULK_RATIO
from smartserver.wire.messages import RequestFlag
from transports.errors import CodedError


class Receiving:
    """One body. Nothing of it is kept before every call was found to be allowed."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._upload: Upload | None = None
        self._transaction: RepositoryTransaction | None = None
        """What the upload is checked against."""
        self._announcement: SegmentStream | None = None
        self._planned = False
        self._bulk: BulkDecoder | None = None
        self._content = 0
        """Bytes that came of a bulk stream."""

    def take(self, chunk: bytes) -> None:
        """Check a chunk; once the graph is here, also what the calls make of it.

        Raises:
            Refused, CodedError, Malformed: the rest of the body is not wanted.
        """
        flags = self._asked.prepared.flags
        self._asked.allowance()
        self._asked.allowance.came(len(chunk))
        if self._upload is None and not flags & RequestFlag.CHECK_ONLY:
            if self._asked.earlier() is not None:
                return
            self._upload = self._begin()
        if not flags & RequestFlag.BULK:
            self._take(chunk)
            return
        if self._bulk is None:
            self._bulk = BulkDecoder()
        for content in self._bulk.feed(chunk):
            self._content += len(content)
            most = (self._bulk.taken + BULK_ALLOWANCE) * MAX_BULK_RATIO
            if self._content > most:
                raise LimitExceeded(BULK_BYTES, self._content, most)
            self._take(content)

    def _take(self, content: bytes) -> None:
        flags = self._asked.prepared.flags
        if flags & RequestFlag.CHECK_ONLY:
            self._take_graph(content)
            return
        assert self._upload is not None  # It was begun with the first chunk.
        self._upload.write(content)
        if flags & RequestFlag.GRAPH_FIRST and not self._planned:
            graph = self._upload.graph()
            if graph is not None:
                self._planned = True
                assert self._transaction is not None  # It was begun with the upload.
                self._allow(self._transaction.announcing(graph), self._decide, graph)

    def finish(self, segments: int, size: int) -> Upload:
        """What came, durable. It is the caller's: this will not delete it.

        Raises:
            CodedError: it is not whole, or not sound.
        """
        if self._upload is None:
            self._upload = self._begin()
        self._asked.progress("store", 0, 0)
        if self._asked.prepared.flags & RequestFlag.BULK:
            taken = self._finish_bulk()
            if taken != size:
                raise CorruptRecord(b"", b"", f"the body has {taken} bytes; its end says {size}")
            size = self._content
        self._upload.finish(segments, size)
        upload, self._upload = self._upload, None
        return upload

    def graph(self) -> Sequence[Announced]:
        """The whole body of a check.

        Raises:
            Unsupported, Malformed: it is none.
        """
        if self._announcement is None:
            raise Unsupported("a check without the graph it is about", "the graph in the body")
        if self._asked.prepared.flags & RequestFlag.BULK:
            self._finish_bulk()
        self._announcement.finish()
        return self._announcement.graph() or ()

    def abandon(self) -> None:
        """Forget what came."""
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.abandon()

    def _finish_bulk(self) -> int:
        """The bytes of a whole bulk stream.

        Raises:
            Malformed: it is not whole.
        """
        bulk = self._bulk or BulkDecoder()
        bulk.finish()
        return bulk.taken

    def _take_graph(self, chunk: bytes) -> None:
        if self._announcement is None:
            self._admit()
            kinds = self._asked.begin().kinds if self._asked.find().exists else ()
            self._announcement = SegmentStream(kinds, graph_first=True, limit=0, charge=self._asked.allowance.charge)
        self._announcement.feed(chunk)
        if any(self._announcement.segments()):
            raise CorruptRecord(b"", b"", "a check brings the graph of its revisions and nothing else")

    def _admit(self) -> None:
        """Check what every call needs, before anything of a body is kept.

        Raises:
            AccessDenied: the user may not.
        """
        for verb, _ in self._asked.prepared.calls:
            self._asked.access.require(verb.permission)

    def _begin(self) -> Upload:
        """A place for the body. What comes before it in the request (creation) decides which kinds it may hold."""
        asked = self._asked
        self._admit()
        transaction = self._transaction = self._allow(asked.begin(), self._prepare)
        graph_first = bool(asked.prepared.flags & RequestFlag.GRAPH_FIRST)
        return asked.find().repository.receive(transaction, graph_first, asked.id)

    def _allow(
        self,
        transaction: RepositoryTransaction,
        plan: Callable[[RepositoryTransaction], None],
        graph: Sequence[Announced] = (),
    ) -> RepositoryTransaction:
        """Find out whether what was asked for is allowed so far; what a client merely knows does not refuse it."""
        try:
            plan(transaction)
        except (Refused, CodedError):
            if self._asked.sees_now:
                raise
            transaction = self._asked.begin(graph)
            plan(transaction)
        return transaction

    def _decide(self, transaction: RepositoryTransaction) -> None:
        decide(self._asked.prepared, self._asked.context(transaction, early=True))

    def _prepare(self, transaction: RepositoryTransaction) -> None:
        """Have what comes before the body be done in the transaction."""
        asked = self._asked
        context = asked.context(transaction, early=True)
        for verb, arguments in asked.prepared.calls:
            if verb.body is Body.UP:
                break
            try:
                context.run(verb, arguments)
            except CodedError as error:
                checked = declared(verb, error)
                if not verb.own_verdict:
                    raise Refused(checked) from error
        if not transaction.exists:
            raise Refused(NoSuchRepository(asked.prepared.message.path))

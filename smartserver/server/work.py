"""The work of one request on the store. Everything here blocks, so it runs in the executor, one step at a time.

The executor calls `RequestWork.run`. It measures a step, and encodes the answer that the step returns or the refusal
that it raises. The steps of a request are `answer`, or `take` for each chunk of its body and then `finish`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import IO, NamedTuple, Protocol

import msgspec

from smartserver.errors import AccessDenied, CorruptRecord, LimitExceeded, Unsupported, shown
from smartserver.meters import (
    BYTES_READ,
    BYTES_WRITTEN,
    FILES_READ,
    FILES_WRITTEN,
    METERS,
    NOTHING,
    READS,
    SYNCS,
    Unit,
    counted_here,
    since,
    together,
)
from smartserver.records.bulk import BulkDecoder
from smartserver.records.model import GraphNode, Key
from smartserver.records.segment import SegmentStream
from smartserver.records.varint import Malformed
from smartserver.server import vfs
from smartserver.server.audit import audit
from smartserver.server.context import RequestContext
from smartserver.server.executor import Lane
from smartserver.server.header import RequestFailure, fault, internal
from smartserver.server.progress import RequestProgress
from smartserver.server.push_checks import PushChecks, check_repository
from smartserver.server.site import Site
from smartserver.server.spans import RequestSpans
from smartserver.server.store_errors import user_error
from smartserver.spans import Part, listening, span
from smartserver.store.commit import CommitOutcome
from smartserver.store.model import ContentPlan
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.store.upload import Upload
from smartserver.verbs.declare import Body
from smartserver.wire.limits import BULK_ALLOWANCE, BULK_BYTES, MAX_BULK_RATIO
from smartserver.wire.messages import (
    REPACKED,
    Advice,
    Counters,
    Failure,
    Outcome,
    Reply,
    RequestFlag,
    ServerTrace,
    encode,
    raw,
)
from transports.errors import CodedError

log = logging.getLogger("smartserver")

MOST_KEPT = 1 << 20
"""The most bytes of a body that are kept in memory while its repository is assumed to be in its last known state. For a
longer body, the repository is read."""

_outcomes = msgspec.msgpack.Decoder(list[Outcome])
_encode = msgspec.msgpack.Encoder().encode


class BodyReader(Protocol):
    """Reads the body of an answer, which is sent to the client."""

    segments: int
    """The number of segments; it is final once the body has ended, like `size`."""
    size: int
    """The number of bytes."""

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; empty at the end."""


@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """An answer to send: a message, with a body or without."""

    message: Reply | Failure
    body: BodyReader | None = None
    lane: Lane = Lane.QUICK
    """The lane in which the body is read."""
    changed: PackRepository | None = None
    """The repository that a commit changed, and that may need tidying."""
    payload: bytes = b""
    """The encoded message. The task encodes it, because the largest message takes a tenth of a second."""


class Task(NamedTuple):
    """One job for the executor. A task with `of_request` is skipped once the request is over, and its error becomes a
    refusal. `then` is called with the result on the I/O thread, unless the result is an answer."""

    lane: Lane
    do: Callable[[], object]
    name: str = ""
    """The name of the task in a trace."""
    then: Callable[[object], None] = lambda _: None
    size: int = 0
    """The number of bytes of the body that the task checks."""
    of_request: bool = False


class RequestWork:
    """The work of one request, and its cost."""

    def __init__(self, site: Site, progress: RequestProgress) -> None:
        self.context: RequestContext | None = None
        """The context of the request; None until the request is decoded, and after it was cancelled."""
        self.running: RequestContext | None = None
        """The context for the task that runs. A cancellation may set `context` to None meanwhile."""
        self.level = 0
        """The level of zstd for bodies with content."""
        self.is_over = False
        """True once the final answer is sent, or the connection is closed."""
        self.busy = 0.0
        """Seconds for which tasks ran."""
        self.queued = 0.0
        """Seconds that tasks waited for a thread."""
        self.spent = NOTHING
        """The counts that the tasks have added (`meters`)."""
        self.hides_cost = False
        """True if the answer leaves out its cost, which would reveal repositories that the user may not read."""
        self.spans: RequestSpans | None = None
        """The spans, if the client or the log of slow requests needs them."""
        self._saw_repack = False
        self._site = site
        self._progress = progress
        self._upload: Upload | None = None
        self._transaction: Transaction | None = None
        """The transaction that the upload is checked against."""
        self._kept: list[bytes] = []
        """The chunks of the body, while it may be necessary to decode them again."""
        self._announcement: SegmentStream | None = None
        """The stream with the graph in the body of a check."""
        self._decided = False
        """True once the calls were run on the announced graph."""
        self._bulk: BulkDecoder | None = None
        self._unpacked = 0
        """Bytes that were unpacked from a bulk stream."""
        self._files_body: IO[bytes] | None = None
        """The body of file-level calls."""

    # -- the executor's entry, and the cost

    def run(self, task: Task, ready: float) -> object:
        """Run a task. Return its result, an encoded answer, or the error for a bug. `ready`: the time since which the
        task waited for a thread."""
        start = self._site.clock()
        self.queued += start - ready
        with nullcontext() if self.spans is None else self._recorded(task, ready, self.spans):
            if task.of_request:
                self.running = self.context
                if self.running is None or self.is_over:
                    return None
            before = counted_here()
            self._progress.began(start)
            try:
                try:
                    result = task.do()
                except Exception as error:  # Nothing that a peer sends may end the server.
                    if not task.of_request:
                        raise
                    result = self.refusal(error)
                finally:
                    self.busy += self._site.clock() - start
                    self.spent = together(self.spent, since(counted_here(), before))
                return self.encoded(result) if isinstance(result, ServedAnswer) else result
            except Exception as error:  # Without a result, the client would get no answer.
                return internal(error)
            finally:
                self.running = None

    @contextmanager
    def _recorded(self, task: Task, ready: float, spans: RequestSpans) -> Iterator[None]:
        spans.waited(ready)
        self._note_repack()
        with listening(spans), span(Part.SERVER, task.name):
            yield

    def _note_repack(self) -> None:
        context = self.context
        self._saw_repack |= context is not None and context.is_repacking

    def encoded(self, answer: ServedAnswer) -> ServedAnswer:
        """Return the same answer with its encoded payload, which includes the cost of the request."""
        spent, message = self.spent, answer.message
        counters = Counters(
            int(self.busy * 1e6),
            spent[FILES_READ] + spent[FILES_WRITTEN],
            spent[READS],
            spent[BYTES_READ],
            spent[BYTES_WRITTEN],
            spent[SYNCS],
        )
        if self.hides_cost or (isinstance(message, Failure) and message.fault.code == AccessDenied.code):
            counters = Counters()
            if self.spans is not None:
                self.spans.tells = False
        told = msgspec.structs.replace(message, counters=counters, trace=self.server_trace({}))
        return replace(answer, payload=encode(told))

    def server_trace(self, link: Mapping[str, int]) -> ServerTrace | None:
        """Return the trace of the request so far; None if the client records none. `link`: the connection's counts."""
        if self.spans is None or not self.spans.tells:
            return None
        self._note_repack()
        # Without the timers, whose time is in the spans.
        counted = zip(METERS, self.spent, strict=True)
        counts = {meter.name: count for meter, count in counted if count and meter.unit is not Unit.SECONDS}
        return ServerTrace(self.spans.take(), {**counts, **link, **({REPACKED: 1} if self._saw_repack else {})})

    # -- the body

    def take(self, chunk: bytes) -> None:
        """Check and store a chunk of the body. Once the graph is complete, also run the calls on it. Nothing is stored
        before the permissions of all calls were checked.

        Raises:
            RequestFailure, CodedError, Malformed: the request is refused, so the rest of the body is not needed.
        """
        context = self._context
        if context.header.is_vfs:
            self._files_body = vfs.keep(context, self._files_body, chunk)
            return
        self._kept.append(chunk)
        try:
            context.allowance()
            context.allowance.came(len(chunk))
            for content in self._contents(chunk) if self._is_wanted() else ():
                if self._upload is None:
                    self._take_graph(content)
                else:
                    self._upload.write(content)
                    self._check_size(self._upload)
                    self._decide_early(self._upload)
        except (CodedError, RequestFailure):
            if not self._confirm():
                raise
        if sum(map(len, self._kept)) > MOST_KEPT:
            self._confirm()
        if not context.is_guess:
            self._kept.clear()

    def _is_wanted(self) -> bool:
        """Begin the upload, except for a check. Return False if the request was carried out before."""
        context = self._context
        if self._upload is None and not context.header.flags & RequestFlag.CHECK_ONLY:
            if context.earlier() is not None:
                return False
            self._upload = self._begin_upload()
        return True

    def _begin_upload(self) -> Upload:
        context = self._context
        self._admit_all()
        transaction = self._transaction = context.begin()
        context.run_before_body(transaction)
        graph_first = bool(context.header.flags & RequestFlag.GRAPH_FIRST)
        return context.find().repository.receive(transaction, graph_first, context.id)

    def _admit_all(self) -> None:
        for verb, _ in self._context.header.calls:
            self._context.admit(verb)

    def _contents(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the content of a chunk, decompressed if the body is a bulk stream."""
        if not self._context.header.flags & RequestFlag.BULK:
            yield chunk
            return
        if self._bulk is None:
            self._bulk = BulkDecoder()
        for content in self._bulk.feed(chunk):
            self._unpacked += len(content)
            most = (self._bulk.taken + BULK_ALLOWANCE) * MAX_BULK_RATIO
            if self._unpacked > most:
                raise LimitExceeded(BULK_BYTES, self._unpacked, most)
            yield content

    def _check_size(self, upload: Upload) -> None:
        assert self._transaction is not None  # It was begun with the upload.
        path = self._context.find().repository.path
        check_repository(self._context.site.sizes(path), self._transaction.snapshot, upload.written, path)

    def _decide_early(self, upload: Upload) -> None:
        """Run the calls on the announced graph once it is complete, so that a refusal precedes the records."""
        if self._decided or not self._context.header.flags & RequestFlag.GRAPH_FIRST:
            return
        graph = upload.graph()
        if graph is not None:
            self._decided = True
            assert self._transaction is not None  # It was begun with the upload.
            self._context.decide(self._transaction.announcing(graph), early=True)

    def _take_graph(self, content: bytes) -> None:
        if self._announcement is None:
            context = self._context
            self._admit_all()
            self._announcement = SegmentStream(graph_first=True, limit=0, charge=context.allowance.charge)
        self._announcement.feed(content)
        if any(self._announcement.segments()):
            raise CorruptRecord(b"", b"", "a check must send the graph of its revisions, and nothing else")

    def _graph(self) -> Sequence[GraphNode]:
        """Return the graph in the complete body of a check."""
        if self._announcement is None:
            raise Unsupported("a check whose body has no graph", "a graph in the body")
        if self._bulk is not None:
            self._bulk.finish()
        self._announcement.finish()
        return self._announcement.graph() or ()

    def _confirm(self) -> bool:
        """Read the repository if only its assumed state was used so far. If the real state differs, decode the body
        again and return True."""
        if not self._context.confirm():
            return False
        self.abandon()
        self._context.allowance.restart()
        kept, self._kept = self._kept, []
        for chunk in kept:
            self.take(chunk)
        return True

    def abandon(self) -> None:
        """Drop the body, because the client cancelled or disconnected, or because the body is decoded again."""
        upload, self._upload = self._upload, None
        file, self._files_body = self._files_body, None
        self._announcement, self._bulk, self._unpacked, self._decided = None, None, 0, False
        if upload is not None:
            upload.abandon()
        if file is not None:
            file.close()

    # -- the answer

    @property
    def _context(self) -> RequestContext:
        assert self.running is not None  # `run` skips the tasks of a request without one.
        return self.running

    def answer(self) -> ServedAnswer:
        """Carry out a request that has no body."""
        context = self._context
        if context.header.is_vfs:
            return ServedAnswer(*vfs.answer(context, None))
        if not context.header.mutates:
            return self._read()
        return self._check(()) if context.header.flags & RequestFlag.CHECK_ONLY else self._commit(None)

    def finish(self, segments: int, size: int) -> ServedAnswer:
        """Carry out a request whose body is complete."""
        context = self._context
        if context.header.is_vfs:
            answer = ServedAnswer(*vfs.answer(context, self._files_body, size))
            self.abandon()
            return answer
        context.allowance()
        if context.header.flags & RequestFlag.CHECK_ONLY:
            return self._check(self._graph())
        first = context.earlier()
        if first is not None:
            self.abandon()
            return self._committed(first)
        try:
            upload = self._finish_upload(segments, size)
        except (CodedError, RequestFailure):
            if not self._confirm():
                raise
            upload = self._finish_upload(segments, size)
        return self._commit(upload)

    def _finish_upload(self, segments: int, size: int) -> Upload:
        """Return the finished upload. Its pack becomes durable only by `Upload.write_down`. The caller owns the upload:
        `abandon` does not delete it."""
        upload = self._upload = self._upload or self._begin_upload()
        self._context.progress("store", 0, 0)
        if self._context.header.flags & RequestFlag.BULK:
            bulk = self._bulk or BulkDecoder()
            bulk.finish()
            if bulk.taken != size:
                raise CorruptRecord(b"", b"", f"the body has {bulk.taken} bytes, but its end states {size}")
            size = self._unpacked
        upload.finish(segments, size)
        self._upload = None
        return upload

    def _read(self) -> ServedAnswer:
        context, header = self._context, self._context.header
        context.allowance()  # It may have waited for a thread.
        if all(verb.site_wide for verb, _ in header.calls):
            return ServedAnswer(Reply(context.decide()))
        transaction = context.begin()
        outcomes = context.decide(transaction)
        reply = context.reply(outcomes, context.changes(transaction))
        plan = context.plan
        if not plan or not any(verb.body is Body.DOWN for verb, _ in header.calls):
            return ServedAnswer(reply)
        lane = Lane.CONTENT if isinstance(plan, ContentPlan) else Lane.QUICK
        return ServedAnswer(reply, transaction.open_body(plan, self.level), lane)

    def _check(self, graph: Sequence[GraphNode]) -> ServedAnswer:
        context = self._context
        transaction = context.begin(graph)
        outcomes = context.decide(transaction)
        return ServedAnswer(context.reply(outcomes, context.changes(transaction)))

    def _commit(self, upload: Upload | None) -> ServedAnswer:
        context = self._context

        planned: Transaction | None = None

        def plan(transaction: Transaction) -> bytes:
            nonlocal planned
            planned = transaction
            context.allowance()
            context.allowance.restart()  # An earlier plan was for an older state.
            return _encode(context.decide(transaction))

        repository = context.find().repository
        checks = PushChecks(context, repository, upload)
        # From here on, the commit, or between two commits `PushChecks`, owns the upload: only they know whether a
        # record may name the pack.
        user = context.access.user
        committed = checks.carry_out(
            lambda: repository.commit(
                context.id,
                context.age(),
                user,
                plan,
                upload,
                context.progress,
                context.allowance,
                None if context.is_guess else context.take_look(),
                checks.approve,
                context.header.push_options,
            )
        )
        faults = _faults_in({} if upload is None else upload.warnings)
        if faults:
            log.info("%s by %s: taken with faults: %s", context.header.description, user, faults)
        audit(context, planned if committed.changed else None, _outcomes.decode(committed.outcome))
        return self._committed(committed, [Advice("faults", raw({"faults": faults}))] if faults else ())

    def _committed(self, committed: CommitOutcome, advice: Sequence[Advice] = ()) -> ServedAnswer:
        context, outcomes = self._context, _outcomes.decode(committed.outcome)
        try:
            state = committed.state
            gone = not state.exists  # Deleted by this request, or since.
            changes = state.changes_since(context.known) if not gone and context.shows(state) else None
            reply = context.reply(outcomes, changes, advice)
        except CodedError as error:
            # The change is made, even if other files are damaged. An error would say that it is not.
            log.warning("%s: its change is made, its new state cannot be read: %s", context.header.description, error)
            reply = context.reply(outcomes, None, advice)
        return ServedAnswer(reply, changed=context.find().repository if committed.changed else None)

    def refusal(self, error: Exception) -> ServedAnswer:
        """Return the answer to a request whose step raised an error."""
        told: CodedError
        outcomes: list[Outcome] = []
        match error:
            case RequestFailure():
                told, outcomes = error.fault, error.outcomes
            case CodedError():
                told = error
            case Malformed():
                told = CorruptRecord(b"", b"", str(error))
            case _:
                told = internal(error)
        self.abandon()
        context = self._context
        if context.header.is_vfs:
            return ServedAnswer(Failure(fault(told)))
        try:
            told = user_error(context.without_names(told), context.location, context.site.name)
        except CodedError as failed:  # The store could not be read.
            told = failed
        return ServedAnswer(
            Failure(fault(told), outcomes, context.state_after(told), capabilities=context.capabilities())
        )


def _faults_in(found: Mapping[str, tuple[int, Key]]) -> dict[str, list[object]]:
    """Return the number of records with each fault and the first such record, for an advice."""
    return {fault: [count, shown(first)] for fault, (count, first) in found.items()}

"""One request's work on the store. Everything here blocks, so it runs in the executor, one step at a time.

`Work.run` is where the executor enters. It measures a step, and makes an encoded answer of what the step gives or
raises. `RequestWork` has the steps of a request, `RequestBody` takes the body of one that changes something.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import msgspec

from smartserver.errors import AccessDenied, CorruptRecord, LimitExceeded, NoSuchRepository, Unsupported
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
from smartserver.records.model import GraphNode
from smartserver.records.segment import SegmentStream
from smartserver.records.varint import Malformed
from smartserver.server.advice import faults_of, of_faults
from smartserver.server.audit import audit
from smartserver.server.context import CallContext, RequestContext
from smartserver.server.executor import Lane
from smartserver.server.header import RequestFailure, declared, fault, internal
from smartserver.server.progress import RequestProgress
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
)
from transports.errors import CodedError

log = logging.getLogger("smartserver")

MOST_KEPT = 1 << 20
"""Bytes of a body that is taken again if its repository is not as it was last seen; after so many it is looked at."""

_outcomes = msgspec.msgpack.Decoder(list[Outcome])
_encode = msgspec.msgpack.Encoder().encode


class BodyReader(Protocol):
    """The body of an answer."""

    segments: int
    """In it; right when it has ended, as is `size`."""
    size: int
    """Its bytes."""

    def read(self, size: int) -> bytes:
        """At most `size` bytes; empty at the end."""


@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """What to send: a message, and a body where there is one."""

    message: Reply | Failure
    body: BodyReader | None = None
    lane: Lane = Lane.QUICK
    """Where the body is read."""
    changed: PackRepository | None = None
    """The repository a commit changed: it may want repacking."""
    payload: bytes = b""
    """The message, encoded. The largest takes a tenth of a second, so the step that gave it does that."""


class RequestSteps(Protocol):
    """The steps of a request: `answer`, or `take` for each chunk of its body and then `finish`."""

    def answer(self) -> ServedAnswer:
        """Carry out a request that has no body."""

    def take(self, chunk: bytes) -> None:
        """Check a chunk of the body."""

    def finish(self, segments: int, size: int) -> ServedAnswer:
        """Carry out a request whose body is whole."""

    def refusal(self, wrong: Exception) -> ServedAnswer:
        """What the client is told of what a step raised; a bug is told as one."""

    def abandon(self) -> None:
        """Forget the body: the client cancelled or is gone."""


class Step(NamedTuple):
    """What is done in the executor: `of_request`, left out once the request is over, or `apart`. `then` gets what
    that gave, unless it was an answer, on the thread that moves the bytes. `name`: what a trace calls it."""

    lane: Lane
    name: str = ""
    of_request: Callable[[RequestSteps], object] | None = None
    """What it raises is a refusal."""
    apart: Callable[[], object] = lambda: None
    then: Callable[[object], None] = lambda _: None
    size: int = 0
    """Bytes of the body that it takes."""


class Work:
    """What the executor does for one request, and what that costs."""

    def __init__(self, site: Site, progress: RequestProgress) -> None:
        self.steps: RequestSteps | None = None
        """None until the request is decoded, and after it was cancelled."""
        self.is_over = False
        """Whether the final answer is sent, or nobody is there to get one."""
        self.busy = 0.0
        """Seconds at work."""
        self.queued = 0.0
        """Seconds that steps waited for a thread."""
        self.spent = NOTHING
        """What was counted meanwhile."""
        self.hides_cost = False
        """Whether the answer leaves out what it cost, since that tells of repositories that the user may not read."""
        self.spans: RequestSpans | None = None
        """Where anybody wants them: the client, or the log of slow requests."""
        self.is_repacking: Callable[[], bool] = lambda: False
        """Whether packs of the repository are being joined."""
        self._saw_repack = False
        self._site = site
        self._progress = progress

    def run(self, step: Step, ready: float) -> object:
        """Do a step that was `ready` then; what it gave, an answer as it is sent, or the error that tells of a bug."""
        start = self._site.clock()
        self.queued += start - ready
        if self.spans is None:
            return self._run(step, start)
        self.spans.waited(ready)
        self._saw_repack |= self.is_repacking()
        with listening(self.spans), span(Part.SERVER, step.name):
            return self._run(step, start)

    def _run(self, step: Step, start: float) -> object:
        steps = self.steps
        if step.of_request is not None and (steps is None or self.is_over):
            return None
        before = counted_here()
        self._progress.began(start)
        try:
            try:
                result = step.apart() if steps is None or step.of_request is None else step.of_request(steps)
            except Exception as wrong:  # The boundary of a request: nothing a peer sends may end the server.
                if steps is None or step.of_request is None:
                    raise
                result = steps.refusal(wrong)
            finally:
                self.busy += self._site.clock() - start
                self.spent = together(self.spent, since(counted_here(), before))
            return self.encoded(result) if isinstance(result, ServedAnswer) else result
        except Exception as wrong:  # A step that is never reported would leave its client without an answer.
            return internal(wrong)

    def encoded(self, answer: ServedAnswer) -> ServedAnswer:
        """The answer with its payload, which says what the request cost."""
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
        """What a client that traces the request is told of it so far; `link`: counts of the connection."""
        if self.spans is None or not self.spans.tells:
            return None
        self._saw_repack |= self.is_repacking()
        # Not the timers: spans tell their time.
        counted = zip(METERS, self.spent, strict=True)
        counts = {meter.name: count for meter, count in counted if count and meter.unit is not Unit.SECONDS}
        return ServerTrace(self.spans.take(), {**counts, **link, **({REPACKED: 1} if self._saw_repack else {})})


class RequestWork:
    """The steps of a request; implements `RequestSteps`. `refusal` makes an answer of what goes wrong in them."""

    def __init__(self, context: RequestContext, level: int) -> None:
        """`level`: of the compression of content bodies."""
        self._header = context.header
        self._context = context
        self._level = level
        self._body = RequestBody(context)
        self._kept: list[bytes] = []
        """The body, as long as it may have to be taken again."""

    def answer(self) -> ServedAnswer:
        """Carry out a request that has no body."""
        if not self._header.mutates:
            return self._read()
        return self._check(()) if self._header.flags & RequestFlag.CHECK_ONLY else self._commit(None)

    def take(self, chunk: bytes) -> None:
        """Check a chunk of the body."""
        self._kept.append(chunk)
        try:
            self._body.take(chunk)
        except (CodedError, RequestFailure):
            if not self._confirm():
                raise
        if sum(map(len, self._kept)) > MOST_KEPT:
            self._confirm()
        if not self._context.is_guess:
            self._kept.clear()

    def _confirm(self) -> bool:
        """Look at the repository, where that was put off. Whether it changed: then the body was taken again."""
        if not self._context.confirm():
            return False
        self._body.abandon()
        self._context.allowance.restart()
        self._body = RequestBody(self._context)
        for chunk in self._kept:
            self._body.take(chunk)
        return True

    def finish(self, segments: int, size: int) -> ServedAnswer:
        """Make the change a whole body asks for."""
        context = self._context
        context.allowance()
        if self._header.flags & RequestFlag.CHECK_ONLY:
            return self._check(self._body.graph())
        first = context.earlier()
        if first is not None:
            self.abandon()
            return self._committed(first)
        try:
            upload = self._body.finish(segments, size)
        except (CodedError, RequestFailure):
            if not self._confirm():
                raise
            upload = self._body.finish(segments, size)
        return self._commit(upload)

    def abandon(self) -> None:
        """Forget the body: the client cancelled or is gone."""
        self._body.abandon()

    def _read(self) -> ServedAnswer:
        context, header = self._context, self._header
        context.allowance()  # It may have waited for a thread.
        if all(verb.site_wide for verb, _ in header.calls):
            return ServedAnswer(Reply(CallContext(context).decide()))
        transaction = context.begin()
        calls = CallContext(context, transaction)
        outcomes = calls.decide()
        changes = context.changes(transaction)
        snapshot = transaction.snapshot
        reply = context.reply(outcomes, changes, None if snapshot is None else snapshot.state)
        plan = calls.plan
        if not plan or not any(verb.body is Body.DOWN for verb, _ in header.calls):
            return ServedAnswer(reply)
        lane = Lane.CONTENT if isinstance(plan, ContentPlan) else Lane.QUICK
        return ServedAnswer(reply, transaction.open_body(plan, self._level), lane)

    def _check(self, graph: Sequence[GraphNode]) -> ServedAnswer:
        context = self._context
        transaction = context.begin(graph)
        outcomes = CallContext(context, transaction).decide()
        return ServedAnswer(context.reply(outcomes, context.changes(transaction)))

    def _commit(self, upload: Upload | None) -> ServedAnswer:
        context = self._context

        planned: Transaction | None = None

        def plan(transaction: Transaction) -> bytes:
            nonlocal planned
            planned = transaction
            context.allowance()
            context.allowance.restart()  # Planned before, on what was stored then.
            return _encode(CallContext(context, transaction).decide())

        repository = context.find().repository
        # From here on the upload is the commit's: once a record may name its pack, nobody else may delete that.
        user = context.access.user
        committed = repository.commit(
            context.id,
            context.age(),
            user,
            plan,
            upload,
            context.progress,
            context.allowance,
            None if context.is_guess else context.take_look(),
        )
        warnings = {} if upload is None else upload.warnings
        if warnings:
            log.info("%s by %s: taken with faults: %s", self._header.description, user, faults_of(warnings))
        audit(context, planned if committed.changed else None, _outcomes.decode(committed.outcome))
        return self._committed(committed, of_faults(warnings))

    def _committed(self, committed: CommitOutcome, advice: Advice | None = None) -> ServedAnswer:
        context, outcomes = self._context, _outcomes.decode(committed.outcome)
        try:
            state = committed.state
            gone = not state.exists  # By this request, or since it was carried out.
            changes = state.changes_since(context.known) if not gone and context.shows(state) else None
            reply = context.reply(outcomes, changes, None if gone else state, advice)
        except CodedError as wrong:
            # The change is made, whatever is damaged beside it: an error would say that it is not.
            log.warning("%s: its change is made, its state cannot be told: %s", self._header.description, wrong)
            reply = context.reply(outcomes, None, advice=advice)
        return ServedAnswer(reply, changed=context.find().repository if committed.changed else None)

    def refusal(self, wrong: Exception) -> ServedAnswer:
        """What the client is told of what a step raised; a bug is told as one."""
        error: CodedError
        outcomes: list[Outcome] = []
        match wrong:
            case RequestFailure():
                error, outcomes = wrong.fault, wrong.outcomes
            case CodedError():
                error = wrong
            case Malformed():
                error = CorruptRecord(b"", b"", str(wrong))
            case _:
                error = internal(wrong)
        self.abandon()
        context = self._context
        try:
            error = user_error(context.without_names(error), context.location, context.site.name)
        except CodedError as also:  # What it looks at for that cannot be had.
            error = also
        return ServedAnswer(
            Failure(fault(error), outcomes, context.state_after(error), capabilities=context.capabilities())
        )


class RequestBody:
    """The body of a request that changes something: its graph and segments, taken as they come into quarantine.

    Nothing of it is kept before every call was found to be allowed. Whether it travels as a bulk stream is known here
    alone; what is taken is the same.
    """

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._flags = context.header.flags
        self._upload: Upload | None = None
        self._transaction: Transaction | None = None
        """What the upload is checked against."""
        self._announcement: SegmentStream | None = None
        self._planned = False
        self._bulk = BulkDecoder() if self._flags & RequestFlag.BULK else None
        self._content = 0
        """Bytes that came of a bulk stream."""

    def take(self, chunk: bytes) -> None:
        """Check a chunk; once the graph is here, also what the calls make of it.

        Raises:
            Refusal, CodedError, Malformed: the rest of the body is not wanted.
        """
        self._context.allowance()
        self._context.allowance.came(len(chunk))
        if self._upload is None and not self._flags & RequestFlag.CHECK_ONLY:
            if self._context.earlier() is not None:
                return
            self._upload = self._begin()
        if self._bulk is None:
            self._take(chunk)
            return
        for content in self._bulk.feed(chunk):
            self._content += len(content)
            most = (self._bulk.taken + BULK_ALLOWANCE) * MAX_BULK_RATIO
            if self._content > most:
                raise LimitExceeded(BULK_BYTES, self._content, most)
            self._take(content)

    def _take(self, content: bytes) -> None:
        if self._flags & RequestFlag.CHECK_ONLY:
            self._take_graph(content)
            return
        assert self._upload is not None  # It was begun with the first chunk.
        self._upload.write(content)
        if self._flags & RequestFlag.GRAPH_FIRST and not self._planned:
            graph = self._upload.graph()
            if graph is not None:
                self._planned = True
                assert self._transaction is not None  # It was begun with the upload.
                self._decide(self._transaction.announcing(graph))

    def finish(self, segments: int, size: int) -> Upload:
        """What came, durable. It is the caller's: this will not delete it.

        Raises:
            CodedError: it is not whole, or not sound.
        """
        upload = self._upload or self._begin()
        self._upload = upload
        self._context.progress("store", 0, 0)
        if self._bulk is not None:
            self._bulk.finish()
            if self._bulk.taken != size:
                raise CorruptRecord(b"", b"", f"the body has {self._bulk.taken} bytes; its end says {size}")
            size = self._content
        upload.finish(segments, size)
        self._upload = None
        return upload

    def graph(self) -> Sequence[GraphNode]:
        """The whole body of a check.

        Raises:
            Unsupported, Malformed: it is none.
        """
        if self._announcement is None:
            raise Unsupported("a check without the graph it is about", "the graph in the body")
        if self._bulk is not None:
            self._bulk.finish()
        self._announcement.finish()
        return self._announcement.graph() or ()

    def abandon(self) -> None:
        """Forget what came."""
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.abandon()

    def _take_graph(self, chunk: bytes) -> None:
        if self._announcement is None:
            context = self._context
            self._admit()
            self._announcement = SegmentStream(graph_first=True, limit=0, charge=context.allowance.charge)
        self._announcement.feed(chunk)
        if any(self._announcement.segments()):
            raise CorruptRecord(b"", b"", "a check brings the graph of its revisions and nothing else")

    def _admit(self) -> None:
        """Check what every call needs, before anything of a body is kept."""
        for verb, _ in self._context.header.calls:
            self._context.require(verb)

    def _begin(self) -> Upload:
        """A place for the body. What comes before it in the request (creation) decides which kinds it may hold."""
        context = self._context
        self._admit()
        transaction = self._transaction = context.begin()
        self._prepare(transaction)
        graph_first = bool(self._flags & RequestFlag.GRAPH_FIRST)
        return context.find().repository.receive(transaction, graph_first, context.id)

    def _decide(self, transaction: Transaction) -> None:
        CallContext(self._context, transaction, early=True).decide()

    def _prepare(self, transaction: Transaction) -> None:
        """Have what comes before the body be done in the transaction."""
        calls = CallContext(self._context, transaction, early=True)
        for verb, arguments in self._context.header.calls:
            if verb.body is Body.UP:
                break
            try:
                calls.run(verb, arguments)
            except CodedError as error:
                checked = declared(verb, error)
                if not verb.own_verdict:
                    raise RequestFailure(checked) from error
        if not transaction.exists:
            raise RequestFailure(NoSuchRepository(calls.path))

"""One request of a connection, from its first frame to its final answer; runs on the thread that moves the bytes."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from smartserver.errors import AccessDenied, Cancelled, InternalError, LimitExceeded, Unsupported, error_from_wire
from smartserver.server.access import Access
from smartserver.server.dispatch import Prepared, fault, internal, prepare
from smartserver.server.executor import Executor, Lane, Strand
from smartserver.server.fair import Client
from smartserver.server.open_files import OpenFiles
from smartserver.server.progress import RequestProgress
from smartserver.server.site import Site
from smartserver.server.tidying import tidy_later
from smartserver.server.vfs import VfsWork
from smartserver.server.work import Answer, RequestWork, log_bug
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import Body, End, Error, Event, Progress, Reply, Request
from smartserver.wire.limits import MAX_REQUEST, PIECE
from smartserver.wire.messages import Counters, Failure, RequestFlag, decode_request, encode, named
from transports.decorators.counted import Counts
from transports.errors import CodedError, NoSpace, PermissionDenied, TransportFailed

log = logging.getLogger("smartserver")
refusals = logging.getLogger("smartserver.refusals")
"""Of refusals that administrators have to know; a server with one user does not repeat them to it."""

T = TypeVar("T")

LARGE_REQUEST = 64 * 1024
"""Bytes of a request from which it is decoded apart: the largest takes 0.12 s, and no other connection would move."""

FOR_ADMINISTRATORS = {each.code for each in (AccessDenied, NoSpace, PermissionDenied, TransportFailed)}
"""Refusals that are logged however little is: a client that may not do what it wants, and a store that fails."""

MANY_CALLS = 16
"""Calls of a request that reads from which it runs apart: one `Repository.list` looks into folders for milliseconds,
hundreds do for seconds, in which nobody else would get a quick answer. Our clients send three."""

REQUEST_COST = 8 * 1024
"""Bytes that a decoded request takes besides its own: the shortest takes 7,000."""

CALL_COST = 1024
"""Bytes that each of its calls takes: the shortest takes 900."""


class Connected(Protocol):
    """What an exchange needs of the connection it is on."""

    site: Site
    access: Access
    executor: Executor
    client: Client
    peer: str
    open_files: OpenFiles

    @property
    def writable(self) -> bool:
        """Whether a body may go on."""

    def send(self, event: Event) -> None:
        """Send one event unless the connection is gone."""

    def backlog(self, change: int) -> None:
        """Account for bytes received and not yet looked at."""

    def want_body(self, exchange: Exchange) -> None:
        """Queue an answer with a body; its `start_body` is called when it is its turn."""

    def finished(self, exchange: Exchange) -> None:
        """The request has its final answer."""

    def ended(self, exchange: Exchange) -> None:
        """The request has its final answer, and nothing is done for it any more."""


class Exchange:
    """One request, from its first frame to its final answer."""

    def __init__(self, session: Connected, request_id: int) -> None:
        self.id = request_id
        self._session = session
        self._payload: list[bytes] = []
        self._held = 0
        """Bytes of its payload that are in the backlog."""
        self._size = 0
        self._work: RequestWork | VfsWork | None = None
        self._answer: Answer | None = None
        self._answered = False
        self._lost = False
        self._body_sent = 0
        self._reading = False
        self._busy = 0.0
        self._spent = Counts()
        self._ended = False
        self._settled = False
        self._first: Reply | None = None
        # A strong reference here would form a cycle and keep the request's data alive until the next garbage
        # collection. One push in fifty then took 25 ms longer.
        here = weakref.ref(self)
        self._strand = Strand(session.executor, session.client, lambda: _settle(here()))
        self._progress = RequestProgress(session.site, lambda told: session.executor.soon(lambda: _tell(here(), told)))

    # -- from the session

    def request(self, event: Request) -> None:
        """A part of the request came."""
        self._size += len(event.payload)
        if self._size > MAX_REQUEST:
            self._payload.clear()
            if not event.more:
                self._refuse(LimitExceeded("bytes of a request", self._size, MAX_REQUEST))
            return
        self._payload.append(event.payload)
        if event.more:
            return
        payload = b"".join(self._payload)
        self._payload.clear()
        self._hold(len(payload))
        if len(payload) < LARGE_REQUEST:
            self._begin(_decoded(payload, event.body), event.body)
        else:
            decode = lambda: self._measured(lambda: _decoded(payload, event.body))  # noqa: E731
            self._step(decode, lambda prepared: self._begin(prepared, event.body))

    def _hold(self, size: int) -> None:
        """Count so many bytes in the backlog, which may pause all reading: what the request holds in memory.

        A request that is counted must end though nothing more is read, or both sides would wait for each other. One
        without a body needs no more of its client: it counts until it is answered and its work has ended, cancelled or
        not; sending its body down is not work. One with a body counts until it is decoded; there is one of those at a
        time. An END or CANCEL behind a counted request is only late: nothing that is counted waits for it.
        """
        change, self._held = size - self._held, size
        if change:
            self._session.backlog(change)

    def _begin(self, prepared: Prepared | CodedError, body: bool) -> None:
        if self._answered:  # Cancelled while it was decoded.
            return
        if not isinstance(prepared, CodedError):
            prepared = self._session.site.banned(prepared.message.path, prepared.calls) or prepared
        if isinstance(prepared, CodedError):
            self._refuse(prepared)
            return
        self._hold(0 if body else self._size + REQUEST_COST + CALL_COST * len(prepared.calls))
        site, access = self._session.site, self._session.access
        if prepared.is_vfs:
            work: RequestWork | VfsWork = VfsWork(site, access, prepared, self._session.open_files)
        else:
            work = RequestWork(site, access, prepared, self._progress.tell, self._size)
        self._work = work
        self._progress.names_phases = prepared.long
        if not body:
            self._answering(lambda: self._unless_over(lambda work: work.answer()), _lane_of(prepared))

    def body(self, chunk: bytes) -> None:
        """A chunk of the body came."""
        session = self._session
        session.backlog(len(chunk))
        self._progress.received(len(chunk))

        def take() -> Answer | None:
            refusal = self._unless_over(lambda work: work.take(chunk))
            self._progress.checked(len(chunk))
            return refusal

        self._answering(take, Lane.BODY, anyway=lambda: session.backlog(-len(chunk)))

    def end(self, segments: int, size: int) -> None:
        """The body is whole."""
        self._ended = True
        self._progress.ended()
        self._answering(lambda: self._unless_over(lambda work: work.finish(segments, size)), Lane.COMMIT)

    def cancel(self) -> None:
        """The client wants no more; a change that is not made yet will not be."""
        work = self._work
        if work is not None:
            work.cancel()
        if self._answer is not None and self._answer.body is not None:
            self._refuse(Cancelled())
        elif self._answered:
            pass
        elif work is None or not work.mutates:  # It is not even whole, or whatever it still finds changes nothing.
            self._refuse(Cancelled())
            self._work = None  # While it waits for a thread it holds nothing.
        elif not self._ended:
            self._step(work.abandon, lambda _: self._refuse(Cancelled()))

    def lost(self) -> None:
        """The connection is gone."""
        self._lost = True
        self._answer = None  # And with it the files of its body.
        self._payload.clear()
        self._strand.clear()
        if self._work is not None:
            self._work.cancel()
            self._step(self._work.abandon, lambda _: None)
        else:
            self._settle()

    # -- steps

    def _unless_over(self, work: Callable[[RequestWork | VfsWork], Answer | None]) -> Answer | None:
        """What a step after the first gives; nothing when the request was refused or its client is gone."""
        request = self._work
        return None if request is None or self._answered or self._lost else work(request)

    def _measured(self, work: Callable[[], T]) -> T:
        site = self._session.site
        start, before = site.clock(), site.spent
        self._progress.began(start)
        try:
            return work()
        finally:
            self._busy += site.clock() - start
            self._spent += site.spent - before

    def _step(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        lane: Lane = Lane.QUICK,
        anyway: Callable[[], None] = lambda: None,
    ) -> None:
        """While there is a connection `done` follows what the step gave, and `anyway` also what went wrong in it."""

        def guarded() -> T | InternalError:
            try:
                return work()
            except Exception as wrong:  # A step that is never reported would leave its client without an answer.
                return internal(wrong, log_bug)

        def report(result: T | InternalError) -> None:
            if self._lost:
                return
            anyway()
            if isinstance(result, InternalError):
                work = None if self._answered else self._work
                self._refuse(result)
                if work is not None:
                    self._step(work.abandon, lambda _: None)
            else:
                done(result)

        self._strand.submit(guarded, report, lane)

    def _answering(
        self, work: Callable[[], Answer | None], lane: Lane = Lane.QUICK, anyway: Callable[[], None] = lambda: None
    ) -> None:
        """A step that may end in the answer, which is encoded there too: the largest takes a tenth of a second."""

        def encoded() -> tuple[Answer, bytes] | None:
            answer = self._measured(work)
            return None if answer is None else (answer, self._encoded(answer))

        def report(found: tuple[Answer, bytes] | None) -> None:
            if found is not None:
                self._reply(*found)

        self._step(encoded, report, lane, anyway)

    # -- answering

    def _refuse(self, error: CodedError) -> None:
        answer = Answer(Failure(fault(error)))
        self._reply(answer, self._encoded(answer))

    def _encoded(self, answer: Answer) -> bytes:
        spent = self._spent
        counters = Counters(
            int(self._busy * 1e6),
            spent.files_opened,
            spent.reads,
            spent.bytes_read,
            spent.bytes_written,
            spent.syncs,
        )
        return encode(msgspec.structs.replace(answer.message, counters=counters))

    def _reply(self, answer: Answer, payload: bytes) -> None:
        if self._answered and self._answer is None:
            return
        self._answered = True
        if isinstance(answer.message, Failure):
            self._answer = None
            self._session.send(Error(self.id, payload))
            self._log_refusal(answer.message)
            self._over()
            return
        if answer.body is None:
            self._log("answered")
            self._session.send(Reply(self.id, payload))
            self._over()
            if answer.changed is not None:
                tidy_later(self._session.site, self._session.executor, answer.changed)
            return
        if self._strand.idle:
            self._hold(0)
        self._answer = answer
        self._first = Reply(self.id, payload, body=True)
        self._session.want_body(self)

    def start_body(self) -> None:
        """It is this answer's turn to send its body."""
        assert self._first is not None  # It queued for its turn with this in hand.
        self._session.send(self._first)
        self.pump()

    def pump(self) -> None:
        """Send another piece if the peer takes it."""
        answer = self._answer
        if answer is None or answer.body is None or self._reading or not self._session.writable:
            return
        self._reading = True
        body = answer.body

        def read() -> bytes | Exception:
            try:
                return self._measured(lambda: body.read(PIECE))
            except Exception as wrong:  # The store failed half-way: said by ERROR, the whole segments before it stand.
                return wrong

        def done(piece: bytes | Exception) -> None:
            self._reading = False
            if self._answer is None:
                return
            if isinstance(piece, CodedError):
                assert self._work is not None  # The answer is its.
                self._refuse(self._work.in_words(piece))
            elif isinstance(piece, Exception):
                self._refuse(internal(piece, log_bug))
            elif piece:
                self._session.send(Body(self.id, piece))
                self.pump()
            else:
                self._session.send(End(self.id, body.segments, body.size))
                self._answer = None
                self._log("answered")
                self._over()

        self._step(read, done, answer.lane)

    def _log(self, outcome: str) -> None:
        work, spent = self._work, self._spent
        what = work.description if work is not None else "a request"
        log.info(
            "%s: %s: %s, %.1f ms%s", self._session.peer or "a client", what, outcome, self._busy * 1000, _io(spent)
        )

    def _log_refusal(self, refusal: Failure) -> None:
        """Log it as every request; where an administrator has to know, the reason too. Its code is in the format, which
        is what a log bounds: one refused client hides no full disk."""
        error, work = refusal.fault, self._work
        self._log(error.code)
        if error.code not in FOR_ADMINISTRATORS:
            return
        what = work.description if work is not None else "a request"
        why = str(error_from_wire(error.code, named(error)))
        why = "".join(each if each.isprintable() else "?" for each in why)  # It may hold the name of a ref.
        refusals.warning(f"%s: %s: {error.code}: %s", self._session.peer or "a client", what, why)

    def _over(self) -> None:
        self._session.finished(self)
        self._settle()

    def _settle(self) -> None:
        """Count no more, once the request is over and no step of it runs or waits."""
        over = self._lost or (self._answered and self._answer is None)
        if over and self._strand.idle and not self._settled:
            self._settled = True
            self._hold(0)
            self._session.ended(self)

    def tell(self, progress: bytes) -> None:
        """Say how far it is, unless it is over."""
        if not self._answered and not self._lost:
            self._session.send(Progress(self.id, progress))


def _lane_of(prepared: Prepared) -> Lane:
    """Where a request without a body is carried out."""
    if prepared.long:
        return Lane.LONG
    if prepared.mutates:
        return Lane.COMMIT
    return Lane.CONTENT if len(prepared.calls) > MANY_CALLS else Lane.QUICK


def _settle(exchange: Exchange | None) -> None:
    if exchange is not None:
        exchange._settle()


def _tell(exchange: Exchange | None, progress: bytes) -> None:
    if exchange is not None:
        exchange.tell(progress)


def _decoded(payload: bytes, body: bool) -> Prepared | CodedError:
    """The request in a payload, or why it is refused. `body`: what its frame says."""
    try:
        prepared = prepare(decode_request(payload))
    except RemoteProtocolError as wrong:
        return Unsupported("a request of this form", str(wrong))
    except CodedError as wrong:
        return wrong
    if body != bool(prepared.flags & RequestFlag.BODY):
        return Unsupported("the request flag BODY at odds with its frame", "the same of both")
    return prepared


def _io(spent: Counts) -> str:
    """What a request asked of the store, for the log; nothing where it asked nothing."""
    if spent == Counts():
        return ""
    written = f", {spent.bytes_written} bytes written, {spent.syncs} syncs" if spent.bytes_written else ""
    return f", {spent.files_opened} files opened, {spent.reads} reads of {spent.bytes_read} bytes{written}"

"""One request of a connection, from its first frame to its final answer; runs on the thread that moves the bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from smartserver.errors import Cancelled, InternalError, LimitExceeded, Unsupported
from smartserver.server.access import Access
from smartserver.server.dispatch import fault, internal, prepare
from smartserver.server.executor import Executor, Strand
from smartserver.server.site import Site
from smartserver.server.work import Answer, RequestWork, log_bug, tidy
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.events import Body, End, Error, Event, Progress, Reply, Request
from smartserver.wire.limits import MAX_REQUEST, PIECE
from smartserver.wire.messages import Counters, Failure, RequestFlag, decode_request, encode
from smartserver.wire.messages import Progress as ProgressMessage
from transports.errors import CodedError

log = logging.getLogger("smartserver")

T = TypeVar("T")

PROGRESS_INTERVAL = 0.5
"""Seconds between two PROGRESS messages of a request."""


class Connected(Protocol):
    """What an exchange needs of the connection it is on."""

    site: Site
    access: Access
    executor: Executor
    peer: str

    @property
    def writable(self) -> bool:
        """Whether a body may go on."""

    def send(self, event: Event) -> None:
        """Send one event unless the connection is gone."""

    def backlog(self, change: int) -> None:
        """Account for bytes received and not yet checked."""

    def want_body(self, exchange: Exchange) -> None:
        """Queue an answer with a body; its `start_body` is called when it is its turn."""

    def finished(self, exchange: Exchange) -> None:
        """The request has its final answer."""


class Exchange:
    """One request, from its first frame to its final answer."""

    def __init__(self, session: Connected, request_id: int) -> None:
        self.id = request_id
        self._session = session
        self._strand = Strand(session.executor)
        self._payload: list[bytes] = []
        self._size = 0
        self._work: RequestWork | None = None
        self._answer: Answer | None = None
        self._answered = False
        self._lost = False
        self._body_sent = 0
        self._reading = False
        self._busy = 0.0
        self._last_progress = 0.0
        self._ended = False
        self._long = False
        self._first: Reply | None = None

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
        try:
            prepared = prepare(decode_request(payload))
        except RemoteProtocolError as wrong:
            self._refuse(Unsupported("a request of this form", str(wrong)))
            return
        except CodedError as wrong:
            self._refuse(wrong)
            return
        if event.body != bool(prepared.flags & RequestFlag.BODY):
            self._refuse(Unsupported("the request flag BODY at odds with its frame", "the same of both"))
            return
        self._long = prepared.long
        self._work = RequestWork(self._session.site, self._session.access, prepared, self._progress_from_worker)
        if not event.body:
            self._step(self._work.answer, self._reply)

    def body(self, chunk: bytes) -> None:
        """A chunk of the body came."""
        assert self._work is not None  # The request is whole before its body, and over when it was refused.
        work, session = self._work, self._session
        session.backlog(len(chunk))

        def done(refusal: Answer | None) -> None:
            session.backlog(-len(chunk))
            if refusal is not None:
                self._reply(refusal)

        self._step(lambda: None if self._answered or self._lost else work.take(chunk), done)

    def end(self, segments: int, size: int) -> None:
        """The body is whole."""
        assert self._work is not None  # As above.
        work = self._work
        self._ended = True

        def finish() -> Answer | None:
            return None if self._answered or self._lost else work.finish(segments, size)

        def done(answer: Answer | None) -> None:
            if answer is not None:
                self._reply(answer)

        self._step(finish, done)

    def cancel(self) -> None:
        """The client wants no more; a change that is not made yet will not be."""
        if self._work is not None:
            self._work.cancelled = True
        if self._answer is not None and self._answer.body is not None:
            self._refuse(Cancelled())
            return
        if self._answered or self._ended:
            return
        if self._work is None:  # Not even the request is whole.
            self._refuse(Cancelled())
            return
        work = self._work
        self._step(work.abandon, lambda _: self._refuse(Cancelled()))

    def lost(self) -> None:
        """The connection is gone."""
        self._lost = True
        if self._work is not None:
            work = self._work
            work.cancelled = True
            self._strand.submit(work.abandon, lambda _: None)

    # -- answering

    def _step(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        clock = self._session.site.clock

        def timed() -> T | InternalError:
            start = clock()
            try:
                return work()
            except Exception as wrong:  # A step that is never reported would leave its client without an answer.
                return internal(wrong, log_bug)
            finally:
                self._busy += clock() - start

        def report(result: T | InternalError) -> None:
            if self._lost:
                return
            if isinstance(result, InternalError):
                self._refuse(result)
            else:
                done(result)

        self._strand.submit(timed, report, long=self._long)

    def _refuse(self, error: CodedError) -> None:
        self._reply(Answer(Failure(fault(error))))

    def _reply(self, answer: Answer) -> None:
        if self._answered and self._answer is None:
            return
        message = msgspec.structs.replace(answer.message, counters=Counters(int(self._busy * 1e6)))
        if isinstance(message, Failure):
            self._answered = True
            self._answer = None
            self._session.send(Error(self.id, encode(message)))
            self._log(message.fault.code)
            self._over()
            return
        self._answered = True
        self._log("answered")
        if answer.body is None:
            self._session.send(Reply(self.id, encode(message)))
            self._over()
            if answer.changed is not None:
                repository = answer.changed
                self._session.executor.run(lambda: tidy(repository), lambda _: None, long=True)
            return
        self._answer = answer
        self._first = Reply(self.id, encode(message), body=True)
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
                return body.read(PIECE)
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
                self._session.send(End(self.id, answer.segments, answer.size))
                self._answer = None
                self._over()

        self._step(read, done)

    def _log(self, outcome: str) -> None:
        work = self._work
        what = work.description if work is not None else "a request"
        log.info("%s: %s: %s, %.1f ms", self._session.peer or "a client", what, outcome, self._busy * 1000)

    def _over(self) -> None:
        self._session.finished(self)

    # -- progress

    def _progress_from_worker(self, phase: str, done: int, total: int) -> None:
        now = self._session.site.clock()
        if now - self._last_progress >= PROGRESS_INTERVAL:
            self._last_progress = now
            payload = encode(ProgressMessage(phase, done, total))
            self._session.executor.soon(lambda: self._send_progress(payload))

    def _send_progress(self, payload: bytes) -> None:
        if not self._answered and not self._lost:
            self._session.send(Progress(self.id, payload))

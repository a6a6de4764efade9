"""One request of a connection, from its first frame to its final answer.

Its methods run on the I/O thread. Work on the store is done in tasks, one after another, each in a lane of the
executor. A task decodes a long request, takes a chunk of the body, makes the change, or reads a piece of the answer's
body.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from smartserver.errors import (
    TOKEN_REFUSED,
    AccessDenied,
    Cancelled,
    InternalError,
    LimitExceeded,
    error_from_wire,
)
from smartserver.server.access import Admission
from smartserver.server.context import RequestContext
from smartserver.server.executor import Executor, Lane
from smartserver.server.fair import Tenant
from smartserver.server.header import RequestHeader, fault, read_header
from smartserver.server.open_files import OpenFiles
from smartserver.server.progress import RequestProgress
from smartserver.server.request_log import LOST, EndedRequest, log_request, log_slow, outcomes_of
from smartserver.server.request_log import log as request_log
from smartserver.server.site import Site
from smartserver.server.spans import RequestSpans
from smartserver.server.work import RequestWork, ServedAnswer, Task
from smartserver.tcp_state import tcp_counts
from smartserver.wire.events import Body, End, Error, Event, Progress, Reply, Request
from smartserver.wire.limits import MAX_REQUEST, PIECE
from smartserver.wire.messages import Failure, RequestFlag, encode_server_trace, named
from transports.errors import CodedError, NoSpace, PermissionDenied, TransportFailed

refusals = logging.getLogger("smartserver.refusals")
"""The log of refusals that concern the administrator. A server with a single user does not show this log to that
user."""

LARGE_REQUEST = 64 * 1024
"""The fewest bytes of a request that is decoded in a task. The largest request takes 0.12 s, during which no other
connection would be served."""

FOR_ADMINISTRATORS = {each.code for each in (AccessDenied, NoSpace, PermissionDenied, TransportFailed)}
"""Codes of the refusals that are always logged: a permission that is missing, and a store that fails."""

MANY_CALLS = 16
"""The most calls of a read request in the lane QUICK. One `Repository.list` reads folders for milliseconds; hundreds of
calls would read for seconds, during which no other client would get a quick answer. Our clients send three."""

REQUEST_COST = 8 * 1024
"""The bytes of memory that are counted for a decoded request in addition to its payload. The shortest request takes
7,000."""

CALL_COST = 1024
"""The bytes of memory that are counted for each call of a decoded request. The shortest call takes 900."""


class RequestOwner(Protocol):
    """The part of a connection that its requests use (`server.session.Session`)."""

    site: Site
    admission: Admission
    executor: Executor
    client: Tenant
    peer: str
    via: str
    open_files: OpenFiles
    is_local: bool
    link: Callable[[], Mapping[str, int]]

    @property
    def writable(self) -> bool:
        """True if the next piece of a body may be sent; False while the peer is too slow to take the previous ones."""

    def send(self, event: Event, more: bool = False) -> None:
        """Send one event unless the connection is closed. `more`: see `Session.send`."""

    def backlog(self, change: int) -> None:
        """Add to the number of bytes that were received and not yet checked."""

    def want_body(self, request: ServedRequest) -> None:
        """Queue an answer with a body. `start_body` of the request is called when its turn comes."""

    def finished(self, request: ServedRequest) -> None:
        """Called when a request has its final answer."""

    def ended(self, request: ServedRequest) -> None:
        """Called when a request has its final answer, and no task of the request runs or waits."""


class ServedRequest:
    """One request, from its first frame to its final answer."""

    def __init__(self, session: RequestOwner, request_id: int) -> None:
        self.id = request_id
        self._session = session
        self._arrived = session.site.clock()
        self._up = self._down = 0
        """Bytes that were received, and bytes that were sent."""
        self._header: RequestHeader | None = None
        """The decoded request; None before it is decoded, and after the cancellation of a request that changes
        nothing."""
        self._payload: list[bytes] = []
        self._size = 0
        """Bytes of the request's payload so far."""
        self._held = 0
        """Bytes of the request that are counted in the backlog."""
        self._ended = False
        """True once the body is complete."""
        self._answer: ServedAnswer | None = None
        """The answer whose body is still to be sent."""
        self._link: Mapping[str, int] = {}
        """The kernel's counts of the connection when a traced request began."""
        self._reading = False
        """True while a piece of the body is being read."""
        self._tasks: deque[Task] = deque()
        self._task: Task | None = None
        """The task that runs."""
        self._advancing = False
        # A strong reference here would form a cycle and keep the request's data alive until the next garbage
        # collection. One push in fifty then took 25 ms longer.
        here = weakref.ref(self)
        self._progress = RequestProgress(session.site, lambda told: session.executor.soon(lambda: _tell(here(), told)))
        self._work = RequestWork(session.site, self._progress)

    # -- from the session

    def request(self, event: Request) -> None:
        """Process a part of the request. Begin the work with the last part."""
        self._size += len(event.payload)
        self._up += len(event.payload)
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
        decode = partial(read_header, payload, body=event.body)
        if len(payload) < LARGE_REQUEST:
            self._begin(decode())
        else:
            self._do(Task(Lane.QUICK, decode, "decode", self._begin))

    def _hold(self, size: int) -> None:
        """Count `size` bytes, which the request holds in memory, in the backlog. That may pause reading from the
        connection.

        A counted request must be able to end though nothing more is read, or both sides would wait for each other. A
        request without a body needs nothing more from its client. It counts until it is answered and its work has
        ended, even if it was cancelled; sending a body is not work. A request with a body counts until it is decoded;
        there is only one of those at a time. An END or CANCEL behind a counted request is only late, because no counted
        request waits for it.
        """
        change, self._held = size - self._held, size
        if change:
            self._session.backlog(change)

    def _begin(self, header: object) -> None:
        """Begin the work of a decoded request, or refuse it."""
        if self._work.is_over:  # Cancelled while it was decoded.
            return
        if isinstance(header, RequestHeader):
            self._header = header
            header = self._session.site.banned(header.message.path, header.calls) or header
        if isinstance(header, CodedError):
            self._refuse(header)
            return
        assert isinstance(header, RequestHeader)  # As `read_header` gives nothing else.
        body = bool(header.flags & RequestFlag.BODY)
        self._hold(0 if body else self._size + REQUEST_COST + CALL_COST * len(header.calls))
        try:
            access = self._session.admission.admit(header.message.extras)
        except (AccessDenied, TransportFailed) as error:  # The rules may be away.
            self._refuse(error)
            return
        session, work = self._session, self._work
        context = RequestContext(
            session.site, access, header, self._progress.tell, session.peer, session.via, session.open_files
        )
        context.allowance.came(self._size)
        work.hides_cost = not access.sees_all and any(verb.site_wide for verb, _ in header.calls)
        work.context = context
        work.level = session.site.level_for(is_local=session.is_local)
        if header.wants_spans or session.site.slow is not None:
            work.spans = RequestSpans(session.site.clock, tells=header.wants_spans)
            self._link = session.link()
        self._progress.names_phases = header.long
        if not body:
            self._do(Task(_lane_of(header, session.site), work.answer, "answer", of_request=True))

    def body(self, chunk: bytes) -> None:
        """Queue the check of a chunk of the body."""
        self._up += len(chunk)
        self._session.backlog(len(chunk))
        self._progress.received(len(chunk))
        self._do(Task(Lane.BODY, partial(self._work.take, chunk), "check", size=len(chunk), of_request=True))

    def end(self, segments: int, size: int) -> None:
        """Queue the work of the request, because its body is complete."""
        self._ended = True
        self._progress.ended()
        header = self._header  # None where it was cancelled.
        lane = Lane.COMMIT if header is None else _lane_of_change(header, self._session.site)
        self._do(Task(lane, partial(self._work.finish, segments, size), "commit", of_request=True))

    def cancel(self) -> None:
        """Cancel the request. A commit stops if its calls must still be run; otherwise its change is made."""
        work, context = self._work, self._work.context
        if context is not None:
            context.allowance.cancelled = True
        if self._answer is not None or work.is_over:
            self._refuse(Cancelled())
        elif context is None or not context.header.mutates:
            # It is not complete, or it changes nothing.
            self._refuse(Cancelled())
            work.context = self._header = None  # So it holds no memory while it waits for a thread.
        elif not self._ended:
            self._do(Task(Lane.QUICK, work.abandon, "cancel", lambda _: self._refuse(Cancelled())))

    def lost(self) -> None:
        """Abandon the request, because the connection is closed."""
        was_over, self._work.is_over = self._work.is_over, True
        self._answer = None  # This also closes the files of its body.
        self._payload.clear()
        self._tasks.clear()
        if self._work.context is not None:
            self._work.context.allowance.cancelled = True
            self._do(Task(Lane.QUICK, self._work.abandon, "cancel"))
        else:
            self._settle()
        if not was_over:
            self._log([LOST])

    # -- tasks

    def _do(self, task: Task | None = None) -> None:
        """Queue a task. Run the next task if none is running."""
        if task is not None:
            self._tasks.append(task)
        if self._advancing:
            return  # The executor finished a task before `run` returned. The loop below avoids a recursion.
        self._advancing = True
        try:
            while self._tasks and self._task is None:
                self._task = self._tasks.popleft()
                work = partial(self._work.run, self._task, self._session.site.clock())
                self._session.executor.run(work, self._ran, self._task.lane, self._session.client)
        finally:
            self._advancing = False
        self._settle()

    def _ran(self, result: object) -> None:
        task, self._task = self._task, None
        assert task is not None  # It ran.
        if task.size:
            self._session.backlog(-task.size)
            self._progress.checked(task.size)
        if isinstance(result, ServedAnswer):
            self._reply(result)
        elif isinstance(result, InternalError):
            self._refuse(result)
        else:
            task.then(result)
        del task  # It may hold a chunk.
        self._do()

    # -- answering

    def _refuse(self, error: CodedError) -> None:
        self._reply(self._work.encoded(ServedAnswer(Failure(fault(error)))))

    def _reply(self, answer: ServedAnswer) -> None:
        if self._work.is_over:
            return
        self._down += len(answer.payload)
        if isinstance(answer.message, Failure):
            self._session.send(Error(self.id, answer.payload))
            self._log_refusal(answer.message)
            self._over()
        elif answer.body is None:
            self._session.send(Reply(self.id, answer.payload))
            self._log(outcomes_of(answer.message))
            self._over()
            if answer.changed is not None:
                site = self._session.site
                site.changed(answer.changed)
                site.upkeep.tidy_later(self._session.executor, answer.changed, joins=site.tidies)
        else:
            if self._is_at_rest:
                self._hold(0)
            self._answer = answer
            self._session.want_body(self)

    def start_body(self) -> None:
        """Begin to send the body of the answer, because its turn has come."""
        assert self._answer is not None  # It was set before the request queued for its turn.
        self._session.send(Reply(self.id, self._answer.payload, body=True), more=True)
        self.pump()

    def pump(self) -> None:
        """Let the next piece of the body be read and sent, if the peer accepts more."""
        answer = self._answer
        if answer is None or answer.body is None or self._reading or not self._session.writable:
            return
        self._reading = True
        body = answer.body
        self._do(Task(answer.lane, partial(body.read, PIECE), "read", self._send_piece, of_request=True))

    def _send_piece(self, piece: object) -> None:
        """Send a piece of the body; an empty piece ends it. If the store fails in the middle, an ERROR ends the body,
        and the complete segments before it are valid."""
        self._reading = False
        answer = self._answer
        if answer is None or answer.body is None or not isinstance(piece, bytes):
            return
        body = answer.body
        if piece:
            self._down += len(piece)
            self._session.send(Body(self.id, piece), more=True)
            self.pump()
            return
        link = tcp_counts(self._link, self._session.link()) if self._link else {}
        trace = self._work.server_trace(link)
        self._session.send(End(self.id, body.segments, body.size, encode_server_trace(trace)))
        self._log(outcomes_of(answer.message))
        self._over()

    @property
    def _description(self) -> str:
        return "a request" if self._work.context is None else self._work.context.header.description

    def _log(self, outcomes: Sequence[str]) -> None:
        """Log the end of the request, and call `Site.ended`."""
        site, work = self._session.site, self._work
        logs = request_log.isEnabledFor(logging.INFO)
        if not logs and site.ended is None and site.slow is None:
            return
        access = None if work.context is None else work.context.access
        ended = EndedRequest(
            peer=self._session.peer,
            user="" if access is None else access.user,
            by="" if access is None else access.by,
            header=self._header,
            up=self._up,
            down=self._down,
            lasted=site.clock() - self._arrived,
            busy=work.busy,
            queued=work.queued,
            spent=work.spent,
            outcomes=outcomes,
            via=self._session.via,
        )
        if logs:
            log_request(ended)
        if site.ended is not None:
            site.ended(ended)
        if site.slow is not None and ended.busy + ended.queued >= site.slow:  # The time of link and client is left out.
            log_slow(ended, [] if work.spans is None else work.spans.longest)

    def _log_refusal(self, refusal: Failure) -> None:
        """Log a refusal like every request; if its code is in `FOR_ADMINISTRATORS`, also log the reason. The format
        string contains the code, because a log limits the lines of each format: a refused client must not hide a full
        disk.

        Programs that ban addresses read the line about an invalid token. A request without a token is not logged there,
        because the first request of a new client has none."""
        self._log(outcomes_of(refusal))
        for error in (refusal.fault, *(outcome.fault for outcome in refusal.outcomes)):
            if error is None or error.code not in FOR_ADMINISTRATORS:
                continue
            told = error_from_wire(error.code, named(error))
            if isinstance(told, AccessDenied) and told.token:
                if told.token == TOKEN_REFUSED:
                    refusals.warning("refused log-in from=%s: %s", self._session.peer, told.why)
                continue
            why = str(told)
            why = "".join(each if each.isprintable() else "?" for each in why)  # It may contain the name of a ref.
            refusals.warning(f"%s: %s: {error.code}: %s", self._session.peer, self._description, why)

    def _over(self) -> None:
        """End the request, because its final answer is sent."""
        self._answer = None
        self._work.is_over = True
        self._session.finished(self)
        self._settle()

    def _settle(self) -> None:
        """Stop counting the request, once it is over and no task of it runs or waits."""
        if self._work.is_over and self._is_at_rest:
            self._hold(0)
            self._session.ended(self)

    @property
    def _is_at_rest(self) -> bool:
        """True if no task runs or waits."""
        return self._task is None and not self._tasks

    def tell(self, progress: bytes) -> None:
        """Send the progress of the request, unless it is answered."""
        if self._answer is None and not self._work.is_over:
            self._session.send(Progress(self.id, progress))


def _lane_of_change(header: RequestHeader, site: Site) -> Lane:
    """Return the lane of a change."""
    return Lane.HOOK if site.hooks.may_concern(header.message.path) else Lane.COMMIT


def _lane_of(header: RequestHeader, site: Site) -> Lane:
    """Return the lane of a request without a body."""
    if header.long:
        return Lane.LONG
    if header.mutates:
        return _lane_of_change(header, site)
    return Lane.CONTENT if len(header.calls) > MANY_CALLS else Lane.QUICK


def _tell(request: ServedRequest | None, progress: bytes) -> None:
    if request is not None:
        request.tell(progress)

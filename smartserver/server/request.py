"""One request of a connection, from its first frame to its final answer.

It lives on the thread that moves the bytes. The store's work is done in steps, one after another, each in the lane of
the executor that fits: a long request is decoded, a chunk of the body is taken, the change is made, a piece of the
answer's body is read.
"""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from smartserver.errors import AccessDenied, Cancelled, InternalError, LimitExceeded, Unsupported, error_from_wire
from smartserver.server.access import Access
from smartserver.server.asked import Asked
from smartserver.server.dispatch import Prepared, fault, internal, prepare
from smartserver.server.executor import Executor, Lane
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
    """What a request needs of its connection."""

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

    def want_body(self, request: ServedRequest) -> None:
        """Queue an answer with a body; its `start_body` is called when it is its turn."""

    def finished(self, request: ServedRequest) -> None:
        """The request has its final answer."""

    def ended(self, request: ServedRequest) -> None:
        """The request has its final answer, and nothing is done for it any more."""


Work = RequestWork | VfsWork


class Step(NamedTuple):
    """What is done in the executor: `of_work`, left out once the request is over, or `apart`. `then` gets what
    that gave, unless it was an answer, on the thread that moves the bytes."""

    lane: Lane
    of_work: Callable[[Work], object] | None = None
    """What it raises is a refusal."""
    apart: Callable[[], object] | None = None
    then: Callable[[object], None] = lambda _: None
    size: int = 0
    """Bytes of the body that it takes."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """An answer as it is sent. The largest takes a tenth of a second to encode, so the step that gave it does that."""

    answer: Answer
    payload: bytes


class ServedRequest:
    """One request, from its first frame to its final answer."""

    def __init__(self, session: Connected, request_id: int) -> None:
        self.id = request_id
        self._session = session
        self._payload: list[bytes] = []
        self._held = 0
        """Bytes of its payload that are in the backlog."""
        self._size = 0
        self._work: Work | None = None
        self._answer: Answer | None = None
        self._answered = False
        self._lost = False
        self._reading = False
        self._busy = 0.0
        self._spent = Counts()
        self._ended = False
        self._settled = False
        self._first: Reply | None = None
        self._steps: deque[Step] = deque()
        self._step: Step | None = None
        """The one that runs."""
        self._advancing = False
        # A strong reference here would form a cycle and keep the request's data alive until the next garbage
        # collection. One push in fifty then took 25 ms longer.
        here = weakref.ref(self)
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
        decode = partial(_decoded, payload, event.body)
        if len(payload) < LARGE_REQUEST:
            self._begin(decode())
        else:
            self._do(Step(Lane.QUICK, apart=decode, then=self._begin))

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

    def _begin(self, prepared: object) -> None:
        if self._answered:  # Cancelled while it was decoded.
            return
        if isinstance(prepared, Prepared):
            prepared = self._session.site.banned(prepared.message.path, prepared.calls) or prepared
        if isinstance(prepared, CodedError):
            self._refuse(prepared)
            return
        assert isinstance(prepared, Prepared)  # As `_decoded` gives nothing else.
        body = bool(prepared.flags & RequestFlag.BODY)
        self._hold(0 if body else self._size + REQUEST_COST + CALL_COST * len(prepared.calls))
        asked = Asked(self._session.site, self._session.access, prepared, self._progress.tell)
        asked.allowance.came(self._size)
        self._work = VfsWork(asked, self._session.open_files) if prepared.is_vfs else RequestWork(asked)
        self._progress.names_phases = prepared.long
        if not body:
            self._do(Step(_lane_of(prepared), lambda work: work.answer()))

    def body(self, chunk: bytes) -> None:
        """A chunk of the body came."""
        self._session.backlog(len(chunk))
        self._progress.received(len(chunk))
        self._do(Step(Lane.BODY, lambda work: work.take(chunk), size=len(chunk)))

    def end(self, segments: int, size: int) -> None:
        """The body is whole."""
        self._ended = True
        self._progress.ended()
        self._do(Step(Lane.COMMIT, lambda work: work.finish(segments, size)))

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
            self._do(Step(Lane.QUICK, apart=work.abandon, then=lambda _: self._refuse(Cancelled())))

    def lost(self) -> None:
        """The connection is gone."""
        self._lost = True
        self._answer = None  # And with it the files of its body.
        self._payload.clear()
        self._steps.clear()
        if self._work is not None:
            self._work.cancel()
            self._do(Step(Lane.QUICK, apart=self._work.abandon))
        else:
            self._settle()

    # -- steps

    def _do(self, step: Step | None = None) -> None:
        """Do a step after those before it."""
        if step is not None:
            self._steps.append(step)
        if self._advancing:
            return  # The executor finished a step before `run` returned: the loop keeps that from becoming recursion.
        self._advancing = True
        try:
            while self._steps and self._step is None:
                self._step = self._steps.popleft()
                self._session.executor.run(self._run, self._ran, self._step.lane, self._session.client)
        finally:
            self._advancing = False
        self._settle()

    def _run(self) -> object:
        """Do the step, in the executor; what it gave."""
        step, work, site = self._step, self._work, self._session.site
        assert step is not None  # It runs.
        if step.of_work is not None and (work is None or self._is_over):
            return None
        start, before = site.clock(), site.spent
        self._progress.began(start)
        try:
            try:
                result = step.of_work(work) if work is not None and step.of_work is not None else _call(step.apart)
            except Exception as wrong:  # The boundary of a request: nothing a peer sends may end the server.
                if work is None or step.of_work is None:
                    raise
                result = work.refusal(wrong)
            finally:
                self._busy += site.clock() - start
                self._spent += site.spent - before
            return Encoded(result, self._encoded(result)) if isinstance(result, Answer) else result
        except Exception as wrong:  # A step that is never reported would leave its client without an answer.
            return internal(wrong, log_bug)

    def _ran(self, result: object) -> None:
        step, self._step = self._step, None
        if step is not None and not self._lost:
            if step.size:
                self._session.backlog(-step.size)
                self._progress.checked(step.size)
            if isinstance(result, Encoded):
                self._reply(result.answer, result.payload)
            elif isinstance(result, InternalError):
                self._refuse(result)
            else:
                step.then(result)
        del step  # It may hold a chunk.
        self._do()

    @property
    def _is_over(self) -> bool:
        """Whether the final answer is sent, or nobody is there to get one."""
        return self._lost or (self._answered and self._answer is None)

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
        if self._is_over:
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
        if self._is_at_rest:
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
        self._do(Step(answer.lane, lambda _: body.read(PIECE), then=self._send_piece))

    def _send_piece(self, piece: object) -> None:
        """Send a piece of the body; an empty one ends it. A store that fails half-way is said by ERROR: the whole
        segments before it stand."""
        self._reading = False
        answer = self._answer
        if answer is None or answer.body is None or not isinstance(piece, bytes):
            return
        if piece:
            self._session.send(Body(self.id, piece))
            self.pump()
            return
        self._session.send(End(self.id, answer.body.segments, answer.body.size))
        self._answer = None
        self._log("answered")
        self._over()

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
        if self._is_over and self._is_at_rest and not self._settled:
            self._settled = True
            self._hold(0)
            self._session.ended(self)

    @property
    def _is_at_rest(self) -> bool:
        """Whether no step runs or waits."""
        return self._step is None and not self._steps

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


def _tell(request: ServedRequest | None, progress: bytes) -> None:
    if request is not None:
        request.tell(progress)


def _call(do: Callable[[], object] | None) -> object:
    return None if do is None else do()


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

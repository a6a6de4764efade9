"""One request of stock git over HTTP, from its head to the end of its answer."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Callable
from typing import Any, Final, Protocol

from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.python.failure import Failure
from twisted.web import http

from smartserver.errors import (
    TOKEN_REFUSED,
    TOKEN_WANTED,
    AccessDenied,
    IncompleteRepository,
    InvalidPath,
    NestedRepository,
    NoSuchRepository,
)
from smartserver.gateway import git_programs, output
from smartserver.gateway.body import BadBody, BodyTooLarge, RequestBody
from smartserver.gateway.cache import Lease
from smartserver.gateway.gateway import Gateway, OtherSystem, Visitor
from smartserver.gateway.git_command import Service
from smartserver.gateway.pkt_line import FLUSH, BadRequest, band, error_line, line
from smartserver.gateway.places import Places
from smartserver.gateway.receive import Receive, ReceiveRequest, advertisement, read_request, reader
from smartserver.gateway.routes import NoRoute, Route, client_behind, route, token_of
from smartserver.gateway.updates import EXPECTED, Updates
from smartserver.meters import NOTHING
from smartserver.server.access import Access, Admission
from smartserver.server.executor import Lane
from smartserver.server.fair import Tenant
from smartserver.server.header import internal
from smartserver.server.request_log import DONE, LOST, EndedRequest, log_request
from smartserver.wire.limits import DRAIN_BYTES
from transports.errors import CodedError

log = logging.getLogger("smartserver")
refusals = logging.getLogger("smartserver.refusals")

MAX_FETCH: Final = 64 << 20
"""The most bytes of the body of a fetch (a million ids), and of a decompressed body of a push in gzip. Git sends no
pushes in gzip, and JGit only up to 1 MiB. A gzip body may be a thousand times as long as its compressed bytes."""

MAX_PUSH: Final = 1 << 40
"""The most bytes of the body of a push. The disk is full before that, and the store checks the size limits of the
repository."""

KEEP_ALIVE: Final = 5.0
"""Seconds between two keep-alive packets while a push is decided, as in git's own server (`receive.keepAlive`)."""

_NOTHING: Final = b"0005\x01"
"""An empty packet of band 1."""

_REALM: Final = 'Basic realm="smartserver: the password is a token"'


class Channel(Protocol):
    """The part of a connection that a request uses."""

    gateway: Gateway
    updates: Updates
    places: Places
    reactor: Any
    client: Tenant
    peer: str
    address: str
    is_local: bool
    is_secure: bool
    admission: Callable[[bool], Admission]
    persistent: int
    discards: bool
    _command: bytes
    _path: bytes
    _version: bytes

    @property
    def is_private(self) -> bool:
        """True if nobody can read the client's requests on the way."""

    def head_came(self) -> None:
        """Record that the head of a request was received."""

    def refuse_body(self) -> None:
        """Record that the request was refused, which limits the time for the rest of its body."""

    def let_read(self, more: bool) -> None:
        """Resume reading if `more` is true, else pause it."""

    def abort(self, why: str) -> None:
        """Close the connection at once, and log the reason."""


class GatewayRequest(http.Request):
    """One request. Twisted calls its methods on the I/O thread, `gotLength` first."""

    channel: Channel  # type: ignore[assignment]  # The part that is used here.

    def __init__(self, channel: Channel, *_: object) -> None:
        super().__init__(channel)  # type: ignore[arg-type]  # As above.
        self._gateway = channel.gateway
        self._executor = channel.gateway.executor
        self._began = channel.gateway.site.clock()
        self._fair = channel.client
        self._route: Route | None = None
        self._visitor: Visitor | None = None
        self._access: Access | None = None
        """The rights of the user; None if the log-in was refused."""
        self._refusal: Exception | None = None
        self._body: RequestBody | None = None
        self._output: output.ProgramOutput | None = None
        self._program: output.RunningProgram | None = None
        self._keep_alive: Any = None
        self._discarded = 0
        self._places, self._updates, self._address = channel.places, channel.updates, channel.address
        self._has_place = self._private = False
        """`_has_place`: True while the request has a place for a program. `_private`: True if nobody can read it on the
        way."""
        self._is_updated = False
        """True once the cache was updated for this request."""
        self.is_over = False
        """True once the request was answered, or the client disconnected."""

    # -- from Twisted: the request arrives

    def gotLength(self, length: int | None) -> None:
        """Check the head of the request, and refuse it if that needs no body."""
        self.content = io.BytesIO()  # Twisted closes it; no body is written to it.
        channel = self.channel
        self.method, self.uri = channel._command, channel._path  # It passes them again with the body.
        channel.head_came()
        try:
            self._route = route(self.method, self.uri)
            self._visitor = self._visitor_of(channel)
            self._access = self._visitor.admit()
            self._admit(self._route, self._visitor, length)
        except (NoRoute, CodedError) as error:
            self._refusal = error
            channel.refuse_body()
        if self._refusal is not None and self.requestHeaders.hasHeader(b"expect"):
            # Such a client waits for an answer before it sends its body.
            self.requestHeaders.removeHeader(b"expect")
            if length != 0:
                channel.persistent = 0
                channel.discards = True
                self.clientproto = channel._version
                self._refuse(self._refusal)

    def _admit(self, asked: Route, visitor: Visitor, length: int | None) -> None:
        if asked.service is Service.UPLOAD_PACK:
            self._gateway.may_fetch(visitor, asked.path)
        else:
            self._gateway.may_push(visitor, asked.path)
        if asked.refs:
            if length != 0:
                raise NoRoute(400, "expected no body")
            return
        kind = self.requestHeaders.getRawHeaders(b"content-type", [b""])[0]
        if kind != f"application/x-{asked.service}-request".encode():
            raise NoRoute(415, f"expected Content-Type: application/x-{asked.service}-request")
        encoding = self.requestHeaders.getRawHeaders(b"content-encoding", [b"identity"])
        if encoding not in ([b"identity"], [b"gzip"], [b"x-gzip"]):
            raise NoRoute(415, "expected Content-Encoding: gzip, or none")
        gzip = encoding != [b"identity"]
        most = MAX_FETCH if gzip or asked.service is Service.UPLOAD_PACK else MAX_PUSH
        if length is not None and length > most:
            raise NoRoute(413, f"expected a body of no more than {most} bytes")
        self._body = RequestBody(
            self._gateway.folder, self._executor, self._fair, self.channel.let_read, gzip=gzip, most=most
        )

    def _visitor_of(self, channel: Channel) -> Visitor:
        peer, private = channel.peer, channel.is_private
        if channel.is_local:  # A proxy on this machine names its client, and the scheme.
            behind = client_behind((self.requestHeaders.getRawHeaders(b"x-forwarded-for") or [b""])[-1])
            peer = f"{behind} behind {peer}" if behind else peer
            private = (self.requestHeaders.getRawHeaders(b"x-forwarded-proto") or [b"https"])[-1] == b"https"
        self._private = private
        extras = token_of((self.requestHeaders.getRawHeaders(b"authorization") or [b""])[0])
        return Visitor(channel.admission(private), extras, peer, "https" if channel.is_secure else "http")

    def handleContentChunk(self, data: bytes) -> None:
        """Store a part of the body, or discard it if the request was refused."""
        if self._body is not None:
            self._body.add(data)
            if self._body.error is None:
                return
            if not self._discarded:
                self.channel.refuse_body()
        self._discarded += len(data)
        if self._discarded > DRAIN_BYTES:
            self.channel.abort(f"more than {DRAIN_BYTES} bytes came of a request that was refused")

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Answer the complete request."""
        self.method, self.uri, self.clientproto = command, path, version
        if self._refusal is not None:
            self._refuse(self._refusal)
        elif self._body is not None:
            self._body.when_written(self._begin)
        else:
            self._begin()

    def connectionLost(self, reason: Failure) -> None:
        """Abandon the request, because the client has disconnected."""
        if not self.is_over:
            self._ended(LOST)
        super().connectionLost(reason)
        if self._body is not None:
            self._body.abandon()
        if self._output is not None:
            self._output.close()
            self._reap()

    # -- the answer

    def _begin(self) -> None:
        asked = self._asked
        if asked.service is Service.UPLOAD_PACK:
            self._places.take(self._address, self._placed)
        elif asked.refs:
            self._run(Lane.QUICK, self._told_refs, self._answer)
        else:  # The push is decided in this lane, which may take long with hooks.
            may_take_long = self._gateway.site.hooks.may_concern(asked.path)
            self._run(Lane.HOOK if may_take_long else Lane.BODY, self._received, self._answer)

    def _run(self, lane: Lane, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Call `work` in a lane, then `done` with its result. If `work` raises an error, answer with the error."""

        def tried() -> Any:
            try:
                return work()
            except (NoRoute, BadRequest, BadBody, BodyTooLarge, *EXPECTED) as error:
                return error
            except Exception as error:  # Nothing that a client sends may end the server.
                return internal(error)

        def then(result: Any) -> None:
            if self.is_over:
                if isinstance(result, output.RunningProgram):
                    self._program = result
                    os.close(result.output)
                    self._reap()
            elif isinstance(result, Exception):
                self._refuse(result)
            else:
                done(result)

        self._executor.run(tried, then, lane, self._fair)

    # -- a fetch

    def _placed(self) -> None:
        """Start the program, because a place for it is free now."""
        self._has_place = True
        self._run(Lane.QUICK, self._start, self._started)

    def _leave_place(self) -> None:
        """Free the place, because no program of this request runs or will run soon."""
        if self._has_place:
            self._has_place = False
            self._places.leave(self._address)

    def _start(self) -> output.RunningProgram | None:
        """Start git's server on the cache. Return None if the cache must be updated first. After an update, the cache
        need not be at the newest state: in a busy repository it never would be."""
        path = self._asked.path
        state = self._gateway.state(self._who, path)
        lease = self._gateway.lease(path, None if self._is_updated else state)
        if lease is None and self._is_updated:
            lease = self._gateway.bring(path)
        return None if lease is None else self._started_on(lease)

    def _started_on(self, lease: Lease) -> output.RunningProgram:
        try:
            stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if self._body is None else self._body.open()
        except BaseException:
            lease.close()
            raise
        protocol = git_programs.protocol_of(
            (self.requestHeaders.getRawHeaders(b"git-protocol") or [b""])[0].decode("latin-1")
        )
        options = ("--stateless-rpc", "--http-backend-info-refs") if self._asked.refs else ("--stateless-rpc",)
        ours, its = output.pipe()
        said = os.memfd_create("git-upload-pack", os.MFD_CLOEXEC)
        try:
            process = git_programs.start_upload_pack(
                lease.folder, lease.descriptor, protocol, *options, stdin=stdin, stdout=its, stderr=said
            )
        except BaseException:
            os.close(ours)
            os.close(said)
            raise
        finally:
            os.close(its)
            os.close(stdin)
            lease.close()  # The program has its own descriptors.
        self._protocol = protocol
        return output.RunningProgram(process, ours, said)

    def _started(self, found: output.RunningProgram | None) -> None:
        if found is None:
            self._leave_place()  # An update may take minutes, in which others need the place.
            self._updates.bring(self._asked.path, self._fair, self._brought)
            return
        self._program = found
        self._head(200, self._content_type)
        if self._asked.refs and self._protocol != "version=2":
            self.write(line(f"# service={self._asked.service}\n".encode()) + FLUSH)
        self._output = output.ProgramOutput(self.channel.reactor, found, self.write, self._sent)
        self.registerProducer(self._output, True)
        self._output.resumeProducing()

    def _brought(self, error: Exception | None) -> None:
        if self.is_over:
            return
        if error is None:
            self._is_updated = True
            self._places.take(self._address, self._placed)
        else:
            self._refuse(error if isinstance(error, EXPECTED) else internal(error))

    def _sent(self) -> None:
        self.unregisterProducer()
        self._output = None
        self._reap()
        self._ended(DONE)
        self.finish()

    def _reap(self) -> None:
        """Wait in a lane for the end of the program, whose output is no longer read."""
        program, self._program = self._program, None
        if program is None:
            return
        path, gateway, is_lost = self._asked.path, self._gateway, self.is_over

        def work() -> None:
            if is_lost:
                program.kill()
            status, said = program.wait()
            if status and not is_lost:
                log.warning("git upload-pack on %r: status %d: %s", path, status, said)
                if "not our ref" not in said:
                    gateway.check(path)

        self._executor.run(work, lambda _: None, Lane.QUICK)

    # -- a push

    def _told_refs(self) -> bytes:
        state = self._gateway.state_to_push(self._who, self._asked.path)
        return line(f"# service={self._asked.service}\n".encode()) + FLUSH + b"".join(advertisement(state))

    def _received(self) -> bytes:
        assert self._body is not None
        pack = self._body.open()
        try:
            request = read_request(reader(pack))
            self._executor.soon(lambda: self._keep_client(request))
            return Receive(self._gateway, self._who, self._asked.path, request).run(pack)
        finally:
            os.close(pack)

    def _keep_client(self, request: ReceiveRequest) -> None:
        """Start to send keep-alive packets to the client, if it accepts them."""
        if not self.is_over and b"side-band-64k" in request.capabilities and request.commands:
            self._keep_alive = self.channel.reactor.callLater(KEEP_ALIVE, self._say_nothing)

    def _say_nothing(self) -> None:
        if not self.startedWriting:
            self._head(200, self._content_type)
        self.write(_NOTHING)
        self._keep_alive = self.channel.reactor.callLater(KEEP_ALIVE, self._say_nothing)

    # -- the end

    def _answer(self, content: bytes, status: int = 200, kind: str = "", outcome: str = DONE) -> None:
        if not self.startedWriting:
            self._head(status, kind or self._content_type)
            self.setHeader(b"content-length", b"%d" % len(content))
        self._ended(outcome)
        self.write(content)
        self.finish()

    def _refuse(self, error: Exception) -> None:
        """Answer with an error, in a form that git shows."""
        outcome = error.code if isinstance(error, CodedError) else "refused"
        text = self._gateway.words(error)
        if isinstance(error, AccessDenied) and error.token == TOKEN_REFUSED:
            refusals.warning("refused log-in from=%s: %s", self._who.peer, error.why)
        if self.startedWriting:
            self._answer(b"".join(band(3, text.encode())), outcome=outcome)
            return
        status = self._status(error)
        if status == 200:
            self._answer(self._preamble + error_line(text), outcome=outcome)
            return
        if status == 401:
            self.setHeader(b"www-authenticate", _REALM.encode())
        if isinstance(error, AccessDenied) and error.token == TOKEN_WANTED and not self._private:
            text += "; tokens are sent over https:// alone"
        self._answer(f"{text}\n".encode(), status, "text/plain; charset=utf-8", outcome)

    def _status(self, error: Exception) -> int:
        """Return the HTTP status for an error; 200 if the error is sent in git's own protocol."""
        match error:
            case NoRoute():
                return error.status
            case AccessDenied():
                return 401 if error.token and self._private else 403
            case NoSuchRepository() | InvalidPath() | NestedRepository():
                return 404
            case BadRequest() | BadBody():
                return 400
            case BodyTooLarge():
                return 413
            case OtherSystem() | IncompleteRepository():
                return 200 if self._asked.refs else 403
            case _:
                return 200 if self._asked.refs else 500

    @property
    def _preamble(self) -> bytes:
        return line(f"# service={self._asked.service}\n".encode()) + FLUSH

    def _head(self, status: int, kind: str) -> None:
        self.setResponseCode(status)
        # The order is that of `git http-backend`.
        self.setHeader(b"expires", b"Fri, 01 Jan 1980 00:00:00 GMT")
        self.setHeader(b"pragma", b"no-cache")
        self.setHeader(b"cache-control", b"no-cache, max-age=0, must-revalidate")
        self.setHeader(b"content-type", kind.encode())

    @property
    def _content_type(self) -> str:
        return f"application/x-{self._asked.service}-{'advertisement' if self._asked.refs else 'result'}"

    @property
    def _asked(self) -> Route:
        assert self._route is not None  # Else it was refused.
        return self._route

    @property
    def _asked_path(self) -> str:
        """The path of the repository; empty if the request is not part of git's protocol."""
        return "" if self._route is None else self._route.path

    @property
    def _who(self) -> Visitor:
        assert self._visitor is not None  # As above.
        return self._visitor

    def _ended(self, outcome: str) -> None:
        """End the request: free its place, log it, and call `Site.ended`."""
        self.is_over = True
        self._leave_place()
        self._places.forget(self._placed)
        self._updates.forget(self._asked_path, self._brought)
        timer, self._keep_alive = self._keep_alive, None
        if timer is not None:
            with contextlib.suppress(AlreadyCalled, AlreadyCancelled):
                timer.cancel()
        asked, site = self._route, self._gateway.site
        access = self._access
        service = "" if asked is None else f"{asked.service}{':refs' if asked.refs else ''}"
        ended = EndedRequest(
            peer=self.channel.peer if self._visitor is None else self._visitor.peer,
            user="" if access is None else access.user,
            by="" if access is None else access.by,
            header=None,
            up=0 if self._body is None else self._body.came,
            down=self.sentLength,
            lasted=site.clock() - self._began,
            busy=0.0,
            queued=0.0,
            spent=NOTHING,
            outcomes=[outcome],
            via="https" if self.channel.is_secure else "http",
            service=service,
            path=self._asked_path,
        )
        log_request(ended)
        if site.ended is not None:
            site.ended(ended)

"""One request of file-level (VFS) calls: done in order until the first that fails, and never planned.

Everything here blocks, so it runs in the executor. The body of a request is taken whole before the first call: one that
is cut off has changed nothing, as all requests do.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, cast

import msgspec

from smartserver.errors import LimitExceeded, NotDone, OutcomeUnknown, Unsupported
from smartserver.server.context import CallContext, RequestContext
from smartserver.server.header import declared, fault, internal
from smartserver.server.jailed import JailedTransport
from smartserver.server.open_files import OpenFiles
from smartserver.server.work import ServedAnswer
from smartserver.verbs.declare import AnyVerb, Arguments, Effect, Permission
from smartserver.verbs.vfs import MAX_CONTENT
from smartserver.wire.limits import MAX_RESULTS, PIECE
from smartserver.wire.messages import Failure, Fault, Outcome, Reply, Status
from transports.base import ReadFile
from transports.errors import CodedError, TransportFailed

HELD = 1 << 20
"""Bytes of a body that are held in memory; more are held in a temporary file."""

SHORTER = "it became shorter while it was read"

_encode = msgspec.msgpack.Encoder().encode


class VfsWork:
    """The steps of such a request; implements `RequestSteps`."""

    def __init__(self, context: RequestContext, opened: OpenFiles) -> None:
        """`opened`: the files that are open for the connection's answers."""
        self._context = context
        self._opened = opened
        self._header = context.header
        self._body: IO[bytes] | None = None

    def answer(self) -> ServedAnswer:
        """Carry out a request that has no body."""
        return self._answer(self._admitted(), None)

    def take(self, chunk: bytes) -> None:
        """Keep a chunk of the body.

        Raises:
            CodedError: the rest of the body is not wanted.
        """
        try:
            if self._body is None:
                self._admitted()
                self._body = cast("IO[bytes]", tempfile.SpooledTemporaryFile(HELD))  # noqa: SIM115  # See `abandon`.
            if self._body.tell() + len(chunk) > self._header.brought:
                raise _odd(self._header.brought, self._body.tell() + len(chunk))
            self._body.write(chunk)
        except OSError as wrong:
            raise TransportFailed("", f"the server cannot keep the body of the request: {wrong.strerror}") from wrong

    def finish(self, segments: int, size: int) -> ServedAnswer:
        """Carry out a request whose body is whole."""
        try:
            tree = self._admitted()
            if self._body is None or self._body.tell() != self._header.brought:
                raise _odd(self._header.brought, size)
            self._body.seek(0)
            return self._answer(tree, self._body)
        finally:
            self.abandon()

    def refusal(self, wrong: Exception) -> ServedAnswer:
        """What the client is told of what a step raised; a bug is told as one."""
        self.abandon()
        return ServedAnswer(Failure(fault(wrong if isinstance(wrong, CodedError) else internal(wrong))))

    def abandon(self) -> None:
        """Forget the body."""
        body, self._body = self._body, None
        if body is not None:
            body.close()

    def _admitted(self) -> JailedTransport:
        """The files, before anything is done."""
        context = self._context
        context.allowance()
        tree = context.site.files(self._header.message.path)
        tree_path = self._header.message.path.strip("/")
        for permission in (Permission.READ, *{verb.permission for verb, _ in self._header.calls}, Permission.VFS):
            context.access.require(permission, tree_path)
        if self._header.mutates and self._header.message.age:
            raise OutcomeUnknown("nothing remembers file-level changes, so a repeated one is not carried out")
        return tree

    def _answer(self, tree: JailedTransport, body: IO[bytes] | None) -> ServedAnswer:
        files = RequestFiles(tree, body, self._opened)
        context = CallContext(self._context, files=files)
        outcomes: list[Outcome] = []
        size = 0
        for verb, arguments in self._header.calls:
            if self._context.allowance.cancelled:
                break
            outcome = _done(context, verb, arguments)
            size += len(bytes(outcome.result))
            if size > MAX_RESULTS and verb.effect is Effect.READ:  # A change is made; what it says is a byte.
                too_much = LimitExceeded("bytes of results of one request", size, MAX_RESULTS)
                outcome = Outcome(Status.REFUSED, fault=fault(too_much))
            outcomes.append(outcome)
            if outcome.status != Status.DONE:
                break
        rest = len(self._header.calls) - len(outcomes)
        outcomes += [Outcome(Status.NOT_DONE, fault=fault(NotDone()))] * rest
        return ServedAnswer(Reply(outcomes), files.sent if files.sent else None)


def _done(context: CallContext, verb: AnyVerb, arguments: Arguments) -> Outcome:
    """What became of a call; of a bug too, since the calls before it are done."""
    try:
        return Outcome(Status.DONE, msgspec.Raw(_encode(context.run(verb, arguments))))
    except Exception as wrong:  # In no other variable of this frame, which it refers to: files would stay open.
        return Outcome(Status.REFUSED, fault=_fault(verb, wrong))


def _fault(verb: AnyVerb, wrong: Exception) -> Fault:
    try:
        return fault(declared(verb, wrong) if isinstance(wrong, CodedError) else internal(wrong))
    except Exception as undeclared:
        return fault(internal(undeclared))


def _odd(expected: int, found: int) -> Unsupported:
    return Unsupported(f"a body of {found} bytes", f"the {expected} that its calls say")


@dataclass(slots=True)
class RequestFiles:
    """What the calls of one request share; implements `verbs.declare.Files`."""

    tree: JailedTransport
    body: IO[bytes] | None
    opened: OpenFiles
    sent: Contents = field(default_factory=lambda: Contents())
    _given: int = 0

    def brought(self, size: int) -> Iterator[bytes]:
        """The next bytes of the body, in pieces."""
        while size:
            assert self.body is not None  # It has as many as the calls say.
            piece = self.body.read(min(size, PIECE))
            size -= len(piece)
            yield piece

    def give(self, path: str, file: ReadFile, ranges: Sequence[tuple[int, int]]) -> bytes | None:
        """The content for the result, while there is room, or None where it is sent in the body.

        Raises:
            LimitExceeded: too many files are open for answers.
            TransportFailed: the file became shorter, or the store failed.
        """
        size = sum(length for _, length in ranges)
        if self._given + size > MAX_CONTENT:
            self.opened.hold(file)
            self.sent.add(path, file, ranges)
            return None
        self._given += size
        with contextlib.closing(file):
            content = b"".join(file.read_ranges(ranges))
        if len(content) != size:
            raise TransportFailed(path, SHORTER)
        return content


class Contents:
    """Ranges of open files, one after the other: the body of an answer; implements `work.BodyReader`."""

    segments = 0

    def __init__(self) -> None:
        self.size = 0
        self._left: deque[tuple[str, ReadFile, int, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._left)

    def add(self, path: str, file: ReadFile, ranges: Sequence[tuple[int, int]]) -> None:
        """Send these too; the file is closed when nothing refers to it any more."""
        self._left.extend((path, file, offset, size) for offset, size in ranges if size)

    def read(self, size: int) -> bytes:
        """The next bytes; empty at the end.

        Raises:
            TransportFailed: a file became shorter.
        """
        pieces: list[bytes] = []
        while self._left and size:
            path, file, offset, left = self._left.popleft()
            piece = file.read_at(offset, min(size, left))
            if not piece:
                raise TransportFailed(path, SHORTER)
            if len(piece) < left:
                self._left.appendleft((path, file, offset + len(piece), left - len(piece)))
            size -= len(piece)
            pieces.append(piece)
        joined = b"".join(pieces)
        self.size += len(joined)
        return joined

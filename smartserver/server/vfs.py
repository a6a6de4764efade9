"""Requests of file-level (VFS) calls. The calls are carried out in order until one fails; nothing is planned before.

Everything here blocks, so it runs in the executor. The whole body of a request is received before the first call, so
that a request that is cut off changes nothing.
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
from smartserver.server.context import RequestContext
from smartserver.server.header import declared, fault, internal
from smartserver.server.jailed import JailedTransport
from smartserver.server.open_files import OpenFiles
from smartserver.verbs.declare import AnyVerb, Arguments, Effect, Permission
from smartserver.verbs.vfs import MAX_CONTENT
from smartserver.wire.limits import MAX_RESULTS, PIECE
from smartserver.wire.messages import Fault, Outcome, Reply, Status
from transports.base import ReadFile
from transports.errors import CodedError, TransportFailed

HELD = 1 << 20
"""The most bytes of a body that are kept in memory. A larger body is stored in a temporary file."""

SHORTER = "it became shorter while it was read"

_encode = msgspec.msgpack.Encoder().encode


def keep(context: RequestContext, body: IO[bytes] | None, chunk: bytes) -> IO[bytes]:
    """Append a chunk to the stored body of a request, and return the body. `body`: None for the first chunk.

    Raises:
        CodedError: the request is refused, so the rest of the body is not needed.
    """
    if body is None:
        _admitted(context)
    try:
        came = len(chunk) + (0 if body is None else body.tell())
        if came > context.header.brought:
            raise _wrong_size(context.header.brought, came)
        if body is None:
            body = cast("IO[bytes]", tempfile.SpooledTemporaryFile(HELD))  # noqa: SIM115  # `abandon` closes it.
        body.write(chunk)
    except OSError as error:
        if body is not None:
            body.close()
        raise TransportFailed("", f"the server cannot keep the body of the request: {error.strerror}") from error
    return body


def answer(context: RequestContext, body: IO[bytes] | None, size: int = 0) -> tuple[Reply, FileRanges | None]:
    """Carry out a request whose body of `size` bytes is complete. Return the reply, and the body of the reply if it has
    one."""
    tree = _admitted(context)
    if (0 if body is None else body.tell()) != context.header.brought:
        raise _wrong_size(context.header.brought, size)
    if body is not None:
        body.seek(0)
    files = RequestFiles(tree, body, context.open_files)
    context.request_files = files
    try:
        return Reply(_outcomes(context)), files.sent or None
    finally:
        context.request_files = None  # Only the reply refers to the files, which close when it is freed.


def _admitted(context: RequestContext) -> JailedTransport:
    """Check that the request may be carried out, and return its files."""
    context.allowance()
    tree = context.site.files(context.path)
    tree_path = context.path.strip("/")
    for permission in (Permission.READ, *{verb.permission for verb, _ in context.header.calls}, Permission.VFS):
        context.access.require(permission, tree_path)
    if context.header.mutates and context.header.message.age:
        why = "the server refused a repeated request, because it keeps no record of file-level changes"
        raise OutcomeUnknown(why)
    return tree


def _outcomes(context: RequestContext) -> list[Outcome]:
    """Run the calls until one fails, and return the outcome of each."""
    outcomes: list[Outcome] = []
    size = 0
    for verb, arguments in context.header.calls:
        if context.allowance.cancelled:
            break
        outcome = _done(context, verb, arguments)
        size += len(bytes(outcome.result))
        if size > MAX_RESULTS and verb.effect is Effect.READ:  # A change is made, and its result is one byte.
            too_much = LimitExceeded("bytes of results of one request", size, MAX_RESULTS)
            outcome = Outcome(Status.REFUSED, fault=fault(too_much))
        outcomes.append(outcome)
        if outcome.status != Status.DONE:
            break
    rest = len(context.header.calls) - len(outcomes)
    return outcomes + [Outcome(Status.NOT_DONE, fault=fault(NotDone()))] * rest


def _done(context: RequestContext, verb: AnyVerb, arguments: Arguments) -> Outcome:
    """Run one call and return its outcome. Even a bug becomes a fault, because the earlier calls were carried out."""
    try:
        return Outcome(Status.DONE, msgspec.Raw(_encode(context.run(verb, arguments))))
    except Exception as error:  # No other variable may refer to it: a cycle with this frame would keep files open.
        return Outcome(Status.REFUSED, fault=_fault(verb, error))


def _fault(verb: AnyVerb, error: Exception) -> Fault:
    try:
        return fault(declared(verb, error) if isinstance(error, CodedError) else internal(error))
    except Exception as undeclared:
        return fault(internal(undeclared))


def _wrong_size(expected: int, found: int) -> Unsupported:
    return Unsupported(f"a body of {found} bytes", f"the {expected} bytes that its calls announce")


@dataclass(slots=True)
class RequestFiles:
    """The files and the request's body that the calls of one request share; implements `verbs.declare.Files`."""

    tree: JailedTransport
    body: IO[bytes] | None
    opened: OpenFiles
    sent: FileRanges = field(default_factory=lambda: FileRanges())
    _given: int = 0

    def brought(self, size: int) -> Iterator[bytes]:
        """Yield the next `size` bytes of the request's body, in pieces."""
        while size:
            assert self.body is not None  # `answer` has checked its size.
            piece = self.body.read(min(size, PIECE))
            size -= len(piece)
            yield piece

    def give(self, path: str, file: ReadFile, ranges: Sequence[tuple[int, int]]) -> bytes | None:
        """Return the content of ranges of a file for the result; None if the result has no room for it, so that the
        content is sent in the reply's body.

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


class FileRanges:
    """The body of an answer: ranges of open files, in order. It implements `work.BodyReader`."""

    segments = 0

    def __init__(self) -> None:
        self.size = 0
        self._left: deque[tuple[str, ReadFile, int, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._left)

    def add(self, path: str, file: ReadFile, ranges: Sequence[tuple[int, int]]) -> None:
        """Append ranges of a file. The file is closed when the last reference to it is dropped."""
        self._left.extend((path, file, offset, size) for offset, size in ranges if size)

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; empty at the end.

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

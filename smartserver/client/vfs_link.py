"""`VfsLink`: sends calls of the file-level verbs to a server, and returns their results.

Calls that are made together are one request. If the answer to a change is lost, it is unknown whether the change was
made.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from smartserver.client.call import Client
from smartserver.client.medium import CannotConnect, MediumError
from smartserver.client.request import NotOurProtocol, Outgoing, Refusal
from smartserver.errors import OutcomeUnknown
from smartserver.verbs import vfs
from smartserver.verbs.declare import AnyVerb, Arguments, Result
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.limits import MAX_FILE_CALLS
from smartserver.wire.messages import RequestFlag
from transports.base import EntryKind
from transports.errors import CodedError, TransportFailed

PIECE = 64 * 1024
"""Bytes of a body between two checks for a refusal."""

KINDS = frozenset(kind.value for kind in EntryKind)
"""The kinds of a path that a `stat` may return."""


@dataclass(eq=False, slots=True)
class FileCall:
    """One call of a file-level verb. `brings`: the content for a file. `result` and `content` (of a file) are set when
    the call is done."""

    verb: AnyVerb
    arguments: Arguments
    brings: IO[bytes] | None = None
    size: int = 0
    """The number of bytes in `brings`."""
    result: Result | None = None
    content: bytes = b""


class UnsentFile(Protocol):
    """A file with bytes that were not sent."""

    path: str

    def send(self) -> None:
        """Send the bytes that were not sent yet."""


class VfsLink:
    """A connection to a server, and the folder there from which all paths start. Any number of threads may use it."""

    def __init__(self, client: Client, base: str, name: str) -> None:
        """`name`: the name of the folder in messages."""
        self._client = client
        self._base = base
        self.name = name
        self._of: VfsLink | None = None
        self.mutex = threading.RLock()
        """The lock that a thread holds during a request, and while it writes to a new file."""
        self.unsent: weakref.WeakSet[UnsentFile] = weakref.WeakSet()
        """New files with bytes that were not sent."""
        weakref.finalize(self, client.close)

    def whole(self) -> tuple[VfsLink, str]:
        """Return the same connection with paths that start at the top of the served folder, and the path of this folder
        there."""
        made = copy.copy(self)
        made._base, made.name = "", self.name.removesuffix(self._base).rstrip("/")
        made._of = self  # The connection is closed when this object is collected.
        return made, self._base

    @property
    def connections(self) -> int:
        """The number of connections opened so far."""
        return self._client.connections

    def ask(self, calls: Sequence[FileCall]) -> None:
        """Make all calls in order, in one request or as few as possible.

        Raises:
            TransportError, InvalidPath: the first error of a call; the calls before it are done.
            AccessDenied, Unsupported: the server does not accept such calls.
            TransportFailed: there was no answer; the calls may be done.
        """
        with self.mutex:
            self._send_first(calls)
            for at in range(0, len(calls), MAX_FILE_CALLS):
                self._ask(calls[at : at + MAX_FILE_CALLS])

    def _ask(self, calls: Sequence[FileCall]) -> None:
        made, brings = _packed(calls)
        flags = RequestFlag.BODY if brings else RequestFlag.NONE
        outgoing = Outgoing(self._base, made, flags, body=(lambda: _body(brings)) if brings else None)
        try:
            answer = self._client.request(outgoing)
            contents = _Contents(answer.body)
            for call, result in zip(calls, answer.results, strict=True):
                if isinstance(result, CodedError):
                    contents.end()
                    raise result
                size = _size(call.arguments, result)
                if isinstance(result, vfs.GetResult | vfs.ReadvResult):
                    call.content = contents.take(size) if result.content is None else result.content
                    if len(call.content) != size:
                        raise RemoteProtocolError(f"expected {size} bytes of a file, got {len(call.content)}")
                call.result = result
            contents.end()
        except Refusal as refusal:
            raise refusal.error from None
        except (MediumError, RemoteProtocolError, NotOurProtocol, OutcomeUnknown) as error:
            if isinstance(error, RemoteProtocolError):
                self._client.close()  # The end of its answer is unknown.
            said = str(error) if isinstance(error, CannotConnect) else f"{self.name}: {error}"
            raise TransportFailed("", said) from error

    def _send_first(self, calls: Iterable[FileCall]) -> None:
        """Send the unsent bytes of files that the calls name, and of files in folders that they name."""
        about = [path for call in calls for path in _paths(call.arguments)] if self.unsent else ()
        for file in list(self.unsent) if about else ():
            if any(f"{file.path}/".startswith(f"{path}/") for path in about):
                file.send()

    def close(self) -> None:
        """Close the connection. The next call opens a new one."""
        with self.mutex:
            self._client.close()


class _Contents:
    """The contents of files, from the body of an answer."""

    def __init__(self, body: Iterator[bytes]) -> None:
        self._body = body
        self._rest = b""

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes.

        Raises:
            RemoteProtocolError: the body is shorter.
        """
        pieces, missing = [self._rest], size - len(self._rest)
        while missing > 0:
            piece = next(self._body, None)
            if piece is None:
                raise RemoteProtocolError(f"expected {missing} more bytes of the content of files, got none")
            pieces.append(piece)
            missing -= len(piece)
        whole = b"".join(pieces)
        self._rest = whole[size:]
        return whole[:size]

    def end(self) -> None:
        """Read the end of the body. Before that, no other request can be made on the connection.

        Raises:
            RemoteProtocolError: the body is longer than expected.
        """
        more = len(self._rest) + sum(map(len, self._body))
        if more:
            raise RemoteProtocolError(f"expected no more content of files, got {more} bytes")


def _packed(calls: Sequence[FileCall]) -> tuple[list[tuple[AnyVerb, Arguments]], list[FileCall]]:
    """Return the calls to send, with small contents in them, and the calls whose content is sent in the body."""
    made: list[tuple[AnyVerb, Arguments]] = []
    brings: list[FileCall] = []
    room = vfs.MAX_CONTENT
    for call in calls:
        arguments = call.arguments
        if isinstance(arguments, vfs.BringRequest) and call.brings is not None:
            if call.size <= room:
                call.brings.seek(0)
                arguments = vfs.BringRequest(arguments.path, call.brings.read(call.size))
                room -= call.size
            else:
                arguments = vfs.BringRequest(arguments.path, rest=call.size)
                brings.append(call)
        made.append((call.verb, arguments))
    return made, brings


def _size(arguments: Arguments, result: Result) -> int:
    match arguments, result:
        case _, vfs.GetResult(size):
            sizes, most = [size or 0], [vfs.LARGEST]
        case vfs.ReadvRequest(_, ranges), vfs.ReadvResult(sizes):
            most = [part.size for part in ranges]
        case _, vfs.StatResult(kind) if kind is not None and kind not in KINDS:
            raise RemoteProtocolError(f"expected one of {', '.join(sorted(KINDS))}, got {kind!r}")
        case _:
            return 0
    if len(sizes) != len(most):
        raise RemoteProtocolError(f"expected the sizes of {len(most)} ranges of a file, got {len(sizes)}")
    for size, limit in zip(sizes, most, strict=True):
        if not 0 <= size <= limit:
            raise RemoteProtocolError(f"expected 0 to {limit} bytes of a file, got {size}")
    return sum(sizes)


def _body(calls: Sequence[FileCall]) -> Iterator[tuple[bytes, int]]:
    """Yield the content that the calls send, in pieces. Each sending of the request starts at the beginning."""
    for call in calls:
        assert call.brings is not None
        call.brings.seek(0)
        left = call.size
        while left:
            piece = call.brings.read(min(PIECE, left))
            left -= len(piece)
            yield piece, 0


def _paths(arguments: Arguments) -> Iterator[str]:
    for name in ("path", "target"):
        path = getattr(arguments, name, None)
        if isinstance(path, str):
            yield path

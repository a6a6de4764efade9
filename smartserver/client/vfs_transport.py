"""`VfsTransport`: a `Transport` made of the file-level verbs of an hpss server; what is asked at once is one request.

It is behind a link. What a new file gets is kept here until the file is synced, closed or asked about; an open file is
a name, not a file, so that it cannot be read any more when the name is gone (no `Capability.HANDLES`); and of a change
whose answer was lost nobody can tell whether it was made.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, TypeVar, cast

from smartserver.client.call import Client
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.medium import CannotConnect, MediumError
from smartserver.client.request import NotOurProtocol, Outgoing, Refusal
from smartserver.client.url import parse
from smartserver.errors import OutcomeUnknown
from smartserver.verbs.declare import AnyVerb, Arguments, Result, Verb
from smartserver.verbs.vfs import (
    LARGEST,
    MAX_CONTENT,
    MAX_RANGES,
    BringRequest,
    Done,
    GetResult,
    LookRequest,
    NamesResult,
    PathRequest,
    RangeField,
    ReadvRequest,
    ReadvResult,
    RenameRequest,
    StatResult,
    append,
    delete,
    get,
    has,
    list_dir,
    mkdir,
    put,
    readv,
    rename,
    rmdir,
    stat,
    sync_dir,
)
from smartserver.wire.errors import RemoteProtocolError
from smartserver.wire.limits import MAX_FILE_CALLS
from smartserver.wire.messages import RequestFlag
from smartserver.wire.observer import Observer
from transports import paths
from transports.base import Capability, EntryKind, ReadFile, Stat, Transport, WriteFile
from transports.errors import CodedError, NoSuchFile, NotSupported, TransportFailed
from transports.steps import (
    Delete,
    Get,
    GetStat,
    ListDirectory,
    MakeDirectory,
    Put,
    ReadRanges,
    RemoveDirectory,
    Rename,
    Step,
    SyncDirectory,
)

HELD = 1 << 20
"""Bytes of a new file that are held in memory until they are sent; more are held in a temporary file."""

PIECE = 64 * 1024
"""Bytes of a body between two looks for a refusal."""

SIMPLE: dict[type[Step], Verb[PathRequest, Done]] = {
    MakeDirectory: mkdir,
    RemoveDirectory: rmdir,
    Delete: delete,
    SyncDirectory: sync_dir,
}
"""Steps that are a path and give nothing."""

KINDS = frozenset(kind.value for kind in EntryKind)
"""What a `stat` may say that a path names."""

RequestT = TypeVar("RequestT", bound=Arguments)
ResultT = TypeVar("ResultT", bound=Result)


@dataclass(eq=False, slots=True)
class Call:
    """One call: what it asks, what it brings for a file, and, once it is done, its result and what a file gave."""

    verb: AnyVerb
    arguments: Arguments
    brings: IO[bytes] | None = None
    size: int = 0
    """Bytes of it."""
    result: Result | None = None
    content: bytes = b""


class VfsLink:
    """A connection to a server, and the folder there from which all paths count; for any number of threads."""

    def __init__(self, client: Client, base: str, name: str) -> None:
        """`name`: what the folder is called in messages."""
        self._client = client
        self._base = base
        self.name = name
        self.mutex = threading.RLock()
        """Held while something is asked, and while a new file is written to."""
        self.unsent: weakref.WeakSet[VfsWriteFile] = weakref.WeakSet()
        """New files of which something was not sent."""
        weakref.finalize(self, client.close)

    def ask(self, calls: Sequence[Call]) -> None:
        """Have all calls done, in order, in one request or as few as there must be.

        Raises:
            TransportError, InvalidPath: as the first that fails; those before it are done.
            AccessDenied, Unsupported: the server does not do such calls.
            TransportFailed: there was no answer; what was asked may be done.
        """
        with self.mutex:
            self._send_first(calls)
            for at in range(0, len(calls), MAX_FILE_CALLS):
                self._ask(calls[at : at + MAX_FILE_CALLS])

    def _ask(self, calls: Sequence[Call]) -> None:
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
                if isinstance(result, GetResult | ReadvResult):
                    call.content = contents.take(size) if result.content is None else result.content
                    if len(call.content) != size:
                        raise RemoteProtocolError(f"expected {size} bytes of a file, got {len(call.content)}")
                call.result = result
            contents.end()
        except Refusal as refusal:
            raise refusal.error from None
        except (MediumError, RemoteProtocolError, NotOurProtocol, OutcomeUnknown) as wrong:
            if isinstance(wrong, RemoteProtocolError):
                self._client.close()  # Where its answer ends nobody knows.
            said = str(wrong) if isinstance(wrong, CannotConnect) else f"{self.name}: {wrong}"
            raise TransportFailed("", said) from wrong

    def _send_first(self, calls: Iterable[Call]) -> None:
        """Send what was written to the files that the calls are about, or that lie in the folders they are about."""
        about = [path for call in calls for path in _paths(call.arguments)] if self.unsent else ()
        for file in list(self.unsent) if about else ():
            if any(f"{file.path}/".startswith(f"{path}/") for path in about):
                file.send()

    def close(self) -> None:
        """Close the connection; what is asked next opens another."""
        with self.mutex:
            self._client.close()


class VfsTransport(Transport):
    """The tree below a folder of an hpss server."""

    capabilities = Capability.APPEND

    def __init__(self, link: VfsLink, _prefix: str = "") -> None:
        self._link = link
        self._prefix = _prefix

    def _full(self, path: str) -> str:
        return paths.join(self._prefix, path)

    def _ask(self, verb: Verb[RequestT, ResultT], arguments: RequestT) -> ResultT:
        call = Call(verb, arguments)
        self._link.ask([call])
        return cast("ResultT", call.result)

    def close(self) -> None:
        """Close the connection, which children share; what is asked next opens another."""
        self._link.close()

    def child(self, path: str) -> VfsTransport:
        return VfsTransport(self._link, self._full(path))

    def describe(self, path: str = "") -> str:
        return "/".join(filter(None, (self._link.name, self._full(path))))

    def get(self, path: str) -> bytes:
        full = self._full(path)
        call = Call(get, LookRequest(full))
        self._link.ask([call])
        if call.result == GetResult(None):
            raise NoSuchFile(full)
        return call.content

    def open_read(self, path: str) -> ReadFile:
        full = self._full(path)
        self._ask(readv, ReadvRequest(full))
        return _VfsReadFile(self._link, full)

    def map_file(self, path: str) -> memoryview:
        return memoryview(self.get(path))

    def create(self, path: str) -> WriteFile:
        full = self._full(path)
        self._ask(put, BringRequest(full))
        return VfsWriteFile(self._link, full)

    def append(self, path: str) -> WriteFile:
        full = self._full(path)
        self._ask(append, BringRequest(full))
        return VfsWriteFile(self._link, full)

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """As ever, in one trip."""
        full = self._full(path)
        with tempfile.SpooledTemporaryFile(HELD) as held:
            for chunk in chunks:
                held.write(chunk)
            self._link.ask([Call(put, BringRequest(full), cast("IO[bytes]", held), held.tell())])

    def rename(self, source: str, target: str) -> None:
        self._ask(rename, RenameRequest(self._full(source), self._full(target)))

    def delete(self, path: str) -> None:
        self._ask(delete, PathRequest(self._full(path)))

    def make_directory(self, path: str) -> None:
        self._ask(mkdir, PathRequest(self._full(path)))

    def remove_directory(self, path: str) -> None:
        self._ask(rmdir, PathRequest(self._full(path)))

    def list_directory(self, path: str) -> list[str]:
        full = self._full(path)
        names = self._ask(list_dir, LookRequest(full)).names
        if names is None:
            raise NoSuchFile(full)
        return names

    def exists(self, path: str) -> bool:
        return self._ask(has, PathRequest(self._full(path))).found

    def stat(self, path: str) -> Stat:
        full = self._full(path)
        found = _stat(self._ask(stat, LookRequest(full)))
        if found is None:
            raise NoSuchFile(full)
        return found

    def sync_directory(self, path: str) -> None:
        self._ask(sync_dir, PathRequest(self._full(path)))

    def lock(self, path: str, wait: float | None = None) -> AbstractContextManager[None]:
        raise NotSupported("lock")

    def try_lock(self, path: str) -> AbstractContextManager[bool]:
        raise NotSupported("lock")

    # -- many at once

    def perform(self, steps: Sequence[Step]) -> None:
        """Do the steps, in one request for as many as a request takes."""
        asked: list[tuple[Step, list[Call]]] = []
        for step in steps:
            calls = self._calls(step)
            if calls is None:  # A step this knows nothing of.
                self._perform(asked)
                asked = []
                step.do(self)
            else:
                asked.append((step, calls))
        self._perform(asked)

    def _perform(self, asked: Sequence[tuple[Step, Sequence[Call]]]) -> None:
        try:
            self._link.ask([call for _, calls in asked for call in calls])
        finally:
            for step, calls in asked:
                if all(call.result is not None for call in calls):
                    _settle(step, calls)

    def _calls(self, step: Step) -> list[Call] | None:
        full = self._full(step.path)
        if type(step) in SIMPLE:
            return [Call(SIMPLE[type(step)], PathRequest(full))]
        match step:
            case Get():
                return [Call(get, LookRequest(full, True))]
            case GetStat():
                return [Call(stat, LookRequest(full, True))]
            case ListDirectory():
                return [Call(list_dir, LookRequest(full, True))]
            case ReadRanges():
                return list(_reads(full, step.ranges))
            case Put():
                return [Call(put, BringRequest(full), io.BytesIO(step.content), len(step.content))]
            case Rename():
                return [Call(rename, RenameRequest(full, self._full(step.target)))]
            case _:
                return None


class _VfsReadFile(ReadFile):
    def __init__(self, link: VfsLink, path: str) -> None:
        self._link: VfsLink | None = link
        self._path = path

    def _ask(self, ranges: Sequence[tuple[int, int]]) -> list[Call]:
        link = self._link
        if link is None:
            raise TransportFailed(self._path, "the file is closed")
        calls = list(_reads(self._path, ranges))
        link.ask(calls)
        return calls

    def read_at(self, offset: int, size: int) -> bytes:
        return self.read_ranges([(offset, size)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return _ranges(self._ask(ranges))

    def size(self) -> int:
        return _readv(self._ask([])[0]).size

    def close(self) -> None:
        self._link = None


class VfsWriteFile(WriteFile):
    """A file that is written to; what it gets is held here until somebody must have it."""

    def __init__(self, link: VfsLink, path: str) -> None:
        self._link = link
        self.path = path
        self._held = tempfile.SpooledTemporaryFile(HELD)  # noqa: SIM115  # Closed with this file.
        self._broken = ""
        """Why nothing more is taken."""

    def __del__(self) -> None:
        self._held.close()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with self._usable():
            self._held.write(memoryview(data).cast("B"))
            self._link.unsent.add(self)

    def send(self) -> None:
        """Have everything on the server; it is durable then."""
        with self._link.mutex:
            self._link.unsent.discard(self)
            size = self._held.tell()
            if not size:
                return
            try:
                self._link.ask([Call(append, BringRequest(self.path), cast("IO[bytes]", self._held), size)])
            except CodedError:
                self._broken = "a part of the file could not be sent"
                raise
            self._held.seek(0)
            self._held.truncate()

    def sync(self) -> None:
        with self._usable():
            self.send()

    def close(self) -> None:
        with self._link.mutex:
            if self._held.closed:
                return
            try:
                if not self._broken:
                    self.send()
            finally:
                self._broken = "the file is closed"
                self._held.close()

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        with self._link.mutex:
            if self._broken:
                raise TransportFailed(self.path, self._broken)
            yield


class _Contents:
    """What files gave, from the body of an answer."""

    def __init__(self, body: Iterator[bytes]) -> None:
        self._body = body
        self._rest = b""

    def take(self, size: int) -> bytes:
        """The next bytes.

        Raises:
            RemoteProtocolError: there are no more.
        """
        pieces, missing = [self._rest], size - len(self._rest)
        while missing > 0:
            piece = next(self._body, None)
            if piece is None:
                raise RemoteProtocolError(f"expected {missing} bytes more of what files hold, got none")
            pieces.append(piece)
            missing -= len(piece)
        whole = b"".join(pieces)
        self._rest = whole[size:]
        return whole[:size]

    def end(self) -> None:
        """Read the end of the body; without that no other request can be made on the connection.

        Raises:
            RemoteProtocolError: there is more than was said.
        """
        more = len(self._rest) + sum(map(len, self._body))
        if more:
            raise RemoteProtocolError(f"expected no more of what files hold, got {more} bytes")


def _packed(calls: Sequence[Call]) -> tuple[list[tuple[AnyVerb, Arguments]], list[Call]]:
    """The calls as they are sent, small contents within; and those whose content goes in the body."""
    made: list[tuple[AnyVerb, Arguments]] = []
    brings: list[Call] = []
    room = MAX_CONTENT
    for call in calls:
        arguments = call.arguments
        if isinstance(arguments, BringRequest) and call.brings is not None:
            if call.size <= room:
                call.brings.seek(0)
                arguments = BringRequest(arguments.path, call.brings.read(call.size))
                room -= call.size
            else:
                arguments = BringRequest(arguments.path, rest=call.size)
                brings.append(call)
        made.append((call.verb, arguments))
    return made, brings


def _size(arguments: Arguments, result: Result) -> int:
    """How many bytes of a file a result says that there are.

    Raises:
        RemoteProtocolError: it answers another question than was asked.
    """
    match arguments, result:
        case _, GetResult(size):
            sizes, most = [size or 0], [LARGEST]
        case ReadvRequest(_, ranges), ReadvResult(sizes):
            most = [each.size for each in ranges]
        case _, StatResult(kind) if kind is not None and kind not in KINDS:
            raise RemoteProtocolError(f"expected one of {', '.join(sorted(KINDS))}, got {kind!r}")
        case _:
            return 0
    if len(sizes) != len(most):
        raise RemoteProtocolError(f"expected the sizes of {len(most)} ranges of a file, got {len(sizes)}")
    for size, limit in zip(sizes, most, strict=True):
        if not 0 <= size <= limit:
            raise RemoteProtocolError(f"expected 0 to {limit} bytes of a file, got {size}")
    return sum(sizes)


def _body(calls: Sequence[Call]) -> Iterator[tuple[bytes, int]]:
    """What the calls bring, in pieces, from its beginning at each sending."""
    for call in calls:
        assert call.brings is not None
        call.brings.seek(0)
        left = call.size
        while left:
            piece = call.brings.read(min(PIECE, left))
            left -= len(piece)
            yield piece, 0


def _paths(arguments: Arguments) -> Iterator[str]:
    """What a call is about."""
    for name in ("path", "target"):
        path = getattr(arguments, name, None)
        if isinstance(path, str):
            yield path


def _reads(path: str, ranges: Sequence[tuple[int, int]]) -> Iterator[Call]:
    """The calls that give so many ranges; one at least, which says that there is such a file."""
    for at in range(0, max(len(ranges), 1), MAX_RANGES):
        wanted = [RangeField(offset, size) for offset, size in ranges[at : at + MAX_RANGES]]
        yield Call(readv, ReadvRequest(path, wanted))


def _ranges(calls: Sequence[Call]) -> list[bytes]:
    """What each range holds."""
    found: list[bytes] = []
    for call in calls:
        at = 0
        for size in _readv(call).sizes:
            found.append(call.content[at : at + size])
            at += size
    return found


def _stat(result: StatResult) -> Stat | None:
    return None if result.kind is None else Stat(EntryKind(result.kind), result.size, result.modified)


def _readv(call: Call) -> ReadvResult:
    return cast("ReadvResult", call.result)


def _settle(step: Step, calls: Sequence[Call]) -> None:
    """Tell a step what came of it."""
    match step, calls[0].result:
        case Get(), GetResult(size):
            step.settle(None if size is None else calls[0].content)
        case GetStat(), StatResult() as found:
            step.settle(_stat(found))
        case ListDirectory(), NamesResult(names):
            step.settle(names)
        case ReadRanges(), _:
            step.settle(_ranges(calls))
        case _:
            pass


def from_url(url: str, observers: Sequence[Observer] = ()) -> VfsTransport:
    """A folder of an hpss server: `vfs://example.org/repositories`. `observers` see each call, before it is sent.

    Raises:
        BadUrl: it is not one.
    """
    location = parse(url, "vfs")
    client = Client(lambda: TcpMedium(location.host, location.port), observers)
    return VfsTransport(VfsLink(client, location.path, f"vfs://{location.where}/{location.path}".rstrip("/")))

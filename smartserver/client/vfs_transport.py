"""`VfsTransport`: a `Transport` made of the file-level verbs of an hpss server.

The server is on another machine (`vfs_link`). Bytes written to a new file are buffered here until the file is synced or
closed, or another call names it. An open file is only a name, so it cannot be read after the name was deleted (no
`Capability.HANDLES`).
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TypeVar, cast

from smartserver.client.call import Client
from smartserver.client.media.tcp import TcpMedium
from smartserver.client.url import parse
from smartserver.client.vfs_link import FileCall, VfsLink
from smartserver.verbs import vfs
from smartserver.verbs.declare import Arguments, Result, Verb
from smartserver.wire.observer import Observer
from transports import paths
from transports.base import Capability, EntryKind, ReadFile, Stat, Step, Transport, WriteFile
from transports.errors import CodedError, NoSuchFile, TransportFailed
from transports.steps import (
    Delete,
    Get,
    GetPublished,
    GetStat,
    ListDirectory,
    MakeDirectory,
    Publish,
    Put,
    ReadRanges,
    Rename,
    SyncDirectory,
    Withdraw,
)

HELD = 1 << 20
"""The most bytes of a new file that are buffered in memory until they are sent. More bytes are buffered in a temporary
file."""

SIMPLE: dict[type[Step], Verb[vfs.PathRequest, vfs.NoResult]] = {
    MakeDirectory: vfs.mkdir,
    Delete: vfs.delete,
    SyncDirectory: vfs.sync_dir,
}
"""The verbs of steps that have only a path and no result."""

RequestT = TypeVar("RequestT", bound=Arguments)
ResultT = TypeVar("ResultT", bound=Result)


class VfsTransport(Transport):
    """The files below a folder of an hpss server that runs with `--allow-vfs`."""

    capabilities = Capability.ROUND_TRIPS | Capability.APPEND

    def __init__(self, link: VfsLink, _prefix: str = "") -> None:
        self._link = link
        self._prefix = _prefix

    def _full(self, path: str) -> str:
        return paths.join(self._prefix, path)

    def _ask(self, verb: Verb[RequestT, ResultT], arguments: RequestT) -> ResultT:
        call = FileCall(verb, arguments)
        self._link.ask([call])
        return cast("ResultT", call.result)

    @property
    def connections(self) -> int:
        return self._link.connections

    def close(self) -> None:
        """Close the connection, which children share. The next call opens a new one."""
        self._link.close()

    def child(self, path: str) -> VfsTransport:
        return VfsTransport(self._link, self._full(path))

    def whole(self) -> tuple[Transport, str]:
        link, base = self._link.whole()
        return VfsTransport(link), "/".join(filter(None, (base.strip("/"), self._prefix)))

    def describe(self, path: str = "") -> str:
        return "/".join(filter(None, (self._link.name, self._full(path))))

    def get(self, path: str) -> bytes:
        return self._get(vfs.get, path)

    def get_published(self, path: str) -> bytes:
        return self._get(vfs.get_published, path)

    def _get(self, verb: Verb[vfs.LookRequest, vfs.GetResult], path: str) -> bytes:
        full = self._full(path)
        call = FileCall(verb, vfs.LookRequest(full))
        self._link.ask([call])
        if call.result == vfs.GetResult(None):
            raise NoSuchFile(full)
        return call.content

    def open_read(self, path: str) -> ReadFile:
        full = self._full(path)
        self._ask(vfs.readv, vfs.ReadvRequest(full))
        return _VfsReadFile(self._link, full)

    def create(self, path: str) -> WriteFile:
        full = self._full(path)
        self._ask(vfs.put, vfs.BringRequest(full))
        return VfsWriteFile(self._link, full)

    def append(self, path: str) -> WriteFile:
        full = self._full(path)
        self._ask(vfs.append, vfs.BringRequest(full))
        return VfsWriteFile(self._link, full)

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write a file in one round trip."""
        full = self._full(path)
        with tempfile.SpooledTemporaryFile(HELD) as held:
            for chunk in chunks:
                held.write(chunk)
            self._link.ask([FileCall(vfs.put, vfs.BringRequest(full), cast("IO[bytes]", held), held.tell())])

    def rename(self, source: str, target: str) -> None:
        self._ask(vfs.rename, vfs.RenameRequest(self._full(source), self._full(target)))

    def publish(self, source: str, target: str) -> None:
        self._ask(vfs.publish, vfs.RenameRequest(self._full(source), self._full(target)))

    def withdraw(self, path: str, aside: str) -> None:
        self._ask(vfs.withdraw, vfs.WithdrawRequest(self._full(path), self._full(aside)))

    def delete(self, path: str) -> None:
        self._ask(vfs.delete, vfs.PathRequest(self._full(path)))

    def make_directory(self, path: str) -> None:
        self._ask(vfs.mkdir, vfs.PathRequest(self._full(path)))

    def remove_directory(self, path: str) -> None:
        self._ask(vfs.rmdir, vfs.PathRequest(self._full(path)))

    def list_directory(self, path: str) -> list[str]:
        full = self._full(path)
        names = self._ask(vfs.list_dir, vfs.LookRequest(full)).names
        if names is None:
            raise NoSuchFile(full)
        return names

    def exists(self, path: str) -> bool:
        return self._ask(vfs.has, vfs.PathRequest(self._full(path))).found

    def stat(self, path: str) -> Stat:
        full = self._full(path)
        found = _stat(self._ask(vfs.stat, vfs.LookRequest(full)))
        if found is None:
            raise NoSuchFile(full)
        return found

    def sync_directory(self, path: str) -> None:
        self._ask(vfs.sync_dir, vfs.PathRequest(self._full(path)))

    # -- many at once

    def perform(self, steps: Sequence[Step]) -> None:
        """Do the steps, in as few requests as possible."""
        asked: list[tuple[Step, list[FileCall]]] = []
        for step in steps:
            calls = self._calls(step)
            if calls is None:  # No verb does this step.
                self._perform(asked)
                asked = []
                step.do(self)
            else:
                asked.append((step, calls))
        self._perform(asked)

    def _perform(self, asked: Sequence[tuple[Step, Sequence[FileCall]]]) -> None:
        try:
            self._link.ask([call for _, calls in asked for call in calls])
        finally:
            for step, calls in asked:
                if all(call.result is not None for call in calls):
                    _settle(step, calls)

    def _calls(self, step: Step) -> list[FileCall] | None:
        full = self._full(step.path)
        if type(step) in SIMPLE:
            return [FileCall(SIMPLE[type(step)], vfs.PathRequest(full))]
        match step:
            case Get():
                return [FileCall(vfs.get, vfs.LookRequest(full, True))]
            case GetPublished():
                return [FileCall(vfs.get_published, vfs.LookRequest(full, True))]
            case GetStat():
                return [FileCall(vfs.stat, vfs.LookRequest(full, True))]
            case ListDirectory():
                return [FileCall(vfs.list_dir, vfs.LookRequest(full, True))]
            case ReadRanges():
                return list(_reads(full, step.ranges))
            case Put():
                return [FileCall(vfs.put, vfs.BringRequest(full), io.BytesIO(step.content), len(step.content))]
            case Rename():
                return [FileCall(vfs.rename, vfs.RenameRequest(full, self._full(step.target)))]
            case Publish():
                return [FileCall(vfs.publish, vfs.RenameRequest(full, self._full(step.target)))]
            case Withdraw():
                return [FileCall(vfs.withdraw, vfs.WithdrawRequest(full, self._full(step.target)))]
            case _:
                return None


class _VfsReadFile(ReadFile):
    def __init__(self, link: VfsLink, path: str) -> None:
        self._link: VfsLink | None = link
        self._path = path

    def _ask(self, ranges: Sequence[tuple[int, int]]) -> list[FileCall]:
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
    """A file that is open for writing. Its bytes are buffered here until they must be on the server."""

    def __init__(self, link: VfsLink, path: str) -> None:
        self._link = link
        self.path = path
        self._held = tempfile.SpooledTemporaryFile(HELD)  # noqa: SIM115  # Closed with this file.
        self._broken = ""
        """The reason why no more bytes are accepted; empty while bytes are accepted."""

    def __del__(self) -> None:
        self._held.close()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with self._usable():
            self._held.write(memoryview(data).cast("B"))
            self._link.unsent.add(self)

    def send(self) -> None:
        """Send all buffered bytes to the server, where they are then durable."""
        with self._link.mutex:
            self._link.unsent.discard(self)
            size = self._held.tell()
            if not size:
                return
            try:
                self._link.ask([FileCall(vfs.append, vfs.BringRequest(self.path), cast("IO[bytes]", self._held), size)])
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


def _reads(path: str, ranges: Sequence[tuple[int, int]]) -> Iterator[FileCall]:
    """Yield the calls that read the ranges. At least one call is yielded, which fails if the file is missing."""
    for at in range(0, max(len(ranges), 1), vfs.MAX_RANGES):
        wanted = [vfs.RangeField(offset, size) for offset, size in ranges[at : at + vfs.MAX_RANGES]]
        yield FileCall(vfs.readv, vfs.ReadvRequest(path, wanted))


def _ranges(calls: Sequence[FileCall]) -> list[bytes]:
    found: list[bytes] = []
    for call in calls:
        at = 0
        for size in _readv(call).sizes:
            found.append(call.content[at : at + size])
            at += size
    return found


def _stat(result: vfs.StatResult) -> Stat | None:
    return None if result.kind is None else Stat(EntryKind(result.kind), result.size, result.modified)


def _readv(call: FileCall) -> vfs.ReadvResult:
    return cast("vfs.ReadvResult", call.result)


def _settle(step: Step, calls: Sequence[FileCall]) -> None:
    """Store the result of a step in the step."""
    match step, calls[0].result:
        case Get() | GetPublished(), vfs.GetResult(size):
            step.settle(None if size is None else calls[0].content)
        case GetStat(), vfs.StatResult() as found:
            step.settle(_stat(found))
        case ListDirectory(), vfs.NamesResult(names):
            step.settle(names)
        case ReadRanges(), _:
            step.settle(_ranges(calls))
        case _:
            pass


def from_url(url: str, observers: Sequence[Observer] = ()) -> VfsTransport:
    """Return the transport of a URL such as `vfs://example.org/repositories`. `observers` see each call before it is
    sent.

    Raises:
        BadUrl: the URL is malformed.
    """
    location = parse(url, "vfs")
    client = Client(lambda: TcpMedium(location.host, location.port), observers)
    return VfsTransport(VfsLink(client, location.path, f"vfs://{location.where}/{location.path}".rstrip("/")))

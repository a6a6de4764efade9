"""`SftpTransport`: a folder of another machine, over SFTP version 3 (draft-ietf-secsh-filexfer-02).

paramiko provides the channel. Its own SFTP client waits for each answer, so these modules implement the protocol with
many requests in flight: `sftp_packets` (bytes), `sftp_session` (requests and their answers), `sftp_handles` (opening
and reading a file in one flight), `sftp_talks` and `sftp_changes` (the requests of each operation).
"""

from __future__ import annotations

import contextlib
import posixpath
import re
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from transports import paths
from transports import sftp_changes as changes
from transports import sftp_packets as sftp
from transports import sftp_talks as talks
from transports.base import Capability, ReadFile, Stat, Step, Transport, WriteFile
from transports.errors import NotSupported, TransportError, TransportFailed
from transports.sftp_login import Account, log_in
from transports.sftp_session import Pending, Session
from transports.sftp_talks import RemotePath, Talk
from transports.steps import (
    Delete,
    Get,
    GetPublished,
    GetStat,
    ListDirectory,
    MakeDirectory,
    Publish,
    Put,
    Query,
    ReadRanges,
    Rename,
    SyncDirectory,
    Withdraw,
)

UNDER_WAY = 4 * 1024 * 1024
"""The most unanswered bytes of a file that is being written: as many as `sftp_session.WINDOW`."""

Result = TypeVar("Result")


def converse(session: Session, talk: Talk[Result]) -> Result:
    """Run one talk on a session and return its result."""
    try:
        asked = next(talk)
        while True:
            asked = talk.send(session.exchange(asked))
    except StopIteration as ended:
        result: Result = ended.value
        return result


class Line:
    """A session that is opened when it is first needed, and opened again after it was lost. A transport shares it with
    its children and files."""

    def __init__(self, connect: Callable[[], Session]) -> None:
        self._connect = connect
        self._guard = threading.Lock()
        self._session: Session | None = None
        self._abandoned: weakref.finalize[[], Line] | None = None
        self.made = 0
        """The number of sessions opened so far."""
        self.links = True
        """False once a server with `HARDLINK` has refused a link: its file system has no hard links."""

    def session(self) -> Session:
        """Return the session, or a new one if it was lost. A request that fails on the session is never retried."""
        with self._guard:
            if self._session is None or self._session.lost:
                self._close()
                self._session = self._connect()
                self.made += 1
                # Runs when no transport or file refers to this any more.
                self._abandoned = weakref.finalize(self, self._session.abandon)
            return self._session

    def close(self) -> None:
        """Close the session. The next use opens a new session."""
        with self._guard:
            self._close()

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
        if self._abandoned is not None:
            self._abandoned.detach()


class _SftpReadFile(ReadFile):
    def __init__(self, line: Line, session: Session, place: RemotePath, handle: bytes) -> None:
        self._line = line  # A reference that keeps the session open.
        self._session = session
        self._place = place
        self._handle: bytes | None = handle

    def __del__(self) -> None:
        self.close()

    def _open(self) -> bytes:
        if self._handle is None:
            raise TransportFailed(self._place.name, "the file is closed")
        return self._handle

    def read_at(self, offset: int, size: int) -> bytes:
        return self.read_ranges([(offset, size)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return converse(self._session, talks.read(self._place, self._open(), ranges))

    def size(self) -> int:
        (answer,) = self._session.exchange([sftp.fstat(self._open())])
        if not isinstance(answer, sftp.Attributes):
            raise TransportFailed(self._place.name, f"the server says: {answer}")
        return answer.size

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._session.later(sftp.close(handle))


class _SftpWriteFile(WriteFile):
    """A file being written. `write` leaves up to `UNDER_WAY` bytes unanswered; a later read in the same session sees
    them."""

    def __init__(self, line: Line, session: Session, place: RemotePath, handle: bytes) -> None:
        self._line = line
        self._session = session
        self._place = place
        self._handle: bytes | None = handle
        self._offset = 0
        self._under_way: deque[tuple[int, Pending]] = deque()
        self._unanswered = 0

    def __del__(self) -> None:
        if self._handle is not None:
            self._session.later(sftp.close(self._handle))

    def _open(self) -> bytes:
        if self._handle is None:
            raise TransportFailed(self._place.name, "the file is closed")
        return self._handle

    def write(self, data: bytes | bytearray | memoryview) -> None:
        handle, view = self._open(), memoryview(data).cast("B")
        while view:
            piece, view = view[: sftp.PIECE], view[sftp.PIECE :]
            self._settle(UNDER_WAY - len(piece))
            self._under_way.append((len(piece), self._session.send(sftp.write(handle, self._offset, piece))))
            self._unanswered += len(piece)
            self._offset += len(piece)

    def _settle(self, most: int = 0) -> None:
        """Wait for answers until at most `most` bytes are unanswered."""
        while self._unanswered > most:
            size, pending = self._under_way.popleft()
            self._unanswered -= size
            changes.check_written(self._place, [pending.answer()])

    def _finish(self, requests: Sequence[sftp.Request]) -> None:
        """Send requests before the last writes are answered, and wait for the answers to all of them."""
        sent = [self._session.send(each) for each in requests]
        self._settle()
        changes.check_finished(self._place, [each.answer() for each in sent])

    def sync(self) -> None:
        handle = self._open()
        self._finish([sftp.fsync(handle)] if self._session.has(sftp.FSYNC) else [])

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is None:
            return
        if self._under_way:  # Otherwise no write can fail any more.
            self._finish([sftp.close(handle)])
        else:
            self._session.later(sftp.close(handle))

    def finish(self) -> None:
        """Sync and close the file in one round trip."""
        handle, self._handle = self._open(), None
        self._finish(changes.finish(handle, fsync=self._session.has(sftp.FSYNC)))


_ASKS = (Get, GetPublished, ReadRanges, GetStat, ListDirectory, SyncDirectory)
"""Steps that change no visible file: they may be sent before earlier steps are answered."""

_FINAL = (Rename, Publish, Withdraw, Delete)
"""Steps that cannot be undone. They are sent once all earlier steps have succeeded. A step that created a file or
folder can be undone, because its name was free before."""


_MOST = 120
"""The most steps in one flight: as many reads of 32 KiB, each sent with the opening of its file, fit into
`sftp_session.WINDOW`."""


def _groups(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Yield the steps in groups. The steps of a group may be sent in one flight."""
    group: list[Step] = []
    for step in steps:
        if group and (isinstance(step, _FINAL) or len(group) == _MOST):
            yield group
            group = []
        group.append(step)
    if group:
        yield group


def _settling(talk: Talk[Result], settle: Callable[[Result], object]) -> Talk[Callable[[], object]]:
    """Return the same talk with another result: a function that passes the result to `settle` when it is called."""
    result = yield from talk
    return lambda: settle(result)


@dataclass(slots=True)
class _Part:
    """A step that is being performed."""

    talk: Talk[Callable[[], object]]
    undo: list[sftp.Request]
    starts: int
    """The number of the flight in which the talk begins."""
    asked: Sequence[sftp.Request | sftp.Following] = ()
    settle: Callable[[], object] | None = None
    error: TransportError | None = None

    @property
    def ended(self) -> bool:
        return self.settle is not None or self.error is not None

    def go_on(self, answers: Sequence[sftp.Answer] | None = None) -> None:
        try:
            self.asked = next(self.talk) if answers is None else self.talk.send(answers)
        except StopIteration as ended:
            self.settle = ended.value
        except TransportError as error:
            self.error = error


class SftpTransport(Transport):
    """A folder of another machine. The server follows symbolic links.

    Durability depends on the server. Without `fsync@openssh.com`, `sync` only waits until the server has accepted the
    bytes, and `sync_directory` only checks the folder. An open file stays readable: a handle refers to the file, not to
    its name.
    """

    capabilities = Capability.ROUND_TRIPS | Capability.HANDLES

    def __init__(self, line: Line, root: str, where: str, _prefix: str = "") -> None:
        """`root`: the path of the folder on the server, without a slash at its end. `where`: its URL, for messages."""
        self._line = line
        self._root = root
        self._where = where
        self._prefix = _prefix

    def _at(self, path: str) -> RemotePath:
        return RemotePath(self._root, paths.join(self._prefix, path))

    def _have(self, talk: Talk[Result]) -> Result:
        return converse(self._line.session(), talk)

    @property
    def connections(self) -> int:
        return self._line.made

    def close(self) -> None:
        """Close the connection. It is also closed when its last transport or file is dropped."""
        self._line.close()

    def child(self, path: str) -> SftpTransport:
        return SftpTransport(self._line, self._root, self._where, paths.join(self._prefix, path))

    def describe(self, path: str = "") -> str:
        name = paths.join(self._prefix, path)
        return f"{self._where.rstrip('/')}/{name}" if name else self._where

    def whole(self) -> tuple[Transport, str]:
        top, here = ("/", self._root) if self._root.startswith("/") else (".", self._root)
        try:
            path = paths.check(posixpath.normpath(f"/{here}").strip("/"))
        except ValueError:
            return self, ""
        where = urlsplit(self._where)._replace(path="" if top == "/" else "/~").geturl()
        return SftpTransport(self._line, top, where), paths.join("" if here == "." else path, self._prefix)

    def real_path(self, path: str = "") -> str:
        return self._have(talks.real_path(self._at(path))).decode("utf-8", "surrogateescape")

    def get(self, path: str) -> bytes:
        place = self._at(path)
        return self._have(talks.must(place, talks.content(place, [])))

    def open_read(self, path: str) -> ReadFile:
        place, session = self._at(path), self._line.session()
        handle, _ = converse(session, talks.must(place, talks.opened(place)))
        return _SftpReadFile(self._line, session, place, handle)

    def _create(self, path: str) -> _SftpWriteFile:
        place, session = self._at(path), self._line.session()
        return _SftpWriteFile(self._line, session, place, converse(session, changes.create(place)))

    def create(self, path: str) -> WriteFile:
        return self._create(path)

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        file = self._create(path)
        try:
            for chunk in chunks:
                file.write(chunk)
            file.finish()
        finally:
            file.close()

    def rename(self, source: str, target: str) -> None:
        self.perform([Rename(source, target)])

    def link(self, source: str, target: str) -> None:
        if not self._line.session().has(sftp.HARDLINK):
            raise NotSupported("link")
        self._have(changes.link(self._at(source), self._at(target)))

    def publish(self, source: str, target: str) -> None:
        self.perform([Publish(source, target)])

    def get_published(self, path: str) -> bytes:
        place = self._at(path)
        return self._have(talks.must(place, talks.content(place, [], is_published=True, both=True)))

    def withdraw(self, path: str, aside: str) -> None:
        self.perform([Withdraw(path, aside)])

    def delete(self, path: str) -> None:
        self._have(changes.delete(self._at(path)))

    def make_directory(self, path: str) -> None:
        self._have(changes.make_directory(self._at(path), []))

    def remove_directory(self, path: str) -> None:
        self._have(changes.remove_directory(self._at(path)))

    def list_directory(self, path: str) -> list[str]:
        place = self._at(path)
        return self._have(talks.must(place, talks.names(place, [])))

    def stat(self, path: str) -> Stat:
        place = self._at(path)
        return self._have(talks.must(place, talks.stat(place)))

    def exists(self, path: str) -> bool:
        return self._have(talks.stat(self._at(path))) is not None

    def sync_directory(self, path: str) -> None:
        self.perform([SyncDirectory(path)])

    # -- many at once

    def perform(self, steps: Sequence[Step]) -> None:
        for step in steps:
            for path in step.paths:
                self._at(path)
        if not steps:
            return
        session = self._line.session()
        for group in _groups(steps):
            try:
                self._fly(session, group)
            except NotSupported as error:
                if error.capability != "link":
                    raise
                self._line.links = False
                self._fly(session, group)

    def _fly(self, session: Session, group: Sequence[Step]) -> None:
        """Perform one group of steps. The server performs requests in the order in which they were sent (draft,
        6.1)."""
        parts: list[_Part] = []
        writes = False
        for step in group:
            undo: list[sftp.Request] = []
            # A read is sent after all earlier requests; a `Put` may send its writes in the second flight.
            talk = self._talk(session, step, undo)
            parts.append(_Part(talk, undo, starts=int(writes and isinstance(step, _ASKS))))
            writes = writes or isinstance(step, Put)
        flight, going = 0, parts
        while any(not part.ended for part in going):
            for part in going:
                if part.starts == flight:
                    part.go_on()
            flying = [part for part in going if part.starts <= flight and not part.ended]
            answers = iter(session.exchange([request for part in flying for request in part.asked]))
            for part in flying:
                part.go_on([next(answers) for _ in part.asked])
            # Stop the parts after one that failed; continue the parts before it, which may fail too.
            going = parts[: next((at for at, part in enumerate(parts) if part.error is not None), len(parts))]
            flight += 1
        undo = [request for part in reversed(parts[len(going) + 1 :]) for request in part.undo]
        for request in undo:
            if request.closes:
                session.later(request)
        # Ignore the answers: the error to raise is the one that made the undo necessary.
        session.exchange([request for request in undo if not request.closes])
        for part in going:
            if part.settle is not None:
                part.settle()
        if len(going) < len(parts) and (error := parts[len(going)].error) is not None:
            raise error

    def _talk(self, session: Session, step: Step, undo: list[sftp.Request]) -> Talk[Callable[[], object]]:
        talk = self._result(session, self._at(step.path), step, undo)
        return _settling(talk, step.settle if isinstance(step, Query) else lambda _: None)

    def _result(self, session: Session, place: RemotePath, step: Step, undo: list[sftp.Request]) -> Talk[Any]:
        """Return the talk of a step. The talks of reads do not request the server's extensions, which would take a
        round trip."""
        match step:
            case Get():
                return talks.content(place, undo, step.size or 0)
            case GetPublished():
                # OpenSSH's server has links, so a folder is seldom there.
                return talks.content(place, undo, is_published=True, both=not session.is_openssh)
            case ReadRanges():
                return talks.read_ranges(place, step.ranges, undo)
            case GetStat():
                return talks.stat(place)
            case ListDirectory():
                return talks.names_of_folder(place, undo)
            case SyncDirectory():
                return changes.sync_directory(place, fsync=session.has(sftp.FSYNC), undo=undo)
            case Put():
                return changes.put(place, step.content, fsync=session.has(sftp.FSYNC), undo=undo)
            case MakeDirectory():
                return changes.make_directory(place, undo)
            case Rename():
                return changes.rename(place, self._at(step.target), posix=session.has(sftp.POSIX_RENAME))
            case Publish():
                return self._publish(session, place, self._at(step.target))
            case Withdraw():
                return changes.withdraw(place, self._at(step.target), posix=session.has(sftp.POSIX_RENAME))
            case Delete():
                return changes.delete(place)
            case _:
                raise TypeError(f"no step of SFTP: {step}")

    def _publish(self, session: Session, source: RemotePath, target: RemotePath) -> Talk[None]:
        if not (self._line.links and session.has(sftp.HARDLINK)):
            yield from changes.publish_as_folder(source, target, posix=session.has(sftp.POSIX_RENAME))
            return
        yield from changes.link(source, target)
        # Do not wait for the answer: the file is published even if its old name stays.
        with contextlib.suppress(TransportFailed):
            session.send(sftp.remove(source.path))


def from_url(url: str) -> SftpTransport:
    """Return the transport of `sftp://[user@]host[:port]/srv/x`; the path `/~/x` is below the account's home.

    The machine's key must be in `~/.ssh/known_hosts`. Instead, `?host-key=SHA256:...` gives its fingerprint, and
    `?host-key=any` accepts every key. The machine is not contacted yet.

    Raises:
        ValueError: the URL is invalid.
    """
    parts = urlsplit(url)
    if parts.scheme != "sftp" or not parts.hostname or not parts.path.startswith("/") or parts.fragment:
        raise ValueError(f"{url!r} is not a folder of another machine: sftp://[USER@]HOST[:PORT]/PATH")
    if parts.password is not None:
        raise ValueError(f"{parts.hostname}: a password has no meaning; keys and the agent are tried")
    name, _, host_key = parts.query.partition("=")
    if parts.query and (name != "host-key" or not host_key):
        raise ValueError(f"{url!r}: its query is not host-key=SHA256:... or host-key=any")
    path = unquote(parts.path, errors="strict").rstrip("/") or "/"
    if "\0" in path:  # OpenSSH's server would close the connection.
        raise ValueError(f"{url!r}: no name of a file has a NUL (%00) in it")
    if path == "/~" or path.startswith("/~/"):
        path = path[3:] or "."
    host = re.sub("%25(?=.)", "%", parts.hostname, count=1)  # Before the zone of an IPv6 address (RFC 6874).
    account = Account(host, unquote(parts.username or ""), parts.port or 0, unquote(host_key))
    return SftpTransport(Line(lambda: log_in(account)), path, url.partition("?")[0].rstrip("/"))

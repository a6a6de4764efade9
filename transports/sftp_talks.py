"""The requests of each operation over SFTP. A *talk* is a generator that yields the requests of one flight, is sent
their answers, and returns the result. Any number of talks can run together, in as many round trips as the longest.

Requests on a file that is being opened are sent with the opening (`Following`). If that is impossible, they are sent in
the next flight, so each talk has code for both cases.

Version 3 has one status code for most errors. So a talk sends a request that may be refused together with requests that
find out why: that takes no more round trips, and describes the same moment. A talk that changes something puts the
requests that undo it into `undo`. A caller that runs several talks at once sends them if an earlier talk fails.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from transports import sftp_packets as sftp
from transports.base import RECORD, EntryKind, Stat
from transports.errors import (
    DirectoryNotEmpty,
    FileExists,
    NoSpace,
    NoSuchFile,
    NotADirectory,
    PermissionDenied,
    TransportError,
    TransportFailed,
)
from transports.sftp_packets import NOT_SENT, Attributes, Code, Content, Following, Handle, Names, Open, Request, Status

Result = TypeVar("Result")
Asked = Request | Following
Talk = Generator[Sequence[Asked], Sequence[sftp.Answer], Result]

ERRORS: dict[int, Callable[[str], TransportError]] = {
    Code.NO_SUCH_FILE: NoSuchFile,
    Code.PERMISSION_DENIED: PermissionDenied,
    Code.WRITE_PROTECT: PermissionDenied,
    Code.FILE_EXISTS: FileExists,
    Code.NO_SPACE: NoSpace,
    Code.QUOTA_EXCEEDED: NoSpace,
    Code.DIRECTORY_NOT_EMPTY: DirectoryNotEmpty,
    Code.NOT_A_DIRECTORY: NotADirectory,
}
"""The error that a transport raises for each code; any other code is `TransportFailed`."""

TRIES = 10
"""The most attempts to read a file that is replaced during each attempt."""

LISTED = (16, 128)
"""The number of requests for names in the first flight and, if those were too few, in the second. OpenSSH answers
each with 100 names."""

READ_ON = 1024
"""The number of requests for names in each later flight. An answer has up to 256 KiB, so a flight up to 256 MiB."""

NAME = 64
"""Bytes to count for each name and each answer in addition to the names themselves: about the overhead in Python."""

MOST_NAMES = 32 << 20
"""The most bytes of names accepted from one folder: 350,000 names of 30 letters, in answers of any size. A server that
sends empty answers for ever is stopped after half a million."""

NO_FILE = "not a plain file"

PIECES = 1024
"""The most reads in one flight: 32 MiB, eight times the window of a session. A larger file takes several flights. If
the server reports a wrong size, at most one flight is requested in vain."""

EARLY = 64
"""The most reads or writes that are sent with the opening of a file: 2 MiB. A larger file does not need the saved round
trip."""


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A path on the server: `root` in the server's form, and `name`, the path below it, which errors show."""

    root: str
    name: str

    @property
    def path(self) -> bytes:
        """The path in the form that the server uses."""
        return f"{'' if self.root == '/' else self.root}/{self.name}".encode() if self.name else self.root.encode()

    @property
    def record(self) -> RemotePath:
        """The path of the file inside the folder, if this is a file published as a folder."""
        return RemotePath(self.root, f"{self.name}/{RECORD}")

    @property
    def above(self) -> list[RemotePath]:
        """The folders that contain the path, outermost first, without the root."""
        parts = self.name.split("/")
        return [RemotePath(self.root, "/".join(parts[:count])) for count in range(1, len(parts))]


# -- errors


def explain(place: RemotePath, status: Status) -> Talk[TransportError]:
    """Return the error for a refused request. Check the folders above the path if they may be the reason."""
    error = ERRORS.get(status.code)
    if error not in (None, NoSuchFile):
        return error(place.name)
    above = (yield [sftp.stat(each.path) for each in place.above]) if place.above else ()
    for answer in above:
        if isinstance(answer, Status):
            return NoSuchFile(place.name)
        if isinstance(answer, Attributes) and answer.kind is not EntryKind.DIRECTORY:
            return NotADirectory(place.name)
    return NoSuchFile(place.name) if error else failed(place, status)


def failed(place: RemotePath, status: Status, *, what: str = "", takes_room: bool = False) -> TransportError:
    """Return the error for a status, without further requests. `what`: words before the server's message. `takes_room`:
    True if the request needs disk space, so that a full disk may be the reason; version 3 has no code for that."""
    error = ERRORS.get(status.code)
    return error(place.name) if error else TransportFailed(place.name, what + said(status, takes_room=takes_room))


def said(status: Status, *, takes_room: bool) -> str:
    """Return the message of a status, with a hint at a full disk if `takes_room` and the server gives no reason."""
    nothing_more = status.code == Code.FAILURE and status.message.lower() in ("", "failure")
    return f"the server says: {status}" + (" (its disk may be full)" if takes_room and nothing_more else "")


def status_of(answer: sftp.Answer) -> Status:
    """Return the answer if it is a status, else a status which says that the answer was unexpected."""
    return answer if isinstance(answer, Status) else Status(Code.BAD_MESSAGE, f"{type(answer).__name__}, unasked")


def refusal(answer: sftp.Answer) -> Status | None:
    """Return the status of a refused request; None if the request was performed."""
    status = status_of(answer)
    return None if status.code == Code.OK else status


# -- reads


def stat(place: RemotePath) -> Talk[Stat | None]:
    """Return the stat of a path; None if the path does not exist."""
    (answer,) = yield [sftp.stat(place.path)]
    if isinstance(answer, Attributes):
        return answer.stat
    yield from _nothing(place, answer)
    return None


def _nothing(place: RemotePath, answer: sftp.Answer) -> Talk[None]:
    """Raise the error for a refused read, but return if the reason is that the path does not exist."""
    status = status_of(answer)
    if status.code != Code.NO_SUCH_FILE:
        error = yield from explain(place, status)
        if not isinstance(error, NoSuchFile | NotADirectory):
            raise error


def must(place: RemotePath, talk: Talk[Result | None]) -> Talk[Result]:
    """Return the result of a talk, but raise `NoSuchFile` or `NotADirectory` in place of None."""
    found = yield from talk
    if found is None:
        raise (yield from explain(place, Status(Code.NO_SUCH_FILE)))
    return found


def names(place: RemotePath, undo: list[Request]) -> Talk[list[str] | None]:
    """Return the names in a folder, sorted; None if the folder is missing. A name that is not UTF-8 cannot be a path of
    a transport and is left out."""
    for times in (*LISTED, READ_ON):
        reads = [] if times == READ_ON else [*[Following(sftp.read_directory)] * times, Following(sftp.close)]
        opened, found, *early = yield [sftp.open_directory(place.path), sftp.stat(place.path), *reads]
        closed = early.pop() if early else NOT_SENT
        if not isinstance(opened, Handle):
            if isinstance(found, Attributes) and found.kind is not EntryKind.DIRECTORY:
                raise NotADirectory(place.name)
            yield from _nothing(place, opened)
            return None
        ask, close = sftp.read_directory(opened.handle), sftp.close(opened.handle)
        if times == READ_ON:
            break
        if closed is NOT_SENT:
            undo[:] = [close]
            *early, _ = yield [*[ask] * times, close]
            undo.clear()
        parts = _parts(place, early)
        if len(parts) < times:
            return _sorted(parts)
    undo[:] = [close]
    try:
        parts = yield from _read_on(place, ask)
    except TransportError:
        yield [close]
        undo.clear()
        raise
    yield [close]
    undo.clear()
    return _sorted(parts)


def _read_on(place: RemotePath, ask: Request) -> Talk[list[Names]]:
    """Read an open folder to its end and return the answers that have names."""
    parts: list[Names] = []
    size = 0
    while size <= MOST_NAMES:
        more = _parts(place, (yield [ask] * READ_ON))
        parts += more
        if len(more) < READ_ON:
            return parts
        size += sum(NAME + sum(NAME + len(name) for name in part.names) for part in more)
    count = sum(len(part.names) for part in parts)
    raise TransportFailed(place.name, f"it has more than {count:,} names: too many to list")


def _parts(place: RemotePath, answers: Sequence[sftp.Answer]) -> list[Names]:
    """Return the answers that have names. They are fewer than the requests if the folder has no more names."""
    for answer in answers:
        if not isinstance(answer, Names) and status_of(answer).code != Code.EOF:
            raise failed(place, status_of(answer))
    return [answer for answer in answers if isinstance(answer, Names)]


def names_of_folder(place: RemotePath, undo: list[Request]) -> Talk[list[str] | None]:
    """Return the same as `names`, but return None also if the path is a file."""
    try:
        return (yield from names(place, undo))
    except NotADirectory:
        return None


def _sorted(parts: Iterable[Names]) -> list[str]:
    found = set()
    for name in itertools.chain.from_iterable(part.names for part in parts):
        with contextlib.suppress(UnicodeDecodeError):
            found.add(name.decode())
    return sorted(found - {".", ".."})


def opened(place: RemotePath) -> Talk[tuple[bytes, Attributes] | None]:
    """Open a file and return its handle and attributes; None if it is missing."""
    answer, found = yield [sftp.open_file(place.path, Open.READ), sftp.stat(place.path)]
    return (yield from _opened(place, answer, found))


def _opened(
    place: RemotePath, answer: sftp.Answer, found: sftp.Answer, *, is_closed: bool = False
) -> Talk[tuple[bytes, Attributes] | None]:
    """Return the result of `opened`. `is_closed`: the file was closed in the flight in which it was opened."""
    if isinstance(found, Attributes) and found.kind is not EntryKind.FILE:
        if isinstance(answer, Handle) and not is_closed:
            yield [sftp.close(answer.handle)]
        raise TransportFailed(place.name, NO_FILE)
    if isinstance(answer, Handle):
        # Without attributes, the file was deleted in between: the handle is valid, and a read shows the size.
        return answer.handle, found if isinstance(found, Attributes) else Attributes(0, 0, 0)
    yield from _nothing(place, answer)
    return None


@dataclass(slots=True)
class _Piece:
    """A part of a range, no larger than one read."""

    at: int
    """The index of the piece's range."""
    offset: int
    size: int
    got: bytes = b""
    ended: bool = False
    """True if the server has answered that the file ends in this piece."""

    def ask(self, handle: bytes) -> Request:
        return sftp.read(handle, self.offset + len(self.got), self.size - len(self.got))

    def take(self, place: RemotePath, answer: sftp.Answer) -> None:
        if isinstance(answer, Content):
            self.got += answer.content[: self.size - len(self.got)]
        elif (status := status_of(answer)).code == Code.EOF:
            self.ended = True
        else:
            raise failed(place, status)

    @property
    def short(self) -> bool:
        return len(self.got) < self.size


def _pieces(ranges: Sequence[tuple[int, int]], ended: Set[int]) -> Iterator[_Piece]:
    """Yield the pieces of the ranges, one by one, because a wrong size from the server could mean millions. `ended`:
    the indexes of ranges in which the file has ended; they yield no more pieces. The caller adds to it meanwhile."""
    for at, (offset, size) in enumerate(ranges):
        for start in range(0, size, sftp.PIECE):
            if at in ended:
                break
            yield _Piece(at, offset + start, min(sftp.PIECE, size - start))


def _joined(ranges: Sequence[tuple[int, int]], pieces: Sequence[_Piece]) -> list[bytes]:
    parts: list[list[bytes]] = [[] for _ in ranges]
    for piece in pieces:
        parts[piece.at].append(piece.got)
    return [b"".join(part) for part in parts]


class _Opening:
    """A file that is being opened for reading. If the handle is predictable, the same flight reads and closes it."""

    def __init__(self, place: RemotePath, ranges: Sequence[tuple[int, int]]) -> None:
        """`ranges`: the ranges that are read with the opening if they are no more than `EARLY` pieces."""
        self._place = place
        pieces = list(itertools.islice(_pieces(ranges, set()), EARLY + 1))
        self._pieces = pieces if len(pieces) <= EARLY else []
        reads = [Following(partial(_read_piece, piece.offset, piece.size)) for piece in self._pieces]
        self.requests: list[Asked] = [sftp.open_file(place.path, Open.READ), sftp.stat(place.path), *reads]
        if reads:
            self.requests.append(Following(sftp.close))
        self._answers: Sequence[sftp.Answer] = (NOT_SENT, NOT_SENT)

    def take(self, answers: Sequence[sftp.Answer]) -> None:
        """Store the answers to `requests`."""
        self._answers = answers

    @property
    def is_closed(self) -> bool:
        """True if the file was read and closed in the flight of its opening."""
        return len(self._answers) > 2 and self._answers[-1] is not NOT_SENT

    @property
    def handle(self) -> bytes:
        """The handle of the file if it is still open, else empty."""
        answer = self._answers[0]
        return answer.handle if isinstance(answer, Handle) and not self.is_closed else b""

    @property
    def kind(self) -> EntryKind | None:
        """The kind of the file or folder; None if the path does not exist."""
        found = self._answers[1]
        return found.kind if isinstance(found, Attributes) else None

    @property
    def is_open(self) -> bool:
        """True if the opening succeeded."""
        return isinstance(self._answers[0], Handle)

    def file(self) -> Talk[tuple[bytes, Attributes] | None]:
        """Return the result of `opened` from the stored answers."""
        return _opened(self._place, self._answers[0], self._answers[1], is_closed=self.is_closed)

    def read(self) -> list[_Piece]:
        """Return the pieces that were read, of each range up to the first short piece."""
        pieces: list[_Piece] = []
        ended = set[int]()
        for piece, answer in zip(self._pieces, self._answers[2:], strict=False):
            if piece.at not in ended:
                piece.take(self._place, answer)
                ended.update([piece.at] if piece.short else [])
                pieces.append(piece)
        return pieces


def _read_piece(offset: int, size: int, handle: bytes) -> Request:
    return sftp.read(handle, offset, size)


def read(place: RemotePath, handle: bytes, ranges: Sequence[tuple[int, int]]) -> Talk[list[bytes]]:
    """Return ranges of an open file. After a short answer the rest is read again, until the server answers `EOF`."""
    pieces, ended = list[_Piece](), set[int]()
    to_come = _pieces(ranges, ended)
    while missing := list(itertools.islice(to_come, PIECES)):
        pieces += missing
        while missing:
            answers = yield [piece.ask(handle) for piece in missing]
            for piece, answer in zip(missing, answers, strict=True):
                piece.take(place, answer)
            ended.update(piece.at for piece in missing if piece.ended)
            missing = [piece for piece in missing if piece.short and not piece.ended]
    return _joined(ranges, pieces)


def _read_once(
    place: RemotePath,
    handle: bytes,
    ranges: Sequence[tuple[int, int]],
    undo: list[Request],
    others: Sequence[bytes] = (),
) -> Talk[list[_Piece]]:
    """Read each range up to its first short piece. Close the handle, and the handles `others`, in the last flight."""
    pieces, ended = list[_Piece](), set[int]()
    to_come = _pieces(ranges, ended)
    closes, last = [sftp.close(other) for other in (handle, *others)], False
    undo[:] = closes
    while not last:
        asked = list(itertools.islice(to_come, PIECES))
        last = len(asked) < PIECES
        answers = yield [*(piece.ask(handle) for piece in asked), *(closes if last else [])]
        if last:
            undo.clear()
        try:
            for piece, answer in zip(asked, answers, strict=not last):  # Ignore the answers to the closes.
                piece.take(place, answer)
        except TransportError:
            if not last:
                yield closes
                undo.clear()
            raise
        ended.update(piece.at for piece in asked if piece.short)
        pieces += asked
    return pieces


def content(
    place: RemotePath, undo: list[Request], size: int = 0, *, is_published: bool = False, both: bool = False
) -> Talk[bytes | None]:
    """Return the content of a file; None if it is missing. `size`: its expected bytes. `is_published`: accept the
    folder form too. `both`: request both forms in one flight. Otherwise the folder form is requested only if there is
    a folder: one more round trip then, but half the bytes."""
    for _ in range(TRIES):
        file, record = (_Opening(path, _more_than(size)) for path in (place, place.record))
        answers = yield [*file.requests, *(record.requests if both else [])]
        file.take(answers[: len(file.requests)])
        in_folder = is_published and file.kind is EntryKind.DIRECTORY
        if both:
            record.take(answers[len(file.requests) :])
        elif in_folder:
            record.take((yield record.requests))
        in_folder = in_folder or record.is_open
        at, opening = (place.record, record) if in_folder else (place, file)
        others = [file.handle] if in_folder and file.handle else []  # Some servers open a folder.
        found = yield from opening.file()
        if found is None:
            if others:
                yield [sftp.close(other) for other in others]
            return None
        whole = yield from _read_whole(at, opening, *found, undo, others)
        if whole is not None:
            return whole
        size = found[1].size
    raise TransportFailed(place.name, "it changes each time it is read")


def _read_whole(
    place: RemotePath,
    opening: _Opening,
    handle: bytes,
    attributes: Attributes,
    undo: list[Request],
    others: Sequence[bytes] = (),
) -> Talk[bytes | None]:
    """Return the content of a file. Return None if the content and `attributes` are of different files, or if only a
    part was read with the opening."""
    if not opening.is_closed:
        # Request one byte more than the size: if it comes, another file was opened.
        pieces = yield from _read_once(place, handle, [(0, attributes.size + 1)], undo, others)
    else:
        pieces = opening.read()
        if others:
            yield [sftp.close(other) for other in others]
        if not any(piece.short for piece in pieces):  # The file may be longer.
            return None
    whole = b"".join(piece.got for piece in pieces)
    return whole if len(whole) == attributes.size else None


def _more_than(size: int) -> list[tuple[int, int]]:
    """Return a range of whole pieces with more than `size` bytes."""
    return [(0, (size // sftp.PIECE + 1) * sftp.PIECE)]


def read_ranges(place: RemotePath, ranges: Sequence[tuple[int, int]], undo: list[Request]) -> Talk[list[bytes]]:
    """Return ranges of a file. A range is shorter only at the end of the file."""
    for _ in range(TRIES):
        opening = _Opening(place, ranges)
        opening.take((yield opening.requests))
        handle, attributes = yield from must(place, opening.file())
        pieces = opening.read() if opening.is_closed else (yield from _read_once(place, handle, ranges, undo))
        if all(not piece.short or piece.ended or piece.offset + len(piece.got) >= attributes.size for piece in pieces):
            return _joined(ranges, pieces)
    raise TransportFailed(place.name, "it changes each time it is read")


def real_path(place: RemotePath) -> Talk[bytes]:
    """Return the path with all links resolved. The part of the path that does not exist is returned unchanged."""
    at = [RemotePath(place.root, ""), *place.above, place]
    answers = yield [sftp.real_path(each.path) for each in at]
    for each, answer in zip(reversed(at), reversed(answers), strict=True):
        if isinstance(answer, Names) and len(answer.names) == 1:
            rest = place.name[len(each.name) :].strip("/").encode()
            return answer.names[0].rstrip(b"/") + (b"/" + rest if rest else b"") or b"/"
    raise failed(place, status_of(answers[0]))

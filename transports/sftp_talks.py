"""The conversation of each operation over SFTP: a *talk* yields the requests that may fly together, is given their
answers, and returns the result. So many talks can run at once, and take the trips of the longest.

What is asked of a file that is opened is sent with the opening (`Following`); where that could not be, it is asked in
the next flight, so each talk has both ways.

What a status does not tell (version 3 has one code for most that can go wrong) is asked together with what may be
refused: so it is known as of that moment, and for no trip more. A talk that changes something puts what takes it back
into `undo`; to be used by who has several at once, where an earlier one fails.
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
"""The error that a transport raises for each code; for any other `TransportFailed`."""

TRIES = 10
"""Times that a file is read that is another each time."""

LISTED = (16, 128)
"""Times more names are asked for in one flight, first and when those were too few: OpenSSH gives 100 each time."""

READ_ON = 1024
"""The same in each flight after those. An answer has up to 256 KiB, so that one flight may bring 256 MiB."""

NAME = 64
"""Bytes that count for a name, and for an answer, besides the name itself: about what Python keeps of one."""

MOST_NAMES = 32 << 20
"""Bytes of names taken of one folder: 350,000 of 30 letters, however few are in an answer. A server that always has
more ends after half a million answers, if they are empty."""

NO_FILE = "not a plain file"

PIECES = 1024
"""Reads in one flight: 32 MiB, eight times what a session has under way. A file that is larger takes a flight more for
each of them; one whose server only says so costs no more than these."""

EARLY = 64
"""Reads, or writes, of a file that are sent with its opening: 2 MiB. Of a larger one a trip is a small part."""


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A path: `root` as the server knows it, and the name below it, as errors say it."""

    root: str
    name: str

    @property
    def path(self) -> bytes:
        """The path as the server knows it."""
        return f"{'' if self.root == '/' else self.root}/{self.name}".encode() if self.name else self.root.encode()

    @property
    def record(self) -> RemotePath:
        """The file in a folder that was published."""
        return RemotePath(self.root, f"{self.name}/{RECORD}")

    @property
    def above(self) -> list[RemotePath]:
        """The folders it lies in below the root, outermost first; the root itself is not looked at."""
        parts = self.name.split("/")
        return [RemotePath(self.root, "/".join(parts[:count])) for count in range(1, len(parts))]


# -- errors


def explain(place: RemotePath, status: Status) -> Talk[TransportError]:
    """The error for a refused request; the folders above are looked at if they may be the reason."""
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
    """The error of a status, by itself. `takes_room`: of a disk, where version 3 has one code for a full one and most
    else; `what` is said before."""
    error = ERRORS.get(status.code)
    return error(place.name) if error else TransportFailed(place.name, what + said(status, takes_room=takes_room))


def said(status: Status, *, takes_room: bool) -> str:
    """The words of a server, for `failed`."""
    nothing_more = status.code == Code.FAILURE and status.message.lower() in ("", "failure")
    return f"the server says: {status}" + (" (its disk may be full)" if takes_room and nothing_more else "")


def status_of(answer: sftp.Answer) -> Status:
    """The status in an answer; of any other answer one that says so."""
    return answer if isinstance(answer, Status) else Status(Code.BAD_MESSAGE, f"{type(answer).__name__}, unasked")


def refusal(answer: sftp.Answer) -> Status | None:
    """The status that says that something was not done."""
    status = status_of(answer)
    return None if status.code == Code.OK else status


# -- what asks


def stat(place: RemotePath) -> Talk[Stat | None]:
    """The stat of a path; None where nothing is there."""
    (answer,) = yield [sftp.stat(place.path)]
    if isinstance(answer, Attributes):
        return answer.stat
    yield from _nothing(place, answer)
    return None


def _nothing(place: RemotePath, answer: sftp.Answer) -> Talk[None]:
    """Raise why nothing can be asked of it, but where that is because it is not there."""
    status = status_of(answer)
    if status.code != Code.NO_SUCH_FILE:
        error = yield from explain(place, status)
        if not isinstance(error, NoSuchFile | NotADirectory):
            raise error


def must(place: RemotePath, talk: Talk[Result | None]) -> Talk[Result]:
    """The same talk where what is asked for must be there."""
    found = yield from talk
    if found is None:
        raise (yield from explain(place, Status(Code.NO_SUCH_FILE)))
    return found


def names(place: RemotePath, undo: list[Request]) -> Talk[list[str] | None]:
    """The names in a folder, sorted; None where there is none. One that is not UTF-8 cannot be a path of a transport,
    and is left out."""
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
    """All that are still to come of a folder that is open."""
    parts: list[Names] = []
    size = 0
    while size <= MOST_NAMES:
        more = _parts(place, (yield [ask] * READ_ON))
        parts += more
        if len(more) < READ_ON:
            return parts
        size += sum(NAME + sum(NAME + len(name) for name in part.names) for part in more)
    count = sum(len(part.names) for part in parts)
    raise TransportFailed(place.name, f"it has more than the {count:,} names that were taken: no more are listed")


def _parts(place: RemotePath, answers: Sequence[sftp.Answer]) -> list[Names]:
    """The answers with names in them: less than were asked for where the folder has no more."""
    for answer in answers:
        if not isinstance(answer, Names) and status_of(answer).code != Code.EOF:
            raise failed(place, status_of(answer))
    return [answer for answer in answers if isinstance(answer, Names)]


def names_of_folder(place: RemotePath, undo: list[Request]) -> Talk[list[str] | None]:
    """The same as `names`, but None where a file has that name."""
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
    """The handle of a file to read, and what the file is; None where there is none."""
    answer, found = yield [sftp.open_file(place.path, Open.READ), sftp.stat(place.path)]
    return (yield from _opened(place, answer, found))


def _opened(
    place: RemotePath, answer: sftp.Answer, found: sftp.Answer, *, is_closed: bool = False
) -> Talk[tuple[bytes, Attributes] | None]:
    """`is_closed`: the file was closed again in the flight in which it was opened."""
    if isinstance(found, Attributes) and found.kind is not EntryKind.FILE:
        if isinstance(answer, Handle) and not is_closed:
            yield [sftp.close(answer.handle)]
        raise TransportFailed(place.name, NO_FILE)
    if isinstance(answer, Handle):
        # Deleted in between: the handle is good, and how much there is shows when it is read.
        return answer.handle, found if isinstance(found, Attributes) else Attributes(0, 0, 0)
    yield from _nothing(place, answer)
    return None


@dataclass(slots=True)
class _Piece:
    """A part of a range, no larger than one read."""

    at: int
    """Which of the ranges."""
    offset: int
    size: int
    got: bytes = b""
    ended: bool = False
    """True if the server has said that the file ends in it."""

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
    """Made when they are asked for: how much there is may be a claim of the server's. `ended`: ranges of which there is
    no more; whoever reads adds to it."""
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
    """A file that is opened to be read. Where that can be, it is read and closed in the same flight."""

    def __init__(self, place: RemotePath, ranges: Sequence[tuple[int, int]]) -> None:
        """`ranges`: none is read early where they are many, or large."""
        self._place = place
        pieces = list(itertools.islice(_pieces(ranges, set()), EARLY + 1))
        self._pieces = pieces if len(pieces) <= EARLY else []
        reads = [Following(partial(_read_piece, piece.offset, piece.size)) for piece in self._pieces]
        self.requests: list[Asked] = [sftp.open_file(place.path, Open.READ), sftp.stat(place.path), *reads]
        if reads:
            self.requests.append(Following(sftp.close))
        self._answers: Sequence[sftp.Answer] = (NOT_SENT, NOT_SENT)

    def take(self, answers: Sequence[sftp.Answer]) -> None:
        """Take the answers to `requests`."""
        self._answers = answers

    @property
    def is_closed(self) -> bool:
        """True if the ranges were read."""
        return len(self._answers) > 2 and self._answers[-1] is not NOT_SENT

    @property
    def handle(self) -> bytes:
        """Its handle, if it is open; empty where it is not."""
        answer = self._answers[0]
        return answer.handle if isinstance(answer, Handle) and not self.is_closed else b""

    @property
    def kind(self) -> EntryKind | None:
        """The kind of what the path names; None where nothing is there."""
        found = self._answers[1]
        return found.kind if isinstance(found, Attributes) else None

    @property
    def is_open(self) -> bool:
        """True if it could be opened."""
        return isinstance(self._answers[0], Handle)

    def file(self) -> Talk[tuple[bytes, Attributes] | None]:
        """The same as `opened`."""
        return _opened(self._place, self._answers[0], self._answers[1], is_closed=self.is_closed)

    def read(self) -> list[_Piece]:
        """The pieces that were read, each range until it came short."""
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
    """Ranges of an open file; shorter only at its end, which the server is asked for, since it may have grown."""
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
    """Ask for all of them, each range until it comes short, and close the file in the last flight, and `others`."""
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
            for piece, answer in zip(asked, answers, strict=not last):  # What is said of the close is of no interest.
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
    """All of a file; None where there is none. `size`: bytes it is expected to have. `is_published`: in either form.
    `both`: both forms are asked for at once; else the second one only where there is a folder, which takes another
    trip, and half the bytes."""
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
    raise TransportFailed(place.name, "it is another each time it is read")


def _read_whole(
    place: RemotePath,
    opening: _Opening,
    handle: bytes,
    attributes: Attributes,
    undo: list[Request],
    others: Sequence[bytes] = (),
) -> Talk[bytes | None]:
    """All of a file; None where another was opened than was looked at, or less than all was read with the opening."""
    if not opening.is_closed:
        # One byte more than there should be: who gets it has opened another.
        pieces = yield from _read_once(place, handle, [(0, attributes.size + 1)], undo, others)
    else:
        pieces = opening.read()
        if others:
            yield [sftp.close(other) for other in others]
        if not any(piece.short for piece in pieces):  # There may be more.
            return None
    whole = b"".join(piece.got for piece in pieces)
    return whole if len(whole) == attributes.size else None


def _more_than(size: int) -> list[tuple[int, int]]:
    """A range of whole pieces that has that many bytes and more."""
    return [(0, (size // sftp.PIECE + 1) * sftp.PIECE)]


def read_ranges(place: RemotePath, ranges: Sequence[tuple[int, int]], undo: list[Request]) -> Talk[list[bytes]]:
    """Ranges of a file; shorter only at its end."""
    for _ in range(TRIES):
        opening = _Opening(place, ranges)
        opening.take((yield opening.requests))
        handle, attributes = yield from must(place, opening.file())
        pieces = opening.read() if opening.is_closed else (yield from _read_once(place, handle, ranges, undo))
        if all(not piece.short or piece.ended or piece.offset + len(piece.got) >= attributes.size for piece in pieces):
            return _joined(ranges, pieces)
    raise TransportFailed(place.name, "it is another each time it is read")


def real_path(place: RemotePath) -> Talk[bytes]:
    """The real path; of a path that does not exist, that of the last folder that does, and the rest."""
    at = [RemotePath(place.root, ""), *place.above, place]
    answers = yield [sftp.real_path(each.path) for each in at]
    for each, answer in zip(reversed(at), reversed(answers), strict=True):
        if isinstance(answer, Names) and len(answer.names) == 1:
            rest = place.name[len(each.name) :].strip("/").encode()
            return answer.names[0].rstrip(b"/") + (b"/" + rest if rest else b"") or b"/"
    raise failed(place, status_of(answers[0]))

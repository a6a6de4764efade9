"""What is said for each operation over SFTP: a *talk* yields the requests that may fly together, is given their
answers, and returns what came of it. So many talks can be had at once, and take the trips of the longest.

What a status does not tell (version 3 has one code for most that can go wrong) is asked together with what may be
refused: so it is known as of that moment, and for no trip more. A talk that changes something puts what takes it back
into `undo`; to be used by who has several at once, where an earlier one fails.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

from transports import sftp_packets as sftp
from transports.base import RECORD, EntryKind, published_folder
from transports.errors import (
    DirectoryNotEmpty,
    FileExists,
    NoSpace,
    NoSuchFile,
    NotADirectory,
    NotSupported,
    PermissionDenied,
    TransportError,
    TransportFailed,
)
from transports.sftp_packets import Attributes, Code, Content, Handle, Names, Open, Request, Status

Result = TypeVar("Result")
Talk = Generator[Sequence[Request], Sequence[sftp.Answer], Result]

ERRORS: dict[
    int,
    type[NoSuchFile | FileExists | PermissionDenied | NotADirectory | DirectoryNotEmpty | NoSpace],
] = {
    Code.NO_SUCH_FILE: NoSuchFile,
    Code.PERMISSION_DENIED: PermissionDenied,
    Code.WRITE_PROTECT: PermissionDenied,
    Code.FILE_EXISTS: FileExists,
    Code.NO_SPACE: NoSpace,
    Code.QUOTA_EXCEEDED: NoSpace,
    Code.DIRECTORY_NOT_EMPTY: DirectoryNotEmpty,
    Code.NOT_A_DIRECTORY: NotADirectory,
}
"""What a server says, as what a transport raises; all else is `TransportFailed`."""

TRIES = 10
"""How often a file is read that is another each time."""

LISTED = (16, 128)
"""Times more names are asked for in one flight, first and when those were too few: OpenSSH gives 100 each time."""

READ_ON = 1024
"""As often in each flight after those. An answer has up to 256 KiB, so that one flight may bring 256 MiB."""

NAME = 64
"""Bytes that count for a name, and for an answer, besides the name itself: about what Python keeps of one."""

MOST_NAMES = 32 << 20
"""Bytes of names taken of one folder: 350,000 of 30 letters, however few are in an answer. A server that always has
more ends after half a million answers, if they are empty."""

NO_FILE = "not a plain file"

PIECES = 1024
"""Reads in one flight: 32 MiB, eight times what a session has under way. A file that is larger takes a flight more for
each of them; one whose server only says so costs no more than these."""


@dataclass(frozen=True, slots=True)
class Place:
    """A path: `root` as the server knows it, and the name below it, as errors say it."""

    root: str
    name: str

    @property
    def path(self) -> bytes:
        """As the server knows it."""
        return f"{'' if self.root == '/' else self.root}/{self.name}".encode() if self.name else self.root.encode()

    @property
    def record(self) -> Place:
        """The file in a folder that was published."""
        return Place(self.root, f"{self.name}/{RECORD}")

    @property
    def above(self) -> list[Place]:
        """The folders it lies in below the root, outermost first; the root itself is not looked at."""
        parts = self.name.split("/")
        return [Place(self.root, "/".join(parts[:count])) for count in range(1, len(parts))]


# -- errors


def explain(place: Place, status: Status) -> Talk[TransportError]:
    """Why that was refused; what lies above is looked at where that may be why."""
    error = ERRORS.get(status.code)
    if error not in (None, NoSuchFile):
        return error(place.name)
    above = (yield [sftp.stat(each.path) for each in place.above]) if place.above else ()
    for answer in above:
        if isinstance(answer, Status):
            return NoSuchFile(place.name)
        if isinstance(answer, Attributes) and answer.kind is not EntryKind.DIRECTORY:
            return NotADirectory(place.name)
    return NoSuchFile(place.name) if error else _failed(place, status)


def _failed(place: Place, status: Status, *, what: str = "", takes_room: bool = False) -> TransportError:
    """The error of a status, by itself. `takes_room`: of a disk, where version 3 has one code for a full one and most
    else; `what` is said before."""
    error = ERRORS.get(status.code)
    return error(place.name) if error else TransportFailed(place.name, what + _says(status, takes_room=takes_room))


def _says(status: Status, *, takes_room: bool) -> str:
    nothing_more = status.code == Code.FAILURE and status.message.lower() in ("", "failure")
    return f"the server says: {status}" + (" (its disk may be full)" if takes_room and nothing_more else "")


def _status(answer: sftp.Answer) -> Status:
    """What was said, where a status or something else was asked for."""
    return answer if isinstance(answer, Status) else Status(Code.BAD_MESSAGE, f"{type(answer).__name__}, unasked")


def _refused(answer: sftp.Answer) -> Status | None:
    """The status that says that something was not done."""
    status = _status(answer)
    return None if status.code == Code.OK else status


# -- what asks


def look(place: Place) -> Talk[Attributes | None]:
    """What is there; None where nothing is."""
    (answer,) = yield [sftp.stat(place.path)]
    if isinstance(answer, Attributes):
        return answer
    yield from _nothing(place, answer)
    return None


def _nothing(place: Place, answer: sftp.Answer) -> Talk[None]:
    """Raise why nothing can be asked of it, but where that is because it is not there."""
    status = _status(answer)
    if status.code != Code.NO_SUCH_FILE:
        error = yield from explain(place, status)
        if not isinstance(error, NoSuchFile | NotADirectory):
            raise error


def must(place: Place, talk: Talk[Result | None]) -> Talk[Result]:
    """The same talk where what is asked for must be there."""
    found = yield from talk
    if found is None:
        raise (yield from explain(place, Status(Code.NO_SUCH_FILE)))
    return found


def names(place: Place, undo: list[Request]) -> Talk[list[str] | None]:
    """The names in a folder, sorted; None where there is none. One that is not UTF-8 cannot be a path of a transport,
    and is left out."""
    for times in (*LISTED, READ_ON):
        opened, found = yield [sftp.open_directory(place.path), sftp.stat(place.path)]
        if not isinstance(opened, Handle):
            if isinstance(found, Attributes) and found.kind is not EntryKind.DIRECTORY:
                raise NotADirectory(place.name)
            yield from _nothing(place, opened)
            return None
        ask, close = sftp.read_directory(opened.handle), sftp.close(opened.handle)
        undo[:] = [close]
        if times == READ_ON:
            break
        *answers, _ = yield [*[ask] * times, close]
        undo.clear()
        parts = _parts(place, answers)
        if len(parts) < times:
            return _sorted(parts)
    try:
        parts = yield from _read_on(place, ask)
    except TransportError:
        yield [close]
        undo.clear()
        raise
    yield [close]
    undo.clear()
    return _sorted(parts)


def _read_on(place: Place, ask: Request) -> Talk[list[Names]]:
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


def _parts(place: Place, answers: Sequence[sftp.Answer]) -> list[Names]:
    """The answers with names in them: less than were asked for where the folder has no more."""
    for answer in answers:
        if not isinstance(answer, Names) and _status(answer).code != Code.EOF:
            raise _failed(place, _status(answer))
    return [answer for answer in answers if isinstance(answer, Names)]


def names_of_folder(place: Place, undo: list[Request]) -> Talk[list[str] | None]:
    """As `names`; None where there is something else, too."""
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


def opened(place: Place) -> Talk[tuple[bytes, Attributes] | None]:
    """The handle of a file to read, and what the file is; None where there is none."""
    answer, found = yield _opening(place)
    return (yield from _opened(place, answer, found))


def _opening(place: Place) -> list[Request]:
    return [sftp.open_file(place.path, Open.READ), sftp.stat(place.path)]


def _opened(place: Place, answer: sftp.Answer, found: sftp.Answer) -> Talk[tuple[bytes, Attributes] | None]:
    if isinstance(found, Attributes) and found.kind is not EntryKind.FILE:
        if isinstance(answer, Handle):
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
    """Whether the server has said that the file ends in it."""

    def ask(self, handle: bytes) -> Request:
        return sftp.read(handle, self.offset + len(self.got), self.size - len(self.got))

    def take(self, place: Place, answer: sftp.Answer) -> None:
        if isinstance(answer, Content):
            self.got += answer.content[: self.size - len(self.got)]
        elif (status := _status(answer)).code == Code.EOF:
            self.ended = True
        else:
            raise _failed(place, status)

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
    return [b"".join(each) for each in parts]


def read(place: Place, handle: bytes, ranges: Sequence[tuple[int, int]]) -> Talk[list[bytes]]:
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
    place: Place, handle: bytes, ranges: Sequence[tuple[int, int]], undo: list[Request], others: Sequence[bytes] = ()
) -> Talk[list[_Piece]]:
    """Ask for all of them, each range until it comes short, and close the file in the last flight, and `others`."""
    pieces, ended = list[_Piece](), set[int]()
    to_come = _pieces(ranges, ended)
    closes, last = [sftp.close(each) for each in (handle, *others)], False
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


def content(place: Place, undo: list[Request]) -> Talk[bytes | None]:
    """All of a file, whose size is asked for first, in two trips if that flies together; None where there is none."""
    for _ in range(TRIES):
        found = yield from opened(place)
        if found is None:
            return None
        whole = yield from _read_whole(place, *found, undo)
        if whole is not None:
            return whole
    raise TransportFailed(place.name, "it is another each time it is read")


def _read_whole(
    place: Place, handle: bytes, attributes: Attributes, undo: list[Request], others: Sequence[bytes] = ()
) -> Talk[bytes | None]:
    """All of a file; None where another file was opened than was looked at."""
    # One byte more than there should be: who gets it has opened another.
    pieces = yield from _read_once(place, handle, [(0, attributes.size + 1)], undo, others)
    whole = b"".join(piece.got for piece in pieces)
    return whole if len(whole) == attributes.size else None


def published(place: Place, undo: list[Request]) -> Talk[bytes | None]:
    """All of what was published, in as many trips as `content`: both forms are asked for at once."""
    for _ in range(TRIES):
        file, found, in_folder, record = yield [*_opening(place), *_opening(place.record)]
        is_folder = isinstance(found, Attributes) and found.kind is EntryKind.DIRECTORY
        if is_folder or isinstance(in_folder, Handle):
            at, opening = place.record, _opened(place.record, in_folder, record)
            others = [file.handle] if isinstance(file, Handle) else []  # Some servers open a folder.
        else:
            at, opening, others = place, _opened(place, file, found), []
        opened_file = yield from opening
        if opened_file is None:
            if others:
                yield [sftp.close(each) for each in others]
            return None
        whole = yield from _read_whole(at, *opened_file, undo, others)
        if whole is not None:
            return whole
    raise TransportFailed(place.name, "it is another each time it is read")


def read_ranges(place: Place, ranges: Sequence[tuple[int, int]], undo: list[Request]) -> Talk[list[bytes]]:
    """Ranges of a file in two trips; shorter only at its end."""
    for _ in range(TRIES):
        handle, attributes = yield from must(place, opened(place))
        pieces = yield from _read_once(place, handle, ranges, undo)
        if all(not piece.short or piece.ended or piece.offset + len(piece.got) >= attributes.size for piece in pieces):
            return _joined(ranges, pieces)
    raise TransportFailed(place.name, "it is another each time it is read")


def real_path(place: Place) -> Talk[bytes]:
    """Where it leads; of what does not exist, where the last folder that does leads, and the rest."""
    at = [Place(place.root, ""), *place.above, place]
    answers = yield [sftp.real_path(each.path) for each in at]
    for each, answer in zip(reversed(at), reversed(answers), strict=True):
        if isinstance(answer, Names) and len(answer.names) == 1:
            rest = place.name[len(each.name) :].strip("/").encode()
            return answer.names[0].rstrip(b"/") + (b"/" + rest if rest else b"") or b"/"
    raise _failed(place, _status(answers[0]))


# -- what changes


def create(place: Place) -> Talk[bytes]:
    """The handle of a new file."""
    how = Open.WRITE | Open.CREATE | Open.EXCLUSIVE
    answer, there = yield [sftp.open_file(place.path, how), sftp.lstat(place.path)]
    if isinstance(answer, Handle):
        return answer.handle
    raise (yield from _taken(place, answer, there))


def _taken(place: Place, answer: sftp.Answer, there: sftp.Answer) -> Talk[TransportError]:
    """Why a name cannot be had: somebody has it, or another reason."""
    if isinstance(there, Attributes):
        return FileExists(place.name)
    error = yield from explain(place, _status(answer))
    return _failed(place, _status(answer), takes_room=True) if isinstance(error, TransportFailed) else error


def put(place: Place, whole: bytes, *, fsync: bool, undo: list[Request]) -> Talk[None]:
    """A new file with that content, durable where the server has `FSYNC`. What does not succeed whole is left torn."""
    handle = yield from create(place)
    undo[:] = [sftp.close(handle), sftp.remove(place.path)]
    writes = [
        sftp.write(handle, start, memoryview(whole)[start : start + sftp.PIECE])
        for start in range(0, len(whole), sftp.PIECE)
    ]
    # All at once: a sync after a write that failed makes nothing worse, and what came of each is looked at.
    answers = yield [*writes, *finish(handle, fsync=fsync)]
    undo[:] = [sftp.remove(place.path)]
    check_written(place, answers[: len(writes)])
    check_finished(place, answers[len(writes) :])


def finish(handle: bytes, *, fsync: bool) -> list[Request]:
    """Make what was written durable, and close the file."""
    return [*([sftp.fsync(handle)] if fsync else []), sftp.close(handle)]


def check_written(place: Place, answers: Iterable[sftp.Answer]) -> None:
    """Raise why something was not written."""
    for answer in answers:
        if refused := _refused(answer):
            raise _failed(place, refused, what="not written, ", takes_room=True)


def check_finished(place: Place, answers: Iterable[sftp.Answer]) -> None:
    """Raise why it may not be durable: always `TransportFailed`, since a sync is never tried again."""
    for answer in answers:
        if refused := _refused(answer):
            raise TransportFailed(place.name, f"sync failed, {_says(refused, takes_room=True)}")


def make_directory(place: Place, undo: list[Request]) -> Talk[None]:
    """One folder."""
    answer, there = yield [sftp.make_directory(place.path), sftp.lstat(place.path)]
    if _refused(answer):
        raise (yield from _taken(place, answer, there))
    undo[:] = [sftp.remove_directory(place.path)]


def remove_directory(place: Place) -> Talk[None]:
    """One empty folder."""
    answer, there = yield [sftp.remove_directory(place.path), sftp.lstat(place.path)]
    if refused := _refused(answer):
        if isinstance(there, Attributes) and there.kind is not EntryKind.DIRECTORY:
            raise NotADirectory(place.name)
        error = yield from explain(place, refused)
        if isinstance(there, Attributes) and isinstance(error, TransportFailed) and (yield from names(place, [])):
            raise DirectoryNotEmpty(place.name)
        raise error


def delete(place: Place) -> Talk[None]:
    """A file."""
    (answer,) = yield [sftp.remove(place.path)]
    if refused := _refused(answer):
        raise (yield from explain(place, refused))


def rename(source: Place, target: Place, *, posix: bool) -> Talk[None]:
    """Another name. Without `POSIX_RENAME` it is the server's affair whether a file that has the name is replaced;
    where it refuses nothing else is tried: to delete that file first would leave a moment without either."""
    answers = yield _renaming(source, target, posix=posix)
    yield from _check_renamed(source, target, answers, posix=posix)


def _rename(source: Place, target: Place, *, posix: bool) -> Request:
    return (sftp.posix_rename if posix else sftp.rename)(source.path, target.path)


def _renaming(source: Place, target: Place, *, posix: bool) -> list[Request]:
    # What had the name is looked at before and after: of two who take turns at it one may let go of it in between.
    return [
        sftp.lstat(target.path),
        _rename(source, target, posix=posix),
        sftp.lstat(source.path),
        sftp.lstat(target.path),
    ]


def _check_renamed(source: Place, target: Place, answers: Sequence[sftp.Answer], *, posix: bool) -> Talk[None]:
    before, answer, left, after = answers
    refused = _refused(answer)
    if refused is None:
        return
    if refused.code == Code.PERMISSION_DENIED:
        raise PermissionDenied(target.name)
    if not isinstance(left, Attributes):
        raise (yield from explain(source, _status(left)))
    there = after if isinstance(after, Attributes) else before
    if isinstance(there, Attributes):
        raise _in_the_way(target, left.kind, there.kind, refused, posix=posix)
    raise (yield from explain(target, refused))


def _in_the_way(target: Place, moved: EntryKind, there: EntryKind, refused: Status, *, posix: bool) -> TransportError:
    if moved is EntryKind.DIRECTORY:
        return DirectoryNotEmpty(target.name) if there is EntryKind.DIRECTORY else NotADirectory(target.name)
    if there is EntryKind.DIRECTORY:
        return TransportFailed(target.name, "is a directory")
    return _failed(target, refused) if posix else NotSupported("rename over a file")


def link(source: Place, target: Place) -> Talk[None]:
    """A second name of a file, which nothing has but an empty folder. `NotSupported` where that is refused for another
    reason than that the name is taken or something is missing: version 3 does not tell whether there are links."""
    _, answer, left, there = yield [
        sftp.remove_directory(target.path),
        sftp.hardlink(source.path, target.path),
        sftp.lstat(source.path),
        sftp.lstat(target.path),
    ]
    if refused := _refused(answer):
        if isinstance(left, Attributes) and left.kind is not EntryKind.FILE:
            raise TransportFailed(source.name, NO_FILE)
        error = yield from _unpublished(source, target, refused, left, there)
        raise NotSupported("link") if isinstance(error, TransportFailed | PermissionDenied) else error


def publish_as_folder(source: Place, target: Place, *, posix: bool) -> Talk[None]:
    """As of `Transport`, in one flight, and without a sync of the folder. A queue of requests does not stop at an
    error, so each is harmless whatever became of those before it."""
    folder = Place(source.root, published_folder(source.name))
    _, made, moved, answer, _, _, _, left, there = yield [
        sftp.remove_directory(target.path),
        sftp.make_directory(folder.path),
        _rename(source, folder.record, posix=posix),
        _rename(folder, target, posix=posix),
        # Refused when it was published: then there is no such folder.
        _rename(folder.record, source, posix=posix),
        sftp.remove_directory(folder.path),
        # Without a source, the folder was renamed empty.
        sftp.remove_directory(target.path),
        sftp.lstat(source.path),
        sftp.lstat(target.path),
    ]
    if _refused(moved) or _refused(answer):
        why = next(filter(_refused, (made, moved, answer)))
        raise (yield from _unpublished(source, target, why, left, there))


def _unpublished(
    source: Place, target: Place, answer: sftp.Answer, left: sftp.Answer, there: sftp.Answer
) -> Talk[TransportError]:
    """Why a file was not published; `left` and `there`: what the names are now."""
    if not isinstance(left, Attributes):
        return (yield from explain(source, _status(left)))
    return (yield from _taken(target, answer, there))


def withdraw(place: Place, aside: Place, *, posix: bool) -> Talk[None]:
    """Remove what was published: it is renamed first in either form, so that it takes one flight."""
    *answers, _, _, _ = yield [
        *_renaming(place, aside, posix=posix),
        sftp.remove(aside.path),
        sftp.remove(aside.record.path),
        sftp.remove_directory(aside.path),
    ]
    yield from _check_renamed(place, aside, answers, posix=posix)


def open_to_sync(place: Place, *, fsync: bool) -> Talk[bytes | None]:
    """The handle of a folder whose names are to be made durable; None where the server cannot: it must have `FSYNC`,
    and open folders."""
    asked = [sftp.stat(place.path), *([sftp.open_file(place.path, Open.READ)] if fsync else [])]
    found, *more = yield asked
    handles = [each.handle for each in more if isinstance(each, Handle)]
    if isinstance(found, Attributes) and found.kind is EntryKind.DIRECTORY:
        return handles[0] if handles else None
    if handles:
        yield [sftp.close(each) for each in handles]
    if isinstance(found, Attributes):
        raise NotADirectory(place.name)
    raise (yield from explain(place, _status(found)))


def sync_directory(place: Place, opened: bytes | None, *, fsync: bool, undo: list[Request]) -> Talk[None]:
    """Make the names in a folder durable, as far as the server can. `opened`: its handle, where there is one."""
    handle = opened or (yield from open_to_sync(place, fsync=fsync))
    if handle is not None:
        undo[:] = [sftp.close(handle)]
        answers = yield finish(handle, fsync=True)
        undo.clear()
        check_finished(place, answers)

"""The talks (see `sftp_talks`) of the SFTP operations that change files.

A talk puts the requests that undo it into `undo`. A caller that runs several talks at once sends these requests if an
earlier talk fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from transports import sftp_packets as sftp
from transports.base import EntryKind, published_folder
from transports.errors import (
    DirectoryNotEmpty,
    FileExists,
    NotADirectory,
    NotSupported,
    PermissionDenied,
    TransportError,
    TransportFailed,
)
from transports.sftp_packets import NOT_SENT, Attributes, Code, Following, Handle, Open, Request, Status
from transports.sftp_talks import (
    EARLY,
    NO_FILE,
    Asked,
    RemotePath,
    Talk,
    explain,
    failed,
    names,
    refusal,
    said,
    status_of,
)


def create(place: RemotePath) -> Talk[bytes]:
    """Create a file and return its handle."""
    how = Open.WRITE | Open.CREATE | Open.EXCLUSIVE
    answer, there = yield [sftp.open_file(place.path, how), sftp.lstat(place.path)]
    return (yield from _created(place, answer, there))


def _created(place: RemotePath, answer: sftp.Answer, there: sftp.Answer) -> Talk[bytes]:
    if isinstance(answer, Handle):
        return answer.handle
    raise (yield from _taken(place, answer, there))


def _taken(place: RemotePath, answer: sftp.Answer, there: sftp.Answer) -> Talk[TransportError]:
    """Return the error for a refused creation: `FileExists` if the name is taken, else the error that explains the
    refusal."""
    if isinstance(there, Attributes):
        return FileExists(place.name)
    error = yield from explain(place, status_of(answer))
    return failed(place, status_of(answer), takes_room=True) if isinstance(error, TransportFailed) else error


def put(place: RemotePath, whole: bytes, *, fsync: bool, undo: list[Request]) -> Talk[None]:
    """Create a file with the content `whole`, durable if the server has `FSYNC`. An error may leave a partial file."""
    writes: list[Callable[[bytes], Request]] = [
        partial(_write_piece, start, memoryview(whole)[start : start + sftp.PIECE])
        for start in range(0, len(whole), sftp.PIECE)
    ]
    # Send all requests at once: a sync after a failed write does no harm, and each answer is checked.
    rest = [*writes, *([sftp.fsync] if fsync else []), sftp.close]
    early = [Following(each, changes=True) for each in rest] if len(writes) <= EARLY else []
    how = Open.WRITE | Open.CREATE | Open.EXCLUSIVE
    answer, there, *answers = yield [sftp.open_file(place.path, how), sftp.lstat(place.path), *early]
    handle = yield from _created(place, answer, there)
    if not answers or answers[-1] is NOT_SENT:
        undo[:] = [sftp.close(handle), sftp.remove(place.path)]
        answers = list((yield [each(handle) for each in rest]))
    undo[:] = [sftp.remove(place.path)]
    check_written(place, answers[: len(writes)])
    check_finished(place, answers[len(writes) :])


def _write_piece(offset: int, piece: memoryview, handle: bytes) -> Request:
    return sftp.write(handle, offset, piece)


def finish(handle: bytes, *, fsync: bool) -> list[Request]:
    """Return the requests that sync a file, if the server has `FSYNC`, and close it."""
    return [*([sftp.fsync(handle)] if fsync else []), sftp.close(handle)]


def check_written(place: RemotePath, answers: Iterable[sftp.Answer]) -> None:
    """Raise the error of the first write that was refused."""
    for answer in answers:
        if refused := refusal(answer):
            raise failed(place, refused, what="not written, ", takes_room=True)


def check_finished(place: RemotePath, answers: Iterable[sftp.Answer]) -> None:
    """Raise `TransportFailed` if a sync or close was refused. No other error is raised, because a failed sync must
    never be retried."""
    for answer in answers:
        if refused := refusal(answer):
            raise TransportFailed(place.name, f"sync failed, {said(refused, takes_room=True)}")


def make_directory(place: RemotePath, undo: list[Request]) -> Talk[None]:
    """Create one folder."""
    answer, there = yield [sftp.make_directory(place.path), sftp.lstat(place.path)]
    if refusal(answer):
        raise (yield from _taken(place, answer, there))
    undo[:] = [sftp.remove_directory(place.path)]


def remove_directory(place: RemotePath) -> Talk[None]:
    """Remove one empty folder."""
    answer, there = yield [sftp.remove_directory(place.path), sftp.lstat(place.path)]
    if refused := refusal(answer):
        if isinstance(there, Attributes) and there.kind is not EntryKind.DIRECTORY:
            raise NotADirectory(place.name)
        error = yield from explain(place, refused)
        if isinstance(there, Attributes) and isinstance(error, TransportFailed) and (yield from names(place, [])):
            raise DirectoryNotEmpty(place.name)
        raise error


def delete(place: RemotePath) -> Talk[None]:
    """Remove a file."""
    (answer,) = yield [sftp.remove(place.path)]
    if refused := refusal(answer):
        raise (yield from explain(place, refused))


def rename(source: RemotePath, target: RemotePath, *, posix: bool) -> Talk[None]:
    """Rename a file or folder. Without `POSIX_RENAME` the server decides whether a file at `target` is replaced. If it
    refuses, raise `NotSupported`: to delete that file first would leave a moment without either file."""
    answers = yield _renaming(source, target, posix=posix)
    yield from _check_renamed(source, target, answers, posix=posix)


def _rename(source: RemotePath, target: RemotePath, *, posix: bool) -> Request:
    return (sftp.posix_rename if posix else sftp.rename)(source.path, target.path)


def _renaming(source: RemotePath, target: RemotePath, *, posix: bool) -> list[Request]:
    # Look at the target before and after: a concurrent client may free the name in between.
    return [
        sftp.lstat(target.path),
        _rename(source, target, posix=posix),
        sftp.lstat(source.path),
        sftp.lstat(target.path),
    ]


def _check_renamed(
    source: RemotePath, target: RemotePath, answers: Sequence[sftp.Answer], *, posix: bool
) -> Talk[None]:
    before, answer, left, after = answers
    refused = refusal(answer)
    if refused is None:
        return
    if refused.code == Code.PERMISSION_DENIED:
        raise PermissionDenied(target.name)
    if not isinstance(left, Attributes):
        raise (yield from explain(source, status_of(left)))
    there = after if isinstance(after, Attributes) else before
    if isinstance(there, Attributes):
        raise _in_the_way(target, left.kind, there.kind, refused, posix=posix)
    raise (yield from explain(target, refused))


def _in_the_way(
    target: RemotePath, moved: EntryKind, there: EntryKind, refused: Status, *, posix: bool
) -> TransportError:
    if moved is EntryKind.DIRECTORY:
        return DirectoryNotEmpty(target.name) if there is EntryKind.DIRECTORY else NotADirectory(target.name)
    if there is EntryKind.DIRECTORY:
        return TransportFailed(target.name, "is a directory")
    return failed(target, refused) if posix else NotSupported("rename over a file")


def link(source: RemotePath, target: RemotePath) -> Talk[None]:
    """Give a file a second name, which must be free or an empty folder. A refusal raises `NotSupported` unless the name
    is taken or a file is missing, because version 3 does not tell whether a file system has links."""
    _, answer, left, there = yield [
        sftp.remove_directory(target.path),
        sftp.hardlink(source.path, target.path),
        sftp.lstat(source.path),
        sftp.lstat(target.path),
    ]
    if refused := refusal(answer):
        if isinstance(left, Attributes) and left.kind is not EntryKind.FILE:
            raise TransportFailed(source.name, NO_FILE)
        error = yield from _unpublished(source, target, refused, left, there)
        raise NotSupported("link") if isinstance(error, TransportFailed | PermissionDenied) else error


def publish_as_folder(source: RemotePath, target: RemotePath, *, posix: bool) -> Talk[None]:
    """Publish as `Transport.publish_as_folder` does, in one flight and without a sync of the folder. The server
    continues after a failed request, so each request must be harmless even if earlier ones failed."""
    folder = RemotePath(source.root, published_folder(source.name))
    _, made, moved, answer, _, _, _, left, there = yield [
        sftp.remove_directory(target.path),
        sftp.make_directory(folder.path),
        _rename(source, folder.record, posix=posix),
        _rename(folder, target, posix=posix),
        # Refused if the file was published: the temporary folder is gone then.
        _rename(folder.record, source, posix=posix),
        sftp.remove_directory(folder.path),
        # If the source is missing, an empty folder was renamed: remove it.
        sftp.remove_directory(target.path),
        sftp.lstat(source.path),
        sftp.lstat(target.path),
    ]
    if refusal(moved) or refusal(answer):
        why = next(filter(refusal, (made, moved, answer)))
        raise (yield from _unpublished(source, target, why, left, there))


def _unpublished(
    source: RemotePath, target: RemotePath, answer: sftp.Answer, left: sftp.Answer, there: sftp.Answer
) -> Talk[TransportError]:
    """Return the error for a file that was not published. `left` and `there`: the answers to a later `lstat` of source
    and target."""
    if not isinstance(left, Attributes):
        return (yield from explain(source, status_of(left)))
    return (yield from _taken(target, answer, there))


def withdraw(place: RemotePath, aside: RemotePath, *, posix: bool) -> Talk[None]:
    """Remove a published file. It is renamed to `aside` and deleted there in both possible forms, all in one flight."""
    *answers, _, _, _ = yield [
        *_renaming(place, aside, posix=posix),
        sftp.remove(aside.path),
        sftp.remove(aside.record.path),
        sftp.remove_directory(aside.path),
    ]
    yield from _check_renamed(place, aside, answers, posix=posix)


def sync_directory(place: RemotePath, *, fsync: bool, undo: list[Request]) -> Talk[None]:
    """Make the names in a folder durable if the server has `FSYNC` and opens folders, else only check the folder."""
    asked: list[Asked] = [sftp.stat(place.path)]
    if fsync:
        asked += [sftp.open_file(place.path, Open.READ), Following(sftp.fsync), Following(sftp.close)]
    found, *answers = yield asked
    handle, *answers = answers or [NOT_SENT]
    is_closed = bool(answers) and answers[-1] is not NOT_SENT
    if not (isinstance(found, Attributes) and found.kind is EntryKind.DIRECTORY):
        if isinstance(handle, Handle) and not is_closed:
            yield [sftp.close(handle.handle)]
        if isinstance(found, Attributes):
            raise NotADirectory(place.name)
        raise (yield from explain(place, status_of(found)))
    if isinstance(handle, Handle):
        if not is_closed:
            undo[:] = [sftp.close(handle.handle)]
            answers = list((yield finish(handle.handle, fsync=True)))
            undo.clear()
        check_finished(place, answers)

"""transports.sftp_talks: what is asked in which flight, and what is made of answers that a real server gives seldom."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

import pytest

from transports import sftp_changes as changes
from transports import sftp_packets as sftp
from transports import sftp_talks as talks
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
from transports.sftp_packets import NOT_SENT, Answer, Attributes, Code, Content, Handle, Names, Request, Status
from transports.sftp_talks import RemotePath, Talk

Result = TypeVar("Result")

PLACE = RemotePath("/srv", "folder/x")
OK = Status(Code.OK)
EOF = Status(Code.EOF)
ABSENT = Status(Code.NO_SUCH_FILE, "No such file")
FAILURE = Status(Code.FAILURE, "Failure")
OPEN = Handle(b"h")
FOLDER = Attributes(0, 0o40755, 0)


def file(size: int) -> Attributes:
    return Attributes(size, 0o100644, 0)


def alone(talk: Talk[Result]) -> Generator[list[Request], Sequence[Any], Result]:
    """The same talk, with a server whose handles cannot be predicted."""
    try:
        asked = next(talk)
        while True:
            answers = iter((yield [each for each in asked if isinstance(each, Request)]))
            asked = talk.send([next(answers) if isinstance(each, Request) else NOT_SENT for each in asked])
    except StopIteration as ended:
        result: Result = ended.value
        return result


def have(spoken: Talk[Result], *flights: Sequence[Any]) -> Result:
    """The result of a talk in which each flight is answered so."""
    talk = alone(spoken)
    asked = next(talk)
    try:
        for answers in flights:
            assert len(asked) == len(answers), asked
            asked = talk.send(answers)
    except StopIteration as ended:
        assert answers is flights[-1]
        result: Result = ended.value
        return result
    raise AssertionError(f"it asks on: {asked}")


def refused(talk: Talk[object], *flights: Sequence[Any]) -> TransportError:
    with pytest.raises(TransportError) as wrong:
        have(talk, *flights)
    return wrong.value


# -- errors


@pytest.mark.parametrize(
    ("code", "above", "error"),
    [
        (Code.NO_SUCH_FILE, FOLDER, NoSuchFile("folder/x")),
        (Code.NO_SUCH_FILE, ABSENT, NoSuchFile("folder/x")),
        (Code.NO_SUCH_FILE, file(1), NotADirectory("folder/x")),
        (Code.FAILURE, file(1), NotADirectory("folder/x")),
        (Code.FAILURE, FOLDER, TransportFailed("folder/x", "the server says: why")),
        (Code.BAD_MESSAGE, FOLDER, TransportFailed("folder/x", "the server says: why")),
        (Code.PERMISSION_DENIED, None, PermissionDenied("folder/x")),
        (Code.NO_SPACE, None, NoSpace("folder/x")),
        (Code.QUOTA_EXCEEDED, None, NoSpace("folder/x")),
        (Code.FILE_EXISTS, None, FileExists("folder/x")),
        (Code.WRITE_PROTECT, None, PermissionDenied("folder/x")),
        (Code.DIRECTORY_NOT_EMPTY, None, DirectoryNotEmpty("folder/x")),
        (Code.NOT_A_DIRECTORY, None, NotADirectory("folder/x")),
    ],
)
def test_what_a_status_means(code: Code, above: Answer | None, error: TransportError) -> None:
    found = refused(changes.delete(PLACE), [Status(code, "why")], *([[above]] if above else []))
    assert (type(found), found.wire_arguments()) == (type(error), error.wire_arguments())


def test_an_answer_of_another_kind_is_a_failure() -> None:
    assert "Content, unasked" in str(refused(changes.delete(RemotePath("/srv", "x")), [Content(b"")]))
    assert "Handle, unasked" in str(refused(talks.stat(RemotePath("/srv", "x")), [OPEN]))


# -- reading


@pytest.mark.parametrize("first", [Content(b"longer"), Content(b"s"), EOF])
def test_a_file_that_was_replaced_between_is_read_again(first: Answer) -> None:
    found = have(talks.content(PLACE, []), [OPEN, file(5)], [first, OK], [OPEN, file(4)], [Content(b"last"), OK])
    assert found == b"last"


def test_a_file_that_is_always_another_is_gone_or_fails() -> None:
    rounds = [[OPEN, file(5)], [Content(b"x"), OK]] * talks.TRIES
    assert "changes each time" in str(refused(talks.content(PLACE, []), *rounds))
    assert "changes each time" in str(refused(talks.read_ranges(PLACE, [(0, 3)], []), *rounds))
    assert have(talks.content(PLACE, []), [OPEN, ABSENT], [Content(b"x"), OK], [ABSENT, ABSENT]) is None
    assert "Failure" in str(refused(talks.content(PLACE, []), [OPEN, file(5)], [FAILURE, OK]))


def test_what_is_no_file_is_not_read() -> None:
    for kind in (FOLDER, Attributes(0, 0o10644, 0)):
        assert "not a plain file" in str(refused(talks.content(PLACE, []), [OPEN, kind], [OK]))
        assert "not a plain file" in str(refused(talks.content(PLACE, []), [FAILURE, kind]))


def test_ranges_of_an_open_file_are_read_to_their_end() -> None:
    """A server may give less than it was asked for; the file ends where it says so."""
    talk = talks.read(PLACE, b"h", [(10, 8), (0, 0), (90, 9)])
    assert next(talk) == [sftp.read(b"h", 10, 8), sftp.read(b"h", 90, 9)]
    assert talk.send([Content(b"abc"), Content(b"xy")]) == [sftp.read(b"h", 13, 5), sftp.read(b"h", 92, 7)]
    with pytest.raises(StopIteration) as ended:
        talk.send([Content(b"defgh, and more"), EOF])
    assert ended.value.value == [b"abcdefgh", b"", b"xy"]


def test_ranges_short_before_it_are_read_again() -> None:
    rounds = [[OPEN, file(5)], [Content(b"a"), OK], [OPEN, file(5)], [Content(b"abc"), OK]]
    assert have(talks.read_ranges(PLACE, [(0, 3)], []), *rounds) == [b"abc"]


def test_a_size_is_a_claim_of_the_server() -> None:
    """No more is asked for than flies together, and nothing behind the end of the file."""
    claimed = 10 * talks.PIECES * sftp.PIECE
    reads = talks.read(PLACE, b"h", [(0, claimed)])
    assert len(next(reads)) == talks.PIECES
    with pytest.raises(StopIteration) as ended:
        reads.send([Content(b"x" * sftp.PIECE), *[EOF] * (talks.PIECES - 1)])
    assert ended.value.value == [b"x" * sftp.PIECE]
    for spoken in (talks.content(PLACE, []), talks.read_ranges(PLACE, [(0, claimed)], [])):
        talk = alone(spoken)
        next(talk)
        assert len(talk.send([OPEN, file(claimed)])) == talks.PIECES
        assert talk.send([Content(b"x"), *[EOF] * (talks.PIECES - 1)]) == [sftp.close(b"h")]


def test_a_large_file_takes_more_flights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talks, "PIECES", 2)
    whole = [Content(b"a" * sftp.PIECE), Content(b"b" * sftp.PIECE)]
    text = b"a" * sftp.PIECE + b"b" * sftp.PIECE + b"c"
    found = [OPEN, file(len(text))]
    assert have(talks.content(PLACE, []), found, whole, [Content(b"c"), OK]) == text
    ranges = [(0, len(text) + 9), (0, 1)]
    first = [Content(b"c"), Content(b"a")]
    assert have(talks.read_ranges(PLACE, ranges, []), found, whole, first, [OK]) == [text, b"a"]
    assert have(talks.read(PLACE, b"h", ranges), whole, first, [EOF]) == [text, b"a"]


def test_a_read_that_fails_before_the_last_flight_closes_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talks, "PIECES", 2)
    undo: list[Request] = []
    talk = alone(talks.content(PLACE, undo))
    next(talk)
    talk.send([OPEN, file(3 * sftp.PIECE)])
    assert undo == [sftp.close(b"h")]
    assert talk.send([FAILURE, FAILURE]) == [sftp.close(b"h")]
    with pytest.raises(TransportFailed, match="Failure"):
        talk.send([OK])
    assert undo == []


# -- names


def test_more_names_than_were_asked_for_are_asked_for_anew() -> None:
    some = Names((b"a",))
    first, second = talks.LISTED[:2]
    rounds = [[OPEN, FOLDER], [*[some] * first, OK], [OPEN, FOLDER], [Names((b"b",)), *[EOF] * (second - 1), OK]]
    assert have(talks.names(PLACE, []), *rounds) == ["b"]


def too_few(part: Names) -> list[list[Answer]]:
    """Flights that bring only such parts, until the folder is open to be read on."""
    rounds: list[list[Answer]] = []
    for times in talks.LISTED:
        rounds += [[OPEN, FOLDER], [*[part] * times, OK]]
    return [*rounds, [OPEN, FOLDER]]


def test_a_server_may_give_one_name_at_a_time() -> None:
    """However many there are."""
    each = [Names((b"%04d" % number,)) for number in range(2 * talks.READ_ON + 3)]
    last: list[Answer] = [*each[2 * talks.READ_ON :], *[EOF] * (talks.READ_ON - 3)]
    flights: list[Sequence[Answer]] = [each[: talks.READ_ON], each[talks.READ_ON : 2 * talks.READ_ON], last, [OK]]
    undo: list[Request] = []
    assert have(talks.names(PLACE, undo), *too_few(each[0]), *flights) == [part.names[0].decode() for part in each]
    assert undo == []


@pytest.mark.parametrize("part", [Names((b"a", b"b")), Names((b"a" * 100,)), Names(())])
def test_a_folder_without_end(monkeypatch: pytest.MonkeyPatch, part: Names) -> None:
    """The names that came are counted."""
    monkeypatch.setattr(talks, "MOST_NAMES", talks.READ_ON * (64 + sum(64 + len(name) for name in part.names)))
    undo: list[Request] = []
    count = 2 * talks.READ_ON * len(part.names)
    wrong = str(refused(talks.names(PLACE, undo), *too_few(part), *[[part] * talks.READ_ON] * 2, [OK]))
    assert wrong == f"'folder/x': it has more than {count:,} names: too many to list"
    assert undo == []


def test_a_large_folder_is_closed_when_it_cannot_be_read_on() -> None:
    undo: list[Request] = []
    talk = alone(talks.names(PLACE, undo))
    asked = next(talk)
    for answers in too_few(Names((b"a",))):
        asked = talk.send(answers)
    assert (asked, undo) == ([sftp.read_directory(b"h")] * talks.READ_ON, [sftp.close(b"h")])
    assert talk.send([FAILURE] * talks.READ_ON) == [sftp.close(b"h")]
    with pytest.raises(TransportFailed, match="Failure"):
        talk.send([OK])
    assert undo == []


# -- writing


@pytest.mark.parametrize(
    ("answers", "error", "why"),
    [
        ([Status(Code.NO_SPACE), OK, OK], NoSpace, "no space left to write 'folder/x'"),
        (
            [FAILURE, OK, OK],
            TransportFailed,
            "'folder/x': not written, the server says: Failure (its disk may be full)",
        ),
        (
            [Status(Code.FAILURE, "No space left"), OK, OK],
            TransportFailed,
            "'folder/x': not written, the server says: No space left",
        ),
        (
            [OK, FAILURE, OK],
            TransportFailed,
            "'folder/x': sync failed, the server says: Failure (its disk may be full)",
        ),
        ([OK, Status(Code.NO_SPACE), OK], TransportFailed, "'folder/x': sync failed, the server says: no space"),
        (
            [OK, OK, FAILURE],
            TransportFailed,
            "'folder/x': sync failed, the server says: Failure (its disk may be full)",
        ),
    ],
)
def test_what_is_not_written_is_told(answers: list[Answer], error: type[TransportError], why: str) -> None:
    found = refused(changes.put(PLACE, b"x", fsync=True, undo=[]), [OPEN, file(0)], answers)
    assert (type(found), str(found)) == (error, why)


# -- publishing

SOURCE = RemotePath("/srv", "incoming/a")
DENIED = Status(Code.PERMISSION_DENIED)


@pytest.mark.parametrize(
    ("flights", "error"),
    [
        ([[FOLDER, FAILURE, file(1), file(1)]], FileExists("folder/x")),
        ([[ABSENT, DENIED, file(1), ABSENT]], NotSupported("link")),
        ([[ABSENT, FAILURE, file(1), ABSENT], [FOLDER]], NotSupported("link")),
        ([[ABSENT, ABSENT, file(1), ABSENT], [ABSENT]], NoSuchFile("folder/x")),
        ([[ABSENT, ABSENT, ABSENT, ABSENT], [FOLDER]], NoSuchFile("incoming/a")),
        ([[ABSENT, DENIED, FOLDER, ABSENT]], TransportFailed("incoming/a", "not a plain file")),
    ],
)
def test_why_a_link_is_refused(flights: list[list[Answer]], error: TransportError) -> None:
    found = refused(changes.link(SOURCE, PLACE), *flights)
    assert (type(found), found.wire_arguments()) == (type(error), error.wire_arguments())


FULL = TransportFailed("folder/x", "the server says: Failure (its disk may be full)")


@pytest.mark.parametrize(
    ("flights", "error"),
    [
        # The folder was renamed without the source, and removed.
        ([[ABSENT, OK, ABSENT, OK, ABSENT, ABSENT, OK, ABSENT, ABSENT], [FOLDER]], NoSuchFile("incoming/a")),
        # The name was taken: the source was renamed back.
        ([[FAILURE, OK, OK, FAILURE, OK, OK, FAILURE, file(1), FOLDER]], FileExists("folder/x")),
        ([[ABSENT, FAILURE, *[ABSENT] * 5, file(1), ABSENT], [FOLDER], [FOLDER]], FULL),
        ([[ABSENT, DENIED, *[ABSENT] * 5, file(1), ABSENT]], PermissionDenied("folder/x")),
    ],
)
def test_why_a_folder_is_not_published(flights: list[list[Answer]], error: TransportError) -> None:
    found = refused(changes.publish_as_folder(SOURCE, PLACE, posix=True), *flights)
    assert (type(found), found.wire_arguments()) == (type(error), error.wire_arguments())


def test_a_folder_that_the_server_opens_is_closed() -> None:
    """With the file in it, or where there is none."""
    talk = alone(talks.content(PLACE, [], is_published=True, both=True))
    next(talk)
    asked = talk.send([OPEN, FOLDER, Handle(b"r"), file(1)])
    assert asked == [sftp.read(b"r", 0, 2), sftp.close(b"r"), sftp.close(b"h")]
    talk = alone(talks.content(PLACE, [], is_published=True, both=True))
    next(talk)
    assert talk.send([OPEN, FOLDER, ABSENT, ABSENT]) == [sftp.close(b"h")]


def test_what_was_published_is_read_again_when_it_was_another() -> None:
    rounds = [[OPEN, file(5), FAILURE, FAILURE], [Content(b"x"), OK]] * talks.TRIES
    assert have(talks.content(PLACE, [], is_published=True, both=True), *rounds[:2], [ABSENT] * 4) is None
    assert "changes each time" in str(refused(talks.content(PLACE, [], is_published=True, both=True), *rounds))


# -- what is durable


def test_a_folder_is_synced_where_the_server_can() -> None:
    have(changes.sync_directory(PLACE, fsync=True, undo=[]), [FOLDER, OPEN], [OK, OK])
    have(changes.sync_directory(PLACE, fsync=True, undo=[]), [FOLDER, FAILURE])
    have(changes.sync_directory(PLACE, fsync=False, undo=[]), [FOLDER])
    wrong = refused(changes.sync_directory(PLACE, fsync=True, undo=[]), [FOLDER, OPEN], [FAILURE, OK])
    assert "sync failed" in str(wrong)
    assert isinstance(refused(changes.sync_directory(PLACE, fsync=True, undo=[]), [file(1), OPEN], [OK]), NotADirectory)
    wrong = refused(changes.sync_directory(PLACE, fsync=True, undo=[]), [ABSENT, ABSENT], [FOLDER])
    assert isinstance(wrong, NoSuchFile)

"""transports.sftp_packets: requests as the draft writes them, and answers however they are cut."""

from __future__ import annotations

import stat
import struct

import pytest
from sftp_peers import attributes, content, handle, packet, status, string, version

from transports import sftp_packets as sftp
from transports.base import EntryKind
from transports.sftp_packets import Attributes, BadPacket, Code, Content, Handle, Names, Open, Packets, Status, Version

PATH, OTHER, HANDLE = b"/srv/x", b"/srv/y", b"\x00\x01"

REQUESTS = [
    (sftp.open_file(PATH, Open.READ), 3, string(PATH) + struct.pack(">II", 1, 0)),
    (
        sftp.open_file(PATH, Open.WRITE | Open.CREATE | Open.EXCLUSIVE),
        3,
        string(PATH) + struct.pack(">II", 0x2A, 0),
    ),
    (sftp.close(HANDLE), 4, string(HANDLE)),
    (sftp.read(HANDLE, 1 << 40, 100), 5, string(HANDLE) + struct.pack(">QI", 1 << 40, 100)),
    (sftp.write(HANDLE, 7, memoryview(b"bytes")), 6, string(HANDLE) + struct.pack(">Q", 7) + string(b"bytes")),
    (sftp.lstat(PATH), 7, string(PATH)),
    (sftp.fstat(HANDLE), 8, string(HANDLE)),
    (sftp.open_directory(PATH), 11, string(PATH)),
    (sftp.read_directory(HANDLE), 12, string(HANDLE)),
    (sftp.remove(PATH), 13, string(PATH)),
    (sftp.make_directory(PATH), 14, string(PATH) + struct.pack(">I", 0)),
    (sftp.remove_directory(PATH), 15, string(PATH)),
    (sftp.real_path(PATH), 16, string(PATH)),
    (sftp.stat(PATH), 17, string(PATH)),
    (sftp.rename(PATH, OTHER), 18, string(PATH) + string(OTHER)),
    (sftp.posix_rename(PATH, OTHER), 200, string(b"posix-rename@openssh.com") + string(PATH) + string(OTHER)),
    (sftp.fsync(HANDLE), 200, string(b"fsync@openssh.com") + string(HANDLE)),
]

ANSWERS: list[tuple[bytes, tuple[int, sftp.Answer] | Version]] = [
    (version(3, b"fsync@openssh.com", b"x"), Version(3, frozenset({b"fsync@openssh.com", b"x"}))),
    (status(7, 2, b"No such file"), (7, Status(Code.NO_SUCH_FILE, "No such file"))),
    (packet(101, 7, 4), (7, Status(Code.FAILURE))),
    (handle(8, b"\xff\x00"), (8, Handle(b"\xff\x00"))),
    (content(9, b"some bytes"), (9, Content(b"some bytes"))),
    (attributes(10, 70_000), (10, Attributes(70_000, stat.S_IFREG | 0o644, 0))),
    (packet(105, 11, 0), (11, Attributes(0, 0, 0))),
    (
        packet(105, 12, 0x8000000F, struct.pack(">Q", 5), 0, 0, 0o40755, 1, 99, 1, string(b"name"), string(b"value")),
        (12, Attributes(5, 0o40755, 99)),
    ),
    (
        packet(104, 13, 2, string(b"a"), string(b"-rw a"), 0, string(b"\xff"), string(b""), 0x4, 0o100644),
        (13, Names((b"a", b"\xff"))),
    ),
]


@pytest.mark.parametrize(("request_", "kind", "body"), REQUESTS)
def test_requests(request_: sftp.Request, kind: int, body: bytes) -> None:
    assert request_.packet(77) == struct.pack(">IBI", 5 + len(body), kind, 77) + body


def test_the_first_packet() -> None:
    assert sftp.init() == bytes.fromhex("00000005 01 00000003")


def test_what_is_asked_for_weighs_what_comes_back() -> None:
    assert sftp.read(HANDLE, 0, 30_000).weight - sftp.read(HANDLE, 0, 0).weight == 30_000
    assert sftp.write(HANDLE, 0, bytes(30_000)).weight > 30_000


def test_answers_all_at_once() -> None:
    assert list(Packets().receive(b"".join(said for said, _ in ANSWERS))) == [meant for _, meant in ANSWERS]


def test_answers_byte_by_byte() -> None:
    packets = Packets()
    stream = b"".join(said for said, _ in ANSWERS)
    found = [each for at in range(len(stream)) for each in packets.receive(stream[at : at + 1])]
    assert found == [meant for _, meant in ANSWERS]


@pytest.mark.parametrize("said", [said for said, _ in ANSWERS[3:]])
def test_an_answer_that_is_cut_short_is_none(said: bytes) -> None:
    short = struct.pack(">I", len(said) - 5) + said[4:-1]
    with pytest.raises(BadPacket, match=r"expected \d+ bytes, got"):
        list(Packets().receive(short))


@pytest.mark.parametrize(
    "garbage",
    [b"\x00\x00\x00\x00", struct.pack(">I", sftp.MAX_PACKET + 1), b"This account is not available.\n", packet(99, 1)],
)
def test_what_is_not_sftp(garbage: bytes) -> None:
    with pytest.raises(BadPacket):
        list(Packets().receive(garbage))


def test_what_came_before_garbage_is_given() -> None:
    answers = Packets().receive(status(1, 0) + status(2, 0) + bytes(4))
    assert [next(answers), next(answers)] == [(1, Status(0)), (2, Status(0))]
    with pytest.raises(BadPacket):
        next(answers)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (Status(Code.FAILURE, "Failure"), "Failure"),
        (Status(Code.NO_SUCH_FILE), "no such file"),
        (Status(99), "status 99"),
    ],
)
def test_a_status_is_shown_in_its_own_words(said: Status, shown: str) -> None:
    assert str(said) == shown


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        (0o100644, EntryKind.FILE),
        (0o40755, EntryKind.DIRECTORY),
        (0o120777, EntryKind.OTHER),
        (0, EntryKind.OTHER),
    ],
)
def test_kinds(mode: int, kind: EntryKind) -> None:
    found = Attributes(3, mode, 7)
    assert (found.kind, found.stat.kind, found.stat.size, found.stat.modified) == (kind, kind, 3, 7.0)

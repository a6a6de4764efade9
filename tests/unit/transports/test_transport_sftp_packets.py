"""transports.sftp_packets: requests as the draft writes them, and answers however they are cut."""

from __future__ import annotations

import stat
import struct

import pytest
from sftp_peers import attributes, content, handle, packet, status, string, version

from transports import sftp_packets as sftp
from transports.sftp_packets import Attributes, BadPacket, Code, Content, Handle, Names, Packets, Status, Version

PATH, OTHER, HANDLE = b"/srv/x", b"/srv/y", b"\x00\x01"

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

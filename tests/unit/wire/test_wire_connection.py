"""The four calls: opening lines, ends, errors that stay, what may not be sent, and what observers see."""

from __future__ import annotations

import re

import pytest
from traced_memory import traced
from wire_pair import ASKED, FULL, OPENED, PUSHING, C, Pair, S

from smartserver.wire.connection import Connection, Role
from smartserver.wire.errors import Interrupted, LocalProtocolError, RemoteProtocolError
from smartserver.wire.events import (
    Body,
    Cancel,
    End,
    Error,
    Event,
    PeerClosed,
    Ping,
    Progress,
    Reply,
    Request,
    VersionMismatch,
)
from smartserver.wire.frames import HEADER, IGNORED_FROM, FrameType
from smartserver.wire.limits import MAX_FRAME, MAX_PING

H = bytes.fromhex


def fed(role: Role, *pieces: bytes) -> Connection:
    connection = Connection(role)
    for piece in pieces:
        connection.receive_data(piece)
    return connection


# Opening


@pytest.mark.parametrize("line", [b"hpss/2\n", b"hpss/10\n", b"hpss/99999\n"])
def test_client_of_another_version(line: bytes) -> None:
    """The server says what it speaks, then reads and forgets the rest."""
    server = fed(S, line, b"whatever version 2 has here")
    assert server.next_event() == VersionMismatch((int(line[5:]),))
    assert server.next_event() is None
    assert server.send(VersionMismatch((1,))) == b"hpss! 1\n"
    for _ in range(3):
        server.receive_data(b"\xff" * 100_000)
        assert server.next_event() is None
    with pytest.raises(LocalProtocolError, match="nothing to be sent without a common version"):
        server.send(Ping())
    with pytest.raises(LocalProtocolError, match="may not follow"):
        server.send(VersionMismatch((1,)))
    server.receive_eof()
    assert server.next_event() == PeerClosed()
    assert server.next_event() is None


def test_server_of_another_version() -> None:
    for line, versions in ((b"hpss! 1 2\n", (1, 2)), (b"hpss! 7\n", (7,)), (b"hpss/2\n", (2,))):
        client = Connection(C)
        client.send(Request(1, b"ask"))
        client.receive_data(line)
        assert client.next_event() == VersionMismatch(versions)
        with pytest.raises(LocalProtocolError, match="nothing to be sent without a common version"):
            client.send(Cancel(1))
        client.receive_eof()
        assert client.next_event() == PeerClosed()


def test_refusal_of_a_version_needs_another_version() -> None:
    with pytest.raises(LocalProtocolError, match="expected the client to open with another version"):
        fed(S).send(VersionMismatch((1,)))
    with pytest.raises(LocalProtocolError, match="expected the client to open with another version"):
        fed(C).send(VersionMismatch((1,)))


@pytest.mark.parametrize(
    ("banner", "name"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\n", "an HTTP server"),
        (b"<!DOCTYPE HTML>", "an HTTP server"),
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n", "an HTTP client"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"0032git-upload-pack /project.git\0host=x\0", "git"),
        (b"001fERR access denied: /project", "git"),
        (b"bzr message 3 (bzr 1.6)\n", "the Bazaar smart protocol"),
        (b"( success ( 2 2 ( ) ( edit-pipeline ) ) )", "Subversion"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "TLS"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "TLS"),
        (b"220 mail.example.org ESMTP\r\n", "FTP or SMTP"),
    ],
)
@pytest.mark.parametrize("role", list(Role))
def test_peer_of_another_protocol(role: Role, banner: bytes, name: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        fed(role, banner[:3], banner[3:]).next_event()
    said = str(caught.value)
    assert said == f"the peer does not speak hpss: expected b'hpss/1\\n', got {banner[:64]!r} (this looks like {name})"


@pytest.mark.parametrize(
    "line",
    [
        b"x",
        b"hpss/\n",
        b"hpss/0\n",
        b"hpss/01\n",
        b"hpss/1\r\n",
        b"hpss/1 \n",
        b"hpss/100000\n",
        b"hpss/" + b"1" * 60,
        b"hpss!\n",
        b"hpss! 1\t2\n",
        b"hpss! 0\n",
        b"hpss! 1" + b" 2" * 40,
    ],
)
def test_line_that_is_none(line: bytes) -> None:
    for pieces in ((line,), tuple(line[at : at + 1] for at in range(len(line)))):
        connection = fed(C, *pieces)
        with pytest.raises(RemoteProtocolError, match=r"the peer does not speak hpss: expected .* got " + "b['\"]"):
            connection.next_event()
    if line.startswith(b"hpss!"):
        assert str(error_of(S, line)).startswith("the peer does not speak hpss")


def error_of(role: Role, *pieces: bytes) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        list(iter(fed(role, *pieces).next_event, None))
    return caught.value


def test_only_a_server_refuses_versions() -> None:
    assert "got b'hpss! 1\\n'" in str(error_of(S, b"hpss! 1\n"))


def test_garbage_is_refused_at_its_first_byte() -> None:
    """Nobody waits for more of what cannot become an opening line."""
    assert "got b'S'" in str(error_of(S, b"S"))
    assert "got b'hpsx'" in str(error_of(S, b"hps", b"x"))


# Frames that cannot be


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("00000000 00 00000001", "expected a known frame type, got 0x00 (length 0, id 1)"),
        ("00000000 0b 00000001", "expected a known frame type, got 0x0b (length 0, id 1)"),
        ("00000005 7f 00000001", "expected a known frame type, got 0x7f (length 5, id 1)"),
        ("00040001 01 00000001", "expected no more than 262144 bytes of payload in REQUEST, got 262145"),
        ("48545450 41 00000001", "expected no more than 262144 bytes of payload in REQUEST_WITH_BODY, got 1213486160"),
        ("00040001 ff 00000001", "expected a frame of no more than 262144 bytes, got a frame of type 0xff of 262145"),
        ("0000000b 03 00000001", "expected 12 to 40972 bytes of payload in END, got 11"),
        ("00000001 07 00000001", "expected 0 bytes of payload in CANCEL, got 1"),
        ("00000041 08 00000000", "expected no more than 64 bytes of payload in PING, got 65"),
        ("00000000 08 00000001", "expected a request id of 0 in PING, got 1"),
        ("00000000 01 00000000", "expected a request id of 1 to 4294967295 in REQUEST, got 0"),
    ],
)
@pytest.mark.parametrize("role", list(Role))
def test_header_that_cannot_be(role: Role, header: str, said: str) -> None:
    """Refused when the header is whole, before any of the payload."""
    error = error_of(role, b"hpss/1\n", H(header))
    assert str(error) == said
    assert type(error) is RemoteProtocolError
    one_short = fed(role, b"hpss/1\n", H(header)[:-1])
    assert one_short.next_event() is None


def test_frames_of_one_size_are_apart() -> None:
    """A client reads a frame into the memory of the one before, where that has its size."""
    frames = b"".join(HEADER.pack(5, FrameType.PING, 0) + b"ask %d" % number for number in (1, 2))
    client = fed(C, b"hpss/1\n", frames)
    assert [client.next_event(), client.next_event()] == [Ping(b"ask 1"), Ping(b"ask 2")]


def test_an_idle_connection_holds_no_frame() -> None:
    frame = HEADER.pack(MAX_FRAME, IGNORED_FROM, 0) + bytes(MAX_FRAME)
    with traced() as memory:
        server = fed(S, b"hpss/1\n", frame)
        assert server.next_event() is None
        assert not server.part_way
    assert memory.kept < MAX_FRAME // 4


# After an error


def test_error_stays() -> None:
    """Other errors do, too: `tests/property/test_wire_garbage.py`."""
    connection = closed(fed(S, b"hpss/1\n", b"\0"))
    with pytest.raises(Interrupted) as first:
        connection.next_event()
    for call in (
        connection.next_event,
        connection.receive_eof,
        lambda: connection.receive_data(b"more"),
        lambda: connection.receive_data(b""),
        lambda: connection.send(Ping()),
    ):
        with pytest.raises(Interrupted) as again:
            call()
        assert str(again.value) == str(first.value)


# The end


def closed(connection: Connection) -> Connection:
    connection.receive_eof()
    connection.receive_eof()
    return connection


@pytest.mark.parametrize("role", list(Role))
def test_end_before_anything(role: Role) -> None:
    connection = closed(Connection(role))
    assert connection.next_event() == PeerClosed()
    assert connection.next_event() is None
    with pytest.raises(LocalProtocolError, match="expected no bytes after the end, got 4"):
        connection.receive_data(b"more")


def test_end_comes_after_what_was_sent() -> None:
    server = closed(fed(S, b"hpss/1\n", H("00000000 01 00000001")))
    assert server.next_event() == Request(1, b"")
    assert server.next_event() == PeerClosed()
    assert server.send(Reply(1, b"still answered")) == b"hpss/1\n" + H("0000000e 04 00000001") + b"still answered"


@pytest.mark.parametrize(
    ("said", "wire", "closing", "owed"),
    [
        (ASKED, b"", S, "request 1: expected PROGRESS, REPLY, REPLY_WITH_BODY or ERROR"),
        ((*ASKED, (S, Reply(1, b"", body=True))), b"", S, "request 1: expected BODY, END or ERROR"),
        ((*ASKED, (S, Reply(1, FULL, more=True))), b"", S, "request 1: expected REPLY"),
        ((*ASKED, (S, Error(1, FULL, more=True))), b"", S, "request 1: expected ERROR"),
        (PUSHING, b"", S, "request 1: expected ERROR"),
        (PUSHING, b"", C, "request 1: expected BODY, END or CANCEL"),
        ((*OPENED, (C, Request(1, FULL, more=True))), b"", C, "request 1: expected REQUEST or CANCEL"),
        (OPENED, b"\0\0", C, "in the middle of a frame header (got 2 of 9 bytes)"),
        (OPENED, H("00000004 01 00000001") + b"abc", C, "in the middle of REQUEST 1 (got 3 of 4 bytes)"),
        (OPENED, H("00000004 90 00000001") + b"", C, "in the middle of a frame of type 0x90 1 (got 0 of 4 bytes)"),
        (
            PUSHING,
            H("00000004 02 00000001") + b"abc",
            C,
            "in the middle of BODY 1 (got 3 of 4 bytes); request 1: expected BODY, END or CANCEL",
        ),
    ],
)
def test_end_too_early(said: tuple[tuple[Role, Event], ...], wire: bytes, closing: Role, owed: str) -> None:
    pair = Pair(*said)
    assert pair.deliver(closing, wire) == []
    receiver = closed(pair.ends[closing.peer])
    with pytest.raises(Interrupted) as caught:
        receiver.next_event()
    assert str(caught.value) == f"the {closing.value} closed the connection too early: {owed}"


def test_end_without_a_word() -> None:
    client = Connection(C)
    client.send(Request(1, b""))
    with pytest.raises(Interrupted, match="the server closed the connection before it said anything: request 1"):
        closed(client).next_event()


def test_a_frame_that_is_part_way_in() -> None:
    """From the first byte of its header to the one before its last; the opening line is no frame."""
    server = Connection(S)
    for byte in b"hpss/1\n":
        server.receive_data(bytes([byte]))
        assert server.next_event() is None
        assert not server.part_way
    for event in (Request(1, b"ask"), Ping(), Request(2, b"ask")):
        client = fed(C)
        frame = client.send(event).removeprefix(b"hpss/1\n")
        for byte in frame[:-1]:
            server.receive_data(bytes([byte]))
            assert server.next_event() is None
            assert server.part_way
        server.receive_data(frame[-1:])
        assert server.next_event() == event
        assert not server.part_way


# What may not be sent


@pytest.mark.parametrize(
    ("sender", "event", "said"),
    [
        (C, PeerClosed(), "expected an event that can be sent, got PeerClosed()"),
        (C, Reply(1, b""), "got REPLY from the client for request 1, which is not open"),
        (C, Request(0, b""), "expected a request id of 1 to 4294967295 in REQUEST, got 0"),
        (C, Request(-1, b""), "expected a request id of 1 to 4294967295, got -1"),
        (C, Request(1 << 32, b""), "expected a request id of 1 to 4294967295, got 4294967296"),
        (C, Request(1, b"short", more=True), "expected a part of REQUEST 1 to be a multiple of 262144 bytes, got 5"),
        (C, Request(1, FULL + b"x", more=True), "expected a part of REQUEST 1 to be a multiple of 262144 bytes"),
        (C, Request(1, b"", more=True), "expected a part of REQUEST 1 to be a multiple of 262144 bytes, got 0"),
        (C, Ping(b"x" * (MAX_PING + 1)), "expected no more than 64 bytes of payload in PING, got 65"),
        (S, Progress(1, b"x" * (MAX_FRAME + 1)), "expected no more than 262144 bytes of payload in PROGRESS"),
        (C, End(1, 1 << 32, 0), "expected u32 segments and u64 bytes in END, got 4294967296 and 0"),
        (C, End(1, -1, 0), "expected u32 segments and u64 bytes in END, got -1 and 0"),
        (C, End(1, 0, 1 << 64), "expected u32 segments and u64 bytes in END, got 0 and 18446744073709551616"),
        (C, End(1, 0, -1), "expected u32 segments and u64 bytes in END, got 0 and -1"),
    ],
)
def test_send_what_cannot_be(sender: Role, event: Event, said: str) -> None:
    """Refused, and the connection is as before: not even opened."""
    connection = Connection(sender)
    with pytest.raises(LocalProtocolError, match=re.escape(said)):
        connection.send(event)
    assert connection.send(Ping()) == b"hpss/1\n" + H("00000000 08 00000000")


def test_refused_sending_changes_nothing() -> None:
    pair = Pair(*PUSHING)
    with pytest.raises(LocalProtocolError, match="expected 0 bytes in END 1"):
        pair.ends[C].send(End(1, 1, 5))
    with pytest.raises(LocalProtocolError, match="no more than one body"):
        pair.ends[C].send(Request(2, FULL + FULL, body=True))
    with pytest.raises(LocalProtocolError, match="request 1: expected ERROR from the server, got REPLY"):
        pair.ends[S].send(Reply(1, b"too early"))
    with pytest.raises(LocalProtocolError, match="request 1: expected ERROR from the server, got PROGRESS"):
        pair.ends[S].send(Progress(1, b"too early"))
    assert pair.say(C, Body(1, b"12345")) == [Body(1, b"12345")]
    assert pair.say(C, End(1, 1, 5)) == [End(1, 1, 5)]
    assert pair.say(C, Request(2, b"", body=True)) == [Request(2, b"", body=True)]


# Observers


class Watcher:
    def __init__(self) -> None:
        self.seen: list[tuple[str, Event, int]] = []

    def connecting(self) -> None:
        pass

    def sent(self, event: Event, size: int) -> None:
        self.seen.append(("sent", event, size))

    def received(self, event: Event, size: int) -> None:
        self.seen.append(("received", event, size))


def test_observers_see_every_byte() -> None:
    one, other = Watcher(), Watcher()
    server = Connection(S, (one, other))
    crossing = H("00000000 07 00000001")
    skipped = H("00000002 80 00000000") + b"??"
    server.receive_data(b"hpss/1\n" + H("00000003 01 00000001") + b"ask")
    server.next_event()
    server.send(Reply(1, b"done"))
    server.receive_data(skipped + crossing + skipped)
    assert server.next_event() is None
    server.receive_eof()
    assert server.next_event() == PeerClosed()
    assert one.seen == [
        ("received", Request(1, b"ask"), 7 + 9 + 3),
        ("sent", Reply(1, b"done"), 7 + 9 + 4),
        ("received", Cancel(1), 11 + 9),
        ("received", PeerClosed(), 11),
    ]
    assert other.seen == one.seen

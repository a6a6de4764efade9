"""transports.sftp_session, transports.sftp_packets: answers find who asked, however cut; a loss is told to all."""

from __future__ import annotations

import stat
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sftp_peers import PATIENCE, Peer, Script, attributes, content, handle, packet, status, string, version

from transports import sftp_packets as sftp
from transports.errors import TransportFailed
from transports.sftp_packets import Attributes, BadPacket, Code, Content, Handle, Names, Packets, Status, Version
from transports.sftp_session import Channel, Session

Connect = Callable[[Script], Peer]


@pytest.fixture
def connect() -> Iterator[Connect]:
    made: list[Peer] = []

    def make(script: Script) -> Peer:
        made.append(Peer(script))
        return made[-1]

    yield make
    for peer in made:
        peer.join()


def echo(peer: Peer, kind: int, number: int, rest: bytes) -> None:
    """Answer each request with what it said."""
    peer.say(version(3, sftp.FSYNC) if kind == 1 else content(number, rest))


def asked(text: bytes) -> sftp.Request:
    return sftp.Request(77, text)


def test_answers_come_in_the_order_of_the_requests(connect: Connect) -> None:
    late: list[bytes] = []

    def backwards(peer: Peer, kind: int, number: int, rest: bytes) -> None:
        if kind == 1:
            peer.say(version())
            return
        late.append(content(number, rest))
        if len(late) == 5:
            peer.say(*late[::-1])

    session = connect(backwards).session()
    texts = [b"%d" % number for number in range(5)]
    assert session.exchange([asked(text) for text in texts]) == [sftp.Content(text) for text in texts]
    assert session.exchange([]) == []


def test_no_more_than_the_window_is_under_way(connect: Connect) -> None:
    """The rest is sent as answers come; a request that fits nowhere goes alone."""
    held: list[bytes] = []
    together: list[int] = []
    full = threading.Event()

    def hold(peer: Peer, kind: int, number: int, rest: bytes) -> None:
        if kind == 1:
            peer.say(version())
            return
        held.append(content(number, rest))
        if len(held) == 3 or len(rest) > 30 or rest.endswith(b"9"):
            together.append(len(held))
            peer.say(*held)
            held.clear()
            full.set()

    session = connect(hold).session(window=30)
    texts = [b"%010d" % number for number in range(10)] + [b"x" * 31]
    assert [
        each.content for each in session.exchange(list(map(asked, texts))) if isinstance(each, sftp.Content)
    ] == texts
    assert max(together) == 3
    assert together[-1] == 1


def test_who_we_are_goes_with_the_first_request() -> None:
    channel = Scripted(wait_in_vain)
    session = Session(channel, "there")
    assert not channel.sent
    with pytest.raises(TransportFailed):
        session.send(asked(b"x"))
    assert channel.sent == [sftp.init() + asked(b"x").packet(1)]


def test_what_is_sent_later_goes_with_the_next(connect: Connect) -> None:
    peer = connect(echo)
    session = peer.session()
    session.later(asked(b"close"))
    assert session.exchange([asked(b"next")]) == [sftp.Content(b"next")]
    assert [rest for _, _, rest in peer.heard[1:]] == [b"close", b"next"]


def silent(peer: Peer, kind: int, number: int, rest: bytes) -> None:
    if kind == 1:
        peer.say(version())


def test_all_who_wait_are_told_that_it_was_lost(connect: Connect) -> None:
    waiting = threading.Semaphore(0)

    def script(peer: Peer, kind: int, number: int, rest: bytes) -> None:
        silent(peer, kind, number, rest)
        waiting.release()

    peer = connect(script)
    session = peer.session()

    def ask(_: int) -> str:
        with pytest.raises(TransportFailed) as lost:
            session.exchange([asked(b"anybody?")])
        return str(lost.value)

    with ThreadPoolExecutor(4) as threads:
        answers = threads.map(ask, range(4))
        for _ in range(5):
            assert waiting.acquire(timeout=PATIENCE)
        peer.end()
        assert set(answers) == {"the connection to there is lost: the server ended it"}
    assert session.lost
    for use in (lambda: session.exchange([asked(b"x")]), lambda: session.has(b"x"), lambda: session.send(asked(b"x"))):
        with pytest.raises(TransportFailed, match="is lost"):
            use()


def test_a_server_without_sftp_says_nothing(connect: Connect) -> None:
    session = connect(lambda peer, *_: peer.end()).session()
    with pytest.raises(TransportFailed, match="ended it before it said anything: has it SFTP"):
        session.has(sftp.FSYNC)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (version(2), "the server speaks SFTP version 2, this client 3"),
        (b"Welcome!\r\n", "expected a packet of no more than"),
        (version() + status(99, 0), "the server answered request 99, which was not sent"),
    ],
)
def test_a_server_that_speaks_otherwise(connect: Connect, said: bytes, why: str) -> None:
    session = connect(lambda peer, kind, number, rest: peer.say(said)).session()
    with pytest.raises(TransportFailed, match=why):
        session.exchange([asked(b"x")])


def test_a_silent_server_is_not_waited_for(connect: Connect) -> None:
    session = connect(silent).session(patience=0.05)
    with pytest.raises(TransportFailed, match="no sign of life for 0 s"):
        session.exchange([asked(b"x")])
    mute = connect(lambda *_: None).session(patience=0.05)
    with pytest.raises(TransportFailed, match="no sign of life"):
        mute.has(sftp.FSYNC)


def test_closing_ends_it_for_all(connect: Connect) -> None:
    session = connect(silent).session()
    pending = session.send(asked(b"x"))
    session.close()
    session.close()
    with pytest.raises(TransportFailed, match="it is closed"):
        pending.answer()


class Scripted:
    """A channel: the server's greeting, then silence; what becomes of the requests the test says."""

    def __init__(self, send: Callable[[Scripted], None]) -> None:
        self._send = send
        self._greeting = [version()]
        self.sent: list[bytes] = []
        self.closed = threading.Event()

    def recv(self, nbytes: int, /) -> bytes:
        if self._greeting:
            return self._greeting.pop()
        if self.closed.wait(0.05):
            return b""
        raise TimeoutError

    def sendall(self, s: bytes, /) -> None:
        self.sent.append(s)
        self._send(self)

    def close(self) -> None:
        self.closed.set()

    hang_up = close


def test_a_send_that_is_interrupted_ends_it() -> None:
    """Nobody knows how much was sent, so nothing can follow it."""

    def interrupt(channel: Scripted) -> None:
        raise KeyboardInterrupt

    session = Session(Scripted(interrupt), "there")
    with pytest.raises(KeyboardInterrupt):
        session.exchange([asked(b"x")])
    assert session.lost
    with pytest.raises(TransportFailed, match=r"is lost: sending was interrupted \(KeyboardInterrupt\)"):
        session.exchange([asked(b"y")])


def wait_in_vain(channel: Scripted) -> None:
    raise TimeoutError


def wait_for_ever(channel: Scripted) -> None:
    """Wait like a channel whose own timeout does not count for what is below it."""
    assert channel.closed.wait(PATIENCE)
    raise OSError("closed")


@pytest.mark.parametrize("send", [wait_in_vain, wait_for_ever])
def test_a_server_that_takes_nothing_is_not_waited_for(send: Callable[[Scripted], None]) -> None:
    channel = Scripted(send)
    with pytest.raises(TransportFailed, match="is lost: the server takes nothing for 7 s"):
        Session(channel, "there", patience=7.0).send(asked(b"x"))
    assert channel.closed.is_set()


class Impatient:
    """A channel whose first waits come to nothing; then it waits as long as it takes."""

    def __init__(self, inner: Channel) -> None:
        self._inner = inner
        self._vain = 3
        self.waits = threading.Event()
        self.sendall, self.close, self.hang_up = inner.sendall, inner.close, inner.hang_up

    def recv(self, nbytes: int, /) -> bytes:
        if self._vain:
            self._vain -= 1
            raise TimeoutError
        self.waits.set()
        return self._inner.recv(nbytes)


def test_a_silence_in_which_nothing_is_due_ends_nothing(connect: Connect) -> None:
    channel = Impatient(connect(echo).channel)
    session = Session(channel, "there")
    assert channel.waits.wait(PATIENCE)
    assert session.exchange([asked(b"x")]) == [sftp.Content(b"x")]


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

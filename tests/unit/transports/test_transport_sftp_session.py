"""transports.sftp_session: answers find who asked; whoever waits is told of a lost connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sftp_peers import PATIENCE, Peer, Script, content, status, version

from transports import sftp_packets as sftp
from transports.errors import TransportFailed
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


def test_threads_get_their_own(connect: Connect) -> None:
    session = connect(echo).session()

    def ask(thread: int) -> bool:
        texts = [b"%d/%d" % (thread, number) for number in range(200)]
        return session.exchange([asked(text) for text in texts]) == [sftp.Content(text) for text in texts]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(8)))


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


def test_extensions_are_asked_for_and_waited_for(connect: Connect) -> None:
    session = connect(echo).session()
    assert session.has(sftp.FSYNC)
    assert not session.has(sftp.POSIX_RENAME)


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


def test_an_answer_asked_for_later(connect: Connect) -> None:
    session = connect(echo).session()
    first, second = session.send(asked(b"1")), session.send(asked(b"2"))
    assert second.answer() == sftp.Content(b"2")
    assert first.answer() == sftp.Content(b"1")


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
        (version() + status(99, 0), "the server answered request 99, which nobody asked"),
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

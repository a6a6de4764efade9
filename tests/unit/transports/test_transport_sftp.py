"""transports.sftp, sftp_handles: URLs, sessions that come and go, and no bytes under the handle of another file."""

from __future__ import annotations

import gc
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from sftp_peers import PATIENCE, Peer, attributes, content, handle, packet, status, string, version

from transports.base import Step
from transports.errors import FileExists, TransportFailed
from transports.registry import open_url
from transports.sftp import Line, SftpTransport
from transports.sftp_handles import Handles
from transports.sftp_login import Account
from transports.sftp_packets import FSYNC, Following, close, open_file, write
from transports.sftp_packets import Handle as Given
from transports.sftp_packets import Open as How
from transports.sftp_session import Session
from transports.steps import Delete, Get, GetPublished, MakeDirectory, Put, ReadRanges

CREATE = 0x08
OPEN, CLOSE, READ, WRITE, LSTAT, REMOVE, STAT, EXTENDED = 3, 4, 5, 6, 7, 13, 17, 200
OPENDIR, READDIR, MKDIR, RMDIR = 11, 12, 14, 15


@dataclass
class Files:
    """A server with files in one folder. `give` gives a handle, told those that were closed, the last one last, and how
    many were ever given."""

    give: Callable[[list[bytes], int], bytes]
    files: dict[bytes, bytearray] = field(default_factory=dict)
    open: dict[bytes, bytes] = field(default_factory=dict)
    closed: list[bytes] = field(default_factory=list)
    given: int = 0
    torn: list[bytes] = field(default_factory=list)
    """Names of files that were written to by who had not made them."""

    def script(self, peer: Peer, kind: int, number: int, rest: bytes) -> None:
        if kind == 1:
            peer.say(version(3, FSYNC))
            return
        size = int.from_bytes(rest[:4])
        first, more = rest[4 : 4 + size], rest[4 + size :]
        if kind == OPEN:
            how = int.from_bytes(more[:4])
            if (first in self.files) == bool(how & CREATE):
                peer.say(status(number, 4 if first in self.files else 2))
                return
            made = self.give(self.closed, self.given)
            self.given += made not in self.closed
            if made in self.closed:
                self.closed.remove(made)
            self.files.setdefault(first, bytearray())
            self.open[made] = first if how & CREATE else b"<" + first
            peer.say(handle(number, made))
        elif kind in (STAT, LSTAT):
            found = self.files.get(first)
            peer.say(status(number, 2) if found is None else attributes(number, len(found)))
        elif kind == REMOVE:
            peer.say(status(number, 2 if self.files.pop(first, None) is None else 0))
        elif kind == EXTENDED:
            (name,) = [more[4:]]
            peer.say(status(number, 0 if name in self.open else 2))
        elif first not in self.open:
            peer.say(status(number, 4))
        elif kind == CLOSE:
            del self.open[first]
            self.closed.append(first)
            peer.say(status(number, 0))
        else:
            offset, name = int.from_bytes(more[:8]), self.open[first].lstrip(b"<")
            if kind == READ:
                text = bytes(self.files[name][offset:][: int.from_bytes(more[8:12])])
                peer.say(content(number, text) if text else status(number, 1))
            elif self.open[first].startswith(b"<"):
                self.torn.append(name)
                peer.say(status(number, 4))
            else:
                self.files[name][offset : offset + len(more) - 12] = more[12:]
                peer.say(status(number, 0))


def number(value: int) -> bytes:
    return value.to_bytes(4)


CHANCE = random.Random(1)
LIKE_OPENSSH = "the last one that was closed"
WAYS: dict[str, Callable[[list[bytes], int], bytes]] = {
    LIKE_OPENSSH: lambda closed, given: closed[-1] if closed else number(given),
    "the first one that was closed": lambda closed, given: closed[0] if closed else number(given),
    "each once": lambda closed, given: number(given + len(closed)),
    "any": lambda closed, given: CHANCE.choice([*closed, number(given), number(CHANCE.randrange(1 << 32))]),
    "a name": lambda closed, given: b"handle of %d" % (given + len(closed)),
}


@pytest.fixture(params=WAYS)
def server(request: pytest.FixtureRequest) -> Files:
    return Files(WAYS[request.param])


@pytest.fixture
def transport(server: Files) -> Iterator[SftpTransport]:
    peer = Peer(server.script)
    session = peer.session(is_openssh=True)
    yield SftpTransport(Line(lambda: session), "", "there")
    session.close()
    peer.join()


def flights(transport: SftpTransport, monkeypatch: pytest.MonkeyPatch, steps: list[Step]) -> int:
    """The number of flights that the steps take."""
    session = transport._line.session()
    exchange, count = session.exchange, itertools.count()

    def counted(requests: list[object]) -> object:
        if requests:
            next(count)
        return exchange(requests)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(session, "exchange", counted)
        transport.perform(steps)
    return next(count)


def test_whatever_handles_are_files_are_what_was_written(transport: SftpTransport, server: Files) -> None:
    chance, expected = random.Random(2), dict[str, bytes]()
    for turn in range(60):
        new = {f"f{turn}.{more}": chance.randbytes(chance.choice([0, 10, 40_000, 100_000])) for more in range(2)}
        puts = [Put(name, text) for name, text in new.items()]
        if turn % 4 == 3:
            with pytest.raises(FileExists):
                transport.perform([puts[0], Put(chance.choice(list(expected)), b"another"), puts[1]])
            expected[puts[0].path] = puts[0].content
            continue
        transport.perform(puts)
        expected |= new
        names = [*chance.choices(list(expected), k=4), "absent"]
        ranges = [(5, 9), (30_000, 50_000), (0, 1)]
        steps: list[Get | GetPublished] = []
        for name in names:
            steps += [Get(name), Get(name, chance.choice([5, len(expected.get(name, b""))])), GetPublished(name)]
        chance.shuffle(steps)
        reads = [ReadRanges(name, ranges) for name in names[:-1]]
        transport.perform([*steps, *reads])
        assert [step.result for step in steps] == [expected.get(step.path) for step in steps]
        for read in reads:
            assert read.result == [expected[read.path][offset:][:size] for offset, size in ranges]
    assert server.torn == []
    assert {name.decode().lstrip("/"): bytes(text) for name, text in server.files.items()} == expected


@pytest.mark.parametrize("server", [LIKE_OPENSSH], indirect=True)
def test_a_file_is_opened_and_read_in_one_flight(transport: SftpTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        transport.put(name, [name.encode()])
    steps: list[Step] = [Get("a"), GetPublished("absent"), Get("b", 1), ReadRanges("c", [(0, 9)]), GetPublished("c")]
    assert flights(transport, monkeypatch, steps) == 1
    assert flights(transport, monkeypatch, [Put("d", b"d"), Put("e", b"e")]) == 1
    file = transport.open_read("d")  # A handle that stays open is another one.
    assert flights(transport, monkeypatch, [Get("e")]) == 1
    assert file.read_at(0, 9) == b"d"
    file.close()
    assert flights(transport, monkeypatch, [Get("d")]) == 1


def test_all_names_are_listed_however_few_requests_are_under_way() -> None:
    """A part of them may not be read in the flight of the opening, and only the rest after it."""
    left: list[bytes] = []

    def folder(peer: Peer, kind: int, number_: int, rest: bytes) -> None:
        if kind == 1:
            peer.say(version(3))
        elif kind == OPENDIR:
            left[:] = [b"a", b"b", b"c", b"d", b"e"]
            peer.say(handle(number_, number(0)))
        elif kind == READDIR:
            name = left.pop() if left else b""
            peer.say(packet(104, number_, 1, string(name), string(b""), 0) if name else status(number_, 1))
        else:
            peer.say(attributes(number_, 0, 0o40755) if kind == STAT else status(number_, 0))

    for window in range(1, 300, 7):
        peer = Peer(folder)
        session = peer.session(is_openssh=True, window=window)
        transport = SftpTransport(Line(lambda session=session: session), "", "there")  # type: ignore[misc]
        assert transport.list_directory("folder") == ["a", "b", "c", "d", "e"], f"window {window}"
        session.close()
        peer.join()


def test_nothing_is_predicted_while_another_opening_is_unanswered() -> None:
    handles = Handles(predictable=True)
    opening, following = open_file(b"a", How.READ), Following(close)
    assert handles.fill([opening]) == [opening]
    assert handles.fill([opening, following]) == [opening, None]
    for given in (0, 1):
        handles.answered(opening, Given(number(given)))
    assert handles.fill([opening, following])[1] == close(number(2))


def test_nothing_is_written_before_a_prediction_was_right() -> None:
    handles = Handles(predictable=True)
    opening = open_file(b"a", How.WRITE)
    writing = [Following(lambda handle: write(handle, 0, b"x"), changes=True), Following(close, changes=True)]
    assert handles.fill([opening, *writing]) == [opening, None, None]
    handles.answered(opening, Given(number(0)))
    assert handles.fill([opening, *writing])[1:] == [write(number(1), 0, b"x"), close(number(1))]


GIVEN = "sftp://me@host.example.org:2222/srv/a%20b/"


@pytest.mark.parametrize(
    ("url", "account", "root", "shown"),
    [
        (GIVEN, Account("host.example.org", "me", 2222), "/srv/a b", GIVEN[:-1]),
        ("sftp://host/", Account("host"), "/", "sftp://host"),
        ("sftp://host/~", Account("host"), ".", "sftp://host/~"),
        ("sftp://host/~/a/b/", Account("host"), "a/b", "sftp://host/~/a/b"),
        ("sftp://host/~other", Account("host"), "/~other", "sftp://host/~other"),
        ("sftp://[2001:db8::1]/x", Account("2001:db8::1"), "/x", "sftp://[2001:db8::1]/x"),
        ("sftp://[fe80::1%25eth0]/x", Account("fe80::1%eth0"), "/x", "sftp://[fe80::1%25eth0]/x"),
        ("sftp://[fe80::1%eth0]/x", Account("fe80::1%eth0"), "/x", "sftp://[fe80::1%eth0]/x"),
        ("sftp://me@corp.example@h/x", Account("h", "me@corp.example"), "/x", "sftp://me@corp.example@h/x"),
        ("sftp://CORP%5Cme@h/x", Account("h", "CORP\\me"), "/x", "sftp://CORP%5Cme@h/x"),
        ("sftp://host/x?host-key=any", Account("host", host_key="any"), "/x", "sftp://host/x"),
        ("sftp://host/x?host-key=SHA256:a+b/c", Account("host", host_key="SHA256:a+b/c"), "/x", "sftp://host/x"),
    ],
)
def test_urls(url: str, account: Account, root: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[Account] = []

    def log_in(account: Account) -> Session:
        reached.append(account)
        raise TransportFailed("", "nobody is there")

    monkeypatch.setattr("transports.sftp.log_in", log_in)
    transport = open_url(url)
    assert isinstance(transport, SftpTransport)
    assert (transport._root, transport.describe()) == (root, shown)
    assert transport.describe("a/b") == f"{shown}/a/b"
    assert reached == []
    with pytest.raises(TransportFailed, match="nobody is there"):
        transport.get("x")
    assert reached == [account]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sftp:///srv/x", "is not a folder of another machine"),
        ("sftp://host", "is not a folder of another machine"),
        ("sftp://host/x#part", "is not a folder of another machine"),
        ("sftp://me:secret@host/x", "a password has no meaning"),
        ("sftp://host/x?key=any", "is not host-key="),
        ("sftp://host/x?host-key", "is not host-key="),
        ("sftp://host:many/x", "many"),
        ("sftp://host/%ff", "utf-8"),
        ("sftp://host/srv/a%00b", r"'sftp://host/srv/a%00b': no name of a file has a NUL \(%00\) in it"),
        ("sftp://-oProxyCommand=x/y", "is not the name of a host"),
        ("sftp://$(x)/y", "is not the name of a host"),
        ("sftp://%3bx@host/y", "is not the name of a user"),
    ],
)
def test_what_is_no_url(url: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        open_url(url)


@pytest.mark.parametrize(
    ("url", "top", "path", "shown"),
    [
        ("sftp://me@h:22/srv//x/../y", "/", "srv/y", "sftp://me@h:22/srv"),
        ("sftp://h/", "/", "", "sftp://h/srv"),
        ("sftp://h/~/a/b", ".", "a/b", "sftp://h/~/srv"),
        ("sftp://h/~", ".", "", "sftp://h/~/srv"),
    ],
)
def test_the_whole_of_it(url: str, top: str, path: str, shown: str) -> None:
    store = open_url(url)
    assert isinstance(store, SftpTransport)
    whole, here = store.child("c/d").whole()
    assert isinstance(whole, SftpTransport)
    assert (whole._root, whole._line, here) == (top, store._line, f"{path}/c/d".lstrip("/"))
    assert whole.describe("srv") == shown


@dataclass
class Served:
    """A file of one byte; each session is one more peer."""

    peers: list[Peer]

    def connect(self) -> Session:
        self.peers.append(Peer(self.script))
        return self.peers[-1].session()

    def script(self, peer: Peer, kind: int, number: int, rest: bytes) -> None:
        answers = {1: version(), 3: handle(number), 5: content(number, b"x"), 4: status(number, 0)}
        peer.say(answers.get(kind, attributes(number, 1)))


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served([])
    yield made
    for peer in made.peers:
        peer.join()


def test_nobody_is_reached_for_no_steps(served: Served) -> None:
    SftpTransport(Line(served.connect), "/srv", "there").perform([])
    assert served.peers == []


def test_a_lost_connection_is_made_again_by_the_next_call(served: Served) -> None:
    transport = SftpTransport(Line(served.connect), "/srv", "there")
    child = transport.child("folder")
    assert transport.get("x") == child.get("x") == b"x"
    file = transport.open_read("x")
    served.peers[0].end()
    with pytest.raises(TransportFailed, match="is lost"):
        file.read_at(0, 1)
    assert transport.get("x") == child.get("x") == b"x"
    assert len(served.peers) == 2
    transport.close()
    assert child.get("x") == b"x"
    assert len(served.peers) == 3


def test_a_connection_ends_with_the_last_that_uses_it(served: Served) -> None:
    transport = SftpTransport(Line(served.connect), "/srv", "there")
    child = transport.child("folder")
    file = child.open_read("x")
    session = transport._line.session()
    del transport, child
    gc.collect()
    assert file.read_at(0, 1) == b"x"
    del file
    gc.collect()
    assert session.lost


def test_the_collector_may_come_whatever_is_held(served: Served) -> None:
    """It runs finalizers in any thread, in the middle of anything."""
    ended: list[Session] = []

    def collect() -> None:
        transport = SftpTransport(Line(served.connect), "/srv", "there")
        session = transport._line.session()
        cycle: list[object] = [transport, transport.open_read("x"), transport.create("y")]
        cycle.append(cycle)
        del transport, cycle
        with session._sending, session._guard:
            gc.collect()
        ended.append(session)

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert ended[0].lost
    served.peers[0].ended()


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([MakeDirectory("taken"), Put("new"), MakeDirectory("folder")], [MKDIR, MKDIR, CLOSE, RMDIR, REMOVE]),
        ([MakeDirectory("taken"), Get("x")], [MKDIR]),
        ([Put("new"), MakeDirectory("taken")], [MKDIR, CLOSE]),
        ([MakeDirectory("folder"), Delete("taken"), MakeDirectory("new")], [MKDIR, REMOVE, MKDIR, RMDIR]),
        ([MakeDirectory("taken"), Delete("new")], [MKDIR]),
    ],
)
def test_what_was_sent_too_soon_is_taken_back(served: Served, steps: list[Step], said: list[int]) -> None:
    """It is taken back where a step before it failed; nothing else is."""

    def script(peer: Peer, kind: int, number: int, rest: bytes) -> None:
        if kind in (REMOVE, MKDIR, RMDIR):
            peer.say(status(number, 4 if b"taken" in rest else 0))
        else:
            served.script(peer, kind, number, rest)

    peer = Peer(script)
    served.peers.append(peer)
    with pytest.raises((FileExists, TransportFailed)):
        SftpTransport(Line(peer.session), "/srv", "there").perform(steps)
    assert [kind for kind, _, _ in peer.heard if kind in (CLOSE, REMOVE, MKDIR, RMDIR)] == said

"""transports.sftp_handles: files are opened and read in one flight, and nothing is read or written under a handle that
is another file's, however a server numbers them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from sftp_peers import Peer, attributes, content, handle, packet, status, string, version

from transports.base import Step
from transports.errors import FileExists
from transports.sftp import Line, SftpTransport
from transports.sftp_handles import Handles
from transports.sftp_packets import FSYNC, Following, close, open_file, write
from transports.sftp_packets import Handle as Given
from transports.sftp_packets import Open as How
from transports.steps import Get, GetPublished, Put, ReadRanges

CREATE = 0x08
OPEN, CLOSE, READ, WRITE, LSTAT, REMOVE, STAT, EXTENDED = 3, 4, 5, 6, 7, 13, 17, 200
OPENDIR, READDIR = 11, 12


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

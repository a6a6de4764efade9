"""transports.sftp: URLs, and sessions that come and go. What it says is in test_transport_sftp_talks.py, and with real
servers in tests/conformance and tests/sockets."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from sftp_peers import PATIENCE, Peer, attributes, content, handle, status, version

from transports.base import Step
from transports.errors import FileExists, TransportFailed
from transports.registry import open_url
from transports.sftp import Line, SftpTransport
from transports.sftp_login import Account
from transports.sftp_session import Session
from transports.steps import Delete, Get, MakeDirectory, Put

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


OPEN, CLOSE, LSTAT, REMOVE, MKDIR, RMDIR, STAT, EXTENDED = 3, 4, 7, 13, 14, 15, 17, 200


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

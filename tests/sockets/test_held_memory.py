"""What a hostile client makes a real server hold and do: memory, compared with the promised table; and a few kilobytes
that expand to very much, whose read fails with one line before it takes much memory, and stops with its client."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import held_memory as held
import pytest
from builders import KINDS, MAIN, History, create, push
from dialogs import message
from mercurials import Mercurial
from processes import peak
from serving import SMARTSERVER, Server, run, wait_until
from test_hard_clients import CALLS, has_line, raw

from smartserver.records.announced import REVISIONS_OF_GRAPH
from smartserver.records.browse import LogSelector, TreeSelector, encode_selector
from smartserver.records.delta import compress
from smartserver.records.limits import MAX_ANNOUNCED, MAX_TAKEN
from smartserver.records.model import BaseTag, Entry
from smartserver.records.segment import encode_segment
from smartserver.records.varint import encode as varint
from smartserver.server.session import CANCELLED_HIGH
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.vcs.git.format import BLOB, COMMIT, TREE
from smartserver.vcs.git.system import git_key
from smartserver.verbs.declare import AnyVerb, Arguments
from smartserver.verbs.repository_pull import PullRequest, repository_pull
from smartserver.verbs.repository_read import ReadRequest, repository_read
from smartserver.verbs.repository_verify import VerifyRequest, repository_verify
from smartserver.verbs.server_ping import PingRequest, server_ping
from smartserver.wire.events import Body, Cancel, End, Error, Event, Reply, Request
from smartserver.wire.limits import MAX_CALLS, MAX_FRAME, MIB
from smartserver.wire.messages import RequestFlag, decode_failure, encode, named
from transports.local import LocalTransport

pytestmark = pytest.mark.sockets

SLACK = 24 * MIB
"""Bytes of freed memory that the allocators keep, and of modules that are loaded at their first use."""


class Hostile:
    """One connection, driven by hand."""

    def __init__(self, server: Server) -> None:
        self._opened = raw(server.port)
        self.socket, self.wire = self._opened.__enter__()
        self._last = 0
        self.heard: list[Event] = []

    def ask(self, *calls: tuple[AnyVerb, Arguments], path: str = "p", flags: RequestFlag = RequestFlag.NONE) -> int:
        self._last += 1
        payload = encode(message(*calls, path=path, request=os.urandom(16), flags=flags))
        body = bool(flags & RequestFlag.BODY)
        for at in range(0, len(payload), MAX_FRAME):
            more = at + MAX_FRAME < len(payload)
            self.say(Request(self._last, payload[at : at + MAX_FRAME], body=body, more=more))
        return self._last

    def say(self, event: Event) -> None:
        self.socket.sendall(self.wire.send(event))

    def push(self, body: bytes, segments: int, flags: RequestFlag = RequestFlag.NONE) -> Event:
        number = self.ask(*CALLS, flags=RequestFlag.BODY | flags)
        for at in range(0, len(body), MAX_FRAME):
            self.say(Body(number, body[at : at + MAX_FRAME]))
        self.say(End(number, segments, len(body)))
        return self.answer(number)

    def answer(self, number: int) -> Event:
        """Return the final answer, or its first frame."""
        while True:
            for event in self.heard:
                if isinstance(event, (Reply, Error)) and event.id == number:
                    return event
            data = self.socket.recv(65536)
            assert data
            self.wire.receive_data(data)
            while (said := self.wire.next_event()) is not None:
                self.heard.append(said)

    def close(self) -> None:
        self._opened.__exit__(None, None, None)


def test_a_graph(tmp_path: Path) -> None:
    count = 150_000
    ids = [hashlib.sha1(b"%d" % number).digest() for number in range(count)]
    body = varint(count) + b"".join(b"\x14" + each + (b"\1\1" if number else b"\0") for number, each in enumerate(ids))
    graph = varint(len(body)) + body
    with Server(tmp_path) as server:
        before = peak(server.process.pid)
        Hostile(server).push(graph, 0, RequestFlag.GRAPH_FIRST)
        assert peak(server.process.pid) - before < held.GRAPH_TIMES * len(graph) + SLACK


def test_a_graph_of_too_many_revisions(tmp_path: Path) -> None:
    body = varint(MAX_ANNOUNCED + 1) + bytes(8 * MIB)
    with Server(tmp_path) as server:
        before = peak(server.process.pid)
        answer = Hostile(server).push(varint(len(body)) + body, 0, RequestFlag.GRAPH_FIRST)
        assert isinstance(answer, Error)
        assert named(decode_failure(answer.payload).fault)["what"] == REVISIONS_OF_GRAPH
        assert peak(server.process.pid) - before < 2 * len(body) + SLACK


def test_zeros(tmp_path: Path) -> None:
    """Records of 36 KB that expand to 1.2 GB are refused; at most one of them is in memory at a time."""
    size, entries, frames = MAX_TAKEN // 4, [], []
    for number in range(18):
        text = bytes(size - number)
        encoding, frame = compress(text)
        key = git_key("git-sha1", BLOB, text)
        entries.append(Entry(0, encoding, key, BLOB, BaseTag.NONE, b"", len(text), len(frame), b""))
        frames.append(frame)
    segment = encode_segment(b"r" * 20, (), entries, frames, KINDS)
    with Server(tmp_path) as server:
        before = peak(server.process.pid)
        answer = Hostile(server).push(segment, 1)
        assert isinstance(answer, Error)
        assert named(decode_failure(answer.payload).fault)["what"] == "decoded bytes of one request"
        assert peak(server.process.pid) - before < held.TEXT_TIMES * size + SLACK


@pytest.mark.parametrize("text", [os.urandom(48 * MIB), b"".join(b"%d\n" % each for each in range(7_000_000))])
def test_a_large_file_is_pushed_and_asked_for(tmp_path: Path, text: bytes) -> None:
    """The segment is held once when it is pushed; for clients that do not read it, it is not held."""
    blob = git_key("git-sha1", BLOB, text)
    tree = b"100644 large\0" + blob
    root = git_key("git-sha1", TREE, tree)
    commit = b"tree %b\nauthor a <a@b> 0 +0000\ncommitter a <a@b> 0 +0000\n\nm\n" % root.hex().encode()
    tip = git_key("git-sha1", COMMIT, commit)
    entries, frames = [], []
    for key, meta, content in ((tip, COMMIT, commit), (root, TREE, tree), (blob, BLOB, text)):
        encoding, frame = compress(content)
        entries.append(Entry(0, encoding, key, meta, BaseTag.NONE, b"", len(content), len(frame), b""))
        frames.append(frame)
    selector = encode_selector(TreeSelector(tip.hex(), b"large", texts=True))
    with Server(tmp_path) as server:
        before = peak(server.process.pid)
        assert isinstance(Hostile(server).push(encode_segment(tip, (), entries, frames, KINDS), 1), Reply)
        assert peak(server.process.pid) - before < 1.3 * len(text) + SLACK
        before = peak(server.process.pid)
        readers = [Hostile(server) for _ in range(20)]
        for reader in readers:
            assert isinstance(reader.answer(reader.ask((repository_read, ReadRequest(selector=selector)))), Reply)
        assert peak(server.process.pid) - before < held.READERS.most + 36 * MIB


def test_the_largest_request(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        before = peak(server.process.pid)
        client = Hostile(server)
        number = client.ask(*[(server_ping, PingRequest())] * MAX_CALLS, path="")
        assert isinstance(client.answer(number), Reply)
        assert peak(server.process.pid) - before < held.LARGEST.most + SLACK


def test_requests_that_are_cancelled_at_once(tmp_path: Path) -> None:
    """Each request is answered, and the memory that they hold is bounded for any number of requests."""
    ids = PullRequest(ids=[hashlib.sha1(b"%d" % number).digest() for number in range(4096)])
    with Server(tmp_path) as server:
        before = peak(server.process.pid)
        client = Hostile(server)
        for _ in range(10 * CANCELLED_HIGH):
            number = client.ask((repository_verify, VerifyRequest()), (repository_pull, ids))
            client.say(Cancel(number))
            if number % 64 == 0:
                client.answer(number)
        assert isinstance(client.answer(number), Error)
        assert peak(server.process.pid) - before < held.WAITING.most + held.LARGEST.most


PROGRAM = """
import sys
from smartserver.cli.main import main
from smartserver.server.work import RequestWork
from smartserver.store import allowance
from smartserver.store.transaction import Transaction
allowance.STEPS = %d
refusal, open_body = RequestWork.refusal, Transaction.open_body
def told(work, wrong):
    print("ended by", type(wrong).__name__, file=sys.stderr, flush=True)
    return refusal(work, wrong)
def opened(*arguments):
    print("begun", file=sys.stderr, flush=True)
    return open_body(*arguments)
RequestWork.refusal, Transaction.open_body = told, opened
sys.exit(main())
"""
"""A server that prints when the body of an answer begins, and the error that ended the work of a request."""

LIMIT = "steps of work for one request"

FEW = 20_000


@contextmanager
def serving(root: Path, steps: int = FEW) -> Iterator[Server]:
    with Server(root, program=("-c", PROGRAM % steps)) as server:
        yield server


def nested(root: Path, *, empty: bool) -> None:
    """Push ten objects with ten levels of ten times the same folder."""
    history = History()
    commit = history.nested(10, 10, empty=empty)
    push(PackRepository(LocalTransport(root), "p"), history, [commit], {MAIN: commit})


def question(selector: bytes) -> Request:
    return Request(1, encode(message((repository_read, ReadRequest(selector)), path="p", request=os.urandom(16))))


@pytest.mark.parametrize("words", [("log", "-v"), ("ls", "-R")])
def test_folders_in_folders_of_git(tmp_path: Path, words: tuple[str, ...]) -> None:
    nested(tmp_path, empty=False)
    with serving(tmp_path) as server:
        before = peak(server.process.pid)
        done = run(*SMARTSERVER, *words, server.url("p"))
        assert (done.status, LIMIT in done.err, done.err.count("\n")) == (1, True, 1), done.err
        assert peak(server.process.pid) - before < 64 * MIB


def test_work_ends_with_its_client(tmp_path: Path) -> None:
    """Folders without a file give nothing to send; without a limit, the walk through them takes years."""
    nested(tmp_path, empty=True)
    with serving(tmp_path, 1 << 60) as server:
        with raw(server.port) as (connection, client):
            connection.sendall(client.send(question(encode_selector(LogSelector(changes=True)))))
            wait_until(lambda: has_line(server, "begun"), "it is at work")
        wait_until(lambda: has_line(server, "ended by Cancelled"), "the work has ended")


def test_what_a_verification_looks_through_is_charged(tmp_path: Path) -> None:
    history, repository = History(), PackRepository(LocalTransport(tmp_path), "p")

    def first(transaction: Transaction) -> None:
        create(transaction)
        for number in range(FEW + 1000):
            transaction.set_map("notes", "opaque", b"%d" % number, b"n")

    push(repository, history, history.line(1), first=first)
    with serving(tmp_path) as server:
        done = run(*SMARTSERVER, "verify", server.url("p"))
        assert (done.status, LIMIT in done.err) == (1, True), done.err


@pytest.mark.interop
def test_folders_in_folders_of_mercurial(tmp_path: Path) -> None:
    """A manifest names files alone: each of these files lies in 400 folders."""
    hg = Mercurial(tmp_path)
    names = [f"{number:03d}/" + "d/" * 400 + "f" for number in range(100)]
    patch = "".join(
        f"diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,1 @@\n+x\n"
        for name in names
    )
    (tmp_path / "patch").write_text(patch)
    hg("init", "a")
    hg("import", "-q", "--bypass", "-m", "m", str(tmp_path / "patch"), where=tmp_path / "a")
    (tmp_path / "root").mkdir()
    with serving(tmp_path / "root") as server:
        hg("push", "-q", server.url("p"), where=tmp_path / "a")
        done = run(*SMARTSERVER, "ls", "-R", server.url("p"))
        assert (done.status, LIMIT in done.err, done.err.count("\n")) == (1, True, 1), done.err
        assert run(*SMARTSERVER, "log", "-v", server.url("p")).worked().out.count("/f\n") == 100

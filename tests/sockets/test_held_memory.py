"""The memory of a real server that connections of a hostile client hold, compared with the promised table."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import held_memory as held
import pytest
from builders import KINDS
from dialogs import message
from processes import peak
from serving import Server
from test_hard_clients import CALLS, raw

from smartserver.records.announced import REVISIONS_OF_GRAPH
from smartserver.records.browse import TreeSelector, encode_selector
from smartserver.records.delta import compress
from smartserver.records.limits import MAX_ANNOUNCED, MAX_TAKEN
from smartserver.records.model import BaseTag, Entry
from smartserver.records.segment import encode_segment
from smartserver.records.varint import encode as varint
from smartserver.server.session import CANCELLED_HIGH
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

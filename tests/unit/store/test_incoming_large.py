"""store.incoming: of the pushes to one process, one decodes a large record at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from builders import MAIN, History, Repeatable, push, upload

from smartserver.errors import CorruptRecord
from smartserver.records import delta
from smartserver.store import incoming
from smartserver.store.repository import PackRepository
from transports.memory import MemoryTransport

LARGE = 1 << 20


class Decoding:
    """Counts the decoders of texts over a size, and lets each wait a while for another."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
        self.at_once = 0
        self.most = 0
        self.lengths: list[int] = []
        self._size = size
        self._guard = threading.Condition()
        self._decompress = delta.decompress
        monkeypatch.setattr(incoming, "decompress", self.decode)

    def decode(self, encoding: int, frame: memoryview, length: int, base: bytes) -> bytes:
        if length < self._size:
            return self._decompress(encoding, frame, length, base)
        with self._guard:
            self.lengths.append(length)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self._guard.notify_all()
            # Were another allowed to be here, it would come as soon as it is waited for.
            self._guard.wait_for(lambda: self.at_once > 1, timeout=0.2)
        try:
            return self._decompress(encoding, frame, length, base)
        finally:
            with self._guard:
                self.at_once -= 1


def send_all(count: int, size: int) -> None:
    """As many pushes at once, each of a text of that size and then one with a delta on it."""
    histories = [History() for _ in range(count)]
    bodies = []
    for number, history in enumerate(histories):
        text = bytes(size - 8) + b"%8d" % number
        first = history.commit({"large": text})
        bodies.append(history.body([first, history.commit({"large": text + b"more"}, (first,))]))

    def send(body: bytes) -> None:
        sent = upload(PackRepository(MemoryTransport(), "project", randomness=Repeatable()), body, 2)
        assert sent.entry is not None
        sent.abandon()

    with ThreadPoolExecutor(count) as threads:
        list(threads.map(send, bodies))


def test_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "LARGE", LARGE)
    seen = Decoding(monkeypatch, LARGE)
    send_all(3, LARGE + 1024)
    assert (seen.most, len(seen.lengths)) == (1, 6)


def test_others_wait_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Decoding(monkeypatch, LARGE)
    send_all(2, LARGE)
    assert (seen.most, len(seen.lengths)) == (2, 4)


def test_what_is_refused_lets_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "LARGE", 100)
    history = History()
    (tip,) = history.line(1)
    segment = bytearray(history.segment(tip))
    segment[-3] ^= 255
    repository = PackRepository(MemoryTransport(), "project", randomness=Repeatable())
    with pytest.raises(CorruptRecord):
        upload(repository, bytes(segment), 1)
    push(repository, history, [tip], {MAIN: tip})
    assert repository.snapshot().view.refs()[MAIN][0].id == tip

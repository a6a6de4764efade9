"""store.parts: of the pushes to one process, one decodes a large record at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from builders import MAIN, History, Repeatable, push, upload
from memory_transport import MemoryTransport
from twins import IN_PYTHON

from smartserver.errors import Cancelled, CorruptRecord
from smartserver.records import delta
from smartserver.records.hunks import Buffer
from smartserver.store import incoming, known_records, parts
from smartserver.store.allowance import Allowance
from smartserver.store.known_records import RecentRecords
from smartserver.store.repository import PackRepository

pytestmark = pytest.mark.usefixtures("proving")

PATIENCE = 60
LARGE = 1 << 20


class Turn:
    """Stands for the lock; tells when somebody asks for it."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.count = 0
        self._lock = threading.Lock()
        self._waiting: set[int] = set()

    def acquire(self, timeout: float = -1) -> bool:
        here = threading.get_ident()
        if here not in self._waiting:
            self._waiting.add(here)
            self.count += 1
            self.asked.release()
        if not self._lock.acquire(timeout=timeout):
            return False
        self._waiting.discard(here)
        return True

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


@pytest.fixture
def turn(monkeypatch: pytest.MonkeyPatch) -> Turn:
    made = Turn()
    monkeypatch.setattr(parts, "_turn", made)
    monkeypatch.setattr(parts, "ALONE", LARGE)
    return made


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the texts that were decoded."""
    lengths: list[int] = []

    def decompress(encoding: int, frame: memoryview, length: int, base: bytes) -> bytes:
        lengths.append(length)
        return delta.decompress(encoding, frame, length, base)

    def decompress_parts(
        encoding: int, frame: Iterable[Buffer], length: int, base: Iterable[Buffer] = ()
    ) -> Iterator[Buffer]:
        lengths.append(length)
        return delta.decompress_parts(encoding, frame, length, base)

    monkeypatch.setattr(incoming, "decompress", decompress)
    monkeypatch.setattr(incoming, "decompress_parts", decompress_parts)
    return lengths


def send(*sizes: int) -> None:
    """A push of a file that has these sizes one after the other, each version a delta on the one before."""
    history = History()
    line: list[bytes] = []
    for number, size in enumerate(sizes):
        line.append(history.commit({"file": bytes(size - 8) + b"%8d" % number}, line[-1:]))
    sent = upload(PackRepository(MemoryTransport(), "project", randomness=Repeatable()), history.body(line), len(line))
    assert sent.entry is not None
    sent.abandon()


@IN_PYTHON
def test_who_decodes_one_is_waited_for(turn: Turn, decoded: list[int]) -> None:
    with ThreadPoolExecutor(2) as threads:
        waiting: list[Future[None]] = []
        with turn:
            assert turn.asked.acquire(timeout=PATIENCE)
            for _ in range(2):
                waiting.append(threads.submit(send, LARGE + 1))
                assert turn.asked.acquire(timeout=PATIENCE)
            assert not [length for length in decoded if length > LARGE]
        for each in waiting:
            each.result(PATIENCE)
    assert [length for length in decoded if length > LARGE] == [LARGE + 1] * 2


def test_smaller_ones_wait_for_nobody(turn: Turn) -> None:
    """However long the chain is that they end."""
    with turn:
        send(LARGE)
        send(*range(LARGE // 8, LARGE // 8 + 40))
    assert turn.count == 1


@IN_PYTHON
def test_a_base_counts(turn: Turn) -> None:
    send(LARGE // 2, LARGE // 2 + 1)
    assert turn.count == 1
    send(LARGE // 2, LARGE // 2)
    assert turn.count == 1


@pytest.mark.parametrize("size", [LARGE, LARGE + 1])
def test_a_file_for_git_is_read_in_its_turn(turn: Turn, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """It is decoded a second time, and also where the repository has it under another name."""
    monkeypatch.setattr(known_records, "RecentRecords", lambda: RecentRecords(0))
    history = History()
    text = (b"#\n" * size)[:size]
    first = history.commit({".gitattributes": text}, [])
    repository = PackRepository(MemoryTransport(), "project", randomness=Repeatable())
    push(repository, history, [first], {MAIN: first})
    assert turn.count == (2 if size > LARGE else 0)
    second = history.commit({"a": b"", "b": text}, [first])
    push(repository, history, [second], {MAIN: second})
    third = history.commit({"a": b"", "b": b"", ".gitattributes": text}, [second])
    push(repository, history, [third], {MAIN: third})
    assert turn.count == (3 if size > LARGE else 0)


def test_what_is_refused_lets_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "ALONE", 100)
    history = History()
    (tip,) = history.line(1)
    segment = bytearray(history.segment(tip))
    segment[-3] ^= 255
    repository = PackRepository(MemoryTransport(), "project", randomness=Repeatable())
    with pytest.raises(CorruptRecord):
        upload(repository, bytes(segment), 1)
    push(repository, history, [tip], {MAIN: tip})
    assert repository.snapshot().state.refs()[MAIN][0].id == tip


def test_who_waits_for_a_turn_and_is_gone_waits_no_longer(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LOOK", 0.001)
    allowance = Allowance()
    allowance.cancelled = True
    with turn, pytest.raises(Cancelled), parts.turn(1 << 20, LARGE + 1, lambda: 0, allowance):
        pass
    assert turn.count == 2

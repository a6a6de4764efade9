"""store.incoming, store.parts: a push is charged as it is done, and decodes large records one at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from builders import GIT, KINDS, MAIN, SETTINGS, History, Repeatable, push, upload
from calls import calls_of
from memory_transport import MemoryTransport
from twins import IN_PYTHON

from smartserver.errors import Cancelled, CorruptRecord, LimitExceeded
from smartserver.records import delta, limits
from smartserver.records.hunks import Buffer
from smartserver.store import allowance as allowances
from smartserver.store import incoming, known_records, parts
from smartserver.store.allowance import Allowance
from smartserver.store.known_records import KnownRecords, RecentRecords
from smartserver.store.repository import PackRepository
from smartserver.store.upload import Upload
from smartserver.vcs.git import fsck as fsck_git

pytestmark = pytest.mark.usefixtures("proving")


def receive(allowance: Allowance, *, graph_first: bool = False) -> Upload:
    repository = PackRepository(MemoryTransport(), "project", randomness=Repeatable())
    transaction = repository.begin(allowance=allowance)
    transaction.create(GIT, KINDS, SETTINGS)
    return repository.receive(transaction, graph_first=graph_first)


def zeros(files: int, size: int) -> tuple[History, list[bytes]]:
    history = History()
    return history, [history.commit({f"file{number}": bytes(size + number) for number in range(files)}, [])]


def test_zeros_are_decoded_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowances, "DECODED", 1 << 20)
    history, line = zeros(20, 200_000)
    body, allowance = history.body(line), Allowance()
    allowance.came(len(body))
    sent = receive(allowance)
    with pytest.raises(LimitExceeded, match="decoded bytes of one request"):
        sent.write(body)
    sent.abandon()
    most = (1 << 20) + allowances.DECODED_OF_BYTE * len(body)
    assert most < allowance.decoded < most + 210_000


def test_a_base_that_was_not_seen_lately_is_charged_with_all_it_rests_on(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History()
    line: list[bytes] = []
    for number in range(6):
        line.append(history.commit({"file": Repeatable(7)(50_000) + b"%d" % number}, line[-1:]))
    charged: list[int] = []
    for kept in (True, False):
        allowance = Allowance()
        if not kept:  # In Python, and natively.
            monkeypatch.setattr(known_records, "RecentRecords", lambda: RecentRecords(0))
            monkeypatch.setattr(incoming, "TEXT_BYTES", 0)
        sent = receive(allowance)
        sent.write(history.body(line))
        sent.abandon()
        charged.append(allowance.decoded)
    seen, unseen = charged
    assert 6 * 50_000 < seen < 7 * 50_000
    assert unseen > (1 + 2 + 3 + 4 + 5 + 6) * 50_000


@IN_PYTHON
def test_a_push_ends_at_the_next_record_once_its_client_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    history, line = zeros(20, 1000)
    allowance = Allowance()
    sent = receive(allowance)
    decoded: list[int] = []

    def noted(encoding: int, frame: memoryview, length: int, base: bytes) -> bytes:
        decoded.append(length)
        allowance.cancelled = len(decoded) == 3
        return delta.decompress(encoding, frame, length, base)

    monkeypatch.setattr(incoming, "decompress", noted)
    with pytest.raises(Cancelled):
        sent.write(history.body(line))
    sent.abandon()
    assert len(decoded) == 3


@pytest.mark.long
def test_the_graph_of_a_client_that_is_gone_is_read_no_further() -> None:
    history = History()
    line = history.line(3000)
    allowance = Allowance()
    sent = receive(allowance, graph_first=True)
    allowance.cancelled = True
    with pytest.raises(Cancelled):
        sent.write(history.body(line, graph_first=True))
    assert sent.graph() is None
    sent.abandon()


@IN_PYTHON
def test_a_folder_is_no_longer_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "MAX_REFERRING", 300)
    history, line = zeros(20, 400)
    sent = receive(Allowance())
    with pytest.raises(LimitExceeded, match=f"too many {limits.BYTES_OF_REFERRING}: .*, at most 300 are allowed"):
        sent.write(history.body(line))
    sent.abandon()


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """No text is kept, as none of a large record is."""
    monkeypatch.setattr(known_records, "RecentRecords", lambda: RecentRecords(0))


def read_by_git(name: str, text: bytes, allowance: Allowance, *, stored: bool = False) -> None:
    """Push a file that git itself reads. `stored`: the repository has it already under another name."""
    history = History()
    line = [history.commit({"file": text}, [])] if stored else []
    repository = PackRepository(MemoryTransport(), "project", randomness=Repeatable())
    if stored:
        push(repository, history, line, {MAIN: line[0]})
    line.append(history.commit({name: text}, line))
    transaction = repository.begin(allowance=allowance)
    if not stored:
        transaction.create(GIT, KINDS, SETTINGS)
    sent = repository.receive(transaction)
    try:
        sent.write(history.body(line[-1:]))
    finally:
        sent.abandon()


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("name", "limit"), [(".gitmodules", "MAX_GITMODULES"), (".gitattributes", "MAX_GITATTRIBUTES")]
)
def test_a_file_for_git_that_is_too_large_is_refused_undecoded(
    monkeypatch: pytest.MonkeyPatch, name: str, limit: str, stored: bool
) -> None:
    text = b"#\n" * 25_000
    monkeypatch.setattr(fsck_git, limit, len(text) - 1)
    reads = calls_of(monkeypatch, KnownRecords, "read")
    allowance = Allowance()
    with pytest.raises(CorruptRecord, match=f"Large: {name} has 50000 bytes, expected no more than 49999"):
        read_by_git(name, text, allowance, stored=stored)
    assert reads == []
    assert allowance.decoded < len(text) + 5000


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", [".gitmodules", ".gitattributes"])
def test_a_file_for_git_that_is_decoded_again_is_charged_again(name: str, stored: bool) -> None:
    text = b"#\n" * 25_000
    plain, allowance = Allowance(), Allowance()
    read_by_git("file", text, plain)
    read_by_git(name, text, allowance, stored=stored)
    first = 0 if stored else len(text)
    assert first + len(text) <= allowance.decoded < first + len(text) + 5000
    assert plain.decoded < len(text) + 5000


def test_the_settings_of_a_file_for_git_are_charged() -> None:
    allowance = Allowance()
    text = b'[submodule "x"]\n' + b"a\n" * 10_000
    read_by_git(".gitmodules", text, allowance)
    assert 10_000 < allowance.steps < 11_000


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

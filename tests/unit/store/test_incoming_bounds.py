"""store.incoming: what a push costs is charged as it is done, and ends when its client is gone."""

from __future__ import annotations

import pytest
from builders import GIT, KINDS, MAIN, SETTINGS, History, Repeatable, push
from memory_transport import MemoryTransport
from twins import IN_PYTHON

from smartserver.errors import Cancelled, CorruptRecord, LimitExceeded
from smartserver.records import delta, limits
from smartserver.store import allowance as allowances
from smartserver.store import incoming, known_records
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
    reads = 0

    def read_record(self: KnownRecords, kind: int, key: bytes) -> None:
        nonlocal reads
        reads += 1

    monkeypatch.setattr(KnownRecords, "read", read_record)
    allowance = Allowance()
    with pytest.raises(CorruptRecord, match=f"Large: {name} has 50000 bytes, expected no more than 49999"):
        read_by_git(name, text, allowance, stored=stored)
    assert reads == 0
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

from __future__ import annotations

from collections.abc import Callable

import pytest
from builders import MAIN, Clock, History, Repeatable, push, request_id

from smartserver.store import strays
from smartserver.store.format import LOG, LOST, PACKS, TABLES
from smartserver.store.intent import Intent, encode_intent
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from smartserver.store.strays import Stray
from smartserver.store.swap_log import LogEntry, log_file
from transports.memory import MemoryTransport

NAME = b"n" * 16


@pytest.fixture
def storage() -> MemoryTransport:
    return MemoryTransport(Clock(1000.0))


@pytest.fixture
def repository(storage: MemoryTransport, history: History) -> PackRepository:
    repository = PackRepository(storage, clock=Clock(), randomness=Repeatable())
    for each in history.line(3):
        push(repository, history, [each], {MAIN: each})
    return repository


def found(repository: PackRepository, *places: str) -> list[Stray]:
    folder = repository.folder
    listed = [f"{place}/{name}" for place in places for name in folder.list_directory(place)]
    return strays.find(folder, listed, repository.file.read(), ())


def is_superseded(repository: PackRepository, stray: Stray) -> bool:
    snapshot = repository.snapshot()
    return strays.is_superseded(stray, snapshot.view, lambda: snapshot)


def copy(
    storage: MemoryTransport, snapshot: Snapshot, change: Callable[[bytes], bytes] = lambda content: content
) -> None:
    """A pack that no root names, with the content of the first one."""
    storage.put(f"{PACKS}/{NAME.hex()}.pack", [change(storage.get(snapshot.packs[0].path))])
    storage.put(f"{PACKS}/{NAME.hex()}.idx", [b"an index"])


def test_what_the_root_names_is_no_stray(repository: PackRepository) -> None:
    assert found(repository, PACKS, TABLES, LOG) == []


def test_a_pack_and_its_index_are_one(repository: PackRepository, storage: MemoryTransport) -> None:
    copy(storage, repository.snapshot())
    (stray,) = found(repository, PACKS)
    assert set(stray.paths) == {f"{PACKS}/{NAME.hex()}.pack", f"{PACKS}/{NAME.hex()}.idx"}
    assert stray.pack == f"{PACKS}/{NAME.hex()}.pack"
    assert stray.modified == 1000.0


def test_the_pack_of_a_change_that_was_made(repository: PackRepository, storage: MemoryTransport) -> None:
    snapshot = repository.snapshot()
    copy(storage, snapshot)
    (stray,) = found(repository, PACKS)
    intent = stray.intent
    assert intent is not None
    assert intent.entry == snapshot.root.log[0]
    assert strays.is_logged(stray, snapshot.view)
    assert is_superseded(repository, stray)


def test_the_pack_of_a_change_that_is_not_known(repository: PackRepository, storage: MemoryTransport) -> None:
    snapshot = repository.snapshot()
    length = snapshot.packs[0].entry.length
    intent = encode_intent(Intent(b"i" * 16, (), LogEntry(2, 0, "", request_id(), b"")))
    copy(storage, snapshot, lambda content: content[:length] + intent)
    (stray,) = found(repository, PACKS)
    assert not strays.is_logged(stray, snapshot.view)
    assert not is_superseded(repository, stray)  # Its segments are stored, but not its change.


def test_a_joined_pack_whose_segments_are_all_stored(repository: PackRepository, storage: MemoryTransport) -> None:
    snapshot = repository.snapshot()
    length = snapshot.packs[0].entry.length
    intent = encode_intent(Intent(b"i" * 16, (), None, (b"a" * 16,)))
    copy(storage, snapshot, lambda content: content[:length] + intent)
    (stray,) = found(repository, PACKS)
    assert is_superseded(repository, stray)
    other = PackRepository(MemoryTransport())
    push(other, History(), [])
    empty = other.snapshot()
    assert not strays.is_superseded(stray, snapshot.view, lambda: empty)


@pytest.mark.parametrize("content", [b"", b"no pack", bytes(1000)])
def test_a_pack_without_an_intent_proves_nothing(
    repository: PackRepository, storage: MemoryTransport, content: bytes
) -> None:
    copy(storage, repository.snapshot(), lambda _: content)
    (stray,) = found(repository, PACKS)
    assert not is_superseded(repository, stray)


def test_a_log_file_whose_entries_the_log_has(repository: PackRepository, storage: MemoryTransport) -> None:
    log = repository.file.read().log
    for entries, known in ((log, True), ((*log, LogEntry(9, 0, "", request_id(), b"")), False)):
        line, content = log_file(entries, bytes(8))
        storage.put(line.path, [content])
        (stray,) = found(repository, LOG)
        assert stray.is_log
        assert is_superseded(repository, stray) is known
        storage.delete(line.path)


def test_files_are_moved_by_their_names(storage: MemoryTransport) -> None:
    for place in (PACKS, LOG):
        storage.make_directory(place)
        storage.put(f"{place}/{place}-1", [b""])
    strays.move_to_lost(storage, [f"{PACKS}/{PACKS}-1"])
    strays.move_to_lost(storage, [f"{LOG}/{LOG}-1"])
    assert storage.list_directory(LOST) == ["log-1", "packs-1"]
    assert storage.crash().list_directory(LOST) == ["log-1", "packs-1"]

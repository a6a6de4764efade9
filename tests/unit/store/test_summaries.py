"""store.summaries, store.summarise: what a log shows of large packs, read from the files beside them; here of git."""

from __future__ import annotations

import logging

import pytest
from builders import MAIN, Clock, Far, History, Repeatable, push
from changes import replace
from memory_transport import MemoryTransport

from smartserver.errors import CorruptFile
from smartserver.meters import HEADER_CACHE
from smartserver.records.browse import ContentStream, Header, LogEntry, LogSelector, encode_selector
from smartserver.records.system import system_of
from smartserver.store import browse, caches, open_pack, summaries, summarise, upkeep
from smartserver.store.caches import Block, SharedCache
from smartserver.store.model import ContentPlan
from smartserver.store.record import PackEntry
from smartserver.store.repository import PackRepository
from smartserver.store.summaries import Summaries, encode_summaries, summaries_path
from smartserver.vcs.git.content import GitContents
from transports.base import BytesFile

TAG = b"refs/tags/v1"
SELECTORS = [LogSelector(messages=bool(form & 1), changes=bool(form & 2)) for form in range(4)]
DAY = 24 * 3600


@pytest.fixture(autouse=True)
def sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four revisions, two of which lie side by side, for packs of six and more."""
    for module in (browse, summaries, summarise):
        monkeypatch.setattr(module, "BITS", 2)
        monkeypatch.setattr(module, "BLOCK", 4)
    for module in (open_pack, summaries, summarise):
        monkeypatch.setattr(module, "LEAST", 6, raising=False)
    monkeypatch.setattr(summaries, "GROUP", 2)
    forget(monkeypatch)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing in memory of any log."""
    monkeypatch.setattr(browse, "HEADERS", SharedCache[Block](1 << 20, caches.cost_of_block, HEADER_CACHE))


class Stored:
    """A line of fourteen, a tag and a merge, in packs of ten, three and four revisions."""

    def __init__(self) -> None:
        self.opened = 0
        self.clock = Clock()
        self.storage = MemoryTransport(self.clock)
        self.history = History()
        line = self.history.line(14)
        merge = self.history.commit(self.history.files(line[13]), [line[13], line[2]], "merge")
        tag = self.history.tag(line[5])
        push(self.repository(), self.history, line[:10], {MAIN: line[9]})
        push(self.repository(), self.history, line[10:13], {MAIN: line[12]})
        push(self.repository(), self.history, [line[13], merge, tag], {MAIN: merge, TAG: tag})

    def repository(self) -> PackRepository:
        """The repository, as a server opens it after a start."""
        self.opened += 1
        return PackRepository(self.storage, "p", clock=self.clock, randomness=Repeatable(self.opened))

    def packs(self) -> list[PackEntry]:
        return list(self.repository().snapshot().state.packs)

    def files(self) -> list[str]:
        """The summaries that are there."""
        return sorted(f"p/packs/{n}" for n in self.storage.list_directory("p/packs") if n.endswith(".summaries"))


def logged(repository: PackRepository, selector: LogSelector) -> list[LogEntry]:
    transaction = repository.begin()
    plan, _ = transaction.plan_read(encode_selector(selector), ())
    assert isinstance(plan, ContentPlan)
    reader = transaction.open_body(plan)
    return list(ContentStream(iter(lambda: reader.read(1 << 16), b"")).log())


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def by_records(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> list[list[LogEntry]]:
    """The answer to each selector without a file."""
    found = [logged(stored.repository(), selector) for selector in SELECTORS]
    forget(monkeypatch)
    assert stored.files() == []
    return found


def test_a_log_is_the_same_and_reads_no_record_of_a_large_pack(
    stored: Stored, by_records: list[list[LogEntry]], headers_read: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.repository().tidy()
    assert stored.files() == [f"p/{summaries_path(stored.packs()[0].name)}"]
    for selector, expected in zip(SELECTORS, by_records, strict=True):
        forget(monkeypatch)
        headers_read.clear()
        assert logged(stored.repository(), selector) == expected
        assert len(headers_read) == 5  # Of the packs that are small.
    assert stored.repository().verify().problems == ()


def test_of_joined_packs_they_are_made_out_of_theirs(
    stored: Stored, by_records: list[list[LogEntry]], headers_read: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored.repository().tidy()
    forget(monkeypatch)
    headers_read.clear()
    stored.repository().repack()
    assert len(headers_read) == 6  # A tag is asked for, too.
    forget(monkeypatch)
    headers_read.clear()
    for selector, expected in zip(SELECTORS, by_records, strict=True):
        assert logged(stored.repository(), selector) == expected
    assert headers_read == []
    (entry,) = stored.packs()
    assert len(stored.files()) == 2
    stored.clock.now += DAY + 1
    stored.repository().collect_garbage_files()
    assert stored.files() == [f"p/{summaries_path(entry.name)}"]


def test_with_ghosts_what_changed_is_read_from_the_records(
    stored: Stored, by_records: list[list[LogEntry]], headers_read: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_of("git sha1"), "ghosts", True)
    stored.repository().repack()
    for selector, expected in zip(SELECTORS, by_records, strict=True):
        forget(monkeypatch)
        headers_read.clear()
        assert logged(stored.repository(), selector) == expected
        assert bool(headers_read) is selector.changes


def test_damage_anywhere(
    stored: Stored, by_records: list[list[LogEntry]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Damage is named by `verify`, never shown, and mended by the next upkeep. So is a file that was cut off."""
    stored.repository().repack()
    (path,) = stored.files()
    content = stored.storage.get(path)
    caplog.set_level(logging.CRITICAL, "smartserver")
    flips = range(0, len(content), 11)
    wrong = [content[:at] + bytes((content[at] ^ 1 << at % 8,)) + content[at + 1 :] for at in flips]
    for at, damaged in enumerate([*wrong, *(content[:size] for size in range(0, len(content), 100))]):
        replace(stored.storage, path, damaged)
        forget(monkeypatch)
        assert logged(stored.repository(), SELECTORS[3]) == by_records[3], at
        (problem,) = stored.repository().verify().problems
        assert problem.startswith(path.removeprefix("p/")), problem
        assert problem.endswith("smartserver pack makes it again"), problem
    repository = stored.repository()
    logged(repository, SELECTORS[3])
    repository.tidy()
    assert stored.storage.get(path) == content
    replace(stored.storage, path, b"X" + content[1:])
    stored.repository().repack()  # As `smartserver pack`, by a process that has read nothing of it.
    assert stored.storage.get(path) == content
    assert repository.verify().problems == ()


def test_what_is_not_as_the_records_say_is_named(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    stored.repository().repack()
    (path,), (entry,) = stored.files(), stored.packs()
    file = Summaries(BytesFile(stored.storage.get(path)), entry)
    blocks = [file.block(number, messages=True, changes=True) or () for number in range(file.blocks)]
    blocks[2] = blocks[0]
    replace(stored.storage, path, b"".join(encode_summaries(blocks, entry, 3)))
    forget(monkeypatch)
    (problem,) = stored.repository().verify().problems
    assert "block 2 is not what the records say" in problem


def test_those_of_another_pack_are_refused(stored: Stored) -> None:
    stored.repository().tidy()
    (path,) = stored.files()
    content, (first, second, _) = stored.storage.get(path), stored.packs()
    Summaries(BytesFile(content), first)
    with pytest.raises(CorruptFile, match="not the summaries of the pack"):
        Summaries(BytesFile(content), second)


def test_a_damaged_record_is_left_out(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other revisions are summarised; a log of the damaged one fails."""

    def broken(contents: GitContents, revision: bytes) -> Header | None:
        if revision == lost:
            raise ValueError("it is broken")
        return header(contents, revision)

    header, lost = GitContents.header, stored.repository().snapshot().revision(4)
    monkeypatch.setattr(GitContents, "header", broken)
    stored.repository().tidy()
    file = Summaries(BytesFile(stored.storage.get(stored.files()[0])), stored.packs()[0])
    block = file.block(1, messages=True, changes=True)
    assert block is not None
    assert [row is None for row in block] == [True, False, False, False]


def test_behind_a_link_there_are_none(stored: Stored) -> None:
    PackRepository(Far(stored.storage), "p", clock=stored.clock).repack()
    assert stored.files() == []


def test_those_of_a_pack_that_is_gone_go_a_day_later(stored: Stored) -> None:
    alone = f"p/{summaries_path(bytes(16))}"
    stored.storage.put(alone, [b""])
    stored.repository().collect_garbage_files()
    assert stored.files() == [alone]
    stored.clock.now += upkeep.KEPT + 1
    stored.repository().collect_garbage_files()
    assert stored.files() == []

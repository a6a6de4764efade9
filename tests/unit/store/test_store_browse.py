"""store.browse, store.content: trees, logs and the graph of a stored repository, as content bodies; here of git.

store.summaries, store.summarise: what a log shows of large packs, read from the files beside them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence

import pytest
from builders import KINDS, MAIN, SILENT, Clock, Far, History, Repeatable, push
from bzr_builders import KINDS as BZR_KINDS
from bzr_builders import TRUNK, BzrHistory
from calls import calls_of, raising
from changes import replace
from counting import Counting
from memory_transport import MemoryTransport

from smartserver.client.exchange import read_graph
from smartserver.errors import (
    Cancelled,
    CorruptFile,
    CorruptRecord,
    LimitExceeded,
    NoSuchPart,
    NoSuchRepository,
    Unsupported,
)
from smartserver.meters import DECOMPRESSED, HEADER_CACHE
from smartserver.records.browse import (
    ChangedPath,
    ContentStream,
    Header,
    ListedNode,
    LogEntry,
    LogSelector,
    Selector,
    TreeSelector,
    encode_selector,
)
from smartserver.records.content import as_graph
from smartserver.records.model import HERE, GraphNode, Parent, Tip
from smartserver.records.system import system_of
from smartserver.store import allowance as allowances
from smartserver.store import browse, caches, graph, open_pack, summaries, summarise, upkeep
from smartserver.store.allowance import Allowance
from smartserver.store.browse import ContentBody
from smartserver.store.caches import Block, SharedCache, TextCache
from smartserver.store.content import ContentReader
from smartserver.store.model import ContentPlan
from smartserver.store.record import PackEntry
from smartserver.store.repository import PackRepository
from smartserver.store.summaries import Summaries, encode_summaries, summaries_path
from smartserver.store.transaction import Transaction
from smartserver.vcs.bzr.kinds import TEXT
from smartserver.vcs.git.content import GitContents
from transports.base import BytesFile

TAG = b"refs/tags/v1"


@pytest.fixture(autouse=True)
def sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of four revisions, two of which lie side by side in the summaries of packs of six and more."""
    for module in (browse, summaries, summarise):
        monkeypatch.setattr(module, "BITS", 2)
        monkeypatch.setattr(module, "BLOCK", 4)
    for module in (open_pack, summaries, summarise):
        monkeypatch.setattr(module, "LEAST", 6, raising=False)
    monkeypatch.setattr(summaries, "GROUP", 2)
    monkeypatch.setattr(browse, "FIRST_PIECE", 300)
    monkeypatch.setattr(browse, "MAX_GROUP", 300)
    forget(monkeypatch)


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing in memory of any log."""
    monkeypatch.setattr(browse, "HEADERS", SharedCache[Block](1 << 20, caches.cost_of_block, HEADER_CACHE))


class Stored:
    """A line of ten in two packs, a branch off its fourth that is merged, and a tag on the sixth."""

    def __init__(self) -> None:
        self.history = History()
        self.repository = PackRepository(MemoryTransport(), "project")
        self.line = self.history.line(10)
        self.side = self.history.commit({**self.history.files(self.line[3]), "doc/new": b"beside\n"}, [self.line[3]])
        files = {**self.history.files(self.line[9]), "doc/new": b"beside\n"}
        self.merge = self.history.commit(files, [self.line[9], self.side], "merge")
        self.tag = self.history.tag(self.line[5])
        push(self.repository, self.history, self.line[:5], {MAIN: self.line[4]})
        rest = [*self.line[5:], self.side, self.merge, self.tag]
        push(self.repository, self.history, rest, {MAIN: self.merge, TAG: self.tag})

    def body(self, selector: Selector, ref: bytes = HERE, inner: str = "", level: int = 0) -> list[bytes]:
        transaction = self.repository.begin()
        plan, said = transaction.plan_read(encode_selector(selector), (), ref=ref, inner=inner)
        assert said == b""
        assert isinstance(plan, ContentPlan)
        assert plan
        reader = transaction.open_body(plan, level)
        assert isinstance(reader, ContentBody)
        chunks: list[bytes] = []
        while chunk := reader.read(100):
            assert len(chunk) <= 100
            chunks.append(chunk)
        assert reader.size == sum(map(len, chunks))
        return chunks

    def log(self, selector: LogSelector, ref: bytes = HERE) -> list[LogEntry]:
        return list(ContentStream(self.body(selector, ref)).log())

    def ids(self, selector: LogSelector, ref: bytes = HERE) -> list[bytes]:
        return [bytes.fromhex(entry.id) for entry in self.log(selector, ref)]

    def entries(self, selector: TreeSelector, ref: bytes = HERE) -> list[ListedNode]:
        return list(ContentStream(self.body(selector, ref)).entries(texts=selector.texts))


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.mark.parametrize("selector", [LogSelector(), LogSelector(messages=False), LogSelector(changes=True)])
def test_what_was_shown_is_not_read_again(stored: Stored, headers_read: list[bytes], selector: LogSelector) -> None:
    first = stored.log(selector)
    assert len(headers_read) == len(first) == 12
    assert stored.log(selector) == first
    assert len(headers_read) == 12


def test_only_what_a_log_shows_is_read(stored: Stored, headers_read: list[bytes]) -> None:
    assert len(stored.log(LogSelector(limit=3))) == len(headers_read) == 3
    stored.log(LogSelector(stored.line[7].hex(), stored.line[4].hex()))
    assert headers_read[3:] == stored.line[5:8]
    stored.log(LogSelector(path=b"doc"))
    assert headers_read[6:] == [stored.side] if stored.side not in headers_read[:6] else headers_read[6:] == []
    assert len(stored.log(LogSelector())) == 12
    assert len(headers_read) == len(set(headers_read)) == 12


def test_long_headers_are_not_kept(stored: Stored, headers_read: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "LONGEST", 10)
    first = stored.log(LogSelector())
    assert stored.log(LogSelector()) == first
    assert len(headers_read) == 24


def test_a_revision_that_no_client_takes_is_refused_by_name(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "MAX_REVISION", 50)
    with pytest.raises(LimitExceeded, match=r"what a log says of [0-9a-f]{40}"):
        stored.log(LogSelector())


def test_damage_of_what_a_log_does_not_show_does_not_matter(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    header = GitContents.header

    def broken(contents: GitContents, revision: bytes) -> Header | None:
        if revision == stored.line[5]:
            raise ValueError("it has no end")
        return header(contents, revision)

    monkeypatch.setattr(GitContents, "header", broken)
    assert stored.ids(LogSelector(stored.line[9].hex(), stored.line[5].hex())) == stored.line[9:5:-1]
    with pytest.raises(CorruptRecord, match="cannot be read: it has no end"):
        stored.log(LogSelector())


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        (TreeSelector("nowhere"), "unknown revision 'nowhere'"),
        (TreeSelector(path=b"nowhere"), "nothing at nowhere in "),
        (TreeSelector(path=b"README/x"), "nothing at README/x in "),
        (LogSelector("ffffffffff"), "unknown revision 'ffffffffff'"),
        (LogSelector(oldest="nowhere"), "unknown revision 'nowhere'"),
    ],
)
def test_what_is_named_and_not_there_is_refused(stored: Stored, selector: Selector, why: str) -> None:
    with pytest.raises(NoSuchPart) as caught:
        stored.body(selector)
    assert why in str(caught.value)


def test_a_system_without_trees_is_refused() -> None:
    history, repository = History(), PackRepository(MemoryTransport(), "project")

    def create(transaction: Transaction) -> None:
        transaction.create(SILENT, KINDS, {})

    push(repository, history, history.line(1), first=create)
    with pytest.raises(Unsupported, match="reading files of a repository of another 1"):
        repository.begin().plan_read(encode_selector(TreeSelector()), ())


def test_a_tree_that_cannot_be_read_is_damage(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GitContents, "_entries", raising(ValueError("it has no end")))
    with pytest.raises(CorruptRecord, match="cannot be read: it has no end"):
        stored.body(TreeSelector())


def test_the_first_pieces_of_a_body_are_short() -> None:
    body = ContentBody(iter([bytes(5000)]), 0)
    assert list(map(len, iter(lambda: body.read(2000), b""))) == [300, 600, 1200, 2000, 909]
    body = ContentBody(iter([bytes(5000)]), 0)
    assert [len(body.read(size)) for size in (10, 5000, 0, 5000)] == [10, 300, 0, 600]


def test_an_item_of_a_log_has_several_revisions_but_not_all(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = calls_of(monkeypatch, browse, "encode_item", lambda revisions: [len(each) for each in revisions])
    assert len(stored.log(LogSelector())) == sum(map(len, groups)) == 12
    assert 1 < len(groups) < 12
    assert all(sum(group) <= 300 or len(group) == 1 for group in groups)
    monkeypatch.setattr(browse, "MAX_GROUP", 1)
    groups.clear()
    assert len(stored.log(LogSelector())) == len(groups) == 12


def test_a_log_that_is_read_in_part_walks_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    monkeypatch.setattr(Allowance, "charge", lambda _, count: steps.append(count))
    history = History()
    line = history.line(40)
    repository = PackRepository(MemoryTransport(), "project")
    push(repository, history, line, {MAIN: line[-1]})
    monkeypatch.setattr(graph, "CHECK", 4)
    transaction = repository.begin()
    plan, _ = transaction.plan_read(encode_selector(LogSelector()), ())
    body = transaction.open_body(plan)
    steps.clear()
    assert body.read(100)
    begun = sum(steps)
    while body.read(1000):
        pass
    assert 0 < begun < 40 < sum(steps)


def test_each_record_of_a_log_is_decoded_once_whatever_the_cache_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit rests on the one before, and the log begins with the last."""
    monkeypatch.setattr(browse, "BLOCK", 60)
    history = History()
    line = history.line(120)
    storage = MemoryTransport()
    push(PackRepository(storage, "project"), history, line, {MAIN: line[-1]})
    stored = PackRepository(storage, "project", texts=TextCache(8 * (caches.OF_TEXT + 300)))
    transaction, counting = stored.begin(), Counting()
    plan, _ = transaction.plan_read(encode_selector(LogSelector()), ())
    body = transaction.open_body(plan)
    assert len(list(ContentStream(iter(lambda: body.read(1000), b"")).log())) == 120
    assert counting[DECOMPRESSED] < 3 * 120  # Newest first it would be 16 times.


class Counted(Allowance):
    """An allowance of few steps, which is cancelled with charge number `leaves`."""

    def __init__(self, leaves: int = 0) -> None:
        super().__init__()
        self.charges = 0
        self.left = threading.Event()
        self._leaves = leaves

    def charge(self, steps: int) -> None:
        self.charges += 1
        if self.charges == self._leaves:
            self.cancelled = True
            self.left.set()
        super().charge(steps)


def nested(empty: bool = False) -> PackRepository:
    """A commit with 100,000 paths and as many folders, of six objects."""
    history, repository = History(), PackRepository(MemoryTransport(), "project")
    commit = history.nested(5, 10, empty=empty)
    push(repository, history, [commit], {MAIN: commit})
    return repository


def read(repository: PackRepository, selector: Selector, allowance: Allowance) -> list[bytes]:
    """The pieces of the answer, as far as they came: what ends it is raised."""
    transaction = repository.begin(allowance=allowance)
    plan, _ = transaction.plan_read(encode_selector(selector), ())
    body = transaction.open_body(plan)
    return list(iter(lambda: body.read(1000), b""))


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize(
    "selector",
    [
        LogSelector(changes=True),
        TreeSelector(deep=True),
        TreeSelector(deep=True, sizes=True),
        TreeSelector(deep=True, texts=True),
    ],
)
def test_folders_in_folders_are_charged_for_each_path(
    monkeypatch: pytest.MonkeyPatch, selector: Selector, empty: bool
) -> None:
    """Some hundred bytes name 100,000 paths; a folder in which nothing is found is charged, too."""
    monkeypatch.setattr(allowances, "STEPS", 2000)
    allowance = Counted()
    with pytest.raises(LimitExceeded, match="steps of work for one request: "):
        read(nested(empty), selector, allowance)
    assert 2000 < allowance.steps < 3000


@pytest.mark.parametrize("selector", [LogSelector(changes=True), TreeSelector(deep=True)])
def test_a_client_that_leaves_ends_the_piece_that_is_made(selector: Selector) -> None:
    allowance, ended = Counted(leaves=1000), list[BaseException]()

    def work() -> None:
        try:
            read(nested(), selector, allowance)
        except Cancelled as error:
            ended.append(error)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    assert allowance.left.wait(60)
    worker.join(60)
    assert [type(each) for each in ended] == [Cancelled]
    assert allowance.charges == 1000


def test_changes_are_refused_before_they_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "MAX_REVISION", 2000)
    taken: list[ChangedPath] = []
    changes = GitContents.changes

    def counted(contents: GitContents, revision: bytes) -> Iterator[ChangedPath]:
        for change in changes(contents, revision):
            taken.append(change)
            yield change

    monkeypatch.setattr(GitContents, "changes", counted)
    with pytest.raises(LimitExceeded, match=r"bytes of what a log says of [0-9a-f]{40}: 20\d\d, at most"):
        read(nested(), LogSelector(changes=True), Allowance())
    assert 0 < len(taken) < 2000 // len(taken[0].path)


def test_a_tree_is_allowed_what_is_stored(monkeypatch: pytest.MonkeyPatch, stored: Stored) -> None:
    """However small the rest of the allowance is: each record may be read some times."""
    monkeypatch.setattr(allowances, "STEPS", 0)
    monkeypatch.setattr(allowances, "DECODED", 0)
    for selector in (TreeSelector(deep=True, texts=True), LogSelector(changes=True), LogSelector(path=b"src")):
        assert read(stored.repository, selector, Allowance())


class Ghostly:
    """A line of four, and one on it whose second parent is a ghost."""

    def __init__(self) -> None:
        self.history = BzrHistory()
        self.line = self.history.line(4)
        self.tip = self.history.commit({b"f": b"new\n"}, [self.line[3]], [b"ghost-1"])
        self.repository = PackRepository(MemoryTransport(), "project")
        self.history.push(self.repository, self.history.parents, {TRUNK: Tip(self.tip)})

    def read(self, ordinals: Sequence[int], size: int = 1000, allowance: Allowance | None = None) -> list[GraphNode]:
        body = self.repository.begin(allowance=allowance).open_body(ContentPlan(as_graph(ordinals)))
        assert isinstance(body, ContentReader)
        chunks: list[bytes] = []
        while chunk := body.read(size):
            assert len(chunk) <= size
            chunks.append(chunk)
        assert body.read(size) == b""
        assert (body.segments, body.size) == (len(ordinals), sum(map(len, chunks)))
        return list(read_graph(chunks, BZR_KINDS))


@pytest.fixture(scope="module")
def ghostly() -> Ghostly:
    return Ghostly()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_ids_and_parents_are_sent(ghostly: Ghostly, size: int) -> None:
    nodes = ghostly.read(range(1, 5), size)
    assert nodes == [GraphNode(each, ghostly.history.parents[each]) for each in (*ghostly.line[1:], ghostly.tip)]
    assert nodes[-1].parents[1] == Parent(b"ghost-1", absent=True)
    assert ghostly.read(()) == []


def test_there_must_be_a_repository() -> None:
    selector = encode_selector(LogSelector())
    made = PackRepository(MemoryTransport(), "new").begin()
    made.create("bzr 2a", BZR_KINDS, {})
    for transaction in (made, PackRepository(MemoryTransport(), "none").begin()):
        with pytest.raises(NoSuchRepository):
            transaction.plan_read(selector, [])


def test_an_answer_that_nobody_waits_for_is_not_put_together(ghostly: Ghostly) -> None:
    """A graph of many revisions may be the work of seconds: it ends at the next one."""
    read = 0

    class Impatient(Allowance):
        def charge(self, steps: int) -> None:
            nonlocal read
            read += 1
            self.cancelled = read > 3
            super().charge(steps)

    with pytest.raises(Cancelled):
        ghostly.read(range(5), 1 << 20, Impatient())
    assert read == 4


def test_a_record_that_is_named_and_not_stored_is_damage(ghostly: Ghostly) -> None:
    body = ghostly.repository.begin().open_body(ContentPlan(iter([(0, [(TEXT, b"none")])])))
    with pytest.raises(CorruptRecord, match="record none is missing from the repository"):
        body.read(1000)


SELECTORS = [LogSelector(messages=bool(form & 1), changes=bool(form & 2)) for form in range(4)]
DAY = 24 * 3600


class Summed:
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
def summed() -> Summed:
    return Summed()


@pytest.fixture
def by_records(summed: Summed, monkeypatch: pytest.MonkeyPatch) -> list[list[LogEntry]]:
    """The answer to each selector without a file."""
    found = [logged(summed.repository(), selector) for selector in SELECTORS]
    forget(monkeypatch)
    assert summed.files() == []
    return found


def test_a_log_is_the_same_and_reads_no_record_of_a_large_pack(
    summed: Summed, by_records: list[list[LogEntry]], headers_read: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    summed.repository().tidy()
    assert summed.files() == [f"p/{summaries_path(summed.packs()[0].name)}"]
    for selector, expected in zip(SELECTORS, by_records, strict=True):
        forget(monkeypatch)
        headers_read.clear()
        assert logged(summed.repository(), selector) == expected
        assert len(headers_read) == 5  # Of the packs that are small.
    assert summed.repository().verify().problems == ()


def test_of_joined_packs_they_are_made_out_of_theirs(
    summed: Summed, by_records: list[list[LogEntry]], headers_read: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    summed.repository().tidy()
    forget(monkeypatch)
    headers_read.clear()
    summed.repository().repack()
    assert len(headers_read) == 6  # A tag is asked for, too.
    forget(monkeypatch)
    headers_read.clear()
    for selector, expected in zip(SELECTORS, by_records, strict=True):
        assert logged(summed.repository(), selector) == expected
    assert headers_read == []
    (entry,) = summed.packs()
    assert len(summed.files()) == 2
    summed.clock.now += DAY + 1
    summed.repository().collect_garbage_files()
    assert summed.files() == [f"p/{summaries_path(entry.name)}"]


def test_with_ghosts_what_changed_is_read_from_the_records(
    summed: Summed, by_records: list[list[LogEntry]], headers_read: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_of("git sha1"), "ghosts", True)
    summed.repository().repack()
    for selector, expected in zip(SELECTORS, by_records, strict=True):
        forget(monkeypatch)
        headers_read.clear()
        assert logged(summed.repository(), selector) == expected
        assert bool(headers_read) is selector.changes


def test_damage_anywhere(
    summed: Summed, by_records: list[list[LogEntry]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Damage is named by `verify`, never shown, and mended by the next upkeep. So is a file that was cut off."""
    summed.repository().repack()
    (path,) = summed.files()
    content = summed.storage.get(path)
    caplog.set_level(logging.CRITICAL, "smartserver")
    flips = range(0, len(content), 11)
    wrong = [content[:at] + bytes((content[at] ^ 1 << at % 8,)) + content[at + 1 :] for at in flips]
    for at, damaged in enumerate([*wrong, *(content[:size] for size in range(0, len(content), 100))]):
        replace(summed.storage, path, damaged)
        forget(monkeypatch)
        assert logged(summed.repository(), SELECTORS[3]) == by_records[3], at
        (problem,) = summed.repository().verify().problems
        assert problem.startswith(path.removeprefix("p/")), problem
        assert problem.endswith("smartserver pack makes it again"), problem
    repository = summed.repository()
    logged(repository, SELECTORS[3])
    repository.tidy()
    assert summed.storage.get(path) == content
    replace(summed.storage, path, b"X" + content[1:])
    summed.repository().repack()  # As `smartserver pack`, by a process that has read nothing of it.
    assert summed.storage.get(path) == content
    assert repository.verify().problems == ()


def test_what_is_not_as_the_records_say_is_named(summed: Summed, monkeypatch: pytest.MonkeyPatch) -> None:
    summed.repository().repack()
    (path,), (entry,) = summed.files(), summed.packs()
    file = Summaries(BytesFile(summed.storage.get(path)), entry)
    blocks = [file.block(number, messages=True, changes=True) or () for number in range(file.blocks)]
    blocks[2] = blocks[0]
    replace(summed.storage, path, b"".join(encode_summaries(blocks, entry, 3)))
    forget(monkeypatch)
    (problem,) = summed.repository().verify().problems
    assert "block 2 is not what the records say" in problem


def test_those_of_another_pack_are_refused(summed: Summed) -> None:
    summed.repository().tidy()
    (path,) = summed.files()
    content, (first, second, _) = summed.storage.get(path), summed.packs()
    Summaries(BytesFile(content), first)
    with pytest.raises(CorruptFile, match="not the summaries of the pack"):
        Summaries(BytesFile(content), second)


def test_a_damaged_record_is_left_out(summed: Summed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other revisions are summarised; a log of the damaged one fails."""

    def broken(contents: GitContents, revision: bytes) -> Header | None:
        if revision == lost:
            raise ValueError("it is broken")
        return header(contents, revision)

    header, lost = GitContents.header, summed.repository().snapshot().revision(4)
    monkeypatch.setattr(GitContents, "header", broken)
    summed.repository().tidy()
    file = Summaries(BytesFile(summed.storage.get(summed.files()[0])), summed.packs()[0])
    block = file.block(1, messages=True, changes=True)
    assert block is not None
    assert [row is None for row in block] == [True, False, False, False]


def test_behind_a_link_there_are_none(summed: Summed) -> None:
    PackRepository(Far(summed.storage), "p", clock=summed.clock).repack()
    assert summed.files() == []


def test_those_of_a_pack_that_is_gone_go_a_day_later(summed: Summed) -> None:
    alone = f"p/{summaries_path(bytes(16))}"
    summed.storage.put(alone, [b""])
    summed.repository().collect_garbage_files()
    assert summed.files() == [alone]
    summed.clock.now += upkeep.KEPT + 1
    summed.repository().collect_garbage_files()
    assert summed.files() == []

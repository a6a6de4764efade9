"""store.browse, store.content: trees, logs and the graph of a stored repository, as content bodies; here of git."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest
from builders import KINDS, MAIN, SILENT, History, push
from bzr_builders import KINDS as BZR_KINDS
from bzr_builders import TRUNK, BzrHistory
from calls import calls_of, raising
from counting import Counting
from memory_transport import MemoryTransport

from smartserver.client.exchange import read_graph
from smartserver.errors import Cancelled, CorruptRecord, LimitExceeded, NoSuchPart, NoSuchRepository, Unsupported
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
from smartserver.store import allowance as allowances
from smartserver.store import browse, caches, graph
from smartserver.store.allowance import Allowance
from smartserver.store.browse import ContentBody
from smartserver.store.caches import Block, SharedCache, TextCache
from smartserver.store.content import ContentReader
from smartserver.store.model import ContentPlan
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.vcs.bzr.kinds import TEXT
from smartserver.vcs.git.content import GitContents

TAG = b"refs/tags/v1"


@pytest.fixture(autouse=True)
def headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of headers of its own for each test, in blocks of four."""
    monkeypatch.setattr(browse, "HEADERS", SharedCache[Block](1 << 20, caches.cost_of_block, HEADER_CACHE))
    monkeypatch.setattr(browse, "BITS", 2)
    monkeypatch.setattr(browse, "BLOCK", 4)
    monkeypatch.setattr(browse, "FIRST_PIECE", 300)
    monkeypatch.setattr(browse, "MAX_GROUP", 300)


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

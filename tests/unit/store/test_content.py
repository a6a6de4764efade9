"""store.content, store.model, vcs.bzr.reading: answers put together from records. Random histories: tests/interop."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from bzr_builders import KINDS, TRUNK, BzrHistory, planned

from smartserver.client.content import Part, read_content
from smartserver.errors import (
    Cancelled,
    CorruptFile,
    CorruptRecord,
    LimitExceeded,
    MissingRevision,
    NoSuchRepository,
)
from smartserver.records.model import Key, Parent, Record, Tip
from smartserver.store import allowance as allowances
from smartserver.store import content
from smartserver.store.allowance import Allowance
from smartserver.store.content import ContentReader, SnapshotView
from smartserver.store.model import ContentPlan, PullPlan
from smartserver.store.open_pack import pack_path
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, SIGNATURE, TEXT
from smartserver.vcs.bzr.selector import TreesField
from transports.memory import MemoryTransport


class Stored:
    """A line of five, one beside it that was merged, on two packs; a ghost is the second parent of the last."""

    def __init__(self) -> None:
        self.history = BzrHistory()
        self.storage = MemoryTransport()
        self.repository = PackRepository(self.storage, "project")
        self.line = self.history.line(4)
        files = {**self.history.trees[self.line[3]], b"README": b"changed beside\n"}
        self.side = self.history.commit(files, [self.line[1]])
        self.merged = self.history.commit({**files, b"new": b"new\n"}, [self.line[3], self.side], [b"ghost-1"])
        self.history.push(self.repository, self.line[:2], {TRUNK: Tip(self.line[1])})
        self.history.push(self.repository, [*self.line[2:], self.side, self.merged], {TRUNK: Tip(self.merged)})

    def begin(self, allowance: Allowance | None = None) -> Transaction:
        return self.repository.begin(allowance=allowance)

    def reader(self, plan: ContentPlan) -> ContentReader:
        body = self.begin().open_body(plan)
        assert isinstance(body, ContentReader)
        return body

    def parts(self, plan: ContentPlan, size: int = 1000) -> list[Part]:
        body = self.reader(plan)
        chunks: list[bytes] = []
        while chunk := body.read(size):
            assert len(chunk) <= size
            chunks.append(chunk)
        assert body.read(size) == b""
        assert body.size == sum(map(len, chunks))
        parts = list(read_content(chunks, KINDS))
        assert body.segments == len(parts)
        for part in parts:
            assert part.parents == self.history.parents[part.revision]
        records = self.records(parts)
        assert len({record[:2] for record in records}) == len(records), "a record came twice"
        for record in records:
            assert self.history.records[record.kind, record.key] == record
        return parts

    @staticmethod
    def records(parts: Sequence[Part], *kinds: int) -> list[Record]:
        return [record for part in parts for record in part.records if not kinds or record.kind in kinds]

    def tree(self, revision: bytes, paths: Sequence[bytes] | None = None, **options: bool) -> list[Part]:
        trees = TreesField([revision], paths=None if paths is None else [*paths], **options)  # type: ignore[arg-type]
        return self.parts(planned(self.begin(), [], trees=trees))


@pytest.fixture(scope="module")
def stored() -> Stored:
    return Stored()


def test_what_is_to_be_sent() -> None:
    assert not ContentPlan(None)
    assert ContentPlan(iter(()))
    assert not PullPlan((), 0, 0, ())


def test_what_revisions_say_of_themselves(stored: Stored) -> None:
    plan = planned(stored.begin(), [stored.merged])
    parts = stored.parts(plan)
    assert parts[0].revision == stored.merged
    assert parts[0].parents[2] == Parent(b"ghost-1", absent=True)
    assert {part.revision for part in parts} == {*stored.line, stored.side, stored.merged}
    assert {record.kind for record in stored.records(parts)} == {REVISION, SIGNATURE}
    assert len(stored.records(parts, SIGNATURE)) == 1
    bare = stored.parts(planned(stored.begin(), [stored.merged], bare=True))
    assert [part.revision for part in bare] == [part.revision for part in parts]
    assert stored.records(bare) == []
    ends = stored.parts(planned(stored.begin(), [stored.merged], bare=True, ends=2))
    said = [part.revision for part in ends if part.records]
    assert said == [part.revision for part in (*parts[:2], *parts[-2:])]
    every = planned(stored.begin(), [stored.merged], bare=True, ends=100)
    assert stored.records(stored.parts(every)) == stored.records(parts)


def test_a_whole_tree(stored: Stored) -> None:
    parts = stored.tree(stored.merged)
    assert {part.revision for part in parts} == {stored.merged}
    files = stored.history.trees[stored.merged]
    texts = {record.key: record.text for record in stored.records(parts, TEXT)}
    assert texts == {stored.history.text(path, stored.merged): text for path, text in files.items()}
    assert [record.key for record in stored.records(parts, REVISION, INVENTORY)] == [stored.merged] * 2
    assert len(stored.records(parts, CHK)) == 2
    without = stored.tree(stored.merged, texts=False)
    assert stored.records(without) == stored.records(parts, REVISION, INVENTORY, CHK)


@pytest.mark.parametrize(
    ("paths", "files"),
    [
        ([b"README"], [b"README"]),
        ([b"src"], [b"src/a.py", b"src/deep/b.py"]),
        ([b"src/deep", b"new"], [b"new", b"src/deep/b.py"]),
        ([b"absent", b"new/below"], []),
        ([b""], [b"README", b"new", b"src/a.py", b"src/deep/b.py"]),
        ([], []),
    ],
)
def test_parts_of_a_tree(stored: Stored, paths: list[bytes], files: list[bytes]) -> None:
    texts = {record.key for record in stored.records(stored.tree(stored.merged, paths), TEXT)}
    assert texts == {stored.history.text(path, stored.merged) for path in files}


def test_several_trees_have_what_they_share_once(stored: Stored) -> None:
    trees = TreesField([stored.line[3], stored.merged, stored.line[3]])
    parts = stored.parts(planned(stored.begin(), [], trees=trees))
    assert [part.revision for part in parts] == [stored.line[3], stored.merged]
    assert {record.key for record in parts[1].records if record.kind == TEXT} == {
        stored.history.text(path, stored.merged) for path in (b"README", b"new", b"src/a.py")
    }


def test_the_trees_of_what_is_chosen(stored: Stored) -> None:
    plan = planned(stored.begin(), [stored.merged], limit=2, left_hand=True, trees=TreesField(each=True, texts=False))
    parts = stored.parts(plan)
    inventories = [record.key for record in stored.records(parts, INVENTORY)]
    assert inventories == [stored.merged, stored.line[3], stored.line[2]]
    assert stored.records(parts, TEXT) == []


def test_only_texts_that_changed(stored: Stored) -> None:
    trees = TreesField([stored.line[3], stored.merged], changed=True)
    texts = stored.records(stored.parts(planned(stored.begin(), [], trees=trees)), TEXT)
    history = stored.history
    both = {history.text(path, each) for path in (b"README", b"src/a.py") for each in (stored.line[3], stored.merged)}
    assert {record.key for record in texts} == {*both, history.text(b"new", stored.merged)}
    each = TreesField(each=True, changed=True)
    texts = stored.records(stored.parts(planned(stored.begin(), [stored.line[1]], limit=1, trees=each)), TEXT)
    assert {record.key for record in texts} == {history.text(b"src/a.py", revision) for revision in stored.line[:2]}
    # The first revision has nothing to be compared with.
    texts = stored.records(stored.parts(planned(stored.begin(), [stored.line[0]], trees=each)), TEXT)
    assert len(texts) == 3


def test_what_the_reader_has_is_not_sent(stored: Stored) -> None:
    history = stored.history
    before, after = stored.line[3], stored.merged
    trees = TreesField([after], had=[before, b"unknown", before])
    parts = stored.parts(planned(stored.begin(), [], trees=trees))
    assert [part.revision for part in parts] == [before, after]
    assert [(record.kind, record.key) for record in parts[0].records] == [(REVISION, before), (INVENTORY, before)]
    whole = {record.key: record for part in stored.tree(before) for record in part.records}
    assert {record.key for record in parts[1].records if record.kind == TEXT} == {
        history.text(path, after) for path in (b"README", b"new", b"src/a.py") if history.text(path, after) not in whole
    }
    assert not whole.keys() & {record.key for record in parts[1].records}
    # Of the same tree nothing is left; and one may be had without another being asked for.
    same = stored.parts(planned(stored.begin(), [], trees=TreesField([before], had=[before])))
    assert same == stored.parts(planned(stored.begin(), [], trees=TreesField(had=[before])))
    assert same == parts[:1]


def test_who_changed_each_entry_last(stored: Stored) -> None:
    """Folders have been made by somebody, too."""
    parts = stored.tree(stored.merged, [b"src"], bringers=True)
    said = [record.key for record in stored.records(parts, REVISION)]
    assert said == [stored.merged, *sorted(set(said) - {stored.merged}, key=stored.line.index)]
    plain = {record.key for part in stored.tree(stored.merged, [b"src"]) for record in part.records}
    assert {record.key for part in parts for record in part.records} == plain | set(said)
    assert stored.line[0] in said


@pytest.mark.parametrize("paths", [None, [b"src", b"README"]])
def test_who_changed_each_entry_last_is_told_without_reading_a_page_more(
    stored: Stored, paths: list[bytes] | None
) -> None:
    """Whoever may read may ask it of thousands of trees."""

    def read(*, bringers: bool) -> tuple[int, list[Record]]:
        asked: list[None] = []

        class Counted(Allowance):
            def __call__(self) -> None:
                asked.append(None)

        trees = TreesField([*stored.line, stored.merged], paths=paths, bringers=bringers)
        transaction = stored.begin(Counted())
        body = transaction.open_body(planned(transaction, [], trees=trees))
        records = stored.records(list(read_content(iter(lambda: body.read(1000), b""), KINDS)))
        return len(asked), records

    plain, records = read(bringers=False)
    more, with_bringers = read(bringers=True)
    besides = [record for record in with_bringers if record not in records]
    assert {record.kind for record in besides} <= {REVISION, SIGNATURE}
    assert more - plain == 2 * len({record.key for record in besides})


def test_files_by_their_keys(stored: Stored) -> None:
    history = stored.history
    keys = (history.text(b"README", stored.side), b"README-id\0unknown", b"odd", history.text(b"new", stored.merged))
    parts = stored.parts(planned(stored.begin(), [], trees=TreesField(files=[*keys])))
    assert [record.key for record in stored.records(parts, TEXT)] == [keys[0], keys[3]]
    assert [record.key for record in stored.records(parts, REVISION)] == [stored.side, stored.merged]
    assert [part.revision for part in parts] == [stored.side, stored.merged]


def test_the_versions_of_a_file_across_a_merge(stored: Stored) -> None:
    parts = stored.tree(stored.merged, [b"README"], versions=True)
    history = stored.history
    texts = {record.key for record in stored.records(parts, TEXT)}
    assert texts == {history.text(b"README", each) for each in (stored.line[0], stored.side, stored.merged)}
    said = {record.key for record in stored.records(parts, REVISION)}
    assert said == {stored.merged, stored.line[0], stored.side}


def test_a_version_of_a_ghost() -> None:
    stored = Stored()
    history, revision = stored.history, b"joe@example.org-7"
    tip = history.commit({b"f": b"two\n"}, [], [b"ghost-1"], ghost_first=True)
    assert tip == revision
    key = b"f-id\0ghost-1"
    history.records[TEXT, key] = Record(TEXT, key, b"", b"one\n")
    history.records[TEXT, b"f-id\0" + tip] = Record(TEXT, b"f-id\0" + tip, b"ghost-1", b"two\n")
    history.introduced[tip].append((TEXT, key))
    history.push(stored.repository, [tip], {b"other": Tip(tip)})
    parts = stored.tree(tip, [b"f"], versions=True)
    assert {record.key for record in stored.records(parts, TEXT)} == {b"f-id\0" + tip, key}
    assert {record.key for record in stored.records(parts, REVISION)} == {tip}
    plan = planned(stored.begin(), [tip], trees=TreesField(each=True))
    assert [record.key for record in stored.records(stored.parts(plan), INVENTORY)] == [tip]


@pytest.mark.parametrize("limit", ["PART_BYTES", "PART_RECORDS"])
def test_a_big_tree_is_cut_into_segments(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    history = BzrHistory()
    repository = PackRepository(MemoryTransport(), "project")
    tip = history.commit({b"f%d" % number: b"%d\n" % number * 100 for number in range(50)})
    history.push(repository, [tip], {TRUNK: Tip(tip)})
    monkeypatch.setattr(content, limit, {"PART_BYTES": 1000, "PART_RECORDS": 7}[limit])
    transaction = repository.begin()
    body = transaction.open_body(planned(transaction, [], trees=TreesField([tip])))
    parts = list(read_content([body.read(1 << 20)], KINDS))
    assert len(parts) == body.segments > 5
    assert {part.revision for part in parts} == {tip}
    assert max(len(part.records) for part in parts) <= 7
    assert sum(len(part.records) for part in parts) == 4 + 50


def test_a_damaged_pack_shows_where_it_is_read(stored: Stored) -> None:
    damaged = Stored()
    packs = damaged.repository.snapshot().state.packs
    place = f"project/{pack_path(packs[0].name)}"
    whole = damaged.storage.get(place)
    text = damaged.history.records[TEXT, damaged.history.text(b"src/deep/b.py", damaged.merged)].text
    assert whole.count(text) == 1
    damaged.storage.delete(place)
    damaged.storage.put(place, [whole.replace(text, b"PASS\n")])
    transaction = PackRepository(damaged.storage, "project").begin()
    body = transaction.open_body(planned(transaction, [damaged.merged], trees=TreesField([damaged.merged])))
    with pytest.raises(CorruptFile):
        list(iter(lambda: body.read(16), b""))


def test_a_tree_that_is_had_and_cannot_be_read_is_named(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    read = SnapshotView.record

    def broken(reader: SnapshotView, kind: int, key: Key) -> Record | None:
        record = read(reader, kind, key)
        if record is None or (kind, key) != (INVENTORY, stored.side):
            return record
        return record._replace(text=b"nonsense")

    monkeypatch.setattr(SnapshotView, "record", broken)
    body = stored.reader(planned(stored.begin(), [], trees=TreesField([stored.merged], had=[stored.side])))
    with pytest.raises(CorruptRecord, match="its tree cannot be read") as caught:
        list(iter(lambda: body.read(1000), b""))
    assert caught.value.revision == stored.side


def test_a_tree_whose_pages_cannot_be_read(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    read = SnapshotView.record
    monkeypatch.setattr(SnapshotView, "record", lambda self, kind, key: None if kind == CHK else read(self, kind, key))
    for trees in (
        TreesField([stored.merged]),
        TreesField([stored.merged, stored.side], changed=True),
        TreesField([stored.merged], had=[stored.side]),
    ):
        with pytest.raises(CorruptRecord, match="its tree cannot be read"):
            stored.reader(planned(stored.begin(), [], trees=trees)).read(10)


def test_what_is_not_there(stored: Stored) -> None:
    with pytest.raises(MissingRevision):
        planned(stored.begin(), [b"unknown"])
    with pytest.raises(MissingRevision):
        planned(stored.begin(), [], trees=TreesField([stored.merged, b"ghost-1"]))
    with pytest.raises(NoSuchRepository):
        planned(PackRepository(MemoryTransport(), "none").begin(), [])
    made = PackRepository(MemoryTransport(), "new").begin()
    made.create("bzr 2a", KINDS, {})
    with pytest.raises(NoSuchRepository):
        planned(made, [])


def test_an_answer_that_nobody_waits_for_is_not_put_together(stored: Stored) -> None:
    """A piece of it may be the work of minutes: it ends at the next record."""
    read = 0

    class Impatient(Allowance):
        def charge(self, steps: int) -> None:
            nonlocal read
            read += 1
            self.cancelled = read > 3
            super().charge(steps)

    transaction = stored.begin(Impatient())
    body = transaction.open_body(planned(transaction, [], trees=TreesField([stored.merged])))
    with pytest.raises(Cancelled):
        body.read(1 << 20)
    assert read == 4


def test_one_tree_compared_with_none(stored: Stored) -> None:
    """All its texts changed; those who brought them come too."""
    parts = stored.tree(stored.merged, [b"src/deep/b.txt", b"src/deep/b.py"], changed=True)
    assert [record.key for record in stored.records(parts, TEXT)] == [
        stored.history.text(b"src/deep/b.py", stored.merged)
    ]
    assert {record.key for record in stored.records(parts, REVISION)} == {stored.merged, stored.line[0]}


def test_nothing_of_trees_that_are_the_same(stored: Stored) -> None:
    same = TreesField([stored.merged, stored.merged], changed=True)
    assert stored.parts(planned(stored.begin(), [], trees=same)) == []
    plan = planned(stored.begin(), [stored.merged], limit=1, trees=same)
    assert [part.revision for part in stored.parts(plan)] == [stored.merged]


def test_of_bare_revisions_the_merges_speak(stored: Stored) -> None:
    parts = stored.parts(planned(stored.begin(), [stored.merged], bare=True, merges=True))
    assert len(parts) == 6
    assert [record.key for record in stored.records(parts)] == [stored.merged]


def test_a_file_that_lies_elsewhere_in_another_tree() -> None:
    stored = Stored()
    history = stored.history
    before = history.trees[stored.merged]
    # The id of what lies at `src` in both is the same; at `new` there is something in one alone.
    tip = history.commit({path: text for path, text in before.items() if path != b"new"}, [stored.merged])
    history.push(stored.repository, [tip], {TRUNK: Tip(tip)})
    trees = TreesField([tip, stored.merged], paths=[b"new"])
    texts = stored.records(stored.parts(planned(stored.begin(), [], trees=trees)), TEXT)
    assert [record.key for record in texts] == [history.text(b"new", stored.merged)]


def test_many_paths_in_many_trees_are_charged(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """400 paths of three names, in five trees: some kilobytes that ask for ten thousand ways down the pages."""
    for name, value in (("STEPS", 3000), ("STEPS_OF_BYTE", 0), ("STEPS_OF_STORED", 0), ("STEPS_OF_RECORD", 0)):
        monkeypatch.setattr(allowances, name, value)
    paths = [b"src/deep/%d" % number for number in range(400)]
    for trees in (TreesField([*stored.line], paths=paths), TreesField([stored.line[0]] * 5, paths=paths, each=True)):
        allowance = Allowance()
        transaction = stored.begin(allowance)
        plan = planned(transaction, [stored.merged] if trees.each else [], trees=trees)
        with pytest.raises(LimitExceeded, match="steps of work for one request"):
            transaction.open_body(plan).read(1 << 30)
        assert 3000 < allowance.steps < 3100


def test_a_few_paths_in_all_trees_are_within_the_allowance(stored: Stored) -> None:
    allowance = Allowance()
    transaction = stored.begin(allowance)
    paths = [b"README", b"src/a.py", b"src"]
    assert transaction.open_body(planned(transaction, [stored.merged], trees=TreesField(paths=paths, each=True))).read(
        1 << 30
    )
    assert 0 < allowance.steps < 1000

"""store.proof: what a segment must bring with it, and which faults of its records are refused or counted."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from functools import partial

import pytest
from builders import GIT
from bzr_samples import FIRST, SECOND, SECOND_PARENTS

from smartserver.errors import CorruptRecord, MissingReference, WrongParents
from smartserver.records.faults import Level, Policy
from smartserver.records.model import BaseTag, Entry, Key, Parent, Record, Segment
from smartserver.records.system import system_of
from smartserver.store.ancestry import Ancestry
from smartserver.store.graph import Graph
from smartserver.store.proof import NOTHING, Judge, ReferenceCache, SegmentProof, check_own_record
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, REVISION, SIGNATURE
from smartserver.vcs.git.format import BLOB, COMMIT, TREE

RULES = system_of(GIT)


def entry(record: Record, base: int = BaseTag.NONE, base_key: Key = b"") -> Entry:
    return Entry(0, 1, record.key, record.meta, base, base_key, len(record.text), 9, b"")


def segment(revision: bytes, *entries: Entry, parents: tuple[Parent, ...] = ()) -> Segment:
    return Segment(revision, parents, entries, 0, 0, ())


def blob(text: bytes) -> Record:
    return Record(0, hashlib.sha1(b"blob %d\0" % len(text) + text).digest(), BLOB, text)


def tree(*records: Record) -> Record:
    text = b"".join(b"100644 f%d\0%b" % (number, record.key) for number, record in enumerate(records))
    return Record(0, hashlib.sha1(b"tree %d\0" % len(text) + text).digest(), TREE, text)


class Case:
    """Three revisions: 0 and 1 apart, 2 a child of 0; `copies` says who introduced what."""

    def __init__(self) -> None:
        self.ancestry = Ancestry(Graph())
        self.ancestry.add([])
        self.ancestry.add([])
        self.ancestry.add([0])
        self.copies: dict[Key, list[int]] = {}
        self.metas: dict[Key, bytes] = {}
        self.asked: list[Key] = []
        self.headers: list[Key] = []
        self.cache = ReferenceCache()

    def proof(self, *entries: Entry) -> SegmentProof:
        def copies(_kind: int, key: Key) -> list[int]:
            self.asked.append(key)
            return self.copies.get(key, [])

        listed = segment(b"r2", *entries, parents=(Parent(b"r0"),))
        return SegmentProof(RULES, listed, partial(self.ancestry.reaches_any, 2), copies, self.read_metas, self.cache)

    def read_metas(self, places: Sequence[tuple[int, Key]]) -> list[bytes]:
        """Blobs, where nothing else is said."""
        self.headers += [key for _, key in places]
        return [self.metas.get(key, BLOB) for _, key in places]


def test_what_an_ancestors_base_refers_to_is_granted() -> None:
    case, kept, old, new = Case(), blob(b"kept"), blob(b"old"), blob(b"new")
    before, after = tree(kept, old), tree(kept, new)
    case.copies[before.key] = [0]
    entries = (entry(after, BaseTag.FULL_KEY, before.key), entry(new, BaseTag.FULL_KEY, old.key))
    proof = case.proof(*entries)
    assert proof.base(entries[0]) == before.key
    proof.add(entries[0], after, before)
    assert proof.base(entries[1]) == old.key
    proof.add(entries[1], new, old)
    proof.finish()
    assert case.asked == [before.key]


def test_what_a_base_of_the_same_revision_refers_to_must_be_proved() -> None:
    case, missing = Case(), blob(b"missing")
    first, second = tree(missing), tree(missing, missing)
    entries = (entry(first), entry(second, BaseTag.entry(0)))
    proof = case.proof(*entries)
    proof.add(entries[0], first, None)
    proof.add(entries[1], second, first)
    assert not proof.introduced(0, missing.key)
    with pytest.raises(MissingReference):
        proof.finish()


def test_the_reference_cache_is_bounded_by_its_keys() -> None:
    cache, found = ReferenceCache(limit=10), ((0, None, frozenset((b"a", b"b"))),)
    records = [Record(0, b"k%d" % number, b"", b"") for number in range(10)]
    for record in records:
        cache.put(record, found)
    assert [cache.get(record) for record in records] == [None] * 7 + [found] * 3
    assert cache.get(records[7]._replace(meta=b"x")) is None


# ---- records that refer to another kind, and ghosts


class BzrCase(Case):
    """Segments of Breezy's: `copies` says, of kind and key, who introduced it."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[tuple[int, Key], list[int]] = {}

    def prove(self, *records: Record, based: bool = False) -> None:
        """Prove a segment of these records; `based`: the pages rest on the first revision's."""
        old = FIRST[2]
        tags = {CHK: (BaseTag.FULL_KEY, old.key)} if based else {}
        entries = [Entry(r.kind, 0, r.key, r.meta, *tags.get(r.kind, (0, b"")), len(r.text), 9, b"") for r in records]
        listed = Segment(SECOND[0].key, SECOND_PARENTS, tuple(entries), 0, 0, ())
        rules = system_of("bzr 2a")
        proof = SegmentProof(
            rules, listed, partial(self.ancestry.reaches_any, 2), self.find, self.read_metas, self.cache
        )
        for each, record in zip(entries, records, strict=True):
            proof.add(each, record, None if proof.base(each) is None else old)
        own = next((record for record in records if (record.kind, record.key) == (REVISION, SECOND[0].key)), None)
        check_own_record(rules, listed, own)
        proof.finish()

    def find(self, kind: int, key: Key) -> list[int]:
        self.asked.append(key)
        return self.places.get((kind, key), [])


def test_a_key_of_another_kind_is_not_what_is_needed() -> None:
    case = BzrCase()
    case.places = {(kind, record.key): [0] for record in FIRST for kind in range(5) if kind != record.kind}
    with pytest.raises(MissingReference):
        case.prove(*SECOND)


def test_the_texts_of_an_ancestors_page_are_granted() -> None:
    case = BzrCase()
    case.places = {(CHK, record.key): [0] for record in FIRST if record.kind == CHK}
    case.prove(*SECOND, based=True)
    assert FIRST[4].key not in case.asked


@pytest.mark.parametrize("kind", [REVISION, SIGNATURE, INVENTORY])
def test_records_that_belong_to_another_revision(kind: int) -> None:
    case = BzrCase()
    case.places = {(record.kind, record.key): [0] for record in FIRST}
    with pytest.raises(CorruptRecord, match=r"record joe@example\.org-1 of .*: it belongs to another revision"):
        case.prove(*SECOND, FIRST[{REVISION: 0, SIGNATURE: 0, INVENTORY: 1}[kind]]._replace(kind=kind))


def test_ghosts_are_parents_in_their_place() -> None:
    rules, own = system_of("bzr 2a"), SECOND[0]
    first, ghost = SECOND_PARENTS
    for absent in (False, True):  # Whoever has both says so of none.
        check_own_record(rules, segment(own.key, parents=(first, ghost._replace(absent=absent))), own)
    for parents in ((first,), (ghost, first), (first, ghost, ghost), ()):
        with pytest.raises(WrongParents):
            check_own_record(rules, segment(own.key, parents=parents), own)


def test_meta_that_no_key_proves_is_looked_at_each_time() -> None:
    """The references of a page are remembered by its key; a copy with something in its meta is refused all the same."""
    case = BzrCase()
    case.places = {(record.kind, record.key): [0] for record in FIRST}
    case.prove(*SECOND)
    page = SECOND[2]
    for based in (False, True):
        with pytest.raises(CorruptRecord, match="its meta is not empty"):
            case.prove(SECOND[0], SECOND[1], page._replace(meta=b"x"), *SECOND[3:], based=based)


def test_only_what_a_key_proves_is_remembered() -> None:
    case = BzrCase()
    case.places = {(record.kind, record.key): [0] for record in FIRST}
    case.prove(*SECOND, FIRST[3])
    assert case.cache.get(SECOND[2]) is not None
    assert case.cache.get(FIRST[3]) == NOTHING
    assert case.cache.get(SECOND[1]) is None
    assert case.cache.get(SECOND[0]) is None


KEY = b"k" * 20
BLOB_KEY = b"b" * 20
DOTGIT = Record(0, KEY, TREE, b"100644 .git\0" + BLOB_KEY)
PADDED = Record(0, KEY, TREE, b"0100644 f\0" + BLOB_KEY)
NAMELESS = Record(0, KEY, COMMIT, b"tree x\nauthor <a@b> 1 +0000\ncommitter A <a@b> 1 +0000\n\n")
MODULES = Record(0, KEY, TREE, b"100644 .gitmodules\0" + BLOB_KEY)
BAD_MODULES = Record(0, BLOB_KEY, BLOB, b'[submodule "a"]\nurl = -x\n')


def judge(
    policy: Policy, stored: frozenset[Key] = frozenset(), found: Record | None = None, vcs: str = "git sha1"
) -> Judge:
    @contextlib.contextmanager
    def read(kind: int, key: Key) -> Iterator[Record]:
        assert found is not None
        yield found

    measured = None if found is None else (found.meta, len(found.text))
    return Judge(vcs, policy, lambda kind, key: key in stored, lambda kind, key: measured, read)


def test_errors_are_refused_where_all_is_strict() -> None:
    safe = judge(Policy())
    safe.weigh_record(b"r", PADDED, None)
    safe.weigh_record(b"r", NAMELESS, None)
    safe.weigh_record(b"r", NAMELESS, None)
    assert safe.warnings == {"zeroPaddedFilemode": (1, KEY), "missingNameBeforeEmail": (2, KEY)}
    with pytest.raises(CorruptRecord, match="zeroPaddedFilemode"):
        judge(Policy(Level.STRICT)).weigh_record(b"r", PADDED, None)


def test_what_is_ignored_or_off_is_not_said() -> None:
    for policy in (Policy(Level.OFF), Policy(Level.STRICT, frozenset(("hasDotgit", "zeroPaddedFilemode")))):
        quiet = judge(policy)
        quiet.weigh_record(b"r", DOTGIT, None)
        quiet.weigh_record(b"r", PADDED, None)
        assert quiet.warnings == {}


def test_what_is_stored_is_not_judged() -> None:
    old = judge(Policy(Level.STRICT), frozenset((KEY,)), BAD_MODULES)
    old.weigh_record(b"r", DOTGIT, None)
    old.weigh_record(b"r", MODULES, None)
    old.finish(b"r")
    assert old.warnings == {}


def test_a_stored_file_that_gets_the_name_is_judged_and_one_that_has_it_is_not() -> None:
    stored = frozenset((BLOB_KEY,))
    other = Record(0, b"o" * 20, TREE, b"100644 some.module\0" + BLOB_KEY)
    renamed = judge(Policy(), stored, BAD_MODULES)
    renamed.weigh_record(b"r", MODULES, other)
    with pytest.raises(CorruptRecord, match="gitmodulesUrl"):
        renamed.finish(b"r")
    kept = judge(Policy(), stored, BAD_MODULES)
    beside = Record(0, b"o" * 20, TREE, MODULES.text + b"100644 x\0" + b"x" * 20)
    kept.weigh_record(b"r", beside, MODULES._replace(key=b"p" * 20))
    kept.finish(b"r")


def test_a_file_that_only_stored_trees_name_is_not_read() -> None:
    old = judge(Policy(), frozenset((KEY,)))
    old._measure = lambda kind, key: pytest.fail("it is measured")
    old.weigh_record(b"r", MODULES, None)
    old.finish(b"r")


def test_other_systems_have_no_faults() -> None:
    none = judge(Policy(Level.STRICT), vcs="bzr 2a")
    none.weigh_record(b"r", DOTGIT, None)
    none.finish(b"r")
    assert none.warnings == {}

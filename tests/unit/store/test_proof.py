from __future__ import annotations

import hashlib

import pytest
from builders import GIT, KINDS, History

from smartserver.errors import CorruptRecord, MissingReference, WrongParents
from smartserver.records.model import BaseTag, Entry, Key, Kind, Parent, Record, Segment
from smartserver.store.ancestry import Ancestry
from smartserver.store.graph import Graph
from smartserver.store.proof import NOTHING, ReferenceCache, SegmentProof, UnreachableBase, check_own_record

BLOB, TREE, COMMIT = b"\x03", b"\x02", b"\x01"


def entry(record: Record, base: int = BaseTag.NONE, base_key: Key = b"") -> Entry:
    return Entry(0, 1, record.key, record.meta, base, base_key, len(record.text), 9, b"")


def segment(revision: bytes, *entries: Entry, parents: tuple[Parent, ...] = ()) -> Segment:
    return Segment(revision, parents, entries, 0, 0)


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
        self.asked: list[Key] = []
        self.cache = ReferenceCache()

    def proof(self, *entries: Entry) -> SegmentProof:
        def copies(_kind: int, key: Key) -> list[int]:
            self.asked.append(key)
            return self.copies.get(key, [])

        listed = segment(b"r2", *entries, parents=(Parent(b"r0"),))
        return SegmentProof(KINDS, listed, self.ancestry.reach(2), copies, self.cache)


def test_a_base_of_an_ancestor() -> None:
    case, old, new = Case(), blob(b"old"), blob(b"new")
    based = entry(new, BaseTag.FULL_KEY, old.key)
    with pytest.raises(UnreachableBase) as caught:
        case.proof(based).base(based)
    assert caught.value.key == old.key
    case.copies[old.key] = [1]
    with pytest.raises(UnreachableBase):
        case.proof(based).base(based)
    case.copies[old.key] = [1, 0]
    assert case.proof(based).base(based) == old.key
    assert case.proof(entry(new)).base(entry(new)) is None


def test_a_base_of_the_same_revision_comes_first() -> None:
    case, first, second = Case(), blob(b"first"), blob(b"second")
    entries = (entry(first), entry(second, BaseTag.entry(0)))
    proof = case.proof(*entries)
    with pytest.raises(UnreachableBase):
        proof.base(entries[1])
    proof.add(entries[0], first, None)
    assert proof.base(entries[1]) == first.key


def test_references_are_asked_of_ancestors() -> None:
    case, here, there = Case(), blob(b"here"), blob(b"there")
    listing = tree(here, there)
    proof = case.proof(entry(listing), entry(here))
    proof.add(entry(listing), listing, None)
    proof.add(entry(here), here, None)
    with pytest.raises(MissingReference) as caught:
        proof.finish()
    assert (caught.value.revision, caught.value.key, caught.value.missing) == (b"r2", listing.key, there.key)
    case.copies[there.key] = [1]
    with pytest.raises(MissingReference):
        proof.finish()
    case.copies[there.key] = [0]
    proof.finish()
    assert here.key not in case.asked


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


def test_a_repeated_entry_is_proved_by_what_is_known_of_it() -> None:
    case, kept, old, new = Case(), blob(b"kept"), blob(b"old"), blob(b"new")
    before, after = tree(kept, old), tree(kept, new)
    case.copies[before.key] = [0]
    repeated = (entry(after, BaseTag.FULL_KEY, before.key), entry(new))
    assert not case.proof(*repeated).add_repeat(repeated[0], before.key)
    case.proof(*repeated).add(repeated[0], after, before)
    alone = case.proof(repeated[0])
    assert alone.add_repeat(repeated[0], before.key)
    with pytest.raises(MissingReference) as caught:
        alone.finish()
    assert caught.value.missing == new.key
    both = case.proof(*repeated)
    assert both.add_repeat(repeated[0], before.key)
    assert both.add_repeat(repeated[1], None)
    both.finish()
    assert kept.key not in case.asked


def test_claimed_records_count_as_introduced() -> None:
    case, record = Case(), blob(b"text")
    proof = case.proof(entry(record))
    proof.claim(entry(record))
    assert proof.introduced(0, record.key)


def test_a_tree_that_cannot_be_read() -> None:
    bad = Record(0, b"k" * 20, TREE, b"no tree")
    with pytest.raises(CorruptRecord) as caught:
        Case().proof(entry(bad)).add(entry(bad), bad, None)
    assert caught.value.key == bad.key


def test_the_own_record_of_a_commit() -> None:
    history = History()
    first = history.commit({"a": b"a"})
    second = history.commit({"a": b"b"}, (first,))
    own = history.objects[second]
    named = (Parent(first),)
    check_own_record(GIT, KINDS, segment(second, entry(own), parents=named), own)
    with pytest.raises(CorruptRecord, match="is not in its segment"):
        check_own_record(GIT, KINDS, segment(second, parents=named), None)
    for parents in ((), (Parent(second),), (*named, *named), (Parent(first, absent=True),)):
        with pytest.raises(WrongParents) as caught:
            check_own_record(GIT, KINDS, segment(second, entry(own), parents=parents), own)
        assert caught.value.revision == second


def test_the_own_record_that_cannot_be_read() -> None:
    own = Record(0, b"k" * 20, COMMIT, b"no commit")
    with pytest.raises(CorruptRecord, match="cannot be read as a commit"):
        check_own_record(GIT, KINDS, segment(own.key, entry(own)), own)


def test_other_systems_have_no_own_record() -> None:
    check_own_record("hg", (Kind("text", "blake2b-128", True),), segment(b"r"), None)


def test_the_reference_cache_is_bounded() -> None:
    cache = ReferenceCache(limit=10)
    for number in range(10):
        cache.put(0, b"k%d" % number, frozenset((b"a", b"b")))
    assert [cache.get(0, b"k%d" % number) is None for number in range(10)] == [True] * 7 + [False] * 3
    assert cache.get(0, b"k7") == frozenset((b"a", b"b"))
    cache.put(0, b"new", frozenset((b"c",)))
    assert cache.get(0, b"k7") is not None
    assert cache.get(0, b"k8") is None
    cache.put(0, b"k7", NOTHING)
    assert cache.get(0, b"k7") == frozenset((b"a", b"b"))
    cache.put(0, b"large", frozenset(bytes((number,)) for number in range(20)))
    assert cache.get(0, b"large") is None

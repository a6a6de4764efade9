"""store.verify, store.incoming: a repository of Breezy's, what is damaged in it, and what lacks in a push to it."""

from __future__ import annotations

import hashlib

import pytest
from bzr_samples import FIRST, FIRST_PARENTS, KINDS, SECOND, SECOND_PARENTS, push, segment

from smartserver.errors import CorruptRecord, MissingReference
from smartserver.records.model import Parent, Record
from smartserver.store.repository import PackRepository

ONE, TWO = FIRST[0].key, SECOND[0].key


def test_a_sound_repository(repository: PackRepository) -> None:
    push(repository, segment(FIRST, FIRST_PARENTS), refs={b".": ONE})
    push(repository, segment(SECOND, SECOND_PARENTS), refs={b".": TWO, b"trunk": ONE})
    report = repository.verify()
    assert (report.problems, report.ghosts) == ((), 1)
    assert (report.packs, report.segments, report.records) == (2, 2, len(FIRST + SECOND))
    graph = repository.snapshot().graph
    assert [graph.parents(ordinal) for ordinal in range(2)] == [(), (0,)]


def test_the_texts_of_a_revision_that_is_no_ancestor(repository: PackRepository) -> None:
    push(repository, segment(FIRST, FIRST_PARENTS), refs={b".": ONE})
    ghosts = tuple(Parent(parent.id, True) for parent in SECOND_PARENTS)
    with pytest.raises(MissingReference):
        push(repository, segment(SECOND, ghosts), refs={})
    push(repository, segment([*SECOND, *FIRST[3:5], *FIRST[6:]], ghosts), refs={b".": TWO})
    report = repository.verify()
    assert (report.problems, report.ghosts) == ((), 1), "of the two that are said to be absent one is there"


@pytest.mark.parametrize("number", range(4))
def test_a_text_that_cannot_be_read(repository: PackRepository, number: int) -> None:
    record = FIRST[number]
    text = record.text + b"\n"
    key = b"sha1:" + hashlib.sha1(text).hexdigest().encode() if KINDS[record.kind].name == "chk" else record.key
    records = list(FIRST)
    records[number] = Record(record.kind, key, b"", text)
    with pytest.raises(CorruptRecord, match=r"of revision joe@example\.org-1: cannot be read as ") as caught:
        push(repository, segment(records, FIRST_PARENTS), refs={})
    assert caught.value.key == key

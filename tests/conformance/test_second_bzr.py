"""What the real Breezy wrote and our store keeps, read by the second decoder."""

from __future__ import annotations

from pathlib import Path

import pytest
from bzr_histories import BZR, KINDS, BzrHistory, make_history, push
from second_decoder import Damaged
from second_rules import parents_of, references_of
from second_store import Repository

from smartserver.records.model import Record
from smartserver.records.system import system_of
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("breezy")


@pytest.fixture(scope="module")
def history(folder: Path) -> BzrHistory:
    return make_history(folder, seed=3)


@pytest.fixture(scope="module")
def stored(folder: Path, history: BzrHistory) -> Repository:
    repository = PackRepository(LocalTransport(folder), "stored")
    segments, names = list(history.segments()), list(history.parents)
    push(repository, segments[:9], names[8])
    push(repository, segments[9:], names[-1])
    return Repository(folder / "stored")


def test_every_record_and_no_other(stored: Repository, history: BzrHistory) -> None:
    assert [pack.kinds for pack in stored.packs] == [
        [{"name": kind.name, "check": kind.check, "base": kind.base} for kind in KINDS]
    ] * 2
    written = {(r.kind, r.key): (r.meta, r.text) for records in history.records.values() for r in records}
    assert {(r.kind, r.key): (r.meta, r.text) for r in stored} == written
    assert any(r.base is not None for r in stored)
    assert {revision: tips[0][0] for revision, tips in stored.refs.items()} == {b".": history.tip}


def test_both_say_the_same_of_parents_and_references(history: BzrHistory) -> None:
    rules = system_of(BZR)
    for name, records in history.records.items():
        for record in records:
            groups = [(kind, list(keys)) for kind, _, keys in rules.references(*record) if keys]
            said = references_of(BZR, Text(record))
            assert groups == ([said] if said[1] else [])
            if record.kind == 0:
                assert parents_of(BZR, Text(record)) == [parent.id for parent in history.parents[name]]


def test_what_lacks_is_missed(stored: Repository, folder: Path) -> None:
    """Also by the second decoder: it asks for what a page refers to."""
    segment = stored.packs[0].segments[0]
    whole = list(segment.records)
    for dropped in whole[-1], next(record for record in whole if record.kind == 3):
        segment.records = [record for record in whole if record is not dropped]
        empty = Repository.__new__(Repository)
        empty.root, empty.packs = stored.root, []
        empty.copies, empty.holders, empty.ancestors, empty.places = {}, {}, {}, {}
        with pytest.raises(Damaged, match="refers to"):
            empty._place(segment)
    segment.records = whole


class Text:
    """A record as the second decoder has it."""

    def __init__(self, record: Record) -> None:
        self.kind, self.key, self.meta, self.text = record

"""vcs.bzr.parts: which records make up a tree, or a part of one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from bzr_builders import BzrHistory
from bzr_samples import FIRST, SECOND

from smartserver.records.model import Key, Record
from smartserver.vcs.bzr import parts
from smartserver.vcs.bzr.kinds import CHK, INVENTORY, TEXT
from smartserver.vcs.bzr.parts import HadTrees, Read
from smartserver.vcs.bzr.tree import BzrTree

SAMPLES = {(record.kind, record.key): record for record in (*FIRST, *SECOND)}
ONE, TWO = b"joe@example.org-1", b"joe@example.org-2"


def read(kind: int, key: Key) -> Record | None:
    return SAMPLES.get((kind, key))


def texts(paths: Sequence[bytes] | None, revision: bytes = TWO) -> list[bytes]:
    places = list(parts.tree(read, revision, paths, set()))
    assert len(set(places)) == len(places)
    assert places[0] == (INVENTORY, revision)
    kinds = [kind for kind, _ in places]
    assert kinds == sorted(kinds), "texts come last"
    return [key for kind, key in places if kind == TEXT]


def test_a_ghost_has_no_tree() -> None:
    assert list(parts.tree(read, b"ghost@example.org-1", None, set())) == []


@pytest.mark.parametrize("paths", [None, [b"README"]])
def test_a_page_that_is_missing(paths: list[bytes] | None) -> None:
    def without(kind: int, key: Key) -> Record | None:
        return None if kind == CHK else read(kind, key)

    with pytest.raises(ValueError, match="is missing"):
        list(parts.tree(without, TWO, paths, set()))


def test_a_folder_is_looked_at_once_however_many_paths_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may read may ask for 4,096 paths in a folder of as many files."""
    looked: list[bytes] = []
    children = BzrTree.children

    def noted(tree: BzrTree, file_id: bytes) -> dict[bytes, bytes]:
        looked.append(file_id)
        return children(tree, file_id)

    monkeypatch.setattr(BzrTree, "children", noted)
    paths = [b"lib/%d" % number for number in range(50)]
    assert texts([*paths, b"lib/run", b"README"]) == [b"readme-id\0" + TWO, b"run-id\0" + ONE]
    assert looked == [b"root-id", b"lib-id"]


def had(read: Read, revisions: Sequence[bytes]) -> HadTrees:
    """Those trees."""
    had = HadTrees(read)
    for revision in revisions:
        had.add(revision)
    return had


def test_what_is_had_is_read_once_however_many_trees_are_compared_with_it() -> None:
    history = BzrHistory()
    files = {b"f%d" % number: b"0" for number in range(60)}
    line = [history.commit(files)]
    for number in range(5):
        line.append(history.commit({**files, b"f%d" % number: b"1"}, line[-1:]))
    asked: list[tuple[int, Key]] = []

    def read(kind: int, key: Key) -> Record | None:
        return history.records.get((kind, key))

    def noted(kind: int, key: Key) -> Record | None:
        asked.append((kind, key))
        return read(kind, key)

    of_one = had(noted, line[:1])
    of_had = {(kind, key) for kind, key in parts.tree(read, line[0], None, set()) if kind != TEXT}
    by_itself = [had(read, line[:1]).shared(revision) for revision in line[1:]]
    assert [of_one.shared(revision) for revision in line[1:]] == by_itself
    assert [place for place in of_had if asked.count(place) > 1] == []


def test_what_is_had_is_charged_each_time_it_is_compared() -> None:
    history = BzrHistory()
    line = [history.commit({b"f%d" % number: b"0" for number in range(60)})]
    line.append(history.commit({b"f%d" % number: b"1" for number in range(60)}, line))
    charged: list[int] = []
    trees = HadTrees(lambda *place: history.records.get(place), charged.append)
    trees.add(line[0])
    for _ in range(3):
        trees.shared(line[1])
    assert sum(charged) >= 3 * 60

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


def test_a_whole_tree() -> None:
    places = set(parts.tree(read, ONE, None, set()))
    expected = {(record.kind, record.key) for record in FIRST if record.kind in (INVENTORY, CHK)}
    files = {(TEXT, b"readme-id\0" + ONE), (TEXT, b"run-id\0" + ONE)}
    assert places == expected | files


def test_pages_of_an_earlier_tree_are_not_walked_again() -> None:
    seen: set[Key] = set()
    list(parts.tree(read, ONE, None, seen))
    later = list(parts.tree(read, TWO, None, seen))
    pages = [key for kind, key in later if kind == CHK]
    assert pages == [record.key for record in SECOND if record.kind == CHK]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"README", [b"readme-id\0" + TWO]),
        (b"lib", [b"run-id\0" + ONE]),
        (b"lib/run", [b"run-id\0" + ONE]),
        (b"link", []),
        (b"absent", []),
        (b"README/below", []),
        (b"lib/run/below/it", []),
        (b"", [b"readme-id\0" + TWO, b"run-id\0" + ONE]),
    ],
)
def test_what_lies_at_a_path(path: bytes, expected: list[bytes]) -> None:
    assert sorted(texts([path])) == expected


def test_several_paths() -> None:
    assert sorted(texts([b"README", b"lib/run", b"lib"])) == [b"readme-id\0" + TWO, b"run-id\0" + ONE]
    assert texts([]) == []
    whole = list(parts.tree(read, TWO, None, set()))
    assert sorted(parts.tree(read, TWO, [b"lib", b""], set())) == sorted(whole)


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


def test_a_ghost_has_no_tree() -> None:
    assert list(parts.tree(read, b"ghost@example.org-1", None, set())) == []


@pytest.mark.parametrize("paths", [None, [b"README"]])
def test_a_page_that_is_missing(paths: list[bytes] | None) -> None:
    def without(kind: int, key: Key) -> Record | None:
        return None if kind == CHK else read(kind, key)

    with pytest.raises(ValueError, match="is missing"):
        list(parts.tree(without, TWO, paths, set()))


def test_what_differs() -> None:
    both = {b"readme-id\0" + ONE, b"readme-id\0" + TWO}
    assert parts.changed(read, TWO, ONE) == both
    assert parts.changed(read, ONE, TWO) == both
    assert parts.changed(read, ONE, ONE) == set()
    whole = {b"readme-id\0" + TWO, b"run-id\0" + ONE}
    assert parts.changed(read, TWO, None) == whole
    assert parts.changed(read, TWO, b"ghost@example.org-1") == whole


def had(read: Read, revisions: Sequence[bytes]) -> HadTrees:
    """Those trees."""
    had = HadTrees(read)
    for revision in revisions:
        had.add(revision)
    return had


def test_what_is_shared() -> None:
    pages, texts = had(read, [ONE, b"ghost@example.org-1"]).shared(TWO)
    assert {record.key for record in FIRST if record.kind == CHK} >= pages
    walked = list(parts.tree(read, TWO, None, pages))
    assert {key for kind, key in walked if kind == CHK} == {record.key for record in SECOND if record.kind == CHK}
    assert {key for kind, key in walked if kind == TEXT} - texts == {b"readme-id\0" + TWO}
    assert had(read, [b"ghost@example.org-1"]).shared(ONE) == (set(), set())
    assert had(read, [ONE]).shared(b"ghost@example.org-1") == (set(), set())
    pages, _ = had(read, [ONE]).shared(ONE)
    assert list(parts.tree(read, ONE, None, pages)) == [(INVENTORY, ONE)]


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


def test_who_changed_what_is_there_last() -> None:
    history = BzrHistory()
    one = history.commit({b"src/a": b"1", b"src/b": b"1", b"c": b"1"})
    two = history.commit({b"src/a": b"2", b"src/b": b"1", b"c": b"1"}, [one])

    def bringers(revision: bytes, paths: Sequence[bytes] | None, *also: bytes) -> set[bytes]:
        found: set[bytes] = set()
        places = list(parts.tree(lambda *place: history.records.get(place), revision, paths, set(), also, found))
        assert places == list(parts.tree(lambda *place: history.records.get(place), revision, paths, set(), also))
        return found

    assert bringers(two, None) == bringers(two, [b""]) == bringers(two, [b"src"]) == {one, two}
    assert bringers(two, [b"src/a"]) == {two}
    assert bringers(two, [b"c", b"none"]) == {one}
    assert bringers(two, [b"none"], b"c-id") == {one}
    assert bringers(two, []) == bringers(b"ghost@example.org-1", None) == set()


def test_versions() -> None:
    versions = list(parts.versions(read, b"readme-id\0" + TWO))
    assert versions == [(TWO, b"readme-id\0" + TWO), (ONE, b"readme-id\0" + ONE)]
    assert list(parts.versions(read, b"absent\0" + TWO)) == []


def test_versions_across_a_merge_come_once() -> None:
    history = BzrHistory()
    base = history.commit({b"f": b"0"})
    left = history.commit({b"f": b"1"}, [base])
    right = history.commit({b"f": b"2"}, [base])
    merged = history.commit({b"f": b"3"}, [left, right])
    beside = history.commit({b"f": b"3", b"g": b""}, [merged])

    def read(kind: int, key: Key) -> Record | None:
        return history.records.get((kind, key))

    found = list(parts.versions(read, history.text(b"f", beside)))
    assert found[0][0] == merged
    assert sorted(revision for revision, _ in found) == [base, left, right, merged]


def test_a_file_that_was_moved_is_found_by_its_id() -> None:
    assert parts.named(read, TWO, [b"README", b"lib/run", b"absent"]) == {b"readme-id", b"run-id"}
    assert parts.named(read, b"ghost@example.org-1", [b"README"]) == set()
    places = list(parts.tree(read, ONE, [b"elsewhere"], set(), {b"run-id", b"nobody"}))
    assert [key for kind, key in places if kind == TEXT] == [b"run-id\0" + ONE]
    assert parts.bringer(b"run-id\0" + ONE) == ONE


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

"""vcs.bzr.plan, vcs.bzr.trees, vcs.bzr.insert, vcs.received, vcs.bzr.compat: what Breezy keeps comes
out of a repository of ours as it went in: random parts of random histories, pulled in random increments."""

from __future__ import annotations

import random
from typing import Any

import pytest
from breezy.bzr.testament import StrictTestament3
from brz_histories import RandomHistory, Served, all_keys, contents, new_repository
from bzr_histories import quiet

from smartserver.vcs import received
from smartserver.vcs.bzr import insert as brz_insert
from smartserver.vcs.bzr import plan as brz_plan

pytestmark = pytest.mark.interop

SIZE = 320
TRIALS = 10


@pytest.fixture(scope="module")
def history() -> RandomHistory:
    return RandomHistory(new_repository("memory:///source"), 7, SIZE)


@pytest.fixture(scope="module")
def served(history: RandomHistory) -> Served:
    """All of it, pushed in some increments."""
    made = Served()
    order = list(history.parents)
    pushed: list[bytes] = []
    with quiet():
        for at in (1, 30, 31, 32, 150, SIZE):
            tips = [tip for tip in order[:at] if tip not in history.ancestors(*pushed)]
            heads = [tip for tip in tips if not any(tip in history.reach[each] - {each} for each in tips)]
            assert made.push(history.repository, heads, pushed) == len(tips)
            pushed += heads
    return made


def check_equal(history: RandomHistory, target: Any, revisions: list[bytes]) -> None:
    """`target` has these revisions and nothing else, as `history` has them."""
    source = history.repository
    found = all_keys(target)
    assert found["revisions"] == found["inventories"] == {(revision,) for revision in revisions}
    assert found["texts"] == {
        (file_id, node.revision) for revision in revisions for file_id, node in history.trees[revision].items()
    }
    signed = {key for key in all_keys(source)["signatures"] if key in found["revisions"]}
    assert found["signatures"] == signed
    mine, theirs = contents(target, found), contents(source, found)
    assert len(mine) == sum(map(len, found.values()))
    for name, row in mine.items():
        assert row == theirs[name], name
    if not revisions:
        return
    with target.lock_read(), source.lock_read():
        for revision in revisions[-1:] + random.Random(len(revisions)).sample(revisions, min(4, len(revisions))):
            one, other = target.revision_tree(revision), source.revision_tree(revision)
            for place in ("id_to_entry", "parent_id_basename_to_file_id"):
                assert getattr(one.root_inventory, place).key() == getattr(other.root_inventory, place).key()
            testaments = [StrictTestament3.from_revision(each, revision).as_sha1() for each in (target, source)]
            assert testaments[0] == testaments[1]


def check_sound(history: RandomHistory, target: Any) -> None:
    """`brz check` finds nothing."""
    result = target.check(None, check_repo=True)
    absent = {parent for revision in all_keys(target)["revisions"] for parent in history.parents[revision[0]]}
    absent -= set(history.parents)
    assert set(result.ghosts) == absent
    assert not result.unreferenced_versions
    assert not result.inconsistent_parents
    assert result.missing_revision_cnt == 0


def test_the_history_has_all_there_is(history: RandomHistory) -> None:
    """Else the tests here would prove less than they say."""
    parents = history.parents.values()
    assert max(map(len, parents)) > 2
    assert any(parent not in history.parents for named in parents for parent in named)
    assert sum(not named for named in parents) > 1
    kinds = {node.kind for tree in history.trees.values() for node in tree.values()}
    assert kinds == {"file", "directory", "symlink"}
    assert any(node.executable for tree in history.trees.values() for node in tree.values())
    keys = all_keys(history.repository)
    assert len(keys["signatures"]) > 10
    pages = contents(history.repository, {"chk_bytes": keys["chk_bytes"]})
    inner = [text for _, text in pages.values() if text.startswith(b"chknode:")]
    assert any(len(text.split(b"\n", 5)[4]) > 1 for text in inner), "no page lies three deep"


def test_any_part_in_any_increments(history: RandomHistory, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(11)
    order = list(history.parents)
    for trial in range(TRIALS):
        monkeypatch.setattr(received, "CACHE", chance.choice((3_000, 64 << 20)))
        monkeypatch.setattr(brz_insert, "FORK_FROM", chance.choice((1, 8 << 20)))
        heads = chance.sample(order, chance.choice((1, 1, 2, 4)))
        wanted = history.ancestors(*heads)
        target = new_repository(f"memory:///part{trial}")
        step = chance.choice((len(wanted), len(wanted) // 2 + 1, len(wanted) // 7 + 1))
        with quiet():
            for at in range(0, len(wanted), step):
                part = wanted[at : at + step]
                assert served.pull(target, part) == len(part)
            check_equal(history, target, wanted)
            if trial < 3:
                check_sound(history, target)


@pytest.mark.parametrize(("few", "chunk", "batch", "pages"), [(0, 5, 3_000, 2_000), (10**6, 64, 1, 0)])
def test_the_ways_of_a_push_make_no_difference(
    history: RandomHistory, monkeypatch: pytest.MonkeyPatch, few: int, chunk: int, batch: int, pages: int
) -> None:
    monkeypatch.setattr(brz_plan, "FEW", few)
    monkeypatch.setattr(brz_plan, "CHUNK", chunk)
    monkeypatch.setattr(brz_plan, "BATCH", batch)
    monkeypatch.setattr(brz_plan, "_PAGES", pages)
    monkeypatch.setattr(brz_plan, "_ROOTS", 3)
    monkeypatch.setattr(brz_plan, "_CACHE", 5_000)
    served, order = Served(), list(history.parents)
    target = new_repository(f"memory:///ways{few}")
    with quiet():
        assert served.push(history.repository, order) == SIZE
        assert served.pull(target, order) == SIZE
        check_equal(history, target, order)

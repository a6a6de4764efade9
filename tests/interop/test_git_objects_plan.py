"""vcs.git.plan: which revisions and objects a push plans to send, equal by both ways of looking, and no more."""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import IO

import pytest
from git_histories import Builder, RandomHistory, Tree
from traced_memory import traced
from twins import both

from smartserver.records import limits
from smartserver.records.bases import SegmentWriter
from smartserver.records.native import PARTS
from smartserver.vcs.base import CannotSend
from smartserver.vcs.git import read as git_read
from smartserver.vcs.git.objects import COMMIT, GitObject, ObjectReader
from smartserver.vcs.git.plan import Revision, Revisions, graph_of, introduced, revisions
from smartserver.vcs.git.repository import GitRepository

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_both_ways_agree_and_every_tip_is_whole(tmp_path: Path, env: dict[str, str], object_format: str) -> None:
    builder = Builder(tmp_path / "r.git", env, object_format)
    history = RandomHistory(builder, 1, 120)
    with GitRepository(builder.path, env) as repository:
        plan = revisions(repository, history.commits, [])
        assert {revision.id for revision in plan} == set(history.commits)
        assert {r.id: list(r.parents) for r in plan} == {c: history.parents[c] for c in history.commits}
        few = list(introduced(repository, plan, bulk=False))
        many = list(introduced(repository, plan, bulk=True))
        assert few == many
        sent = {r.id: {record.key for record in records} for r, records in zip(plan, few, strict=True)}
        for revision, records in zip(plan, few, strict=True):
            assert len(records) == len({record.key for record in records})
            before = builder.reachable(*revision.parents) if revision.parents else set()
            if len(revision.parents) == 1:
                new = builder.reachable(revision.id) - before
                assert new <= sent[revision.id]
            for record in records:
                assert all(candidate in before for candidate in record.candidates)
        for tip in history.commits[::10]:
            carried = set().union(*(sent[commit] for commit in history.ancestors(tip)))
            assert carried == builder.reachable(tip)


def test_a_plan_against_haves_is_the_difference_of_the_graphs(builder: Builder, env: dict[str, str]) -> None:
    history = RandomHistory(builder, 7, 80)
    with GitRepository(builder.path, env) as repository:
        for tip, *haves in ((-1, 40), (-1, 30, 60), (70, 75), (-2, 20, 21, 22)):
            keys = [history.commits[have] for have in haves]
            plan = revisions(repository, [history.commits[tip]], [*keys, bytes(20), b"odd"])
            assert {r.id for r in plan} == history.ancestors(history.commits[tip]) - history.ancestors(*keys)
            seen = set(history.ancestors(*keys))
            for announced in graph_of(plan):
                assert all(parent.id in seen and not parent.absent for parent in announced.parents)
                seen.add(announced.revision)


@both("smartserver.records.bases", "SegmentWriter")
def test_a_bulk_plan_that_is_closed_early_leaves_no_process(
    builder: Builder, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, part: type[SegmentWriter]
) -> None:
    monkeypatch.setattr(git_read, "SegmentWriter", part)
    monkeypatch.setattr(git_read, "_CACHE", 0)  # Every base is read again.
    failures: list[Exception] = []

    class Bases(ObjectReader):
        def read(self, key: bytes, most: int | None = None) -> GitObject:
            try:
                return super().read(key, most)
            except Exception as error:
                failures.append(error)
                raise

    monkeypatch.setattr(git_read, "ObjectReader", Bases)
    lines = b"a line that stays\n" * 20
    tip: list[bytes] = []
    for number in range(git_read.FEW + 10):
        tree: Tree = {b"f%d" % n: (b"100644", builder.blob(lines + b"%d %d" % (n, number))) for n in range(20)}
        tip = [builder.commit(builder.tree(tree), tip)]
    started: list[subprocess.Popen[bytes]] = []
    with GitRepository(builder.path, env) as repository:
        start = repository.start

        def recorded(*arguments: str, **pipes: IO[bytes] | int) -> subprocess.Popen[bytes]:
            started.append(start(*arguments, **pipes))
            return started[-1]

        plan = git_read.plan(repository, tip, [])
        monkeypatch.setattr(repository, "start", recorded)
        threads = len(os.listdir("/proc/self/task"))
        for _ in range(5):
            segments = plan.segments()
            assert isinstance(segments, Generator)
            next(segments)
            segments.close()
            while len(os.listdir("/proc/self/task")) > threads:
                pass  # A thread that still works would read from a closed reader, or start another process.
        assert failures == []
        assert [process.args for process in started if process.returncode is None] == []


def test_memory_of_a_plan() -> None:
    count = 10_000
    names = [number.to_bytes(20, "big") for number in range(2 * count)]
    with traced() as memory:
        plan = Revisions(Revision(names[n], COMMIT, tuple(names[n - 1 : n]), names[count + n]) for n in range(count))
        graph = graph_of(plan)
    assert len(graph) == count
    assert memory.kept / count < 200


def test_moved_content_is_not_sent_again(builder: Builder, env: dict[str, str]) -> None:
    first = builder.blob(b"first\n" * 50)
    second = builder.blob(b"second\n" * 50)
    edited = builder.blob(b"second\n" * 50 + b"edit\n")
    old = builder.tree({b"one": {b"f": (b"100644", first), b"g.c": (b"100644", second)}})
    folder: Tree = {b"f": (b"100644", first), b"g.c": (b"100644", edited)}
    before = builder.commit(old, [])
    after = builder.commit(builder.tree({b"two": folder}), [before])
    with GitRepository(builder.path, env) as repository:
        plan = revisions(repository, [after], [before])
        (records,) = introduced(repository, plan, bulk=False)
        assert [records] == list(introduced(repository, plan, bulk=True))
    assert [record.key for record in records][2:] == [builder.tree(folder), edited]
    assert records[0].candidates == (before,)
    assert records[1].candidates == (old,)
    assert records[3].candidates == (second,)


def test_a_missing_object_is_named(builder: Builder, env: dict[str, str]) -> None:
    """Git itself says of a commit without its past that it could not be read, or that the walk was not set up."""
    gone = builder.tree({b"d": {b"f": (b"100644", builder.blob(b"1"))}})
    first = builder.commit(gone, [])
    second = builder.commit(builder.tree({}), [first])
    builder.remove(gone)
    with GitRepository(builder.path, env) as repository:
        plan = revisions(repository, [second], [])
        for bulk in (False, True):
            with pytest.raises(CannotSend, match=gone.hex()):
                list(introduced(repository, plan, bulk=bulk))
        with pytest.raises(CannotSend, match=bytes(20).hex()):
            revisions(repository, [bytes(20)], [])
        builder.remove(first)
        said = f"^cannot push: history is cut off: commit {first.hex()} is missing .in a shallow clone: git fetch --un"
        with pytest.raises(CannotSend, match=said):
            revisions(repository, [second], [])


@pytest.mark.parametrize("few", [0, 64], ids=["bulk", "few"])
def test_what_no_server_takes_is_named_before_it_is_sent(
    builder: Builder, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(limits, "MAX_TAKEN", 1000)
    monkeypatch.setattr(git_read, "FEW", few)
    fits = [builder.blob(random.Random(number).randbytes(550)) for number in range(2)]
    large = builder.blob(bytes(1001))
    folders: list[Tree] = [
        {b"d": {b"fits": (b"100644", fits[0])}},
        {b"d": {b"fits": (b"100644", fits[0]), b"a film": (b"100644", large)}},
        {b"one": (b"100644", fits[0]), b"two": (b"100644", fits[1])},
    ]
    good, of_large, of_both = [builder.commit(builder.tree(folder), []) for folder in folders]
    tag = builder.tag(large, b"blob", b"film")

    def sent(tip: bytes) -> list[bytes]:
        with GitRepository(builder.path, env) as repository:
            return list(git_read.plan(repository, [tip], []).segments())

    assert len(sent(good)) == 1
    said = f"blob {large.hex()}) of commit {of_large.hex()}: it has 1001 bytes, expected no more than 1000"
    with pytest.raises(CannotSend, match=re.escape(f"cannot push 'd/a film' ({said}")):
        sent(of_large)
    with pytest.raises(CannotSend, match=f"cannot push blob {large.hex()} of tag {tag.hex()}: it has 1001 bytes"):
        sent(tag)
    with pytest.raises(CannotSend, match=f"cannot push blob {large.hex()}: it has 1001 bytes"):
        sent(large)
    with pytest.raises(
        CannotSend,
        match=f"cannot push commit {of_both.hex()}: its new content has 1[0-9]{{3}} bytes .compressed., "
        "expected no more than 1000",
    ):
        sent(of_both)
    monkeypatch.setattr(limits, "MAX_ENTRIES", 2)
    monkeypatch.setattr(git_read, "SegmentWriter", PARTS["SegmentWriter"][0])  # Whose limits these are.
    with pytest.raises(
        CannotSend, match=f"cannot push commit {good.hex()}: too many records of a revision: 4, at most"
    ):
        sent(good)

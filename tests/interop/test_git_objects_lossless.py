"""vcs.git.read, vcs.git.insert, vcs.git.build: segments keep git objects unchanged, in random parts of random
histories, stored in every way."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from builders import ancestors
from git_histories import Builder, RandomHistory
from twins import both

from smartserver.records.segment import decode_segment
from smartserver.vcs.base import ToolFailed
from smartserver.vcs.git import build as git_build
from smartserver.vcs.git import insert as git_insert
from smartserver.vcs.git import read as git_read
from smartserver.vcs.git.insert import Inserter
from smartserver.vcs.git.read import plan
from smartserver.vcs.git.repository import GitRepository

pytestmark = pytest.mark.interop


def leftovers(builder: Builder) -> list[str]:
    """Return files under objects/pack that are neither a pack nor its index."""
    names = [file.name for file in (builder.path / "objects" / "pack").iterdir()]
    return [name for name in names if not name.endswith((".pack", ".idx"))]


BOTH = both("smartserver.vcs.git.build", "PackBuilder", indirect=True)


@pytest.fixture
def part(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Select one implementation of the part that makes packs."""
    monkeypatch.setattr(git_insert, "PackBuilder", request.param)


def insert(builder: Builder, segments: Iterable[bytes]) -> tuple[int, int]:
    with GitRepository(builder.path, builder.env) as repository:
        keeps: list[str] = []
        inserter = Inserter(repository, keeps)
        done = inserter.insert(segments)
    assert leftovers(builder) == [Path(keep).name for keep in keeps]
    for keep in keeps:
        Path(keep).unlink()
    assert leftovers(builder) == []
    return done.objects, done.revisions


class Exported:
    """The segments of every revision of a history, with tags of everything, some of them nested."""

    def __init__(self, builder: Builder, seed: int, size: int) -> None:
        self.history = RandomHistory(builder, seed, size)
        rng = random.Random(seed)
        tips = list(self.history.commits)
        tree = builder.git("rev-parse", tips[-1].hex() + "^{tree}").decode().strip()
        blob = builder.blob(b"tagged alone\n")
        tips.append(builder.tag(bytes.fromhex(tree), b"tree", b"of-tree"))
        tips.append(builder.tag(blob, b"blob", b"of-blob"))
        for n in range(6):
            target = rng.choice(tips)
            kind = builder.git("cat-file", "-t", target.hex()).strip()
            tips.append(builder.tag(target, kind, b"t%d" % n))
        self.tips = tips
        with GitRepository(builder.path, builder.env) as repository:
            whole = plan(repository, tips, [])
            assert [a.revision for a in whole.graph][-8:] != []
            self.graph = {announced.revision: [parent.id for parent in announced.parents] for announced in whole.graph}
            self.segments = dict(zip(self.graph, whole.segments(), strict=True))

    def ancestors(self, *heads: bytes) -> list[bytes]:
        found = ancestors(heads, self.graph)
        return [revision for revision in self.graph if revision in found]


@pytest.mark.parametrize(
    ("object_format", "few", "unpack_limit"),
    [("sha1", 10**9, 100), ("sha1", 0, 1), ("sha256", 0, 1), ("sha256", 10**9, 10**6)],
)
@BOTH
def test_any_subset_in_any_increments(
    tmp_path: Path,
    env: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    object_format: str,
    few: int,
    unpack_limit: int,
    part: None,
) -> None:
    monkeypatch.setattr(git_read, "FEW", few)
    monkeypatch.setattr(git_read, "_CHUNK", 70)
    monkeypatch.setattr(git_insert, "CACHE", 3000)
    source = Builder(tmp_path / "a.git", env, object_format)
    exported = Exported(source, 22, 60)
    rng = random.Random(4)
    for trial in range(3):
        heads = rng.sample(exported.tips, rng.choice((1, 2, 3)))
        target = Builder(tmp_path / f"b{trial}.git", env, object_format)
        target.configure(f"[fetch]\n\tunpackLimit = {unpack_limit}\n")
        todo = exported.ancestors(*heads)
        step = rng.choice((len(todo), len(todo) // 3 + 1))
        for at in range(0, len(todo), step):
            chosen = todo[at : at + step]
            _, revisions = insert(target, [exported.segments[revision] for revision in chosen])
            assert revisions == len(chosen)
        for n, head in enumerate(heads):
            target.ref(f"refs/x/{n}", head)
        expected = source.reachable(*heads)
        assert target.reachable(*heads) == expected
        assert target.fsck("--full")[0] == 0
        found = target.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
        assert {bytes.fromhex(key.decode()) for key in found} == expected
        packs = list((target.path / "objects" / "pack").glob("*.idx"))
        assert bool(packs) == (unpack_limit == 1 or (unpack_limit == 100 and len(expected) >= 100))
        for pack in packs:
            target.git("verify-pack", str(pack))


@pytest.mark.parametrize("unpack_limit", [1, 10**6])
def test_fsck_settings_are_obeyed(tmp_path: Path, env: dict[str, str], unpack_limit: int) -> None:
    env["HOME"] = str(tmp_path)
    source = Builder(tmp_path / "a.git", env)
    tree = source.tree({b".git": (b"100644", source.blob(b"x"))})
    (tmp_path / "skipped").write_text(f"{tree.hex()}\n")
    bad = source.commit(tree, [])
    good = source.commit(source.tree({b"f": (b"100644", source.blob(b"y"))}), [])
    for name, settings, allowed in (
        ("strict", "[transfer]\n\tfsckObjects = true\n", False),
        ("fetch-wins", "[transfer]\n\tfsckObjects = true\n[fetch]\n\tfsckObjects = false\n", True),
        ("lenient", '[fetch]\n\tfsckObjects = true\n[fetch "fsck"]\n\thasDotgit = ignore\n', True),
        ("skips", '[fetch]\n\tfsckObjects = true\n[fetch "fsck"]\n\tskipList = ~/skipped\n', True),
        ("unset", "", True),
    ):
        target = Builder(tmp_path / f"{name}.git", env)
        target.configure(f"[fetch]\n\tunpackLimit = {unpack_limit}\n{settings}")
        with GitRepository(source.path, env) as repository:
            insert(target, list(plan(repository, [good], []).segments()))
            segments = list(plan(repository, [bad], []).segments())
        if allowed:
            insert(target, segments)
            assert target.git("cat-file", "-t", bad.hex()) == b"commit\n"
        else:
            with pytest.raises(ToolFailed, match=r"git (unpack-objects|index-pack) failed .*: hasDotgit: "):
                insert(target, segments)
            assert target.git("cat-file", "-t", bad.hex(), check=False) == b""
            assert leftovers(target) == []


def test_copies_count_once_and_progress_ends_at_the_sum(tmp_path: Path, env: dict[str, str]) -> None:
    source = Builder(tmp_path / "a.git", env)
    tree = source.tree({b"f": (b"100644", source.blob(b"same\n"))})
    one, two = source.commit(tree, [], message=b"1"), source.commit(tree, [], message=b"2")
    target = Builder(tmp_path / "b.git", env)
    calls: list[tuple[int, int]] = []
    with GitRepository(source.path, env) as repository, GitRepository(target.path, env) as receiver:
        segments = list(plan(repository, [one, two], []).segments())
        done = Inserter(receiver, []).insert(segments, lambda done, total: calls.append((done, total)))
    assert done.objects == 4
    assert calls == sorted(calls)
    assert (len(calls), calls[-1]) == (3, (4, 4))


def children() -> set[str]:
    """Return the living children of this process; other tests have a server running."""
    return {child for task in Path("/proc/self/task").glob("*/children") for child in task.read_text().split()}


def held() -> tuple[set[str], int, int]:
    """Return the children of this process, and the number of its threads and descriptors."""
    return children(), len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


@BOTH
def test_an_interrupted_pull_leaves_nothing(tmp_path: Path, env: dict[str, str], part: None) -> None:
    source = Builder(tmp_path / "a.git", env)
    exported = Exported(source, 31, 40)
    blocks = list(exported.segments.values())
    target = Builder(tmp_path / "b.git", env)

    def cut(after: int) -> Iterator[bytes]:
        yield from blocks[:after]
        raise KeyboardInterrupt

    others = held()
    for after in (0, 5, 30):
        with pytest.raises(KeyboardInterrupt):
            insert(target, cut(after))
        assert leftovers(target) == []
        assert target.git("cat-file", "--batch-all-objects", "--batch-check") == b""
        assert held() == others


@BOTH
@pytest.mark.parametrize("which", [0, 1])
def test_a_full_disk_is_told_where_it_is(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, part: None, which: int
) -> None:
    """The error names the file even if it has no name: the first file has the frames, the second the entries."""
    exported = Exported(Builder(tmp_path / "a.git", env), 31, 5)
    target = Builder(tmp_path / "b.git", env)
    files = [git_build.unnamed_file(str(tmp_path)) for _ in range(2)]
    os.close(files[which])
    files[which] = os.open("/dev/full", os.O_RDWR)
    monkeypatch.setattr(git_insert, "unnamed_file", lambda folder: files.pop(0))
    with pytest.raises(OSError, match="No space left") as caught:
        insert(target, list(exported.segments.values()))
    assert caught.value.filename == str(target.path / "objects" / "pack")
    assert leftovers(target) == []


def test_a_push_without_some_bases(tmp_path: Path, env: dict[str, str]) -> None:
    source = Builder(tmp_path / "a.git", env)
    old = source.blob(b"".join([b"line %d\n" % n for n in range(500)]))
    new = source.blob(b"".join([b"line %d\n" % n for n in range(501)]))
    first = source.commit(source.tree({b"f": (b"100644", old)}), [])
    second = source.commit(source.tree({b"f": (b"100644", new)}), [first])
    with GitRepository(source.path, env) as repository:
        sending = plan(repository, [second], [first])
        assert [a.revision for a in sending.graph] == [second]
        (with_base,) = sending.segments()
        again = sending.without_bases([old])
        (without,) = again.segments()
        assert list(again.graph) == list(sending.graph)
        bases = [decode_segment(block, 0, repository.kinds) for block in (with_base, without)]
        used = [{segment.base_of(entry) for entry in segment.entries} for segment in bases]
    assert old in used[0]
    assert old not in used[1]
    assert used[1] & used[0] - {b""}, "the other bases stay"


@pytest.mark.parametrize("limit", [None, 100])
def test_a_few_large_objects_become_a_pack_where_no_limit_is_set(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    monkeypatch.setattr(git_insert, "LARGE_PULL", 1 << 20)
    source = Builder(tmp_path / "a.git", env)
    noise = source.blob(random.Random(1).randbytes(2 << 20))
    commit = source.commit(source.tree({b"n": (b"100644", noise)}), [])
    target = Builder(tmp_path / "b.git", env)
    if limit is not None:
        target.configure(f"[fetch]\n\tunpackLimit = {limit}\n")
    with GitRepository(source.path, env) as repository:
        insert(target, list(plan(repository, [commit], []).segments()))
    assert len(list((target.path / "objects" / "pack").glob("*.pack"))) == (limit is None)
    assert target.fsck("--full")[0] == 0
    assert target.reachable(commit) == source.reachable(commit)


@pytest.mark.parametrize(
    ("shared", "mask", "mode"),
    [
        ("group", 0o077, 0o440),
        ("all", 0o077, 0o444),
        ("umask", 0o077, 0o400),
        ("umask", 0o022, 0o444),
        ("0640", 0o022, 0o440),
    ],
)
def test_packs_are_readable_as_the_repository_is_shared(
    tmp_path: Path, env: dict[str, str], shared: str, mask: int, mode: int
) -> None:
    """The packs have the modes that git gives its own."""
    source = Builder(tmp_path / "a.git", env)
    commit = source.commit(source.tree({b"f": (b"100644", source.blob(b"x"))}), [])
    target = Builder(tmp_path / "b.git", env)
    target.configure(f"[fetch]\n\tunpackLimit = 1\n[core]\n\tsharedRepository = {shared}\n")
    with GitRepository(source.path, env) as repository:
        segments = list(plan(repository, [commit], []).segments())
    before = os.umask(mask)
    try:
        insert(target, segments)
    finally:
        os.umask(before)
    files = list((target.path / "objects" / "pack").iterdir())
    assert [file.stat().st_mode & 0o777 for file in files] == [mode, mode]

"""vcs.git.read, vcs.git.insert, vcs.git.build: segments keep git objects unchanged, in random parts of random
histories, stored in every way.

vcs.git.plan: which revisions and objects a push plans to send, equal by both ways of looking, and no more."""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import IO

import pytest
from builders import ancestors
from git_histories import Builder, RandomHistory, Tree
from needs import needs
from traced_memory import traced
from twins import both

from smartserver.records import limits
from smartserver.records.bases import SegmentWriter
from smartserver.records.native import PARTS, native
from smartserver.records.segment import decode_segment
from smartserver.vcs.base import CannotSend, ToolFailed
from smartserver.vcs.git import build as git_build
from smartserver.vcs.git import insert as git_insert
from smartserver.vcs.git import read as git_read
from smartserver.vcs.git.insert import Inserter
from smartserver.vcs.git.objects import COMMIT, GitObject, ObjectReader
from smartserver.vcs.git.plan import Introduced, Revision, Revisions, graph_of, introduced, revisions
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


@pytest.mark.parametrize("few", [0, 64], ids=["bulk", "few"])
def test_a_push_without_some_bases(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(git_read, "FEW", few)
    source = Builder(tmp_path / "a.git", env)
    old = source.blob(b"".join([b"line %d\n" % n for n in range(500)]))
    new = source.blob(b"".join([b"line %d\n" % n for n in range(501)]))
    first = source.commit(source.tree({b"f": (b"100644", old)}), [])
    second = source.commit(source.tree({b"f": (b"100644", new)}), [first])
    with GitRepository(source.path, env) as repository:
        sending = plan(repository, [second], [first])
        assert [a.revision for a in sending.graph] == [second]
        (with_base,) = sending.segments()
        again = sending.without_bases([old, b"a key of some other system, or of somebody who is hostile"])
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


def listed(repository: GitRepository, plan: Revisions) -> list[list[Introduced]]:
    return [records for _, records in introduced(repository, plan, repository.objects.read)]


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_every_tip_is_whole(tmp_path: Path, env: dict[str, str], object_format: str) -> None:
    builder = Builder(tmp_path / "r.git", env, object_format)
    history = RandomHistory(builder, 1, 120)
    with GitRepository(builder.path, env) as repository:
        plan = revisions(repository, history.commits, [])
        assert {revision.id for revision in plan} == set(history.commits)
        assert {r.id: list(r.parents) for r in plan} == {c: history.parents[c] for c in history.commits}
        few = listed(repository, plan)
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


@needs("native parts")
@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
@pytest.mark.parametrize("stored", ["loose", "packed", "borrowed"])
def test_native_parts_send_the_same(
    tmp_path: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, object_format: str, stored: str
) -> None:
    """Large texts, odd modes and types, and the objects of another repository: whatever is found where."""
    builder = Builder(tmp_path / "r.git", env, object_format)
    history = RandomHistory(builder, 3, 120)
    tips = list(history.commits)
    for number, each in enumerate(tips):
        builder.ref(f"refs/heads/{number}", each)
    if stored != "loose":
        builder.git("repack", "-adfq", "--depth=20")
    large = [builder.blob(random.Random(n).randbytes(3 << 20)) for n in range(2)]
    inner = builder.tree({b"f": (b"100644", large[0])})
    folder: Tree = {b"odd": (b"100644", inner), b"large": (b"100644", large[1]), b"old": (b"0100644", large[0])}
    for more in ({}, {b"again": (b"100644", inner), b"folder": (b"040000", inner)}):
        tips.append(builder.commit(builder.tree(folder | more), tips[-1:]))
    place = builder.path
    if stored == "borrowed":
        builder.git("clone", "-q", "--bare", "--shared", str(place), str(tmp_path / "copy.git"))
        place = tmp_path / "copy.git"
    monkeypatch.setattr(git_read, "FEW", 0)

    def sent() -> list[bytes]:
        with GitRepository(place, env) as repository:
            return list(plan(repository, tips, []).segments())

    asked: list[bytes] = []
    read = ObjectReader.read

    def note(reader: ObjectReader, key: bytes, most: int | None = None) -> GitObject:
        asked.append(key)
        return read(reader, key, most)

    monkeypatch.setattr(ObjectReader, "read", note)
    natively = sent()
    assert len(asked) < len(history.commits) + 20, "git is asked for the type of each tip, and for little else"
    monkeypatch.setattr(git_read, "native", lambda name: None)
    assert sent() == natively
    assert len(asked) > 5 * len(history.commits)


def test_equal_folders_that_are_removed_are_listed_once(builder: Builder, env: dict[str, str]) -> None:
    """Each of ten levels has ten equal folders: ten thousand million files."""
    key, name = builder.tree({b"f": (b"100644", builder.blob(b"1"))}), (b"040000",)
    for _ in range(10):
        key = builder.tree({b"%d" % number: (*name, key) for number in range(10)})
    first = builder.commit(key, [])
    second = builder.commit(builder.tree({b"g": (b"100644", builder.blob(b"2"))}), [first])
    with GitRepository(builder.path, env) as repository:
        both_of = listed(repository, revisions(repository, [second], []))
    assert [len(records) for records in both_of] == [1 + 11 + 1, 3]


@needs("native parts")
def test_a_damaged_pack_is_left_to_git(tmp_path: Path, builder: Builder) -> None:
    """Whatever byte is wrong, or missing, in a pack or its index: the native reader fails at nothing."""
    history = RandomHistory(builder, 5, 40)
    for number, each in enumerate(history.commits):
        builder.ref(f"refs/heads/{number}", each)
    builder.git("repack", "-adfq")
    keys = sorted(builder.reachable(*history.commits))
    folder = tmp_path / "objects"
    (folder / "pack").mkdir(parents=True)
    files = [next((builder.path / "objects/pack").glob(f"*.{end}")) for end in ("pack", "idx")]

    def read(contents: list[bytes], number: int) -> list[tuple[int, bytes] | None]:
        for file, content in zip(files, contents, strict=True):
            (folder / "pack" / f"{number}{file.suffix}").write_bytes(content)
        store = native("ObjectStore")(str(folder), 20, 1 << 20)
        for file in files:
            (folder / "pack" / f"{number}{file.suffix}").unlink()
        return [store.read(key) for key in keys]

    sound = [file.read_bytes() for file in files]
    true = read(sound, 0)
    assert None not in true
    chance = random.Random(1)
    lost = 0
    for number in range(300):
        which, at = number % 2, chance.randrange(3000)
        damaged = bytearray(sound[which])
        if number % 5:
            damaged[at % len(damaged)] ^= 1 << chance.randrange(8)
        else:
            del damaged[at:]
        contents = list(sound)
        contents[which] = bytes(damaged)
        lost += sum(one != other for one, other in zip(read(contents, number), true, strict=True))
    assert lost > 1000


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
    monkeypatch.setattr(git_read, "native", lambda name: None)  # Processes of git read all objects.
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
        (records,) = listed(repository, plan)
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
        with pytest.raises(CannotSend, match=gone.hex()):
            listed(repository, plan)
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
    monkeypatch.setattr(git_read, "native", lambda name: None)  # Native parts read smaller objects than the true limit.
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

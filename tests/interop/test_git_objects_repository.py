"""vcs.git.repository, vcs.git.objects, vcs.git.refs: what a git repository says of itself, which revisions it offers as
haves, and its refs: those that are read from files are those that git says, or git is asked."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from agents import children
from git_histories import Builder, environment

from smartserver.vcs.base import VcsError
from smartserver.vcs.git.objects import BLOB, SHORT, scratch
from smartserver.vcs.git.plan import revisions
from smartserver.vcs.git.refs import MAX_ENTRIES, read_refs
from smartserver.vcs.git.repository import GitRepository
from smartserver.verbs.repository_pull import MAX_HAVES

pytestmark = pytest.mark.interop


def chain(builder: Builder, length: int, start: bytes | None = None, name: bytes = b"") -> list[bytes]:
    """Commits on top of each other, each with a file of its own."""
    commits: list[bytes] = []
    for n in range(length):
        parents = commits[-1:] or ([start] if start else [])
        tree = builder.tree({b"f": (b"100644", builder.blob(b"%s %d\n" % (name, n)))})
        commits.append(builder.commit(tree, parents, message=b"%s %d\n" % (name, n)))
    return commits


def test_head_is_read_where_its_file_names_a_branch(
    env: dict[str, str], builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with GitRepository(builder.path, env) as repository:
        with monkeypatch.context() as patch:
            patch.setattr(repository, "start", None)
            assert repository.head() == b"refs/heads/main"
        builder.git("symbolic-ref", "refs/heads/main", "refs/heads/other")
        assert repository.head() == b"refs/heads/other"
        (builder.path / "HEAD").write_bytes(b"ref: refs/heads/.invalid\n")
        monkeypatch.setattr(repository, "run", lambda *_, **__: b"refs/heads/kept\n")
        assert repository.head() == b"refs/heads/kept"


def test_settings(env: dict[str, str], builder: Builder) -> None:
    builder.configure(
        '[fetch]\n\tfsckObjects\n\tunpackLimit = 2k\n[remote "A.b"]\n\turl = one\n\turl = two\nlines = off\n'
    )
    with GitRepository(builder.path, env) as repository:
        assert repository.flag("fetch.fsckobjects")
        assert repository.flag("nothing.set", "fetch.fsckobjects")
        assert not repository.flag("nothing.set")
        assert not repository.flag("remote.A.b.lines")
        assert repository.number("nothing.set", "fetch.unpacklimit", default=1) == 2048
        assert repository.number("remote.A.b.url", default=7) == 7
        assert repository.config("remote.A.b.url") == b"two"
        assert repository.settings()["remote.A.b.url"] == [b"one", b"two"]


def test_what_gets_ready_is_the_same_and_is_ended(env: dict[str, str], builder: Builder) -> None:
    with GitRepository(builder.path, env) as repository:
        repository.prepare(objects=True)
        assert repository.config("core.bare") == b"true"
        assert repository.find(b"HEAD") is None
        assert repository.find(b"two\nlines") is None
    before = children(os.getpid())
    with GitRepository(builder.path, env) as repository:
        repository.prepare(objects=True)
        assert len(children(os.getpid())) == len(before) + 2
    assert children(os.getpid()) == before


def test_the_reader_survives_its_process(env: dict[str, str], builder: Builder) -> None:
    key = builder.blob(b"text")
    with GitRepository(builder.path, env) as repository:
        assert repository.objects.read(key)[:3] == (key, BLOB, b"text")
        process = repository.objects._process
        assert process is not None
        process.kill()
        process.wait()
        with pytest.raises(VcsError, match="git cat-file ended early"):
            repository.objects.read(key)
        assert repository.objects.read(key).text == b"text"


def test_a_closed_reader_starts_no_process(env: dict[str, str], builder: Builder) -> None:
    with GitRepository(builder.path, env) as repository:
        repository.objects.open()
    with pytest.raises(RuntimeError, match="no object is read after `close`"):
        repository.objects.open()


@pytest.mark.parametrize("size", [0, SHORT, SHORT + 1])
@pytest.mark.parametrize("in_memory", [False, True])
def test_a_file_without_a_name_is_read_from_its_start(
    size: int, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    content = b"?" * size
    with scratch(content) as file:
        assert subprocess.run(["cat"], stdin=file, capture_output=True, check=True).stdout == content
        file.write(b"more")
        file.seek(size)
        assert file.read() == b"more"
    assert file.closed


def test_haves_begin_with_what_the_remote_had(env: dict[str, str], builder: Builder) -> None:
    main = chain(builder, 20, name=b"main")
    side = chain(builder, 3, main[5], name=b"side")
    tag = builder.tag(main[2], b"commit", b"v1")
    builder.ref("refs/heads/main", main[-1])
    builder.ref("refs/heads/aside", side[-1])
    builder.ref("refs/remotes/o/x", main[10])
    builder.ref("refs/tags/v1", tag)
    with GitRepository(builder.path, env) as repository:
        # main[7] and side[0] are no tips any more, but refs reach them; the last two are not here.
        seen = [main[10], main[7], side[0], bytes(20), b"short"]
        haves = repository.complete_haves(seen, MAX_HAVES)
        assert haves == [main[10], main[7], side[0], main[-1], side[-1], tag]
        assert repository.complete_haves(seen, limit=2) == [main[10], main[7]]
        assert repository.complete_haves([bytes(range(20))], MAX_HAVES)[:4] == [main[-1], side[-1], main[10], tag]


def test_without_knowledge_ancestors_are_offered(env: dict[str, str], builder: Builder) -> None:
    main = chain(builder, 40)
    builder.ref("refs/heads/main", main[-1])
    with GitRepository(builder.path, env) as repository:
        assert repository.complete_haves([], MAX_HAVES) == [main[-1 - back] for back in (0, 1, 2, 4, 8, 16, 32)]
        assert len(repository.complete_haves([], limit=3)) == 3
        assert repository.complete_haves([main[4]], MAX_HAVES) == [main[4], main[-1]]


def test_what_gc_broke_is_not_offered(env: dict[str, str], builder: Builder) -> None:
    main = chain(builder, 3, name=b"main")
    without_commit = chain(builder, 4, main[0], name=b"one")
    without_blob = chain(builder, 2, main[0], name=b"two")
    whole = chain(builder, 2, main[0], name=b"three")
    builder.ref("refs/heads/main", main[-1])
    builder.remove(without_commit[1])
    builder.remove(builder.blob(b"two 0\n"))
    with GitRepository(builder.path, env) as repository:
        candidates = [without_commit[-1], whole[-1], without_blob[-1], without_commit[0], main[1]]
        assert repository.complete_haves(candidates, MAX_HAVES) == [whole[-1], without_commit[0], main[1], main[-1]]
        # A push goes on without the broken ones.
        tip = chain(builder, 1, main[-1], name=b"tip")
        plan = revisions(repository, tip, [without_commit[-1], without_blob[-1], main[-1]])
        assert [revision.id for revision in plan] == tip


def test_what_is_borrowed_is_offered(tmp_path: Path, env: dict[str, str], builder: Builder) -> None:
    main = chain(builder, 3)
    borrower = Builder(tmp_path / "borrower.git", env)
    alternates = borrower.path / "objects" / "info" / "alternates"
    alternates.parent.mkdir(exist_ok=True)
    alternates.write_text(f"{builder.path / 'objects'}\n")
    with GitRepository(borrower.path, env) as repository:
        assert repository.complete_haves([], MAX_HAVES) == []
    builder.ref("refs/heads/main", main[-1])
    with GitRepository(borrower.path, env) as repository:
        assert repository.complete_haves([], MAX_HAVES) == [main[2], main[1], main[0]]
        assert repository.complete_haves([main[1]], MAX_HAVES) == [main[1], main[2]]
    builder.remove(main[-1])
    with GitRepository(borrower.path, env) as repository:
        assert repository.complete_haves([main[1]], MAX_HAVES) == [main[1]]


@pytest.fixture(params=["sha1", "sha256"])
def with_refs(tmp_path: Path, request: pytest.FixtureRequest) -> Builder:
    """A repository with two commits, a tag and refs of each kind."""
    made = Builder(tmp_path / "r.git", environment(tmp_path / "home"), request.param)
    tree = made.tree({b"f": (b"100644", made.blob(b"text"))})
    commit = made.commit(tree, [])
    made.ref("refs/heads/main", commit)
    made.ref("refs/heads/topic/a.b-c", made.commit(tree, [commit], message=b"two\n"))
    made.ref("refs/stash", commit)
    made.git("tag", "-a", "-m", "v1", "v1", "main")
    made.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/main")
    return made


def said_by_git(with_refs: Builder) -> list[tuple[bytes, bytes]]:
    lines = with_refs.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return [(name, bytes.fromhex(key.decode())) for name, key in (line.split() for line in lines)]


def read(with_refs: Builder) -> list[tuple[bytes, bytes]] | None:
    found = read_refs(str(with_refs.path), with_refs.width)
    return None if found is None else list(found.items())


def test_they_are_those_of_git_loose_or_packed(with_refs: Builder) -> None:
    chance = random.Random(1)
    commits = [with_refs.git("rev-parse", name).decode().strip() for name in ("main", "topic/a.b-c")]
    names = [f"refs/{kind}/{name}" for kind in ("heads", "tags", "notes", "remotes/origin") for name in "abc"]
    for _ in range(40):
        name = chance.choice(names)
        match chance.choice(("make", "make", "make", "delete", "link", "pack")):
            case "make":
                with_refs.git("update-ref", "--no-deref", name, chance.choice(commits))
            case "delete":
                with_refs.git("update-ref", "--no-deref", "-d", name)
            case "link":
                with_refs.git("symbolic-ref", name, "refs/heads/main")
            case "pack":
                with_refs.git("pack-refs", *chance.choice(((), ("--all",), ("--all", "--no-prune"))))
        assert read(with_refs) == said_by_git(with_refs)


def write(name: str, content: str) -> Callable[[Builder], object]:
    def change(with_refs: Builder) -> None:
        key = with_refs.git("rev-parse", "main").decode().strip()
        path = with_refs.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.format(key=key, half=key[:30], zeros="0" * len(key), other="a" * (104 - len(key))))

    return change


def many(with_refs: Builder) -> None:
    lines = [f"create refs/heads/b{number} refs/heads/main\n" for number in range(MAX_ENTRIES)]
    key = with_refs.git("rev-parse", "main").decode().strip()
    with_refs.git("update-ref", "--stdin", stdin="".join(lines).replace(" refs/heads/main", f" {key}").encode())


@pytest.mark.parametrize(
    "change",
    [
        write("refs/heads/lower.lock", "{key}\n"),
        write("refs/heads/é", "{key}\n"),
        write("refs/heads/.hidden", "{key}\n"),
        write("refs/heads/a..b", "{key}\n"),
        write("refs/heads/short", "{half}\n"),
        write("refs/heads/open", "{key}"),
        write("refs/heads/more", "{key} more\n"),
        write("refs/heads/zeros", "{zeros}\n"),
        write("refs/heads/other-format", "{other}\n"),
        write("refs/heads/empty", ""),
        write("refs/heads/dangling", "ref: refs/heads/nothing\n"),
        write("refs/heads/twice", "ref: refs/remotes/origin/HEAD\n"),
        write("refs/heads/outside", "ref: HEAD\n"),
        write("packed-refs", "{key} refs/heads/cut"),
        write("packed-refs", "{key} HEAD\n"),
        write("packed-refs", "{key} refs/heads/a.lock/b\n"),
        write("packed-refs", "\n"),
        lambda with_refs: (with_refs.path / "refs/heads/link").symlink_to("main"),
        many,
    ],
)
def test_where_anything_is_odd_git_is_asked(with_refs: Builder, change: Callable[[Builder], object]) -> None:
    change(with_refs)
    assert read(with_refs) is None


def test_a_ref_whose_object_is_missing_is_one_to_git_too(with_refs: Builder) -> None:
    (with_refs.path / "refs/heads/missing").write_text("ab" * with_refs.width + "\n")
    assert read(with_refs) == said_by_git(with_refs)


def test_a_repository_asks_git_where_its_refs_are_elsewhere(
    with_refs: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refs_of(folder: Path, **more: str) -> dict[bytes, bytes]:
        with GitRepository(folder, {**with_refs.env, **more}) as repository:
            repository.settings()
            run = repository.run

            def ask(*words: str) -> bytes:
                asked.append(words[0])
                return run(*words)

            monkeypatch.setattr(repository, "run", ask)
            return repository.refs()

    expected = dict(said_by_git(with_refs))
    assert refs_of(with_refs.path) == expected
    assert asked == []
    with_refs.git("worktree", "add", "-q", "--detach", str(tmp_path / "linked"), "main")
    linked = with_refs.path / "worktrees" / "linked"
    (linked / "refs" / "bisect").mkdir(parents=True)
    (linked / "refs" / "bisect" / "bad").write_bytes((with_refs.path / "refs/heads/main").read_bytes())
    assert refs_of(linked) == {b"refs/bisect/bad": expected[b"refs/heads/main"], **expected}
    assert refs_of(with_refs.path) == expected
    assert asked == ["for-each-ref"]
    elsewhere = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "extensions.refStorage", "GIT_CONFIG_VALUE_0": "other"}
    assert refs_of(with_refs.path, **elsewhere) == expected
    (with_refs.path / "HEAD").write_text("ref: refs/heads/.invalid\n")
    assert refs_of(with_refs.path) == expected
    assert asked == ["for-each-ref"] * 3

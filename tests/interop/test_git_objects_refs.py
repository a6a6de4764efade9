"""vcs.git.refs: the refs that are read from files are those that git says, or git is asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from git_histories import Builder, environment

from smartserver.vcs.git.refs import MAX_ENTRIES, read_refs
from smartserver.vcs.git.repository import GitRepository

pytestmark = pytest.mark.interop


@pytest.fixture(params=["sha1", "sha256"])
def builder(tmp_path: Path, request: pytest.FixtureRequest) -> Builder:
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


def said_by_git(builder: Builder) -> list[tuple[bytes, bytes]]:
    lines = builder.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return [(name, bytes.fromhex(key.decode())) for name, key in (line.split() for line in lines)]


def read(builder: Builder) -> list[tuple[bytes, bytes]] | None:
    found = read_refs(str(builder.path), builder.width)
    return None if found is None else list(found.items())


def test_they_are_those_of_git_loose_or_packed(builder: Builder) -> None:
    chance = random.Random(1)
    commits = [builder.git("rev-parse", name).decode().strip() for name in ("main", "topic/a.b-c")]
    names = [f"refs/{kind}/{name}" for kind in ("heads", "tags", "notes", "remotes/origin") for name in "abc"]
    for _ in range(40):
        name = chance.choice(names)
        match chance.choice(("make", "make", "make", "delete", "link", "pack")):
            case "make":
                builder.git("update-ref", "--no-deref", name, chance.choice(commits))
            case "delete":
                builder.git("update-ref", "--no-deref", "-d", name)
            case "link":
                builder.git("symbolic-ref", name, "refs/heads/main")
            case "pack":
                builder.git("pack-refs", *chance.choice(((), ("--all",), ("--all", "--no-prune"))))
        assert read(builder) == said_by_git(builder)


def write(name: str, content: str) -> Callable[[Builder], object]:
    def change(builder: Builder) -> None:
        key = builder.git("rev-parse", "main").decode().strip()
        path = builder.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.format(key=key, half=key[:30], zeros="0" * len(key), other="a" * (104 - len(key))))

    return change


def many(builder: Builder) -> None:
    lines = [f"create refs/heads/b{number} refs/heads/main\n" for number in range(MAX_ENTRIES)]
    key = builder.git("rev-parse", "main").decode().strip()
    builder.git("update-ref", "--stdin", stdin="".join(lines).replace(" refs/heads/main", f" {key}").encode())


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
        lambda builder: (builder.path / "refs/heads/link").symlink_to("main"),
        many,
    ],
)
def test_where_anything_is_odd_git_is_asked(builder: Builder, change: Callable[[Builder], object]) -> None:
    change(builder)
    assert read(builder) is None


def test_a_ref_whose_object_is_missing_is_one_to_git_too(builder: Builder) -> None:
    (builder.path / "refs/heads/missing").write_text("ab" * builder.width + "\n")
    assert read(builder) == said_by_git(builder)


def test_a_repository_asks_git_where_its_refs_are_elsewhere(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refs_of(folder: Path, **more: str) -> dict[bytes, bytes]:
        with GitRepository(folder, {**builder.env, **more}) as repository:
            repository.settings()
            run = repository.run

            def ask(*words: str) -> bytes:
                asked.append(words[0])
                return run(*words)

            monkeypatch.setattr(repository, "run", ask)
            return repository.refs()

    expected = dict(said_by_git(builder))
    assert refs_of(builder.path) == expected
    assert asked == []
    builder.git("worktree", "add", "-q", "--detach", str(tmp_path / "linked"), "main")
    linked = builder.path / "worktrees" / "linked"
    (linked / "refs" / "bisect").mkdir(parents=True)
    (linked / "refs" / "bisect" / "bad").write_bytes((builder.path / "refs/heads/main").read_bytes())
    assert refs_of(linked) == {b"refs/bisect/bad": expected[b"refs/heads/main"], **expected}
    assert refs_of(builder.path) == expected
    assert asked == ["for-each-ref"]
    elsewhere = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "extensions.refStorage", "GIT_CONFIG_VALUE_0": "other"}
    assert refs_of(builder.path, **elsewhere) == expected
    (builder.path / "HEAD").write_text("ref: refs/heads/.invalid\n")
    assert refs_of(builder.path) == expected
    assert asked == ["for-each-ref"] * 3

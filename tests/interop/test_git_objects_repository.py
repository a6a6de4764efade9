"""vcs.git.repository, vcs.git.objects: what a git repository says of itself, and which revisions it offers as haves."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from agents import children
from git_histories import Builder

from smartserver.vcs.base import VcsError
from smartserver.vcs.git.objects import BLOB, SHORT, scratch
from smartserver.vcs.git.plan import revisions
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

"""vcs.git.plan, vcs.git.objects: the revisions of a plan in little memory; a file that git reads is read whole."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from traced_memory import traced

from smartserver.vcs.base import CannotSend
from smartserver.vcs.git.objects import COMMIT, SHORT, scratch
from smartserver.vcs.git.plan import Revision, Revisions, graph_of, revisions
from smartserver.vcs.git.repository import GitRepository


def key(name: str, width: int = 20) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:width]


def line(count: int) -> Iterator[Revision]:
    before: tuple[bytes, ...] = ()
    for n in range(count):
        yield Revision(key(f"c{n}"), COMMIT, before, key(f"t{n}"))
        before = (key(f"c{n}"),)


def test_memory_of_a_plan() -> None:
    count = 10_000
    with traced() as memory:
        plan = Revisions(line(count))
        graph = graph_of(plan)
    assert len(graph) == count
    assert memory.kept / count < 200


def test_a_commit_without_its_past_is_named(tmp_path: Path) -> None:
    """Git itself says of one that it could not be read, and that the walk of revisions was not set up."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a", *words]
        return subprocess.run(command, input=b"", capture_output=True, check=True).stdout.decode().strip()

    git("init", "-q", "--bare")
    tree = git("hash-object", "-t", "tree", "-w", "--stdin")
    first = git("commit-tree", tree, "-m", "first")
    second = git("commit-tree", tree, "-p", first, "-m", "second")
    (tmp_path / "objects" / first[:2] / first[2:]).unlink()
    with GitRepository(tmp_path, {"PATH": os.environ["PATH"]}) as repository, pytest.raises(CannotSend) as refused:
        revisions(repository, [bytes.fromhex(second)], [])
    assert str(refused.value) == (
        f"cannot push: history is cut off: commit {first} is missing (in a shallow clone: git fetch --unshallow)"
    )


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

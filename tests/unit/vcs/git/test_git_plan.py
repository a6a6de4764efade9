"""vcs.git.plan: the revisions of a plan, each as it was given, in little memory."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from smartserver.vcs.base import CannotSend
from smartserver.vcs.git.objects import COMMIT
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
    tracemalloc.start()
    try:
        plan = Revisions(line(count))
        graph = graph_of(plan)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(graph) == count
    assert taken / count < 200


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

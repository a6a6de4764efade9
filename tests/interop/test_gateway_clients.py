"""smartserver.gateway: other implementations of git than git: dulwich, and libgit2 through pygit2."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pygit2
import pytest
from dulwich import porcelain
from dulwich.objects import ObjectID
from dulwich.repo import Repo
from gateways import GatewayServer, Git, new_repository

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    rules = tmp_path_factory.mktemp("gateway")
    with GatewayServer(rules) as server:
        yield server


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return new_repository(tmp_path / "work")


def test_dulwich(server: GatewayServer, git: Git, tmp_path: Path) -> None:
    for n in range(3):
        git.commit(f"f{n}")
    url, folder, said = server.url("dulwich"), str(tmp_path / "clone"), io.BytesIO()
    porcelain.push(str(git.folder), url, b"refs/heads/main", outstream=said, errstream=said)
    porcelain.push(str(git.folder), url, b"refs/heads/main:refs/heads/other", outstream=said, errstream=said)
    with porcelain.clone(url, folder, errstream=said) as clone:
        assert clone.head().decode() == git("rev-parse", "HEAD").strip()
    with porcelain.clone(url, str(tmp_path / "shallow"), depth=1, errstream=said) as shallow:
        assert len(list(shallow.get_walker())) == 1
    two = git.commit("two")
    git("push", "-q", url, "main")
    porcelain.fetch(folder, url, outstream=io.StringIO(), errstream=said)
    with Repo(folder) as clone:
        assert ObjectID(two.encode()) in clone.object_store
    porcelain.push(folder, url, b":refs/heads/other", outstream=said, errstream=said)
    # A deletion is for more rights than a stranger has, and is refused for that.
    assert "refs/heads/other" in git("ls-remote", url)


def test_libgit2(server: GatewayServer, git: Git, tmp_path: Path) -> None:
    for n in range(3):
        git.commit(f"f{n}")
    url = server.url("libgit2")
    local = pygit2.Repository(str(git.folder))
    remote = local.remotes.create("origin", url)
    remote.push(["refs/heads/main", "refs/heads/main:refs/heads/other"])
    clone = pygit2.clone_repository(url, str(tmp_path / "clone"))
    assert str(clone.head.target) == git("rev-parse", "HEAD").strip()
    shallow = pygit2.clone_repository(url, str(tmp_path / "shallow"), depth=1)
    assert len(list(shallow.walk(shallow.head.target))) == 1
    two = git.commit("two")
    remote.push(["refs/heads/main"])
    clone.remotes["origin"].fetch()
    assert str(clone.branches["origin/main"].target) == two


def test_libgit2_is_told_of_a_refusal(server: GatewayServer, git: Git, tmp_path: Path) -> None:
    url = server.url("refused")
    git("push", "-q", url, "main")
    git("commit", "-q", "--amend", "-m", "again")
    refused: dict[str, str] = {}

    class Callbacks(pygit2.RemoteCallbacks):
        def push_update_reference(self, refname: str, message: str | None) -> None:
            refused[refname] = message or ""

    local = pygit2.Repository(str(git.folder))
    local.remotes.create("origin", url).push(["+refs/heads/main"], callbacks=Callbacks())
    assert "anonymous users may do that from this machine only" in refused["refs/heads/main"]

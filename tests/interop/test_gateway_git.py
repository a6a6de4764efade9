"""smartserver.gateway: stock git and other implementations over HTTP, on a repository also served over hpss://."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pygit2
import pytest
from dulwich import porcelain
from dulwich.objects import ObjectID
from dulwich.repo import Repo
from gateways import GatewayServer, Git, new_repository
from mercurials import HGRC, LIBRARIES, LOADER
from scripts import script

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

V0 = ("-c", "protocol.version=0")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    with GatewayServer(tmp_path_factory.mktemp("gateway")) as server:
        yield server


@pytest.fixture
def path(request: pytest.FixtureRequest) -> str:
    """A repository of the test's own."""
    return "".join(each for each in request.node.name if each.isalnum() or each in "_-")


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return new_repository(tmp_path / "work")


def cache_of(server: GatewayServer, key: str) -> Path:
    """The one cache that has an object."""
    (found,) = [
        each
        for each in server.cache.glob("git/*/*.git")
        if not subprocess.run(["git", "--git-dir", each, "cat-file", "-e", key], stderr=subprocess.DEVNULL).returncode
    ]
    return found


@pytest.mark.parametrize("version", ["0", "1", "2"])
def test_push_clone_and_fetch(server: GatewayServer, git: Git, path: str, version: str) -> None:
    git("config", "protocol.version", version)
    git("tag", "-a", "-m", "a tag", "v1")
    assert "new branch" in git("push", server.url(path), "main", "v1")
    clone = git.at("clone")
    git("-c", f"protocol.version={version}", "clone", "-q", server.url(path), str(clone.folder))
    assert clone("rev-parse", "HEAD", "v1", "v1^{}") == git("rev-parse", "HEAD", "v1", "v1^{}")
    two = git.commit("two")
    git("push", "-q", server.url(path), "main")
    clone("-c", f"protocol.version={version}", "fetch", "-q")
    assert clone("rev-parse", "origin/main").strip() == two
    assert clone("fsck", "--strict") == ""


def test_our_client_and_stock_git_see_each_other(server: GatewayServer, git: Git, path: str) -> None:
    git("push", "-q", server.ours(path), "main")
    clone = git.at("clone")
    git("clone", "-q", server.url(path), str(clone.folder))
    two = clone.commit("two")
    clone("push", "-q", "origin", "main")
    git("pull", "-q", server.ours(path), "main")
    assert git("rev-parse", "HEAD").strip() == two
    three = git.commit("three")
    git("push", "-q", server.ours(path), "main:other")
    assert three in clone("ls-remote", "origin", "other")


@pytest.mark.parametrize("protocol", [(), V0])
def test_shallow_clones(server: GatewayServer, git: Git, path: str, protocol: tuple[str, ...]) -> None:
    for n in range(5):
        git.commit(f"f{n}")
    git("push", "-q", server.url(path), "main")
    clone = git.at("clone")
    git(*protocol, "clone", "-q", "--depth", "1", server.url(path), str(clone.folder))
    assert clone("rev-list", "--count", "HEAD").strip() == "1"
    clone(*protocol, "fetch", "-q", "--deepen", "2")
    assert clone("rev-list", "--count", "HEAD").strip() == "3"
    clone.commit("more")
    clone(*protocol, "push", "-q", "origin", "main")
    clone(*protocol, "fetch", "-q", "--unshallow")
    assert clone("rev-list", "--count", "HEAD").strip() == "7"


def test_partial_clone(server: GatewayServer, git: Git, path: str) -> None:
    git.commit("big", "x" * 5000)
    git.commit("big", "y" * 5000)
    git("push", "-q", server.url(path), "main")
    clone = git.at("clone")
    git("clone", "-q", "--filter=blob:none", "--no-checkout", server.url(path), str(clone.folder))
    assert "?" in clone("rev-list", "--objects", "--all", "--missing=print")
    clone("checkout", "-q", "main")
    assert (clone.folder / "big").read_text() == "y" * 5000


def test_delete_force_and_tags(server: GatewayServer, git: Git, path: str) -> None:
    two = git.commit("two")
    git("push", "-q", server.ours(path), "main", "main:doomed")  # From this machine: with all rights.
    assert "deletion of the current branch prohibited" in git("push", server.url(path), ":main", status=1)
    git("reset", "-q", "--hard", "HEAD^")
    assert "rejected" in git("push", server.url(path), "main", status=1)
    # A proxy on this machine hands on what strangers ask, so that coming from here gives nobody more.
    said = git("push", server.url(path), "+main", ":doomed", status=1)
    assert said.count("anonymous users may do that from this machine only") == 2
    assert git("ls-remote", server.url(path), "main").split()[0] == two


def test_atomic_push(server: GatewayServer, git: Git, path: str) -> None:
    git("push", "-q", server.url(path), "main")
    git("tag", "-a", "-m", "one", "v1")
    git("push", "-q", server.url(path), "v1")
    git.commit("two")
    git("tag", "-f", "v1", git("commit-tree", "-m", "elsewhere", "HEAD^{tree}").strip())
    said = git("push", "--atomic", server.url(path), "main", "+v1", status=1)
    assert said.count("remote rejected") == 2
    assert "atomic push failed" in said
    said = git("push", server.url(path), "main", "+v1", status=1)
    assert said.count("remote rejected") == 1


def test_a_ref_that_moved_meanwhile(server: GatewayServer, git: Git, path: str, tmp_path: Path) -> None:
    """The old value that the client saw is the lease, whatever it is forced to."""
    git("push", "-q", server.url(path), "main")
    other = git.at("other")
    git("clone", "-q", server.url(path), str(other.folder))
    other.commit("theirs")
    pushes = f"cd {other.folder} && unset GIT_DIR && exec git push -q origin main"
    script(git.folder / ".git" / "hooks" / "pre-push", pushes)
    git.commit("ours")
    assert "fetch first" in git("push", server.url(path), "main", status=1)
    assert git("ls-remote", server.url(path), "main").split()[0] == other("rev-parse", "HEAD").strip()


def test_content_beside_a_refused_ref_cannot_be_had(server: GatewayServer, git: Git, path: str) -> None:
    """Though one pack brought it together with what was accepted."""
    git("push", "-q", server.url(path), "main", "main:other")
    accepted = git.commit("two")
    git("checkout", "-q", "--orphan", "elsewhere")
    refused = git.commit("secret")
    said = git("push", server.url(path), "main", "+elsewhere:other", status=1)
    assert said.count("remote rejected") == 1
    assert git("ls-remote", server.url(path), "main").split()[0] == accepted
    clone = git.at("clone")
    git("clone", "-q", server.url(path), str(clone.folder))
    for key in (refused, git("rev-parse", f"{refused}:secret").strip()):
        assert "not our ref" in clone("fetch", server.url(path), key, status=128)
        clone("fetch", server.ours(path), key, status=128)
        clone("cat-file", "-e", key, status=1)
    assert not list(server.cache.glob("git/quarantine/*"))


@pytest.mark.parametrize("is_there", [False, True])
def test_a_push_from_a_shallow_clone(server: GatewayServer, git: Git, path: str, is_there: bool) -> None:
    """It is refused where the server lacks what is below."""
    git.commit("two")
    git("push", "-q", server.url(f"{path}-whole"), "main")
    clone = git.at("clone")
    git("clone", "-q", "--depth", "1", server.url(f"{path}-whole"), str(clone.folder))
    clone.commit("three")
    if is_there:
        clone("checkout", "-q", "--orphan", "unrelated")
        clone.commit("unrelated")
        clone("push", "-q", server.url(path), "unrelated")
    said = clone("push", server.url(path), "main", status=1)
    assert "cannot push from a shallow repository: the server lacks the history that is cut off there" in said
    assert "rev-list" not in said
    clone("fetch", "-q", "--unshallow")
    clone("push", "-q", server.url(path), "main")


def test_a_branch_that_is_no_commit(server: GatewayServer, git: Git, path: str) -> None:
    blob = git("rev-parse", "HEAD:one").strip()
    said = git("push", server.url(path), "main", f"{blob}:refs/heads/blob", status=1)
    assert "a branch must point at a commit" in said
    assert "new branch" in said


def test_a_cache_that_is_deleted_or_damaged(server: GatewayServer, git: Git, path: str) -> None:
    head = git.commit("two", path)  # No other test has this commit, though it may make one in the same second.
    git("push", "-q", server.url(path), "main")
    assert head in git("ls-remote", server.url(path))
    first = cache_of(server, head)
    shutil.rmtree(first.parent)
    git("clone", "-q", server.url(path), str(git.folder.parent / "c1"))
    second = cache_of(server, head)
    assert second.name != first.name
    (pack,) = second.glob("objects/pack/*.pack")
    pack.unlink()
    git("clone", "-q", server.url(path), str(git.folder.parent / "c2"))
    third = cache_of(server, head)
    assert third.name != second.name
    (pack,) = third.glob("objects/pack/*.pack")
    pack.chmod(0o644)
    content = bytearray(pack.read_bytes())
    content[len(content) // 2] ^= 0xFF
    pack.write_bytes(content)
    for n in range(100):  # The one that meets it fails, and has the cache looked at.
        if not git("clone", "-q", server.url(path), str(git.folder.parent / f"d{n}"), status=None):
            break
    assert cache_of(server, head).name != third.name


def test_other_systems_name_their_client(server: GatewayServer, git: Git, tmp_path: Path) -> None:
    variables = git.environment | {"HGRCPATH": str(tmp_path / "hgrc")}
    (tmp_path / "hgrc").write_text(HGRC.format(loader=LOADER, libraries=LIBRARIES))
    script = f"hg init r && cd r && echo f > f && hg commit -q -A -m f -u a && hg push -q {server.ours('mercurial')}"
    subprocess.run(["sh", "-c", script], cwd=tmp_path, env=variables, check=True)
    said = git("clone", server.url("mercurial"), str(tmp_path / "c"), status=128)
    refusal = "'mercurial' is a Mercurial repository, which git cannot read: hg clone hpss://HOST/mercurial"
    assert f"remote error: {refusal}" in said
    assert refusal in git("push", server.url("mercurial"), "main", status=128)


def test_no_repository(server: GatewayServer, git: Git) -> None:
    assert "not found" in git("clone", server.url("nowhere"), status=128)
    assert "not found" in git("clone", server.url("a/../../etc"), status=128)


def test_a_server_that_creates_no_repository(git: Git, tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    with GatewayServer(tmp_path / "server", "--no-create") as server:
        said = git("push", server.url(), "main", status=128)
        assert "not allowed to create the repository 'project': this server allows no new repositories" in said
        assert "not found" in git("ls-remote", server.url(), status=128)
        assert not list(server.root.iterdir())


# -- other implementations of git: dulwich, and libgit2 through pygit2


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
    git("commit", "-q", "--amend", "-m", "again")
    refused: dict[str, str] = {}

    class Callbacks(pygit2.RemoteCallbacks):
        def push_update_reference(self, refname: str, message: str | None) -> None:
            refused[refname] = message or ""

    remote.push(["+refs/heads/main"], callbacks=Callbacks())
    assert "anonymous users may do that from this machine only" in refused["refs/heads/main"]

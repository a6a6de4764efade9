"""smartserver.gateway: stock git and other implementations over HTTP, on a repository also served over hpss://; users
of stock git who have tokens, TLS, and what the logs and metrics say of them.

smartserver.gateway.ssh: stock git over a real OpenSSH server whose forced command is `smartserver serve --stdio`."""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pygit2
import pytest
from access_rules import ADMIN
from certificates import Authority
from dulwich import porcelain
from dulwich.objects import ObjectID
from dulwich.repo import Repo
from gateways import GatewayServer, Git, new_repository
from mercurials import HGRC, LIBRARIES, LOADER
from scripts import script
from sshd import Sshd

from smartserver.server.tokens import TokenChanges

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


RULES = """
[[rules]]
who = ["anna"]
path = "**"
may = "admin"

[[rules]]
who = ["bob"]
path = "rules"
refs = ["refs/heads/bob/*"]
may = "force"

[[rules]]
who = ["bob"]
path = "rules"
may = "read"

[[rules]]
who = ["bob", "anonymous"]
path = "open"
may = "read"
"""


class Place:
    """A server with users."""

    def __init__(self, folder: Path, server: GatewayServer) -> None:
        self.server = server
        self._tokens = TokenChanges(folder / "access.toml")

    def token(self, user: str, *, read_only: bool = False) -> str:
        return self._tokens.create(user, int(time.time()), None, None, read_only=read_only)[0]

    def url(self, user: str, path: str = "project", **scope: bool) -> str:
        return self.server.url(path, f"git:{self.token(user, **scope)}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "access.toml").write_text(RULES)
    metrics = ("--metrics", "127.0.0.1:0")
    with GatewayServer(folder, "--access", str(folder / "access.toml"), *metrics, anonymous="") as server:
        yield Place(folder, server)


def test_a_token_is_the_password(place: Place, git: Git) -> None:
    git("push", "-q", place.url("anna"), "main", "main:other")
    git("commit", "-q", "--amend", "-m", "again")
    git("push", "-q", place.url("anna"), "+main", ":other")
    assert "could not read Username" in git("ls-remote", place.server.url(), status=128)
    git("ls-remote", place.server.url("project", place.token("anna")))  # As the name, too.
    log = place.server.log.read_text()
    assert re.search(
        r'change user=anna by="token \w+" from=127.0.0.1:\d+ via=http path=project ref=refs/heads/main', log
    )
    assert re.search(r'request user=anna by="token \w+" .* via=http path=project verbs=git-receive-pack ', log)


def test_rules_hold_for_each_ref(place: Place, git: Git) -> None:
    git("push", "-q", place.url("anna", "rules"), "main")
    git.commit("two")
    said = git("push", place.url("bob", "rules"), "main", "main:bob/a", status=1)
    assert re.search(r"\[new branch\] +main -> bob/a", said)
    assert "the server's access rules allow bob" in said
    assert "the server's access rules allow bob nothing here" in git("ls-remote", place.url("bob"), status=128)


def test_anonymous_users(place: Place, git: Git) -> None:
    git("push", "-q", place.url("anna", "open"), "main")
    git("clone", "-q", place.server.url("open"), str(git.folder.parent / "clone"))
    assert "could not read Username" in git("push", place.server.url("open"), "main:x", status=128)
    assert "could not read Username" in git("ls-remote", place.server.url("nowhere"), status=128)


def test_a_token_that_is_not_valid(place: Place, git: Git) -> None:
    assert "Authentication failed" in git("ls-remote", place.server.url("closed", "git:hpss_wrong"), status=128)
    assert "refused log-in from=127.0.0.1:" in place.server.log.read_text()


def test_a_token_that_came_without_encryption(place: Place, git: Git) -> None:
    """A proxy on this machine says so."""
    insecure = ("-c", "http.extraHeader=X-Forwarded-Proto: http", "-c", "http.extraHeader=X-Forwarded-For: 192.0.2.7")
    credentials = base64.b64encode(f"git:{place.token('anna')}".encode()).decode()
    sent = ("-c", f"http.extraHeader=Authorization: Basic {credentials}")
    said = git(*insecure, *sent, "ls-remote", place.server.url(), status=128)
    assert "was sent without encryption" in said
    said = git(*insecure, "ls-remote", place.server.url(), status=128)
    assert "tokens are sent over https:// alone" in said
    assert 'from="192.0.2.7 behind 127.0.0.1:' in place.server.log.read_text()


def test_metrics(place: Place, git: Git) -> None:
    git("ls-remote", place.server.url("open"), status=None)
    found = re.search(r"metrics on (\S+)", place.server.log.read_text())
    assert found is not None
    with urllib.request.urlopen(found[1]) as page:
        said = page.read().decode()
    assert re.search(r'smartserver_requests_total\{outcome="done",verb="git-upload-pack:refs"\} [1-9]', said)


def test_tls(tmp_path: Path, git: Git) -> None:
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.sign("127.0.0.1")
    options = ("--tls", str(certificate), "--tls-key", str(key), "--require-tls")
    with GatewayServer(tmp_path, *options) as server:
        assert server.scheme == "https"
        git("config", "http.sslCAInfo", str(authority.file))
        git("push", "-q", server.url(), "main")
        clone = str(git.folder.parent / "clone")
        git("-c", f"http.sslCAInfo={authority.file}", "clone", "-q", server.url(), clone)
        said = git("ls-remote", server.url().replace("https", "http"), status=128)
        assert "this server wants https:// in the URL" in said


def test_push_options_and_the_words_of_a_hook(tmp_path: Path, git: Git) -> None:
    hook = script(tmp_path / "check", f"cat >> {tmp_path}/told\nhead -c 10000 /dev/zero | tr '\\0' x\nexit 1")
    rule = '[[rules]]\nwho = ["anonymous"]\npath = "**"\nmay = "admin"\n'
    (tmp_path / "access.toml").write_text(f'{rule}[[hooks]]\npath = "**"\nbefore = ["{hook}"]\n')
    with GatewayServer(tmp_path, "--access", str(tmp_path / "access.toml"), anonymous="") as server:
        said = git("push", "-o", "ci.skip", "-o", "two words", server.url(), "main", status=1)
    assert f"refused by the server's hook check: {'x' * 2048}; and 7,952 bytes more" in said
    assert json.loads((tmp_path / "told").read_text())["options"] == ["ci.skip", "two words"]


class Host:
    """A machine that git reaches by ssh."""

    def __init__(self, sshd: Sshd, folder: Path) -> None:
        self._sshd, self._folder = sshd, folder
        (folder / "root").mkdir()
        (folder / "access.toml").write_text(ADMIN)
        program = [sys.executable, "-m", "smartserver.cli.main", "serve", str(folder / "root"), "--stdio"]
        options = ["--access", str(folder / "access.toml"), "--user", "anna"]
        options += ["--cache-dir", str(folder / "cache"), "--log", str(folder / "log")]
        command = shlex.join([*program, *options])
        key = (sshd.folder / "user_key.pub").read_text()
        (sshd.folder / "authorized_keys").write_text(f'restrict,command="{command}" {key}')

    @property
    def url(self) -> str:
        return f"ssh://{self._sshd.host}:{self._sshd.port}/project"

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    (tmp_path / "ssh").mkdir()
    with Sshd(tmp_path / "ssh", session={"PYTHONPATH": ":".join(sys.path)}) as sshd:
        yield Host(sshd, tmp_path)


@pytest.fixture
def user(host: Host, tmp_path: Path) -> Git:
    return new_repository(tmp_path / "work", GIT_SSH_COMMAND=f"ssh -F {tmp_path / 'ssh' / 'config'}")


def test_push_clone_fetch_and_delete(host: Host, user: Git) -> None:
    user("tag", "-a", "-m", "a tag", "v1")
    user("push", "-q", host.url, "main", "main:other", "v1")
    clone = user.at("clone")
    user("clone", "-q", host.url, str(clone.folder))
    two = user.commit("two")
    user("push", "-q", host.url, "main", ":other")
    clone("fetch", "-q", "--prune")
    assert clone("rev-parse", "origin/main").strip() == two
    assert "other" not in clone("branch", "-r")
    user("commit", "-q", "--amend", "-m", "two again")
    user("push", "-q", host.url, "+main")
    assert "user=anna" in host.log
    assert "via=ssh" in host.log


def test_receivers_are_told(host: Host, user: Git, tmp_path: Path) -> None:
    """Before the process ends: there is no other that would."""
    told = tmp_path / "told"
    receiver = script(tmp_path / "receiver", f"sleep 1\ncat >> {told}")
    (tmp_path / "access.toml").write_text(f'{ADMIN}\n[[hooks]]\npath = "**"\nafter = ["{receiver}"]\n')
    user("push", "-q", host.url, "main")
    assert user("rev-parse", "main").strip() in told.read_text()
    two = user.commit("two")
    user("push", "-q", "-o", "ci.skip", "-o", "two words", host.url, "main")
    _, message = map(json.loads, told.read_text().splitlines())
    assert message["changes"][0]["new"] == [two]
    assert message["options"] == ["ci.skip", "two words"]


def test_a_large_push(host: Host, user: Git) -> None:
    """One that the pipe does not hold, thin and with deltas."""
    for n in range(3):
        user.commit("large", "".join(f"{n} {line * line}\n" for line in range(100_000)))
        user("push", "-q", host.url, "main")
    clone = user.at("clone")
    user("clone", "-q", host.url, str(clone.folder))
    assert clone("rev-parse", "HEAD") == user("rev-parse", "HEAD")


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

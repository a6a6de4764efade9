"""Each tool on each way in that has no tests of its commands: a push that creates, a clone, a push, a fetch, and a push
that is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from brz_sides import Users
from certificates import Authority
from git_sides import Done, Served, Side
from hg_sides import HgSide
from needs import program
from our_forks import with_forked
from scripts import script
from sshd import Sshd
from versitygw import S3, environment

from smartserver.records import native

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


class Git:
    """Users a and b of a tool, and a repository that they share."""

    side = Side
    commands = {
        "init": "git init -q a",
        "push": '{} git push -q "$URL" main',
        "clone": 'as b git clone -q "$URL" b',
        "fetch": '{} git pull -q --ff-only "$URL" main',
        "log": "{} git log --format=%H",
    }

    def __init__(self, folder: Path, url: str, served: Served) -> None:
        self._side = self.side(folder, url, served)

    def begin(self) -> None:
        """Make user a's repository."""
        self._side.prepare(self.commands["init"])

    def commit(self, user: str, name: str) -> None:
        self._side.prepare(f"{user} commit {name}")

    def run(self, command: str, user: str) -> Done:
        """Run a command that uses the server."""
        return self._side.run(self.commands[command].format(user))

    def has(self, user: str) -> str:
        return self.run("log", user).out


class Hg(Git):
    side = HgSide
    commands = {
        "init": "hg init a",
        "push": '{} hg push -q "$URL"',
        "clone": 'as b hg clone -q "$URL" b',
        "fetch": '{} hg pull -q -u "$URL"',
        "log": "{} hg log -T '{{node}}\\n'",
    }


class Brz:
    """The same of brz."""

    commands = {"push": ("push", "-q"), "clone": ("branch", "-q"), "fetch": ("pull", "-q")}

    def __init__(self, folder: Path, url: str, served: Served) -> None:
        first, mark, options = url.partition("?")
        self._url = f"{first}/trunk{mark}{options}"
        self._users = Users(folder, served, "unused")

    def begin(self) -> None:
        self._users.make("a")

    def commit(self, user: str, name: str) -> None:
        self._users.commit(user, name)

    def run(self, command: str, user: str) -> Done:
        words = [*self.commands[command], self._url]
        return self._users.run("", *words, "b") if command == "clone" else self._users.run(user, *words)

    def has(self, user: str) -> str:
        return str(self._users.tip(user))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Served]:
    """It takes TCP and TLS at one port."""
    certificate, key = authority.sign("127.0.0.1")
    made = Served(
        tmp_path_factory.mktemp("server"), "--anonymous", "write", "--tls", str(certificate), "--tls-key", str(key)
    )
    yield made
    said = [line for line in made.close().splitlines() if line != native.said()]
    assert [line.partition(", ")[0] for line in said] == ["with TLS"]


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """A host with an `ssh` that knows it."""
    folder = tmp_path_factory.mktemp("sshd")
    smartserver = with_forked("").rstrip(os.pathsep) + "/smartserver"
    with Sshd(folder) as made:
        key = (folder / "user_key.pub").read_text()
        (folder / "authorized_keys").write_text(f'command="{smartserver} serve {folder} --stdio" {key}')
        script(folder / "bin" / "ssh", f'exec {program("ssh")} -F {made.config} "$@"')
        yield made


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with S3(tmp_path_factory.mktemp("s3")) as made:
        yield made


@pytest.fixture
def place(request: pytest.FixtureRequest, way: str) -> str:
    """The URL of a repository `{}`."""
    if way == "s3":
        s3: S3 = request.getfixturevalue("s3")
        return f"hpss+s3://{s3.bucket()}/{{}}"
    if way == "ssh":
        login: Sshd = request.getfixturevalue("login")
        return f"hpss+ssh://{login.user}@{login.host}:{login.port}/~/{{}}"
    server: Served = request.getfixturevalue("server")
    authority: Authority = request.getfixturevalue("authority")
    return f"hpss+tls://127.0.0.1:{server.direct[1]}/{{}}?ca={authority.file}"


@pytest.mark.parametrize(
    ("way", "tool"),
    # `test_git_agent` and `test_stores` have others.
    [("tls", Hg), ("tls", Brz), ("s3", Hg), *(("ssh", tool) for tool in (Git, Brz, Hg))],
)
def test_each_tool_on_each_way(
    request: pytest.FixtureRequest,
    server: Served,
    tool: type[Git] | type[Brz],
    way: str,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if way == "s3":
        s3: S3 = request.getfixturevalue("s3")
        for name, value in environment(s3.gateways[0].endpoint).items():
            monkeypatch.setenv(name, value)
    if way == "ssh":
        monkeypatch.setenv("PATH", str(request.getfixturevalue("login").folder / "bin"), prepend=os.pathsep)
    users = tool(tmp_path / "users", place.format(f"{tool.__name__}-{way}"), server)

    def remote(command: str, user: str, *, works: bool = True) -> None:
        done = users.run(command, user)
        assert (done.status == 0) is works, done.said
        assert works or done.err != ""

    users.begin()
    users.commit("a", "one")
    remote("push", "a")
    remote("clone", "b")
    assert users.has("b") == users.has("a") != ""
    users.commit("a", "two")
    remote("push", "a")
    remote("fetch", "b")
    both = users.has("a")
    assert users.has("b") == both
    users.commit("a", "three")
    users.commit("b", "four")
    remote("push", "a")
    remote("push", "b", works=False)
    last = users.has("a")
    remote("fetch", "a")
    assert users.has("a") == last

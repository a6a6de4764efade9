"""Stock git, and brz with the plugin, on a repository in a folder of a host without smartserver, or in a bucket.

The host is a real OpenSSH server, and the bucket is in a real S3 store. Trips are counted on the link, login included.
Connections to the S3 store do not count: its client opens and keeps them as it likes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from agents import of_its_own
from brz_forks import FORKS
from brz_sides import SHIM
from git_sides import RTT, SETTINGS, TIMEOUT, Served, environment
from sshd import Sshd
from versitygw import S3
from versitygw import environment as keys

from netem.counter import Counts
from netem.proxy import Proxy
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

BUDGETS = tomllib.loads((Path(__file__).parents[1] / "budgets.toml").read_text(encoding="utf-8"))
RTT_OF_BUCKETS = 0.1
"""Seconds: long enough that concurrent requests of several threads are not taken for two trips."""


@dataclass
class Account:
    """A user with an account on another host, and a link to it."""

    home: Path
    proxy: Proxy
    served: Path
    above: str
    """The beginning of a repository's URL."""
    variables: dict[str, str] = field(default_factory=dict)

    def url(self, path: str) -> str:
        return f"{self.above}/{path}"

    def attempt(self, *command: str, where: str = ".") -> tuple[subprocess.CompletedProcess[str], Counts]:
        """Run a command, and return its result and the traffic on the link."""
        variables = {"BRZ_EMAIL": "A <a@example.org>", "BRZ_PLUGINS_AT": f"hpss@{SHIM}", **self.variables}
        seen, folder = {**environment(self.home), **variables}, self.home / where
        self.proxy.take()
        if command[0] == "brz":
            status, *said = FORKS.run("-m", "breezy", *command[1:], timeout=TIMEOUT, folder=folder, environment=seen)
            done = subprocess.CompletedProcess(command, status, *(each.decode() for each in said))
        else:
            done = subprocess.run(
                command, cwd=folder, env=seen, capture_output=True, text=True, check=False, timeout=TIMEOUT,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        return done, self.proxy.take()

    def run(self, *command: str, where: str = ".") -> Counts:
        """Run a command that must succeed, and return the traffic on the link."""
        done, counts = self.attempt(*command, where=where)
        assert done.returncode == 0, (command, done.stderr)
        return counts

    def tip(self, ref: bytes, path: str = "project") -> bytes:
        value = PackRepository(LocalTransport(self.served), path).snapshot().state.ref(ref)
        assert value is not None
        return value[0].id


@pytest.fixture
def account(tmp_path: Path, sshd: Sshd) -> Iterator[Account]:
    home, served = tmp_path / "home", tmp_path / "served"
    (home / ".ssh").mkdir(parents=True)
    served.mkdir()
    shutil.copy(sshd.config, home / ".ssh" / "config")
    (home / ".gitconfig").write_text(SETTINGS)
    with Proxy(RTT, (sshd.host, sshd.port)) as proxy:
        yield Account(home, proxy, served, f"hpss+sftp://127.0.0.1:{proxy.port}{served}")


@pytest.fixture
def by_verbs(tmp_path: Path) -> Iterator[Account]:
    """An account on a server of ours that serves its files."""
    home, folder = tmp_path / "home", tmp_path / "server"
    home.mkdir()
    folder.mkdir()
    (home / ".gitconfig").write_text(SETTINGS)
    server = Served(folder, "--anonymous", "write", "--allow-vfs")
    yield Account(home, server.proxy, server.root, f"hpss+vfs://127.0.0.1:{server.proxy.port}")
    assert server.close() == ""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """A bucket, which is a folder here."""
    home, store = tmp_path / "user", tmp_path / "store"
    for folder in (home, store):
        folder.mkdir()
    (home / ".gitconfig").write_text(SETTINGS)
    with S3(store) as s3:
        host, port = s3.gateways[0].endpoint.removeprefix("http://").split(":")
        with Proxy(RTT_OF_BUCKETS, (host, int(port))) as proxy:
            for name, value in keys(f"http://127.0.0.1:{proxy.port}").items():
                monkeypatch.setenv(name, value)
            bucket = s3.bucket()
            yield Account(home, proxy, store / bucket, f"hpss+s3://{bucket}")


def check(tool: str, counted: Sequence[tuple[str, Counts]], way: str = "SFTP") -> None:
    """Check that the counts are within the budget."""
    found = {name: counts.rounds_without_handshake if "S3" in way else counts.rounds for name, counts in counted}
    allowed = {name.rpartition(": ")[2]: most for name, most in BUDGETS[f"{tool} over {way}"].items()}
    for name, rounds in found.items():
        print(f"{tool} over {way}, {name}: {rounds} round trips")
    assert found.keys() == allowed.keys()
    assert {name: rounds for name, rounds in found.items() if rounds > allowed[name]} == {}, found


def commit(account: Account, where: str, name: str) -> None:
    (account.home / where / name).write_text(f"{name}\n")
    account.run("git", "add", name, where=where)
    account.run("git", "commit", "-q", "-m", name, where=where)


def test_git(account: Account) -> None:
    check("git", use_git(account))


@pytest.mark.unbanned("file-level calls are the baseline, which the bans are there to keep from the rest")
def test_git_by_verbs(by_verbs: Account) -> None:
    check("git", use_git(by_verbs), "VFS")


@pytest.mark.unbanned("it bans by itself")
@pytest.mark.parametrize("how", ["environment", "configuration of brz"])
def test_what_its_server_asks_for_is_seen(by_verbs: Account, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The command's own server prints the calls on files that it is asked for, and it makes no banned call."""
    url = by_verbs.url("project")

    def attempt(flags: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.delenv("SMARTSERVER_DEBUG", raising=False)
        match how:
            case "environment":
                monkeypatch.setenv("SMARTSERVER_DEBUG", flags)
                return by_verbs.attempt("git", "clone", "-q", url, "a")[0]
        by_verbs.run("brz", "config", "--scope=breezy", f"hpss.debug=hpssdetail,{flags}")
        return by_verbs.attempt("brz", "revno", url)[0]

    assert "hpss: get_published(" in attempt("hpssvfs").stderr
    done = attempt("hpss-ban=vfs:get,vfs:*")
    assert done.returncode
    assert re.search(r"\b(get_published|stat) is banned by the rule vfs:(get|\*); called from ", done.stderr), (
        done.stderr
    )


def test_git_in_a_bucket(bucket: Account) -> None:
    check("git", use_git(bucket), "S3")


def test_git_of_users_with_agents_in_a_bucket(bucket: Account) -> None:
    """Each user's agent keeps its state. A concurrent change by another process does not matter."""
    with of_its_own() as one, of_its_own() as other:
        push = ("git", "push", "-q", bucket.url("project"), "main")
        pull = ("git", "pull", "-q", bucket.url("project"), "main")
        bucket.run("git", "init", "-q", "a")
        bucket.variables = one
        for name in ("one", "two"):
            commit(bucket, "a", name)
            bucket.run(*push, where="a")
        bucket.variables = other
        bucket.run("git", "clone", "-q", bucket.url("project"), "b")
        counted: list[tuple[str, Counts]] = []
        for number in range(3):
            bucket.variables = one
            commit(bucket, "a", f"more{number}")
            counted.append(("push one revision", bucket.run(*push, where="a")))
            bucket.variables = other
            counted.append(("pull one revision", bucket.run(*pull, where="b")))
            counted.append(("pull nothing", bucket.run(*pull, where="b")))
        assert not any(counts.connections for _, counts in counted[3:])
        # A thread that is slow to send looks as if it had waited: the least count is right.
        least = sorted(counted, key=lambda each: -each[1].rounds_without_handshake)
        check("git", list(dict(least).items()), "S3, held")
        commit(bucket, "b", "another")
        bucket.run(*push, where="b")
        bucket.variables = {}
        bucket.run(*pull, where="a")
        bucket.variables = one
        commit(bucket, "a", "last")
        bucket.run(*push, where="a")
    assert (
        bucket.attempt("git", "rev-parse", "main", where="a")[0].stdout.strip() == bucket.tip(b"refs/heads/main").hex()
    )
    assert PackRepository(LocalTransport(bucket.served), "project").verify().problems == ()


def use_git(account: Account) -> list[tuple[str, Counts]]:
    url, counted = account.url("project"), []
    account.run("git", "init", "-q", "a")
    account.run("git", "remote", "add", "origin", url, where="a")
    commit(account, "a", "one")
    commit(account, "a", "two")
    counted.append(("new repository", account.run("git", "push", "-q", "origin", "main", where="a")))
    counted.append(("clone", account.run("git", "clone", "-q", url, "b")))
    commit(account, "a", "three")
    counted.append(("push one revision", account.run("git", "push", "-q", "origin", "main", where="a")))
    counted.append(("pull one revision", account.run("git", "pull", "-q", where="b")))
    account.run("git", "checkout", "-q", "-b", "topic", where="a")
    commit(account, "a", "four")
    counted.append(("push a new branch", account.run("git", "push", "-q", "origin", "topic", where="a")))
    account.run("git", "fetch", "-q", where="b")
    for ref, local in (("main", "a"), ("topic", "a"), ("main", "b")):
        done, _ = account.attempt("git", "rev-parse", ref, where=local)
        assert done.stdout.strip() == account.tip(f"refs/heads/{ref}".encode()).hex()
    assert PackRepository(LocalTransport(account.served), "project").verify().problems == ()
    return counted


def test_brz(account: Account) -> None:
    check("brz", use_brz(account))


@pytest.mark.unbanned("file-level calls are the baseline, which the bans are there to keep from the rest")
def test_brz_by_verbs(by_verbs: Account) -> None:
    check("brz", use_brz(by_verbs), "VFS")


def test_brz_in_a_bucket(bucket: Account) -> None:
    check("brz", use_brz(bucket), "S3")


def use_brz(account: Account) -> list[tuple[str, Counts]]:
    url, counted = account.url("project/trunk"), []
    account.run("brz", "init", "-q", "a")

    def commit(where: str, name: str) -> None:
        (account.home / where / name).write_text(f"{name}\n")
        account.run("brz", "add", "-q", name, where=where)
        account.run("brz", "commit", "-q", "-m", name, where=where)

    commit("a", "one")
    counted.append(("new repository", account.run("brz", "push", "-q", account.url("alone"), where="a")))
    account.run("brz", "init-shared-repository", "-q", account.url("project"))
    account.run("brz", "push", "-q", url, where="a")
    counted.append(("clone", account.run("brz", "branch", "-q", url, "b")))
    commit("a", "two")
    counted.append(("push one revision", account.run("brz", "push", "-q", url, where="a")))
    counted.append(("pull one revision", account.run("brz", "pull", "-q", url, where="b")))
    commit("a", "three")
    counted.append(("push a new branch", account.run("brz", "push", "-q", account.url("project/topic"), where="a")))
    done, _ = account.attempt("brz", "revision-info", where="b")
    assert done.stdout.split() == ["2", account.tip(b"trunk").decode()]
    assert PackRepository(LocalTransport(account.served), "project").verify().problems == ()
    return counted


def test_a_dump_and_its_load(account: Account) -> None:
    """`smartserver dump` and `load` take the trips of the store."""
    account.run("git", "init", "-q", "a")
    commit(account, "a", "one")
    account.run("git", "push", "-q", account.url("one"), "main", where="a")
    above = account.above.removeprefix("hpss+")
    # Who is slow to send looks as if he had waited: the least of three counts is right.
    dumped = min(account.run("smartserver", "dump", f"{above}/one", f"x{n}.dump").rounds for n in range(3))
    loaded = min(account.run("smartserver", "load", "x0.dump", f"{above}/deep/{n}").rounds for n in range(3))
    assert (dumped, loaded) == (10, 14)
    assert account.tip(b"refs/heads/main", "deep/2") == account.tip(b"refs/heads/main", "one")


def test_a_repository_moves_between_a_folder_a_bucket_and_a_server(bucket: Account, by_verbs: Account) -> None:
    bucket.run("git", "init", "-q", "a")
    commit(bucket, "a", "one")
    place = f"{bucket.above.removeprefix('hpss+')}/"
    server, first, last = by_verbs.above.replace("+vfs", ""), str(bucket.home / "first"), str(bucket.home / "last")
    bucket.run("git", "push", "-q", f"{server}/one", "main", where="a")
    bucket.run("smartserver", "pull", f"{server}/one", first)
    bucket.run("smartserver", "push", first, f"{place}deep/one")
    bucket.run("smartserver", "push", f"{place}deep/one", f"{server}/two")
    bucket.run("smartserver", "dump", f"{place}deep/one", "x.dump")
    bucket.run("smartserver", "load", "x.dump", f"{place}two")
    bucket.run("smartserver", "pull", f"{place}two", last)
    tip = by_verbs.tip(b"refs/heads/main", "one")
    assert [by_verbs.tip(b"refs/heads/main", "two"), bucket.tip(b"refs/heads/main", "deep/one")] == [tip, tip]
    assert PackRepository(LocalTransport(last)).snapshot().state.refs()[b"refs/heads/main"][0].id == tip


def test_what_goes_wrong_with_a_bucket_is_one_line(bucket: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    def line(url: str) -> str:
        done, _ = bucket.attempt("git", "ls-remote", url)
        assert done.returncode, done.stdout
        (said,) = done.stderr.splitlines()
        return said

    path = bucket.url("project")
    assert line(path) == f"fatal: hpss: there is no repository at '{path.removeprefix('hpss+')}'"
    assert "there is no such bucket" in line("hpss+s3://absent/project")
    assert "access keys do not belong in the URL" in line("hpss+s3://key:secret@absent/project")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert "refuses the keys (SignatureDoesNotMatch)" in line(path)
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_TIMEOUT", "1 second")
    assert "no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in line(path)

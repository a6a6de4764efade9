"""cli.dump, cli.load, cli.prune: git's history survives a dump and a load; a server is sent a token only where it asks
for one; a secret that a user of git pushed, and removed by force, is in no file and is sent to nobody."""

from __future__ import annotations

import subprocess
from pathlib import Path

import git_histories
import pytest
from builders import MAIN, History, push
from click.testing import CliRunner
from git_sides import SETTINGS, TIMEOUT, Served, Side, environment
from pack_texts import bytes_in, texts_in

from smartserver.cli.main import group
from smartserver.records.model import Tip
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

PROGRAM = "smartserver"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir()
    (made / ".gitconfig").write_text(SETTINGS)
    return made


def attempt(home: Path, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [PROGRAM, *words],
        cwd=home,
        env=environment(home),
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )


def run(home: Path, *words: str, stdin: bytes = b"") -> bytes:
    done = attempt(home, *words, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, b""), (words, done.stderr)
    return done.stdout


def test_git(home: Path, tmp_path: Path) -> None:
    builder = git_histories.Builder(home / "a.git", environment(home))
    history = git_histories.RandomHistory(builder, 3, 120)
    commits = list(history.commits)
    served = Served(tmp_path, "--anonymous", "write", "--fsck", "off")  # It has all faults that git can have.
    urls = [served.url(name) for name in ("source", "target")]
    parts = ["first", "second"]
    for at, part in zip((60, len(commits)), parts, strict=True):
        for number, commit in enumerate(commits[at - 20 : at]):
            builder.ref(f"refs/heads/{part}{number}", commit)
        builder.ref(f"refs/tags/{part}", builder.tag(commits[at - 1], b"commit", part.encode()))
        builder.ref(f"refs/notes/{part}", builder.tag(builder.blob(part.encode()), b"blob", b"of a blob"))
        builder.git("push", "-q", urls[0], "refs/*:refs/*")
        run(home, "dump", *(() if part == "first" else ("--since", "first")), urls[0], part)
        run(home, "load", *parts[: parts.index(part) + 1], urls[1])
    every = [git_histories.Builder(home / f"{name}.git", environment(home)) for name in ("b", "c")]
    for url, clone in zip(urls, every, strict=True):
        clone.git("fetch", "-q", url, "refs/*:refs/*")
        clone.git("fsck", "--connectivity-only")
        for command in (["for-each-ref"], ["rev-list", "--objects", "--all"]):
            assert clone.git(*command) == builder.git(*command)
    assert served.close() == ""


def test_a_token_is_sent_where_one_is_wanted(home: Path, tmp_path: Path) -> None:
    """A server that anybody may read asks for a token only on a change; `load` sends it at first contact."""
    history = History()
    line = history.line(3)
    push(PackRepository(LocalTransport(home), "source"), history, line, {MAIN: line[-1]})
    content = run(home, "dump", "source")
    rules = tmp_path / "access.toml"
    rules.write_text(
        '[[rules]]\nwho = ["anna"]\npath = "**"\nmay = "create"\n[[rules]]\nwho = ["*"]\npath = "**"\nmay = "read"\n'
    )
    made = attempt(home, "token", "create", str(rules), "anna")
    server = Served(tmp_path, "--access", str(rules))
    variable = f"SMARTSERVER_TOKEN=127.0.0.1:{server.proxy.port}={made.stdout.decode().split()[-1]}"
    (home / "x").write_bytes(content)
    for number, file in enumerate(("-", "x")):
        url = server.url(f"project{number}")
        refused = attempt(home, "load", file, url, stdin=content)
        assert b"set SMARTSERVER_TOKEN to " in refused.stderr
        words = ["env", variable, PROGRAM, "load", file, url]
        cache = {"XDG_CACHE_HOME": str(home / f"cache{number}")}
        subprocess.run(words, cwd=home, env={**environment(home), **cache}, input=content, check=True)
        stored = PackRepository(LocalTransport(server.root), f"project{number}")
        assert dict(stored.snapshot().state.refs()) == {MAIN: (Tip(line[-1]),)}
    server.close()


# -- prune

SECRET = "hunter2-which-nobody-may-know"


def smartserver(*words: str) -> str:
    """Return the output of a command that must succeed."""
    done = CliRunner().invoke(group, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_secret_is_pruned(tmp_path: Path) -> None:
    """The clone of its user knows the secret, and goes on."""
    server = Served(tmp_path, "--anonymous", "write")
    url = f"hpss://127.0.0.1:{server.direct[1]}/project"
    side = Side(tmp_path / "users", url, server)
    side.prepare(f'git init -q a; a commit one; a commit {SECRET}; a git push -q "$URL" main')
    wrong = side.git("a", "rev-parse", "main")
    side.prepare(f"a git rm -q {SECRET}; a git commit -q --amend -m two --allow-empty")
    side.prepare('a git push -q --force "$URL" main')
    folder = server.root / "project"
    store = LocalTransport(folder)
    secret = f"{SECRET}\n".encode()

    def given() -> bool:
        """Tell whether the server gives the file by the id of its revision."""
        done = CliRunner().invoke(group, ["cat", f"{url}@{wrong}", SECRET])
        assert (done.exit_code == 0) is (done.stdout_bytes == secret)
        return done.exit_code == 0

    def has() -> bool:
        found = texts_in(store)
        assert b"one\n" in found
        return any(secret in text for text in found) or secret in bytes_in(store)

    assert has()
    assert given()
    listed = smartserver("prune", "--list", str(folder))
    assert wrong in listed
    assert "1 revision that no branch and no tag reaches" in listed
    assert "1 revision removed" in smartserver("prune", "--yes", str(folder))
    assert not given()
    side.prepare('a commit three; a git push -q "$URL" main; as b git clone -q "$URL" b')
    assert side.git("b", "rev-parse", "main") == side.git("a", "rev-parse", "main")
    assert not given()
    assert has(), "the old pack is kept for a day"
    refused = CliRunner().invoke(group, ["prune", "--yes", "--now", str(folder)])
    assert "is open in" in str(refused.exception)
    server.close()
    assert "deleted" in smartserver("prune", "--yes", "--now", str(folder))
    assert not has()
    assert PackRepository(store).verify().problems == ()

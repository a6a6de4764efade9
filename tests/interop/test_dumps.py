"""cli.dump, cli.load: git's history survives a dump and a load; a server is sent a token only where it asks for one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import git_histories
import pytest
from builders import MAIN, History, push
from git_sides import SETTINGS, TIMEOUT, Served, environment

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

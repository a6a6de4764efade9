"""cli.dump, cli.load: histories of git, hg and brz survive a dump and a load; commands are cut, killed, interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import git_histories
import pytest
from builders import MAIN, History, push
from git_sides import RTT, SETTINGS, TIMEOUT, Served, environment
from interrupts import interruptible

from netem.proxy import Proxy
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


def start(home: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start a command that reads from a pipe and can be signalled."""
    return subprocess.Popen(
        [sys.executable, "-m", "smartserver.cli.main", *words],
        cwd=home,
        env=environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=interruptible,
    )


def state(repository: PackRepository) -> tuple[object, ...]:
    """Return the state of a repository, without its revisions."""
    view = repository.snapshot().state
    maps = {name: (view.map_kind(name), dict(entries.items())) for name, entries in view.maps.items()}
    return view.vcs, view.kinds, view.settings, dict(view.refs().items()), maps


def loaded(source: Path, folder: Path) -> bool:
    """Tell whether a folder has the same repository as the dumped one."""
    one, other = (PackRepository(LocalTransport(each)) for each in (source, folder))
    return state(one) == state(other) and other.verify().problems == ()


# -- there and back


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


# -- cut, killed, interrupted


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of 1.5 MB of noise."""
    folder = tmp_path_factory.mktemp("noise")
    history, parent = History(), None
    for number in range(15):
        files = {"noise": os.urandom(100_000), "number": b"%d\n" % number}
        parent = history.commit(files, () if parent is None else (parent,), f"noise {number}")
    assert parent is not None
    push(PackRepository(LocalTransport(folder), "source"), history, list(history.parents), {MAIN: parent})
    return folder / "source"


@pytest.fixture(scope="module")
def content(source: Path) -> bytes:
    """A dump of `source`."""
    return run(source.parent, "dump", "source")


@pytest.mark.parametrize(
    ("number", "into"), [(signal.SIGKILL, "server"), (signal.SIGINT, "folder"), (signal.SIGTERM, "server")]
)
def test_a_load_that_is_ended_half_way_changes_nothing(
    home: Path, served: Served, source: Path, content: bytes, number: signal.Signals, into: str
) -> None:
    path = f"dumps-{home.parent.name}"
    place, folder = (served.url(path), served.root / path) if into == "server" else (str(home / path), home / path)
    process = start(home, "load", place)
    assert process.stdin is not None
    process.stdin.write(content[: len(content) // 2])  # Most of it is taken by then: a pipe holds 64 KiB.
    process.stdin.flush()
    process.send_signal(number)
    _, said = process.communicate(timeout=TIMEOUT)
    if number == signal.SIGKILL:
        assert (process.returncode, said) == (-number, b"")
    else:
        interrupted = b"interrupted" if number == signal.SIGINT else b""
        assert (process.returncode, said.strip()) == (128 + number, interrupted)
    assert not (folder / "root").exists()
    run(home, "load", place, stdin=content)
    assert loaded(source, folder)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_dump_that_is_ended_half_way_leaves_no_file(
    home: Path, served: Served, content: bytes, number: signal.Signals
) -> None:
    path = f"dumps-{home.parent.name}"
    run(home, "load", served.url(path), stdin=content)
    out = home / "out"
    out.mkdir()
    with Proxy(RTT, served.direct, rate=400_000) as slow:
        process = start(home, "dump", f"hpss://127.0.0.1:{slow.port}/{path}", str(out / "x"))
        while not list(out.iterdir()):
            try:
                raise AssertionError(f"it ended by itself: {process.wait(0.02)}")
            except subprocess.TimeoutExpired:
                continue
        process.send_signal(number)
        process.communicate(timeout=TIMEOUT)
    assert process.returncode != 0
    assert not (out / "x").exists()
    assert number == signal.SIGKILL or list(out.iterdir()) == []


def test_a_token_is_sent_where_one_is_wanted(home: Path, tmp_path: Path, source: Path, content: bytes) -> None:
    """A server that anybody may read asks for a token only on a change; `load` sends it at first contact."""
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
        assert loaded(source, server.root / f"project{number}")
    server.close()

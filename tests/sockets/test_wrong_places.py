"""Everything a user may get wrong about where a repository is: one clear line, a status, and nothing changed."""

from __future__ import annotations

import random
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import strangers
from builders import MAIN, History
from pushing import Source, connected, push
from serving import PATIENCE, SMARTSERVER, Server, User, lanes, run, wait_until, write_history
from strangers import stranger

from smartserver.client import link, retry
from smartserver.client.medium import MediumError
from smartserver.errors import OutcomeUnknown
from smartserver.records.system import system_of
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports.local import LocalTransport

pytestmark = [pytest.mark.sockets, pytest.mark.interop]

COMMANDS = ("push", "clone", "fetch", "ls-remote")


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    """Somebody with a repository to push."""
    user = User(tmp_path_factory.mktemp("user"))
    write_history(user, "w", 2, seed="wrong", size=200)
    return user


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, user: User) -> Iterator[Server]:
    """A server that has a repository `p`, and much beside it that is none."""
    folder = tmp_path_factory.mktemp("served")
    root = folder / "root"
    root.mkdir()
    (folder / "outside").mkdir()
    (root / "out").symlink_to(folder / "outside")
    (root / "file").write_text("a file")
    (root / "link").symlink_to("nowhere")
    (root / "full").mkdir()
    (root / "full" / "notes.txt").write_text("a folder of something else")
    user.git("init", "-q", "--bare", str(root / "git.git")).worked()
    user.git("init", "-q", str(root / "tree")).worked()

    def make(transaction: Transaction) -> bytes:
        transaction.create("bzr 2a", system_of("bzr 2a").kinds, {})
        return b""

    PackRepository(LocalTransport(root), "bazaar").commit(bytes(16), 0, "user", make)
    with Server(root) as server:
        user.git("push", "-q", server.url("p"), "main", folder="w").worked()
        yield server


def fails(user: User, command: str, url: str) -> str:
    """The one line a command gives as its reason; it leaves nothing."""
    words = {"push": ["main"], "clone": ["c"], "fetch": ["main"], "ls-remote": []}[command]
    done = user.git(command, url, *words, folder="." if command == "clone" else "w")
    assert command != "clone" or not (user.home / "c").exists()
    return done.failed(command)


# -- URLs


@pytest.mark.parametrize("url", ["hpss+tls://me:{}@localhost/p", "hpss+tls://localhost/p?token={}"])
def test_a_url_with_a_secret(user: User, url: str) -> None:
    """No command shows it, neither where it says which URL it was given."""
    assert fails(user, "push", url.format("secret")).startswith(f"{url.format('***')!r} is not a URL")
    for words in ("ls", "list", "ping", "verify", "fast-export", "trust", "agent forget", "push ."):
        done = run(*SMARTSERVER, *words.split(), url.format("secret"))
        assert done.status == 1, words
        assert url.format("***") in done.err, words
        assert "secret" not in done.err, words


def test_a_root_that_is_itself_a_repository_has_the_empty_path(user: User, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with Server(tmp_path / "root") as server:
        user.git("push", "-q", server.url("p"), "main", folder="w").worked()
    with Server(tmp_path / "root" / "p") as server:
        user.git("push", "-q", server.url(""), "main:other", folder="w").worked()
        listed = user.git("ls-remote", "-q", server.url("")).worked().out.splitlines()
        assert [line.partition("\t")[2] for line in listed] == ["HEAD", "refs/heads/main", "refs/heads/other"]
        assert len(server.log) == 1


# -- servers


def test_nobody_listens(user: User) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for command in COMMANDS:
        said = fails(user, command, f"hpss://127.0.0.1:{port}/p")
        assert said == f"cannot connect to 127.0.0.1:{port}: Connection refused"


def test_nobody_has_that_name(user: User) -> None:
    for command in ("push", "clone"):
        said = fails(user, command, "hpss://no-such-host.invalid/p")
        assert said.startswith("cannot connect to no-such-host.invalid:4155: ")


@pytest.mark.parametrize(
    ("behave", "why"),
    [
        (strangers.http, r"the peer does not speak hpss: .*\(this looks like an HTTP server\)"),
        (strangers.ssh, r"the peer does not speak hpss: .*\(this looks like SSH\)"),
        (strangers.telnet, r"the peer does not speak hpss: expected b'hpss/1\\n', got b'.*"),
        (strangers.newer, r"the server speaks hpss version 2, this client version 1"),
        (strangers.newest, r"the server speaks hpss version 3, 4, this client version 1"),
    ],
)
def test_somebody_else_listens(user: User, behave: strangers.Behave, why: str) -> None:
    """A push that had left before he spoke may have been read by somebody behind him."""
    doubt = "; if an hpss server got the request all the same, it is unknown whether the change was made"
    with stranger(behave) as port:
        for command in COMMANDS:
            said = fails(user, command, f"hpss://127.0.0.1:{port}/p")
            if behave is strangers.http and command == "push":  # He waits for the request.
                assert said.endswith(doubt)
            if "hpss version" not in why and command == "push":
                said = said.removesuffix(doubt)
            assert re.fullmatch(f"127\\.0\\.0\\.1:{port}: {why}", said)
        pinged = run(*SMARTSERVER, "ping", f"hpss://127.0.0.1:{port}/")
        assert pinged.status == 1
        assert len(pinged.err.splitlines()) == 1
        assert str(port) in pinged.err


LOST = (
    r"the server closed the connection without an answer( \((Connection reset by peer|Broken pipe)\))?: "
    "it may be too busy, or it may not speak hpss"
)


def lost(user: User, port: int) -> None:
    """A server of ours that is killed looks the same: once a push is sent, nothing more can be said of it."""
    url = f"hpss://127.0.0.1:{port}/p"
    pushed, cloned = lanes(2, lambda lane: fails(user, ("push", "clone")[lane], url))
    assert re.fullmatch(f"(it is unknown whether the change was made|127\\.0\\.0\\.1:{port}): {LOST}", pushed)
    assert re.fullmatch(f"127\\.0\\.0\\.1:{port}: {LOST}", cloned)


def test_git_daemon(user: User, tmp_path: Path) -> None:
    """It closes the connection without a word when it does not understand."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    daemon = subprocess.Popen(
        ["git", "daemon", "--listen=127.0.0.1", f"--port={port}", f"--base-path={tmp_path}", "--reuseaddr"],
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        wait_until(lambda: can_connect(port), "git daemon listens")
        lost(user, port)
    finally:
        daemon.terminate()
        daemon.communicate(timeout=PATIENCE)


def can_connect(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()
    except ConnectionRefusedError:
        return False
    return True


def test_somebody_who_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for ever: neither for an answer, nor for a peer to take what is sent. What counts is idleness."""
    monkeypatch.setattr(link, "PING_INTERVAL", 0.02)
    monkeypatch.setattr(link, "IDLE_TIMEOUT", 0.2)
    monkeypatch.setattr(retry, "PAUSES", ())
    history = History()
    small = history.commit({"a": b"b"})  # Sent at one go, whatever the machine does meanwhile.
    tip = history.commit({"big": random.Random("silence").randbytes(8 << 20)}, [small])
    with stranger(strangers.silent) as port:
        with connected(port) as remote, pytest.raises(MediumError, match="did not answer"):
            remote.pull()
        with connected(port) as remote, pytest.raises(OutcomeUnknown, match="did not answer"):
            push(remote, Source(history), MAIN, small)
    with (
        stranger(strangers.deaf) as port,
        connected(port) as remote,
        pytest.raises(MediumError, match="did not answer"),
    ):
        push(remote, Source(history), MAIN, tip)


# -- paths


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../p", "invalid repository path '../p': '..' is not allowed in it"),
        ("a/../../p", "invalid repository path 'a/../../p': '..' is not allowed in it"),
        ("%2e%2e/p", "invalid repository path '../p': '..' is not allowed in it"),
        ("a%2f..%2f..%2fp", "invalid repository path 'a/../../p': '..' is not allowed in it"),
        (".hidden", "invalid repository path '.hidden': '.hidden' begins with a dot"),
        ("a%00b", r"invalid repository path 'a\x00b': 'a\x00b' has a backslash or a control character"),
        ("out/new", "invalid repository path 'out/new': it leads out of the served folder"),
        ("p/inside", "'p/inside' is inside the repository 'p'"),
        ("p/packs", "invalid repository path 'p/packs': 'packs' is a name the store uses itself"),
    ],
)
def test_a_path_that_is_none(server: Server, user: User, path: str, why: str) -> None:
    before = tree(server.root.parent)
    for command in ("push", "clone"):
        assert fails(user, command, server.url(path)) == why
    assert tree(server.root.parent) == before


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("git.git", "invalid repository path 'git.git': a git repository is there"),
        ("tree", "invalid repository path 'tree': a git repository is there"),
        (
            "git.git/refs/x",
            "invalid repository path 'git.git/refs/x': 'git.git' is a git repository: nothing is made inside it",
        ),
        ("full", "invalid repository path 'full': the folder holds 'notes.txt', which belongs to no repository"),
        ("file", "invalid repository path 'file': a file is there"),
        ("file/below", "invalid repository path 'file/below': 'file' is a file"),
        ("link", "invalid repository path 'link': 'link' is a link that leads nowhere"),
        ("bazaar", r"the repository at 'bazaar' is bzr 2a, not git( sha1)?"),
    ],
)
def test_something_else_is_there(server: Server, user: User, path: str, why: str) -> None:
    before = tree(server.root.parent)
    assert re.fullmatch(why, fails(user, "push", server.url(path)))
    said = fails(user, "clone", server.url(path))
    assert f"'{path}'" in said
    assert tree(server.root.parent) == before


@pytest.mark.parametrize("command", ["clone", "fetch", "ls-remote"])
def test_something_else_is_there_and_was_to_be_read(server: Server, user: User, command: str) -> None:
    for path in ("git.git", "tree"):
        said = fails(user, command, server.url(path))
        how = f"run `git push --mirror hpss://127.0.0.1:{server.port}/ANOTHER-PATH` in it"
        assert said == f"no repository at '{path}' but a git repository, which is not served: to have it served, {how}"
    for path, found in [("file", "a file"), ("file/below", "a file, 'file', above it")]:
        assert fails(user, command, server.url(path)) == f"no repository at '{path}' but {found}"
    assert fails(user, command, server.url("full")) == "no repository at 'full'"


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every name below a folder, and what is in it."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}

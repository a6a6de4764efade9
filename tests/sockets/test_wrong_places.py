"""Every mistake in the place of a repository gives one clear line and an exit status, and changes nothing."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import strangers
from builders import MAIN, History
from history_sources import HistorySource
from on_threads import Serve
from pushing import connected, push
from serving import SMARTSERVER, Server, User, lanes, run, write_history
from strangers import stranger

from smartserver.client import link, retry
from smartserver.client.medium import MediumError
from smartserver.errors import OutcomeUnknown
from smartserver.records.system import system_of
from smartserver.store.repository import PackRepository
from smartserver.store.transaction import Transaction
from transports.local import LocalTransport

pytestmark = [pytest.mark.sockets, pytest.mark.interop]


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    """A user with a repository to push."""
    user = User(tmp_path_factory.mktemp("user"))
    write_history(user, "w", 2, seed="wrong", size=200)
    return user


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, user: User) -> Iterator[Server]:
    """A server with a repository `p`, and many other files."""
    folder = tmp_path_factory.mktemp("served")
    root = folder / "root"
    root.mkdir()
    (folder / "outside").mkdir()
    (root / "out").symlink_to(folder / "outside")
    (root / "file").write_text("a file")
    (root / "full").mkdir()
    (root / "full" / "notes.txt").write_text("a folder of something else")
    user.git("init", "-q", "--bare", str(root / "git.git")).worked()

    def make(transaction: Transaction) -> bytes:
        transaction.create("bzr 2a", system_of("bzr 2a").kinds, {})
        return b""

    PackRepository(LocalTransport(root), "bazaar").commit(bytes(16), 0, "user", make)
    with Server(root) as server:
        user.git("push", "-q", server.url("p"), "main", folder="w").worked()
        yield server


def fails(user: User, command: str, url: str) -> str:
    """Return the one line that a command gives as its reason; the command leaves nothing."""
    words = {"push": ["main"], "clone": ["c"]}[command]
    done = user.git(command, url, *words, folder="." if command == "clone" else "w")
    assert command != "clone" or not (user.home / "c").exists()
    return done.failed(command)


# -- URLs


@pytest.mark.parametrize("url", ["hpss+tls://me:{}@localhost/p", "hpss+tls://localhost/p?token={}"])
def test_a_url_with_a_secret(user: User, url: str) -> None:
    """No command shows the secret, not even in the part that names the given URL."""
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


def test_nobody_has_that_name(user: User) -> None:
    for command in ("push", "clone"):
        said = fails(user, command, "hpss://no-such-host.invalid/p")
        assert said.startswith("cannot connect to no-such-host.invalid:4155: ")


@pytest.mark.parametrize(
    ("behave", "why"),
    [
        (strangers.http, r"the peer does not speak hpss: .*\(this looks like an HTTP server\)"),
        (strangers.newest, r"the server speaks hpss version 3, 4, this client version 1"),
    ],
)
def test_somebody_else_listens(user: User, behave: Serve, why: str) -> None:
    """A push that was sent before the stranger answered may have been read by a server behind it."""
    doubt = "; if an hpss server got the request all the same, it is unknown whether the change was made"
    with stranger(behave) as port:
        for command in ("push", "clone"):
            said = fails(user, command, f"hpss://127.0.0.1:{port}/p")
            more = doubt if behave is strangers.http and command == "push" else ""  # He waits for the request.
            assert re.fullmatch(f"127\\.0\\.0\\.1:{port}: {why}{more}", said)
        pinged = run(*SMARTSERVER, "ping", f"hpss://127.0.0.1:{port}/")
        assert (pinged.status, len(pinged.err.splitlines()), str(port) in pinged.err) == (1, 1, True)


LOST = (
    r"the server closed the connection without an answer( \((Connection reset by peer|Broken pipe)\))?: "
    "it may have stopped, or be too busy, or it may not speak hpss"
)


def test_somebody_closes_without_a_word(user: User) -> None:
    """git daemon closes so, and a killed server of ours: the outcome of a push that was sent is unknown."""
    with stranger(strangers.closes) as port:
        url = f"hpss://127.0.0.1:{port}/p"
        pushed, cloned = lanes(2, lambda lane: fails(user, ("push", "clone")[lane], url))
    look = "(; look at the repository before you repeat the command)?"
    assert re.fullmatch(f"(it is unknown whether the change was made|127\\.0\\.0\\.1:{port}): {LOST}{look}", pushed)
    assert re.fullmatch(f"127\\.0\\.0\\.1:{port}: {LOST}", cloned)


def test_somebody_who_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No end waits forever, for an answer or for its peer to read. The timeout counts idle time."""
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
            push(remote, HistorySource(history), MAIN, small)
    with (
        stranger(strangers.deaf) as port,
        connected(port) as remote,
        pytest.raises(MediumError, match="did not answer"),
    ):
        push(remote, HistorySource(history), MAIN, tip)


# -- paths


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("a%2f..%2f..%2fp", "invalid repository path 'a/../../p': '..' is not allowed in it"),
        ("out/new", "invalid repository path 'out/new': it leads out of the served folder"),
        ("p/packs", "invalid repository path 'p/packs': 'packs' is a name the store uses itself"),
    ],
)
def test_a_path_that_is_none(server: Server, user: User, path: str, why: str) -> None:
    before = tree(server.root.parent)
    for command in ("push", "clone"):
        assert fails(user, command, server.url(path)) == why
    assert tree(server.root.parent) == before


@pytest.mark.parametrize(
    ("path", "why", "read"),
    [
        (
            "git.git",
            "invalid repository path 'git.git': there is a git repository already",
            "there is no smartserver repository at 'git.git', but a git repository, which is not served: to have it "
            "served, run `git push --mirror URL/ANOTHER-PATH` in it",
        ),
        (
            "file/below",
            "invalid repository path 'file/below': 'file' is a file",
            "there is no smartserver repository at 'file/below', but a file, 'file', above it",
        ),
        (
            "full",
            "invalid repository path 'full': the folder holds 'notes.txt', which belongs to no repository",
            "there is no repository at 'full'",
        ),
        (
            "bazaar",
            "the repository at 'bazaar' is bzr 2a, not git sha1",
            "the repository at 'bazaar' is bzr 2a, not git",
        ),
    ],
)
def test_something_else_is_there(server: Server, user: User, path: str, why: str, read: str) -> None:
    before = tree(server.root.parent)
    assert fails(user, "push", server.url(path)) == why
    assert fails(user, "clone", server.url(path)).replace(server.url("").removesuffix("/"), "URL") == read
    assert tree(server.root.parent) == before


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return every name below a folder, with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}

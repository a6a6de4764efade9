"""What cannot be done says so in one line that names the thing, ends with a status that is not 0, and does nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from git_sides import Done, Served, Side, check_rounds, fine, server_refs

from smartserver.client.call import Client
from smartserver.client.media.tcp import TcpMedium
from smartserver.records.limits import MAX_TAKEN
from smartserver.records.system import system_of
from smartserver.vcs.bzr.system import BZR
from smartserver.verbs.repository_create import CreateRequest, KindField, repository_create

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

Begin = Callable[[str], Side]


def only_line(done: Done) -> str:
    """The line the helper said; git may add that a push failed."""
    assert done.status not in (0, None), done.said
    lines = [line for line in done.err.splitlines() if not line.startswith(("error: failed to push", "Cloning into"))]
    assert len(lines) == 1, done.err
    return lines[0]


# -- URLs

URLS = {
    "hpss://": "it has no host",
    "hpss:///path": "it has no host",
    "hpss://host:port/x": "'port' is not a port of 1 to 65535",
    "hpss://host:0/x": "'0' is not a port of 1 to 65535",
    "hpss://host:99999/x": "'99999' is not a port of 1 to 65535",
    "hpss://user@host/x": "a user or password has no meaning for plain hpss",
    "hpss://[::1/x": "its IPv6 address has no closing bracket",
    "hpss://host/x?y": "a query or fragment has no meaning",
    "hpss://host/%zz": "not followed by two hexadecimal digits",
    "hpss://host/%ff": "its path is not UTF-8",
}


@pytest.mark.parametrize(("url", "why"), URLS.items(), ids=URLS.keys())
def test_a_url_that_is_none(ours: Begin, url: str, why: str) -> None:
    side = ours("history")
    line = only_line(side.run(f"a git ls-remote '{url}'"))
    assert line.startswith(f"fatal: hpss: '{url}' is not a URL of a repository: "), line
    assert why in line


def test_a_scheme_that_is_another(ours: Begin) -> None:
    side = ours("history")
    result = side.run("a git ls-remote hpsss://host/x")
    assert result.status in (128, 141)  # Git may write to the helper that could not start: 128 + SIGPIPE.
    assert "remote-hpsss" in result.err


@pytest.mark.parametrize("path", ["a/../b", "../x", "a//b", "./x", "%00", "a%5Cb"])
def test_a_path_that_is_none(ours: Begin, path: str) -> None:
    side = ours("history")
    base = side.url.rpartition("/")[0]
    for command in ("push", "fetch"):
        line = only_line(side.run(f"a git {command} '{base}/{path}' main"))
        assert line.startswith("fatal: hpss: "), line
        assert "invalid repository path" in line


def test_nobody_listens(ours: Begin) -> None:
    side = ours("history")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        for command in ("push", "fetch"):
            line = only_line(side.run(f"a git {command} hpss://127.0.0.1:{port}/x main"))
            assert line == f"fatal: hpss: cannot connect to 127.0.0.1:{port}: Connection refused"


def test_a_host_that_is_not_there(ours: Begin) -> None:
    line = only_line(ours("history").run("a git ls-remote hpss://nowhere.invalid/x"))
    assert line.startswith("fatal: hpss: cannot connect to nowhere.invalid:4155: ")


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server of another kind: it says `answer` to whoever connects, then no more."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection, suppress(ConnectionError):
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"hpss! 2 3\n", "the server speaks hpss version 2, 3, this client version 1"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "expected"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "expected"),
        (b"", "the server closed the connection before"),
        (b"hpss/1\n", "the server closed the connection before"),
    ],
    ids=["another version", "a web server", "an ssh server", "nothing", "a greeting alone"],
)
def test_a_server_of_another_kind(ours: Begin, answer: bytes, why: str) -> None:
    side = ours("history")
    with answering(answer) as port:
        for command in ("push", "fetch"):
            line = only_line(side.run(f"a git {command} hpss://127.0.0.1:{port}/x main"))
            assert line.startswith("fatal: hpss: "), line
            assert why in line
            assert f"127.0.0.1:{port}" in line or "it is unknown whether the change was made" in line


# -- repositories


@pytest.mark.parametrize("command", ["ls-remote", "fetch", "pull", "remote show", "clone"])
def test_a_repository_that_is_not_there(ours: Begin, command: str) -> None:
    side = ours("history")
    path = side.url.rpartition("/")[2]
    if command == "clone":
        result = side.run('as c git clone "$URL" c')
    elif command == "remote show":
        result = side.run("a git remote show origin")
    else:
        result = side.run(f"a git {command} origin main")
    assert only_line(result) == f"fatal: hpss: no repository at '{path}'"
    check_rounds(result.counts, 2)
    assert not (side.folder / "c").exists()


def test_a_repository_of_another_system(ours: Begin, served: Served) -> None:
    side = ours("history")
    path = side.url.rpartition("/")[2]
    with Client(lambda: TcpMedium(*served.direct)) as client:
        client.call(
            repository_create,
            CreateRequest(BZR, [KindField(kind.name, kind.check, kind.base) for kind in system_of(BZR).kinds], {}),
            path,
        )
    said = f"fatal: hpss: the repository at '{path}' is bzr 2a, not git"
    for command in ("a git fetch", "a git ls-remote origin", 'as c git clone "$URL" c'):
        assert only_line(side.run(command)) == said
    for _ in range(2):  # Not known, then known.
        line = only_line(side.run("a git push origin main"))
        assert line in (said, said + " sha1"), line
    assert server_refs(served, path) == {}


def test_a_repository_around_another(ours: Begin) -> None:
    side = ours("shared")
    side.prepare('a git push -q "$URL-around/inner" main')
    base, _, path = side.url.rpartition("/")
    line = only_line(side.run('a git push "$URL-around" main'))
    refused = f"invalid repository path '{path}-around': a repository is below it at 'inner'"
    assert line.startswith(f"fatal: hpss: {refused}")
    line = only_line(side.run(f"a git push {base}/ main"))
    assert line == "fatal: hpss: create a repository: it needs a name below the served folder"


def test_a_repository_inside_another(ours: Begin) -> None:
    side = ours("shared")
    line = only_line(side.run('a git push "$URL/inner" main'))
    path = side.url.rpartition("/")[2]
    assert line == f"fatal: hpss: '{path}/inner' is inside the repository '{path}'"


# -- sizes


def test_a_file_over_the_limit_is_refused_before_anybody_is_asked(ours: Begin, served: Served) -> None:
    side = ours("history")
    side.prepare(f"cd a; truncate -s {MAX_TAKEN + 1} 'a film'; git add -A; git commit -q -m film")
    film, commit = (side.git("a", "rev-parse", name).strip() for name in ("HEAD:a film", "HEAD"))
    result = side.run("a git push origin main")
    assert only_line(result) == (
        f"fatal: hpss: cannot push 'a film' (blob {film}) of commit {commit}: "
        f"it has {MAX_TAKEN + 1} bytes, expected no more than {MAX_TAKEN}"
    )
    assert server_refs(served, side.url.rpartition("/")[2]) == {}


# -- permissions


@pytest.fixture(scope="session")
def servers(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Servers with other options over the same repositories."""
    made: dict[tuple[str, ...], Served] = {}

    def start(*options: str) -> Served:
        if options not in made:
            made[options] = Served(tmp_path_factory.mktemp("other"), *options, root=served.root)
        return made[options]

    yield start
    for server in made.values():
        assert server.close() == ""


def snapshot_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_read_only_server(ours: Begin, servers: Callable[..., Served]) -> None:
    server = servers()
    side = ours("shared")
    path = side.url.rpartition("/")[2]
    side.prepare("a git remote add reading $READING; a commit four", READING=server.url(path))
    before = snapshot_of(server.root / path)
    said = "this server is read-only for anonymous users (start it with `--anonymous write`)"
    assert side.run("a git fetch reading").status == 0
    for command in ("main", "--force main~1:refs/heads/topic", ":topic", "--dry-run main", "--atomic main topic"):
        result = side.run(f"a git push reading {command}")
        assert result.status != 0
        assert said in result.err, result.err
        assert "Traceback" not in result.err
        assert len([line for line in result.err.splitlines() if said in line]) == 1
    side.prepare("forget a")
    new = only_line(side.run("a git push $NEW main", NEW=server.url(path + "-new")))
    assert said in new
    assert snapshot_of(server.root / path) == before
    assert not (server.root / (path + "-new")).exists()


def test_a_push_of_nothing_to_a_read_only_server(ours: Begin, servers: Callable[..., Served]) -> None:
    side = ours("shared")
    url = servers().url(side.url.rpartition("/")[2])
    side.prepare("a git fetch -q $READING", READING=url)
    result = side.run("a git push $READING main", READING=url)
    assert result.status == 1
    assert "`--anonymous write`" in result.err


def test_a_server_for_nobody(ours: Begin, servers: Callable[..., Served]) -> None:
    server = servers("--anonymous", "none")
    side = ours("shared")
    url = server.url(side.url.rpartition("/")[2])
    for command in ("push $CLOSED main", "fetch $CLOSED", "ls-remote $CLOSED"):
        line = only_line(side.run(f"a git {command}", CLOSED=url))
        assert "this server admits no anonymous users (`serve --anonymous none`)" in line


def test_a_server_that_makes_no_repositories(ours: Begin, servers: Callable[..., Served]) -> None:
    server = servers("--anonymous", "write", "--no-create")
    side = ours("shared")
    path = side.url.rpartition("/")[2]
    line = only_line(side.run("a git push $NEW main", NEW=server.url(path + "-new")))
    assert "--no-create" in line
    assert not (server.root / (path + "-new")).exists()
    result = side.run("a commit four; a git push $OLD main", OLD=server.url(path))
    assert result.status == 0, result.said


# -- what a helper cannot do


def test_archive(ours: Begin) -> None:
    side = ours("shared")
    result = side.run('a git archive --remote="$URL" HEAD')
    assert result.status != 0
    assert result.out == ""
    assert len(result.err.splitlines()) == 1, result.err
    assert "operation not supported by protocol" in result.err


@pytest.mark.parametrize(
    ("command", "name"),
    [("a git push -o x origin main", "'push-option'"), ("a git push --signed origin main", "--signed")],
)
def test_an_option_git_insists_on(ours: Begin, command: str, name: str) -> None:
    side = ours("shared")
    side.prepare("a commit four")
    result = side.run(command)
    assert only_line(result) == f"fatal: helper hpss does not support {name}"
    check_rounds(result.counts, 0)


@pytest.mark.parametrize("command", ["fetch -6", "push --ipv4"])
def test_a_choice_of_addresses_is_not_silently_ignored(ours: Begin, command: str) -> None:
    side = ours("shared")
    done = fine(side.run(f"a git {command} origin main"))
    said = "hpss: -4 and -6 are not supported: every address of the host may be tried"
    assert done.err.splitlines().count(said) == 1, done.err


def test_an_object_inside_a_revision(ours: Begin) -> None:
    """It is there, and no revision."""
    side = ours("shared")
    blob = side.git("a", "rev-parse", "main:one")
    line = only_line(side.run(f"as c git init -q c; c git fetch $URL {blob}"))
    why = "only commits, tags and what refs point at can be asked for by id"
    assert line == f"fatal: hpss: no revision {blob}: {why}"


# -- bans


def test_a_banned_call_is_not_sent(ours: Begin) -> None:
    side = ours("shared")
    done = side.run("a git fetch origin", SMARTSERVER_DEBUG="hpss-ban=rpc:Repository.pull")
    line = only_line(done)
    assert line.startswith("fatal: hpss: Repository.pull is banned by the rule rpc:Repository.pull; called from ")
    assert "smartserver/plugins/git" in line
    assert done.counts.bytes_up == 0


def test_a_rule_that_bans_nothing(ours: Begin) -> None:
    done = ours("shared").run("a git fetch origin", SMARTSERVER_DEBUG="hpss-ban=rpc:Repository.pul")
    assert only_line(done).startswith(
        "fatal: hpss: the rule 'rpc:Repository.pul' matches no verb; near it: rpc:Repository.pull"
    )


def test_a_flag_that_is_none(ours: Begin) -> None:
    done = ours("shared").run("a git fetch origin", SMARTSERVER_DEBUG="nonsense")
    assert only_line(done).startswith(
        "fatal: hpss: no such debug flag in SMARTSERVER_DEBUG: 'nonsense' (there are hpss"
    )


def test_a_server_that_bans(tmp_path: Path) -> None:
    server = Served(tmp_path, "--anonymous", "write", "--ban", "rpc:Repository.pull", "--ban", "*:*:secret?*")
    side = Side(tmp_path / "side", server.url("secret/project"), server)
    side.prepare("git init -q a; a commit one")
    assert only_line(side.run('a git push "$URL" main')).endswith("is banned by the rule *:*:secret?*")
    side = Side(tmp_path / "side", server.url("project"), server)
    side.prepare('a git push -q "$URL" main')
    assert only_line(side.run('git clone -q "$URL" b')) == (
        "fatal: hpss: Repository.pull is banned by the rule rpc:Repository.pull"
    )
    assert server.close() == ""


# -- the default branch


def test_head_is_set_and_its_old_branch_deleted(ours: Begin, served: Served) -> None:
    side = ours("shared")
    path = side.url.rpartition("/")[2]
    refused = side.run("a git push origin --delete main")
    advice = "first run `smartserver config URL head ANOTHER-BRANCH`"
    assert f" ! [remote rejected] main (deletion of the current branch prohibited: {advice})\n" in refused.err
    done = fine(side.run('smartserver config "$URL" head topic'))
    assert done.out == "refs/heads/topic\n"
    fine(side.run("a git push origin --delete main"))
    assert "refs/heads/main" not in server_refs(served, path)
    side.prepare('as c git clone -q "$URL" c')
    assert side.git("c", "symbolic-ref", "HEAD") == "refs/heads/topic"

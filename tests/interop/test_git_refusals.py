"""An impossible command prints one line that names the object, exits with a status other than 0, changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from git_sides import Done, Served, Side, check_rounds, fine, server_refs

from smartserver.records.limits import MAX_TAKEN

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

Begin = Callable[[str], Side]


def only_line(done: Done) -> str:
    """Return the only line of the helper; git may add that a push failed."""
    assert done.status not in (0, None), done.said
    lines = [line for line in done.err.splitlines() if not line.startswith(("error: failed to push", "Cloning into"))]
    assert len(lines) == 1, done.err
    return lines[0]


# -- repositories


@pytest.mark.parametrize("command", ["fetch", "clone"])
def test_a_repository_that_is_not_there(ours: Begin, command: str) -> None:
    side = ours("history")
    path = side.path
    result = side.run('as c git clone "$URL" c' if command == "clone" else "a git fetch origin main")
    assert only_line(result) == f"fatal: hpss: no repository at '{path}'"
    check_rounds(result.counts, 2)
    assert not (side.folder / "c").exists()


def test_a_repository_around_another(ours: Begin) -> None:
    side = ours("shared")
    side.prepare('a git push -q "$URL-around/inner" main')
    base, _, path = side.url.rpartition("/")
    line = only_line(side.run('a git push "$URL-around" main'))
    refused = f"invalid repository path '{path}-around': a repository is below it at 'inner'"
    assert line.startswith(f"fatal: hpss: {refused}")
    line = only_line(side.run(f"a git push {base}/ main"))
    assert line == "fatal: hpss: not allowed: create a repository: give it a name below the served folder"


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
    assert server_refs(served, side.path) == {}


# -- permissions


@pytest.fixture(scope="session")
def servers(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """A function that starts servers with other options over the same repositories."""
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
    path = side.path
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


def test_a_server_for_nobody(ours: Begin, servers: Callable[..., Served]) -> None:
    server = servers("--anonymous", "none")
    side = ours("shared")
    url = server.url(side.path)
    for command in ("push $CLOSED main", "fetch $CLOSED", "ls-remote $CLOSED"):
        line = only_line(side.run(f"a git {command}", CLOSED=url))
        assert "this server admits no anonymous users (`serve --anonymous none`)" in line


# -- what a helper cannot do


def test_an_object_inside_a_revision(ours: Begin) -> None:
    """The object exists, but is no revision."""
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


def test_a_flag_that_is_none(ours: Begin) -> None:
    done = ours("shared").run("a git fetch origin", SMARTSERVER_DEBUG="nonsense")
    assert only_line(done).startswith(
        "fatal: hpss: no such debug flag in SMARTSERVER_DEBUG: 'nonsense' (there are hpss"
    )


# -- the default branch


def test_head_is_set_and_its_old_branch_deleted(ours: Begin, served: Served) -> None:
    side = ours("shared")
    path = side.path
    refused = side.run("a git push origin --delete main")
    advice = "first run `smartserver config URL head ANOTHER-BRANCH`"
    assert f" ! [remote rejected] main (deletion of the current branch prohibited: {advice})\n" in refused.err
    done = fine(side.run('smartserver config "$URL" head topic'))
    assert done.out == "refs/heads/topic\n"
    fine(side.run("a git push origin --delete main"))
    assert "refs/heads/main" not in server_refs(served, path)
    side.prepare('as c git clone -q "$URL" c')
    assert side.git("c", "symbolic-ref", "HEAD") == "refs/heads/topic"

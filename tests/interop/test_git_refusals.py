"""An impossible command prints one line that names the object, exits with a status other than 0, changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from git_sides import Done, Served, Side, check_rounds

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


# -- permissions


def snapshot_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_read_only_server(ours: Begin, served: Served, tmp_path: Path) -> None:
    server = Served(tmp_path, root=served.root)
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
    assert server.close() == ""

"""An impossible command prints one line that names the object, exits with a status other than 0, changes nothing. For a
damaged repository the line has the file, the position, and the person to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browse_sides import files_in
from git_sides import Done, Served, Side, check_rounds

from smartserver.client.places import ADVICE
from smartserver.store.trailer import MAGIC

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
    assert only_line(result) == f"fatal: hpss: there is no repository at '{path}'"
    check_rounds(result.counts, 2)
    assert not (side.folder / "c").exists()


# -- permissions


def test_a_read_only_server(ours: Begin, served: Served, tmp_path: Path) -> None:
    server = Served(tmp_path, root=served.root)
    side = ours("shared")
    path = side.path
    side.prepare("a git remote add reading $READING; a commit four", READING=server.url(path))
    before = files_in(server.root / path)
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
    assert files_in(server.root / path) == before
    assert not (server.root / (path + "-new")).exists()
    assert server.close() == ""


# -- damage


@pytest.fixture(scope="module")
def damaged_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of its own, because the common one must log nothing."""
    server = Served(tmp_path_factory.mktemp("damaged"), "--anonymous", "write")
    yield server
    assert "Traceback" not in server.close()


@pytest.fixture
def side(damaged_server: Served, tmp_path: Path) -> Side:
    """User a has pushed a history; user c has cloned nothing yet."""
    path = f"d-{tmp_path.name}"
    side = Side(tmp_path / "side", damaged_server.url(path), damaged_server)
    side.prepare('git init -q a; a git remote add origin "$URL"; a commit one; a commit two; a git push -q origin main')
    return side


def repository(side: Side) -> Path:
    assert side.served is not None
    return side.served.root / side.path


def test_damage_the_server_meets_is_named(side: Side) -> None:
    place = repository(side)
    (file,) = place.glob("packs/*.pack")
    side.prepare("a commit three; forget a")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    result = side.run("a git push origin main:new")
    line = only_line(result)
    assert line.startswith(f"fatal: hpss: the repository '{place.name}' is damaged: {file.relative_to(place)} at byte ")
    assert line.endswith(ADVICE)
    assert str(place.parent) not in result.said


def test_damage_only_the_client_meets_is_named(side: Side) -> None:
    """The server decodes no record that it passes on."""
    place = repository(side)
    (file,) = place.glob("packs/*.pack")
    content = bytearray(file.read_bytes())
    content[content.rindex(MAGIC) - 80] ^= 0x10  # Behind the pack lies its trailer.
    file.write_bytes(content)
    result = side.run('as c git clone "$URL" c')
    assert result.status == 128, result.said
    line = only_line(result)
    assert f"'{place.name}'" in line
    assert line.endswith(ADVICE)
    assert not (side.folder / "c").exists()

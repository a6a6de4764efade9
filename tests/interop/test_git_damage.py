"""The errors that a user of stock git gets from a damaged repository: the file, the position, and the person to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from git_sides import Served, Side

from smartserver.store.record import record_path
from smartserver.store.trailer import MAGIC

pytestmark = pytest.mark.interop

Damage = Callable[[Path], object]


def gone(file: Path) -> None:
    file.unlink()


def half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flipped(at: int) -> Damage:
    """Return damage that flips one bit of one byte."""

    def flip(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[at] ^= 0x10
        file.write_bytes(content)

    return flip


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


PUSH, FETCH, CLONE = "a git push origin main:new", "b git fetch origin", 'as c git clone "$URL" c'

RECORD = record_path(2)
"""The log record of the first push."""

CASES = [
    (CLONE, RECORD, flipped(60), ": the content does not match its check"),
    (PUSH, "packs/*.pack", gone, "at byte 0: the file is missing"),
    (FETCH, "packs/*.pack", half, "expected "),
]


@pytest.mark.parametrize(("command", "name", "damage", "why"), CASES)
def test_damage_the_server_meets_is_named(side: Side, command: str, name: str, damage: Damage, why: str) -> None:
    place = repository(side)
    (file,) = place.glob(name)
    side.prepare('a commit three; forget a; git init -q b; b git remote add origin "$URL"')
    damage(file)
    result = side.run(command)
    assert result.status != 0, result.said
    lines = [line for line in result.err.splitlines() if line.startswith("fatal: ")]
    assert len(lines) == 1, result.err
    assert lines[0].startswith(
        f"fatal: hpss: the repository '{place.name}' is damaged: {file.relative_to(place)} at byte "
    )
    assert why in lines[0]
    assert lines[0].endswith("(its server's administrator can run `smartserver verify` on it)")
    assert str(place.parent) not in result.said
    assert not (side.folder / "c").exists()


def test_damage_only_the_client_meets_is_named(side: Side) -> None:
    """The server decodes no record that it passes on."""
    place = repository(side)
    (file,) = place.glob("packs/*.pack")
    size = file.read_bytes().rindex(MAGIC)  # Behind the pack lies its trailer.
    flipped(size - 80)(file)
    result = side.run('as c git clone "$URL" c')
    assert result.status == 128, result.said
    lines = [line for line in result.err.splitlines() if line.startswith("fatal: ")]
    assert len(lines) == 1, result.err
    assert f"'{place.name}'" in lines[0]
    assert lines[0].endswith("(its server's administrator can run `smartserver verify` on it)")
    assert not (side.folder / "c").exists()


def test_what_is_left_of_a_repository_is_said(side: Side) -> None:
    place = repository(side)
    gone(place / "format")
    result = side.run('as c git clone "$URL" c')
    assert result.status == 128, result.said
    assert (
        f"fatal: hpss: no repository at '{place.name}' but what is left of one: 'packs' files and no 'format'"
        in result.err.splitlines()
    )


def test_an_index_is_made_again(side: Side) -> None:
    """The index is a cache: no user notices."""
    for index in repository(side).glob("packs/*.idx"):
        gone(index)
    side.prepare('as c git clone -q "$URL" c')
    assert side.git("c", "rev-parse", "main") == side.git("a", "rev-parse", "main")


def test_a_repository_of_another_release_is_named(side: Side) -> None:
    place = repository(side)
    (place / "format").write_text("smartserver repository 3\n")
    for command in ('as c git clone "$URL" c', "a git push origin main:new"):
        result = side.run(command)
        assert result.status != 0, result.said
        assert "not supported: the repository format 'smartserver repository 3' in the file 'format';" in result.err

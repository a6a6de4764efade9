"""The errors that a user of stock git gets from a damaged repository: the file, the position, and the person to ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from git_sides import Done, Served, Side

from smartserver.client.places import ADVICE
from smartserver.store.trailer import MAGIC

pytestmark = pytest.mark.interop


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


def only_line(result: Done) -> str:
    """Return the helper's line, which names the person to ask."""
    assert result.status != 0, result.said
    (line,) = [line for line in result.err.splitlines() if line.startswith("fatal: ")]
    assert line.endswith(ADVICE)
    return line


def test_damage_the_server_meets_is_named(side: Side) -> None:
    place = repository(side)
    (file,) = place.glob("packs/*.pack")
    side.prepare("a commit three; forget a")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    result = side.run("a git push origin main:new")
    assert only_line(result).startswith(
        f"fatal: hpss: the repository '{place.name}' is damaged: {file.relative_to(place)} at byte "
    )
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
    assert f"'{place.name}'" in only_line(result)
    assert not (side.folder / "c").exists()

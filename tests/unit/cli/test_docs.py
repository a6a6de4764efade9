"""smartserver.cli.docs: writes the generated pages into a folder that it makes."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from smartserver.cli.main import group
from smartserver.cli.reference import pages


def test_the_pages_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "doc" / "built"
    for _ in range(2):
        done = CliRunner().invoke(group, ["docs", "--folder", str(folder)])
        assert done.exit_code == 0
        assert done.output.split() == [str(folder / name) for name in pages()]
    assert {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} == pages()

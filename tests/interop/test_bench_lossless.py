"""`bench lossless` (bench.breezy_lossless) on a small history: what it compares, and that a difference is
told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from bench import breezy_lossless as lossless
from bench.command import command
from benches import bench
from brz_histories import RandomHistory, new_repository, quiet
from click.testing import CliRunner

from smartserver.cli.errors import CommandError

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.interop,
    pytest.mark.unbanned("it pushes and pulls many times, each time as an operation of its own"),
]

SIZE = 40


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lossless") / "source"
    with quiet():
        RandomHistory(new_repository(str(path)), 3, SIZE, files=8)
    return path


def state(path: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}


def test_all_of_it_comes_back(temporary: Path, source: Path) -> None:
    before = state(source)
    with quiet():
        result = bench(temporary, "lossless", source, "-n", "4")
    assert result.exit_code == 0, result.output
    assert f"4 random parts of source, of {SIZE} revisions" in result.stdout
    assert re.search(r"parts that came back whole +4 +4 +ok\n", result.stdout)
    assert "wrong:" not in result.stderr
    assert state(source) == before


def test_what_differs_is_told(temporary: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = lossless.digests

    def damaged(repository: Any) -> dict[Any, Any]:
        found = read(repository)
        if len(found) and "part-1" in repository.user_url:
            each = min(found)
            found[each] = (None, b"other")
        return found

    monkeypatch.setattr(lossless, "digests", damaged)
    with quiet():
        result = bench(temporary, "lossless", source, "-n", "2")
    assert result.exit_code == 1
    assert re.search(r"parts that came back whole +1 +2 +MISSED\n", result.stdout)
    assert "wrong: part 2: 1 records differ, among them ('chk_bytes', " in result.stderr


def test_what_is_no_history_of_that_format(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["lossless", str(tmp_path)])
    assert isinstance(result.exception, CommandError)
    assert "Not a branch" in str(result.exception)
    with quiet():
        new_repository(str(tmp_path / "old"), "1.14")
        result = CliRunner().invoke(command, ["lossless", str(tmp_path / "old")])
        assert "`brz upgrade --2a`" in str(result.exception)
        new_repository(str(tmp_path / "void"))
        result = CliRunner().invoke(command, ["lossless", str(tmp_path / "void")])
        assert str(result.exception) == "there is no revision in it"

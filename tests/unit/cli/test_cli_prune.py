"""smartserver.cli.prune, cli.openers: what no ref reaches is listed, and removed when that was confirmed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import MAIN, History, check_whole, push
from click.testing import CliRunner, Result

from smartserver.cli.main import group
from smartserver.cli.openers import openers
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def wrong(history: History) -> bytes:
    (first,) = history.line(1)
    return history.commit({**history.files(first), "secret": b"hunter2\n"}, (first,), "with a secret\nand more")


@pytest.fixture
def repository(tmp_path: Path, history: History, wrong: bytes) -> PackRepository:
    repository = PackRepository(LocalTransport(tmp_path), "project")
    (first,) = history.line(1)
    push(repository, history, [first, wrong], {MAIN: wrong})
    push(repository, history, [], {MAIN: first})
    return repository


def run(folder: Path, *arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(group, ["prune", str(folder / "project"), *arguments], input=answer)


def stored(folder: Path) -> int:
    return PackRepository(LocalTransport(folder), "project").snapshot().graph.count


def test_it_lists_what_no_ref_reaches(repository: PackRepository, tmp_path: Path, wrong: bytes) -> None:
    result = run(tmp_path, "--list")
    assert result.exit_code == 0
    first, second, *rest = result.output.splitlines()
    assert first.startswith("1 revision that no branch and no tag reaches, ")
    assert second == f"  {wrong.hex()}  2027-01-15 08:00:00 +0000  A <a@example.org>  with a secret"
    assert rest[0].startswith("It cannot be removed from clones and mirrors")
    assert stored(tmp_path) == 2


def test_it_asks_and_removes(repository: PackRepository, tmp_path: Path, history: History) -> None:
    assert "nothing was done" in str(run(tmp_path, answer="n\n").exception)
    assert "no answer: nothing was done (with --yes no question is asked)" in str(run(tmp_path).exception)
    assert stored(tmp_path) == 2
    result = run(tmp_path, answer="y\n")
    assert result.output.endswith("1 revision removed, a server deletes the old packs a day from now\n")
    assert stored(tmp_path) == 1
    assert len(os.listdir(tmp_path / "project" / "packs")) == 4
    check_whole(PackRepository(LocalTransport(tmp_path), "project"), history)
    assert run(tmp_path).output == "branches and tags reach every revision\n"


def test_a_terminal_shows_how_far_it_is(
    repository: PackRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "prune: " not in run(tmp_path, "--list").output
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    assert "\rprune: 0 %\rprune: 100 %\n" in run(tmp_path, "--yes").stderr


def test_at_once_where_nobody_has_it_open(tmp_path: Path, history: History, wrong: bytes) -> None:
    writer = PackRepository(LocalTransport(tmp_path), "project")
    (first,) = history.line(1)
    push(writer, history, [first, wrong], {MAIN: wrong})
    push(writer, history, [], {MAIN: first})
    del writer
    project = tmp_path / "project"
    reader = subprocess.Popen(
        [sys.executable, "-c", f"f = open({str(project / 'format')!r}); print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    try:
        reader.stdout.readline()
        assert openers(str(project)) == {reader.pid: Path(f"/proc/{reader.pid}/comm").read_text().strip()}
        refused = str(run(tmp_path, "--yes", "--now").exception)
        assert refused.startswith(f"{project} is open in ")
        assert f"({reader.pid})" in refused
        assert stored(tmp_path) == 2
    finally:
        reader.stdin.close()
        reader.wait()
        reader.stdout.close()
    assert openers(str(project)) == {}
    assert run(tmp_path, "--yes", "--now").output.endswith("1 revision removed, 2 old files deleted\n")
    assert len(os.listdir(project / "packs")) == 2
    assert openers(str(project), Path("/nowhere")) is None


def test_what_it_does_not_do(repository: PackRepository, tmp_path: Path) -> None:
    assert "--list removes nothing" in run(tmp_path, "--list", "--now").output
    far = CliRunner().invoke(group, ["prune", "--now", "sftp://host/srv/project"])
    assert "which processes use sftp://host/srv/project, which is not a local folder: leave out --now" in str(
        far.exception
    )
    on_server = CliRunner().invoke(group, ["prune", "hpss://host/project"])
    assert "hpss://host/project is on a server: run this there, with the repository" in str(on_server.exception)


def test_what_it_leaves_is_listed(repository: PackRepository, tmp_path: Path) -> None:
    """A pack that no record names may be all that is left of a change."""
    pack = next((tmp_path / "project" / "packs").glob("*.pack"))
    (pack.parent / f"{'ab' * 16}.pack").write_bytes(pack.read_bytes() + b"x")
    (tmp_path / "project" / "lost").mkdir()
    (tmp_path / "project" / "lost" / "0000000003.0123").write_bytes(b"x")
    said = run(tmp_path, "--list").output
    assert f"packs/{'ab' * 16}.pack stays: no record names it, and smartserver recover --list says what it is" in said
    assert "lost/ stays: 1 record without any file's text; delete it there" in said

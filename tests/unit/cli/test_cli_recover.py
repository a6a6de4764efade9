"""cli.recover, cli.prune, cli.openers, cli.upgrade: what is repaired, removed or changed once that was confirmed."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from builders import MAIN, History, check_whole, push
from cli_runs import OTHER, grow, opened, refs, repository, run, stored, why

from smartserver.cli.openers import openers
from smartserver.store.record import record_path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "project"


# -- recover


@pytest.fixture
def line(project: Path) -> list[bytes]:
    """The revisions of a repository whose record 3 is damaged: it brought two, record 4 made another branch."""
    history = History()
    line = history.line(3)
    push(repository(project), history, line[:1], {MAIN: line[0]})
    push(repository(project), history, line[1:], {MAIN: line[2]})
    push(repository(project), history, [], {OTHER: line[0]})
    record = project / record_path(3)
    record.write_bytes(record.read_bytes()[:-1])
    return line


def test_it_lists_what_there_is(project: Path, line: list[bytes]) -> None:
    result = run("recover", project, "--list")
    assert result.exit_code == 0
    *misfits, first, second = result.output.splitlines()
    assert misfits == [
        "log/0000000004 does not follow change 2",
        "log/0000000003 is damaged at byte 28: the content does not match its check",
    ]
    assert f"refs/heads/main -> {line[2].hex()[:8]}  (may not have been acknowledged)" in first
    assert f"refs/heads/other -> {line[0].hex()[:8]}" in second
    assert "may not have been acknowledged" not in second
    assert refs(project) == {MAIN: line[0]}
    assert (project / record_path(3)).exists()


def test_it_asks_repairs_the_log_and_restores_what_was_surely_made(project: Path, line: list[bytes]) -> None:
    assert run("recover", project, answer="n\n").exit_code == 1
    assert (project / record_path(3)).exists()
    result = run("recover", project, answer="y\n")
    assert "Continue from change 2, and restore 1 change? [y/N]" in result.output
    assert (result.exit_code, result.output.splitlines()[-1]) == (0, "1 change restored, 1 left")
    assert refs(project) == {MAIN: line[0], OTHER: line[0]}
    assert "give the ID of a change, or --all" in why(run("recover", project, "--yes"))
    assert run("recover", project, "--yes", "--all").output.endswith("1 change restored, 0 left\n")
    assert refs(project) == {MAIN: line[2], OTHER: line[0]}
    assert run("recover", project).output == f"{project}: there is nothing to recover: the log is complete\n"


def test_a_change_is_named_by_its_id(project: Path, line: list[bytes]) -> None:
    first, second = (each.split()[0] for each in run("recover", project, "--list").output.splitlines()[2:])
    assert "'zz' matches no change" in why(run("recover", project, "--yes", "zz"))
    assert run("recover", project, "--yes", first).output.endswith("1 change restored, 1 left\n")
    assert refs(project) == {MAIN: line[2]}
    assert f"{first!r} matches no change" in why(run("recover", project, "--yes", first))
    assert run("recover", project, "--yes", second).output.endswith("1 change restored, 0 left\n")


@pytest.mark.usefixtures("line")
def test_verify_tells_of_it(project: Path) -> None:
    result = run("verify", project)
    assert result.exit_code == 1
    assert "log/0000000003" in result.output
    assert result.output.endswith("2 changes on disk that the log lacks: smartserver recover lists them\n")


def test_a_repository_that_lost_its_format_is_one_again(project: Path, line: list[bytes]) -> None:
    assert "is not a repository of smartserver" in why(run("recover", project.parent))  # Nothing is left of one.
    (project / "format").unlink()
    assert "what is left of one: 'packs' files" in why(run("verify", project))
    assert run("recover", project, "--yes", "--all").exit_code == 0
    assert refs(project) == {MAIN: line[2], OTHER: line[0]}


@pytest.mark.parametrize("words", ["--list --all", "--list --yes", "--list abcd1234", "--all abcd1234"])
def test_options_that_would_be_ignored_are_refused(project: Path, words: str) -> None:
    result = run("recover", project, *words.split())
    assert result.exit_code == 2
    assert "leave " in result.output


# -- prune


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def wrong(project: Path, history: History) -> bytes:
    """A revision that no ref of a repository reaches any more."""
    (first,) = history.line(1)
    wrong = history.commit({**history.files(first), "secret": b"hunter2\n"}, (first,), "with a secret\nand more")
    push(repository(project), history, [first, wrong], {MAIN: wrong})
    push(repository(project), history, [], {MAIN: first})
    return wrong


def test_it_lists_what_no_ref_reaches(project: Path, wrong: bytes) -> None:
    result = run("prune", project, "--list")
    assert result.exit_code == 0
    first, second, *rest = result.output.splitlines()
    assert first.startswith("1 revision that no branch and no tag reaches, ")
    assert second == f"  {wrong.hex()}  2027-01-15 08:00:00 +0000  A <a@example.org>  with a secret"
    assert rest[0].startswith("It cannot be removed from clones and mirrors")
    assert opened(project).graph.count == 2


@pytest.mark.usefixtures("wrong")
def test_it_asks_and_removes(project: Path, history: History) -> None:
    assert "nothing was done" in why(run("prune", project, answer="n\n"))
    assert "no answer: nothing was done (with --yes no question is asked)" in why(run("prune", project))
    assert opened(project).graph.count == 2
    result = run("prune", project, answer="y\n")
    assert result.output.endswith("1 revision removed, a server deletes the old packs a day from now\n")
    assert opened(project).graph.count == 1
    assert len(os.listdir(project / "packs")) == 4
    check_whole(repository(project), history)
    assert run("prune", project).output == "branches and tags reach every revision\n"


@pytest.mark.usefixtures("wrong")
def test_a_terminal_shows_how_far_it_is(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "prune: " not in run("prune", project, "--list").output
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    assert "\rprune: 0 %\rprune: 100 %\n" in run("prune", project, "--yes").stderr


@pytest.mark.usefixtures("wrong")
def test_at_once_where_nobody_has_it_open(project: Path) -> None:
    words = [sys.executable, "-c", f"f = open({str(project / 'format')!r}); print(flush=True); input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        assert openers(str(project)) == {reader.pid: Path(f"/proc/{reader.pid}/comm").read_text().strip()}
        refused = why(run("prune", project, "--yes", "--now"))
        assert refused.startswith(f"{project} is open in ")
        assert f"({reader.pid})" in refused
        assert opened(project).graph.count == 2
        reader.communicate(b"\n")
    assert openers(str(project)) == {}
    assert run("prune", project, "--yes", "--now").output.endswith("1 revision removed, 2 old files deleted\n")
    assert len(os.listdir(project / "packs")) == 2
    assert openers(str(project), Path("/nowhere")) is None


@pytest.mark.usefixtures("wrong")
def test_what_it_does_not_do(project: Path) -> None:
    assert "--list removes nothing" in run("prune", project, "--list", "--now").output
    far = "sftp://host/srv/project"
    assert f"which processes use {far}, which is not a local folder: leave out --now" in why(run("prune", "--now", far))
    on_server = why(run("prune", "hpss://host/project"))
    assert "hpss://host/project is on a server: run the command there, on the repository" in on_server


@pytest.mark.usefixtures("wrong")
def test_what_it_leaves_is_listed(project: Path) -> None:
    """A pack that no record names may be all that is left of a change."""
    pack = next((project / "packs").glob("*.pack"))
    (pack.parent / f"{'ab' * 16}.pack").write_bytes(pack.read_bytes() + b"x")
    (project / "lost").mkdir()
    (project / "lost" / "0000000003.0123").write_bytes(b"x")
    said = run("prune", project, "--list").output
    assert (
        f"packs/{'ab' * 16}.pack stays: no change in the log uses it; `smartserver recover --list` shows what it is"
        in said
    )
    assert "lost/ stays: 1 record without any file's text; delete it there" in said


# -- upgrade


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A repository of an older release."""
    with tarfile.open(Path(__file__).parents[1] / "store" / "old_repositories.tar.xz") as archive:
        archive.extraction_filter = lambda member, _: member  # Not known to Python before 3.11.4.
        archive.extractall(tmp_path)
    return tmp_path / "file"


def test_every_other_command_names_it(old: Path, tmp_path: Path) -> None:
    commands = ("verify", "stats", "pack", "recover", "config head main", "log", "delete --yes", f"dump {tmp_path}/to")
    for words in commands:
        command, *others = words.split()
        said = why(run(command, old, *others))
        assert "version 1 of the repository format: `smartserver upgrade FOLDER`" in said, command


def test_it_is_changed_and_changed_back(old: Path) -> None:
    assert run("upgrade", old).output == f"{old}: smartserver repository 2\n"
    assert "502 refs, 2 in maps" in run("stats", old).output
    assert run("upgrade", old).output == f"{old}: smartserver repository 2, the newest format: nothing to upgrade\n"
    assert run("upgrade", "--undo", old).output == f"{old}: what it was before its upgrade\n"
    assert (old / "root").exists()
    assert "no upgraded repository" in why(run("upgrade", "--undo", old))


def test_one_of_this_release_stays_as_it_is(project: Path) -> None:
    grow(project, stored(project))
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    newest = f"{project}: smartserver repository 2, the newest format: nothing to upgrade\n"
    assert run("upgrade", project).output == newest
    assert "no upgraded repository" in why(run("upgrade", "--undo", project))
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_what_it_is_not_for(tmp_path: Path) -> None:
    for place in ("hpss://host/project", "sftp://host/project"):
        assert "own machine, with its folder" in why(run("upgrade", place))
    assert "not a rep" in why(run("upgrade", tmp_path))

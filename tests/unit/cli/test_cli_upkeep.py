"""cli.listing, cli.stats, cli.pack, cli.delete, cli.config, cli.verify, cli.place: on a folder and on a URL; which
addresses cli.cluster refuses, whose rest is in tests/sockets/test_cluster.py.

cli.recover, cli.prune, cli.openers, cli.upgrade: what is repaired, removed or changed once that was confirmed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from bench.servers import Workspace, free_port, serving
from builders import MAIN, SETTINGS, History, check_whole, push
from bzr_samples import FIRST
from cli_runs import OTHER, Places, flip, grow, opened, pack_of, refs, repository, run, stored, stored_bzr, why

from smartserver.cli.openers import openers
from smartserver.cli.place import above
from smartserver.client import listing
from smartserver.client.call import Client
from smartserver.store.record import record_path
from smartserver.verbs.repository_verify import VerifyResult


def test_a_listing(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, named = places
    for name in ("b", "a/x", "a/y"):
        stored(folder / name, 1)
    (folder / "a" / "z").mkdir()
    result = run("list", named(""))
    below = result.output.partition("a/x")[0]
    assert result.output.splitlines() == [f"{below}{name}: git sha1, 1 ref" for name in ("a/x", "a/y", "b")]
    assert run("list", named("a/z")).output == ""
    monkeypatch.setattr(listing, "AT_ONCE", 1)
    result = run("list", "--refs", named("a"))
    assert re.sub(r"(?m)^\S*?([xy]|\.):", r"\1:", result.output).splitlines() == [
        "x: git sha1, 1 ref",
        f"    {MAIN.decode()}",
        "y: git sha1, 1 ref",
        f"    {MAIN.decode()}",
    ]


def test_json(places: Places) -> None:
    folder, named = places
    stored(folder / "a", 2)
    (listed,) = map(json.loads, run("list", "--json", "--refs", named("a")).stdout.splitlines())
    assert (listed["vcs"], listed["refs"], listed["names"], listed["problem"]) == ("git sha1", 1, [MAIN.decode()], "")
    assert "names" not in json.loads(run("list", "--json", named("a")).stdout)
    stats = json.loads(run("stats", "--json", named("a")).stdout)
    assert (stats["vcs"], stats["revisions"], stats["packs"], stats["refs"]) == ("git sha1", 2, 1, 1)
    assert stats["size"] > stats["largest"] > 100


def test_a_damaged_one_in_a_listing(places: Places) -> None:
    folder, named = places
    stored(folder / "a", 1)
    (folder / "a" / "log" / "0000000002").write_bytes(b"none")
    stored(folder / "b", 1)
    result = run("list", named(""))
    assert re.search(r"a: log/0000000002[^\n]*\n\S*b: git sha1", result.output)
    assert result.exit_code == 1


def test_a_listing_of_a_store_that_is_not_there(tmp_path: Path) -> None:
    assert "absent" in why(run("list", (tmp_path / "absent").as_uri()))
    assert run("list", tmp_path.as_uri()).exit_code == 0


@pytest.mark.sockets
@pytest.mark.unbanned("file-level calls are what is tried")
def test_a_listing_of_a_store_asks_for_all_folders_of_a_depth_at_once(tmp_path: Path) -> None:
    for name in ("a", "b/c", "b/d", "b/e"):
        stored(tmp_path / name, 1)
    for name in ("notes", "b/read.me"):
        (tmp_path / name).write_text("A file.")
    with Workspace("test") as workspace:
        port = free_port()
        workspace.serve(serving(tmp_path, "127.0.0.1", port, "--allow-vfs"), port)
        result = run("-Dhpss", "list", f"vfs://127.0.0.1:{port}/")
    assert result.stdout.splitlines() == [f"{name}: git sha1, 1 ref" for name in ("a", "b/c", "b/d", "b/e")]
    asked = result.stderr.splitlines()
    assert len(asked) == 4, asked
    assert asked[-1].startswith("hpss: 3 round trips on a fresh connection, 3 calls (3 vfs), ")
    assert "packs/" not in result.stderr


def test_stats(places: Places) -> None:
    folder, named = places
    stored(folder / "a")
    pack = r"1 pack, [0-9.]+ K?B, the largest [0-9.]+ K?B"
    rest = "1 ref, 0 in maps\n1 change since it was made"
    said = run("stats", named("a")).output
    assert re.fullmatch(rf"git sha1, smartserver repository 2\n3 revisions, \d+ records\n{pack}\n{rest}\n", said)


def test_packs_are_joined(places: Places) -> None:
    folder, named = places
    grow(folder / "a", stored(folder / "a"), 1)
    assert re.fullmatch(r"2 packs to 1 pack, [0-9.]+ K?B\n", run("pack", named("a")).output)
    assert re.fullmatch(r"1 pack: nothing to join, [0-9.]+ K?B\n", run("pack", named("a")).output)


def test_deletion_asks_first(places: Places) -> None:
    folder, named = places
    stored(folder / "a")
    for answer in ("n\n", ""):
        assert run("delete", named("a"), answer=answer).exit_code == 1
        assert repository(folder / "a").exists()
    result = run("delete", named("a"), answer="y\n")
    assert (result.exit_code, result.stdout) == (0, f"deleted {named('a')}\n")
    assert not repository(folder / "a").exists()
    assert "a" in why(run("delete", "--yes", named("a")))
    assert run("list", named("")).output == ""


@pytest.mark.parametrize("command", ["stats", "pack", "delete", "list", "verify"])
def test_what_is_none(tmp_path: Path, command: str) -> None:
    yes = ["--yes"] if command == "delete" else []
    assert why(run(command, *yes, tmp_path / "absent")) == f"'{tmp_path / 'absent'}' does not exist"
    said = "'http://h/a' is not a URL of a repository: it does not begin with hpss://"
    assert why(run(command, *yes, "http://h/a")) == said
    if command != "list":
        (tmp_path / ".git").mkdir()
        said = f"{tmp_path} is not a repository of smartserver but a git repository"
        assert why(run(command, *yes, tmp_path)) == said


@pytest.mark.parametrize(
    ("place", "known"),
    [
        ("/srv/code/", "/srv/code/"),
        ("/srv/a?b", "/srv/a?b/"),
        ("sftp://h/srv/code", "sftp://h/srv/code/"),
        ("sftp://h/srv/code/?host-key=any", "sftp://h/srv/code/?host-key=any"),
        ("sftp://h/srv/code?host-key=any", "sftp://h/srv/code/?host-key=any"),
    ],
)
def test_errors_know_how_a_store_is_reached(place: str, known: str) -> None:
    assert above(place) == known


def test_there_is_no_lock_to_break() -> None:
    said = "project: there are no locks any more, so there is nothing to break\n"
    result = run("break-lock", "--force", "project")
    assert (result.exit_code, result.output) == (0, said)


# -- config


def test_head_is_read_and_set(places: Places) -> None:
    folder, place = places
    stored(folder / "p", 1)
    project = place("p")
    assert SETTINGS == {"HEAD": MAIN}
    assert run("config", project, "head").output == f"{MAIN.decode()}\n"
    assert run("config", project, "HEAD", "trunk").output == "refs/heads/trunk  (there is no such branch yet)\n"
    assert run("config", project, "head").output == "refs/heads/trunk  (there is no such branch yet)\n"
    assert run("config", project, "head", "refs/heads/main").output == f"{MAIN.decode()}\n"
    assert "git allows no such ref" in why(run("config", project, "head", "a..b"))
    assert run("config", project, "description", "x").exit_code == 2
    assert opened(folder / "p").state.settings == SETTINGS


def test_no_setting_of_no_repository(places: Places) -> None:
    folder, place = places
    folder.mkdir(exist_ok=True)
    for value in ([], ["main"]):
        assert "no repository at" in why(run("config", place("absent"), "head", *value))
    assert not (folder / "absent").exists()


@pytest.mark.parametrize(("name", "default"), [("publishing", "yes"), ("evolution", "no")])
def test_what_is_yes_or_no_is_read_and_set(places: Places, name: str, default: str) -> None:
    folder, place = places
    stored(folder / name, 2)
    for value in ("", "no", "", "yes"):
        done = run("config", place(name), name, *([value] if value else []))
        assert done.exit_code == 0, done.exception
        assert value or done.stdout in (f"{default}\n", "no\n")
    assert done.stdout == "yes\n"
    assert run("config", place(name), name).stdout == "yes\n"


# -- verify


def test_what_is_well(places: Places) -> None:
    folder, named = places
    stored(folder / "well")
    result = run("verify", named("well"))
    assert (result.exit_code, result.stderr) == (0, "")  # Progress is for a terminal.
    assert re.fullmatch(r"1 pack, 3 revisions, \d+ records, [0-9.]+ (B|KB): all well\n", result.stdout)


def test_a_damage_is_named_as_text_and_fails(tmp_path: Path) -> None:
    pack = pack_of(stored_bzr(tmp_path / "project"))
    assert run("verify", tmp_path / "project").output.startswith(f"1 pack, 1 revision, {len(FIRST)} records, ")
    flip(pack, pack.read_bytes().index(b"#!/bin/sh"))
    result = run("verify", tmp_path / "project")
    *problems, verdict = result.output.splitlines()
    named = (
        r"\.pack is damaged at byte \d+: record run-id joe@example\.org-1 of revision joe@example\.org-1 is not valid: "
    )
    assert any(re.search(pack.stem + named, problem) for problem in problems)
    assert verdict.endswith(f"{len(problems)} problem{'s' * (len(problems) != 1)}")
    assert result.exit_code == 1


@pytest.mark.parametrize("scheme", ["sftp", "vfs"])
def test_a_store_that_cannot_be_reached(scheme: str) -> None:
    """It is no damage, and said as by every other command."""
    place = f"{scheme}://127.0.0.1:{free_port()}/srv/x"
    result = run("verify", place)
    assert re.fullmatch(f"{place}: cannot connect to .*: Connection refused", why(result))
    assert result.output == ""


def test_problems_of_a_server_command_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    result = VerifyResult(1, 1, 1, 1, ["packs/\x1b[2J at byte 0"])
    monkeypatch.setattr(Client, "call", lambda *_: result)
    found = run("verify", "hpss://h/a")
    assert (found.exit_code, found.stderr) == (1, "packs/ [2J at byte 0\n")
    assert "1 problem" in found.stdout


# -- cluster


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql://u:secret@h/d", "--log must not have password: "),
        ("postgresql://u@h/d?password=secret&sslpassword=secret", "--log must not have password and sslpassword: "),
        ("postgres://u@h/d?passfile=secret", "--log must not have passfile: "),
        ("postgresql://u@h/d?pass=word", '--log: invalid URI query parameter: "pass"'),
        ("host=h dbname=d", "--log 'host=h dbname=d': expected postgresql://"),
    ],
)
def test_addresses_that_a_store_does_not_get(tmp_path: Path, address: str, said: str) -> None:
    assert why(run("cluster", "init", tmp_path, "--log", address)).startswith(said)
    assert list(tmp_path.iterdir()) == []


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

"""cli.as_json, cli.listing, cli.stats, cli.pack, cli.delete, cli.place: on a folder and on a URL."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from bench.servers import Workspace, free_port
from builders import MAIN, push
from cli_runs import Places, run, why
from stored import stored

from smartserver.cli.place import above
from smartserver.client import listing
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

SERVE = (sys.executable, "-m", "smartserver.cli.main", "serve")


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
    for place in ((tmp_path / "absent").as_uri(), str(tmp_path / "absent")):
        assert "absent" in why(run("list", place))
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
        workspace.serve([*SERVE, str(tmp_path), "--listen", f"127.0.0.1:{port}", "--allow-vfs"], port)
        result = run("-Dhpss", "list", f"vfs://127.0.0.1:{port}/")
    assert result.stdout.splitlines() == [f"{name}: git sha1, 1 ref" for name in ("a", "b/c", "b/d", "b/e")]
    asked = result.stderr.splitlines()
    assert len(asked) == 4, asked
    assert asked[-1].startswith("hpss: 3 round trips on a fresh connection, 3 calls (3 vfs), ")
    assert "packs/" not in result.stderr


def test_stats(places: Places) -> None:
    folder, named = places
    stored(folder / "a")
    result = run("stats", named("a"))
    assert result.exit_code == 0
    first, second, third, fourth, fifth = result.output.splitlines()
    assert first == "git sha1, smartserver repository 2"
    assert re.fullmatch(r"3 revisions, \d+ records", second)
    assert re.fullmatch(r"1 pack, [0-9.]+ K?B, the largest [0-9.]+ K?B", third)
    assert (fourth, fifth) == ("1 ref, 0 in maps", "1 change since it was made")


def test_packs_are_joined(places: Places) -> None:
    folder, named = places
    history = stored(folder / "a")
    more = history.line(1, list(history.parents)[-1], "more")
    push(PackRepository(LocalTransport(folder / "a")), history, more, {MAIN: more[0]})
    assert re.fullmatch(r"2 packs to 1 pack, [0-9.]+ K?B\n", run("pack", named("a")).output)
    assert re.fullmatch(r"1 pack: nothing to join, [0-9.]+ K?B\n", run("pack", named("a")).output)


def test_deletion_asks_first(places: Places) -> None:
    folder, named = places
    stored(folder / "a")
    repository = PackRepository(LocalTransport(folder / "a"))
    for answer in ("n\n", ""):
        result = run("delete", named("a"), answer=answer)
        assert result.exit_code == 1
        assert repository.exists()
    result = run("delete", named("a"), answer="y\n")
    assert result.exit_code == 0
    assert result.stdout == f"deleted {named('a')}\n"
    assert not repository.exists()
    assert "a" in why(run("delete", "--yes", named("a")))
    assert run("list", named("")).output == ""


@pytest.mark.parametrize("command", ["stats", "pack", "delete", "list"])
def test_what_is_none(tmp_path: Path, command: str) -> None:
    yes = ["--yes"] if command == "delete" else []
    assert why(run(command, *yes, str(tmp_path / "absent"))) == f"'{tmp_path / 'absent'}' is not there"
    assert "hpss://" in why(run(command, *yes, "http://h/a"))
    if command != "list":
        (tmp_path / ".git").mkdir()
        said = why(run(command, *yes, str(tmp_path)))
        assert said == f"{tmp_path} is not a repository of smartserver but a git repository"


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
    result = run("break-lock", "--force", "project")
    assert (result.exit_code, result.output) == (
        0,
        "project: there are no locks any more, so there is nothing to break\n",
    )

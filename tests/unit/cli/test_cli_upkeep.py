"""cli.listing, cli.stats, cli.pack, cli.delete, cli.config, cli.verify, cli.place: on a folder and on a URL; and which
addresses cli.cluster refuses, whose rest is in tests/sockets/test_cluster.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from bench.servers import Workspace, free_port, serving
from builders import MAIN, SETTINGS
from bzr_samples import FIRST
from cli_runs import Places, flip, grow, opened, pack_of, repository, run, stored, stored_bzr, why

from smartserver.cli.place import above
from smartserver.client import listing
from smartserver.client.call import Client
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

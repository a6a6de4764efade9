"""plugins.breezy.content, plugins.breezy.selection: a lightweight checkout whose tree rests on what its branch does not
reach any more: what describes it goes on, before `brz update` as after it."""

from __future__ import annotations

import shutil

import pytest
from brz_sides import Begin, Users

pytestmark = [pytest.mark.interop, pytest.mark.sockets]


def check_out(users: Users) -> None:
    assert users.run("", "checkout", "--lightweight", "-q", users.url(), "light").status == 0


def uncommitted(users: Users) -> None:
    check_out(users)
    assert users.run("a", "uncommit", "--force", users.url()).status == 0


def overwrite(users: Users) -> None:
    assert users.run("", "branch", "-q", "-r", "2", "a", "apart").status == 0
    users.commit("apart", "other")
    assert users.run("apart", "push", "-q", "--overwrite", users.url()).status == 0


def committed_here(users: Users) -> None:
    check_out(users)
    (users.path("light") / "three").write_text("three\nmine\n")
    assert users.run("light", "commit", "-q", "-m", "mine").status == 0
    overwrite(users)


@pytest.fixture(params=[uncommitted, committed_here])
def light(changed: Begin, request: pytest.FixtureRequest) -> Users:
    """A lightweight checkout that was left behind, with a file changed."""
    users = changed(request.param)
    with (users.path("light") / "three").open("a") as file:
        file.write("changed\n")
    return users


@pytest.mark.parametrize("kept", [False, True], ids=["nothing kept", "history kept"])
def test_annotate(light: Users, kept: bool) -> None:
    if kept:
        assert light.run("light", "log", "-n0", "--line").status == 0
        assert light.run("light", "annotate", "one").status == 0
    done = light.run("light", "annotate", "--all", "--show-ids", "three", "-Dhpss")
    assert done.status == 0, done.said
    lines = [line.split("|") for line in done.out.splitlines()]
    assert [text.strip() for _, text in lines][:: len(lines) - 1] == ["three", "changed"]
    assert light.revision("a", 3).decode() == lines[0][0].strip()
    assert lines[-1][0].strip() == "current:"
    assert "HPSS calls: 1 (0 vfs)" in done.said or kept


def test_annotate_with_numbers(light: Users) -> None:
    said = light.ask("annotate, left behind", "light", "annotate", "--all", "three")
    assert [line.split("|")[1].strip() for line in said.splitlines()][-1] == "changed"
    assert said.splitlines()[-1].split()[0].endswith("?"), "it is not committed"
    said = light.ask("annotate, left behind", "light", "annotate", "--all", "one")
    assert said.split() == ["1", "a@examp", "|", "one"]


def test_version_info(light: Users) -> None:
    said = light.ask("version-info, left behind", "light", "version-info", "--check-clean")
    stanza = dict(line.split(": ", 1) for line in said.splitlines())
    assert stanza.keys() == {"revision-id", "date", "build-date", "branch-nick", "clean"}  # It has no number.
    assert stanza["clean"] == "False"
    said = light.ask("version-info, left behind", "light", "version-info", "--all")
    assert "message: commit one\n" in said
    assert f"id: {stanza['revision-id']}\n" in said
    assert light.run("light", "update", "-q").status == 0
    assert "revno: " in light.ask("version-info, left behind", "light", "version-info")


def test_info(light: Users) -> None:
    said = light.ask("info -v, left behind", "light", "info", "-v")
    assert "Working tree is out of date: missing " in said
    assert "         1 modified\n" in said
    assert " revisions\n" in said.partition("Repository:")[2]


def test_diff(light: Users) -> None:
    said = light.ask("diff, lightweight", "light", "diff", status=1)
    assert "+changed\n" in said
    assert "-three" not in said


@pytest.mark.parametrize("light", [committed_here], indirect=True)
@pytest.mark.parametrize(
    "words",
    [
        ["annotate", "three"],
        ["version-info"],
        ["info", "-v"],
        ["diff"],
        ["update"],
        ["status"],
        ["commit", "-m", "changed"],
    ],
)
def test_a_repository_that_was_made_anew(light: Users, words: list[str]) -> None:
    """What the tree rests on is nowhere: that is said in words."""
    assert light.run("a", "remove-branch", light.url()).status == 0
    light.make("anew")
    light.commit("anew", "x")
    assert light.run("", "hpss-shadows", "--clear").status == 0
    shutil.rmtree(f"{light.served.root}/{light.place}")
    assert light.run("anew", "push", light.url()).status == 0
    done = light.run("light", *words)
    assert "Traceback" not in done.said
    assert "object at" not in done.said
    assert "memory://" not in done.said
    assert ("is not in the repository of" in done.err) == (words[0] not in ("info", "diff"))
    assert ("brz update" in done.err) == (words[0] == "status")  # Breezy says it all the same.
    assert ("  three\n" in done.out) == (words[0] == "status")
    assert done.counts.rounds == 2 or words[0] not in ("commit", "status")  # One is to connect.

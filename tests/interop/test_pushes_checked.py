"""server.push_checks: the checks of an access file for pushes of each tool, and the messages to the user."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from git_sides import Served
from scripts import script
from test_each_way import Brz, Git, Hg

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

RULE = '[[rules]]\nwho = ["anonymous"]\npath = "**"\nmay = "admin"\n'
LONG = "a-name-and-text-of-more-than-twenty-bytes"

Start = Callable[[str], Served]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts a server with more lines in its access file."""
    made: list[Served] = []

    def begin(rules: str) -> Served:
        folder = tmp_path / "server"
        folder.mkdir()
        (tmp_path / "access.toml").write_text(RULE + rules)
        made.append(Served(folder, "--access", str(tmp_path / "access.toml")))
        return made[0]

    yield begin
    for each in made:
        each.close()


@pytest.fixture(params=[Git, Hg, Brz], ids=["git", "hg", "brz"])
def tool(request: pytest.FixtureRequest) -> type[Git] | type[Brz]:
    found: type[Git] | type[Brz] = request.param
    return found


def begin(tool: type[Git] | type[Brz], server: Served, folder: Path) -> Git | Brz:
    """Make a repository of user a, here and on the server."""
    users = tool(folder / "users", f"hpss://127.0.0.1:{server.direct[1]}/project", server)
    users.begin()
    users.commit("a", "one")
    done = users.run("push", "a")
    assert done.status == 0, done.said
    return users


def test_a_file_over_the_limit_is_named(tool: type[Git] | type[Brz], start: Start, tmp_path: Path) -> None:
    server = start('[[limits]]\npath = "**"\nmax-file-size = 20\n')
    users = begin(tool, server, tmp_path)
    users.commit("a", LONG)
    done = users.run("push", "a")
    assert done.status != 0
    assert f"bytes of the file {LONG} (max-file-size): " in done.err
    assert ", at most 20 are allowed\n" in done.err


HOOK = """\
cat >> {folder}/asked
smartserver ls "$SMARTSERVER_NEW" > {folder}/seen 2>&1
smartserver log -q "$SMARTSERVER_NEW" >> {folder}/seen 2>&1
smartserver cat "$SMARTSERVER_NEW" two >> {folder}/seen 2>&1
if grep -qx two {folder}/seen; then
    echo "no file may be called two"
    echo "ask anna" >&2
    exit 1
fi
"""


def test_a_hook_sees_the_new_and_refuses_it(tool: type[Git] | type[Brz], start: Start, tmp_path: Path) -> None:
    hook = script(tmp_path / "no-two", HOOK.format(folder=tmp_path))
    server = start(f'[[hooks]]\npath = "**"\nbefore = ["{hook}"]\n')
    users = begin(tool, server, tmp_path)
    assert "one" in (tmp_path / "seen").read_text().split()
    (repository,) = (each.parent for each in server.root.rglob("format"))
    files = {each for each in repository.rglob("*") if each.is_file()}
    asked = len((tmp_path / "asked").read_text().splitlines())
    users.commit("a", "two")
    done = users.run("push", "a")
    assert done.status != 0
    assert "refused by the server's hook no-two: no file may be called two; ask anna" in done.err
    seen = (tmp_path / "seen").read_text().splitlines()
    assert seen[-1] == "two", "its text"
    assert len(seen) == 2 + 2 + 1
    assert {each for each in repository.rglob("*") if each.is_file()} == files
    told = [json.loads(line) for line in (tmp_path / "asked").read_text().splitlines()]
    assert len(told) == asked + 1
    assert (told[-1]["user"], told[-1]["repository"]) == ("anonymous", "changed")
    (change,) = (each for each in told[-1]["changes"] if "ref" in each)
    (first,) = next(each for each in told[asked - 1]["changes"] if "ref" in each)["new"]
    assert change["old"] == [first]
    assert change["new"] == [seen[2].split()[0]]


@pytest.mark.parametrize(
    ("tool", "push", "options"),
    [
        (Git, 'a git push -q -o ci.skip -o "two words" "$URL" main', ["ci.skip", "two words"]),
        (Hg, 'a hg push -q --pushvars SKIP=ci --pushvars "B=two words" "$URL"', ["SKIP=ci", "B=two words"]),
    ],
    ids=["git", "hg"],
)
def test_push_options_reach_every_hook(
    tool: type[Git], push: str, options: list[str], start: Start, tmp_path: Path
) -> None:
    """The hooks before a change and those after it receive the options."""
    hooks = ""
    for name in ("before", "after"):
        hook = script(tmp_path / name, f"cat >> {tmp_path}/{name}.told")
        hooks += f'[[hooks]]\npath = "**"\n{name} = ["{hook}"]\n'
    users = begin(tool, start(hooks), tmp_path)
    assert isinstance(users, Git)
    users.commit("a", "two")
    users._side.prepare(push)
    deadline = time.monotonic() + 60
    while (after := _told(tmp_path / "after.told"))[-1:] != [options]:
        assert time.monotonic() < deadline, after
        time.sleep(0.05)
    assert _told(tmp_path / "before.told") == [[], options]
    if tool is Hg:
        users.commit("a", "three")
        refused = users._side.run('a hg push --pushvars nothing "$URL"')
        assert "unable to parse variable 'nothing', should follow 'KEY=VALUE' or 'KEY=' format" in refused.err


def _told(file: Path) -> list[object]:
    """Return the push options of each message; a whole state has none."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line).get("options") for line in lines]

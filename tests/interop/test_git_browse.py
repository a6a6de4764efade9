"""`smartserver export`, `cat`, `ls` and `log` of a repository that real git has pushed agree with git's own output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from browse_sides import File, files_in
from git_sides import Served, Side, fine

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

Begin = Callable[[str], Side]

ODD = r"""
a mkdir -p doc/deep/er src
printf 'guide\n' > a/doc/guide.md; printf 'x' > a/doc/deep/er/x; : > a/empty
printf '#!/bin/sh\n' > a/src/run; chmod +x a/src/run
ln -s ../doc/guide.md a/src/link; ln -s nowhere a/dangling
printf 'umlaut\n' > "a/$(printf 'gr\303\274n')"; printf 'raw\n' > "a/$(printf 'latin\344')"
printf 'a\n' > 'a/with space'
a git add -A; GIT_AUTHOR_NAME='Someone Else' GIT_AUTHOR_DATE='1600000000 +0530' a git commit -qm 'Odd names

With a body.'
mkdir a/folder a/gone a/was
for n in becomes becomes.more folder/x folder/y gone/x gone/y mode was/x was/y; do echo 1 > a/$n; done
a git add -A; a git commit -qm 'Files and folders'
rm -r a/becomes* a/folder/y a/gone a/was; mkdir a/becomes
for n in becomes/x folder/z was; do echo 1 > a/$n; done; echo 2 > a/folder/x; chmod +x a/mode
a git add -A; a git update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,sub
a git commit -qm 'Each is another'; a git commit -q --allow-empty -m 'Nothing changed'
a git rm -rq --cached becomes folder mode sub was; rm -r a/becomes a/folder a/mode a/was; a git commit -qm 'None left'
a git mv doc/guide.md doc/manual.md; a git rm -q empty; a git commit -qm 'Move and remove'
a git merge -q -m 'Merge the topic' topic
a git push -q origin main v1
"""


@pytest.fixture
def odd(ours: Begin) -> Side:
    """A repository with every sort of tree entry and of change, a rename and a merge."""
    side = ours("shared")
    side.prepare(ODD)
    return side


@pytest.mark.parametrize("revision", ["", "@v1", "@topic", "@ID"])
def test_an_export_is_what_git_checks_out(odd: Side, revision: str) -> None:
    older = odd.git("a", "rev-parse", "main~")
    named = older if revision == "@ID" else revision[1:] or "main"
    asked = revision.replace("ID", older[:12])
    fine(odd.run(f'mkdir tree; git -C a archive {named} | tar -xC tree; as c smartserver export "$URL{asked}" out'))
    assert files_in(odd.folder / "out") == files_in(odd.folder / "tree") != {}


def test_a_part_of_a_tree(odd: Side) -> None:
    fine(odd.run('as c smartserver export "$URL" out --path doc'))
    fine(odd.run('as c smartserver export "$URL/doc@main" again'))
    fine(odd.run('as c smartserver export "$URL/doc/manual.md" file'))
    assert files_in(odd.folder / "out") == files_in(odd.folder / "again") == files_in(odd.folder / "a/doc")
    assert files_in(odd.folder / "file") == {b"manual.md": File("file", b"guide\n")}


def test_a_file(odd: Side) -> None:
    assert fine(odd.run('as c smartserver cat "$URL" doc/manual.md')).said == "guide\n"
    assert fine(odd.run('as c smartserver cat "$URL/src/link"')).said == "../doc/guide.md"
    done = odd.run('as c smartserver cat "$URL" doc')
    assert (done.status, "doc is a folder" in done.said) == (1, True)


def test_a_listing(odd: Side) -> None:
    listed = fine(odd.run('as c smartserver ls -R --json "$URL"')).said.splitlines()
    found = {each["path"]: each for each in map(json.loads, listed)}
    files = odd.git("a", "-c", "core.quotePath=false", "ls-tree", "-r", "-l", "-z", "main").split("\0")[:-1]
    expected = {}
    for line in files:
        fields, _, path = line.partition("\t")
        mode, _, _, size = fields.split()
        kind = {"100755": "executable", "120000": "link"}.get(mode, "file")
        expected[path] = (kind, int(size))
    assert {path: (each["type"], each["size"]) for path, each in found.items() if "size" in each} == expected
    assert fine(odd.run('as c smartserver ls "$URL/src/run"')).said == "run\n"
    (single,) = fine(odd.run('as c smartserver ls --json "$URL" doc/manual.md')).said.splitlines()
    assert json.loads(single) == {"path": "manual.md", "type": "file", "size": 6}
    assert {path for path in found if "size" not in found[path]} == {"doc", "doc/deep", "doc/deep/er", "src"}


def test_a_log(odd: Side) -> None:
    logged = fine(odd.run('as c smartserver log -v --json "$URL"')).said.splitlines()
    found = {each["id"]: each for each in map(json.loads, logged)}
    form = "%x1e%H%x1f%an <%ae>%x1f%ad%x1f%P%x1f%B%x1f"
    git = odd.git(
        "a", "-c", "core.quotePath=false", "log", "--diff-merges=first-parent", "--no-renames", "--name-status",
        f"--format={form}", "--date=format:%Y-%m-%d %H:%M:%S %z", "main",
    )  # fmt: skip
    order = list(found)
    assert all(order.index(parent) > order.index(child) for child in order for parent in found[child]["parents"])
    for each in git.split("\x1e")[1:]:
        key, author, date, parents, message, changes = each.split("\x1f")
        said = found.pop(key)
        assert (said["author"], said["date"], said["parents"]) == (author, date, parents.split())
        assert said["message"].rstrip("\n") == message.rstrip("\n")
        told = [f"{change['action']}\t{change['path']}" for change in said["changes"]]
        assert told == [line for line in changes.splitlines() if line]
    assert found == {}


@pytest.mark.parametrize("span", ["v1..main", "main~2..", "topic..main"])
def test_a_range_and_a_path(odd: Side, span: str) -> None:
    oldest, _, newest = span.partition("..")
    oldest = odd.git("a", "rev-parse", f"{oldest}^{{commit}}")
    done = fine(odd.run(f'as c smartserver log -q -r {oldest}..{newest} "$URL"'))
    ids = [line.split()[0] for line in done.said.splitlines()]
    assert sorted(ids) == sorted(odd.git("a", "rev-list", f"{oldest}..{newest or 'main'}").split()) != []
    done = fine(odd.run(f'as c smartserver log -q -r {oldest}..{newest} --path doc "$URL"'))
    ids = [line.split()[0] for line in done.said.splitlines()]
    assert sorted(ids) == sorted(odd.git("a", "rev-list", f"{oldest}..{newest or 'main'}", "--", "doc").split())


def test_without_a_server(odd: Side) -> None:
    assert odd.served is not None
    folder = odd.served.root / odd.path
    asked = fine(odd.run('as c smartserver log "$URL"')).said
    assert fine(odd.run(f'as c smartserver log "{folder}"'), rounds=0).said == asked
    fine(odd.run(f'as c smartserver export "{folder}@main" out'), rounds=0)
    assert files_in(odd.folder / "out")[b"doc/manual.md"] == File("file", b"guide\n")


def test_compression_is_the_choice_of_the_server(tmp_path: Path) -> None:
    """With `auto`, answers to a client on the same machine, as in these tests, are not compressed."""
    sizes = []
    for level in ("auto", "3"):
        folder = tmp_path / level
        folder.mkdir()
        server = Served(folder, "--anonymous", "write", "--compression", level)
        side = Side(folder / "side", server.url("project"), server)
        side.prepare(
            "git init -q a; seq 20000 > a/numbers; git -C a add -A; a git commit -qm x; a git push -q $URL main"
        )
        sizes.append(fine(side.run('as c smartserver export "$URL" out')).counts.bytes_down)
        assert (side.folder / "out/numbers").read_bytes() == (side.folder / "a/numbers").read_bytes()
        assert server.close() == ""
    assert sizes[0] > 100_000 > 2 * sizes[1]

"""vcs.hg.content: `smartserver export`, `ls`, `cat` and `log` show a pushed repository as hg itself does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from browse_sides import Browser, File, date, files_in, shown
from git_sides import Served
from hg_histories import open_repository
from hg_sides import HgSide

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

HISTORY = r"""
hg init a; cd a
commit_at() { hg commit -q -A -d "$1" -u "$2" -m "$3"; }
mkdir -p doc/deep src "a folder"
printf 'guide\n' > doc/guide.txt; printf '\001\ntext\n' > doc/deep/marked; printf '' > empty
printf '#!/bin/sh\n' > src/run; chmod +x src/run; ln -s ../doc/guide.txt src/link; ln -s nowhere broken
printf 'x' > "a folder/$(printf 'odd \\ "name" \344')"; printf 'y' > "$(printf '\303\274.txt')"; printf 'z' > ./-dash
printf 'beside' > doc.txt; printf 'behind' > doc0; printf '\000\377\r\n' > binary
commit_at "1000000000 -5400" "Jos$(printf '\303\251') <jo@example.org>" "first"
hg tag -d "1000000100 0" -u jo v1
printf 'more\n' >> doc/guide.txt; chmod -x src/run; chmod +x empty
commit_at "1000000200 12600" jo "$(printf 'second \342\202\254\n\nwith a body\n  and spaces')"
hg branch -q topic; hg mv -q doc/deep/marked doc/moved; hg cp -q doc.txt src/copied; hg rm -q src/link
commit_at "1000000300 0" jo "on topic"
hg update -q default; rm broken; mkdir broken; printf 'no link\n' > broken/file; hg rm -q --after broken
commit_at "1000000400 0" jo "a folder where a link was"
hg merge -q topic; printf 'merged\n' >> doc/guide.txt
commit_at "1000000500 0" jo "a merge"
hg rm -q "a folder" doc0; commit_at "1000000600 0" jo "two are gone"
hg update -q topic; printf 'later\n' > doc/later; commit_at "1000000700 0" jo "later on topic"
hg bookmark -q -i -r "desc('second')" mark
hg push -q --new-branch "$URL"; hg push -q -B mark "$URL" || [ $? = 1 ]
"""


class Sides:
    """A user's repository, and the pushed copy of all of it."""

    def __init__(self, folder: Path, served: Served) -> None:
        self.side = HgSide(folder / "side", served.url("hg-browsed"), served)
        self.side.prepare(HISTORY)
        self.browser = Browser(folder / "browser", served.url("hg-browsed"))
        self.repository = open_repository(self.side.folder / "a")
        self._count = 0

    def hg(self, command: str, **variables: str) -> str:
        return self.side.prepare(f"cd a; {command}", **variables).out

    def archive(self, revision: str) -> dict[bytes, File]:
        self._count += 1
        self.hg(f'hg --config ui.archivemeta=no archive -r "$REV" ../archived-{self._count}', REV=revision)
        return files_in(self.side.folder / f"archived-{self._count}")

    def node(self, revset: str) -> str:
        return self.hg('hg log -r "$REV" -T "{node}"', REV=revset)


@pytest.fixture(scope="module")
def sides(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Sides:
    return Sides(tmp_path_factory.mktemp("hg-browsed"), served)


def test_an_export_is_what_hg_archives(sides: Sides) -> None:
    """The revision is named in every way; the first export has all sorts of files."""
    second = sides.node("desc('second')")
    for name, revset in {
        "@v1": "v1",
        "": "default",
        "@topic": "topic",
        "@mark": "mark",
        f"@{second[:8]}": second,
        "@0": "0",
        "/topic": "topic",
    }.items():
        exported = sides.browser.export(name)
        assert exported == sides.archive(revset), name
    first = sides.browser.export("@v1")
    assert first[b"src/link"] == File("link", b"../doc/guide.txt")
    assert first[b"src/run"] == File("executable", b"#!/bin/sh\n")
    assert first[b"doc/deep/marked"].content == b"\1\ntext\n"
    assert b'a folder/odd \\ "name" \xe4' in first
    assert {file.sort for file in first.values()} == {"file", "executable", "link", "folder"}


def test_a_log_says_what_hg_says(sides: Sides) -> None:
    said = {each["node"]: each for each in json.loads(sides.hg("hg log -T json -r '::default'"))}
    log = sides.browser.log("", "-v")
    assert {each["id"] for each in log} == said.keys()
    for each in log:
        hgs = said[each["id"]]
        seconds, behind = hgs["date"]
        assert each["author"] == hgs["user"]
        assert each["date"] == date(seconds, -behind)
        assert each["message"] == hgs["desc"]
        assert each["parents"] == [parent for parent in hgs["parents"] if set(parent) != {"0"}]
        assert [(change["action"], change["path"]) for change in each["changes"]] == changes(sides, each["id"])
    places = {each["id"]: at for at, each in enumerate(log)}
    assert all(places[parent] > places[each["id"]] for each in log for parent in each["parents"])
    quiet = sides.browser.log("", "-q")
    assert quiet == [{name: each[name] for name in ("id", "author", "date", "seconds", "zone")} for each in log]


def changes(sides: Sides, node: str) -> list[tuple[str, str]]:
    """Return the changes that `hg status --change` shows."""
    here = sides.repository[bytes.fromhex(node)]
    status = here.p1().status(here)
    pairs: list[tuple[bytes, str]] = []
    for action, paths in (("A", status.added), ("M", status.modified), ("D", status.removed)):
        pairs += [(path, action) for path in paths]
    return [(action, shown(path)) for path, action in sorted(pairs)]


@pytest.mark.parametrize(
    ("span", "revset"),
    [
        ("v1..", "::default - ::v1"),
        ("topic..default", "::default - ::topic"),
        ("..topic", "::topic"),
    ],
)
def test_a_part_of_a_log(sides: Sides, span: str, revset: str) -> None:
    nodes = sides.hg('hg log -r "reverse($REV)" -T "{node}\\n"', REV=revset).split()
    assert nodes
    assert sides.browser.ids("", "-r", span) == nodes
    assert sides.browser.ids("", "-r", span, "-n", "1") == nodes[:1]


@pytest.mark.parametrize("path", ["doc", "doc/guide.txt", "src/run", "broken", "doc0", "absent"])
def test_the_log_of_a_path(sides: Sides, path: str) -> None:
    """A revision is shown if the content of the path differs from that in each parent."""

    def state(here: Any) -> list[tuple[bytes, bytes, bytes]]:
        raw = path.encode()
        there = [each for each in here if each == raw or each.startswith(raw + b"/")]
        return [(each, here.manifest()[each], here.flags(each)) for each in there]

    expected = []
    for node in sides.hg('hg log -r "reverse(::default)" -T "{node}\\n"').split():
        here = sides.repository[bytes.fromhex(node)]
        if all(state(here) != state(parent) for parent in here.parents()):
            expected.append(node)
    assert sides.browser.ids("", "--path", path) == expected
    assert sides.browser.ids(f"/{path}") == expected
    assert bool(expected) == (path != "absent")


def test_the_bookmark_that_a_clone_checks_out(sides: Sides, served: Served, tmp_path: Path) -> None:
    side = HgSide(tmp_path / "side", served.url("hg-browsed-at"), served)
    side.prepare('hg init a; a commit one; a hg bookmark -i @; a commit two; a hg push -q "$URL"')
    side.prepare('a hg push -q -B @ "$URL" || [ $? = 1 ]; hg clone -q "$URL" b')
    browser = Browser(tmp_path / "browser", side.url)
    assert browser.export() == files_in(side.folder / "b", b".hg") == {b"one": File("file", b"one\n")}
    assert browser.export("@tip").keys() == {b"one", b"two"}
    assert browser.export("/default").keys() == {b"one", b"two"}

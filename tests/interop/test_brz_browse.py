"""vcs.bzr.content: `smartserver export`, `ls`, `cat` and `log` show a pushed repository as brz itself does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from breezy.branch import Branch
from breezy.workingtree import WorkingTree
from browse_sides import Browser, File, date, files_in
from brz_sides import Users, in_process
from git_sides import Served

pytestmark = [pytest.mark.interop, pytest.mark.sockets]

PLACE = "brz-browsed"
MESSAGE = "second \u20ac\n\nwith a body\n  and spaces"


def make(users: Users) -> None:
    """Make two branches, merge one into the other, and push both."""

    def write(path: str, content: bytes, mode: int = 0o644) -> None:
        place = users.path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        place.chmod(mode)

    def commit(where: str, message: str, number: int, zone: int = 0, who: str = "Joe", **options: Any) -> None:
        """Commit everything, at a date that is the same in every run."""
        when = {"timestamp": 1_000_000_000.5 + 100 * number, "timezone": zone}
        users.commit_all(where, message, committer=who, **when, **options)

    def tree(where: str) -> Any:
        return WorkingTree.open(str(users.path(where)))

    users.make("a")
    write("a/src/run", b"#!/bin/sh\n", 0o755)
    (users.path("a") / "src" / "link").symlink_to("../doc/\u00fc")
    (users.path("a") / "broken").symlink_to("nowhere")
    (users.path("a") / "hollow" / "empty").mkdir(parents=True)
    for name, content in {
        "doc/guide.txt": b"guide\n", "doc/deep/marked": b"\1\ntext\n", "empty": b"", 'a folder/odd \\ "name"': b"x",
        "\u00fc.txt": b"y", "-dash": b"z", "doc.txt": b"beside", "doc0": b"behind", "binary": b"\0\xff\r\n",
    }.items():  # fmt: skip
        write(f"a/{name}", content)
    commit("a", "first", 1, 5400, "Jos\u00e9 <jo@example.org>")
    users.tag("a", "v1")
    write("a/doc/guide.txt", b"guide\nmore\n")
    write("a/src/run", b"#!/bin/sh\n")
    write("a/empty", b"", 0o755)
    commit("a", MESSAGE, 2, -12600, authors=["Ann <ann@example.org>", "Bob"])
    assert users.run("", "branch", "-q", "a", "t").status == 0
    with in_process():
        tree("t").rename_one("doc/deep/marked", "doc/moved")
        tree("t").rename_one("src", "source")
        tree("t").remove(["source/link"], keep_files=False, force=True)
        commit("t", "on topic", 3)
        tree("a").remove(["broken"], keep_files=False, force=True)
        write("a/broken/file", b"no link\n")
        commit("a", "a folder where a link was", 4)
        assert not tree("a").merge_from_branch(Branch.open(str(users.path("t"))))
        write("a/doc/guide.txt", b"guide\nmore\nmerged\n")
        commit("a", "a merge", 5)
        tree("a").remove(["hollow", "doc0"], keep_files=False, force=True)
        commit("a", "two are gone", 6)
    write("t/doc/later", b"later\n")
    commit("t", "later on topic", 7)
    assert users.run("", "init-shared-repository", "-q", users.url("")).status == 0
    for name, branch in (("a", "trunk"), ("t", "topic")):
        users.fine(name, "push", "-q", users.url(branch))


class Sides:
    """A user's branches, and the pushed copies of all of them."""

    def __init__(self, folder: Path, served: Served) -> None:
        self.users = Users(folder / "users", served, PLACE)
        make(self.users)
        self.browser = Browser(folder / "browser", served.url(PLACE))
        self._count = 0

    def brz(self, *words: str) -> str:
        return self.users.fine("", *words, LC_ALL="C.UTF-8").out

    def checkout(self, branch: str, revision: str) -> dict[bytes, File]:
        """Return the files that `brz export` writes."""
        self._count += 1
        target = f"exported-{self._count}"
        self.brz("export", "--format=dir", "-r", revision, target, branch)
        return files_in(self.users.path(target))


@pytest.fixture(scope="module")
def sides(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Sides:
    return Sides(tmp_path_factory.mktemp("brz-browsed"), served)


def test_an_export_is_that_of_brz(sides: Sides) -> None:
    """The revision is named in every way; the first export has all sorts of files."""
    first = sides.users.revision("a", 1).decode()
    for name, branch, revision in (
        ("@v1", "a", "tag:v1"),
        ("", "a", "-1"),
        ("@2", "a", "2"),
        ("/trunk@-2", "a", "-2"),
        ("@topic", "t", "-1"),
        ("/topic@3", "t", "3"),
        (f"@revid:{first}", "a", "1"),
    ):
        exported = sides.browser.export(name)
        assert exported == sides.checkout(branch, revision), name
    files = sides.browser.export("@tag:v1")
    assert files[b"src/link"] == File("link", "../doc/\u00fc".encode())
    assert files[b"src/run"] == File("executable", b"#!/bin/sh\n")
    assert files[b"hollow/empty"] == File("folder")
    assert files[b"doc/deep/marked"].content == b"\1\ntext\n"
    assert files[b'a folder/odd \\ "name"'] == File("file", b"x")


FIELD = re.compile(r"^ *(revision-id|parent|author|committer|timestamp): (.*)$", re.MULTILINE)


def brz_log(sides: Sides, *words: str) -> list[dict[str, list[str]]]:
    """Return the revisions of `brz log`, newest first, with the fields of each."""
    found: list[dict[str, list[str]]] = []
    for block in sides.brz("log", "-n0", "--show-ids", *words).split("-" * 60 + "\n")[1:]:
        fields: dict[str, list[str]] = {}
        for name, value in FIELD.findall(block.partition("message:")[0]):
            fields.setdefault(name, []).append(value)
        found.append(fields)
    return found


def ids(sides: Sides, *words: str) -> list[str]:
    return [each["revision-id"][0] for each in brz_log(sides, *words)]


def test_a_log_says_what_brz_says(sides: Sides) -> None:
    said = {each["revision-id"][0]: each for each in brz_log(sides, "a")}
    log = sides.browser.log("", "-v")
    assert len(log) == 6
    assert {each["id"] for each in log} == said.keys()
    with in_process():
        repository = Branch.open(str(sides.users.path("a"))).repository
        with repository.lock_read():
            for each in log:
                brzs, revision = said[each["id"]], repository.get_revision(each["id"].encode())
                assert each["author"] == brzs.get("author", brzs["committer"])[0].partition(", ")[0]
                assert each["date"] == date(revision.timestamp, revision.timezone)
                assert each["date"] == brzs["timestamp"][0].partition(" ")[2]
                assert each["message"] == revision.message
                assert each["parents"] == brzs.get("parent", [])
                assert [(change["action"], change["path"]) for change in each["changes"]] == changes(
                    revision, repository
                )
    places = {each["id"]: at for at, each in enumerate(log)}
    assert all(places[parent] > places[each["id"]] for each in log for parent in each["parents"])
    assert {each["author"] for each in log} == {"Jos\u00e9 <jo@example.org>", "Ann <ann@example.org>", "Joe"}
    assert MESSAGE in [each["message"] for each in log]
    quiet = sides.browser.log("", "-q")
    assert quiet == [{name: each[name] for name in ("id", "author", "date", "seconds", "zone")} for each in log]


def changes(revision: Any, repository: Any) -> list[tuple[str, str]]:
    """Return the changes of a revision by Breezy's account, by path: a renamed file is deleted at its old path."""
    parent = revision.parent_ids[0] if revision.parent_ids else b"null:"
    old, new = (contents(repository.revision_tree(each)) for each in (parent, revision.revision_id))
    return [
        ("A" if path not in old else "D" if path not in new else "M", path)
        for path in sorted(old.keys() | new.keys(), key=str.encode)
        if old.get(path) != new.get(path)
    ]


def contents(tree: Any) -> dict[str, object]:
    """Return the object at each path of a Breezy tree, except its root."""
    with tree.lock_read():
        return {
            path: (entry.kind, getattr(entry, "text_sha1", 0), getattr(entry, "executable", 0),
                   getattr(entry, "symlink_target", 0))
            for path, entry in tree.iter_entries_by_dir() if path
        }  # fmt: skip


@pytest.mark.parametrize(
    ("span", "brzs"),
    [("1..", ["-r2..", "a"]), ("v1..3", ["-r2..3", "a"]), ("2..-2", ["-r3..-2", "a"]), ("..v1", ["-r1", "a"])],
)
def test_a_part_of_a_log(sides: Sides, span: str, brzs: list[str]) -> None:
    found = ids(sides, *brzs)
    assert found
    assert sorted(sides.browser.ids("", "-r", span)) == sorted(found)
    assert sides.browser.ids("", "-r", span, "-n", "1") == found[:1]


def test_what_another_branch_has(sides: Sides) -> None:
    assert [each["message"] for each in sides.browser.log("", "-r", "trunk..topic")] == ["later on topic"]
    assert [each["message"] for each in sides.browser.log("/topic", "-r", "trunk..")] == ["later on topic"]


@pytest.mark.parametrize("path", ["doc", "doc/guide.txt", "src/run", "source", "broken", "doc0", "absent"])
def test_the_log_of_a_path(sides: Sides, path: str) -> None:
    """A revision is shown if the content of the path differs from that in each parent."""

    def state(tree: Any) -> list[object]:
        with tree.lock_read():
            return [
                (each, entry.file_id, entry.revision)
                for each, entry in tree.iter_entries_by_dir()
                if each == path or each.startswith(path + "/")
            ]

    expected = []
    with in_process():
        repository = Branch.open(str(sides.users.path("a"))).repository
        with repository.lock_read():
            for name in sides.browser.ids():
                revision = repository.get_revision(name.encode())
                mine = state(repository.revision_tree(name.encode()))
                if all(mine != state(repository.revision_tree(each)) for each in revision.parent_ids or [b"null:"]):
                    expected.append(name)
    assert sides.browser.ids("", "--path", path) == expected
    assert sides.browser.ids(f"/trunk/{path}") == expected
    assert bool(expected) == (path != "absent")


def test_a_branch_that_is_its_own_repository(sides: Sides, served: Served, tmp_path: Path) -> None:
    sides.users.fine("a", "push", "-q", served.url("brz-browsed-alone"))
    browser = Browser(tmp_path / "browser", served.url("brz-browsed-alone"))
    assert browser.export("@1", "--path", "doc") == sides.browser.export("@1", "--path", "doc")
    assert browser.ids("/doc/guide.txt") == sides.browser.ids("/trunk/doc/guide.txt")

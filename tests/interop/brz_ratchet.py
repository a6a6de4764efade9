"""A command that measures each remote command of brz, by stock Breezy over bzr:// beside our plugin over hpss://.

Both sides have the same history (a bzr branch, or the first 3,000 revisions of a git repository or bundle; without PATH
one of 300 revisions is made), the same link and a fresh connection for each command. Exit status 1 if ours takes more
round trips than its budget or a VFS call, leaves user or server in another state, or moves too many bytes.

    make ratchet
    make ratchet ARGS="PATH --only cat --only log --write"
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import click
from bench import histories, options
from bench.breezy import BRZ, WITHOUT_PLUGIN, last_revision, serve_options, settings
from bench.report import say
from bench.servers import Workspace, run
from breezy.branch import Branch
from breezy.trace import be_quiet
from brz_rows import EMPTY, ROWS, Row
from brz_sides import BUDGETS, LOOPBACK, SHIM, Users, copy_start, in_process
from git_sides import Done, Served
from ratchet import Ran, Ratchet, StockServed

from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

NAMES = list(dict.fromkeys([*(row.name for row in ROWS), *(row.run.split()[0] for row in ROWS)]))
"""The names that `--only` accepts: rows and commands."""

JOE = "Joe <joe@example.org>"
"""The committer, whom the history does not know, so that he can sign only his own revisions."""

NEW = re.compile(r"joe@example\.org-\d+-\w+")
"""Matches the id of a revision that was made here, which each side names otherwise."""

PARENT = re.compile(rb"parent_location = .*\n")
"""Matches the option that a push by stock Breezy sets in a new branch, and one by ours does not."""

PIECES = (EMPTY, "mine", "behind", "ahead", "diverged", "bound", "stale", "light", "shared")
"""The folders in which commands run."""


class Commands:
    """All commands of one of the two sides."""

    def __init__(self, folder: Path, served: Served, history: Path) -> None:
        """`history`: a shared repository with the branch `trunk`."""
        folder.mkdir()
        (folder / "signing.py").write_text(LOOPBACK)
        signing = f"signing@{folder / 'signing.py'}"
        self._is_stock = isinstance(served, StockServed)
        self._plugin = signing if self._is_stock else f"hpss@{SHIM}:{signing}"
        self._folder = folder
        self._start = Users(folder / "start", served, "start")
        if self._is_stock:
            shutil.copytree(history, served.root / "start", symlinks=True)
        else:
            self._fine(self._start, "", "init-shared-repository {url}")
            self._fine(self._start, "", f"push -d {history / 'trunk'} {{trunk}}")
        self._make_pieces()

    def _brz(self, users: Users, where: str, *words: str) -> Done:
        cache, without = str(users.cache("joe")), WITHOUT_PLUGIN if self._is_stock else {}
        return users.run(where, *words, plugin=self._plugin, BRZ_EMAIL=JOE, XDG_CACHE_HOME=cache, **without)

    def _fine(self, users: Users, where: str, words: str) -> None:
        """Run a command that must succeed. {...}: as of a row."""
        done = self._brz(users, where, *self._words(users, words))
        assert done.status == 0, done.said

    def _words(self, users: Users, words: str) -> list[str]:
        url, trunk = users.url(""), users.url()
        return [word.format(url=url, trunk=trunk, made=f"{url}-made", file=self._file) for word in words.split()]

    @property
    def _file(self) -> str:
        """The file on which commands are tried: the largest at the root of the tree."""
        files = [each for each in self._start.path("mine").glob("*") if each.is_file() and not each.is_symlink()]
        return max(files, key=lambda each: (each.stat().st_size, each.name)).name if files else ""

    def _make_pieces(self) -> None:
        """Make the branches of the user, and `old` on the server, which lacks ten revisions of `trunk`."""
        start = self._start
        start.path(EMPTY).mkdir()
        for words in (
            "branch {trunk} mine",
            "branch -r -11 mine behind",
            "push -d behind {url}/old",
            "checkout {trunk} bound",
            "checkout -r -11 {trunk} stale",
            "checkout --lightweight {trunk} light",
            "init-shared-repository shared",
            "branch behind shared/old",
        ):
            self._fine(start, "", words)
        for name, source in (("ahead", "mine"), ("diverged", "behind")):
            shutil.copytree(start.path(source), start.path(name), symlinks=True)
        for name in ("bound", "light", "ahead", "ahead"):
            with (start.path(name) / self._file).open("a") as file:
                file.write("edited\n" * 20)
            if name == "ahead":
                start.commit_all(name, "one more")
        (start.path("diverged") / "a-new-file").write_text("new\n")  # No conflict for a merge.
        start.commit_all("diverged", "beside")

    def run(self, number: int, row: Row) -> Ran:
        """Run one command from the start, and return its results and what its user and the server have then."""
        left_out = [piece for piece in PIECES if piece != row.start]
        users = copy_start(self._start, self._folder / f"row-{number}", f"row-{number}", *left_out)
        for words in filter(None, row.before.split("; ")):
            self._fine(users, row.start, words)
        if row.cold:
            users.forget("joe")
        done = self._brz(users, row.start, *self._words(users, row.run), "-Dhpss")
        state = _here(users, row.start) | _there(users)
        shutil.rmtree(users.folder)
        return done, state


def _here(users: Users, where: str) -> dict[str, str]:
    """Return the files of a user, the tip of each branch, and the place and the parents of each tree."""
    found = {}
    for path in users.path(where).rglob("*"):
        if path.is_symlink():
            found[str(path.relative_to(users.folder))] = os.readlink(path)
        elif path.is_file() and (".bzr" not in path.parts or path.name in ("last-revision", "location", "dirstate")):
            text = path.read_bytes()
            if path.name == "dirstate":
                text = text.splitlines()[3]
            elif text.startswith(b"# Bazaar merge directive"):
                text = re.sub(rb"(?m)^#.*\n", b"", text.partition(b"# Begin bundle")[0])
            found[str(path.relative_to(users.folder))] = NEW.sub("NEW", users._plain(text))
    return found


def _there(users: Users) -> dict[str, str]:
    """Return the repositories of the user on the server, and revno, tip, tags and options of each branch in them."""
    found: dict[str, object] = {}
    root = users.served.root
    for name in (users.place, f"{users.place}-made"):
        there = Users(users.folder, users.served, name)
        repository = PackRepository(LocalTransport(root), name)
        if isinstance(users.served, StockServed):
            found |= {name: "a repository"} if (root / name / ".bzr/repository").exists() else {}
            for file in (root / name).rglob(".bzr/branch/branch.conf"):
                with in_process():
                    branch = Branch.open(str(file.parents[2]))
                    tip, tags = branch.last_revision_info(), branch.tags.get_tag_dict()
                found[str(file.parents[2].relative_to(root))] = tip, tags, PARENT.sub(b"", file.read_bytes())
        elif repository.exists():
            found[name] = "a repository"
            for ref in map(bytes.decode, dict(repository.snapshot().state.refs())):
                tags, options = there.served_entries("tags", ref), there.served_entries("config", ref).get("", b"")
                found[str(Path(name, ref))] = there.served_tip(ref), tags, PARENT.sub(b"", options)
    return {name: NEW.sub("NEW", str(value)) for name, value in found.items()}


def measure(source: Path | None, only: Sequence[str]) -> Ratchet:
    be_quiet(True)  # The library would print each commit.
    with Workspace("brz-ratchet") as work:
        fixtures = work.folder / "fixtures"
        fixtures.mkdir()
        environment = {**work.environment("fixtures"), **settings(work.folder), **WITHOUT_PLUGIN}
        version = run([*BRZ, "version", "--short"], None, environment).strip()
        made_from = histories.prepare(source, fixtures, environment)
        history = fixtures / "brz"
        packed = sum(pack.stat().st_size for pack in (history / ".bzr/repository/packs").iterdir()) / 1e6
        revno = last_revision(history / "trunk").split()[0]
        about = f"{made_from}: {revno} revisions on its main line, {packed:.1f} MB packed"
        found = Ratchet(f"Breezy {version}", "bzr://", about)
        root = work.folder / "served-bzr"
        theirs = StockServed(
            work, "bzr", root, lambda host, port: [*BRZ, *serve_options(root, host, port)], environment
        )
        ours = Served(work.folder, "--anonymous", "write")
        work.later(ours.close)
        sides = [Commands(work.folder / name, served, history) for name, served in (("stock", theirs), ("ours", ours))]
        for number, row in enumerate(ROWS):
            if only and not {row.name, row.run.split()[0]} & set(only):
                continue
            say(row.name)
            stock, mine = [side.run(number, row) for side in sides]
            problems = [f"it said: {mine[0].said}"] if row.says not in mine[0].said else []
            if row.same and not mine[0].out == stock[0].out != "":
                problems.append(f"prints {mine[0].out}, stock {stock[0].out}")
            found.add(row, stock, mine, BUDGETS.get(row.budget or row.name, 1), row.times, *problems)
    return found


@click.command()
@options.path(required=False)
@options.only(NAMES, "NAME", "Some commands: push, 'push, diverged'")
@options.write("doc/measurements/brz_commands.md")
def command(path: Path | None, only: Sequence[str], write: bool) -> None:
    """Every remote command of brz, stock over bzr:// beside our plugin over hpss://: trips and bytes.

    PATH is a bzr branch, or a git repository or bundle, of which the first 3,000 revisions are converted.
    """
    pages = options.Pages("brz_ratchet", *([options.MEASUREMENTS / "brz_commands.md"] if write else []))
    measure(path, only).finish(pages)


if __name__ == "__main__":
    command()

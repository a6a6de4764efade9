"""Users of the real brz with branches in a folder, and a repository on a server that they share.

Each user has a cache of its own. The traffic of a command is counted on the link, and by Breezy itself (`-Dhpss`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import breezy
import breezy.bzr
from breezy.branch import Branch
from breezy.controldir import ControlDir, format_registry
from breezy.workingtree import WorkingTree
from brz_forks import FORKS
from git_sides import TIMEOUT, Done, Served, environment, readdress

from smartserver.client.mirrors import Mirrors
from smartserver.client.url import parse
from smartserver.plugins import breezy_shim
from smartserver.store.repository import PackRepository
from transports.local import LocalTransport

ROOT = Path(__file__).parents[2]
SHIM = ROOT / "smartserver" / "plugins" / "breezy_shim"
BUDGETS: dict[str, int] = tomllib.loads((ROOT / "tests" / "budgets.toml").read_text(encoding="utf-8"))["brz"]

LOOPBACK = "from breezy import gpg\n\ngpg.GPGStrategy = gpg.LoopbackGPGStrategy\n"
"""A plugin that signs by framing the text with two lines, so that no user needs a key."""

BECOME_BRZ = "import runpy; runpy.run_module('breezy', run_name='__main__', alter_sys=True)"

CLOSING = re.compile(r"^HPSS calls: (\d+) \((\d+) vfs\) hpss://\S+\n", re.MULTILINE)
"""Matches the line that Breezy writes at the end of a command."""


@contextmanager
def in_process() -> Iterator[None]:
    """Use Breezy as a library, which is quicker than a command if no server is asked.

    A caller that asks a server closes the connection. Otherwise the server's farewell after `KEEP_IDLE` would be
    counted in another test.
    """
    if breezy.get_global_state() is None:
        breezy.initialize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # It leaves files to be closed by themselves.
        yield


class Users:
    """The users of one test; `a` and `b` are folders with their branches."""

    def __init__(self, folder: Path, served: Served, place: str) -> None:
        """`place`: the path of the users' repository on the server."""
        self.folder = folder
        self.served = served
        self.place = place
        self.as_whom: Callable[[], None] | None = None
        """Called in a process before it becomes brz, or None."""
        self.first = ""
        """Python statements that a forked process runs before it becomes brz."""
        folder.mkdir(exist_ok=True)

    def url(self, branch: str = "trunk") -> str:
        """Return the URL of a branch in the repository, through the link."""
        return self.served.url(f"{self.place}/{branch}" if branch else self.place)

    def path(self, name: str) -> Path:
        """Return the path of a user's branch or checkout."""
        return self.folder / name

    # -- commands

    def run(self, where: str, *words: str, plugin: str = f"hpss@{SHIM}", **variables: str) -> Done:
        """Run brz in a folder, as its user, and count the traffic on the link."""
        self.served.proxy.take()
        ours = plugin.startswith(f"hpss@{SHIM}")
        if ours and self.as_whom is None and not any(name.startswith("PYTHON") for name in variables):
            program = ("-c", f"{self.first}\n{BECOME_BRZ}") if self.first else ("-m", "breezy")
            status, out, err = FORKS.run(
                *program,
                *words,
                timeout=TIMEOUT,
                folder=self.folder / where,
                environment=self._environment(where, plugin, variables),
            )
        else:
            process = self.start(where, *words, plugin=plugin, passed=(), **variables)
            try:
                out, err = process.communicate(timeout=TIMEOUT)
            except BaseException:
                process.kill()
                process.communicate()
                raise
            status = process.returncode
        counts = self.served.proxy.take()
        return Done(status, self._plain(out), self._plain(err), counts)

    def fine(self, where: str, *words: str, **variables: str) -> Done:
        """Run a command that must succeed."""
        done = self.run(where, *words, **variables)
        assert done.status == 0, done.said
        return done

    def refused(self, where: str, *words: str, plugin: str = f"hpss@{SHIM}", **variables: str) -> str:
        """Run a command that must end with Breezy's status of an error, and print nothing but its message."""
        done = self.run(where, *words, plugin=plugin, **variables)
        assert (done.status, done.out) == (3, ""), done.said
        return done.err

    def start(
        self, where: str, *words: str, plugin: str = f"hpss@{SHIM}", passed: Sequence[int] = (), **variables: str
    ) -> subprocess.Popen[bytes]:
        """Start brz in a folder as a user does, in a process group of its own. `passed`: inherited descriptors."""
        return subprocess.Popen(
            [sys.executable, "-m", "breezy", *words],
            cwd=self.folder / where,
            env=self._environment(where, plugin, variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=self.as_whom,
            pass_fds=passed,
        )

    def _environment(self, where: str, plugin: str, variables: Mapping[str, str]) -> dict[str, str]:
        user = where.partition("/")[0] or "nobody"
        return {
            **environment(self.folder / ".home"),
            "BRZ_EMAIL": f"{user} <{user}@example.org>",
            "BRZ_LOG": str(self.log),
            "BRZ_PLUGINS_AT": plugin,
            "BRZ_PROGRESS_BAR": "none",
            "XDG_CACHE_HOME": str(self.cache(user)),
            **variables,
        }

    def ask(self, budget: str, where: str, *words: str, status: int = 0, **variables: str) -> str:
        """Run brz with a command that has a budget, and return its output."""
        return CLOSING.sub("", self.run_within(budget, where, *words, status=status, **variables).said)

    def run_within(self, budget: str, where: str, *words: str, status: int = 0, **variables: str) -> Done:
        """Run brz with a command that has a budget, and return its output and the traffic on the link."""
        trips = BUDGETS[budget]
        done = self.run(where, *words, "-Dhpss", **variables)
        assert done.status == status, done.said
        closing = CLOSING.findall(done.err)
        assert closing == ([(str(trips), "0")] if trips else []), done.said
        assert done.counts.rounds == (trips + 1 if trips else 0), (done.counts, done.said)  # One more to connect.
        return done

    def _plain(self, said: bytes) -> str:
        text = said.decode("utf-8", "backslashreplace")
        return text.replace(self.url(""), "URL").replace(str(self.folder), "HERE")

    @property
    def log(self) -> Path:
        """The path of Breezy's log."""
        return self.folder / "brz.log"

    # -- without a command

    def cache(self, user: str) -> Path:
        """Return the folder of a user's caches."""
        return self.folder / ".cache" / user

    def knowledge_files(self, user: str) -> list[Path]:
        """Return the files in which a user's plugin remembers remotes."""
        return sorted((self.cache(user) / "smartserver" / "remotes").glob("*"))

    def forget(self, user: str) -> None:
        """Make a user forget all remotes."""
        shutil.rmtree(self.cache(user), ignore_errors=True)

    def commit(self, where: str, name: str, content: bytes | None = None) -> bytes:
        """Commit a new file, and return the revision."""
        with in_process():
            tree = WorkingTree.open(str(self.path(where)))
            (self.path(where) / name).write_bytes(f"{name}\n".encode() if content is None else content)
            tree.smart_add([str(self.path(where) / name)])
            revision: bytes = tree.commit(f"commit {name}", committer=f"{where} <{where}@example.org>")
            return revision

    def commit_all(self, where: str, message: str, **options: Any) -> bytes:
        """Commit everything, at a time that is the same in every run, and return the revision."""
        with in_process():
            tree = WorkingTree.open(str(self.path(where)))
            tree.smart_add([str(self.path(where))])
            same = {"committer": "Joe <joe@example.org>", "timestamp": 1.7e9, "timezone": 0}
            revision: bytes = tree.commit(message, **{**same, **options})
            return revision

    def make(self, where: str, format_name: str = "2a", *, shared: bool = False) -> None:
        """Make a branch with a working tree, or a shared repository."""
        with in_process():
            made = format_registry.make_controldir(format_name)
            self.path(where).mkdir()
            if shared:
                made.initialize(str(self.path(where))).create_repository(shared=True)
            else:
                ControlDir.create_standalone_workingtree(str(self.path(where)), format=made)

    def add(self, where: str, name: str) -> None:
        """Add a new file."""
        with in_process():
            (self.path(where) / name).write_text(f"{name}\n")
            WorkingTree.open(str(self.path(where))).smart_add([str(self.path(where) / name)])

    def tag(self, where: str, name: str, revno: int | None = None) -> None:
        """Tag a revision; without `revno` the tip."""
        with self.branch(where) as branch:
            revision = branch.last_revision() if revno is None else branch.get_rev_id(revno)
            branch.tags.set_tag(name, revision)

    @contextmanager
    def branch(self, where: str) -> Iterator[Branch]:
        """Yield a local branch, locked."""
        with in_process():
            branch = Branch.open(str(self.path(where)))
            with branch.lock_write():
                yield branch

    def tip(self, where: str) -> tuple[int, bytes]:
        """Return revno and tip of a local branch."""
        with self.branch(where) as branch:
            info: tuple[int, bytes] = branch.last_revision_info()
            return info

    def revision(self, where: str, revno: int) -> bytes:
        """Return the revision with this number in a local branch."""
        with self.branch(where) as branch:
            found: bytes = branch.get_rev_id(revno)
            return found

    def tags(self, where: str) -> dict[str, bytes]:
        """Return the tags of a local branch."""
        with self.branch(where) as branch:
            return dict(branch.tags.get_tag_dict())

    def check(self, where: str) -> None:
        """Check that Breezy finds nothing wrong with a branch and its repository."""
        with self.branch(where) as branch:
            assert branch.repository.check().missing_revision_cnt == 0

    def commit_merge(self, where: str) -> None:
        """Commit a merge."""
        with in_process():
            WorkingTree.open(str(self.path(where))).commit("merged", committer="m <m@example.org>")

    def served_entries(self, name: str, branch: str = "trunk") -> dict[str, bytes]:
        """Return the stored entries of a map that belong to a branch."""
        view = PackRepository(LocalTransport(self.served.root), self.place).snapshot().state
        first = branch.encode() + b"\0"
        entries = dict(view.map(name).items())
        return {key[len(first) :].decode(): value for key, value in entries.items() if key.startswith(first)}

    def served_tip(self, branch: str = "trunk", place: str | None = None) -> tuple[int, bytes] | None:
        """Return the stored revno and tip of a branch; None if there is none."""
        repository = PackRepository(LocalTransport(self.served.root), self.place if place is None else place)
        if not repository.exists():
            return None
        value = repository.snapshot().state.refs().get(branch.encode())
        return None if value is None else (int(value[0].attributes), value[0].id)


START = "brz-start"


def make_start(folder: Path, served: Served) -> Users:
    """Make a repository on the server with `trunk`: three revisions, pushed by user a and branched by user b."""
    users = Users(folder, served, START)
    assert users.run("", "init-shared-repository", users.url("")).status == 0
    users.make("a")
    for name in ("one", "two", "three"):
        users.commit("a", name)
    users.tag("a", "v1", 1)
    assert users.run("a", "push", users.url()).status == 0
    users.fine("", "branch", users.url(), "b", XDG_CACHE_HOME=str(users.cache("b")))
    return users


def copy_start(start: Users, folder: Path, place: str, *without: str) -> Users:
    """Copy the users, except some, and their repository; branches and checkouts then name the copies."""
    start.served.copy(start.place, place)
    shutil.copytree(start.folder, folder, symlinks=True, ignore=shutil.ignore_patterns(*without))
    users = Users(folder, start.served, place)
    for name in ("branch.conf", "location"):
        for config in folder.rglob(f".bzr/branch/{name}"):
            text = config.read_text().replace(start.url(""), users.url(""))
            config.write_text(text.replace(str(start.folder), str(folder)))
    for remotes in folder.glob(".cache/*/smartserver/remotes"):
        readdress(remotes, start.url(""), users.url(""))
    for mirrors in folder.glob(".cache/*/smartserver/mirrors"):
        kept = Mirrors(str(mirrors))
        for each in kept.kept():
            if each.url == parse(start.url("")).key:
                url = parse(users.url("")).key
                made = kept.place(url, bytes.fromhex(each.name.partition("-")[2])).path
                (mirrors / each.name / "url").write_text(url)
                (mirrors / each.name).rename(made)
    return users


Change = Callable[[Users], object]
Begin = Callable[[Change], Users]
assert os.path.isdir(SHIM), SHIM
assert breezy_shim.SCHEMES, "Breezy knows our URLs in this process, too"

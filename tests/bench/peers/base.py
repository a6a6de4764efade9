"""What a tool must say to be compared: how it is served, and the command that does each operation; and the place it is
tried at.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.links import Done, Line
from smartserver.cli.servers import Workspace

CLONE, PULL_NOTHING, PULL_ONE = "clone", "pull nothing", "pull one"
PUSH_ONE, PUSH_NOTHING = "push one", "push nothing"
NEW_BRANCH, TAG, DIVERGED = "push a new branch", "push a tag", "push diverged, refused"
PUSH_ALL, NEW_REPOSITORY = "first push of all", "push a new repository"

OPERATIONS = (
    CLONE, PULL_NOTHING, PULL_ONE, PUSH_ONE, PUSH_NOTHING, NEW_BRANCH, TAG, DIVERGED, PUSH_ALL, NEW_REPOSITORY,
)  # fmt: skip
"""In the order they are shown."""

CLIENT, OTHER = "client", "other"
"""Two users, each with a clone in a folder of that name."""

CHANGED = "a00"
"""The file that users change: the fixture has it."""


Same = Callable[[], tuple[str, str]]
"""Two things that must be equal and not empty, e.g. where server and client are."""


@dataclass(frozen=True)
class Act:
    """One operation of a tool: a command of the first user, in his clone."""

    command: Sequence[str]
    before: Callable[[], object] = lambda: None
    """Comes first and is not measured."""
    same: Same = lambda: ("", "")
    """Asked afterwards."""
    status: int | None = 0
    """Its exit status; None: any but 0."""
    says: str = ""
    """What it must have written to standard error."""
    folder: str = CLIENT
    """Where it runs."""


def wrongs(status: int | None, says: str, ended: int, said: str) -> Iterator[str]:
    """What is wrong with how a command ended that had to end with `status` (None: any but 0), and with what it said."""
    if ended != status if status is not None else ended == 0:
        lines = said.strip().splitlines() or [""]
        first = next((line for line in lines if "ERROR" in line), lines[-1])
        yield f"status {ended}, expected {'a refusal' if status is None else status}: {first}"
    elif says not in said:
        yield f"expected {says!r}, it said: {said.strip()}"


class Peer(ABC):
    """A tool and its server. An object of it lives as long as its site."""

    name: ClassVar[str]
    """What it is asked for by."""
    label: ClassVar[str]
    """What it is called in a table."""
    programs: ClassVar[tuple[str, ...]]
    """What must be installed."""
    earlier: ClassVar[Sequence[int]] = ()
    """Round trips of OPERATIONS, in order, as another instrument counted them before, with 300 revisions."""
    version: ClassVar[Sequence[str]]
    """The command that says its version in its first line."""
    notes: ClassVar[tuple[str, ...]] = ()
    """What a reader of its figures must know."""

    def __init__(self, site: Place, fixtures: Path) -> None:
        """`site`: what lies below its folder is put back before each run; `fixtures`: the history in every form."""
        self.site = site
        self.fixtures = fixtures

    @classmethod
    def lacking(cls, path: str) -> list[str]:
        """Its programs that are not in the folders of `path`."""
        return [program for program in cls.programs if shutil.which(program, path=path) is None]

    @classmethod
    def settings(cls, _folder: Path, _path: str) -> Mapping[str, str]:
        """What is in the environment of its programs, server and client.

        `folder`: the site's; `path`: the folders in which its programs are found.
        """
        return {}

    @classmethod
    @abstractmethod
    def convert(cls, run: Callable[..., str], fixtures: Path) -> None:
        """Make the history in this tool's form, below `fixtures`."""

    @abstractmethod
    def server(self, host: str, port: int) -> Sequence[str]:
        """The command that serves `site.served`."""

    @abstractmethod
    def fill(self) -> None:
        """Put the history on the server, and give both users a clone."""

    @abstractmethod
    def acts(self) -> dict[str, Act]:
        """Each operation it can do."""

    def usual(self, clone: Sequence[str], pull: Sequence[str], push: Sequence[str], refusal: str) -> dict[str, Act]:
        """The operations whose effects all tools describe alike, by their words."""
        return {
            CLONE: Act(clone, same=self.same("clone"), folder="."),
            PULL_NOTHING: Act(pull, same=self.same()),
            PULL_ONE: Act(pull, self.others, self.same()),
            PUSH_ONE: Act(push, lambda: self.commit(CLIENT, "one more"), self.same()),
            PUSH_NOTHING: Act(push, same=self.same()),
            DIVERGED: Act(push, self.diverge, self.same(OTHER), status=None, says=refusal),
        }

    @abstractmethod
    def same(self, folder: str = CLIENT) -> Same:
        """Where the server and a folder of a user's are."""

    @abstractmethod
    def commit(self, user: str, what: str) -> None:
        """Commit a change of one file."""

    @abstractmethod
    def publish(self) -> None:
        """Push what the other user has."""

    def others(self) -> None:
        """The other user is one commit ahead, on the server too."""
        self.commit(OTHER, "one more")
        self.publish()

    def diverge(self) -> None:
        """And so is the first, by another."""
        self.others()
        self.commit(CLIENT, "diverged")

    def change(self, user: str, what: str) -> None:
        """A small change of one file, not committed."""
        with (self.site.folder / user / CHANGED).open("a", encoding="utf-8") as file:
            file.write(f"{what}\n" * 20)


class Place:
    """A site below a folder of its own. What a user's programs remember is below it too, and is put back with it."""

    def __init__(
        self, work: Workspace, folder: Path, peer: type[Peer], line: Line, path: str, settings: Mapping[str, str] = {}
    ) -> None:
        """`path`: the folders of the tool's programs; `settings`: what else is in everybody's environment."""
        self.folder = folder / "live"
        self.served.mkdir(parents=True)
        self._kept = folder / "kept"
        self._line = line
        self._scheme = peer.label.rpartition(" ")[2]
        self._environments: dict[str, Mapping[str, str]] = {}
        for user in (CLIENT, OTHER, "server"):
            own = {"HOME": str(self.folder / "home"), "XDG_CACHE_HOME": str(self.folder / f"cache-{user}")}
            own |= {"PATH": path, **peer.settings(self.folder, path), **settings}
            self._environments[user] = work.environment(user) | own

    @property
    def served(self) -> Path:
        return self.folder / "served"

    def url(self, name: str) -> str:
        """The URL of what lies there below `served`, across the link."""
        return f"{self._scheme}{self._line.host}:{self._line.port}/{name}"

    def environment(self, user: str) -> Mapping[str, str]:
        """Of a user, or of the server."""
        return self._environments[user]

    def attempt(self, user: str, *command: str, folder: str | None = None) -> Done:
        """Run a user's command, whatever becomes of it."""
        return self._line.run(command, self.folder / (user if folder is None else folder), self._environments[user])

    def run(self, user: str, *command: str, folder: str | None = None) -> str:
        return self.attempt(user, *command, folder=folder).check(command).stdout

    def keep(self, name: str) -> None:
        shutil.copytree(self.folder, self._kept / name, symlinks=True)

    def put_back(self, name: str) -> None:
        """Begin anew with what was kept. A server's own folder stays: it may be where the server stands."""
        for folder in (self.folder, self.served):
            for each in folder.iterdir():
                if each == self.served:
                    continue
                if each.is_dir() and not each.is_symlink():
                    shutil.rmtree(each)
                else:
                    each.unlink()
        shutil.copytree(self._kept / name, self.folder, symlinks=True, dirs_exist_ok=True)

    def forget(self, name: str) -> None:
        shutil.rmtree(self._kept / name, ignore_errors=True)

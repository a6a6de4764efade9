"""What a tool must say to be compared: how it is served, and the command that does each operation."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

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


class Site(Protocol):
    """Where a tool is tried: a folder for its server, one for each user, and the link between them.

    All of it is below `folder`, and is put back to what it was before each run.
    """

    folder: Path

    @property
    def served(self) -> Path:
        """What the server serves."""

    def url(self, name: str) -> str:
        """The URL of what lies there below `served`, across the link."""

    def run(self, user: str, *command: str, folder: str | None = None) -> str:
        """What a user's command wrote; it runs in his folder, or in this one below `folder`.

        Raises:
            CommandError: it failed.
        """


@dataclass(frozen=True)
class Act:
    """One operation of a tool: a command of the first user, in his clone."""

    command: Sequence[str]
    before: Callable[[], object] = lambda: None
    """Comes first and is not measured."""
    same: Callable[[], tuple[str, str]] = lambda: ("", "")
    """Asked afterwards: two things that must be equal and not empty, e.g. where server and client are."""
    status: int | None = 0
    """Its exit status; None: any but 0."""
    says: str = ""
    """What it must have written to standard error."""
    folder: str = CLIENT
    """Where it runs."""


class Peer(ABC):
    """A tool and its server. An object of it lives as long as its site."""

    name: ClassVar[str]
    """What it is asked for by."""
    label: ClassVar[str]
    """What it is called in a table."""
    programs: ClassVar[tuple[str, ...]]
    """What must be installed."""
    earlier: ClassVar[Mapping[str, int]] = {}
    """Round trips of operations as another instrument counted them before: a proxy of its own, with 300 revisions."""
    notes: ClassVar[tuple[str, ...]] = ()
    """What a reader of its figures must know."""

    def __init__(self, site: Site, fixtures: Path) -> None:
        """`fixtures`: a folder with the history in every form there is, only read."""
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
    def version(cls) -> Sequence[str]:
        """The command that says its version in its first line."""

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
    def acts(self) -> Mapping[str, Act]:
        """Each operation it can do."""

    def change(self, user: str, what: str) -> None:
        """A small change of one file, not committed."""
        with (self.site.folder / user / CHANGED).open("a", encoding="utf-8") as file:
            file.write(f"{what}\n" * 20)

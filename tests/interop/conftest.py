"""One server for all tests, and start states that each test gets a copy of."""

from __future__ import annotations

import itertools
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from brz_sides import START, Begin, Change, Users, copy_start, make_start
from git_histories import Builder
from git_histories import environment as environment_of_git
from git_sides import Pair, Served, Side, copy_side

HISTORY = r"""
git init -q a
a git remote add origin "$URL"
a commit one; a commit two
a git checkout -q -b topic; a commit topical
a git checkout -q main; a commit three
a git tag light main~1
a git tag -a -m first v1 main~1
a git tag -a -m nested nested v1
a git tag -a -m topical on-topic topic
"""
"""The script that gives user a branches and tags, and pushes nothing."""

SHARED = (
    HISTORY
    + r"""
a git push -q origin 'refs/heads/*' 'refs/tags/*'
as b git clone -q "$URL" b
a git branch -q -u origin/main main; a git branch -q -u origin/topic topic
b git branch -q topic origin/topic
"""
)
"""The script that pushes everything of user a, and clones it for user b."""

STARTS = {"nothing": "", "history": HISTORY, "shared": SHARED}


def _git_side(folder: Path) -> Side:
    side = Side(folder, f"file://{folder}/peer")
    side.prepare("git init -q --bare peer; git -C peer config uploadpack.allowAnySHA1InWant true")
    side.prepare("git -C peer config uploadpack.allowFilter true")
    return side


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that lets everyone write; it must log nothing."""
    server = Served(tmp_path_factory.mktemp("served"), "--anonymous", "write")
    yield server
    assert server.close() == ""


@pytest.fixture(scope="session")
def starts(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """A function that returns one of `STARTS`, made once."""
    made: dict[str, Pair] = {}

    def start(name: str) -> Pair:
        if name not in made:
            folder = tmp_path_factory.mktemp(f"start-{name}")
            made[name] = Pair(Side(folder / "ours", served.url(f"start-{name}"), served), _git_side(folder / "gits"))
            made[name].prepare(STARTS[name])
        return made[name]

    return start


_numbers = itertools.count(1)


@pytest.fixture
def ours(served: Served, starts: Callable[[str], Pair], tmp_path: Path) -> Callable[[str], Side]:
    """A function that copies our side of a start, with a repository of its own on the server."""

    def begin(name: str) -> Side:
        path = f"{name}-{next(_numbers)}"
        start = starts(name).ours
        served.copy(f"start-{name}", path)
        return copy_side(start, tmp_path / "ours", served.url(path))

    return begin


@pytest.fixture
def pair(ours: Callable[[str], Side], starts: Callable[[str], Pair], tmp_path: Path) -> Callable[[str], Pair]:
    """A function that copies a start, with a repository of its own on the server."""
    gits = tmp_path / "gits"
    return lambda name: Pair(ours(name), copy_side(starts(name).gits, gits, f"file://{gits}/peer"))


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment of git without a user's settings."""
    return environment_of_git(tmp_path / "home")


@pytest.fixture
def builder(tmp_path: Path, env: dict[str, str]) -> Builder:
    """A bare repository to write into."""
    return Builder(tmp_path / "r.git", env)


@pytest.fixture(scope="session")
def brz_start(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    """The start of users of brz, made once. Tests use copies, because its users learn about the server."""
    start = make_start(tmp_path_factory.mktemp(START) / "users", served)
    made = _files(start.folder)
    yield start
    assert _files(start.folder) == made, "a test ran with what all others begin with"


def _files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return everything below a folder; for a file its size and time of change."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {
        path: (0, 0) if stat.S_ISDIR(status.st_mode) else (status.st_size, status.st_mtime_ns)
        for path, status in found.items()
    }


@pytest.fixture
def users(brz_start: Users, tmp_path: Path) -> Users:
    """A copy of `brz_start`, with a repository of its own on the server."""
    return copy_start(brz_start, tmp_path / "users", f"brz-{next(_numbers)}")


@pytest.fixture(scope="session")
def brz_templates(brz_start: Users, tmp_path_factory: pytest.TempPathFactory) -> Begin:
    """A function that returns `brz_start` changed by a function; made once for each function."""
    made: dict[Change, Users] = {}

    def template(change: Change) -> Users:
        if change not in made:
            users = copy_start(brz_start, tmp_path_factory.mktemp("brz-template") / "users", f"brz-{next(_numbers)}")
            change(users)
            made[change] = users
        return made[change]

    return template


@pytest.fixture
def changed(brz_templates: Begin, tmp_path: Path) -> Begin:
    """A function that copies a template of `brz_templates`, with a repository of its own on the server."""
    return lambda change: copy_start(brz_templates(change), tmp_path / "users", f"brz-{next(_numbers)}")

"""plugins.breezy.target: what is here of what a command is about to ask for."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import breezy
import breezy.bzr
import pytest
from breezy.branch import Branch
from breezy.controldir import ControlDir, format_registry
from breezy.revision import NULL_REVISION
from brz_running import running

from smartserver.plugins import breezy_shim as hpss
from smartserver.plugins.breezy.target import (
    is_usable,
    likely_target,
    local_tips,
)

URL = "hpss://localhost/p/trunk"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; no branch was opened yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hpss, "opened", [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # Breezy leaves files to be closed by themselves.
        yield tmp_path


def make(name: str, format_name: str = "2a", *, revisions: int = 0) -> Branch:
    """A branch in the current folder, opened."""
    if breezy.get_global_state() is None:
        breezy.initialize()
    Path(name).mkdir()
    made = format_registry.make_controldir(format_name)
    tree = ControlDir.create_standalone_workingtree(name, format=made)
    for number in range(revisions):
        tree.commit(f"number {number}", committer="Joe <joe@example.org>")
    return Branch.open(name)


def place(repository: object) -> str | None:
    return None if repository is None else repository.user_url.rstrip("/").rpartition("/")[2]  # type: ignore[attr-defined]


def test_the_repository_of_the_branch_that_was_opened_last(folder: Path) -> None:
    with running("pull"):
        assert likely_target() is None
        one = make("one")
        two = make("two")
        assert place(likely_target()) == "two"
        older = make("older", "1.14")
        assert not is_usable(older.repository)
        assert place(likely_target()) == "two", "one that cannot be named to a server is passed over"
        assert is_usable(one.repository)
        assert two is not one


def test_the_repository_around_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("around")
    monkeypatch.setattr(hpss, "opened", [])
    (folder / "around" / "below").mkdir()
    monkeypatch.chdir(folder / "around" / "below")
    assert place(likely_target()) == "around"
    with running("merge", location=URL):
        assert place(likely_target()) == "around"


def test_a_new_branch_has_what_the_shared_repository_above_it_holds(folder: Path) -> None:
    opened = make("opened")
    (folder / "shared").mkdir()
    format_registry.make_controldir("2a").initialize(str(folder / "shared")).create_repository(shared=True)
    for arguments, expected in (
        ({"to_location": "shared/new"}, "shared"),
        ({"to_location": "shared/new", "standalone": True}, None),
        ({"to_location": "opened/new"}, None),
        ({"to_location": "new"}, None),
        ({"to_location": None}, None),
    ):
        with running("branch", from_location=URL, **arguments):
            assert place(likely_target()) == expected, arguments
    with running("branch", from_location="opened", to_location=URL):  # What is sent is not what is brought.
        assert place(likely_target()) == place(opened.repository) == "opened"


def test_the_tips_of_what_was_opened(folder: Path) -> None:
    branches = [make("empty"), make("one", revisions=1), make("two", revisions=2), make("older", "1.14")]
    tips = [branch.last_revision() for branch in branches]
    assert tips[0] == NULL_REVISION
    assert local_tips() == [tips[2], tips[1]]
    again = Branch.open("one")
    assert local_tips() == [tips[1], tips[2]], "each once, the newest first"
    assert again is not branches[1]


def test_a_branch_that_was_deleted_is_passed_over(folder: Path) -> None:
    here = make("here", revisions=1)
    gone = make("gone", revisions=1)
    shutil.rmtree(folder / "gone")
    assert local_tips() == [here.last_revision()]
    assert place(likely_target()) == "here"
    assert gone is not here

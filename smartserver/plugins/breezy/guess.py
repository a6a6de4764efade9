"""What is here of what a command is about to ask for, and where that is going to be put.

It is a guess: a wrong one costs bytes or a round trip.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from breezy import errors, urlutils
from breezy.controldir import ControlDir
from breezy.repository import Repository
from breezy.revision import NULL_REVISION

from smartserver.plugins import breezy_shim as hpss
from smartserver.plugins.breezy.commands import running
from smartserver.plugins.breezy.given import given, is_ours
from smartserver.records.model import RevisionId
from smartserver.vcs.base import VcsError
from smartserver.vcs.brz import BrzRepository


def likely_target() -> Repository | None:
    """The repository of the branch that was opened last, else the one around the current folder.

    A new branch has the one that is shared and around it, or none as yet, wherever the command runs.
    """
    place, source = given("to_location"), given("from_location") or given("branch_location")
    if running().makes_folder and source is not None and not is_ours(place):
        return None if given("standalone") else _shared_around(place or urlutils.derive_to_location(source))
    for branch, _ in _opened():
        if is_usable(branch.repository):
            return branch.repository
    return _around(".")


def _around(place: str) -> Repository | None:
    try:
        repository = ControlDir.open_containing(place)[0].find_repository()
    except (errors.BzrError, OSError):
        return None
    return repository if is_usable(repository) else None


def _shared_around(place: str) -> Repository | None:
    """The repository that a new branch at a place is going to use, if it lies above it."""
    repository = _around(urlutils.dirname(place))
    return repository if repository is not None and repository.is_shared() else None


def local_tips() -> list[RevisionId]:
    """The tips of the local branches that were opened, newest first."""
    return list(dict.fromkeys([tip for _, tip in _opened() if tip != NULL_REVISION]))


def _opened() -> Iterator[tuple[Any, RevisionId]]:
    """The local branches that were opened, newest first, with their tips; not one that was deleted since."""
    for reference in [*reversed(hpss.opened)]:  # One that is dropped meanwhile leaves the list.
        branch = reference()
        if branch is None:
            continue
        try:
            tip = branch.last_revision()
        except (errors.BzrError, OSError):
            continue
        yield branch, tip


def is_usable(repository: Repository) -> bool:
    """Whether what it holds may be named to a server."""
    try:
        BrzRepository(repository).check_format()
    except VcsError:
        return False
    return True

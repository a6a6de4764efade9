"""The local repository that history is asked for, and the folder that `brz branch`, `checkout` or `clone` makes.

Which repository it is is a guess: a wrong one costs bytes or a round trip. The folder is looked at before the server is
asked; Breezy looks when the history has come. What it would refuse then is refused in its words.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import Any

from breezy import errors, urlutils
from breezy.controldir import ControlDir
from breezy.repository import Repository
from breezy.revision import NULL_REVISION

from smartserver.plugins import breezy_shim as hpss
from smartserver.plugins.breezy.commands import Makes, running
from smartserver.plugins.breezy.given import current, given, is_ours
from smartserver.records.model import RevisionId
from smartserver.vcs.base import VcsError
from smartserver.vcs.bzr.repository import BrzRepository


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


_checked: weakref.WeakSet[Any] = weakref.WeakSet()
"""The commands whose target was looked at: what is there later they have made themselves."""


def check_target() -> None:
    """Look at the folder the command that runs is going to make, once.

    Raises:
        AlreadyBranchError, AlreadyControlDirError, CommandError: it cannot.
    """
    if not running().makes_folder or (command := current()) in _checked:
        return
    _checked.add(command)
    source, place = given("from_location") or given("branch_location"), given("to_location")
    if place is None and source is not None:
        place = urlutils.derive_to_location(source)
    if not isinstance(place, str) or ":" in place or "," in place:  # A URL, an alias, or a branch in a folder.
        return
    control = _control(place)
    if running().makes is not Makes.BRANCH:  # A clone may go to a folder, but to no shared repository.
        if control is not None and (running().makes is Makes.CLONE or control.has_branch()):
            raise errors.AlreadyControlDirError(control.user_url)
    elif control is not None:
        if control.has_branch():
            raise errors.AlreadyBranchError(place)
    elif os.path.lexists(place):
        if not given("use_existing_dir"):
            raise errors.CommandError(f'Target directory "{place}" already exists.')
    elif not os.path.isdir(os.path.dirname(os.path.abspath(place))):
        raise errors.CommandError(f'Parent of "{place}" does not exist.')


def _control(place: str) -> ControlDir | None:
    try:
        return ControlDir.open(place)
    except (errors.BzrError, OSError):
        return None

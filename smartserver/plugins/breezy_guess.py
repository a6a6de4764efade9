"""Which local repository a command is about to fetch into: what it holds need not be sent.

A guess, made where a remote branch must be read before Breezy says what for. A wrong one costs bytes.
"""

from __future__ import annotations

from breezy import errors
from breezy.controldir import ControlDir
from breezy.plugins import hpss
from breezy.repository import Repository

from smartserver.vcs.base import VcsError
from smartserver.vcs.brz import BrzRepository


def likely_target() -> Repository | None:
    """The repository of the branch that was opened last, else the one around the current folder."""
    for reference in reversed(hpss.opened):
        branch = reference()
        if branch is not None and is_usable(branch.repository):
            return branch.repository
    try:
        repository = ControlDir.open_containing(".")[0].find_repository()
    except (errors.BzrError, OSError):
        return None
    return repository if is_usable(repository) else None


def is_usable(repository: Repository) -> bool:
    """Whether what it holds may be named to a server."""
    try:
        BrzRepository(repository).check_format()
    except VcsError:
        return False
    return True

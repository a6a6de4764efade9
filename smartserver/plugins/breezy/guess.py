"""What a command is about to want, where a remote branch must be read before Breezy says what for.

It is a guess: a wrong one costs bytes or a round trip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from breezy import errors, urlutils
from breezy.controldir import ControlDir
from breezy.directory_service import directories
from breezy.repository import Repository
from breezy.revision import NULL_REVISION

from smartserver.plugins import breezy_shim as hpss
from smartserver.records.model import RevisionId
from smartserver.vcs.base import VcsError
from smartserver.vcs.brz import BrzRepository

READS_OPTIONS = "bind"
"""A command that asks what a branch is and no more; `commit` reads trees, too, in a lightweight checkout."""

NEED_NO_HISTORY = (READS_OPTIONS, "commit")
"""Of those that fetch, commands that read of a branch its tip, tags and configuration alone."""

FETCHES = (
    "bind", "branch", "bundle-revisions", "checkout", "clone", "commit", "fetch-ghosts", "join", "merge",
    "merge-directive", "missing", "pull", "push", "rebase", "reconfigure", "replay", "send", "switch", "update",
)  # fmt: skip
"""Commands that put what they ask for into a local repository, or compare it with one."""


LOCATIONS = (
    "branch", "branch_location", "dir", "directory", "file_list", "filename", "from_location", "location", "new", "old",
    "other", "path", "submit_branch", "to_location",
)  # fmt: skip
"""Names of the arguments that may be locations."""


def is_running(*commands: str) -> bool:
    """Whether it is one of these."""
    return bool(hpss.running) and hpss.running[-1].name in commands


def arguments() -> Mapping[str, Any]:
    """What the command that runs was given, with what aliases of locations (`:parent/f`) stand for; empty if none runs.

    An alias that cannot be looked up is left as it is: Breezy is going to say why.
    """
    if not hpss.running:
        return {}
    command = hpss.running[-1]
    locations = {name: _dereferenced(command.arguments[name]) for name in LOCATIONS if name in command.arguments}
    command.arguments = found = {**command.arguments, **locations}
    return found


def _dereferenced(location: Any) -> Any:
    if isinstance(location, list):
        return [_dereferenced(each) for each in location]
    if isinstance(location, str) and location.startswith(":"):
        try:
            return directories.dereference(location)
        except errors.BzrError:
            pass
    return location


@contextmanager
def reads_options() -> Iterator[None]:
    """While this lasts a branch that is opened is asked for its options alone, whatever command runs."""
    if not hpss.running:
        yield
        return
    command = hpss.running[-1]
    before = command.name, command.arguments
    command.name, command.arguments = READS_OPTIONS, {}
    try:
        yield
    finally:
        command.name, command.arguments = before


def given(name: str) -> Any:
    """What the command that runs was given for an option or argument; None where it was given nothing, or none runs."""
    return arguments().get(name)


def wants_history() -> bool:
    """Whether the history of a branch is going to be asked for."""
    return not (is_running(*NEED_NO_HISTORY) or copies_there())


def reads_here() -> bool:
    """Whether history that is asked for is read, and not put into a repository of the user's."""
    return bool(hpss.running) and not is_running(*FETCHES)


def may_remember() -> bool:
    """Whether what a branch on the server is to become follows from what is remembered of it, as far as that is so."""
    if is_running("tag"):
        decides = not given("revision")
    elif is_running("config", "nick"):
        decides = not given("remove")
    else:
        decides = is_running("uncommit") and not given("dry_run")  # What only shows is refused by nobody.
    # A checkout's own branch is compared with the server's: that must be as it is.
    return decides and any(is_ours(each) for each in arguments().values())


def copies_there() -> bool:
    """Whether a branch is made from what one beside it is."""
    return copies_beside() and not given("revision")


def copies_beside() -> bool:
    """Whether a branch is made from one beside it: they are likely to be in one repository."""
    places = [given("from_location"), given("to_location")]
    if not is_running("branch") or not all(map(is_ours, places)):
        return False
    one, other = [place.rstrip("/").rpartition("/")[0] for place in places]
    return bool(one == other)  # From one to another.


def is_ours(location: object) -> bool:
    """Whether something a command was given is a URL of ours."""
    return isinstance(location, str) and location.startswith(hpss.SCHEMES)


def likely_target() -> Repository | None:
    """The repository of the branch that was opened last, else the one around the current folder.

    A new branch has the one that is shared and around it, or none as yet, wherever the command runs.
    """
    place, source = given("to_location"), given("from_location") or given("branch_location")
    if is_running("branch", "checkout", "clone") and source is not None and not is_ours(place):
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

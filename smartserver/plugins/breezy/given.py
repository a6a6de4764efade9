"""What the command that runs was given; which command it is, `commands` alone asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from breezy import errors
from breezy.directory_service import directories

from smartserver.plugins import breezy_shim as hpss

Arguments = Mapping[str, Any]
"""What a command was given, by name."""

LOCATIONS = (
    "branch", "branch_location", "dir", "directory", "file_list", "filename", "from_location", "location", "new", "old",
    "other", "path", "submit_branch", "to_location",
)  # fmt: skip
"""Names of the arguments that may be locations."""


def current() -> hpss.Running | None:
    """The command that runs, the innermost where one has begun another; a program that calls Breezy runs none."""
    return hpss.running[-1] if hpss.running else None


def arguments() -> Arguments:
    """What the command that runs was given, with what aliases of locations (`:parent/f`) stand for; empty if none runs.

    An alias that cannot be looked up is left as it is: Breezy is going to say why.
    """
    command = current()
    if command is None:
        return {}
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


def given(name: str) -> Any:
    """What the command that runs was given for an option or argument; None where it was given nothing, or none runs."""
    return arguments().get(name)


def is_ours(location: object) -> bool:
    """Whether something a command was given is a URL of ours."""
    return isinstance(location, str) and location.startswith(hpss.SCHEMES)


def lies_beside(arguments: Arguments) -> bool:
    """Whether a branch is made from one beside it: they are likely to be in one repository."""
    places: list[Any] = [arguments.get("from_location"), arguments.get("to_location")]
    if not all(map(is_ours, places)):
        return False
    one, other = [place.rstrip("/").rpartition("/")[0] for place in places]
    return bool(one == other)  # From one to another.

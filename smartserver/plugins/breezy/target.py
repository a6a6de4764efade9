"""Whether the folder that `brz branch`, `checkout` or `clone` is given can become what is made, seen before the server
is asked.

Breezy looks when the history has come. What it would refuse then is refused in its words.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

from breezy import errors, urlutils
from breezy.controldir import ControlDir

from smartserver.plugins.breezy.commands import Makes, running
from smartserver.plugins.breezy.given import current, given

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

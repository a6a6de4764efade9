"""The command of brz that runs, where Breezy's own interfaces do not say what it is about to do.

Nothing here says what a command reads. A command is named only where its own words decide: `push --no-remember` and
`remember=False` of a program are the same call.
"""

from __future__ import annotations

from typing import Any

from smartserver.plugins import breezy_shim as hpss


def current() -> hpss.RunningCommand | None:
    """The innermost command that runs; a program that calls Breezy runs none."""
    return hpss.running[-1] if hpss.running else None


def runs(name: str) -> bool:
    """Whether this command runs."""
    command = current()
    return command is not None and command.name == name


def asks_itself() -> bool:
    """Whether a command has the server do something, and reads nothing of a branch before."""
    return any(map(runs, ("check", "pack", "reconcile", "remove-branch")))


def only_compares() -> bool:
    """Whether a command compares branches, for which Breezy fetches into one of them, and is not to change it."""
    return any(map(runs, ("bundle-revisions", "merge-directive", "send")))


def given(name: str) -> Any:
    """The value of an argument or option of the command that runs; None without one."""
    command = current()
    return None if command is None else command.arguments.get(name)


def is_ours(location: object) -> bool:
    """Whether a location is a URL of ours."""
    return isinstance(location, str) and location.startswith(hpss.SCHEMES)

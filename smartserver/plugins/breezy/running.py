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
    """Say whether the running command has this name."""
    command = current()
    return command is not None and command.name == name


def asks_itself() -> bool:
    """Say whether the command lets the server do something, and reads no branch before."""
    return any(map(runs, ("check", "pack", "reconcile", "remove-branch")))


def only_compares() -> bool:
    """Say whether the command compares branches: Breezy fetches into one of them, which must not change it."""
    return any(map(runs, ("bundle-revisions", "merge-directive", "send")))


def given(name: str) -> Any:
    """The value of an argument or option of the command that runs; None without one."""
    command = current()
    return None if command is None else command.arguments.get(name)


def is_ours(location: object) -> bool:
    """Say whether a location is an hpss:// URL."""
    return isinstance(location, str) and location.startswith(hpss.SCHEMES)

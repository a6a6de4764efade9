"""Tells which command of brz is running, for cases where Breezy's own interfaces do not tell what it is about to do.

A caller checks the name of a command only where Breezy's call is the same in two cases: `push --no-remember` and a
program's `remember=False` are the same call.
"""

from __future__ import annotations

from typing import Any

from smartserver.plugins import breezy_shim as hpss


def current() -> hpss.RunningCommand | None:
    """Return the innermost running command; None in a program that calls Breezy."""
    return hpss.running[-1] if hpss.running else None


def runs(name: str) -> bool:
    """Tell whether the running command has this name."""
    command = current()
    return command is not None and command.name == name


def asks_itself() -> bool:
    """Tell whether the command only starts work on the server, and needs no state of a branch before that."""
    return any(map(runs, ("check", "pack", "reconcile", "remove-branch")))


def only_compares() -> bool:
    """Tell whether the command only compares branches. Breezy then fetches into one of them, which must not change
    it."""
    return any(map(runs, ("bundle-revisions", "merge-directive", "send")))


def given(name: str) -> Any:
    """Return the value of an argument or option of the running command; None without a command."""
    command = current()
    return None if command is None else command.arguments.get(name)


def is_ours(location: object) -> bool:
    """Tell whether a location is an hpss:// URL."""
    return isinstance(location, str) and location.startswith(hpss.SCHEMES)

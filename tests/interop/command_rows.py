"""The part that the tables of commands of git and of hg share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CommandRow:
    """One command of a user."""

    name: str
    run: str
    """The script that is counted and compared: sh, see git_sides and hg_sides."""
    start: str = "shared"
    before: str = ""
    status: int = 0
    most_down: int = 1 << 20
    """The most bytes from the server."""

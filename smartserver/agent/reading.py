"""The commands of `smartserver` that the agent may run. `thin.c` has the same list."""

from __future__ import annotations

from collections.abc import Sequence

NAME = b"smartserver"
"""The first word of a command that is passed to the agent. A command of git is passed without its name."""

READING = ("export", "ls", "cat", "log", "list", "stats")
"""Commands that make one request, which changes nothing on the server. These commands never prompt the user."""

SCHEMES = ("hpss://", "hpss+tls://")
"""The schemes of URLs that need no other program to connect, such as ssh."""


def is_for_agent(words: Sequence[str]) -> bool:
    """Return True if these are the arguments of a command that the agent may run."""
    command = next((word for word in words if not word.startswith("-D")), "")
    return command in READING and any(word.lower().startswith(SCHEMES) for word in words)

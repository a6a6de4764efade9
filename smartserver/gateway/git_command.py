"""The git command that a client asks sshd to run. Every log-in uses this module, so it imports no other module of
ours."""

from __future__ import annotations

import enum
import shlex
from typing import NamedTuple


class Service(enum.StrEnum):
    """The services of a git server."""

    UPLOAD_PACK = "git-upload-pack"
    RECEIVE_PACK = "git-receive-pack"


class GitCommand(NamedTuple):
    """A git command that a client asked sshd to run."""

    service: Service
    path: str


def git_command(original: str) -> GitCommand | None:
    """Return the git command that a client requested, or None if it requested another program. `original`:
    SSH_ORIGINAL_COMMAND."""
    try:
        words = shlex.split(original)
    except ValueError:
        return None
    if len(words) == 3 and words[0] == "git":
        words = [f"git-{words[1]}", words[2]]
    if len(words) != 2 or words[0] not in set(Service):
        return None
    path = words[1].lstrip("/")
    return GitCommand(Service(words[0]), path.removeprefix("~/"))

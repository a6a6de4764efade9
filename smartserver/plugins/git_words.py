"""What a user of git reads of an error: which repository it is about, and what can be done about it."""

from __future__ import annotations

from smartserver.errors import CorruptFile, NoSuchRepository
from smartserver.vcs.base import VcsError, WrongContent
from transports.errors import CodedError

ADVICE = "(its server's administrator can run `smartserver verify` on it)"
"""Where the client cannot know what else is damaged, and can mend none of it."""


def in_words(error: CodedError | VcsError, path: str, server: str = "SERVER") -> str:
    """An error that came of the repository at `path` of `server`, on one line."""
    match error:
        case CorruptFile():
            return f"the repository {path!r} is damaged: {error} {ADVICE}"
        case WrongContent():
            return f"the repository {path!r} seems to be damaged: {error} {ADVICE}"
        case NoSuchRepository(found="a git repository"):
            there = f"hpss://{server}/ANOTHER-PATH"
            return f"{error}, which is not served: to have it served, run `git push --mirror {there}` in it"
        case _:
            return str(error)

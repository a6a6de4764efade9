"""Makes error messages for users of git, which name the repository and say how to resolve the error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smartserver.client.certainty import NoServer
from smartserver.client.places import ADVICE, damage_in_words, how_to_serve, path_in_words
from smartserver.errors import A_GIT_REPOSITORY, CorruptFile, CorruptRecord, LimitExceeded, NoSuchRepository, place
from smartserver.records import limits
from smartserver.vcs.base import VcsError, WrongContent
from transports.errors import CodedError

if TYPE_CHECKING:
    from smartserver.client.places import Place


def _repository(location: Place) -> str:
    path = path_in_words(location)
    return f"the repository {path!r}" if path else f"the repository at {place(path)}"


def in_words(error: CodedError | VcsError, location: Place) -> str:
    """Return the message of an error about the repository at a place, on one line."""
    match error:
        case CorruptFile():
            return damage_in_words(location, error)
        case CorruptRecord() if error.revision:
            return f"{error} (`git fsck` shows whether it is damaged here)"
        case WrongContent():
            return f"{_repository(location)} seems to be damaged: {error} {ADVICE}"
        case NoSuchRepository() if error.found == A_GIT_REPOSITORY:
            return f"{error}, {how_to_serve(location, 'git push --mirror')}"
        case NoServer():
            return f"{location.where}: {error}"
        case LimitExceeded(what=limits.BYTES_OF_RECORD):  # The server's limit is lower than this client assumes.
            return f"a file has {error.value} bytes, expected no more than {error.limit}"
        case LimitExceeded(what=limits.BYTES_OF_SEGMENT):
            return (
                f"the new content of a commit has {error.value} bytes (compressed), expected no more than {error.limit}"
            )
        case _:
            return str(error)

"""`reopen`: a repository is opened that is open."""

from __future__ import annotations

from typing import ClassVar

from smartserver.trace.bans.model import Ban, Cost, Finding, WatchedAnswer, WatchedRequest

OPENS = "Repository.open"


class Reopen(Ban):
    """A repository is opened again in one operation.

    Seen: the state of its repository that an answer carries, by the path of its request, and what later requests on
    that path say they know of it. It counts when one says that it knows nothing, so that all refs and what the server
    can do are sent once more, or when it asks for nothing but `Repository.open`. The second time is one too many:
    whoever keeps the first answer has no use for it. An answer without a state, as where there is no repository,
    begins it again.
    """

    name: ClassVar[str] = "reopen"
    remedy: ClassVar[str] = (
        "Keep what the first answer said of the repository, and name its version in the next request."
    )

    def __init__(self) -> None:
        self._told: set[str] = set()

    def begin(self) -> None:
        """Nothing is open."""
        self._told.clear()

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Compare it with what was told."""
        verb = asked.calls[0][0].name
        if asked.path not in self._told or _is_of_files(asked):
            return None
        if asked.known is None:
            why = f"the state of {asked.path!r} was told before, and the request says it knows nothing"
            return Finding(verb, why, Cost.BODY, share=0.0)  # How much of the answer that is nobody has counted.
        if all(each.name == OPENS for each, _ in asked.calls):
            return Finding(verb, f"{asked.path!r} was opened before")
        return None

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        """Remember the state."""
        if answered.state is not None:
            self._told.add(asked.path)
        elif not _is_of_files(asked):
            self._told.discard(asked.path)


def _is_of_files(asked: WatchedRequest) -> bool:
    """Whether its verbs are such as know no repositories."""
    return any(verb.is_vfs for verb, _ in asked.calls)

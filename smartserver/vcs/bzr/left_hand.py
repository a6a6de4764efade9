"""The left-hand line of a revision: it, its first parent, that one's, and so on. It ends before a ghost.

Whether a first parent is a ghost stands in the revision's header alone, which costs a read of its pack a step: so no
step is taken twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from smartserver.records.content import RepositoryView


class LeftHand:
    """The ordinals of one line, walked as far as was asked for; for one thread at a time."""

    def __init__(self, stored: RepositoryView, ordinal: int) -> None:
        self._stored = stored
        self._walked = [ordinal]
        self._ended = False

    def __iter__(self) -> Iterator[int]:
        steps = 0
        while (ordinal := self.at(steps)) is not None:
            yield ordinal
            steps += 1

    def at(self, steps: int) -> int | None:
        """The revision so many first parents on; None where the line is shorter."""
        walked = self._walked
        while len(walked) <= steps and not self._ended:
            parent = self._stored.first_parent(walked[-1])
            if parent is None:
                self._ended = True
            else:
                walked.append(parent)
        return walked[steps] if steps < len(walked) else None

    def length(self) -> int:
        """How many revisions it has."""
        return sum(1 for _ in self)

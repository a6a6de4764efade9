"""Walks the left-hand line of a revision: itself, its first parent, the parent's first parent, and so on, up to a
ghost.

The number of a revision is the length of its line. Only the revision's header tells whether its first parent is a
ghost, and each look at a header costs a read of a pack. So no step is taken twice, and a number is counted from the
nearest known one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Final

from smartserver.records.content import RepositoryView, TipReader
from smartserver.records.model import RevisionId

MAX_DIGITS: Final = 15
"""The most digits of a number in the attributes of a tip."""


def number_in(attributes: bytes) -> int:
    """Return the number in the attributes of a tip; 0 if they have none."""
    return int(attributes) if attributes.isdigit() and len(attributes) <= MAX_DIGITS else 0


def left_hand(stored: RepositoryView, ordinal: int) -> Iterator[int]:
    """Yield the ordinals of a revision's left-hand history, beginning with its own. The history is read lazily."""
    at: int | None = ordinal
    while at is not None:
        yield at
        at = stored.first_parent(at)


def count_lines(stored: TipReader, tips: Sequence[RevisionId]) -> list[int]:
    """Return the number of each tip; 0 for a missing tip.

    Each line is walked until it meets the line of a tip whose number is proved. The proved lines are walked, too, each
    down to the ordinal that is looked at: a child has a higher ordinal than its parents.
    """
    numbers: dict[int, int] = {}
    lines: list[tuple[int, int]] = []
    """The proved lines as far as they were walked, highest ordinal first: the negative ordinal, and the number."""
    for known in stored.proved():
        ordinal, number = stored.ordinal(known.id), number_in(known.attributes)
        if ordinal is not None and 0 < number <= ordinal + 1:  # An earlier release accepted any number.
            numbers[ordinal] = number
            lines.append((-ordinal, number))
    heapq.heapify(lines)
    counted = []
    for tip in tips:
        walked: list[int] = []
        at = stored.ordinal(tip)
        while at is not None and at not in numbers:
            while lines and -lines[0][0] > at:
                front, number = lines[0]
                below = stored.first_parent(-front)
                if below is None or below in numbers or number == 1:
                    heapq.heappop(lines)
                else:
                    numbers[below] = number - 1
                    heapq.heapreplace(lines, (-below, number - 1))
            if at not in numbers:
                walked.append(at)
                at = stored.first_parent(at)
        number = 0 if at is None else numbers[at]
        for ordinal in reversed(walked):
            number += 1
            numbers[ordinal] = number
        counted.append(number)
    return counted

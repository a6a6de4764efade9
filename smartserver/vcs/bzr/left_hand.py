"""The left-hand line of a revision: it, its first parent, that one's, and so on. It ends before a ghost.

The number of a revision is the length of its line. Whether a first parent is a ghost stands in the revision's header
alone, which costs a read of its pack a step: so no step is taken twice, and a number is counted from the nearest one
that is known.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Final

from smartserver.records.content import RepositoryView, TipReader
from smartserver.records.model import RevisionId

MAX_DIGITS: Final = 15
"""Digits of a number in the attributes of a tip; a longer one is none."""


def number_in(attributes: bytes) -> int:
    """The number that the attributes of a tip say; 0 where they say none."""
    return int(attributes) if attributes.isdigit() and len(attributes) <= MAX_DIGITS else 0


def left_hand(stored: RepositoryView, ordinal: int) -> Iterator[int]:
    """The ordinals of the line of a revision, itself first. It is walked as far as it is read."""
    at: int | None = ordinal
    while at is not None:
        yield at
        at = stored.first_parent(at)


def count_lines(stored: TipReader, tips: Sequence[RevisionId]) -> list[int]:
    """The number of each tip; 0 for one that is not here.

    Each line is walked until it meets that of a tip whose number is proved. For that the proved lines are walked, too,
    each down to the ordinal that is looked at: a child has a higher one than its parents.
    """
    numbers: dict[int, int] = {}
    lines: list[tuple[int, int]] = []
    """The proved lines as far as they were walked, highest ordinal first: its negative, and its number."""
    for known in stored.proved():
        ordinal, number = stored.ordinal(known.id), number_in(known.attributes)
        if ordinal is not None and 0 < number <= ordinal + 1:  # An earlier release took any.
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

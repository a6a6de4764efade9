"""`per-item`: one request for each item of a list, an N+1."""

from __future__ import annotations

import itertools
from typing import ClassVar

from smartserver.trace.bans.model import Ban, Finding, WatchedAnswer, WatchedRequest, value_of
from smartserver.verbs.declare import AnyVerb

ITEMS = 3
"""Requests that are alike, the first included: two may be a question and its continuation. As in `netem.repeats`."""

WRITTEN = ("content", "rest")
"""Arguments of VFS verbs that are what goes into a file."""


class PerItem(Ban):
    """One verb again and again in one operation, one argument differing: an N+1.

    Seen: requests one after the other on one path that have the same verbs and differ in one argument, or in one item
    of a selector, always the same one; what a VFS verb writes into a file is not counted as an argument beside its
    path. The third of them counts: two may be a question and its continuation. What asks for the next part of an answer
    that said there is more (its result has a field `more` that is true) does not: no list of items could have been
    sent. Several calls in one request are one round trip, and never counted.
    """

    name: ClassVar[str] = "per-item"
    remedy: ClassVar[str] = "Ask for all of them in one request."

    def __init__(self) -> None:
        self._last: WatchedRequest | None = None
        self._differing: tuple[int, str] | None = None
        self._alike = 1

    def begin(self) -> None:
        """Nothing was asked."""
        self._last, self._differing, self._alike = None, None, 1

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Compare it with the one before."""
        where = None if self._last is None else _difference(self._last, asked)
        if where is None:
            self._differing, self._alike = None, 1
        elif where == self._differing:
            self._alike += 1
        else:
            self._differing, self._alike = where, 2
        self._last = asked
        if where is None or self._alike < ITEMS:
            return None
        call, field = where
        needless = range(asked.number - (self._alike == ITEMS), asked.number + 1)
        why = f"{self._alike} requests that differ in `{field}` alone"
        return Finding(asked.calls[call][0].name, why, requests=tuple(needless))

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        """Where there is more, the next request goes on."""
        if any(getattr(result, "more", False) is True for result in answered.results):
            self.begin()


def _difference(before: WatchedRequest, after: WatchedRequest) -> tuple[int, str] | None:
    """The one call and field in which two requests differ; None where they differ in more, in less or elsewhere."""
    if before.path != after.path or _verbs(before) != _verbs(after):
        return None
    found = [
        (number, differing)
        for number, ((verb, earlier), (_, later)) in enumerate(zip(before.calls, after.calls, strict=True))
        for field in earlier.__struct_fields__
        if not (verb.is_vfs and field in WRITTEN and value_of(earlier, "path") != value_of(later, "path"))
        for differing in _differing(field, value_of(earlier, field), value_of(later, field))
    ]
    return found[0] if len(found) == 1 else None


def _differing(field: str, earlier: object, later: object) -> list[str]:
    """What differs in a field: that, or the items of a selector that is an array."""
    if field == "selector" and isinstance(earlier, list) and isinstance(later, list):
        pairs = enumerate(itertools.zip_longest(earlier, later))
        return [f"{field}[{number}]" for number, (one, other) in pairs if one != other]
    return [field] if earlier != later else []


def _verbs(asked: WatchedRequest) -> list[AnyVerb]:
    return [verb for verb, _ in asked.calls]

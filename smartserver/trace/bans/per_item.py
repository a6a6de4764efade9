"""`per-item`: one request for each item of a list, an N+1."""

from __future__ import annotations

from typing import ClassVar

from smartserver.trace.bans.model import Ban, Finding, WatchedAnswer, WatchedRequest
from smartserver.verbs.declare import AnyVerb

ITEMS = 3
"""Requests that are alike, the first included: two may be a question and its continuation. As in `netem.repeats`."""


class PerItem(Ban):
    """One verb again and again in one operation, one argument differing: an N+1.

    Seen: requests one after the other on one path that have the same verbs and differ in one argument, always the same
    one. The third of them counts: two may be a question and its continuation. What asks for the next part of an answer
    that said there is more (its result has a field `more` that is true) does not: no list of items could have been
    sent. Several calls in one request are one round trip, and never counted.
    """

    name: ClassVar[str] = "per-item"

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
        return Finding(asked.calls[call][0].name, f"{self._alike} requests that differ in `{field}` alone")

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        """Where there is more, the next request goes on."""
        if any(getattr(result, "more", False) is True for result in answered.results):
            self.begin()


def _difference(before: WatchedRequest, after: WatchedRequest) -> tuple[int, str] | None:
    """The one call and field in which two requests differ; None where they differ in more, in less or elsewhere."""
    if before.path != after.path or _verbs(before) != _verbs(after):
        return None
    found = [
        (number, field)
        for number, ((_, earlier), (_, later)) in enumerate(zip(before.calls, after.calls, strict=True))
        for field in earlier.__struct_fields__
        if getattr(earlier, field) != getattr(later, field)
    ]
    return found[0] if len(found) == 1 else None


def _verbs(asked: WatchedRequest) -> list[AnyVerb]:
    return [verb for verb, _ in asked.calls]

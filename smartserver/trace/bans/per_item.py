"""`per-item`: one request for each item of a list, an N+1."""

from __future__ import annotations

import itertools
from typing import ClassVar, NamedTuple

from smartserver.trace.bans.model import Ban, Finding, WatchedAnswer, WatchedRequest, value_of
from smartserver.verbs.declare import AnyVerb

ITEMS = 3
"""The number of similar requests from which a series counts, as in `netem.repeats`: two may be a question and its
continuation."""

STRIDES = (1, 2)
"""The numbers of requests per item that are recognized: one, or two, such as a check for existence and a read."""

WRITTEN = ("content", "rest")
"""Arguments of VFS verbs that are the content of a file."""


class _Series(NamedTuple):
    """A series of similar requests."""

    where: tuple[int, str] | None
    """The index of the call, and the field, in which the requests of the series differ; None if there is no series."""
    alike: int


class PerItem(Ban):
    """The same verb again and again in one operation, with one argument changing: an N+1.

    Seen: requests one after the other on one path, or every second one, with the same verbs. They differ in one
    argument, or in one item of a selector, always the same one. The content that a VFS verb writes is not counted as an
    argument beside its path. The third request counts, since two may be a question and its continuation. A request for
    the next part of an answer does not count: no list of items could have been sent. An answer is a part if the field
    `more` of its result is true. Several calls in one request are one round trip, and never counted.
    """

    name: ClassVar[str] = "per-item"
    remedy: ClassVar[str] = "Ask for all of them in one request."

    def __init__(self) -> None:
        self._last: list[WatchedRequest] = []
        """The last requests, the newest last: as many as the longest stride."""
        self._series: dict[tuple[int, int], _Series] = {}
        """The series by stride, and by the number of the request modulo the stride."""

    def begin(self) -> None:
        """Forget the requests of the previous operation."""
        self._last.clear()
        self._series.clear()

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Return a finding if the request continues a series of at least `ITEMS`."""
        found = [self._compare(asked, stride) for stride in STRIDES]
        self._last = [*self._last, asked][-max(STRIDES) :]
        return next(filter(None, found), None)

    def _compare(self, asked: WatchedRequest, stride: int) -> Finding | None:
        before = self._last[-stride] if len(self._last) >= stride else None
        where = None if before is None else _difference(before, asked)
        key = (stride, asked.number % stride)
        series = self._series.get(key, _Series(None, 1))
        series = _Series(where, 1 if where is None else series.alike + 1 if where == series.where else 2)
        self._series[key] = series
        if before is None or where is None or series.alike < ITEMS:
            return None
        call, field = where
        needless = (before.number, asked.number) if series.alike == ITEMS else (asked.number,)
        why = f"{series.alike} requests that differ in `{field}` alone"
        return Finding(asked.calls[call][0].name, why, requests=needless)

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        """Forget the series if the answer is incomplete, because the next request then asks for the rest."""
        if any(getattr(result, "more", False) is True for result in answered.results):
            self.begin()


def _difference(before: WatchedRequest, after: WatchedRequest) -> tuple[int, str] | None:
    """Return the index of the call, and the field, if two requests differ only in one field of one call; else None."""
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
    """Return the items in which a field differs: the field, or the items of a selector that is an array."""
    if field == "selector" and isinstance(earlier, list) and isinstance(later, list):
        pairs = enumerate(itertools.zip_longest(earlier, later))
        return [f"{field}[{number}]" for number, (one, other) in pairs if one != other]
    return [field] if earlier != later else []


def _verbs(asked: WatchedRequest) -> list[AnyVerb]:
    return [verb for verb, _ in asked.calls]

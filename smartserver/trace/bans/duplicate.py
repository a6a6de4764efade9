"""`duplicate`: the same question twice."""

from __future__ import annotations

from typing import ClassVar

from smartserver.trace.bans.model import Ban, Finding, WatchedAnswer, WatchedRequest, place
from smartserver.verbs.declare import Arguments
from smartserver.verbs.vfs import GetResult, HasResult, NamesResult, StatResult

ABSENT = (GetResult(None), HasResult(False), NamesResult(None), StatResult(None))
"""Answers that nothing is there."""


class Duplicate(Ban):
    """The same read call twice in one operation.

    Seen: the calls of requests that only read, with their path. It counts when every call of a request was answered
    before in the operation, and this client changed nothing since on that path, above it or below it; or when one
    request has the same call twice. The second time is one too many, since the first answer is there. A request that
    asks something else besides costs no round trip for what it repeats. `Server.ping` says nothing that could be
    remembered. That a file is not there may be asked again: a client waits for it so.
    """

    name: ClassVar[str] = "duplicate"
    remedy: ClassVar[str] = "Keep the first answer."

    def __init__(self) -> None:
        self._answered: list[tuple[str, str, Arguments]] = []

    def begin(self) -> None:
        """Nothing was asked."""
        self._answered.clear()

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Compare it with what was answered."""
        if not asked.reads:
            return None
        calls = _calls(asked)
        twice = next((call for number, call in enumerate(calls) if call in calls[:number]), None)
        if twice is not None:
            return Finding(twice[1], "it is in one request twice")
        if all(call in self._answered for call in calls):
            return Finding(calls[-1][1], "the same was answered before")
        return None

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        """Remember what was done, or that all may be different."""
        if asked.mutates:
            self._answered = [each for each in self._answered if not _near(each[0], asked.path)]
        elif answered.fault is None:
            results = zip(_calls(asked), answered.results, strict=False)
            self._answered += [call for call, result in results if result not in ABSENT]


def _near(path: str, changed: str) -> bool:
    one, other = f"{place(path)}/", f"{place(changed)}/"
    return one.startswith(other) or other.startswith(one) or "//" in (one, other)


def _calls(asked: WatchedRequest) -> list[tuple[str, str, Arguments]]:
    return [(asked.path, verb.name, arguments) for verb, arguments in asked.calls]

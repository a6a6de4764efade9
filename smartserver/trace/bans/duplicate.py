"""`duplicate`: the same question twice."""

from __future__ import annotations

from typing import ClassVar

from smartserver.trace.bans.model import Ban, Finding, WatchedAnswer, WatchedRequest


class Duplicate(Ban):
    """The same read call twice in one operation.

    Seen: the calls of requests that only read, with their path. It counts when every call of a request was answered
    before in the operation and this client changed nothing since, or when one request has the same call twice. The
    second time is one too many, since the first answer is there. A request that asks something else besides costs no
    round trip for what it repeats. `Server.ping` says nothing that could be remembered.
    """

    name: ClassVar[str] = "duplicate"
    remedy: ClassVar[str] = "Keep the first answer."

    def __init__(self) -> None:
        self._answered: list[tuple[object, ...]] = []

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
            return Finding(str(twice[1]), "it is in one request twice")
        if all(call in self._answered for call in calls):
            return Finding(str(calls[-1][1]), "the same was answered before")
        return None

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        """Remember what was done, or that all may be different."""
        if asked.mutates:
            self._answered.clear()
        elif answered.fault is None:
            self._answered += _calls(asked)


def _calls(asked: WatchedRequest) -> list[tuple[object, ...]]:
    return [(asked.path, verb.name, arguments) for verb, arguments in asked.calls]

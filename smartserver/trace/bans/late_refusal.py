"""`late-refusal`: work goes on that was refused."""

from __future__ import annotations

from typing import ClassVar

from smartserver.trace.bans.model import Ban, Cost, Finding, WatchedAnswer, WatchedRequest
from transports.errors import CodedError


class LateRefusal(Ban):
    """Work after the answer was known, as of a push that goes on after it was refused.

    Seen: the answers, and what is sent after them. It counts when bytes of a body, or its end, are sent after the
    answer to their request came; and when, in one operation, a request without a body is asked once more as it was
    refused before, knowing no more of the repository than then. The first byte is one too many. What is on its way when
    the answer comes is not seen, nor is what a server does before it refuses; a refusal that says that the same may
    succeed a moment later is none.
    """

    name: ClassVar[str] = "late-refusal"
    remedy: ClassVar[str] = "Stop when the refusal comes: send no more of the body, and do not ask the same again."

    def __init__(self) -> None:
        self._over: list[WatchedRequest] = []
        self._refused: list[tuple[object, ...]] = []

    def begin(self) -> None:
        """Nothing was refused."""
        self._over.clear()
        self._refused.clear()

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Compare it with what was refused."""
        if _question(asked) in self._refused:
            return Finding(asked.calls[-1][0].name, "the same was refused before")
        return None

    def sending(self, asked: WatchedRequest, chunk: bytes) -> Finding | None:
        """Nobody wants it any more."""
        if any(asked is each for each in self._over):
            return Finding(asked.calls[0][0].name, f"{len(chunk)} bytes of its body after it was answered", Cost.BODY)
        return None

    def sent(self, asked: WatchedRequest) -> Finding | None:
        """As `sending`."""
        return self.sending(asked, b"")

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> None:
        """Remember that it is over, and what was refused."""
        self._over.append(asked)
        fault = answered.fault
        if fault is None:
            refused = bool(answered.results) and all(each is None for each in answered.results)
        else:
            refused = not CodedError.by_code.get(fault.code, CodedError).retryable
        if refused and not asked.has_body:
            self._refused.append(_question(asked))


def _question(asked: WatchedRequest) -> tuple[object, ...]:
    return (asked.path, [(verb.name, arguments) for verb, arguments in asked.calls], asked.flags, asked.known)

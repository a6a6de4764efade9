"""The access log: a line for each request that was answered, refused or given up.

    request user=anna by=token:laptop from=192.0.2.7:50412 path=project verbs=Repository.pull up=212 ms=1.4 ...

Fields without a value are left out, and so are zeros. `doc/howto/run_a_server.md` says what each is. No token is in
them: of what a request says beside its calls, only the id of its trace is.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import NamedTuple

from smartserver.meters import BYTES_READ, BYTES_WRITTEN, FILES_READ, FILES_WRITTEN, READS, SYNCS, Counts
from smartserver.server.header import RequestHeader
from smartserver.server.logfmt import Field, logfmt
from smartserver.wire.messages import Failure, Reply

log = logging.getLogger("smartserver.requests")
slow = logging.getLogger("smartserver.slow")

DONE = "done"
LOST = "lost"
"""The outcome of a request whose connection ended before its answer: a change may have been made or not."""

MAX_PATH = 1024
"""Characters of a path that are logged. No repository can have one as long; a request may name it all the same."""


class EndedRequest(NamedTuple):
    """A request that is over, and what it cost. Times are in seconds."""

    peer: str
    user: str
    by: str
    """The means by which the user was identified."""
    header: RequestHeader | None
    """None where it could not be read."""
    up: int
    """Bytes of the request and its body."""
    down: int
    """Bytes of the answer and its body."""
    lasted: float
    """From its first byte to its final answer."""
    busy: float
    """At work."""
    queued: float
    """With work to do, and no thread for it."""
    spent: Counts
    outcomes: Sequence[str]
    """`DONE` or the code of an error: for each call, or one for all of them."""
    via: str = ""
    """The way in where it is not a connection of our own protocol."""
    service: str = ""
    """The service of another protocol that was asked for, which has no header."""
    path: str = ""
    """The path of the request."""

    @property
    def outcome(self) -> str:
        """The outcome of all calls together: the first that is an error."""
        return next((outcome for outcome in self.outcomes if outcome != DONE), DONE)

    @property
    def verbs(self) -> dict[str, str]:
        """Each verb of the request, and its outcome."""
        if self.header is None:
            return {self.service: self.outcome} if self.service else {}
        names = [verb.name for verb, _ in self.header.calls]
        outcomes = self.outcomes if len(self.outcomes) == len(names) else [self.outcome] * len(names)
        found: dict[str, str] = {}
        for name, outcome in zip(names, outcomes, strict=True):
            if found.get(name, DONE) == DONE:
                found[name] = outcome
        return found

    def fields(self) -> dict[str, Field]:
        """The fields of its line in the log."""
        header, spent, verbs = self.header, self.spent, list(self.verbs)
        calls = 0 if header is None else len(header.calls)
        found: dict[str, Field] = {
            "user": self.user,
            "by": self.by,
            "from": self.peer,
            "via": self.via,
            "path": (self.path if header is None else header.message.path)[:MAX_PATH],
            "verbs": verbs,
            "calls": calls if calls > len(verbs) else 0,
            "up": self.up,
            "down": self.down,
            "ms": _milliseconds(self.lasted),
            "busy_ms": _milliseconds(self.busy),
            "queued_ms": _milliseconds(self.queued),
            "opened": spent[FILES_READ] + spent[FILES_WRITTEN],
            "reads": spent[READS],
            "read": spent[BYTES_READ],
            "written": spent[BYTES_WRITTEN],
            "syncs": spent[SYNCS],
            "outcome": self.outcome,
            "trace": "" if header is None else header.trace_id,
        }
        return {name: value for name, value in found.items() if value}


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 1)


def outcomes_of(message: Reply | Failure) -> list[str]:
    """The outcome of each call."""
    if isinstance(message, Failure):
        return [message.fault.code]
    return [DONE if outcome.fault is None else outcome.fault.code for outcome in message.outcomes]


def log_request(ended: EndedRequest) -> None:
    """Log it. A formatter finds the fields of the record in `fields`."""
    fields = ended.fields()
    with contextlib.suppress(OSError):  # A log that cannot be written costs nobody an answer.
        log.info("request %s", logfmt(fields), extra={"fields": fields})


def log_slow(ended: EndedRequest, spans: Sequence[str]) -> None:
    """Log a request that took long, with what it spent the time on."""
    slow.warning("slow request %s", logfmt({**ended.fields(), "spans": spans}))

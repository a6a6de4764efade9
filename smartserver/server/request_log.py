"""The access log: a line for each request that was answered, refused or abandoned.

    request user=anna by=token:laptop from=192.0.2.7:50412 path=project verbs=Repository.pull up=212 ms=1.4 ...

Fields without a value are left out, and so are zeros. `doc/howto/run_a_server.md` explains the fields. They contain no
token: the only extra field of a request that is logged is the id of its trace.
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
"""The outcome of a request whose connection ended before its answer: its change may have been made or not."""

MAX_PATH = 1024
"""The most characters of a path that are logged. No repository has a longer path, but a request may."""


class EndedRequest(NamedTuple):
    """A completed request and its costs. Times are in seconds."""

    peer: str
    user: str
    by: str
    """The means by which the user was identified."""
    header: RequestHeader | None
    """The decoded request; None if it could not be decoded."""
    up: int
    """Bytes of the request and its body."""
    down: int
    """Bytes of the answer and its body."""
    lasted: float
    """The time from the request's first byte to its final answer."""
    busy: float
    """The time for which tasks of the request ran."""
    queued: float
    """The time for which tasks of the request waited for a thread."""
    spent: Counts
    outcomes: Sequence[str]
    """`DONE` or the code of an error, for each call or once for all calls."""
    via: str = ""
    """The protocol of the client, such as `https`; empty for our own protocol."""
    service: str = ""
    """The requested service, in a request of another protocol, which has no `header`."""
    path: str = ""
    """The path of a request without a header."""

    @property
    def outcome(self) -> str:
        """The first outcome that is an error, else `DONE`."""
        return next((outcome for outcome in self.outcomes if outcome != DONE), DONE)

    @property
    def verbs(self) -> dict[str, str]:
        """The outcome of each verb of the request: the first error of its calls, else `DONE`."""
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
        """Return the fields of the request's line in the log."""
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
    """Return the outcome of each call of an answer; of a failure, the only outcome."""
    if isinstance(message, Failure):
        return [message.fault.code]
    return [DONE if outcome.fault is None else outcome.fault.code for outcome in message.outcomes]


def log_request(ended: EndedRequest) -> None:
    """Log a request. A formatter finds the fields in the attribute `fields` of the log record."""
    fields = ended.fields()
    with contextlib.suppress(OSError):  # An unwritable log must not prevent an answer.
        log.info("request %s", logfmt(fields), extra={"fields": fields})


def log_slow(ended: EndedRequest, spans: Sequence[str]) -> None:
    """Log a slow request with its longest spans."""
    slow.warning("slow request %s", logfmt({**ended.fields(), "spans": spans}))

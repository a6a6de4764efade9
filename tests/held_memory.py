"""The memory of the server that a connection can hold: one row for each use, with the limit that bounds it.

`doc/howto/run_a_server.md` shows this table, and `tests/sockets/test_held_memory.py` measures a real server. No row
applies to a client that may not do the thing; the rows of a push need the permission to write.
"""

from __future__ import annotations

from dataclasses import dataclass

from smartserver.records.limits import MAX_GRAPH, MAX_TAKEN
from smartserver.server.request import CALL_COST, REQUEST_COST
from smartserver.server.session import BACKLOG_HIGH, CANCELLED_HIGH
from smartserver.store.ancestry import MARKS_KEPT
from smartserver.store.known_records import TEXT_BYTES
from smartserver.store.parts import HELD
from smartserver.store.proof import REFERENCES_KEPT
from smartserver.store.verify_packs import TEXTS as VERIFIED
from smartserver.wire.limits import KIB, MAX_CALLS, MAX_MESSAGE, MAX_REQUEST, MAX_RESULTS, MIB, UNREAD_BYTES

GRAPH_TIMES = 4
"""Memory for a graph that is read and compared, in its bytes: 2,600,000 revisions in 60 MB took 228 MB."""

TEXT_TIMES = 2.3
"""Memory for a large record that is decoded whole, in its length: its text, zstd's copy of it, and its frame. In a
push, only a record that names others, or that lies too deep, is decoded whole."""

RESULT_TIMES = 10
"""Memory for a result while it is made, in its encoded length: a map entry's outcome of 7 bytes takes 64 in memory."""

REFERENCE_COST = 100
"""Bytes for each key in the cache of references of records (`store.proof`)."""


@dataclass(frozen=True, slots=True)
class Held:
    """One row of the table."""

    what: str
    most: int
    """The most bytes."""
    limits: str
    """The limits from which the number is computed."""

    @property
    def row(self) -> str:
        """The row as the documentation shows it."""
        shown = f"{self.most // MIB:,} MiB" if self.most >= MIB else f"{self.most // KIB} KiB"
        return f"| {self.what} | {shown} | {self.limits} |"


IDLE = Held("a connection on which nothing is asked", 16 * KIB, "measured: 4 KB")
WAITING = Held(
    "requests that wait or are carried out, cancelled ones too, and parts of uploads that wait to be checked",
    BACKLOG_HIGH + CANCELLED_HIGH * REQUEST_COST,
    "`BACKLOG_HIGH`, `CANCELLED_HIGH`",
)
LARGEST = Held(
    "the largest request besides: 65,536 calls in 8 MiB",
    MAX_REQUEST + CALL_COST * MAX_CALLS,
    "`MAX_REQUEST`, `MAX_CALLS`, `CALL_COST`",
)
RESULT = Held("the results of a request while they are made", RESULT_TIMES * MAX_RESULTS, "`MAX_RESULTS`")
UNREAD = Held("answers that the client does not take", UNREAD_BYTES + MAX_MESSAGE, "`UNREAD_BYTES`, `MAX_MESSAGE`")
READERS = Held("all readers of large files together, beside two pieces of 512 KiB each", HELD, "`HELD`, `PIECE`")
GRAPH = Held("a push: its announced graph, of up to 64 MiB", GRAPH_TIMES * MAX_GRAPH, "`MAX_GRAPH`, `MAX_ANNOUNCED`")
SEGMENT = Held("a push: the segment that is on its way or checked", MAX_TAKEN, "`MAX_TAKEN`")
RECENT = Held(
    "a push: texts decoded lately, what they refer to, and ancestry",
    TEXT_BYTES + REFERENCE_COST * REFERENCES_KEPT + MARKS_KEPT,
    "`TEXT_BYTES`, `REFERENCES_KEPT`, `MARKS_KEPT`",
)
LARGE = Held(
    "all pushes together: a record over 32 MiB that is decoded, one at a time",
    int(TEXT_TIMES * MAX_TAKEN),
    "`MAX_TAKEN`, `LARGE`",
)

VERIFYING = Held(
    "a verification, of which two run at a time: texts, what they refer to, ancestry, a segment and its largest text",
    VERIFIED + REFERENCE_COST * REFERENCES_KEPT + MARKS_KEPT + int(TEXT_TIMES * MAX_TAKEN),
    "`TEXTS`, `REFERENCES_KEPT`, `MARKS_KEPT`, `MAX_TAKEN`",
)

TABLE = (IDLE, WAITING, LARGEST, RESULT, UNREAD, READERS, GRAPH, SEGMENT, RECENT, LARGE, VERIFYING)

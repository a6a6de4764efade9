"""Traces for tests: one with an event of each kind."""

from __future__ import annotations

from collections.abc import Sequence

from smartserver.spans import Part
from smartserver.trace.events import (
    CommandEnded,
    Event,
    ProcessBegan,
    ProcessEnded,
    RequestEnded,
    SpanEnded,
    encode,
)
from smartserver.trace.wait import Trace, traces
from smartserver.wire.messages import ServerSpan

ID = "0af7651916cd43dd8448eb211c80319c"
OTHER_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
EPOCH = 1_700_000_000_000_000

HOSTILE = (
    "</script><script>document.title='hostile'</script>", "<!--<script>", "]]>", '"', "'", "\\", "&lt;", "\u2028\u2029",
    "\x00\x07\x1b[31m\x7f\x85", "\u202egpj.exe", "\u2067\u200f", "DATA", "POLICY", "a\nb", "\U0001f600",
)  # fmt: skip
"""Names that would do harm where they were taken for something else than text."""

RECORDING = """
import os
from smartserver.spans import Part, span
from smartserver.trace.flags import read
from smartserver.trace.tracing import Tracing

tracing = Tracing(read([os.environ.get("SMARTSERVER_DEBUG", "")]), print, "ours", os.environ)
with tracing.listening(), span(Part.LOCAL, "dream"):
    pass
tracing.close()
"""
"""A program that records one span."""


def push(name: str = "project", *, trace: str = ID, process: int = 7) -> list[Event]:
    """A push by a process that one command starts, and a late call over a file; `name` is in each text there is."""
    return [
        ProcessBegan(process, 1, f"git {name}", trace, began=1_040_000, started=1_010_000, epoch=EPOCH),
        SpanEnded(process, Part.LOCAL, 1_045_000, 1_050_000, f"read {name}", 3, 4_000),
        SpanEnded(process, Part.LOCAL, 1_041_000, 1_052_000, f"plan {name}", 1, 9_000),
        SpanEnded(process, Part.CONNECT, 1_053_000, 1_054_000, "TCP"),
        SpanEnded(process, Part.LINK, 1_055_000, 1_155_000),
        RequestEnded(
            process, [f"Branch.tip {name}", "Repository.open"], name, 1_054_500, 1_156_000, "ok", [name, ""],
            answered=1_155_000, up=967, down=447, in_server=39_000,
            server=[
                ServerSpan(Part.QUEUED, "", 0, 1_000), ServerSpan(Part.SERVER, f"commit {name}", 1_000, 40_500),
                ServerSpan(Part.DISK, "sync", 5_000, 9_000),
            ],
        ),
        RequestEnded(
            process, ["get"], name, 1_157_000, 1_158_000, "no-such-file", [name], 1_158_000, 50, 60, 300,
            where=f"{name}.py:3 in f",
        ),
        ProcessEnded(process, 1_160_000, 2, 1, 1017, 507),
        CommandEnded(process - 1, f"git {name}", trace, 1_000_000, 1_165_000, 1),
    ]  # fmt: skip


def read(events: Sequence[Event]) -> list[Trace]:
    """The traces of a file with these events."""
    return traces(encode(each) for each in events)

"""Traces for tests: one with an event of each kind, and any (`any_events`)."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

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


_names = st.one_of(st.sampled_from(["", "read", *HOSTILE]), st.text(max_size=8))
_counts = st.dictionaries(_names, st.integers(0, 9), max_size=2)
_parts = st.sampled_from([*Part, "one of a later release"])
_lengths = st.integers(0, 3000)


@st.composite
def _server_spans(draw: st.DrawFn) -> list[ServerSpan]:
    spans = []
    for _ in range(draw(st.integers(0, 4))):
        start = draw(_lengths)
        spans.append(ServerSpan(draw(_parts), draw(_names), start, start + draw(_lengths)))
    return spans


@st.composite
def _events_of(draw: st.DrawFn, process: int, trace: str) -> list[Event]:
    """What a process did: any spans and requests after it began, whether they nest or not."""
    started = draw(st.one_of(st.none(), st.integers(0, 100)))
    began = (started or 0) + draw(_lengths)
    events: list[Event] = [ProcessBegan(process, 1, draw(_names), trace, began, draw(st.booleans()), started, EPOCH)]
    for _ in range(draw(st.integers(0, 6))):
        start = began + draw(_lengths)
        end = start + draw(_lengths)
        if draw(st.booleans()):
            events.append(SpanEnded(process, draw(_parts), start, end, draw(_names), draw(st.integers(1, 3)), 5))
            continue
        verbs = draw(st.lists(_names, min_size=1, max_size=6))
        answered = draw(st.sampled_from([0, start, end]))
        events.append(
            RequestEnded(
                process, verbs, draw(_names), start, end, draw(_names), draw(st.lists(_names, max_size=6)), answered,
                1, 2, draw(_lengths), draw(_server_spans()), draw(_counts), draw(_names),
            )
        )  # fmt: skip
    if draw(st.booleans()):
        events.append(ProcessEnded(process, began + draw(_lengths), 1, 1, 1, 2))
    return events


@st.composite
def any_events(draw: st.DrawFn) -> list[Event]:
    """The events of one to two commands, each of one to two processes."""
    events: list[Event] = []
    for number, trace in enumerate([ID, OTHER_ID][: draw(st.integers(1, 2))]):
        for process in range(draw(st.integers(1, 2))):
            events += draw(_events_of(10 * number + process + 1, trace))
        if draw(st.booleans()):
            end = 100 + draw(_lengths)
            events.append(CommandEnded(10 * number + 9, draw(_names), trace, 0, end, draw(st.integers(-9, 2))))
    return events

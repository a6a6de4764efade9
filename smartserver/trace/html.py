"""Makes an HTML page of traces that needs no other file.

The page uses only its own script and style (`Content-Security-Policy`). Names from a trace are never in its markup.
They are in a block of JSON in ASCII, without the characters that end a block, and the script shows them as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files

import msgspec

from smartserver.trace.events import RequestEnded, SpanEnded
from smartserver.trace.layout import nested, process_tracks, service
from smartserver.trace.report import CALLED, counted, link
from smartserver.trace.text import size
from smartserver.trace.wait import UNNAMED, Trace, pieces, wait

MARGIN = "margin"
"""A value in place of a part: the time within which the server worked, at an unknown moment."""

REQUEST = "request"
"""A value in place of a part: the whole time from a request to its answer, not divided into parts."""

WAIT = "the wait, each instant once"
"""The title of the first track."""

NAMES = 5
"""The most names of a part in the table."""


class Bar(msgspec.Struct, array_like=True):
    """A bar from `start` to `end`, in microseconds since the wait began. `row` counts from 0, the topmost."""

    row: int
    start: int
    end: int
    part: str
    name: str
    facts: dict[str, list[str]] = {}
    """Lines of text, by their titles."""


class Track(msgspec.Struct):
    """Bars below a title. The bars of a row are in order."""

    title: str
    bars: list[Bar]


class Share(msgspec.Struct):
    """A line of the table of parts."""

    part: str
    called: str
    micro: int
    tenths: int
    """The share in tenths of a per cent. The shares of a table add up to 1,000."""
    names: list[tuple[str, int]]
    """The names of the part's spans with the microseconds of each, the largest first, at most `NAMES`."""


class Command(msgspec.Struct):
    """A command of the trace, in the form that the page shows."""

    program: str
    counted: str
    total: int
    """Microseconds of the wait. The shares add up to it."""
    shares: list[Share]
    tracks: list[Track]
    links: list[str]
    """The lines about the command's connections, from the kernel."""


class Page(msgspec.Struct):
    """The data that the script of a page gets."""

    called: dict[str, str]
    """The names of bars, by part."""
    commands: list[Command]


def html(traces: Sequence[Trace]) -> bytes:
    """Return the page of a file's traces."""
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    allowed = " ".join(
        f"{kind}-src {' '.join(_hash(text) for text in re.findall(f'<{kind}>(.*?)</{kind}>', template, re.DOTALL))};"
        for kind in ("script", "style")
    )
    policy = f"default-src 'none'; {allowed} base-uri 'none'; form-action 'none'"
    before, _, after = template.replace("POLICY", policy, 1).partition("DATA")
    called = {**CALLED, MARGIN: "somewhere in this time", REQUEST: "request"}
    return (before + block(Page(called, [command(trace) for trace in traces])) + after).encode()


def block(content: Page) -> str:
    """Return the content as JSON without characters that HTML treats as markup."""
    text = json.dumps(msgspec.to_builtins(content), ensure_ascii=True, separators=(",", ":"))
    return re.sub("[<>&\x7f]", lambda found: f"\\u{ord(found[0]):04x}", text)


def command(trace: Trace) -> Command:
    """Return the content of the page about a trace."""
    tracks = [each for each in _tracks(trace) if each.bars]
    links = [link(each) for each in trace.links]
    return Command(trace.program, counted(trace), trace.end - trace.start, list(_shares(trace)), tracks, links)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _shares(trace: Trace) -> Iterator[Share]:
    found = wait(trace)
    parts = [part for part in (*CALLED, UNNAMED) if found.parts[part]]
    parts += sorted(found.parts.keys() - set(parts))  # Parts of a later release.
    tenths = _apportioned([found.parts[part] for part in parts], 1000)
    for part, share in zip(parts, tenths, strict=True):
        names = [(name, micro) for name, micro in found.names.get(part, {}).items() if name and micro]
        names = sorted(names, key=lambda each: (-each[1], each[0]))[:NAMES]
        yield Share(part, CALLED.get(part, part), found.parts[part], share, names)


def _apportioned(amounts: Sequence[int], whole: int) -> list[int]:
    """Return integers in the proportions of the amounts that add up to `whole`. The largest remainders round up."""
    total = sum(amounts)
    shares = [amount * whole // total for amount in amounts]
    largest = sorted(range(len(amounts)), key=lambda at: -(amounts[at] * whole % total))
    for at in largest[: whole - sum(shares)]:
        shares[at] += 1
    return shares


def _tracks(trace: Trace) -> Iterator[Track]:
    first = trace.start
    whole = (Bar(0, each.start - first, each.end - first, each.part or UNNAMED, each.name) for each in pieces(trace))
    yield Track(WAIT, _joined(whole))
    for each in process_tracks(trace):
        own = f"{each.program}, process {each.process}"
        yield Track(own, [_span(span, len(around), first) for span, around in nested(each.spans)])
        requests = [_request(request, len(around), first) for request, around in nested(each.requests)]
        yield Track(f"requests of process {each.process}", requests)
        served = list(_served(each.requests, first))
        yield Track(f"the server of process {each.process}, by its own clock", served)


def _joined(bars: Iterator[Bar]) -> list[Bar]:
    """Return the bars. Adjacent bars with the same part and name are joined."""
    joined: list[Bar] = []
    for bar in bars:
        last = joined[-1] if joined else None
        if last is not None and (last.part, last.name, last.end) == (bar.part, bar.name, bar.start):
            last.end = bar.end
        else:
            joined.append(bar)
    return joined


def _span(span: SpanEnded, row: int, first: int) -> Bar:
    facts = {"processor time": [_milliseconds(span.cpu)]} if span.cpu else {}
    if span.count > 1:
        facts["times"] = [str(span.count)]
    return Bar(row, span.start - first, span.end - first, span.part, span.name, facts)


def _request(request: RequestEnded, row: int, first: int) -> Bar:
    arguments = [*request.arguments, *[""] * (len(request.verbs) - len(request.arguments))]
    calls = [f"{verb}({given})" for verb, given in zip(request.verbs, arguments, strict=False)]
    facts = {
        "calls": calls,
        "on": [request.path or "/"],
        "result": [request.result],
        "sent": [size(request.up)],
        "received": [size(request.down)],
        "in the server": [_milliseconds(request.in_server)],
    }
    if request.answered:
        facts["first bytes after"] = [_milliseconds(request.answered - request.start)]
    if request.counts:
        facts["the server counted"] = [f"{name} {count}" for name, count in request.counts.items()]
    if request.where:
        facts["called from"] = request.where.split(" < ")
    return Bar(row, request.start - first, request.end - first, REQUEST, "; ".join(request.verbs), facts)


def _served(requests: Sequence[RequestEnded], first: int) -> Iterator[Bar]:
    """Yield for each request the bar of its margin and, in the rows below, the bars of the server's spans. Requests
    that overlap use separate rows."""
    taken: list[tuple[int, int]] = []
    for request in sorted(requests, key=lambda each: each.start):
        served = service(request)
        if served is None:
            continue
        taken = [(until, row) for until, row in taken if until > served.start]
        top = max((row for _, row in taken), default=0)
        facts = {"request": ["; ".join(request.verbs)], "earlier or later by": [_milliseconds(served.slack)]}
        bars = [Bar(top, served.start - first, served.end - first, MARGIN, "the server", facts)]
        for span, around in nested(served.spans):
            row = top + 1 + len(around)
            bars.append(Bar(row, span.start - first, span.end - first, span.part, span.name, facts))
        yield from bars
        taken.append((served.end, 1 + max(bar.row for bar in bars)))


def _milliseconds(micro: int) -> str:
    return f"{micro / 1000:.3f} ms"

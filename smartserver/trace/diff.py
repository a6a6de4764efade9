"""Compares two traces of the same command: which part of the wait grew, and which requests only one of them has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from smartserver.trace.report import CALLED
from smartserver.trace.text import counted, milliseconds
from smartserver.trace.wait import Trace, Wait, wait

LEAST = 1000
"""The least difference, in microseconds, for which a named span is shown. A smaller one is regarded as chance."""


def lines(before: Trace, after: Trace) -> list[str]:
    """Return the lines of a comparison: the parts of both waits, the largest difference first, each with its named
    spans that differ, then the requests that only one trace has."""
    first, second = wait(before), wait(after)
    result = [f"{'':<34}{'A':>12}{'B':>12}{'difference':>12}"]
    programs = " and ".join(dict.fromkeys([before.program, after.program]))
    result.append(_row(f"{programs}, whole wait", first.total, second.total))
    parts = sorted({*first.parts, *second.parts}, key=lambda part: -abs(second.parts[part] - first.parts[part]))
    for part in parts:
        result.append(_row(f"  {CALLED.get(part, part)}", first.parts[part], second.parts[part]))
        result += _spans(first, second, part)
    return [*result, *_requests(before, after)]


def _spans(first: Wait, second: Wait, part: str) -> Iterator[str]:
    ours, theirs = (each.names.get(part, Counter[str]()) for each in (first, second))
    names = {name for name in (*ours, *theirs) if name and abs(theirs[name] - ours[name]) >= LEAST}
    for name in sorted(names, key=lambda name: -abs(theirs[name] - ours[name])):
        yield _row(f"    {name}", ours[name], theirs[name])


def _requests(before: Trace, after: Trace) -> Iterator[str]:
    ours, theirs = (_asked(each) for each in (before, after))
    for title, more in (("A", ours - theirs), ("B", theirs - ours)):
        if more:
            yield ""
            yield f"{counted(more.total(), 'request')} in {title} only:"
            yield from (f"  {count} x {asked}" for asked, count in more.most_common())


def _asked(trace: Trace) -> Counter[str]:
    """Count the requests by verbs, path and result. Arguments are left out, since ids differ from run to run."""
    return Counter(f"{'; '.join(each.verbs)} on {each.path or '/'}: {each.result}" for each in trace.requests)


def _row(name: str, first: int, second: int) -> str:
    difference = second - first
    sign = "+" if difference > 0 else ""
    return f"{name:<34}{milliseconds(first):>12}{milliseconds(second):>12}{sign + milliseconds(difference):>12}"

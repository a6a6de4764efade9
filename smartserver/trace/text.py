"""The lines that `-Dhpss` shows: one for each request, and a summary of all requests."""

from __future__ import annotations

from collections.abc import Iterator

from smartserver.trace.recorder import CallRecord, Recorder

MOST = 4
"""The most calls in the line of a request. If there are more, only the first is shown."""


def line(record: CallRecord, start: float = 0.0) -> str:
    """Return a line about one request: its verbs and arguments in short, bytes each way, milliseconds in all and in the
    server, and its start in milliseconds after `start`."""
    calls = "; ".join(f"{verb}({arguments})" for verb, arguments in zip(record.verbs, record.arguments, strict=True))
    if len(record.verbs) > MOST:
        calls = f"{record.verbs[0]}(...) and {len(record.verbs) - 1} more"
    elapsed = (record.ended - record.started) * 1000
    return (
        f"hpss: {calls} on {record.path or '/'}: {record.result}, {size(record.bytes_up)} up, "
        f"{size(record.bytes_down)} down, {elapsed:.0f} ms ({record.server_microseconds / 1000:.1f} ms in the server), "
        f"at {(record.started - start) * 1000:.0f} ms"
    )


def lines(record: CallRecord, start: float = 0.0, *, in_detail: bool = False) -> Iterator[str]:
    """Yield the line of one request, and the lines of code that made it if these were recorded. With `in_detail`, also
    yield each call if the line does not show all, and the server's counts."""
    yield line(record, start)
    if in_detail and len(record.verbs) > MOST:
        for verb, arguments in zip(record.verbs, record.arguments, strict=True):
            yield f"    {verb}({arguments})"
    if in_detail and record.counts:
        counts = ", ".join(f"{name} {count}" for name, count in record.counts.items())
        yield f"    the server counted {counts}"
    if record.where:
        yield f"    called from {record.where}"


def summary(recorder: Recorder, now: float, behind: str = "", start: float | None = None) -> str:
    """Return a line about all that a command did. `behind`: the store that the answering process uses, if that process
    runs on this machine. Its link to the store is not counted. `start`: the seconds from the start of the process to
    the recorder's, or None if they are unknown."""
    trips, calls = recorder.round_trips, len(recorder.calls)
    connections = " on a held connection" * bool(calls)
    if recorder.connections:  # The cost of a fresh one depends on its medium: one trip over TCP, two with TLS.
        connections = (
            " on a fresh connection" if recorder.connections == 1 else f" on {recorder.connections} fresh connections"
        )
    vfs = "" if behind else f" ({recorder.vfs_calls} vfs)"
    counted = (
        f"hpss: {trips} round trip{'s' * (trips != 1)}{connections}, {calls} call{'s' * (calls != 1)}{vfs}, "
        f"{size(recorder.bytes_up)} up, {size(recorder.bytes_down)} down, {(now - recorder.started) * 1000:.0f} ms"
    )
    if start is not None:
        counted += f" after a start of {start * 1000:.0f} ms"
    return (
        f"{counted}, all to a process of this machine; what that did at {behind} is not counted" if behind else counted
    )


def counted(number: int, what: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1."""
    return f"{number} {what}{'s' * (number != 1)}"


def milliseconds(micro: int) -> str:
    """Return microseconds in a readable form."""
    return f"{micro / 1000:.1f} ms"


def size(count: int) -> str:
    """Return a number of bytes in a readable form. A KB is 1,000 bytes."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("KB", "MB", "GB"):
        value /= 1000
        if value < 999.95:  # 1000.0 would be 1.0 of the next unit.
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"

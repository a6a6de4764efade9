"""Describes a trace in words: its wait in parts, and a line for each request."""

from __future__ import annotations

from smartserver.programs import exit_reason
from smartserver.spans import Part
from smartserver.trace.events import LinkMeasured, RequestEnded
from smartserver.trace.text import milliseconds, size
from smartserver.trace.wait import UNNAMED, Trace, Wait, wait

CALLED: dict[str, str] = {
    Part.START: "start",
    Part.CONNECT: "connect",
    Part.LOCAL: "local",
    Part.SEND: "send",
    Part.LINK: "wait for the link",
    Part.QUEUED: "queued",
    Part.DISK: "disk",
    Part.SERVER: "in the server",
    Part.RECEIVE: "receive",
}
"""The name of each part, in the order of display."""


def lines(trace: Trace) -> list[str]:
    """Return the lines that describe a trace."""
    worked = f" ({milliseconds(trace.command.cpu)} of processor time)" if trace.command and trace.command.cpu else ""
    result = [f"{trace.program}: {milliseconds(trace.end - trace.start)}{worked}, {counted(trace)}"]
    result += incomplete(trace)
    result += parts(trace)
    result += [f"  {link(each)}" for each in trace.links]
    result += ["", *(_request(trace, request) for request in trace.requests)] if trace.requests else []
    return result


def incomplete(trace: Trace) -> list[str]:
    """Return lines about the parts that a trace lacks, and about a command that failed."""
    status = trace.command.status if trace.command is not None else 0
    failed = [f"  It ended with {exit_reason(status)}."] if status else []
    if not trace.processes:
        return [*failed, "  Nothing of it was recorded: it did not use a server, or its flags name another file."]
    ended = {end.process for end in trace.ends}
    left = sum(process.process not in ended for process in trace.processes)
    return [
        *failed,
        *([f"  The trace is incomplete: {left} of its processes did not record their end."] if left else []),
    ]


def counted(trace: Trace) -> str:
    """Return the numbers of a trace's round trips and connections, in words."""
    trips, connections = (sum(getattr(end, name) for end in trace.ends) for name in ("round_trips", "connections"))
    return f"{trips} round trip{'s' * (trips != 1)}, {connections or 'no'} fresh connection{'s' * (connections != 1)}"


def parts(trace: Trace) -> list[str]:
    """Return a line for each part of the wait."""
    found = wait(trace)
    shown = dict.fromkeys((*CALLED, UNNAMED, *found.parts))  # A later release may have other parts.
    result = [_part(found, part) for part in shown if found.parts[part]]
    if found.overlapped * 200 >= found.total > 0:
        result.append(f"  meanwhile in the server {milliseconds(found.overlapped):>11}")
    return result


def _part(found: Wait, part: str) -> str:
    spent = found.parts[part]
    named = [(name, micro) for name, micro in found.names.get(part, {}).items() if name and micro * 200 >= found.total]
    more = ", ".join(f"{name} {milliseconds(micro)}" for name, micro in sorted(named, key=lambda each: -each[1]))
    share = 100 * spent / max(found.total, 1)
    return f"  {CALLED.get(part, part):<18}{milliseconds(spent):>12} {share:4.0f} %  {more}".rstrip()


def link(found: LinkMeasured) -> str:
    """Return a line about a TCP connection, from the counts of the kernel."""
    said = f"RTT {milliseconds(found.rtt)} (least {milliseconds(found.least_rtt)}), window of {found.window} packets"
    said += f", {found.again} of {found.packets} packets sent again"
    if found.by_window:
        said += f", {milliseconds(found.by_window)} with the server's window full"
    return f"TCP: {said}"


def _request(trace: Trace, each: RequestEnded) -> str:
    verbs = "; ".join(each.verbs[:4]) + (" and more" if len(each.verbs) > 4 else "")
    at = milliseconds(each.start - trace.start)
    took, server = milliseconds(each.end - each.start), milliseconds(each.in_server)
    return (
        f"  at {at}: {verbs} on {each.path or '/'}: {each.result}, {size(each.up)} up, {size(each.down)} down, "
        f"{took} ({server} in the server)"
    )

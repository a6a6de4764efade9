"""Explains a trace: needless costs and the other parts of the wait, in words and in order of cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from smartserver.spans import Part
from smartserver.tcp_state import PREFIX
from smartserver.trace.bans.every import BEHAVIOURS
from smartserver.trace.bans.model import Cost
from smartserver.trace.events import FindingMade, RequestEnded, SpanEnded
from smartserver.trace.predict import LinkEstimate, is_handshake, predicted, round_trip, window_opening
from smartserver.trace.report import incomplete
from smartserver.trace.text import counted, milliseconds, size
from smartserver.trace.wait import UNNAMED, Piece, Trace, pieces, wait
from smartserver.wire.limits import INITIAL_WINDOW
from smartserver.wire.messages import REPACKED

SHARE = 0.05
"""The least share of the wait that is mentioned. A needless round trip is always mentioned."""

LOST = 0.01
"""The share of packets sent again up to which TCP hardly becomes slower."""

STORED, STORED_BYTES = "revisions_stored_already", "revisions_stored_already_bytes"
"""Counters of the server (`smartserver.meters`)."""

FEW, MANY = 3, 0.1
"""Up to FEW packets that were sent again are not taken for a loss, unless they are the share MANY of all packets."""

REASONS: dict[str, str] = {
    Part.START: "The system and Python started the program",
    Part.CONNECT: "A connection was opened or closed",
    Part.LOCAL: "This machine worked",
    Part.SEND: "The link took no more bytes",
    Part.LINK: "The link carried the requests and answers",
    Part.RECEIVE: "What came was read",
    Part.QUEUED: "The server had no thread for the request",
    Part.DISK: "The server's disk was read or written",
    Part.SERVER: "The server worked",
    UNNAMED: "Nothing says what this time went to",
}
"""A sentence for the user about each part of the wait."""


@dataclass
class Charge:
    """The cost of one behaviour at one line of a program."""

    finding: FindingMade
    """The last finding."""
    verbs: dict[str, None] = field(default_factory=dict)
    times: int = 0
    trips: int = 0
    micro: int = 0
    """Microseconds of the wait."""


def lines(trace: Trace, link: LinkEstimate | None = None) -> list[str]:
    """Return the lines that explain a trace. `link`: a link for which the duration is predicted."""
    found = wait(trace)
    result = [f"{trace.program}: {milliseconds(found.total)}, {counted(_trips(trace), 'round trip')}"]
    result += incomplete(trace)
    dear = needless(trace)
    for charge in dear:
        result += ["", *_charge(charge, found.total)]
    if not dear:
        result += ["", "No request was needless, as far as the behaviours of `silly` show."]
    result += ["", "Where the time went:", *_parts(trace), *_links(trace, found.total), *_server(trace)]
    if link is not None:
        rate = f" and {link.rate * 8 / 1e6:g} Mbit/s" if link.rate else ""
        result += ["", f"At RTT {link.rtt * 1000:g} ms{rate} this takes {predicted(trace, link):.2f} s."]
    return result


def needless(trace: Trace) -> list[Charge]:
    """Return the charges that cost a round trip, or at least `SHARE` of the wait, the most expensive first."""
    least = SHARE * (trace.end - trace.start)
    return [each for each in charges(trace) if each.trips or each.micro >= least]


def charges(trace: Trace) -> list[Charge]:
    """Return one charge for each behaviour at each line of each process, the most expensive first."""
    found: dict[tuple[int, str, str], Charge] = {}
    waited = list(pieces(trace))
    charged: set[tuple[int, int]] = set()
    for finding in trace.findings:
        key = (finding.process, finding.behaviour, finding.where)
        charge = found.setdefault(key, Charge(finding))
        charge.finding = finding
        charge.verbs[finding.verb] = None
        new = [start for start in finding.requests if (finding.process, start) not in charged]
        if finding.cost != Cost.BODY:
            charged.update((finding.process, start) for start in new)
        charge.times += len(finding.requests)
        for request in _requests(trace, finding.process, new):
            trips, micro = _price(trace, waited, finding, request)
            charge.trips += trips
            charge.micro += micro
    return sorted(found.values(), key=lambda each: (-each.trips, -each.micro))


def _price(trace: Trace, waited: Sequence[Piece], finding: FindingMade, request: RequestEnded) -> tuple[int, int]:
    """Return the round trips and microseconds that one request of a finding cost needlessly."""
    if finding.cost == Cost.REQUEST:
        return 1, request.end - request.start
    if finding.cost == Cost.CONNECTION:
        spans = list(_connecting(trace, request))
        shakes = sum(map(is_handshake, spans))
        return max(1, shakes), sum(span.end - span.start for span in spans if not span.name)
    if max(request.up, request.down) <= INITIAL_WINDOW:
        return 0, 0  # So few bytes cost no time.
    travelled = sum(
        min(each.end, request.end) - max(each.start, request.start)
        for each in waited
        if each.part in (Part.LINK, Part.SEND) and each.start < request.end and each.end > request.start
    )
    return 0, round(max(0, travelled - round(round_trip(trace) * 1e6)) * finding.share)


def _connecting(trace: Trace, request: RequestEnded) -> Iterator[SpanEnded]:
    """Yield the spans of the connection that was opened for a request."""
    before = [each.end for each in trace.requests if each.process == request.process and each.start < request.start]
    since = max(before, default=0)
    for span in trace.spans:
        if span.process == request.process and span.part == Part.CONNECT and since <= span.start <= request.start:
            yield span


def _requests(trace: Trace, process: int, starts: Sequence[int]) -> list[RequestEnded]:
    return [request for request in trace.requests if request.process == process and request.start in starts]


def _charge(charge: Charge, total: int) -> Iterator[str]:
    finding = charge.finding
    share = 100 * charge.micro / max(total, 1)
    trips = f"{counted(charge.trips, 'round trip')}, " if charge.trips else ""
    times = f", {charge.times} times" if charge.times > 1 else ""
    yield f"{trips}{milliseconds(charge.micro)} ({share:.0f} %): {finding.behaviour}, {', '.join(charge.verbs)}{times}"
    yield f"  {finding.why}"
    yield f"  called from {finding.where or 'a place that is not known'}"
    behaviour = BEHAVIOURS.get(finding.behaviour)
    if behaviour is not None:
        yield f"  {behaviour.remedy}"


def _parts(trace: Trace) -> Iterable[str]:
    """Yield a line for each part that is at least `SHARE` of the wait, the largest first."""
    found = wait(trace)
    for part, micro in found.parts.most_common():
        if micro >= SHARE * found.total:
            names = [name for name, spent in found.names.get(part, {}).items() if name and spent >= SHARE * found.total]
            named = f": {', '.join(names)}" if names else ""
            share = 100 * micro / max(found.total, 1)
            yield f"  {milliseconds(micro)} ({share:.0f} %): {REASONS.get(part, part)}{named}."


def _links(trace: Trace, total: int) -> Iterator[str]:
    """Yield lines about the TCP connections: packets sent again, full windows, delayed packets and slow start."""
    names = ("again", "packets", "by_window", "delays")
    own = {name: sum(getattr(link, name) for link in trace.links) for name in names}
    server = {name: sum(request.counts.get(PREFIX + name, 0) for request in trace.requests) for name in names}
    waited = wait(trace).parts
    yield from _link(own, total, waited[Part.LINK] + waited[Part.SEND], "from here", "the server's", "this program's")
    yield from _link(server, total, waited[Part.LINK], "from the server", "this machine's", "the server's")
    if trace.requests and not (trace.links or server["packets"]):
        yield "  TCP: what the kernel knows of the connection is not visible."
    trips, micro = window_opening(trace)
    if trips and micro >= SHARE * total:
        until = "until a fresh connection's window was open; the agent keeps connections"
        yield f"  TCP: {counted(trips, 'round trip')}, {milliseconds(micro)}, {until}."


def _link(
    seen: Mapping[str, int], total: int, waited: int, direction: str, receiver: str, sender: str
) -> Iterator[str]:
    """Yield lines about the bytes that one side sent, from the counts of its kernel. `waited`: the microseconds of the
    wait that the link took. A busy receiver also lets its window become full; the kernel then sends packets again that
    were not lost."""
    again, packets = seen["again"], seen["packets"]
    is_lossy = again > max(FEW, LOST * packets) or 0 < again >= MANY * packets
    if is_lossy and seen["by_window"] < SHARE * total:
        yield f"  TCP: {again} of {packets} packets {direction} were lost and sent again."
    by_window = min(seen["by_window"], waited)
    if by_window >= max(1, SHARE * total):
        yield f"  TCP: {milliseconds(by_window)} {receiver} receive window was full (net.ipv4.tcp_rmem)."
    if seen["delays"]:
        yield f"  TCP: {sender} socket delays small packets (Nagle's algorithm): set TCP_NODELAY."


def _server(trace: Trace) -> Iterator[str]:
    """Yield lines about costs that the server counted: pushed revisions that it had, and a repack at the same time."""
    count, held = (sum(each.counts.get(name, 0) for each in trace.requests) for name in (STORED, STORED_BYTES))
    if held > INITIAL_WINDOW:
        yield f"  {counted(count, 'revision')}, {size(held)}, came to a server that had them."
    if any(REPACKED in request.counts for request in trace.requests):
        yield "  The server joined packs of the repository meanwhile."


def _trips(trace: Trace) -> int:
    return sum(end.round_trips for end in trace.ends)

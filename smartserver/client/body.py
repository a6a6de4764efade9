"""The bodies of pushes and answers: segments as they lie or as one bulk stream, cut where a sender looks for a refusal.

Each sending makes the body again. It comes in pieces: some bytes, and how many segments end in them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from smartserver.client.medium import ConnectionLost, MediumError
from smartserver.client.request import BodySource, NotOurProtocol
from smartserver.records.model import GraphNode, Plan
from smartserver.records.segment import encode_graph, read_length
from smartserver.records.varint import MAX_BYTES
from smartserver.spans import Part, span, spans_of, spent
from smartserver.wire.errors import ProtocolError
from smartserver.wire.limits import GRAPH_FIRST_THRESHOLD
from smartserver.wire.messages import RequestFlag
from transports.errors import CodedError

PIECE = 32 * 1024
"""Bytes of an upload between two looks for a refusal."""

HELD = 64 * 1024
"""Bytes of segments after which a bulk stream holds nothing back, so that the server has work while the next are made:
zstd by itself holds back 128 KiB, the last of which nobody worked on meanwhile. Of 5.3 MB it costs no byte; each 32 KiB
0.1 %."""


OnSent = Callable[[int, int, int], None]
"""Called with the bytes and the revisions sent so far, and the revisions in all."""


class EmptyBody:
    """The source of a push that brings no revision, and its plan."""

    graph: Sequence[GraphNode] = ()

    def plan(self, tips: object, haves: object) -> EmptyBody:
        """Whatever is asked for."""
        return self

    def segments(self) -> Iterable[bytes]:
        """None."""
        return ()

    def without_bases(self, keys: object) -> EmptyBody:
        """The same."""
        return self


class SourceFailed(Exception):
    """A push could not read its source: `why`. The client that sends must not take it for the end of its connection."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


@contextmanager
def of_source() -> Iterator[None]:
    """Raise what fails in the block as `SourceFailed`."""
    try:
        yield
    except (CodedError, MediumError, ProtocolError, NotOurProtocol) as error:
        raise SourceFailed(error) from error


class Relay(EmptyBody):
    """A body that comes from elsewhere, as the source and the plan of a push; it is passed on as it comes, and nobody
    knows its graph. One that is an iterator is passed on once."""

    def __init__(self, body: Iterable[bytes], count: int, size: int, sent: OnSent) -> None:
        self.count = count
        """Segments in it."""
        self._body = body
        self._size = size
        self._sent = sent
        self._begun = False

    def plan(self, tips: object, haves: object) -> Relay:
        """The bytes that came, passed on."""
        return self

    def __call__(self) -> Iterator[tuple[bytes, int]]:
        """The pieces of it; a `BodySource`.

        Raises:
            SourceFailed: where it comes from failed, or it was passed on before.
        """
        if self._begun and isinstance(self._body, Iterator):
            raise SourceFailed(ConnectionLost("its data cannot be read a second time; run the command again"))
        self._begun = True
        done, held = 0, b""
        with of_source():
            for chunk in self._body:
                if held:
                    yield held, 0
                held = chunk
                done += len(chunk)
                self._sent(done, done, self._size)
        yield held, self.count


def announcing(plan: Plan) -> BodySource:
    """The graph of what would come, for a push that is only checked."""
    graph = encode_graph(plan.graph)
    return lambda: [(graph, 0)]


def sending(plan: Plan, *, bulk: bool, announced: bool = True) -> tuple[RequestFlag, BodySource]:
    """The body of a push, and the flags that say its form. `bulk`: as a bulk stream, where that is shorter.
    `announced`: with its graph first, where it is long."""
    first, rest = _begin(plan)
    if rest is None:
        packed = _packed(first) if bulk else None
        return (RequestFlag.NONE, _Body(plan, first, whole=True)) if packed is None else (RequestFlag.BULK, packed)
    form = RequestFlag.GRAPH_FIRST if announced else RequestFlag.NONE
    body = _Body(plan, itertools.chain(first, rest), whole=not announced)
    return (form | RequestFlag.BULK, _BulkBody(body)) if bulk else (form, body)


def reported(body: BodySource, total: int, sent: OnSent) -> BodySource:
    """The same body; `sent` is called after each piece, and at the end with all of the `total` revisions."""

    def pieces() -> Iterator[tuple[bytes, int]]:
        size = done = 0
        for piece, ended in body():
            yield piece, ended
            size += len(piece)
            done += ended
            if done < total:
                sent(size, done, total)
        sent(size, total, total)

    return pieces


def unpacked(body: Iterator[bytes]) -> Iterator[bytes]:
    """The content of a bulk stream as it comes; nothing where no body came."""
    first = next(body, None)
    if first is not None:
        from smartserver.records.bulk import read_bulk

        yield from spans_of(Part.LOCAL, "decompress", read_bulk(itertools.chain((first,), body)))


class _Body:
    """The body of a push, made again for each sending; what was gathered to measure it is used once."""

    def __init__(self, plan: Plan, first: Iterable[bytes], *, whole: bool) -> None:
        self._plan = plan
        self._first: Iterable[bytes] | None = first
        self._whole = whole

    def __call__(self) -> Iterator[tuple[bytes, int]]:
        graph = self.graph()
        for at in range(0, len(graph), PIECE):
            yield graph[at : at + PIECE], 0
        yield from self.pieces()

    def graph(self) -> bytes:
        """The graph, which comes before the segments."""
        return b"" if self._whole else encode_graph(self._plan.graph)

    def pieces(self) -> Iterator[tuple[bytes, int]]:
        segments = iter(self._plan.segments() if self._first is None else self._first)
        self._first = None
        left = 0
        """Bytes to come of a segment that is sent in parts."""
        while gathered := _gather(segments, PIECE):
            ended = 0
            for part in gathered:
                left = (left or sum(read_length(part[:MAX_BYTES]))) - len(part)
                ended += not left
            yield from _cut(b"".join(gathered), ended)


class _BulkBody:
    """The same body as a bulk stream."""

    def __init__(self, body: _Body) -> None:
        self._body = body

    def __call__(self) -> Iterator[tuple[bytes, int]]:
        from smartserver.records.bulk import SEGMENT_LEVEL, BulkWriter

        writer = BulkWriter(SEGMENT_LEVEL)
        # The graph whole before anything else, so that a push that cannot succeed ends early.
        yield writer.add(self._body.graph()) + writer.flush(), 0
        ended = held = 0
        for piece, segments in self._body.pieces():
            ended += segments
            held += len(piece)
            with span(Part.LOCAL, "compress"):
                ready = writer.add(piece)
                if held >= HELD:
                    ready, held = ready + writer.flush(), 0
            if ready:
                yield from _cut(ready, ended)
                ended = 0
        yield from _cut(writer.finish(), ended)


def _packed(segments: list[bytes]) -> BodySource | None:
    """A small body as a bulk stream; None where that is no shorter."""
    from smartserver.records.bulk import SEGMENT_LEVEL, BulkWriter

    with span(Part.LOCAL, "compress"):
        writer = BulkWriter(SEGMENT_LEVEL)
        packed = writer.add(b"".join(segments)) + writer.finish()
    if len(packed) >= sum(map(len, segments)):
        return None
    return lambda: [(packed, len(segments))]


def _cut(joined: bytes, segments: int) -> Iterator[tuple[bytes, int]]:
    """Pieces between which the client looks for a refusal; with the last, how many segments end in them."""
    last = max(range(0, len(joined), PIECE), default=0)
    for at in range(0, len(joined), PIECE):
        yield joined[at : at + PIECE], segments if at == last else 0


def _begin(plan: Plan) -> tuple[list[bytes], Iterator[bytes] | None]:
    """The first segments and the rest; no rest where all are small enough to be sent without announcing their graph."""
    stream = iter(plan.segments())
    gathered = _gather(stream, GRAPH_FIRST_THRESHOLD + 1)
    return gathered, (stream if sum(map(len, gathered)) > GRAPH_FIRST_THRESHOLD else None)


@spent(Part.LOCAL, "read")
def _gather(segments: Iterator[bytes], least: int) -> list[bytes]:
    """The next segments, or parts of one, of so many bytes at least; fewer at the end."""
    gathered: list[bytes] = []
    size = 0
    for segment in segments:
        gathered.append(segment)
        size += len(segment)
        if size >= least:
            break
    return gathered

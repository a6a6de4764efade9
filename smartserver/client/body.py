"""The bodies of pushes and answers: plain segments or one bulk stream, in pieces between which a sender looks for a
refusal.

Each sending generates the body again. A piece consists of bytes and the number of segments that end in them.
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
"""Bytes of an upload between two checks for a refusal."""

HELD = 64 * 1024
"""Bytes of segments after which a bulk stream is flushed, so that the server has work while the next segments are
built. Without a flush, zstd holds back 128 KiB, for which the server would wait. A body of 5.3 MB gets no byte longer
by this; a flush each 32 KiB would add 0.1 %."""


OnSent = Callable[[int, int, int], None]
"""A function that is called with the bytes and the revisions sent so far, and the number of all revisions. A `Relay`
passes bytes in place of revisions."""


class EmptyBody:
    """The source of a push without revisions, which is also its plan."""

    graph: Sequence[GraphNode] = ()

    def plan(self, tips: object, haves: object) -> EmptyBody:
        """Return the same empty plan, whatever the server asks for."""
        return self

    def segments(self) -> Iterable[bytes]:
        """Return no segments."""
        return ()

    def without_bases(self, keys: object) -> EmptyBody:
        """Return the same empty plan."""
        return self


class SourceFailed(Exception):
    """A push could not read its source, for the reason `why`. It has its own class, because the sending client must not
    mistake it for an error of its connection."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


@contextmanager
def of_source() -> Iterator[None]:
    """Raise errors of the block as `SourceFailed`."""
    try:
        yield
    except (CodedError, MediumError, ProtocolError, NotOurProtocol) as error:
        raise SourceFailed(error) from error


class Relay(EmptyBody):
    """A body from another server or a dump that is passed on unchanged: the source and the plan of a push. Its graph is
    unknown. A body that is an iterator can be sent only once."""

    def __init__(self, body: Iterable[bytes], count: int, size: int, sent: OnSent) -> None:
        self.count = count
        """The number of segments in the body."""
        self._body = body
        self._size = size
        self._sent = sent
        self._begun = False

    def plan(self, tips: object, haves: object) -> Relay:
        """Return this relay, which passes on the same bytes whatever the server asks for."""
        return self

    def __call__(self) -> Iterator[tuple[bytes, int]]:
        """Yield the pieces of the body, as a `BodySource` does.

        Raises:
            SourceFailed: the origin of the body failed, or an iterator was passed on before.
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
    """Return a body that is only the graph of a plan, for a push that is only checked."""
    graph = encode_graph(plan.graph)
    return lambda: [(graph, 0)]


def sending(plan: Plan, *, bulk: bool, announced: bool = True) -> tuple[RequestFlag, BodySource]:
    """Return the flags for the form of a push's body, and the body. With `bulk` the body is a bulk stream, unless it is
    small and would not become shorter. With `announced` a long body begins with its graph."""
    first, rest = _begin(plan)
    if rest is None:
        packed = _packed(first) if bulk else None
        return (RequestFlag.NONE, _Body(plan, first, whole=True)) if packed is None else (RequestFlag.BULK, packed)
    form = RequestFlag.GRAPH_FIRST if announced else RequestFlag.NONE
    body = _Body(plan, itertools.chain(first, rest), whole=not announced)
    return (form | RequestFlag.BULK, _BulkBody(body)) if bulk else (form, body)


def reported(body: BodySource, total: int, sent: OnSent) -> BodySource:
    """Return the same body, which calls `sent` after each piece, and at the end with all of the `total` revisions."""

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
    """Yield the content of a bulk stream as it arrives. Yield nothing if the answer has no body."""
    first = next(body, None)
    if first is not None:
        from smartserver.records.bulk import read_bulk

        yield from spans_of(Part.LOCAL, "decompress", read_bulk(itertools.chain((first,), body)))


class _Body:
    """The body of a push, generated again for each sending. The segments in `first` were gathered to measure the body,
    and are used only by the first sending."""

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
        """Return the encoded graph, which is sent before the segments; empty if the graph is not announced."""
        return b"" if self._whole else encode_graph(self._plan.graph)

    def pieces(self) -> Iterator[tuple[bytes, int]]:
        segments = iter(self._plan.segments() if self._first is None else self._first)
        self._first = None
        left = 0
        """The remaining bytes of a segment that is sent in parts."""
        while gathered := _gather(segments, PIECE):
            ended = 0
            for part in gathered:
                left = (left or sum(read_length(part[:MAX_BYTES]))) - len(part)
                ended += not left
            yield from _cut(b"".join(gathered), ended)


class _BulkBody:
    """The body of a push as a bulk stream."""

    def __init__(self, body: _Body) -> None:
        self._body = body

    def __call__(self) -> Iterator[tuple[bytes, int]]:
        from smartserver.records.bulk import SEGMENT_LEVEL, BulkWriter

        writer = BulkWriter(SEGMENT_LEVEL)
        # The whole graph is sent first, so that a push that cannot succeed ends early.
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
    """Return a small body as a bulk stream, or None if that is not shorter."""
    from smartserver.records.bulk import SEGMENT_LEVEL, BulkWriter

    with span(Part.LOCAL, "compress"):
        writer = BulkWriter(SEGMENT_LEVEL)
        packed = writer.add(b"".join(segments)) + writer.finish()
    if len(packed) >= sum(map(len, segments)):
        return None
    return lambda: [(packed, len(segments))]


def _cut(joined: bytes, segments: int) -> Iterator[tuple[bytes, int]]:
    """Yield `joined` in pieces of at most `PIECE` bytes. The last piece is given the number of all segments that end in
    `joined`, the others 0."""
    last = max(range(0, len(joined), PIECE), default=0)
    for at in range(0, len(joined), PIECE):
        yield joined[at : at + PIECE], segments if at == last else 0


def _begin(plan: Plan) -> tuple[list[bytes], Iterator[bytes] | None]:
    """Return the first segments and an iterator over the rest. The iterator is None if all segments together are small
    enough to be sent without announcing their graph."""
    stream = iter(plan.segments())
    gathered = _gather(stream, GRAPH_FIRST_THRESHOLD + 1)
    return gathered, (stream if sum(map(len, gathered)) > GRAPH_FIRST_THRESHOLD else None)


@spent(Part.LOCAL, "read")
def _gather(segments: Iterator[bytes], least: int) -> list[bytes]:
    """Return the next segments, or parts of a segment, with at least `least` bytes in all; fewer at the end."""
    gathered: list[bytes] = []
    size = 0
    for segment in segments:
        gathered.append(segment)
        size += len(segment)
        if size >= least:
            break
    return gathered

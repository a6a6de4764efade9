"""`resend`: a client sends bytes that the server has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import ClassVar

import msgspec

from smartserver.errors import LimitExceeded
from smartserver.records.bulk import BulkDecoder
from smartserver.records.model import RefValue, RevisionId
from smartserver.records.segment import SegmentStream, decode_revision
from smartserver.records.varint import Malformed
from smartserver.trace.bans.model import Ban, Cost, Finding, WatchedAnswer, WatchedRequest, names_in
from smartserver.verbs.repository_insert_pack import InsertPackResult
from smartserver.wire.messages import RequestFlag, named

LEAST = 64
"""The fewest bytes of a file that count: shorter contents are alike by chance, and not much longer than names."""

GETS = ("get", "get_published")
"""File-level verbs that return a whole file."""

_decoder: msgspec.msgpack.Decoder[RefValue | None] = msgspec.msgpack.Decoder(RefValue | None)


class Resend(Ban):
    """Bytes that the server already has, as this client has learned in the same operation.

    Seen: what the server has, and the revisions of each push. The server has the tips of its refs in the state of an
    answer, and the tips that a refusal calls known. It also has the revisions of a push of which no call was refused.
    The revisions of a push are read from the graph that goes before them. If the push is too small for a graph, they
    are read from its segments. One revision counts, since it is sent whole. Of VFS verbs, a `put` counts if its content
    has 64 bytes or more and was put or got whole before, under any name: that is a copy by way of the client. Content
    in a body is not seen. If a repository was deleted or recreated, nothing that it had counts.
    """

    name: ClassVar[str] = "resend"
    remedy: ClassVar[str] = "Leave out what the server is known to have."

    def __init__(self) -> None:
        self._has: dict[str, set[RevisionId]] = {}
        """The revisions that the server has, by path."""
        self._incarnations: dict[str, bytes] = {}
        self._files: set[bytes] = set()
        """Hashes of the contents of files that the server has."""
        self._sent: set[RevisionId] = set()
        """The revisions in the body that is being sent."""
        self._body: _Body | None = None

    def begin(self) -> None:
        """Forget the previous operation."""
        self._has.clear()
        self._incarnations.clear()
        self._files.clear()

    def asking(self, asked: WatchedRequest) -> Finding | None:
        """Return a finding if the server has the content of a file that is put. Prepare to read the body."""
        self._sent.clear()
        self._body = _Body(asked.flags) if asked.has_body else None
        for verb, arguments in asked.calls:
            if verb.name == "put" and not self._files.isdisjoint(_hashes(arguments)):
                return Finding(verb.name, "the content of a file that is there", Cost.BODY)
        return None

    def sending(self, asked: WatchedRequest, chunk: bytes) -> Finding | None:
        """Return a finding if the chunk has revisions that the server has."""
        if self._body is None:
            return None
        has = self._has.get(asked.path, set())
        revisions = list(self._body.revisions(chunk))
        self._sent.update(revisions)
        known = [revision for revision in revisions if revision in has]
        if not known:
            return None
        why = f"revision {known[0].hex()}, which the server has"
        return Finding(asked.calls[0][0].name, why, Cost.BODY, share=len(known) / len(revisions))

    def answered(self, asked: WatchedRequest, answered: WatchedAnswer) -> Finding | None:
        """Remember the revisions that the server has. Return a finding if the server already had a part of the push."""
        is_partial = None in answered.results  # The revisions of a refused ref are not stored.
        if answered.state is not None:
            incarnation = answered.state.incarnation
            if self._incarnations.setdefault(asked.path, incarnation) != incarnation:
                self._has.pop(asked.path, None)
                self._incarnations[asked.path] = incarnation
            self._tell(asked.path, (tip for value in answered.state.refs.values() for tip in _tips(value)))
        elif asked.mutates and answered.fault is None:
            self._has.pop(asked.path, None)
        if answered.fault is not None:
            self._tell(asked.path, names_in(named(answered.fault).get("tips", [])))
        elif asked.mutates and answered.state is not None and not is_partial:
            self._tell(asked.path, self._sent)
        for (verb, arguments), result in zip(asked.calls, answered.results, strict=False):
            if result is not None and verb.name in (*GETS, "put"):
                self._files.update(_hashes(result if verb.name in GETS else arguments))
        new = next((each.new for each in answered.results if isinstance(each, InsertPackResult)), len(self._sent))
        if new >= len(self._sent) or asked.is_repeat or is_partial:
            return None
        why = f"{len(self._sent) - new} of {len(self._sent)} revisions, which the server had"
        return Finding(asked.calls[0][0].name, why, Cost.BODY, share=1 - new / len(self._sent))

    def _tell(self, path: str, revisions: Iterable[object]) -> None:
        self._has.setdefault(path, set()).update(revision for revision in revisions if isinstance(revision, bytes))


def _tips(value: msgspec.Raw) -> list[RevisionId]:
    """Return the tips of a ref; none if they cannot be decoded, which the client itself refuses."""
    try:
        return [tip.id for tip in _decoder.decode(value) or ()]
    except msgspec.DecodeError:
        return []


def _hashes(contents: object) -> list[bytes]:
    return [blake2b(each).digest() for each in names_in(contents) if isinstance(each, bytes) and len(each) >= LEAST]


class _Body:
    """The body of a push, decoded while it is sent. No revisions are found in a damaged body."""

    def __init__(self, flags: RequestFlag) -> None:
        self._stream: SegmentStream | None = SegmentStream(graph_first=bool(flags & RequestFlag.GRAPH_FIRST))
        self._bulk = BulkDecoder() if flags & RequestFlag.BULK else None

    def revisions(self, chunk: bytes) -> Iterator[RevisionId]:
        """Yield the revisions that became readable with this chunk; if the body begins with a graph, all revisions at
        once."""
        stream = self._stream
        if stream is None:
            return
        try:
            for piece in (chunk,) if self._bulk is None else self._bulk.feed(chunk):
                stream.feed(piece)
                graph = stream.graph()
                if graph is not None:
                    self._stream = None
                    yield from (announced.revision for announced in graph)
                    return
                for segment in stream.segments():
                    yield decode_revision(segment, 0).revision
        except (Malformed, LimitExceeded):
            self._stream = None

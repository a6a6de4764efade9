"""Indexes as their writer makes them."""

from __future__ import annotations

from pack_samples import KINDS, Revision

from smartserver.records.segment import decode_segment
from smartserver.store.index import Index
from smartserver.store.index_build import IndexBuilder, Resolve, nowhere

TEXT = b"a text that is long enough to be the base of another one, line after line\n" * 4


def build(revisions: list[Revision], resolve: Resolve = nowhere) -> Index:
    """The index of these revisions as a writer makes it, at offset 100."""
    builder = IndexBuilder(resolve)
    at = 100
    for revision in revisions:
        encoded = revision.segment()
        segment = decode_segment(encoded, 0, KINDS)
        builder.add(at, segment)
        at += len(encoded)
    return Index.of(b"".join(builder.finish(at + 16, b"h" * 16)), "packs/1.idx")


def content_of(revisions: list[Revision]) -> bytes:
    builder = IndexBuilder()
    at = 100
    for revision in revisions:
        segment = decode_segment(revision.segment(), 0, KINDS)
        builder.add(at, segment)
        at += segment.length
    return b"".join(builder.finish(at + 16, b"h" * 16))

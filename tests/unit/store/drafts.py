"""Packs that are being written."""

from __future__ import annotations

from builders import KINDS, History

from smartserver.records.segment import decode_segment
from smartserver.store.index import ONE_BYTE, Row
from smartserver.store.index_build import Numbering
from smartserver.store.quarantine import DraftPack, Quarantine
from transports.base import Transport


def add(draft: DraftPack, numbering: Numbering, content: bytes) -> None:
    """Append a segment; its bases count as stored."""
    segment = decode_segment(content, 0, KINDS)
    numbering.revisions.add(segment.revision)
    for entry in segment.entries:
        numbering.records.add(ONE_BYTE[entry.kind] + entry.key)
    draft.add(content, segment, [Row()] * len(segment.entries), [-1] * len(segment.entries))


def written(folder: Transport, place: Quarantine) -> DraftPack:
    """A pack of one revision."""
    history = History()
    (tip,) = history.line(1)
    numbering = Numbering()
    draft = DraftPack(place, KINDS, numbering)
    add(draft, numbering, history.segment(tip))
    return draft

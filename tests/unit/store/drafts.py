"""A pack of one revision that is being written."""

from __future__ import annotations

from builders import KINDS, History

from smartserver.records.segment import decode_segment
from smartserver.store.draft_pack import DraftPack
from smartserver.store.index import Row
from smartserver.store.index_build import nowhere
from smartserver.store.quarantine import Quarantine
from transports.base import Transport


def written(folder: Transport, place: Quarantine) -> DraftPack:
    history = History()
    (tip,) = history.line(1)
    content = history.segment(tip)
    draft = DraftPack(place, KINDS, nowhere)
    segment = decode_segment(content, 0, KINDS)
    draft.add(content, segment, [Row()] * len(segment.entries))
    return draft

"""Uploads written by hand, and what they leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest
from builders import KINDS, History, create

from smartserver.records.delta import compress
from smartserver.records.model import BaseTag, Entry, Key, Parent
from smartserver.records.segment import decode_segment, encode_segment, frames
from smartserver.store.format import INCOMING
from smartserver.store.repository import PackRepository
from smartserver.store.upload import Upload
from transports.errors import CodedError

FILE = "src/file.txt"

Refusal = TypeVar("Refusal", bound=CodedError)


def receive(repository: PackRepository, graph_first: bool = False) -> Upload:
    transaction = repository.begin()
    if not transaction.exists:
        create(transaction)
    return repository.receive(transaction, graph_first)


def send(sent: Upload, body: bytes, segments: int, size: int) -> None:
    sent.write(body)
    sent.finish(segments, size)


def left_in_quarantine(repository: PackRepository) -> list[str]:
    return repository.folder.list_directory(INCOMING) if repository.folder.exists(INCOMING) else []


def raw(
    history: History,
    revision: bytes,
    keys: Sequence[bytes] | None = None,
    parents: Sequence[Parent] | None = None,
    bases: dict[bytes, bytes] | None = None,
    frames_of: dict[bytes, bytes] | None = None,
) -> bytes:
    """A segment made by hand: any parents, any records, any full-key bases, any frames."""
    keys = [key for key, _path in history.introduced[revision]] if keys is None else keys
    entries, bodies = [], []
    for key in keys:
        record = history.objects[key]
        base = (bases or {}).get(key, b"")
        based = history.objects[base].text if base in history.objects else b"some text that is a base" * 9
        encoding, frame = compress(record.text, based if base else b"")
        if base and encoding == 0:
            encoding, frame = 1, compress(record.text * 1 + b"", based)[1]
        frame = (frames_of or {}).get(key, frame)
        tag = BaseTag.FULL_KEY if base else BaseTag.NONE
        entries.append(Entry(0, encoding, key, record.meta, tag, base, len(record.text), len(frame), b""))
        bodies.append(frame)
    if parents is None:
        parents = [Parent(parent) for parent in history.parents[revision]]
    return encode_segment(revision, parents, entries, bodies, KINDS)


def altered(
    history: History,
    revision: bytes,
    *,
    without: Key = b"",
    parents: tuple[Parent, ...] | None = None,
    base: tuple[Key, Key] = (b"", b""),
    frame: tuple[Key, bytes] = (b"", b""),
) -> bytes:
    """A revision's segment with something wrong in it."""
    content = history.segment(revision)
    segment = decode_segment(content, 0, KINDS)
    entries: list[Entry] = []
    bodies: list[bytes] = []
    for entry, body in zip(segment.entries, frames(segment, content), strict=True):
        if entry.key == without:
            continue
        if entry.key == base[0]:
            entry = entry._replace(base=BaseTag.FULL_KEY, base_key=base[1])
        new = frame[1] if entry.key == frame[0] else bytes(body)
        entries.append(entry._replace(frame_length=len(new)))
        bodies.append(new)
    return encode_segment(revision, segment.parents if parents is None else parents, entries, bodies, KINDS)


def refused(error: type[Refusal], repository: PackRepository, *segments: bytes) -> Refusal:
    """The one error of this class that a body of these segments ends in; nothing is left of it."""
    sent = receive(repository)
    body = b"".join(segments)
    with pytest.raises(error) as caught:
        send(sent, body, len(segments), len(body))
    sent.abandon()
    assert left_in_quarantine(repository) == []
    return caught.value

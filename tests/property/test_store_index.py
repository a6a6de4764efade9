"""An index finds what is in its pack, and merged indexes are the index of the joined pack."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from memory_transport import MemoryTransport

from smartserver.records.model import BaseTag, Entry, Kind, Parent
from smartserver.records.segment import ZSTD, encode_segment
from smartserver.store.index import NO_BASE, Index, Row, record_digest
from smartserver.store.index_build import merge, rebuild
from smartserver.store.pack import PackReader, PackWriter

KINDS = (Kind("a", "blake2b-128", True), Kind("b", "sha1-key", True))


class Drawn(NamedTuple):
    """A revision: numbers of its parents, whether each is absent; its records as (kind, key), base or -1, size."""

    parents: list[tuple[int, bool]]
    records: list[tuple[int, int, int, int]]


RECORD = st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(-1, 30), st.integers(0, 5000))


@st.composite
def packs(draw: st.DrawFn) -> list[list[Drawn]]:
    """Packs of revisions; the first pack is what the others rest on."""
    number = 0
    found: list[list[Drawn]] = []
    for _ in range(draw(st.integers(2, 4))):
        pack = []
        for _ in range(draw(st.integers(1, 4))):
            parent = st.tuples(st.integers(0, number - 1), st.booleans()) if number else st.nothing()
            parents = draw(st.lists(parent, max_size=3, unique_by=lambda named: named[0])) if number else []
            records = draw(st.lists(RECORD, max_size=6, unique_by=lambda record: record[:2]))
            pack.append(Drawn(parents, records))
            number += 1
        found.append(pack)
    return found


def segments_of(drawn: list[list[Drawn]]) -> list[list[bytes]]:
    """The segments; a base is the key of a record that came before, of the same kind. No frame is read."""
    number = 0
    keys: tuple[list[bytes], list[bytes]] = ([], [])
    found = []
    for pack in drawn:
        segments = []
        for revision in pack:
            entries: list[Entry] = []
            for kind, key_number, base_number, size in revision.records:
                key = b"key-%d" % key_number
                base = keys[kind][base_number % len(keys[kind])] if base_number >= 0 and keys[kind] else b""
                base = b"" if base == key else base
                tag = BaseTag.FULL_KEY if base else BaseTag.NONE
                check = bytes(16) if kind == 0 else b""
                entries.append(Entry(kind, ZSTD, key, b"", tag, base, size, 3, check))
                keys[kind].append(key)
            parents = [Parent(b"id-%d" % parent, absent) for parent, absent in revision.parents]
            segments.append(encode_segment(b"id-%d" % number, parents, entries, [b"zst"] * len(entries), KINDS))
            number += 1
        found.append(segments)
    return found


def pack_of(segments: list[bytes]) -> PackReader:
    transport = MemoryTransport()
    writer = PackWriter(transport.create("pack"), KINDS)
    for segment in segments:
        writer.append(segment)
    length, _ = writer.finish()
    return PackReader(transport.open_read("pack"), length, "pack")


def resolver(before: list[Index]) -> Callable[[int, bytes], Row | None]:
    def resolve(kind: int, key: bytes) -> Row | None:
        for index in before:
            if rows := index.find_digest(record_digest(kind, key)):
                return index.row(rows[0])
        return None

    return resolve


@given(packs(), st.integers(0, 2))
def test_merged_is_what_is_built_from_the_joined_pack(drawn: list[list[Drawn]], resting: int) -> None:
    """Neighbours are merged from any pack on; what lies before them stays outside and external."""
    segments = segments_of(drawn)
    indexes: list[Index] = []
    for content in segments:
        indexes.append(Index.of(rebuild(pack_of(content), resolver(indexes)), "index"))
    first = min(resting, len(segments) - 1)
    joined = pack_of([segment for content in segments[first:] for segment in content])
    resolve = resolver(indexes[:first])
    merged = merge(indexes[first:], joined.length, joined.trailer(), resolve)
    assert b"".join(merged) == rebuild(joined, resolve)


@given(packs())
def test_joining_changes_no_depth_and_no_base(drawn: list[list[Drawn]]) -> None:
    """A base is the copy at the lowest position, so no row's depth depends on how packs were cut."""
    segments = segments_of(drawn)
    indexes: list[Index] = []
    for content in segments:
        indexes.append(Index.of(rebuild(pack_of(content), resolver(indexes)), "index"))
    whole = Index.of(b"".join(merge(indexes, 0, bytes(16))), "index")
    first = 0
    for index in indexes:
        for row in range(index.records):
            (same,) = (
                at
                for at in whole.find_digest(index.digest(row))
                if whole.at(at).segment == first + index.at(row).segment
            )
            assert whole.row(same) == index.row(row)
        first += index.segments
    for row in range(whole.records):
        if (base := whole.at(row).base) != NO_BASE:
            assert base == whole.find_digest(whole.digest(base))[0]
            assert whole.at(row).depth == whole.at(base).depth + 1

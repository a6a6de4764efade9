"""store.index_build: what a writer puts into an index, and joining and rebuilding them."""

from __future__ import annotations

import pytest
from index_samples import TEXT, build
from memory_transport import MemoryTransport
from pack_samples import KINDS, Revision, blob, history, no_base, note

from smartserver.errors import CorruptFile, LimitExceeded
from smartserver.records.segment import decode_segment
from smartserver.store import index_build
from smartserver.store.index import EXTERNAL, Index, Row
from smartserver.store.index_build import PACED, IndexBuilder, Numbering, merge, rebuild
from smartserver.store.pack import PackReader, PackWriter


def test_a_base_elsewhere_keeps_what_the_writer_says() -> None:
    base = blob(TEXT)
    changed = blob(TEXT + b"changed\n")
    index = build([Revision(b"r", (), [(changed, base)])], lambda _kind, _key: Row(16, 39, 17))
    assert index.at(0).base == EXTERNAL
    assert index.external(0) == (0, base.key)
    assert index.row(0) == Row(17, 40, 18)


def test_what_the_caller_numbered_is_checked() -> None:
    """Numbers out of step would give an index that leads to other records."""
    base, changed = blob(TEXT), blob(TEXT + b"changed\n")
    segment = decode_segment(Revision(b"a", (), [(base, None), (changed, base)]).segment(), 0, KINDS)
    rows = [Row(), Row(8, 9, 7)]
    numbering = Numbering()
    builder = IndexBuilder(numbering=numbering)
    numbering.revisions.add(b"a")
    numbering.records.add(b"\0" + base.key)
    with pytest.raises(ValueError, match="1 records are numbered, expected 2"):
        builder.add_numbered(50, segment, rows, [-1, 0])
    numbering.records.add(b"\0" + changed.key)
    builder.add_numbered(50, segment, rows, [-1, 0])
    looked_up = IndexBuilder()
    looked_up.add(50, segment, iter([0, 7]))
    assert list(builder.finish(400, b"h" * 16)) == list(looked_up.finish(400, b"h" * 16))
    with pytest.raises(ValueError, match="has a segment in this pack already"):
        builder.add_numbered(50, segment, rows, [-1, 0])


def test_more_rows_than_a_column_can_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_build, "MAX_ROWS", 5)
    with pytest.raises(LimitExceeded, match="too many records of one pack: 7, at most 5 are allowed"):
        build(history(3))
    index = build(history(2))
    with pytest.raises(LimitExceeded, match="records of one pack: 10"):
        merge([index, index], 0, b"h" * 16)


def test_numbers_over_their_columns_stop_at_the_largest() -> None:
    base, changed = blob(TEXT), blob(TEXT + b"changed\n")
    index = build([Revision(b"r", (), [(changed, base)])], lambda _kind, _key: Row(300, 1 << 40, 1 << 40))
    assert index.row(0) == Row(255, 0xFFFFFFFF, 0xFFFFFFFF)


def test_merging_at_a_pace_stops_for_it_all_along() -> None:
    index = build(history(3 * PACED))
    calls: list[None] = []
    merged = b"".join(merge([index], 99, index.pack_hash, pace=lambda: calls.append(None)))
    assert merged == b"".join(merge([index], 99, index.pack_hash))
    assert len(calls) >= 3 + index.records // PACED


def test_a_revision_in_two_packs_is_refused() -> None:
    index = build(history(3))
    with pytest.raises(ValueError, match=r"revision revision-0000 has a segment in two packs"):
        merge([index, index], 0, b"h" * 16)


def test_rebuilding_needs_the_bases_that_lie_before() -> None:
    base = blob(TEXT)
    revision = Revision(b"r", (), [(blob(TEXT + b"changed\n"), base)])
    transport = MemoryTransport()
    writer = PackWriter(transport.create("pack"), KINDS)
    writer.append(revision.segment())
    length, _ = writer.finish()
    pack = PackReader(transport.open_read("pack"), length, "packs/1.pack")
    with pytest.raises(CorruptFile, match=f"packs/1.pack .* its base {base.key.hex()} is in no pack before it"):
        rebuild(pack, no_base)
    index = Index.of(rebuild(pack, lambda _kind, _key: Row(4, 7, 9)), "index")
    assert index.row(0) == Row(5, 8, 10)


def test_rebuilding_from_a_pack_that_holds_no_segments_of_its_kinds() -> None:
    transport = MemoryTransport()
    writer = PackWriter(transport.create("pack"), KINDS[:1])
    writer.append(Revision(b"r", (), [(note(b"k", b"x"), None)]).segment())
    length, _ = writer.finish()
    with pytest.raises(CorruptFile, match="kind 1, but the repository has 1"):
        rebuild(PackReader(transport.open_read("pack"), length, "packs/1.pack"), no_base)

"""store.quarantine: the files of one pack, until a record names them."""

from __future__ import annotations

import gc
import weakref

import pytest
from builders import KINDS, Far, History, Repeatable
from memory_transport import MemoryTransport

from smartserver.records.segment import decode_segment
from smartserver.store.format import INCOMING, PACKS
from smartserver.store.index import ONE_BYTE, Row
from smartserver.store.index_build import Numbering
from smartserver.store.quarantine import DraftPack, Quarantine
from transports.base import Transport
from transports.errors import TransportFailed


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


def test_nothing_is_made_before_there_is_a_file(folder: MemoryTransport) -> None:
    made: list[str] = []
    place = Quarantine(folder, b"request", Repeatable(), lambda: made.append("place"))
    file = place.pack
    assert made == []
    file.write(b"x")
    assert made == ["place"]


def test_segments_are_written_many_at_once(folder: MemoryTransport) -> None:
    """Most have some hundred bytes. What was not written yet is there to be read, and in the pack when it is sealed."""
    history = History()
    place = Quarantine(folder, b"request", Repeatable())
    numbering = Numbering()
    draft = DraftPack(place, KINDS, numbering)
    begun = folder.stat(place.pack_path).size
    size = draft.length
    contents: list[bytes] = []
    for revision in history.line(5):
        content = history.segment(revision)
        add(draft, numbering, content)
        contents.append(content)
        if len(contents) < 4:
            assert folder.stat(place.pack_path).size == begun
        if len(contents) == 4:
            assert draft.read(size, sum(map(len, contents))) == b"".join(contents)
        assert draft.length == size + sum(map(len, contents))
    entry = draft.seal()
    assert entry.length == draft.length
    assert folder.get(place.pack_path)[size:-16] == b"".join(contents)
    with draft.open_index() as index:
        assert [index.segment_of(decode_segment(content, 0, KINDS).revision) for content in contents] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("large", [False, True])
def test_behind_a_link_a_small_pack_is_held_until_it_is_published(
    folder: MemoryTransport, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same pack and index as in files, which a large one has."""
    monkeypatch.setattr("smartserver.store.remote.AT_ONCE", 10 if large else 10_000)
    near = Quarantine(folder, b"request", Repeatable())
    written(folder, near).seal()
    far = Quarantine(Far(folder), b"request", Repeatable(2))
    draft = written(Far(folder), far)
    assert folder.exists(far.pack_path) is large
    assert draft.read(draft.length - 10, 10) == folder.get(near.pack_path)[-26:-16]
    with pytest.raises(TransportFailed, match="9 bytes at"):
        draft.read(draft.length - 9, 10)
    entry = draft.seal()
    draft.close()
    pack = far.pack
    assert pack.read_at(0, pack.size()) == folder.get(near.pack_path)
    with draft.open_index() as index:
        assert index.hash == entry.index_hash
    pack.close()
    assert folder.list_directory(PACKS) == []
    folder.perform(far.moves())
    folder.perform(far.moves())
    assert folder.get(far.pack_path) == folder.get(near.pack_path)
    assert folder.get(far.index_path) == folder.get(near.index_path)
    assert entry.hash == folder.get(near.pack_path)[-16:]
    far.discard()
    assert folder.list_directory(PACKS) == []
    assert len(folder.list_directory(INCOMING)) == 2  # Those of the near one.


def test_a_pack_in_memory_is_freed_without_a_garbage_collection(folder: MemoryTransport) -> None:
    """Up to 8 MiB for each push."""
    gc.disable()
    try:
        far = Quarantine(Far(folder), b"request", Repeatable())
        draft = written(Far(folder), far)
        held = weakref.ref(draft._file)
        far.discard()
        del draft, far
        assert held() is None
    finally:
        gc.enable()

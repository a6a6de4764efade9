"""store.quarantine: the files of one pack, until a record names them."""

from __future__ import annotations

import pytest
from builders import Far, Repeatable
from drafts import written

from smartserver.store.format import INCOMING, PACKS
from smartserver.store.quarantine import Quarantine
from transports.memory import MemoryTransport


def test_equal_requests_have_files_of_their_own(folder: MemoryTransport) -> None:
    randomness = Repeatable()
    first, second = (Quarantine(folder, b"request", randomness) for _ in range(2))
    assert first.pack_path != second.pack_path
    for place in (first, second):
        assert place.pack_path.startswith(f"{INCOMING}/{b'request'.hex()}-")
        written(folder, place).seal()
    assert len(folder.list_directory(INCOMING)) == 4


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("is_published", [False, True])
def test_discarded_files_are_gone_wherever_they_are(folder: MemoryTransport, far: bool, is_published: bool) -> None:
    place = Quarantine(Far(folder) if far else folder, b"request", Repeatable())
    draft = written(folder, place)
    draft.seal()
    draft.close()
    if is_published:
        folder.perform(place.publication())
    assert len(folder.list_directory(PACKS)) == (2 if is_published else 0)
    place.discard()
    assert folder.list_directory(PACKS) == folder.list_directory(INCOMING) == []


def test_nothing_is_made_before_there_is_a_file(folder: MemoryTransport) -> None:
    made: list[str] = []
    place = Quarantine(folder, b"request", Repeatable(), lambda: made.append("place"))
    file = place.pack
    assert made == []
    file.write(b"x")
    assert made == ["place"]

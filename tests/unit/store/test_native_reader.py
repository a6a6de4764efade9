"""The native reader takes the records of a sound repository, and leaves a damaged one to Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import MAIN, History, Repeatable, push
from needs import needs

from smartserver.errors import CorruptFile
from smartserver.store.repository import PackRepository
from smartserver.store.snapshot import Snapshot
from transports.local import LocalTransport

pytestmark = needs("native parts")


def pushed(folder: Path, history: History) -> Snapshot:
    """A repository on the disk, in two packs, of which nothing is cached."""
    repository = PackRepository(LocalTransport(str(folder)), "project", randomness=Repeatable())
    line = history.line(40)
    push(repository, history, line[:20], {MAIN: line[19]})
    push(repository, history, line[20:], {MAIN: line[-1]})
    snapshot = PackRepository(LocalTransport(str(folder)), "project").begin().snapshot
    assert snapshot is not None
    return snapshot


def test_sound_records_are_read_natively(tmp_path: Path, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = pushed(tmp_path, history)

    def refuse(*_: object) -> None:
        raise AssertionError("Python reads it")

    monkeypatch.setattr(Snapshot, "_load", refuse)
    for key, record in reversed(history.objects.items()):  # Else each rests on a text that is in the cache.
        assert snapshot.lookup(0, key) == record


def test_a_damaged_record_is_named_by_python(tmp_path: Path, history: History) -> None:
    snapshot = pushed(tmp_path, history)
    location = snapshot.first(0, next(reversed(history.objects)))
    assert location is not None
    pack = tmp_path / "project" / snapshot.packs[location.pack].path
    content = bytearray(pack.read_bytes())
    content[location.frame_offset + location.frame_length - 1] ^= 0xFF
    pack.write_bytes(content)
    with pytest.raises(CorruptFile, match="record "):
        snapshot.record(location)

"""store.preview_folder: the folder of a preview lacks packs, which are read where the repository is."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import GIT, MAIN, Far, History, check_whole, push, upload
from memory_transport import MemoryTransport

from smartserver.errors import CorruptFile
from smartserver.records.model import Tip
from smartserver.server.hook_place import make_place
from smartserver.store.preview import Preview
from smartserver.store.preview_folder import NEW, PREVIEW, PreviewedStore, PreviewTransport, is_preview, previewed_by
from smartserver.store.repository import PackRepository
from transports.base import Transport
from transports.local import LocalTransport

STORE = PreviewedStore("s3://bucket/code", "/var/cache/packs", 7)


@pytest.mark.parametrize("reach", [lambda store: store, Far], ids=["near", "far"])
def test_what_came_is_there_and_the_rest_is_read_elsewhere(reach: type[Far], tmp_path: Path) -> None:
    storage: Transport = reach(MemoryTransport())
    repository, history = PackRepository(storage), History()
    line = history.line(4)
    push(repository, history, line[:2], {MAIN: line[1]})
    push(repository, history, line[2:3], {MAIN: line[2]})
    sent = upload(repository, history.body(line[3:]), 1)
    transaction = repository.begin(sent.graph() or ())
    transaction.set_ref(MAIN, (Tip(line[3]),))
    make_place(Preview(repository.folder, transaction, sent, bytes(16)), STORE.below("team/a b"), tmp_path)
    sent.abandon()
    assert is_preview(str(tmp_path), {NEW: f"{tmp_path}/"})
    assert not is_preview(str(tmp_path), {})
    assert not is_preview(str(tmp_path), {NEW: str(tmp_path / "packs")})
    assert not is_preview(str(tmp_path / "packs"), {NEW: str(tmp_path / "packs")})
    found = previewed_by(LocalTransport(tmp_path))
    assert found == PreviewedStore("s3://bucket/code/team/a%20b", "/var/cache/packs", 7)
    assert len(list((tmp_path / "packs").iterdir())) == 2
    shown = PackRepository(PreviewTransport(LocalTransport(tmp_path), storage))
    snapshot = check_whole(shown, history)
    assert (snapshot.state.vcs, snapshot.graph.count) == (GIT, 4)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / PREVIEW).write_text('{"url": 1}')
    with pytest.raises(CorruptFile, match=PREVIEW):
        previewed_by(LocalTransport(tmp_path))

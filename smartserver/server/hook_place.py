"""The repository that a hook reads: as it would be after the change, in a folder outside of the store.

It has a log of one record with its checkpoint, and links to the packs, including those in quarantine. So every command
that reads a repository in a folder can read it, and nothing is written to the store. The packs of a bucket are not
linked: the uploaded pack is copied, and the folder names the place of the others (`store.preview_folder`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from smartserver.store.checkpoint import checkpoint_path, encode_checkpoint
from smartserver.store.format import FOLDERS, FORMAT, LINE
from smartserver.store.open_pack import index_path, pack_path
from smartserver.store.preview import Preview
from smartserver.store.preview_folder import PREVIEW, PreviewedStore
from smartserver.store.record import record_path
from smartserver.store.state import State

PIECE: Final = 8 << 20
"""The most bytes that are copied at once."""


def make_place(preview: Preview, store: str | PreviewedStore, place: Path) -> None:
    """Create the repository of a preview in an existing, empty folder. `store`: the folder of the repository that is
    changed, or its place in a bucket.

    Raises:
        OSError: the folder cannot be written.
        TransportError: an uploaded file cannot be read.
    """
    for name in FOLDERS:
        (place / name).mkdir()
    (place / FORMAT).write_bytes(LINE)
    state = preview.state
    (place / record_path(state.version)).write_bytes(preview.record)
    (place / checkpoint_path(state.version, state.hash)).write_bytes(encode_checkpoint(state))
    if isinstance(store, PreviewedStore):
        (place / PREVIEW).write_bytes(msgspec.json.encode(store))
        for name, source in preview.files.items():
            if name != source:  # Else it was moved to its final place.
                _copy(preview, name, place / name)
        return
    for name, source in _files(state, preview.files).items():
        os.symlink(os.path.abspath(os.path.join(store, source)), place / name)


def _copy(preview: Preview, name: str, target: Path) -> None:
    with contextlib.closing(preview.snapshot.transport.open_read(name)) as source, target.open("wb") as file:
        for offset in range(0, source.size(), PIECE):
            file.write(source.read_at(offset, PIECE))


def _files(state: State, moved: Mapping[str, str]) -> dict[str, str]:
    """Return the place of each pack and index by its name."""
    names = [path(pack.name) for pack in state.packs for path in (pack_path, index_path)]
    return {name: moved.get(name, name) for name in names}

"""The folder of a preview of a repository in a bucket, as a command in another process reads it.

The folder has the record, its checkpoint and the new pack. The file `PREVIEW` in it names the repository, from which
the earlier packs are read, through the copies that the server keeps.

That file leads out of the folder, so it is obeyed only in the folder that the server named to the command. In any other
folder, a client may have created a file of that name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final
from urllib.parse import quote

import msgspec

from smartserver.errors import CorruptFile
from smartserver.store.format import PACKS
from transports.base import ReadFile, Stat, Step, Transport
from transports.decorators.passing import PassingTransport

PREVIEW: Final = "smartserver-preview"
"""The name of the file in a preview's folder that names the repository."""

NEW: Final = "SMARTSERVER_NEW"
"""The environment variable of a hook's command with the path of the preview's folder."""


class PreviewedStore(msgspec.Struct, frozen=True):
    """The content of the file `PREVIEW`. `url`: the URL of the store, or of a repository in it. `copies`: the folder
    with local copies of packs. `size`: the most GB that the copies may take."""

    url: str
    copies: str
    size: int

    def below(self, path: str) -> PreviewedStore:
        """Return the content for a repository in the store."""
        return msgspec.structs.replace(self, url=f"{self.url.rstrip('/')}/{quote(path)}".rstrip("/"))


def is_preview(folder: str, environment: Mapping[str, str]) -> bool:
    """Tell whether a local folder is the preview that the environment names, and has packs elsewhere."""
    named = environment.get(NEW, "")
    is_named = named != "" and os.path.realpath(folder) == os.path.realpath(named)
    return is_named and os.path.isfile(os.path.join(folder, PREVIEW))


def previewed_by(folder: Transport) -> PreviewedStore:
    """Return the store and repository of a preview, read from the file `PREVIEW` in its folder.

    Raises:
        CorruptFile: the file is damaged.
    """
    try:
        return msgspec.json.decode(folder.get(PREVIEW), type=PreviewedStore)
    except msgspec.DecodeError as error:
        raise CorruptFile(PREVIEW, 0, str(error)) from error


class PreviewTransport(PassingTransport):
    """The folder of a preview, completed by the packs of its repository."""

    def __init__(self, inner: Transport, packs: Transport, *, prefix: str = "") -> None:
        """`packs`: the folder of the repository."""
        super().__init__(inner, prefix=prefix)
        self._packs = packs
        self.capabilities = packs.capabilities

    def wrap(self, inner: Transport, prefix: str) -> PreviewTransport:
        return PreviewTransport(inner, self._packs, prefix=prefix)

    def get(self, path: str) -> bytes:
        return self._place(path).get(path)

    def open_read(self, path: str) -> ReadFile:
        return self._place(path).open_read(path)

    def stat(self, path: str) -> Stat:
        return self._place(path).stat(path)

    def perform(self, steps: Sequence[Step]) -> None:
        for place, run in groupby(steps, lambda step: self._place(step.path)):
            place.perform(list(run))

    def _place(self, path: str) -> Transport:
        is_pack = self.full(path).startswith(f"{PACKS}/")
        return self._packs if is_pack and not self.inner.exists(path) else self.inner

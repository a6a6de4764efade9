"""Remembers the obsolescence markers that a local repository has exchanged with a server.

A repository may have thousands of markers, most of which both sides have. So the local repository remembers for each
URL which markers the server has, and the server's version at the last exchange. The memory is a file in its cache
folder, whose loss costs only bytes. The memory records the size of the local file of markers, and a hash of its
content. If local markers were removed since, the memory is ignored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import Any, Final

import msgspec
from mercurial import obsolete, obsutil

from smartserver.vcs.hg.kinds import OBSOLETE
from smartserver.vcs.hg.markers import VERSION, KnownVersion, key_of
from smartserver.verbs.fields import MAX_IDS
from smartserver.verbs.map_update import EntryChange, How, MapKind, MapUpdateRequest

FILE: Final = b"hpss-markers"
"""The name of the memory in the cache folder of the local repository."""

UNKNOWN: Final[KnownVersion] = (b"", 0, 0)

Marker = tuple[Any, ...]
"""Mercurial's tuple: predecessor, successors, flags, metadata, date, parents."""


class Exchanged(msgspec.Struct, frozen=True, array_like=True):
    """A record of the last exchange of markers with a URL: which of the local markers its repository has."""

    version: KnownVersion = UNKNOWN
    """The server's version at the last exchange of markers. Only the incarnation is set if no markers were
    exchanged."""
    size: int = 0
    """The number of bytes at the start of the local file of markers that this record describes."""
    digest: bytes = b""
    """A hash of the first `size` bytes of the local file of markers."""
    lacking: list[bytes] = []
    """Keys of the markers in the first `size` bytes that the server is not known to have."""


_decoder = msgspec.msgpack.Decoder(dict[bytes, Exchanged])


def are_exchanged(repository: Any) -> bool:
    """Tell whether the configuration of a local repository says that markers are exchanged."""
    found: bool = obsolete.isenabled(repository, obsolete.exchangeopt)
    return found


def encode(marker: Marker) -> bytes:
    """Encode a marker in the form in which a server stores it."""
    return b"".join(obsolete.encodemarkers([marker], False, 1))


def stream(encoded: bytes) -> bytes:
    """Return received markers in the form of a bundle's part."""
    return VERSION + encoded


class MarkerMemory:
    """Remembers which local markers the repository at one URL has. The object is valid while the local repository stays
    locked."""

    def __init__(self, repository: Any, url: bytes) -> None:
        self._repository = repository.unfiltered()
        self._url = url
        self._there: set[Marker] = set()
        self.version = UNKNOWN
        """The server's version at the last exchange of markers."""
        found = self._every().get(url, Exchanged())
        content = self._content()
        if found.size <= len(content) and _digest(content[: found.size]) == found.digest:
            self.version = found.version
            self._there = _parse(content[: found.size])
            if found.lacking:
                lacking = set(found.lacking)
                self._there = {marker for marker in self._there if key_of(encode(marker)) not in lacking}

    def _content(self) -> bytes:
        content: bytes = self._repository.svfs.tryread(b"obsstore")
        return content

    def _every(self) -> dict[bytes, Exchanged]:
        with contextlib.suppress(msgspec.DecodeError):
            return _decoder.decode(self._repository.cachevfs.tryread(FILE))
        return {}

    def _is_of(self, incarnation: bytes) -> None:
        """Drop the memory if it is about an earlier repository at the URL, which had another incarnation."""
        if self.version[0] != incarnation:
            self.version, self._there = (incarnation, 0, 0), set()

    def unsent(self, relevant: Collection[Marker], incarnation: bytes) -> list[Marker]:
        """Return the given markers that the server may lack. `incarnation`: the last known incarnation of the server's
        repository."""
        self._is_of(incarnation)
        return list(obsutil.sortedmarkers(set(relevant) - self._there))

    def took(self, encoded: bytes, version: KnownVersion, *, is_all: bool) -> None:
        """Remember the markers that a pull received. `is_all`: True if the pull was for all changesets."""
        self._is_of(version[0])
        self._there |= _parse(stream(encoded))
        if is_all:
            self.version = version
        self._keep()

    def sent(
        self, markers: Iterable[Marker], before: KnownVersion | None, after: KnownVersion, *, is_changed: bool
    ) -> None:
        """Remember the markers that a push sent. `before`, `after`: the version of the server before and after the
        push. `is_changed`: True if the push changed something."""
        is_next = (
            after[1] == 1 if before is None else self.version == before and after[:2] == (before[0], before[1] + 1)
        )
        self._is_of(after[0])
        self._there.update(markers)
        if is_changed and is_next:  # All new markers on the server came from here.
            self.version = after
        self._keep()

    def _keep(self) -> None:
        content = self._content()
        lacking = [key_of(encode(marker)) for marker in _parse(content) - self._there]
        every = {**self._every(), self._url: Exchanged(self.version, len(content), _digest(content), lacking)}
        with contextlib.suppress(OSError):
            self._repository.cachevfs.write(FILE, msgspec.msgpack.encode(every), atomictemp=True)


def _parse(content: bytes) -> set[Marker]:
    return set(obsolete._readmarkers(content)[1]) if len(content) > len(VERSION) else set()


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def marker_updates(markers: Iterable[Marker]) -> list[MapUpdateRequest]:
    """Return the changes that add markers to the map of a repository."""
    entries = [EntryChange(key_of(value), value, How.ADD) for value in map(encode, markers)]
    parts = [entries[at : at + MAX_IDS] for at in range(0, len(entries), MAX_IDS)]
    return [MapUpdateRequest(OBSOLETE, MapKind.OPAQUE, part) for part in parts]

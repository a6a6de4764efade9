"""The file `CLUSTER` of a store that several servers share: it has the address of the database with the logs of the
repositories.

Every server and command finds the logs by this file. Without it, the store's repositories would seem to have no logs.
"""

from __future__ import annotations

import msgspec

from smartserver.errors import CorruptFile, Unsupported
from smartserver.store.creation import folders_to
from smartserver.store.format import CLUSTER
from transports import paths
from transports.base import Transport
from transports.errors import PermissionDenied
from transports.steps import Get

VERSION = 1


class Cluster(msgspec.Struct, frozen=True):
    """The content of the file `CLUSTER`. `store`: the identity of the store, which is also in the database. `log`: the
    address of the database, without a password."""

    store: str
    log: str
    version: int = VERSION


def place_of(whole: Transport, path: str) -> tuple[Transport, str, Cluster] | None:
    """Find the store that contains a place and has its logs in a database. Return the root of the store, the path of
    the place below the root, and the content of `CLUSTER`; None if no such store contains the place. `path`: the path
    of the place in `whole`. Folders above the place may be unreadable."""
    files = {folder: Get(paths.join(folder, CLUSTER)) for folder in reversed(folders_to(path))}
    try:
        whole.perform(list(files.values()))
    except PermissionDenied:
        if not files[path].was_performed:
            raise
    for folder, file in files.items():
        if file.was_performed and file.result is not None:
            return whole.child(folder) if folder else whole, path[len(folder) :].strip("/"), _decoded(file)
    return None


def _decoded(file: Get) -> Cluster:
    try:
        found = msgspec.json.decode(file.content, type=Cluster)
    except msgspec.DecodeError as error:
        raise CorruptFile(file.path, 0, str(error)) from error
    if found.version != VERSION:
        raise Unsupported(f"version {found.version} of {CLUSTER!r}", str(VERSION))
    return found


def mark_of(store: Transport) -> bytes | None:
    """Return the content of the file `CLUSTER` in the root of a store; None if it is missing."""
    file = Get(CLUSTER)
    store.perform([file])
    return file.result


def mark(store: Transport, cluster: Cluster) -> None:
    """Write the file `CLUSTER` of a store."""
    store.put(CLUSTER, [msgspec.json.format(msgspec.json.encode(cluster))])

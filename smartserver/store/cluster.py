"""The file of a store that several servers share: it says where the logs of the repositories are.

A store whose logs are in a database says so in a file of its own, `CLUSTER`, so that every server and command finds
them, and nobody takes a repository for one that lacks its log.
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
    """The content of the file: the identity of the store, as in the database, and its address without a password."""

    store: str
    log: str
    version: int = VERSION


def place_of(whole: Transport, path: str) -> tuple[Transport, str, Cluster] | None:
    """The store whose logs are in a database and that has a place: its root, the place's path below it, and its file;
    None if there is none. `path`: of the place in `whole`. Folders above the place may be unreadable."""
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
    """The content of that file in a store's root; None where it has none."""
    file = Get(CLUSTER)
    store.perform([file])
    return file.result


def mark(store: Transport, cluster: Cluster) -> None:
    """Say where the logs of a store are."""
    store.put(CLUSTER, [msgspec.json.format(msgspec.json.encode(cluster))])

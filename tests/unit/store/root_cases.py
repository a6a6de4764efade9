"""A small repository for the tests of the root: deterministic randomness, one push after another."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from smartserver.records.model import Kind, RefValue, Tip
from smartserver.store.creation import Creation
from smartserver.store.document import PackEntry, Root, empty_root
from smartserver.store.model import RootVersion
from smartserver.store.root import RootView, next_root
from smartserver.store.swap import RootFile
from smartserver.store.swap_log import NewLogEntry
from transports.base import Transport

KINDS = (Kind("object", "git-sha1", True),)
NOW = 1_700_000_000.0
HOUR = 3600


def randomness(seed: int = 1) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


def tip(number: int) -> RefValue:
    return (Tip(number.to_bytes(20, "big")),)


def many(count: int) -> dict[bytes, RefValue | None]:
    return {b"refs/tags/%06d" % number: tip(number) for number in range(count)}


def request(number: int) -> bytes:
    return number.to_bytes(16, "little")


def seen(view: RootView, version: int) -> RootVersion:
    """What a client knows that was told that version."""
    return RootVersion(b"i" * 16, version, view.mark(version))


def entry(number: int, outcomes: bytes = b"ok") -> NewLogEntry:
    return NewLogEntry("joe", request(number), outcomes)


def pack(number: int) -> PackEntry:
    fill = bytes([number])
    return PackEntry(fill * 16, 1000 + number, fill * 16, 100, fill * 16, 1, 3)


def new_root(
    transport: Transport, refs: Mapping[bytes, RefValue | None], *, incarnation: bytes = b"i" * 16
) -> tuple[Root, list[tuple[str, bytes]]]:
    view = RootView(empty_root(incarnation, "git sha1", KINDS, now=NOW), transport)
    return next_root(
        view, now=NOW, refs=refs, settings={"HEAD": b"refs/heads/main"}, log=entry(0), randomness=randomness()
    ).finish()


def create(file: RootFile, root: Root, files: Sequence[tuple[str, bytes]]) -> bool:
    """Make the repository, or make it anew over a tombstone; False when there is one."""
    Creation(file).hold_place(root.vcs, root.kinds)
    with file.swapping() as swap:
        if not swap.current.deleted:
            return False
        swap.replace(root, files)
        return True


def make(transport: Transport, refs: Mapping[bytes, RefValue | None], path: str = "") -> RootFile:
    file = RootFile(transport, path, randomness=randomness())
    assert create(file, *new_root(file.folder, refs))
    return file


def push(file: RootFile, refs: Mapping[bytes, RefValue | None], number: int, now: float = NOW) -> Root:
    with file.swapping() as swap:
        view = RootView(swap.current, file.folder)
        root, files = next_root(
            view, now=now, refs=refs, log=entry(number), randomness=randomness(1000 + number)
        ).finish()
        swap.replace(root, files)
    return root

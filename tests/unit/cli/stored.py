"""A small repository in a folder, as a server would have made it, and more in it."""

from __future__ import annotations

from pathlib import Path

from builders import MAIN, History, push

from smartserver.store.repository import PackRepository
from transports.local import LocalTransport


def stored(folder: Path, revisions: int = 3) -> History:
    """Make it; what is in it."""
    folder.mkdir(parents=True)
    history = History()
    line = history.line(revisions)
    push(PackRepository(LocalTransport(folder)), history, line, {MAIN: line[-1]})
    return history


def pack_of(folder: Path) -> Path:
    """Its one pack."""
    (found,) = [path for path in folder.rglob("*") if path.suffix == ".pack"]
    return found


def grow(folder: Path, history: History, count: int = 2, parent: bytes | None = None, ref: bytes = MAIN) -> bytes:
    """More revisions in a repository; the tip."""
    line = history.line(count, parent or list(history.parents)[-1], ref.decode())
    push(PackRepository(LocalTransport(folder)), history, line, {ref: line[-1]})
    return line[-1]
